"""Records ↔ batch bodies: one MessagePack array of `[type, version, fields…]`.

msgspec does the work in both directions. It refuses an unknown type, but never looks at a version. This module checks the
version, with a test per record that costs nothing while all versions are 0. A body that this node cannot read stops the node:
going on would give it an image that differs from that of other nodes. The reason is worked out afterwards by reading the body
without schemas.
"""

from __future__ import annotations

import typing

import msgspec

from .records import AnyRecord

HIGHEST_VERSION: dict[int, int] = {record.TYPE: 0 for record in typing.get_args(AnyRecord)}
"""Record type → highest version that this node reads and writes. Lower versions are read as well."""

_NEXT_STEP = "this node must stop: run the software version that wrote it (metadata.version names it), or restore the log"

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for malformed MessagePack, malformed text, and deeply nested arrays."""


class UnreadableRecords(ValueError):
    """A batch body is malformed. The text names the offset and the reason."""


class UnknownRecord(UnreadableRecords):
    """A record has a type or version that this node does not know."""

    def __init__(self, record_type: object, version: object, offset: int) -> None:
        self.record_type = record_type
        self.version = version
        self.offset = offset
        known = HIGHEST_VERSION.get(record_type) if isinstance(record_type, int) else None
        what = "type is not known" if known is None else f"highest version known is {known}"
        super().__init__(f"metadata record at offset {offset} has type {record_type} version {version}: {what}; {_NEXT_STEP}")


def encode(records: list[AnyRecord]) -> tuple[bytes, int]:
    """Return a batch body and the number of its records."""
    return _encoder.encode(records), len(records)


def decode(body: bytes, base_offset: int = 0, record_count: int | None = None) -> list[AnyRecord]:
    """Return the records of a data batch's body, the first of which has offset `base_offset`.

    UnknownRecord for a type or version that this node does not know, UnreadableRecords for any other fault, including a number
    of records other than `record_count` (None: not checked). Both stop the node.
    """
    try:
        records = _decoder.decode(body)
    except UNREADABLE as error:
        raise _explain(body, base_offset, error) from error
    for index, record in enumerate(records):
        if record.version and not 0 < record.version <= HIGHEST_VERSION[record.TYPE]:
            raise UnknownRecord(record.TYPE, record.version, base_offset + index)
    if record_count is not None and len(records) != record_count:
        raise UnreadableRecords(
            f"metadata batch at offset {base_offset} holds {len(records)} records, its header says {record_count}; {_NEXT_STEP}"
        )
    return records


def _explain(body: bytes, base_offset: int, error: Exception) -> UnreadableRecords:
    """Reason why the typed decoder refused `body`: an unknown record if there is one, otherwise the decoder's own reason."""
    try:
        raw = msgspec.msgpack.decode(body, type=list[list[object]])
    except UNREADABLE:
        return UnreadableRecords(f"metadata batch at offset {base_offset} is not an array of records ({error}); {_NEXT_STEP}")
    for index, fields in enumerate(raw):
        record_type, version = [*fields, None, None][:2]
        known = HIGHEST_VERSION.get(record_type) if isinstance(record_type, int) else None
        if known is None or not isinstance(version, int) or not 0 <= version <= known:
            return UnknownRecord(record_type, version, base_offset + index)
    return UnreadableRecords(f"metadata batch at offset {base_offset} cannot be read ({error}); {_NEXT_STEP}")
