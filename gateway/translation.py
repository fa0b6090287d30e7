"""Kafka's messages to protobuf messages of the Admin service and back, by the names of their fields.

Theory of operation. Messages of the Admin service have Kafka's field names, so one walk over the rows of a schema serves every
call, both at a listener and in a client of a Kafka cluster. The walk gives functions that copy one field each, and is done once
for each message and version. The differences are the same everywhere: an absent `optional` field is null; a message with nothing
but one repeated field is a list that can be null; error, throttle time, timeout and cluster id are in the message's header; ids
are 22 characters. Fields that are not Kafka's keep their zero in a message, or the number in `UNKNOWN`; a client asks
`lost_fields` before it sends a request. Fields that the version lacks are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
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


def _field_of(message: Descriptor, name: str) -> FieldDescriptor | None:
    """Return the message's field for a field of Kafka's, None if the message does not have it."""
    return message.fields_by_name.get(name) if name != "header" else None


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


# --- Kafka's messages to those of the Admin service -------------------------------------------------------------------------

_Setter = Callable[[Any, Any], None]
"""Sets one field of a message of the Admin service."""


def to_message(value: Message, version: int, message: AdminRequest) -> None:
    """Fill a request of the Admin service from a request of Kafka's."""
    message.header.api_version = version
    _fill_with_header(value, version, message)


def to_response(value: Message, version: int, message: AdminResponse) -> None:
    """Fill a response of the Admin service from a response of Kafka's."""
    _fill_with_header(value, version, message)


def _fill_with_header(value: Message, version: int, message: Any) -> None:
    descriptor = message.DESCRIPTOR
    for name, set_field in _setters(type(value), version, descriptor):
        set_field(message, getattr(value, name))
    header = descriptor.fields_by_name["header"].message_type
    for name, set_field in _setters(type(value), version, header, descriptor):
        set_field(message.header, getattr(value, name))


@functools.cache
def _setters(
    kind: type[Structure], version: int, target: Descriptor, without: Descriptor | None = None
) -> tuple[tuple[str, _Setter], ...]:
    """Return the setters of all fields that both sides have, by name. Fields of `without` are left out."""
    return tuple(
        (field.name, _setter(known, field, version))
        for field in _fields(kind, version)
        if (known := _field_of(target, field.name)) is not None and (without is None or _field_of(without, field.name) is None)
    )


def _setter(known: FieldDescriptor, field: Field, version: int) -> _Setter:
    name = known.name
    if known.is_repeated:
        extend = _extender(known, field, version)

        def set_list(message: Any, values: Any) -> None:
            if values is not None:
                extend(getattr(message, name), values)

        return set_list
    if known.message_type is None:
        return _set_id(name) if field.kind == "uuid" else _set_plain(name)
    if field.is_array:
        (wrapped,) = known.message_type.fields
        extend_wrapped, inner_name = _extender(wrapped, field, version), wrapped.name

        def set_wrapped(message: Any, values: Any) -> None:
            if values is not None:
                inner = getattr(message, name)
                inner.SetInParent()
                extend_wrapped(getattr(inner, inner_name), values)

        return set_wrapped
    fill = _filler(field.kind, version, known.message_type)

    def set_structure(message: Any, value: Any) -> None:
        if value is not None:
            fill(getattr(message, name), value)

    return set_structure


def _set_plain(name: str) -> _Setter:
    def set_plain(message: Any, value: Any) -> None:
        if value is not None:
            setattr(message, name, value)

    return set_plain


def _set_id(name: str) -> _Setter:
    def set_id(message: Any, value: Any) -> None:
        if value is not None and value != NO_ID:
            setattr(message, name, to_text(value))

    return set_id


def _extender(known: FieldDescriptor, field: Field, version: int) -> _Setter:
    """Return a function that adds Kafka's values to a repeated field."""
    if known.message_type is not None:
        fill = _filler(field.kind, version, known.message_type)

        def add_structures(target: Any, values: Any) -> None:
            for value in values:
                fill(target.add(), value)

        return add_structures
    if isinstance(field.kind, str):
        return _extend_with_ids if field.kind == "uuid" else lambda target, values: target.extend(values)
    # A list of structures with nothing but a name is a list of names.
    only = field.kind.FIELDS[0]
    extend = _extend_with_ids if only.kind == "uuid" else lambda target, values: target.extend(values)
    return lambda target, values: extend(target, [getattr(value, only.name) for value in values])


def _extend_with_ids(target: Any, values: Any) -> None:
    target.extend([to_text(value) for value in values])


def _filler(kind: Any, version: int, target: Descriptor) -> _Setter:
    """Return a function that fills a message from a structure."""
    setters, unknown = _setters(kind, version, target), tuple(UNKNOWN.get(target.name, {}).items())

    def fill(message: Any, value: Any) -> None:
        message.SetInParent()
        for name, number in unknown:
            setattr(message, name, number)
        for name, set_field in setters:
            set_field(message, getattr(value, name))

    return fill


# --- messages of the Admin service to Kafka's -------------------------------------------------------------------------------

_Getter = Callable[[Any], Any]
"""Returns Kafka's value of one field of a message of the Admin service."""


def to_value(message: AdminRequest | AdminResponse, kind: type[M], version: int) -> M:
    """Return a message of Kafka's from one of the Admin service: a response, or a client's request."""
    source: Any = message
    header, descriptor = message.header, source.DESCRIPTOR
    given = {name: get(source) for name, get in _getters(kind, version, descriptor)}
    of_header = descriptor.fields_by_name["header"].message_type
    given.update((name, get(header)) for name, get in _getters(kind, version, of_header, descriptor))
    return kind(**given)


@functools.cache
def says_error_by_field(kind: type[Message], version: int) -> bool:
    """Return True if a response of Kafka's has a field for the error of the whole request."""
    return any(field.name == "error_code" for field in _fields(kind, version))


def says_error(message: AdminMessage, kind: type[Message], version: int) -> bool:
    """Return True if a response of Kafka's can show that the request failed: by a field, or by its entries."""
    return says_error_by_field(kind, version) or any(field.is_repeated for field, _ in message.ListFields())


@functools.cache
def _getters(
    kind: type[Structure], version: int, source: Descriptor, without: Descriptor | None = None
) -> tuple[tuple[str, _Getter], ...]:
    """Return the getters of all fields that both sides have, by name. Fields of `without` are left out."""
    return tuple(
        (field.name, _getter(known, field, kind, version))
        for field in _fields(kind, version)
        if (known := _field_of(source, field.name)) is not None and (without is None or _field_of(without, field.name) is None)
    )


def _getter(known: FieldDescriptor, field: Field, kind: type[Structure], version: int) -> _Getter:
    name, get = known.name, _getter_of_present(known, field, version)
    if known.is_repeated or not known.has_presence:
        return get
    absent = None if field.null_since <= version else defaults(kind)[field.name]
    return lambda source: get(source) if source.HasField(name) else absent


def _getter_of_present(known: FieldDescriptor, field: Field, version: int) -> _Getter:
    name = known.name
    if not field.is_array:
        if isinstance(field.kind, str):
            convert = _converter(field)
            return (lambda source: getattr(source, name)) if convert is None else lambda source: convert(getattr(source, name))
        make = _maker(field.kind, version, known.message_type)
        return lambda source: make(getattr(source, name))
    if known.is_repeated:
        entries = _list_getter(known, field, version)
        return lambda source: entries(getattr(source, name))
    assert known.message_type is not None, "a list that can be null is in a message"
    (wrapped,) = known.message_type.fields
    of_wrapped, inner_name = _list_getter(wrapped, field, version), wrapped.name
    return lambda source: of_wrapped(getattr(getattr(source, name), inner_name))


def _list_getter(known: FieldDescriptor, field: Field, version: int) -> _Getter:
    if isinstance(field.kind, str):
        convert = _converter(field)
        return tuple if convert is None else lambda values: tuple([convert(value) for value in values])
    if known.message_type is not None:
        make = _maker(field.kind, version, known.message_type)
        return lambda values: tuple([make(value) for value in values])
    kind, only = field.kind, field.kind.FIELDS[0]
    convert_only = _converter(only) or (lambda value: value)
    return lambda values: tuple([kind(**{only.name: convert_only(value)}) for value in values])


def _maker(kind: type[Structure], version: int, source: Descriptor | None) -> _Getter:
    """Return a function that makes a structure from a message."""
    assert source is not None, "a structure is a message"
    getters = _getters(kind, version, source)
    return lambda message: kind(**{name: get(message) for name, get in getters})


def client_code(code: int) -> int:
    """Return an error code that Kafka's clients know."""
    return code if code < OWN_ERRORS_FROM else UNKNOWN_SERVER_ERROR


def _converter(field: Field) -> Callable[[Any], Any] | None:
    """Return the function that converts a scalar to Kafka's, None if it is the same."""
    if field.name == "error_code":
        return client_code
    return (lambda text: from_text(text) if text else NO_ID) if field.kind == "uuid" else None
