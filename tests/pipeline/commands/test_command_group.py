"""`kraftlab pipeline`: what its commands cost to list, and the exit codes they share."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline import command as group
from kraftlab.pipeline.errors import CorruptInput, EnvironmentFault, Fault, WrongUse

HEAVY = ["pyspark", "pyarrow", "pandas", "numpy", "scipy"]


def loaded_by(arguments: list[str]) -> list[str]:
    """Which of the heavy packages a command line imports."""
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
def test_wrong_use_ends_with_code_two_and_the_way_to_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *arguments]) == 2
    assert "See: kraftlab pipeline" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(Fault("odd"), 1), (WrongUse("odd"), 2), (EnvironmentFault("odd"), 3), (CorruptInput("odd"), 4)],
    ids=lambda value: str(value) if isinstance(value, int) else type(value).__name__,
)
def test_each_kind_of_fault_has_its_exit_code(
    error: Fault, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(group.pipeline, "get_command", lambda *_: click.Command("fails", callback=fail))
    assert run(["pipeline", "fails"]) == code
    assert capsys.readouterr().err == "Error: odd\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/log"), "Error: cannot use /log: Permission denied; check the path"),
        (PermissionError(13, "Cannot list directory '/log'"), "Error: Cannot list directory '/log'; check the path"),
    ],
    ids=["Python's", "Arrow's"],
)
def test_a_file_that_cannot_be_used_is_one_line_and_no_finding(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(group.pipeline, "get_command", lambda *_: click.Command("odd", callback=fail))
    assert run(["pipeline", "odd"]) == 3
    assert capsys.readouterr().err == f"{said} and its permissions\n"


def test_a_package_that_is_not_installed_is_told_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(group.pipeline, "get_command", lambda *_: click.Command("fails", callback=fail))
    monkeypatch.setattr(sys, "argv", ["kraftlab", "pipeline", "fails"])
    assert run(["pipeline", "fails"]) == 3
    assert "pip install 'kraftlab[pipeline]'" in capsys.readouterr().err


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'kraftlab.absent'", name="kraftlab.absent")

    monkeypatch.setattr(group.pipeline, "get_command", lambda *_: click.Command("fails", callback=fail))
    with pytest.raises(ModuleNotFoundError):
        run(["pipeline", "fails"])


def test_with_json_a_fault_is_a_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kraftlab", "pipeline", "nonsense", "--json"])
    assert run() == 2
    assert "No such command 'nonsense'" in json.loads(capsys.readouterr().out)["error"]["message"]
