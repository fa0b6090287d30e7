"""Mistyped names of commands and options get suggestions, in every group."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from kraftlab.cli import main
from kraftlab.cli.command_groups import Endings


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        ("topicz", "No such command 'topicz'. Did you mean 'topics'?\nSee: kraftlab --help", 1),
        ("Topics", "No such command 'Topics'. Did you mean 'topics'?\nSee: kraftlab --help", 1),
        ("reassign", "No such command 'reassign'. Did you mean 'reassign-partitions'?\nSee: kraftlab --help", 1),
        ("console", "No such command 'console'. Did you mean 'console-producer' or 'console-consumer'?\nSee: kraftlab --help", 1),
        ("xyzzy", "No such command 'xyzzy'.\nSee: kraftlab --help", 1),
        ("sim mutant", "No such command 'mutant'. Did you mean 'mutants'?\nSee: kraftlab sim --help", 1),
        ("storage formt", "No such command 'formt'. Did you mean 'format'?\nSee: kraftlab storage --help", 1),
        ("cluster killl leader", "No such command 'killl'. Did you mean 'kill'?\nSee: kraftlab cluster --help", 1),
        ("chaos tst", "No such command 'tst'. Did you mean 'test'?\nSee: kraftlab chaos --help", 254),
        ("pipeline biuld", "No such command 'biuld'. Did you mean 'build'?\nSee: kraftlab pipeline --help", 2),
        ("pipeline plan propse", "No such command 'propse'. Did you mean 'propose'?\nSee: kraftlab pipeline plan --help", 2),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(words: str, says: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words.split()) == code
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
    assert main.run(words.split()) == 1
    said = capsys.readouterr().err
    assert said.startswith("Error: No such option")
    assert "Did you mean" in said
    assert f"'{meant}'" in said


def test_the_first_matching_row_decides_the_exit_code() -> None:
    endings = Endings(
        usage=2,
        codes=((KeyError, 4), (LookupError, 5), (OSError, 6)),
        text=lambda error: None if isinstance(error, OSError) else "odd",
        not_installed=7,
        extra="extra",
        packages=frozenset({"arrow"}),
    )
    ended = [endings.failure(error) for error in (KeyError(), IndexError(), OSError(), ModuleNotFoundError(name="arrow.sql"))]
    assert [failure and (failure.exit_code, failure.text) for failure in ended] == [
        (4, "Error: odd"),
        (5, "Error: odd"),
        None,
        (7, "Error: arrow is not installed; install it with: pip install 'kraftlab[extra]'"),
    ]
    assert endings.failure(ModuleNotFoundError(name="kraftlab.absent")) is None
