"""`kraftlab pipeline kraft-dump`: a real Kafka's metadata log as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kraftlab.cli.output import CommandFailed
from kraftlab.common.exit_codes import DONE, FAILED

STRICT_TEXT = "Error: stopped at the first fault because of --strict; without it the rest is read"
PROGRESS_BYTES = 1 << 19


@click.command(
    "kraft-dump",
    short_help="Print a real Kafka's metadata log as JSON, without a JVM.",
    epilog="""\b
Examples:
  kraftlab pipeline kraft-dump __cluster_metadata-0/00000000000000000000.log
  kraftlab pipeline kraft-dump /var/lib/kafka/metadata > metadata.jsonl
  kraftlab pipeline kraft-dump --file-names controller-*/metadata | grep '"error"'

\b
Unreadable parts are lines with "error" in their place, and lines on stderr; the rest is printed all the same.
The torn end of a segment, as during a write, is reported on stderr and does not count as a fault.

\b
Exit code 1: something could not be decoded, or there is no such file.""",
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Stop at the first part that cannot be read, also at a torn end.")
@click.option("--file-names", is_flag=True, help='Put the key "file" first in each line.')
def kraft_dump(paths: tuple[Path, ...], strict: bool, file_names: bool) -> int:
    """Print segments and checkpoints of Kafka's __cluster_metadata-0, one JSON line per batch, as Kafka's own decoder shows them.
    For a directory, all its logs are printed.
    """
    from ..kraft_log.errors import NoSuchLog
    from ..kraft_log.files import find_files

    try:
        files = find_files(paths)
    except NoSuchLog as error:
        raise CommandFailed(f"Error: {error}") from None
    for path in files:
        _refuse_own(path)
    return _dump(files, strict=strict, file_names=file_names)


def _refuse_own(path: Path) -> None:
    """Refuse a log of kraftlab's own: to Kafka's decoder it is one long damage, which hides its contents."""
    from ..sources.formats import is_own_format

    with path.open("rb") as file:
        if is_own_format(file.read(4)):
            command = f"kraftlab dump-log --cluster-metadata-decoder --files {path}"
            raise CommandFailed(f"Error: {path} is a metadata log of kraftlab's own, not of Kafka's; read it with: {command}")


def _dump(files: list[Path], *, strict: bool, file_names: bool) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from ..kraft_log.dump import dump_file

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    shown = console.is_terminal and not sys.stdout.isatty()
    out = sys.stdout.buffer
    batches = records = faults = 0
    with Progress(*columns, console=console, disable=not shown, transient=True) as progress:
        for path in files:
            task = progress.add_task(path.name, total=path.stat().st_size)
            shown_bytes = 0
            for line in dump_file(path, name_file=file_names):
                out.write(line.json + b"\n")
                faults += len(line.faults)
                batches += 1
                records += line.records
                if line.end_position - shown_bytes >= PROGRESS_BYTES:
                    shown_bytes = line.end_position
                    progress.update(task, completed=shown_bytes)
                if line.faults or line.notes:
                    _warn(line.faults + line.notes)
                    if strict:
                        out.flush()
                        raise CommandFailed(STRICT_TEXT, exit_code=FAILED)
    out.flush()
    if faults:
        text = f'Could not be read: {faults}; see the lines with an "error". Printed: {batches} lines with {records} records.'
        click.echo(text, err=True)
    return FAILED if faults else DONE


def _warn(texts: Iterable[str]) -> None:
    for text in texts:
        click.echo(text, err=True)
