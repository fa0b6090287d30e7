"""Kafka's messages to protobuf messages of the Admin service and back, by the names of their fields.

Theory of operation. Messages of the Admin service have Kafka's field names, so one walk over the rows of a schema serves every
call, both at a listener and in a client of a Kafka cluster. The differences are the same everywhere: an absent `optional` field
is null; a message with nothing but one repeated field is a list that can be null; error, throttle time, timeout and cluster id
are in the message's header; ids are 22 characters. Fields that are not Kafka's keep their zero in a message, or the number in
`UNKNOWN`; a client asks `lost_fields` before it sends a request. Fields that the version lacks are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as AdminMessage

from kraftlab.common.uuids import from_text, to_text
from kraftlab.messages.schema import NO_ID, Field, Message, Structure, defaults
from kraftlab.rpc.methods import AdminRequest, AdminResponse

M = TypeVar("M", bound=Message)
OWN_ERRORS_FROM = 1000
"""Clients do not know our own codes, from here on."""
UNKNOWN_SERVER_ERROR = -1
UNKNOWN: Mapping[str, Mapping[str, int | float]] = {
    "LogDirResult": {"total_bytes": -1, "usable_bytes": -1},
    "LogDirPartition": {"bytes_left": -1, "bytes_per_second": -1.0, "started_ms": -1, "log_end_offset": -1},
    "OngoingPartitionReassignment": {"bytes_done": -1, "bytes_left": -1, "bytes_per_second": -1.0, "eta_ms": -1},
    "DescribedBroker": {"broker_epoch": -1},
    "QuorumReplica": {"last_fetch_timestamp": -1, "last_caught_up_timestamp": -1},
}
"""Values of fields that a Kafka broker does not report, by message."""


@functools.cache
def _fields(kind: type[Structure], version: int) -> tuple[Field, ...]:
    return tuple(field for field in kind.FIELDS if field.is_in(version))


@functools.cache
def _field_of(message: Descriptor, name: str) -> FieldDescriptor | None:
    """Return the message's field for a field of Kafka's, None if the message does not have it."""
    return message.fields_by_name.get(name) if name != "header" else None


# --- Kafka's messages to those of the Admin service -------------------------------------------------------------------------


def to_message(value: Message, version: int, message: AdminRequest) -> None:
    """Fill a request of the Admin service from a request of Kafka's."""
    message.header.api_version = version
    _fill_with_header(message, value, version)


def to_response(value: Message, version: int, message: AdminResponse) -> None:
    """Fill a response of the Admin service from a response of Kafka's."""
    _fill_with_header(message, value, version)


def lost_fields(message: AdminRequest, kind: type[Message], version: int) -> list[str]:
    """Return the fields that a request of the Admin service sets, and that Kafka's request does not have in this version."""
    return sorted(_lost(message, kind, version))


def _lost(message: Any, kind: type[Structure], version: int) -> set[str]:
    known = {field.name: field for field in _fields(kind, version)}
    lost: set[str] = set()
    for described, value in message.ListFields():
        field = known.get(described.name)
        if described.name == "header":
            continue
        if field is None:
            lost.add(described.name)
        elif not isinstance(field.kind, str) and described.message_type is not None:
            entries = value if described.is_repeated else [value]
            if field.is_array and not described.is_repeated:
                (wrapped,) = described.message_type.fields
                entries = getattr(value, wrapped.name) if wrapped.message_type is not None else []
            lost.update(*(_lost(entry, field.kind, version) for entry in entries))
    return lost


def _fill_with_header(message: Any, value: Message, version: int) -> None:
    for field in _fields(type(value), version):
        for target in (message, message.header):
            if (known := _field_of(target.DESCRIPTOR, field.name)) is not None:
                _set(target, known, field, getattr(value, field.name), version)
                break


def _fill(message: Any, value: Structure, version: int) -> None:
    message.SetInParent()
    for name, unknown in UNKNOWN.get(message.DESCRIPTOR.name, {}).items():
        setattr(message, name, unknown)
    for field in _fields(type(value), version):
        if (known := _field_of(message.DESCRIPTOR, field.name)) is not None:
            _set(message, known, field, getattr(value, field.name), version)


def _set(message: Any, known: FieldDescriptor, field: Field, value: Any, version: int) -> None:
    if value is None or (field.kind == "uuid" and value == NO_ID):
        return
    if known.is_repeated:
        _extend(message, known, field, value, version)
    elif known.message_type is not None:
        inner = getattr(message, known.name)
        inner.SetInParent()
        if field.is_array:
            _extend(inner, known.message_type.fields[0], field, value, version)
        else:
            _fill(inner, value, version)
    else:
        setattr(message, known.name, _to_scalar(field.kind, value))


def _extend(message: Any, known: FieldDescriptor, field: Field, values: Any, version: int) -> None:
    target = getattr(message, known.name)
    for value in values:
        if known.message_type is not None:
            _fill(target.add(), value, version)
        elif isinstance(field.kind, str):
            target.append(_to_scalar(field.kind, value))
        else:
            # A list of structures with nothing but a name is a list of names.
            only = field.kind.FIELDS[0]
            target.append(_to_scalar(only.kind, getattr(value, only.name)))


def _to_scalar(kind: Any, value: Any) -> Any:
    return to_text(value) if kind == "uuid" else value


# --- messages of the Admin service to Kafka's -------------------------------------------------------------------------------


def to_value(message: AdminRequest | AdminResponse, kind: type[M], version: int) -> M:
    """Return a message of Kafka's from one of the Admin service: a response, or a client's request."""
    value: M = _value((message, message.header), kind, version)
    return value


def says_error(message: AdminMessage, kind: type[Message], version: int) -> bool:
    """Return True if a response of Kafka's can show that the request failed: by a field, or by its entries."""
    is_repeated = any(field.is_repeated for field, _ in message.ListFields())
    return is_repeated or any(field.name == "error_code" for field in _fields(kind, version))


def _value(sources: tuple[Any, ...], kind: type[Structure], version: int) -> Any:
    given: dict[str, Any] = {}
    for field in _fields(kind, version):
        for source in sources:
            if (known := _field_of(source.DESCRIPTOR, field.name)) is not None:
                given[field.name] = _from(source, known, field, kind, version)
                break
    return kind(**given)


def _from(source: Any, known: FieldDescriptor, field: Field, kind: type[Structure], version: int) -> Any:
    if not known.is_repeated and known.has_presence and not source.HasField(known.name):
        return None if field.null_since <= version else defaults(kind)[field.name]
    value = getattr(source, known.name)
    if not field.is_array:
        return _to_kind(field, value) if isinstance(field.kind, str) else _value((value,), field.kind, version)
    if not known.is_repeated:
        assert known.message_type is not None, "a list that can be null is in a message"
        known = known.message_type.fields[0]
        value = getattr(value, known.name)
    if isinstance(field.kind, str):
        return tuple([_to_kind(field, each) for each in value])
    if known.message_type is None:
        only = field.kind.FIELDS[0]
        return tuple([field.kind(**{only.name: _to_kind(only, each)}) for each in value])
    return tuple([_value((each,), field.kind, version) for each in value])


def client_code(code: int) -> int:
    """Return an error code that Kafka's clients know."""
    return code if code < OWN_ERRORS_FROM else UNKNOWN_SERVER_ERROR


def _to_kind(field: Field, value: Any) -> Any:
    if field.name == "error_code":
        return client_code(value)
    if field.kind == "uuid":
        return from_text(value) if value else NO_ID
    return value
