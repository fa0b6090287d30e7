"""Output of commands: lines for people, one JSON document for programs, errors as one line with the next step.

A command returns its exit code (`common/exit_codes.py`), or raises an error that has one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping

import click
import msgspec

from kraftlab.common.exit_codes import DONE, FAILED, USAGE


class CommandFailed(Exception):
    """The failure that ends a command. `text` is printed unchanged: on stdout where Kafka's tool does so, otherwise on stderr."""

    def __init__(self, text: str, *, exit_code: int = FAILED, on_stdout: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code
        self.on_stdout = on_stdout


class WrongUse(CommandFailed):
    """A command line that a command refuses, before it does anything."""

    def __init__(self, text: str, *, on_stdout: bool = False) -> None:
        super().__init__(text, exit_code=USAGE, on_stdout=on_stdout)


class BadInput(ValueError):
    """Input that a command cannot use. The text names it, the fault and the next step, and ends the command."""


class BadArgument(BadInput):
    """A value of an option that cannot be meant: wrong use of the command."""


class Output:
    """Output of one command. With `as_json`, lines are dropped and `result` prints the one document."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None where no person reads."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def lines(self, lines: Iterable[str]) -> None:
        if not self.as_json:
            for line in lines:
                click.echo(line)

    def findings(self, lines: Iterable[str]) -> None:
        """Print findings of a long run at once; with `as_json` on stderr, beside the progress."""
        for line in lines:
            click.echo(line, err=self.as_json)

    def silent_brokers(self, silent: Mapping[int, str]) -> int:
        """Name the brokers that did not answer on stderr, and return the exit code."""
        for broker, reason in sorted(silent.items()):
            click.echo(f"Broker {broker} is missing here: {reason}", err=True)
        if silent:
            click.echo("See: kraftlab cluster list-endpoints --include-fenced-brokers", err=True)
        return FAILED if silent else DONE

    def result(self, document: object) -> None:
        if self.as_json:
            print_json(document)


def print_json(document: object) -> None:
    click.echo(msgspec.json.encode(document).decode())


def print_failure(error: CommandFailed, as_json: bool) -> None:
    if as_json:
        print_json({"error": {"message": error.text.removeprefix("Error: ")}})
    else:
        click.echo(error.text, file=sys.stdout if error.on_stdout else sys.stderr)


def given_options(values: Mapping[str, object]) -> list[str]:
    """Return the names of the given options as a user writes them: `plan-id` for `plan_id`, `list` for `list_`."""
    given = (name for name, value in values.items() if not (value is None or value is False or value == ()))
    return [name.rstrip("_").replace("_", "-") for name in given]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown name, with similar names, otherwise with all names."""
    from difflib import get_close_matches
    from textwrap import fill

    names = list(known)
    near = get_close_matches(name, names)
    if near:
        return f"there is no {kind} {name}; did you mean {' or '.join(near)}?"
    return f"there is no {kind} {name}; there are\n" + fill(
        ", ".join(names), width=100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
linearizable_option = click.option(
    "--linearizable",
    is_flag=True,
    help="Include every write that was acknowledged before this command started; needs a majority of the controllers.",
)
