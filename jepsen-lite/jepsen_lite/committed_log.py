"""The committed metadata log of a run, decoded: the order of writes that checkers compare histories with.

An entry is one record. The log holds the id of a request beside the records in their batch; each entry here carries the id of the
request that wrote it.
"""

from __future__ import annotations

import base64
import functools
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kraftlab.common.uuids import from_text, to_text
from kraftlab.metadata import codec
from kraftlab.metadata.records import AnyRecord, RequestOutcome
from kraftlab.quorum.core.batch import Batch, decode_control


class Entry(msgspec.Struct, frozen=True):
    """One record. `kind` is its type ("Topic", "PartitionChange", …), `record` its fields as JSON values. `batch_end` is one past
    the last offset of its batch: the offset in the answer to its request. `request_id` as in `history.Op`.
    """

    offset: int
    batch_end: int
    epoch: int
    append_time_ms: int
    kind: str
    record: dict[str, Any]
    request_id: str = ""


class CommittedLog(msgspec.Struct, frozen=True):
    """Entries by offset, from `start` (0 unless the log was cleaned) to the high watermark `end` at the end of the run."""

    entries: tuple[Entry, ...]
    start: int = 0
    end: int = 0


class LogBatch(NamedTuple):
    """One committed batch. `is_control`: it holds records of the quorum itself."""

    base_offset: int
    end_offset: int
    epoch: int
    append_time_ms: int
    is_control: bool
    body: bytes

    @classmethod
    def of(cls, batch: Batch) -> LogBatch:
        """Convert a batch that was read from a log."""
        header = batch.header
        return cls(header.base_offset, header.end_offset, header.epoch, header.append_time_ms, header.is_control, batch.body)


def decoded(batches: Iterable[LogBatch], start: int = 0) -> CommittedLog:
    """Decode consecutive batches from offset `start` on. UnreadableRecords, CorruptBatch.

    The request id of a record comes from the RequestOutcome that follows it in the same batch, or at the end of the same
    transaction.
    """
    entries: list[Entry] = []
    end, unnamed, is_open = start, 0, False
    for batch in batches:
        end = batch.end_offset
        if not is_open:
            unnamed = len(entries)
        records: Sequence[Any] = decode_control(batch.body) if batch.is_control else codec.decode(batch.body, batch.base_offset)
        for offset, record in enumerate(records, batch.base_offset):
            kind = type(record).__name__
            entries.append(Entry(offset, end, batch.epoch, batch.append_time_ms, kind, fields_of(record)))
            if isinstance(record, RequestOutcome):
                name = f"{record.client_id.hex()}:{record.sequence}"
                for place in range(unnamed, len(entries)):
                    entries[place] = msgspec.structs.replace(entries[place], request_id=name)
                unnamed = len(entries)
            is_open = (is_open or kind == "BeginTransaction") and kind not in ("EndTransaction", "AbortTransaction")
            if kind == "AbortTransaction":
                unnamed = len(entries)
    return CommittedLog(tuple(entries), start, end)


def fields_of(record: Any) -> dict[str, object]:
    """Return a record's fields by name: 16-byte ids as kraftlab's 22 characters, other bytes as base64."""
    return {field: _plain(getattr(record, field)) for field in record.__struct_fields__ if field != "version"}


def record_of(entry: Entry) -> AnyRecord | None:
    """Restore the metadata record; None for a record of the quorum itself."""
    kind = _RECORDS.get(entry.kind)
    if kind is None:
        return None
    hints = _hints(kind)
    record: AnyRecord = kind(version=0, **{field: _restored(value, hints[field]) for field, value in entry.record.items()})
    return record


def _plain(value: Any) -> Any:
    if value is None or type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, bytes):
        return to_text(value) if len(value) == 16 else base64.b64encode(value).decode()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return {field: _plain(getattr(value, field)) for field in value.__struct_fields__}
    return value


def _restored(value: Any, hint: Any) -> Any:
    """Invert `_plain` for a field of this type."""
    parts = typing.get_args(hint)
    if value is None:
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _restored(value, next(part for part in parts if part is not types.NoneType))
    if hint is bytes:
        return from_text(value) if len(value) == 22 else base64.b64decode(value)
    if typing.get_origin(hint) is tuple:
        each = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_restored(item, part) for item, part in zip(value, each, strict=True))
    if isinstance(value, dict):
        hints = _hints(hint)
        return hint(**{field: _restored(item, hints[field]) for field, item in value.items()})
    return value


_RECORDS: dict[str, Any] = {kind.__name__: kind for kind in typing.get_args(AnyRecord)}
_PLAIN_TYPES = (int, str, bool)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
