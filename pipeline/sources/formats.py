"""The two formats of metadata logs, as one table: the layout of frames, and the decoding of a frame's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kraftlab.quorum.storage.segment import SEGMENT_MAGIC
from kraftlab.records.record_batch import read_header

from ..errors import WrongUse
from ..framing import Format, Frame, ReadAt, walk
from ..kraft_log.batches import AnyRecord, Batch, ControlRecord, Damage, Record
from ..kraft_log.frames import KafkaFormat
from ..kraft_log.reader import decode_batch
from ..kraft_log.records import CONTROL_RECORDS, METADATA_RECORDS
from ..own_log import reader as own_reader
from ..own_log.frames import FORMAT as OWN_FORMAT
from ..own_log.frames import open_segment
from ..own_log.records import CONTROL_NUMBERS, RECORD_NAMES

KRAFTLAB, KAFKA = "kraftlab", "kafka"


class FileStart(NamedTuple):
    """The part of a file before its first batch: the cluster id given there, a damage, and the start of the batches."""

    cluster_id: str | None
    damage: Damage | None
    batches_at: int


class LogFormat(NamedTuple):
    """One format. `start` is (read, size in bytes, is a snapshot) → FileStart; `records` decodes a frame; `has_stamps` tells
    whether batches carry the high watermark; `numbers` are type numbers by name.
    """

    name: str
    source: str
    form: Format
    start: Callable[[ReadAt, int, bool], FileStart]
    records: Callable[[Frame], list[AnyRecord]]
    has_stamps: bool
    numbers: Mapping[str, int]
    control_numbers: Mapping[str, int]


def _own_start(read: ReadAt, size_bytes: int, is_snapshot: bool) -> FileStart:
    if not is_snapshot:
        opening = open_segment(read, size_bytes)
        header = opening.header
        return FileStart(header.identity.cluster_id if header else None, opening.damage, opening.batches_at)
    first = next(walk(read, size_bytes, OWN_FORMAT), None)
    if isinstance(first, Frame) and first.is_control:
        for record in own_reader.decode_frame(first).records:
            if isinstance(record, ControlRecord) and record.control == "SnapshotHeader":
                return FileStart(record.data["clusterId"], None, 0)
    return FileStart(None, None, 0)


def _kafka_start(read: ReadAt, size_bytes: int, is_snapshot: bool) -> FileStart:
    return FileStart(None, None, 0)


def _own_records(frame: Frame) -> list[AnyRecord]:
    return own_reader.decode_frame(frame).records


def _kafka_records(frame: Frame) -> list[AnyRecord]:
    batch = decode_batch(frame.data, read_header(frame.data), frame.position)
    return batch.records if isinstance(batch, Batch) else []


FORMATS: Mapping[str, LogFormat] = {
    KRAFTLAB: LogFormat(
        KRAFTLAB,
        "kraftlab-log",
        OWN_FORMAT,
        _own_start,
        _own_records,
        True,
        {name: number for number, name in RECORD_NAMES.items()},
        CONTROL_NUMBERS,
    ),
    KAFKA: LogFormat(
        KAFKA,
        "kraft-log",
        KafkaFormat(),
        _kafka_start,
        _kafka_records,
        False,
        {schema.name: schema.number for schema in METADATA_RECORDS},
        {schema.name: schema.number for schema in CONTROL_RECORDS},
    ),
}


def is_own_format(start: bytes) -> bool:
    """Return whether a file with these first bytes is a segment (its header page) or a snapshot (its first batch) of kraftlab's
    own.
    """
    return start.startswith((SEGMENT_MAGIC.to_bytes(4, "big"), OWN_FORMAT.magic))


def format_named(name: str) -> LogFormat:
    """Return a format. WrongUse for an unknown name."""
    try:
        return FORMATS[name]
    except KeyError:
        raise WrongUse(f"{name!r} is not a format of metadata logs; known are {', '.join(FORMATS)}") from None


def type_of(form: LogFormat, record: AnyRecord, is_control: bool) -> tuple[int | None, str | None, int | None]:
    """Return a decoded record's type number, name and version; None for an unknown one."""
    if isinstance(record, Record):
        return form.numbers[record.type], record.type, record.version
    if isinstance(record, ControlRecord):
        return form.control_numbers[record.control], record.control, record.data["version"]
    number, version = _int32(record.type_number), _int32(record.version)
    names = form.control_numbers if is_control else form.numbers
    return number, next((name for name, known in names.items() if known == number), None), version


def _int32(value: int | None) -> int | None:
    return value if value is not None and -(1 << 31) <= value < 1 << 31 else None
