"""`kraftlab chaos` without its packages."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from click.shell_completion import BashComplete

from jepsen_lite.faults import ledger
from kraftlab.cli import main


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands that need jinja2 impossible to import."""
    imported = importlib.import_module

    def import_module(name: str, package: str | None = None) -> ModuleType:
        if name in ("jepsen_lite.commands.test", "jepsen_lite.commands.report"):
            raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")
        return imported(name, package)

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_help_lists_all_and_says_what_to_install(bare: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["chaos", "--help"]) == 0
    output = capsys.readouterr().out
    assert "  report    Not installed: pip install -e '.[chaos]'\n" in output
    assert "  clean     Remove faults, processes and files of killed runs.\n" in output


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-w", "registers"]])
def test_a_command_that_cannot_be_loaded_says_what_to_install(
    bare: None, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["chaos", "test", *arguments]) == 70
    assert capsys.readouterr().err == "Error: jinja2 is not installed; in the clone of kraftlab run: pip install -e '.[chaos]'\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device", "runs/run.json"), "cannot use runs/run.json: No space left on device"),
        (KeyError("partitions"), "the harness failed: KeyError: 'partitions'"),
    ],
)
def test_a_failed_harness_is_an_error_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, text: str
) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(ledger, "clean", fails)
    assert main.run(["chaos", "clean"]) == 1
    output = capsys.readouterr().err
    assert f"Error: {text}" in output
    assert ("Traceback" in output) == isinstance(error, KeyError), "a clear error needs no traceback"


def test_workloads_and_faults_are_completed() -> None:
    completion = BashComplete(main.build(), {}, "kraftlab", "_KRAFTLAB_COMPLETE")
    names = [item.value for item in completion.get_completions(["chaos", "test", "-w"], "re")]
    assert names == ["registers", "reassignments", "records"]
    assert [item.value for item in completion.get_completions(["chaos", "test", "-n"], "kill,pa")] == [
        "kill,pause",
        "kill,partition",
    ]


def test_completion_goes_on(bare: None) -> None:
    completion = BashComplete(main.build(), {}, "kraftlab", "_KRAFTLAB_COMPLETE")
    assert [item.value for item in completion.get_completions(["chaos"], "re")] == ["replay", "report"]
    assert completion.get_completions(["chaos", "test"], "") == []
