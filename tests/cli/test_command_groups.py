"""Mistyped names of commands and options get suggestions, in every group."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from kraftlab.cli import main
from kraftlab.cli.command_groups import Endings


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("topicz", "No such command 'topicz'. Did you mean 'topics' or 'top'?\nSee: kraftlab --help"),
        ("Topics", "No such command 'Topics'. Did you mean 'topics' or 'top'?\nSee: kraftlab --help"),
        ("reassign", "No such command 'reassign'. Did you mean 'reassign-partitions'?\nSee: kraftlab --help"),
        ("console-", "No such command 'console-'. Did you mean 'console-producer' or 'console-consumer'?\nSee: kraftlab --help"),
        ("xyzzy", "No such command 'xyzzy'.\nSee: kraftlab --help"),
        ("mutant", "No such command 'mutant'. Did you mean 'mutants'?\nSee: kraftlab --help"),
        ("storage formt", "No such command 'formt'. Did you mean 'format'?\nSee: kraftlab storage --help"),
        ("cluster killl leader", "No such command 'killl'. Did you mean 'kill'?\nSee: kraftlab cluster --help"),
        ("chaos tst", "No such command 'tst'. Did you mean 'test'?\nSee: kraftlab chaos --help"),
        ("pipeline biuld", "No such command 'biuld'. Did you mean 'build'?\nSee: kraftlab pipeline --help"),
        ("pipeline plan propse", "No such command 'propse'. Did you mean 'propose'?\nSee: kraftlab pipeline plan --help"),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words.split()) == 64
    assert capsys.readouterr().err == f"Error: {says}\n"


def test_completion_after_an_unknown_command_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    completion = BashComplete(main.build(), {}, "kraftlab", "_KRAFTLAB_COMPLETE")
    completion.get_completions(["topicz"], "")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("topics --bootstrap-servr x", "--bootstrap-server"),
        ("storage format --ignore-formated", "--ignore-formatted"),
        ("metadata-shell --metadata-dri x ls /", "--metadata-dir"),
        ("metadata-shell --metadata-dir x --ofset=5 ls /", "--offset"),
    ],
)
def test_a_mistyped_option_gets_a_suggestion(words: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words.split()) == 64
    said = capsys.readouterr().err
    assert said.startswith("Error: No such option")
    assert "Did you mean" in said
    assert f"'{meant}'" in said


def test_the_first_matching_row_decides_the_exit_code() -> None:
    endings = Endings(
        codes=((KeyError, 4), (LookupError, 5), (OSError, 6)),
        text=lambda error: None if isinstance(error, OSError) else "odd",
        extra="extra",
        packages=frozenset({"arrow"}),
    )
    ended = [endings.failure(error) for error in (KeyError(), IndexError(), OSError(), ModuleNotFoundError(name="arrow.sql"))]
    assert [failure and (failure.exit_code, failure.text) for failure in ended] == [
        (4, "Error: odd"),
        (5, "Error: odd"),
        None,
        (70, "Error: arrow is not installed; in the clone of kraftlab run: pip install -e '.[extra]'"),
    ]
    assert endings.failure(ModuleNotFoundError(name="kraftlab.absent")) is None
