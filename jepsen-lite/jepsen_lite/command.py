"""`kraftlab chaos`: break clusters on purpose, and prove what they did.

Each command is a module of `commands/`, imported when it is called. Here stand what they share: how a fault of the harness or of
its user ends.
"""

from __future__ import annotations

import importlib
import math
import traceback
from typing import Any

import click

from kraftlab.cli.command_groups import CommandGroup
from kraftlab.cli.output import CommandFailed

from . import INSTALL
from .verdicts import HARNESS, USAGE

COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("doctor", "doctor"),
    "test": ("test", "test"),
    "test-all": ("test", "test_all"),
    "replay": ("replay", "replay"),
    "shrink": ("shrink", "shrink"),
    "check": ("check", "check"),
    "report": ("report", "report"),
    "serve": ("serve", "serve"),
    "mutants": ("mutants", "mutants"),
    "clean": ("clean", "clean"),
}
"""Name → (module of `commands/`; attribute), in the order of `--help`."""


class HarnessError(Exception):
    """The harness cannot do what it was asked to; the text says why and what to do."""


class WrongUse(HarnessError):
    """The user asked for what cannot be."""


class FiniteRange(click.FloatRange):
    """A number that can be counted to: "nan" and "inf" are in any range of click's."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


class ChaosGroup(CommandGroup):
    """Loads commands when they are asked for, and gives faults the exit codes of the harness."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(f".commands.{module}", __package__), attribute)
        except ModuleNotFoundError as error:
            if not _comes_with_chaos(error):
                raise
            return NotInstalled(cmd_name, error)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _wrong_use(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        from .store import StoreError

        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _wrong_use(error) from None
        except (WrongUse, StoreError) as error:
            raise CommandFailed(f"Error: {error}", exit_code=USAGE) from error
        except HarnessError as error:
            raise CommandFailed(f"Error: {error}", exit_code=HARNESS) from error
        except ModuleNotFoundError as error:
            if not _comes_with_chaos(error):
                raise
            text = f"{error.name} is not installed; install what faults need with: {INSTALL}"
            raise CommandFailed(f"Error: {text}", exit_code=HARNESS) from error
        except (CommandFailed, click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # which would end as 1, as if safety had been violated
            raise CommandFailed(f"Error: {_told(error)}", exit_code=HARNESS) from error


class NotInstalled(click.Command):
    """Stands for a command whose packages are not there: `--help` and completion list it, and calling it says what to install."""

    def __init__(self, name: str, error: ModuleNotFoundError) -> None:
        super().__init__(name, short_help=f"Not installed: {INSTALL}")
        self._error = error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            raise self._error
        return []


def _told(error: Exception) -> str:
    """What a person is told of it; of a bug of the harness with where it is, on stderr."""
    from kraftlab.cli.main import known_failure

    text = known_failure(error)
    if text is None:
        traceback.print_exception(error)
    return text or f"the harness failed: {type(error).__name__}: {error}"


def _comes_with_chaos(error: ModuleNotFoundError) -> bool:
    return error.name is not None and error.name.partition(".")[0] in ("pyarrow", "jinja2")


def _wrong_use(error: click.UsageError) -> CommandFailed:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return CommandFailed(error.format_message(), exit_code=USAGE)
    where = error.ctx.command_path if error.ctx else "kraftlab chaos"
    return CommandFailed(f"Error: {error.format_message()}\nSee: {where} --help", exit_code=USAGE)


@click.group(
    "chaos",
    cls=ChaosGroup,
    short_help="Break clusters on purpose, and prove what they did.",
    epilog="""\b
Examples:
  kraftlab chaos doctor
  kraftlab chaos test -w registers -n kill,pause,partition --time 30
  kraftlab chaos COMMAND --help

\b
Exit codes: 0 valid, 1 safety violated, 2 unknown, 3 liveness, 4 a node crashed, 5 not deterministic, 254 wrong use, 255 the
harness itself failed.""",
)
def chaos() -> None:
    """Run workloads against clusters while faults strike, check every answer, and show what happened."""
