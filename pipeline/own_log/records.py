"""Bodies of our batches as records for people and tables: every type of `metadata.records` and of the quorum's own.

A body is one MessagePack array of records. It is decoded as a whole by the types of a node, which is fast and refuses what a node
would refuse. If that fails, the body is read without schemas, record by record. So a type or version of a newer program, or a
record that does not fit its type, is kept with its bytes among the others. If even that fails, the rest of the body is one record
that could not be decoded.

Names are Kafka's for the types that Kafka has, and formed in the same way for ours (`REQUEST_OUTCOME_RECORD`). Fields are in
camel case; uuids are URL-safe base64 of 22 characters, other bytes base64. Fields with the default value of their type are left
out.
"""

from __future__ import annotations

import operator
import re
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.codec import HIGHEST_VERSION
from kraftlab.metadata.records import AnyRecord as MetadataRecord
from kraftlab.quorum.core import batch as quorum_batch

from ..kraft_log.batches import AnyRecord, ControlRecord, Record, UndecodedRecord
from ..kraft_log.records import bytes_text, uuid_text

_METADATA_TYPES: dict[int, type[msgspec.Struct]] = {record.TYPE: record for record in typing.get_args(MetadataRecord)}
_CONTROL_TYPES: dict[int, type[msgspec.Struct]] = {record.TYPE: record for record in typing.get_args(quorum_batch.ControlRecord)}
_DIRECTORY_IDS = {"directory_id": Uuid}
"""The quorum's own types declare them as `bytes`."""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

BODY_DECODER: msgspec.msgpack.Decoder[list[MetadataRecord]] = msgspec.msgpack.Decoder(list[MetadataRecord])
RECORD_DECODER: msgspec.msgpack.Decoder[MetadataRecord] = msgspec.msgpack.Decoder(MetadataRecord)
_CONTROL_DECODER: msgspec.msgpack.Decoder[quorum_batch.ControlRecord] = msgspec.msgpack.Decoder(quorum_batch.ControlRecord)
_RAW_DECODER = msgspec.msgpack.Decoder(list[msgspec.Raw])
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for bytes that are not MessagePack, text that is not UTF-8, and arrays that are nested too deep."""
_VERSION = operator.attrgetter("version")

Converter = Callable[[Any], Any]
Shape = tuple[tuple[str, str, Converter | None, object], ...]
"""A type's fields: attribute, name in the output, converter of its value (None: unchanged), default."""


def kafka_name(record: type[msgspec.Struct]) -> str:
    """Return a metadata record's name as Kafka's tools print it."""
    return _WORD.sub("_", record.__name__).upper() + "_RECORD"


RECORD_NAMES: dict[int, str] = {number: kafka_name(record) for number, record in _METADATA_TYPES.items()}
CONTROL_NUMBERS: dict[str, int] = {record.__name__: number for number, record in _CONTROL_TYPES.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _converter(kind: Any) -> Converter | None:
    """Return the conversion of an annotated type's values to JSON, or None if they are JSON already."""
    if kind is Uuid:
        return uuid_text
    if kind is bytes:
        return bytes_text
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        shape = _shape(kind)
        return lambda value: _fields(value, shape)
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is dict:
        value_of = _converter(arguments[1])
        return None if value_of is None else lambda value: {key: value_of(each) for key, each in value.items()}
    if typing.get_origin(kind) is not tuple:
        options = [_converter(option) for option in arguments if option is not type(None)]
        only = next((option for option in options if option), None)
        return None if only is None else lambda value: None if value is None else only(value)
    items = [_converter(argument) for argument in arguments if argument is not Ellipsis]
    if not any(items):
        return None
    if Ellipsis in arguments:
        item = items[0]
        return lambda value: [item(each) for each in value] if item else value
    return lambda value: [item(each) if item else each for item, each in zip(items, value, strict=True)]


def _shape(record: type[msgspec.Struct]) -> Shape:
    hints = typing.get_type_hints(record, include_extras=True)
    return tuple(
        (field.name, _camel(field.name), _converter(_DIRECTORY_IDS.get(field.name, hints[field.name])), field.default)
        for field in msgspec.structs.fields(record)
        if field.name != "version" or record not in _WITHOUT_VERSION
    )


def _fields(value: msgspec.Struct, shape: Shape) -> dict[str, Any]:
    found = {}
    for attribute, name, converter, default in shape:
        field = getattr(value, attribute)
        if field != default or default is msgspec.NODEFAULT:
            found[name] = converter(field) if converter else field
    return found


_WITHOUT_VERSION = frozenset(_METADATA_TYPES.values())
_SHAPES: dict[type[msgspec.Struct], Shape] = {
    record: _shape(record) for record in (*_METADATA_TYPES.values(), *_CONTROL_TYPES.values())
}


def fields_of(record: MetadataRecord | quorum_batch.ControlRecord) -> dict[str, object]:
    """Return a record's fields as JSON shows them. The version of a metadata record is left out, that of a
    control record is not.
    """
    return _fields(record, _SHAPES[type(record)])


def is_known(record: MetadataRecord) -> bool:
    """Return whether this program reads a decoded record's version."""
    version: int = record.version
    return not version or 0 < version <= HIGHEST_VERSION[record.TYPE]


def decode_metadata(body: bytes, base_offset: int, record_count: int) -> list[MetadataRecord | UndecodedRecord]:
    """Decode a data batch's records in order. Each one that cannot be decoded is an UndecodedRecord (with time 0)."""
    try:
        records = BODY_DECODER.decode(body)
    except _UNREADABLE:
        records = []
    if len(records) == record_count and (not any(map(_VERSION, records)) or all(map(is_known, records))):
        return records  # type: ignore[return-value]
    return [
        decode_one(raw, base_offset + index) if isinstance(raw, bytes) else raw
        for index, raw in enumerate(split(body, base_offset, record_count))
    ]


def decode_control(body: bytes, base_offset: int, record_count: int) -> list[quorum_batch.ControlRecord | UndecodedRecord]:
    """Decode a control batch's records in order, in the same way."""
    found: list[quorum_batch.ControlRecord | UndecodedRecord] = []
    for index, raw in enumerate(split(body, base_offset, record_count)):
        if not isinstance(raw, bytes):
            found.append(raw)
            continue
        try:
            record = _CONTROL_DECODER.decode(raw)
        except _UNREADABLE as error:
            found.append(_undecoded(raw, base_offset + index, str(error), _CONTROL_TYPES, "control record type"))
            continue
        if record.version:
            reason = f"unknown version {record.version} of {type(record).__name__}; version 0 is known"
            found.append(UndecodedRecord(base_offset + index, 0, reason, raw, record.TYPE, record.version))
        else:
            found.append(record)
    return found


def decode_body(body: bytes, base_offset: int, record_count: int, append_ms: int, is_control: bool) -> list[AnyRecord]:
    """Decode a batch's records in the form of a dump. All carry the time of their batch."""
    decode = decode_control if is_control else decode_metadata
    found: list[AnyRecord] = []
    for index, record in enumerate(decode(body, base_offset, record_count)):
        if isinstance(record, UndecodedRecord):
            found.append(msgspec.structs.replace(record, timestamp_ms=append_ms))
        elif is_control:
            found.append(ControlRecord(base_offset + index, append_ms, type(record).__name__, fields_of(record)))
        else:
            name = RECORD_NAMES[record.TYPE]
            found.append(Record(base_offset + index, append_ms, name, record.version, fields_of(record)))
    return found


def split(body: bytes, base_offset: int, record_count: int) -> list[bytes | UndecodedRecord]:
    """Return each record's bytes without decoding them, and one UndecodedRecord for the rest if the number of records differs
    from the header's.
    """
    try:
        raws: list[bytes | UndecodedRecord] = [bytes(raw) for raw in _RAW_DECODER.decode(body)]
    except _UNREADABLE as error:
        return [UndecodedRecord(base_offset, 0, f"the body is not an array of records: {error}", body)]
    if len(raws) > record_count:
        reason = f"the body holds {len(raws)} records, the header counts {record_count}: those too many have no offset"
        rest = b"".join(raw for raw in raws[record_count:] if isinstance(raw, bytes))
        return [*raws[:record_count], UndecodedRecord(base_offset + record_count - 1, 0, reason, rest)]
    if len(raws) < record_count:
        reason = f"the body holds {len(raws)} records, the header counts {record_count}"
        raws.append(UndecodedRecord(base_offset + len(raws), 0, reason, b""))
    return raws


def decode_one(raw: bytes, offset: int) -> MetadataRecord | UndecodedRecord:
    """Decode one metadata record."""
    try:
        record = RECORD_DECODER.decode(raw)
    except _UNREADABLE as error:
        return _undecoded(raw, offset, str(error), _METADATA_TYPES, "record type")
    if is_known(record):
        return record
    latest = HIGHEST_VERSION[record.TYPE]
    reason = f"unknown version {record.version} of {RECORD_NAMES[record.TYPE]}; versions 0 to {latest} are known"
    return UndecodedRecord(offset, 0, reason, raw, record.TYPE, record.version)


def _undecoded(raw: bytes, offset: int, reason: str, types: dict[int, type[msgspec.Struct]], noun: str) -> UndecodedRecord:
    """Return a refused record with the reason, and with its type and version if they can be read."""
    try:
        start: list[Any] = [msgspec.msgpack.decode(each) for each in _RAW_DECODER.decode(raw)[:2]]
    except _UNREADABLE:
        start = []
    number, version = [*start, None, None][:2]
    if not isinstance(number, int) or isinstance(number, bool):
        return UndecodedRecord(offset, 0, f"a record is an array that begins with its type's number: {reason}", raw)
    reason = f"{types[number].__name__}: {reason}" if number in types else f"unknown {noun} {number}"
    return UndecodedRecord(offset, 0, reason, raw, number, version if isinstance(version, int) else None)
