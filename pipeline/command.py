"""`kraftlab pipeline`: metadata logs as data.

Each family of commands is a module of `commands/`, imported when it is called. A family imports Spark, Arrow and NumPy where it
needs them, so that no command pays for another's imports. This module translates faults into exit codes.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from kraftlab.cli.command_groups import Endings, LazyGroup
from kraftlab.common.exit_codes import FAILED, MACHINE, USAGE

from .errors import EXTRA, EnvironmentFault, Fault, WrongUse

COMMANDS = {
    "doctor": "kraftlab.pipeline.commands.doctor:doctor",
    "warmup": "kraftlab.pipeline.commands.warmup:warmup",
    "kraft-dump": "kraftlab.pipeline.commands.kraft_dump:kraft_dump",
    "ingest": "kraftlab.pipeline.commands.ingest:ingest",
    "build": "kraftlab.pipeline.commands.build:build",
    "stream": "kraftlab.pipeline.commands.stream:stream",
    "samples": "kraftlab.pipeline.commands.samples:samples",
    "audit": "kraftlab.pipeline.commands.audit:audit",
    "state": "kraftlab.pipeline.commands.state:state",
    "logdirs": "kraftlab.pipeline.commands.logdirs:logdirs",
    "sql": "kraftlab.pipeline.commands.lake:sql",
    "vacuum": "kraftlab.pipeline.commands.lake:vacuum",
    "plan": "kraftlab.pipeline.commands.plan:plan",
    "report": "kraftlab.pipeline.commands.report:report",
}
"""Command → "module:attribute", in the order of `--help`."""

_OF_FILES = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS})


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The Spark options of the command line, for `commands.spark.spark_session`."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def _text(error: Exception) -> str | None:
    """Return the sentence for the user, None for a bug."""
    return _unusable(error) if isinstance(error, OSError) else str(error)


def _unusable(error: OSError) -> str | None:
    """Return the advice about a file or directory that cannot be used, or None if the error is about neither. Arrow's errors name
    the file in their text.
    """
    if error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; check the path and its permissions"
    if error.errno in _OF_FILES:
        return f"{error.strerror or error}; check the path and its permissions"
    return None


ENDINGS = Endings(
    codes=(
        (WrongUse, USAGE),
        (EnvironmentFault, MACHINE),
        (Fault, FAILED),
        (OSError, FAILED),
    ),
    text=_text,
    extra="pipeline",
    packages=EXTRA,
)


@click.group(
    "pipeline",
    cls=LazyGroup,
    modules=COMMANDS,
    endings=ENDINGS,
    epilog="""\b
Examples:
  kraftlab pipeline kraft-dump /var/lib/kafka/metadata
  kraftlab pipeline --master spark://host:7077 COMMAND …
  kraftlab pipeline COMMAND --help

\b
Exit codes: 0 clean, 1 findings or error, 64 wrong use, 70 missing on this machine, e.g. Java (docs/exit-codes.md).""",
)
@click.option(
    "--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077, sc://host:15002 (default: this machine)."
)
@click.option(
    "--conf",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a Spark property, for example spark.driver.memory=4g; repeatable.",
)
@click.option("--shared-files", is_flag=True, help="All Spark workers see the files under the same paths, as on a shared disk.")
@click.pass_context
def pipeline(context: click.Context, master: str | None, pairs: tuple[str, ...], shared_files: bool) -> None:
    """Read metadata logs and turn them into tables, audits and plans."""
    odd = next((pair for pair in pairs if not pair.partition("=")[1]), None)
    if odd is not None:
        raise click.BadParameter(f"{odd!r} is not KEY=VALUE", context, param_hint="--conf")
    split = (pair.partition("=") for pair in pairs)
    conf = {key.strip(): value.strip() for key, _, value in split}
    context.obj = SparkOptions(master, conf | {"spark.kraftlab.sharedFiles": "true"} if shared_files else conf)
