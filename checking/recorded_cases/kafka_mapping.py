"""Recorded requests to frames of the Kafka protocol, and frames of responses to recorded JSON, by the names of their fields.

Theory of operation. Recordings have Kafka's field names, and kio's entities have them too, so one walk over the fields serves
every call. The differences are the same everywhere: kio's durations and dates lack the `_ms` of their names, ids are UUIDs, and
bytes are hexadecimal digits in recordings. Ids become 22 characters, as in answers of gRPC.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import struct
import types
import typing
import uuid
from functools import cache
from typing import Any, NamedTuple

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from kraftlab.common.uuids import to_text

from .mapping import CannotMap, long_id
from .paths import Value

CLIENT_ID = "recorder"
"""As in the recordings."""
_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LENGTH = struct.Struct(">i")
_NOTHING: tuple[object, ...] = (None, False, 0, -1, "", [])
"""Values that ask for nothing, so that an earlier version may lack their field."""


class Field(NamedTuple):
    """One field of an entity: its name, its recorded name, kio's name of the type, and the class of nested entities."""

    name: str
    recorded_name: str
    kind: str
    is_list: bool
    is_nullable: bool
    nested: Value
    default: Value


@cache
def fields_of(kind: Value) -> tuple[Field, ...]:
    """Return the fields of an entity's class."""
    hints = typing.get_type_hints(kind)
    return tuple(_field(field, hints[field.name]) for field in dataclasses.fields(kind))


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    arguments = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    inner = next(each for each in arguments if each is not type(None))
    is_list = typing.get_origin(inner) is tuple
    item = typing.get_args(inner)[0] if is_list else inner
    kind = field.metadata.get("kafka_type", "")
    is_time = kind.startswith(("timedelta", "datetime")) and not field.name.endswith("timestamp")
    nested = item if dataclasses.is_dataclass(item) else None
    name = field.name
    return Field(name, f"{name}_ms" if is_time else name, kind, is_list, type(None) in arguments, nested, field.default)


# --- calls --------------------------------------------------------------------------------------------------------------

_KEYS = {"".join(part.capitalize() for part in name.split("_")): key for key, name in api_key_map.items()}


def key_of(api: str) -> int:
    """Return the number of a call. CannotMap for an unknown name."""
    if api not in _KEYS:
        raise CannotMap(f"the Kafka protocol has no call {api}")
    return int(_KEYS[api])


def request_frame(api: str, version: int, neutral: dict[str, Value], correlation_id: int) -> bytes:
    """Return a recorded request as a frame with its length. CannotMap for a field that the version lacks."""
    key = key_of(api)
    try:
        schema: Value = load_request_schema(key, version)
    except KioIndexError as error:
        raise CannotMap(f"kio has no version {version} of {api}") from error
    buffer = io.BytesIO()
    header = schema.__header_schema__
    values = (("request_api_key", key), ("request_api_version", version), ("correlation_id", correlation_id))
    names = {field.name for field in fields_of(header)}
    known = {name: value for name, value in (*values, ("client_id", CLIENT_ID)) if name in names}
    entity_writer(header)(buffer, header(**known))
    try:
        entity_writer(schema)(buffer, to_entity(schema, neutral, api))
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise CannotMap(f"{api} version {version} cannot be written: {type(error).__name__}: {error}") from error
    body = buffer.getvalue()
    return _LENGTH.pack(len(body)) + body


def read_response(api: str, version: int, frame: bytes) -> dict[str, Value]:
    """Return a response's frame, without its length, in the format of recordings."""
    schema: Value = load_response_schema(key_of(api), version)
    _, size = entity_reader(schema.__header_schema__)(frame, 0)
    entity, _ = entity_reader(schema)(frame, size)
    answer: dict[str, Value] = neutral_entity(entity)
    return answer


# --- requests -----------------------------------------------------------------------------------------------------------


def to_entity(kind: Value, neutral: dict[str, Value], at: str) -> Value:
    """Return an entity of class `kind` from a recorded object. Absent fields have their defaults."""
    known = {field.recorded_name: field for field in fields_of(kind)}
    for name, value in neutral.items():
        if name not in known and value not in _NOTHING:
            raise CannotMap(f"{at} has no field {name} in this version (asked with {value!r})")
    return kind(
        **{
            field.name: _to_value(field, neutral[name], f"{at}.{name}") if name in neutral else _absent(field)
            for name, field in known.items()
        }
    )


def _to_value(field: Field, value: Any, at: str) -> Value:
    if value is None:
        return None if field.is_nullable else _absent(field)
    if field.is_list:
        return tuple(_to_item(field, item, f"{at}[{index}]") for index, item in enumerate(value))
    return _to_item(field, value, at)


def _to_item(field: Field, value: Any, at: str) -> Value:
    try:
        if field.nested is not None:
            return to_entity(field.nested, value, at)
        if field.kind.startswith("timedelta"):
            return value * _MILLISECOND
        if field.kind.startswith("datetime"):
            return _EPOCH + value * _MILLISECOND if value >= 0 or not field.is_nullable else None
        if field.kind == "uuid":
            return uuid.UUID(long_id(value) or value)
        if field.kind in ("bytes", "records"):
            return bytes.fromhex(value)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CannotMap(f"{at}={value!r} does not fit: {error}") from error
    return value


def _absent(field: Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.is_list:
        return ()
    if field.is_nullable:
        return None
    if field.nested is not None:
        return to_entity(field.nested, {}, field.name)
    empty = {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": uuid.UUID(int=0)}.get(field.kind, 0)
    return datetime.timedelta() if field.kind.startswith("timedelta") else empty


# --- responses ----------------------------------------------------------------------------------------------------------


def neutral_entity(entity: Value) -> dict[str, Value]:
    """Return an entity as JSON in the format of recordings."""
    return {field.recorded_name: _from_value(field, getattr(entity, field.name)) for field in fields_of(entity.__class__)}


def _from_value(field: Field, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_from_item(field, item) for item in value]
    return _from_item(field, value)


def _from_item(field: Field, value: Any) -> Any:
    if value is None:
        if field.kind == "uuid":
            return to_text(bytes(16))
        return -1 if field.kind.startswith("datetime") else None
    if dataclasses.is_dataclass(value):
        return neutral_entity(value)
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, uuid.UUID):
        return to_text(value.bytes)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
