"""One language of exit codes, docs/exit-codes.md, spoken by all commands.

Elsewhere: 2 of `reassign-partitions` in test_moves_end_to_end.py, 70 of `chaos` in tests/jepsen_lite/commands/test_test.py and of
`pipeline` in tests/pipeline/commands/test_command_group.py, 130 in test_commands.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench.__main__ import bench
from bench.measure import Report, measurement
from kraftlab.cli import main
from kraftlab.common.exit_codes import DONE, FAILED, UNFINISHED, USAGE
from kraftlab.demo.pipeline import main as pipeline_demo


def paths(command: click.Command, context: click.Context) -> Iterator[tuple[str, ...]]:
    """Yield the words that name each command below this one, and the empty words of this one."""
    yield ()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from ((name, *path) for path in paths(found, click.Context(found, parent=context, info_name=name)))


ROOTS: dict[str, click.Command] = {"kraftlab": main.build(), "bench": bench, "demo.pipeline": pipeline_demo}
COMMANDS = [(root, path) for root, command in ROOTS.items() for path in paths(command, click.Context(command, info_name=root))]


@pytest.mark.parametrize(("root", "path"), COMMANDS, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_wrong_use_of_each_command_ends_with_64(root: str, path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*path, "--no-such-option"], ROOTS[root], root) == USAGE
    assert "--no-such-option" in capsys.readouterr().err


def test_every_command_is_among_them() -> None:
    assert len(COMMANDS) > 100
    assert {path[0] for root, path in COMMANDS if root == "kraftlab" and path} == set(main.COMMANDS)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("completion bash", DONE),
        ("storage info --config {here}/none", FAILED),
        ("sim --seeds 1", DONE),
        ("sim --seed 0 --mutant vote-forgotten", FAILED),
        ("sim --seeds 1 --faults earthquake", USAGE),
        ("demo --capture {here}", FAILED),
        ("pipeline kraft-dump {here}/none", FAILED),
        ("pipeline vacuum --lake {here}", USAGE),
        ("chaos clean --dry-run", DONE),
        ("chaos check none --store {here}", FAILED),
        ("chaos check none --all --store {here}", USAGE),
        ("chaos test-all --world simulated --within 0 --store {here}", UNFINISHED),
        ("topics --list --bootstrap-server nowhere", USAGE),
        ("topics --list --delete", USAGE),
        ("features upgrade --feature odd", USAGE),
    ],
)
def test_the_other_codes_of_each_group(
    words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    try:
        ended = main.run([word.format(here=tmp_path) for word in words.split()])
    except SystemExit as end:
        ended = end.code
    assert ended == code, capsys.readouterr().err


def test_a_measurement_ends_with_the_code_of_its_report() -> None:
    @measurement("odd", "Something odd.", quick="Less.")
    def odd(quick: bool) -> Report:
        return Report([], "", DONE if quick else FAILED)

    assert (main.run([], odd), main.run(["--quick"], odd)) == (FAILED, DONE)
