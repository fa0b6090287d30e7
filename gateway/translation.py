"""Entities of kio to protobuf messages of the Admin service and back, by the names of their fields.

Theory of operation. Messages of the Admin service have Kafka's field names, so one walk over the fields serves every call, both
at a listener and in a client of a Kafka cluster. The differences are the same everywhere: an absent `optional` field is null; a
message with nothing but one repeated field is a list that can be null; error, throttle time, timeout and cluster id are in the
message's header; ids are 22 characters; kio's durations have no `_ms` in their names. Fields that are not Kafka's keep their zero
in a message, or the number in `UNKNOWN`; a client asks `lost_fields` before it sends a request.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from kio.schema.errors import ErrorCode as KafkaError
from kio.static.protocol import RequestPayload, ResponsePayload

from kraftlab.common.uuids import from_text, to_text
from kraftlab.rpc.methods import AdminRequest, AdminResponse

Entity = TypeVar("Entity", RequestPayload, ResponsePayload)
_KAFKA_ERRORS = frozenset(int(code) for code in KafkaError)
"""Clients do not know our own codes, from 1000 on."""
UNKNOWN: Mapping[str, Mapping[str, int | float]] = {
    "LogDirResult": {"total_bytes": -1, "usable_bytes": -1},
    "LogDirPartition": {"bytes_left": -1, "bytes_per_second": -1.0, "started_ms": -1, "log_end_offset": -1},
    "OngoingPartitionReassignment": {"bytes_done": -1, "bytes_left": -1, "bytes_per_second": -1.0, "eta_ms": -1},
    "DescribedBroker": {"broker_epoch": -1},
    "QuorumReplica": {"last_fetch_timestamp": -1, "last_caught_up_timestamp": -1},
}
"""Values of fields that a Kafka broker does not report, by message."""
_NO_ID = uuid.UUID(int=0)
_EMPTY: dict[str, Any] = {"string": "", "bytes": b""}
"""Kind of a field → value of a field that the message does not have."""
_MILLISECOND = datetime.timedelta(milliseconds=1)


class _Field(NamedTuple):
    """One field of an entity. `nested`: class of the entities in it."""

    name: str
    kind: str
    is_list: bool
    is_nullable: bool
    nested: Any
    default: Any


# --- requests -----------------------------------------------------------------------------------------------------------


def to_message(entity: RequestPayload, version: int, message: AdminRequest) -> None:
    """Fill a request of the Admin service from a request entity."""
    message.header.api_version = version
    _fill_with_header(message, entity)


def lost_fields(message: AdminRequest, kind: type[RequestPayload]) -> list[str]:
    """Return the fields that a request of the Admin service sets, and that an entity of class `kind` cannot hold."""
    return sorted(_lost(message, kind))


def _lost(message: Any, kind: Any) -> set[str]:
    known = {name: field for field in _fields(kind) for name in (field.name, f"{field.name}_ms")}
    lost: set[str] = set()
    for described, value in message.ListFields():
        field = known.get(described.name)
        if described.name == "header":
            continue
        if field is None:
            lost.add(described.name)
        elif field.nested is not None and described.message_type is not None:
            entries = value if described.is_repeated else [value]
            if field.is_list and not described.is_repeated:
                (wrapped,) = described.message_type.fields
                entries = getattr(value, wrapped.name) if wrapped.message_type is not None else []
            lost.update(*(_lost(entry, field.nested) for entry in entries))
    return lost


def _fill_with_header(message: Any, entity: Any) -> None:
    for field in _fields(type(entity)):
        value = getattr(entity, field.name)
        if (known := _field_of(message.DESCRIPTOR, field.name)) is not None:
            _set(message, known, value)
        elif (known := _field_of(message.header.DESCRIPTOR, field.name)) is not None:
            _set(message.header, known, value)


def _fill(message: Any, entity: Any) -> None:
    message.SetInParent()
    for name, value in UNKNOWN.get(message.DESCRIPTOR.name, {}).items():
        setattr(message, name, value)
    for field in _fields(type(entity)):
        known = _field_of(message.DESCRIPTOR, field.name)
        if known is not None:
            _set(message, known, getattr(entity, field.name))


@functools.cache
def _field_of(message: Descriptor, name: str) -> FieldDescriptor | None:
    """Return the message's field for a field of an entity, None if the message does not have it."""
    known = message.fields_by_name
    return next((known[each] for each in (name, f"{name}_ms") if each in known and each != "header"), None)


def _set(message: Any, field: FieldDescriptor, value: Any) -> None:
    if value is None:
        return
    if field.is_repeated:
        _extend(message, field, value)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        if isinstance(value, tuple):
            _extend(inner, field.message_type.fields[0], value)
        else:
            _fill(inner, value)
    else:
        setattr(message, field.name, _to_scalar(field, value))


def _extend(message: Any, field: FieldDescriptor, values: Any) -> None:
    target = getattr(message, field.name)
    for value in values:
        if field.message_type is not None:
            _fill(target.add(), value)
        else:
            # A list of entities with nothing but a name is a list of names.
            only = getattr(value, _fields(type(value))[0].name) if dataclasses.is_dataclass(value) else value
            target.append(_to_scalar(field, only))


def _to_scalar(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, uuid.UUID):
        return to_text(value.bytes)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING or isinstance(value, bool):
        return value
    return float(value) if isinstance(value, float) else int(value)


# --- responses ----------------------------------------------------------------------------------------------------------


def to_entity(message: AdminRequest | AdminResponse, kind: type[Entity]) -> Entity:
    """Return an entity of class `kind` from a message of the Admin service: a response, or a client's request."""
    entity: Entity = _entity((message, message.header), kind)
    return entity


def entity_of(kind: type[Entity], values: Mapping[str, object]) -> Entity:
    """Return an entity of class `kind` with these values by name, entries as mappings; other fields have Kafka's defaults.

    Values that the class has no field for are left out.
    """
    entity: Entity = _built(kind, values)
    return entity


def _built(kind: Any, values: Any) -> Any:
    return kind(
        **{
            field.name: _absent(field)
            if field.name not in values
            else tuple(_built(field.nested, each) for each in values[field.name])
            if field.nested is not None
            else _to_kind(values[field.name], field)
            for field in _fields(kind)
        }
    )


def to_response(entity: ResponsePayload, message: AdminResponse) -> None:
    """Fill a response of the Admin service from a response entity."""
    _fill_with_header(message, entity)


def says_error(message: Message, kind: type[ResponsePayload]) -> bool:
    """Return True if a response entity of class `kind` can show that the request failed: by a field, or by its entries."""
    is_repeated = any(field.is_repeated for field, _ in message.ListFields())
    return is_repeated or any(field.name == "error_code" for field in _fields(kind))


def _entity(sources: tuple[Any, ...], kind: Any) -> Any:
    return kind(**{field.name: _value(sources, field) for field in _fields(kind)})


def _value(sources: tuple[Any, ...], field: _Field) -> Any:
    for source in sources:
        known = _field_of(source.DESCRIPTOR, field.name)
        if known is not None:
            return _from(source, known, field)
    return _absent(field)


def _absent(field: _Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.is_list:
        return ()
    return None if field.is_nullable else _EMPTY[field.kind] if field.kind in _EMPTY else _to_kind(0, field)


def _from(source: Any, known: FieldDescriptor, field: _Field) -> Any:
    if not known.is_repeated and known.has_presence and not source.HasField(known.name):
        return None if field.is_nullable else _absent(field)
    value = getattr(source, known.name)
    if not field.is_list:
        return _entity((value,), field.nested) if field.nested is not None else _to_kind(value, field)
    if not known.is_repeated:
        assert known.message_type is not None, "a list that can be null is in a message"
        known = known.message_type.fields[0]
        value = getattr(value, known.name)
    if field.nested is None:
        return tuple(_to_kind(each, field) for each in value)
    if known.message_type is None:
        only = _fields(field.nested)[0]
        return tuple(field.nested(**{only.name: _to_kind(each, only)}) for each in value)
    return tuple(_entity((each,), field.nested) for each in value)


def _to_kind(value: Any, field: _Field) -> Any:
    if field.kind == "error_code":
        return KafkaError(value if value in _KAFKA_ERRORS else KafkaError.unknown_server_error)
    if field.kind == "uuid":
        return uuid.UUID(bytes=from_text(value)) if value else _NO_ID if not field.is_nullable else None
    if field.kind.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if field.kind == "bool":
        return bool(value)
    return int(value) if field.kind.startswith(("int", "uint")) else value


def _read_fields(kind: Any) -> tuple[_Field, ...]:
    """Fields of an entity's class, from its annotations."""
    hints = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        arguments = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        is_nullable = type(None) in arguments
        inner = next(each for each in arguments if each is not type(None))
        is_list = typing.get_origin(inner) is tuple
        item = typing.get_args(inner)[0] if is_list else inner
        nested = item if dataclasses.is_dataclass(item) else None
        found.append(_Field(field.name, field.metadata.get("kafka_type", ""), is_list, is_nullable, nested, field.default))
    return tuple(found)


_fields: Callable[[Any], tuple[_Field, ...]] = functools.cache(_read_fields)
