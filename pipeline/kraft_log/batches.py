"""Batches, records and damages as values. Their JSON is one line of a dump, in the names of Kafka's decoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, rename={"timestamp_ms": "createTime"}):
    """A record of the controller's. `type` is Kafka's name of the type, `data` its fields."""

    offset: int
    timestamp_ms: int
    type: str
    version: int
    data: dict[str, object]


class ControlRecord(msgspec.Struct, frozen=True, gc=False, rename={"timestamp_ms": "createTime"}):
    """A record of the quorum's own. Its version is the first field of `data`."""

    offset: int
    timestamp_ms: int
    control: str
    data: dict[str, Any]


class UndecodedRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"timestamp_ms": "createTime"}):
    """A record that could not be decoded: the reason, its bytes, and its type number and version if they could be read."""

    offset: int
    timestamp_ms: int
    error: str
    raw: bytes
    type_number: int | None = msgspec.field(default=None, name="typeNumber")
    version: int | None = None


AnyRecord = Record | ControlRecord | UndecodedRecord


class Batch(
    msgspec.Struct,
    frozen=True,
    rename={
        "base_offset": "baseOffset",
        "last_offset": "lastOffset",
        "record_count": "count",
        "leader_epoch": "partitionLeaderEpoch",
        "is_control": "isControl",
        "max_timestamp_ms": "createTime",
        "size_bytes": "size",
    },
):
    """A batch with a valid CRC. `position` and `size_bytes` are its place in its file, header included."""

    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    is_control: bool
    position: int
    max_timestamp_ms: int
    size_bytes: int
    crc: int
    records: list[AnyRecord]

    def undecoded(self) -> list[UndecodedRecord]:
        return [record for record in self.records if type(record) is UndecodedRecord]


class Damage(msgspec.Struct, frozen=True, rename={"size_bytes": "size"}):
    """A stretch of a file that is not a readable batch.

    `status` is bad_magic, bad_length, bad_header, bad_crc (rot), compressed (refused), or torn: the end of a file during a write,
    which is not a fault of a segment.
    """

    position: int
    size_bytes: int
    status: str
    error: str


def up_to_footer(entries: Iterator[Batch | Damage], size_bytes: int, harmless: str) -> Iterator[Batch | Damage]:
    """Yield the entries of a snapshot's file, which ends with a footer. If it ends without one, and no damage explains that, a
    Damage follows. `harmless` is the status that does not count as damage there.
    """
    last: Batch | None = None
    is_damaged = False
    for entry in entries:
        yield entry
        is_damaged = isinstance(entry, Damage) and entry.status != harmless
        last = entry if isinstance(entry, Batch) else last
    if not is_damaged and (last is None or not _is_footer(last)):
        yield Damage(size_bytes, 0, "torn", f"the snapshot ends at {size_bytes} without its footer")


def _is_footer(batch: Batch) -> bool:
    return any(isinstance(record, ControlRecord) and record.control == "SnapshotFooter" for record in batch.records)
