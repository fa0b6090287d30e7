"""`kraftlab dump-log`: print the batches of the metadata log, of its snapshots, and of partitions' logs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from kraftlab.common.exit_codes import DONE, FAILED

from ..output import CommandFailed, WrongUse

_METADATA_MAGIC = b"KLS1"


class ShownParts(NamedTuple):
    """Parts of each batch to show."""

    records: bool
    payload: bool
    place: bool
    max_bytes: int | None
    as_json: bool


@click.command(
    "dump-log",
    epilog="""\b
Examples:
  kraftlab dump-log --files /var/lib/kraftlab/metadata/__cluster_metadata-0/00000000000000000000.log --cluster-metadata-decoder
  kraftlab dump-log --files 00000000000000004711-0000000003.checkpoint --cluster-metadata-decoder --skip-record-metadata
  kraftlab dump-log --files d0/orders-0/00000000000000000000.log,d0/orders-0/00000000000000000000.index --print-data-log

\b
Every crc and the order of the batches are checked. Damage is reported with its position, and reading continues after it; the
exit code is 1 then. Secrets in metadata records are not shown. The files are not changed; nodes may run.""",
)
@click.option(
    "--files",
    type=click.Path(),
    required=True,
    multiple=True,
    metavar="FILE[,FILE…]",
    help="Segments (.log), snapshots (.checkpoint) and offset indexes (.index), separated by commas.",
)
@click.option(
    "--cluster-metadata-decoder", "decode_metadata", is_flag=True, help="Decode metadata records and show them as JSON."
)
@click.option("--print-data-log", is_flag=True, help="Show the keys and values of records.")
@click.option("--deep-iteration", is_flag=True, help="Show each record, not only the batches.")
@click.option("--skip-record-metadata", is_flag=True, help="Omit the offsets, times and sizes of records.")
@click.option("--max-bytes", type=click.IntRange(min=1), metavar="N", help="Read at most N bytes of each file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each batch, one per line.")
def dump_log(
    files: tuple[str, ...],
    decode_metadata: bool,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    max_bytes: int | None,
    as_json: bool,
) -> int:
    """Show the contents of log files, whole or damaged, of a running, stopped or broken node."""
    paths = [path for given in files for path in given.split(",") if path]
    payload = decode_metadata or print_data_log
    wanted = ShownParts(payload or deep_iteration, payload, not skip_record_metadata, max_bytes, as_json)
    is_sound = True
    for path in paths:
        is_sound &= _dump(path, wanted)
    sys.stdout.flush()
    return DONE if is_sound else FAILED


def _dump(path: str, wanted: ShownParts) -> bool:
    """Show one file; return True if it is valid."""
    kinds: dict[str, Callable[[str, ShownParts], bool]] = {
        ".log": _dump_log,
        ".checkpoint": _dump_metadata,
        ".index": _dump_index,
    }
    suffix = Path(path).suffix
    if suffix not in kinds:
        raise WrongUse(f"Error: {path} does not end in {', '.join(kinds)}; give segments, snapshots or offset indexes")
    if not Path(path).is_file():
        raise CommandFailed(f"Error: {path} is not a file; give the path of a segment, snapshot or offset index")
    _line(wanted, f"Dumping {path}")
    return kinds[suffix](path, wanted)


def _print(text: str) -> None:
    """Print a line of the dump without a flush: there may be millions of lines."""
    sys.stdout.write(text + "\n")


def _print_json(document: dict[str, Any]) -> None:
    _print(msgspec.json.encode(document).decode())


def _line(wanted: ShownParts, text: str) -> None:
    if not wanted.as_json:
        _print(text)


def _dump_log(path: str, wanted: ShownParts) -> bool:
    from kraftlab.quorum.storage.identity import PARTITION_DIRECTORY
    from kraftlab.records.record_batch import MAGIC_AT

    with open(path, "rb") as file:
        start = file.read(MAGIC_AT + 1)
    # A directory of that name has our log, perhaps with a damaged header page, or Kafka's, which consists of record batches.
    is_kafkas = start[MAGIC_AT:] == b"\2"
    is_metadata = start.startswith(_METADATA_MAGIC) or (
        not is_kafkas and Path(path).absolute().parent.name == PARTITION_DIRECTORY
    )
    return _dump_metadata(path, wanted) if is_metadata else _dump_data(path, wanted)


def _show(
    path: str, wanted: ShownParts, document: dict[str, Any], records: Iterator[dict[str, Any]], line: Callable[..., str]
) -> bool:
    """Show one batch with its records; return True if all records are readable."""
    from .text import batch_line

    if wanted.as_json:
        shown = list(records) if wanted.records else []
        _print_json({"file": path, **document, **({"records": shown} if wanted.records else {})})
        return not any("error" in record for record in shown)
    _print(batch_line(document))
    is_sound = True
    for record in records if wanted.records else ():
        is_sound &= "error" not in record
        _print(line(record))
    return is_sound


def _dump_metadata(path: str, wanted: ShownParts) -> bool:
    from kraftlab.config.secrets import is_secret
    from kraftlab.quorum.storage.survey import BrokenPlace, survey_file

    from .text import broken_document, broken_line, metadata_batch, metadata_record_line, metadata_records

    survey = survey_file(path, wanted.max_bytes)
    is_sound = not survey.header_fault
    if survey.snapshot is not None:
        _line(wanted, f"Snapshot end offset: {survey.snapshot.offset}, epoch: {survey.snapshot.epoch}")
    elif survey.segment is not None:
        identity = survey.segment.identity
        _line(wanted, f"Log starting offset: {survey.segment.base_offset}")
        _line(wanted, f"Cluster: {identity.cluster_id} generation: {identity.generation}")
    else:
        _broken(path, wanted, {"position": 0, "size": 4096, "isvalid": False, "error": survey.header_fault})
    for entry in survey.entries:
        if isinstance(entry, BrokenPlace):
            is_sound = False
            line = broken_line(entry.position, entry.size_bytes, path, survey.size_bytes, entry.reason)
            _broken(path, wanted, broken_document(entry), line)
            continue
        document = metadata_batch(entry)
        if entry.fault:
            document["error"] = entry.fault
            is_sound = False
        records = iter(metadata_records(entry, is_secret))
        is_sound &= _show(path, wanted, document, records, lambda record: metadata_record_line(record, with_place=wanted.place))
    return is_sound


def _broken(path: str, wanted: ShownParts, document: dict[str, Any], line: str | None = None) -> None:
    if wanted.as_json:
        _print_json({"file": path, **document})
    else:
        _print(
            line or f"Found {document['size']} invalid bytes at position {document['position']} of {path}: {document['error']}"
        )


def _dump_data(path: str, wanted: ShownParts) -> bool:
    from .text import broken_line, data_batch, data_record_line, data_records

    data = Path(path).read_bytes()
    _line(wanted, f"Log starting offset: {_base_offset(path)}")
    is_sound = True
    for position, header, fault in _data_batches(data[: wanted.max_bytes], len(data)):
        if header is None:
            is_sound = False
            size_bytes = len(data) - position
            document = {"position": position, "size": size_bytes, "isvalid": False, "error": fault}
            _broken(path, wanted, document, broken_line(position, size_bytes, path, len(data), fault))
            continue
        document = data_batch(position, header, fault)
        if fault:
            document["error"] = fault
            is_sound = False
        records = iter(()) if fault else data_records(header, data[position : position + header.size_bytes])
        _show(
            path,
            wanted,
            document,
            records,
            lambda record: data_record_line(record, with_place=wanted.place, with_payload=wanted.payload),
        )
    return is_sound


def _base_offset(path: str) -> int:
    """Return the base offset in the name of a segment or index. CommandFailed for other names."""
    stem = Path(path).stem
    if not (len(stem) == 20 and stem.isdigit()):
        raise CommandFailed(f"Error: {path} is not named by a base offset of 20 digits; give the file its name in the partition")
    return int(stem)


def _data_batches(data: bytes, file_bytes: int) -> Iterator[tuple[int, Any, str]]:
    """Yield (position, header, fault). Without a header the rest of the file is unreadable."""
    from kraftlab.records.errors import CorruptBatch
    from kraftlab.records.record_batch import check_crc, read_header

    position, expected = 0, -1
    while position < len(data):
        try:
            header = read_header(data, position)
            if position + header.size_bytes > len(data):
                raise CorruptBatch(position, f"cut short: {len(data) - position} of {header.size_bytes} bytes")
        except CorruptBatch as error:
            if len(data) == file_bytes:
                yield position, None, str(error)
            return
        fault = ""
        try:
            check_crc(data, position, header)
        except CorruptBatch as error:
            fault = str(error)
        if header.base_offset < expected:
            fault = fault or f"its base offset {header.base_offset} is below {expected}, where the batch before it ends"
        yield position, header, fault
        position += header.size_bytes
        expected = header.end_offset


def _dump_index(path: str, wanted: ShownParts) -> bool:
    """Show an index, and check that each entry has the position and the last offset of a batch in the log beside it."""
    from kraftlab.broker.log.indexes import OFFSETS

    entry = OFFSETS.entry

    base, log = _base_offset(path), Path(path).with_suffix(".log")
    if not log.is_file():
        raise CommandFailed(f"Error: {path} belongs to {log}, which is missing; put both into one directory")
    content = log.read_bytes()
    last_offsets = {at: header.last_offset for at, header, _ in _data_batches(content, len(content)) if header is not None}
    data = Path(path).read_bytes()[: wanted.max_bytes]
    is_sound = len(data) % entry.size == 0 or wanted.max_bytes is not None
    if not is_sound:
        click.echo(f"{path}: {len(data) % entry.size} bytes at its end are not an entry", err=True)
    for relative, position in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
        found = last_offsets.get(position)
        fits = found == base + relative
        if wanted.as_json:
            _print_json(
                {"file": path, "offset": base + relative, "position": position, "isvalid": fits, "batchLastOffset": found}
            )
        else:
            _print(f"offset: {base + relative} position: {position}")
        if not fits:
            is_sound = False
            there = "no batch begins there" if found is None else f"the batch there ends with offset {found}"
            click.echo(f"Index offset: {base + relative}, position {position} of {log}: {there}", err=True)
    return is_sound
