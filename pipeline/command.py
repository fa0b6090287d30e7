"""`kraftlab pipeline`: metadata logs as data.

Each family of commands is a module of `commands/`, imported when it is called, and imports Spark, Arrow and NumPy where it needs
them, so that none pays for another's. Here stand the exit codes that all of them share, and what becomes of their faults.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from kraftlab.cli.command_groups import CommandGroup
from kraftlab.cli.output import CommandFailed

from .errors import FAULTS, Fault, missing_package_text

COMMANDS = {
    "doctor": ("doctor", "doctor"),
    "warmup": ("warmup", "warmup"),
    "kraft-dump": ("kraft_dump", "kraft_dump"),
    "ingest": ("ingest", "ingest"),
    "build": ("build", "build"),
    "stream": ("stream", "stream"),
    "samples": ("samples", "samples"),
    "audit": ("audit", "audit"),
    "state": ("state", "state"),
    "logdirs": ("logdirs", "logdirs"),
    "sql": ("lake", "sql"),
    "vacuum": ("lake", "vacuum"),
    "plan": ("plan", "plan"),
    "report": ("report", "report"),
}
"""Name → (module of `commands/`; attribute), in the order of `--help`."""

CLEAN, FINDINGS, USAGE, ENVIRONMENT, CORRUPT = range(5)
"""Exit codes of all commands: nothing found; something found (drift, a violation, a failed check); wrong use; a machine that
cannot run it (no Java); corrupt input, where the command was told to stop at it."""


_OF_FILES = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS})


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the command line says about Spark, for `commands.spark.spark_session`."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


class PipelineGroup(CommandGroup):
    """Loads commands when they are asked for, and gives their faults the exit codes of the pipeline."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f".commands.{module}", __package__), attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _wrong_use(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _wrong_use(error) from None
        except Fault as error:
            raise CommandFailed(f"Error: {error}", exit_code=_exit_code(error)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            text = _unusable(error)
            if text is None:
                raise
            raise CommandFailed(f"Error: {text}", exit_code=ENVIRONMENT) from error
        except ModuleNotFoundError as error:
            text = missing_package_text(error)
            if text is None:
                raise
            raise CommandFailed(f"Error: {text}", exit_code=ENVIRONMENT) from error


def _wrong_use(error: click.UsageError) -> CommandFailed:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return CommandFailed(error.format_message(), exit_code=USAGE)
    where = error.ctx.command_path if error.ctx else "kraftlab pipeline"
    return CommandFailed(f"Error: {error.format_message()}\nSee: {where} --help", exit_code=USAGE)


def _unusable(error: OSError) -> str | None:
    """What to do about a file or directory that cannot be used, None if the error is of none. Arrow's say which in their text."""
    if error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; check the path and its permissions"
    if error.errno in _OF_FILES:
        return f"{error.strerror or error}; check the path and its permissions"
    return None


def _exit_code(error: Fault) -> int:
    return next(code for kind, code in FAULTS if isinstance(error, kind))


@click.group(
    "pipeline",
    cls=PipelineGroup,
    short_help="Turn metadata logs into tables, audits and plans.",
    epilog="""\b
Examples:
  kraftlab pipeline kraft-dump /var/lib/kafka/metadata
  kraftlab pipeline --master spark://host:7077 COMMAND …
  kraftlab pipeline COMMAND --help

\b
Exit codes: 0 clean, 1 findings, 2 wrong use, 3 the machine cannot run it (no Java), 4 corrupt input and told to stop at it.""",
)
@click.option(
    "--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077, sc://host:15002; this machine by default."
)
@click.option(
    "--conf", "pairs", metavar="KEY=VALUE", multiple=True, help="A setting of Spark's, as spark.driver.memory=4g; any number."
)
@click.option("--shared-files", is_flag=True, help="Paths are on a disk that all workers of the master mount at the same place.")
@click.pass_context
def pipeline(context: click.Context, master: str | None, pairs: tuple[str, ...], shared_files: bool) -> None:
    """Read metadata logs and turn them into tables, audits and plans."""
    odd = next((pair for pair in pairs if not pair.partition("=")[1]), None)
    if odd is not None:
        raise click.BadParameter(f"{odd!r} is no KEY=VALUE", context, param_hint="--conf")
    split = (pair.partition("=") for pair in pairs)
    conf = {key.strip(): value.strip() for key, _, value in split}
    context.obj = SparkOptions(master, conf | {"spark.kraftlab.sharedFiles": "true"} if shared_files else conf)
