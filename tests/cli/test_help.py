"""The examples of `--help` are valid command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

import click

from kraftlab.cli import main
from kraftlab.cli.command_groups import CommandGroup

CONTINUED = re.compile(r"\\\n\s*")
STANDS_FOR_SOMETHING = {"COMMAND", "…"}


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command below this one, with its path."""
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from commands(found, click.Context(found, parent=context, info_name=name))


def examples(epilog: str) -> Iterator[list[str]]:
    """The words of each command line of an epilog that begins with `kraftlab`, up to a pipe."""
    for line in CONTINUED.sub("", epilog).splitlines():
        if line.startswith("  kraftlab ") and not STANDS_FOR_SOMETHING & set(line.split()):
            words = shlex.split(line, comments=True)
            yield words[: words.index("|")] if "|" in words else words


def stranger(words: list[str], known: dict[str, click.Command]) -> str | None:
    """The first word that names no command or option there is."""
    at, options = words[0], {"--help", "--version"}
    for word in words[1:]:
        if f"{at} {word}" in known:
            at = f"{at} {word}"
            options |= {name for option in known[at].params for name in (*option.opts, *option.secondary_opts)}
        elif re.match(r"--?[a-z]", word) and word.partition("=")[0] not in options:
            return word
    command = known[at]
    return at if isinstance(command, click.Group) and not command.invoke_without_command else None


def test_examples_name_commands_and_options_that_there_are_and_can_be_pasted() -> None:
    root = main.build()
    known = dict(commands(root, click.Context(root, info_name="kraftlab")))
    checked = 0
    found = [command for command in known.values() if isinstance(command, click.Group)]
    assert [group.name for group in found if not isinstance(group, CommandGroup)] == [], "a mistyped name gets a suggestion"
    for path, command in known.items():
        epilog = command.epilog or ""
        assert command.get_help(click.Context(command, info_name=path)).startswith(f"Usage: {path}")
        for words in examples(epilog):
            assert stranger(words, known) is None, f"{path}: {shlex.join(words)}"
            checked += 1
        for line, following in pairwise(epilog.splitlines()):
            if line.startswith("  kraftlab ") and following.startswith("      "):
                assert line.endswith("\\"), f"{path}: {line} goes on in the next line"
    assert checked > 150


def test_the_help_of_each_group_names_the_exit_codes_and_their_page() -> None:
    root = main.build()
    context = click.Context(root, info_name="kraftlab")
    for group in (root, root.get_command(context, "chaos"), root.get_command(context, "pipeline")):
        assert group is not None
        told = str(group.epilog).partition("Exit codes: ")[2]
        assert [int(code) for code in re.findall(r"\b\d+(?= )", told)][:2] == [0, 1]
        assert "64 wrong use" in told and "70 missing on this machine" in told and "docs/exit-codes.md" in told
