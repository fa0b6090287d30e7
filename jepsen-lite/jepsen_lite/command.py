"""`kraftlab chaos`: break clusters on purpose and check the results.

Each command is a module of `commands/`, imported when it is called. This module holds the shared handling of errors and exit
codes.
"""

from __future__ import annotations

import math
import traceback
from typing import Any

import click

from kraftlab.cli.command_groups import Endings, LazyGroup
from kraftlab.common.exit_codes import FAILED, MACHINE, USAGE

from .store import StoreError

COMMANDS = {
    "doctor": "jepsen_lite.commands.doctor:doctor",
    "test": "jepsen_lite.commands.test:test",
    "test-all": "jepsen_lite.commands.test_all:test_all",
    "replay": "jepsen_lite.commands.replay:replay",
    "shrink": "jepsen_lite.commands.shrink:shrink",
    "check": "jepsen_lite.commands.check:check",
    "report": "jepsen_lite.commands.report:report",
    "clean": "jepsen_lite.commands.clean:clean",
}
"""Command → "module:attribute", in the order of `--help`."""


class HarnessError(Exception):
    """The harness cannot do what was requested; the text says why and what to do."""


class WrongUse(HarnessError):
    """The request itself is invalid."""


class MachineLacks(HarnessError):
    """This machine lacks something that the request needs."""


class FiniteRange(click.FloatRange):
    """A finite number: click's ranges accept "nan" and "inf"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def _text(error: Exception) -> str:
    """Return the message for the user; print the traceback of a bug of the harness on stderr first."""
    from kraftlab.cli.main import known_failure

    text = str(error) if isinstance(error, HarnessError | StoreError) else known_failure(error)
    if text is None:
        traceback.print_exception(error)
    return text or f"the harness failed: {type(error).__name__}: {error}"


ENDINGS = Endings(
    codes=(
        (WrongUse, USAGE),
        (MachineLacks, MACHINE),
        (Exception, FAILED),
    ),
    text=_text,
    extra="chaos",
    packages=frozenset({"pyarrow", "jinja2", "kafka"}),
)


@click.group(
    "chaos",
    cls=LazyGroup,
    modules=COMMANDS,
    endings=ENDINGS,
    epilog="""\b
Examples:
  kraftlab chaos doctor
  kraftlab chaos test -w registers -n kill,pause,partition --time 30
  kraftlab chaos COMMAND --help

\b
Exit codes: 0 valid, 1 not valid or an error, 2 unknown, 64 wrong use, 70 missing on this machine, e.g. strace
(docs/exit-codes.md). The verdict says what was violated.""",
)
def chaos() -> None:
    """Run workloads against clusters under faults, check every answer, and show what happened."""
