"""Neutral requests to protobuf, and protobuf answers to neutral JSON, by the descriptors of the messages.

Theory of operation. Our messages have Kafka's field names, so most of it is copying. What differs is the same everywhere: an
absent `optional` field is null; a message with nothing but one repeated field is a list that can be null; a field that a request
or a response lacks is looked for in its header (`timeout_ms`, `cluster_id`, `error_code`, `error_message`). Ids are 22 characters
with us and have dashes in recordings; bytes are hexadecimal digits.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kraftlab.common.uuids import from_text, to_text
from kraftlab.rpc.methods import METHODS

from .paths import Value

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_ENUM,
)


class CannotMap(Exception):
    """A request with a field that our messages lack. The text names the field."""


def is_uuid(text: object) -> bool:
    """Return whether a value is an id in the format of recordings."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def short_id(text: str) -> str:
    """Return an id with dashes in our format."""
    return to_text(uuid.UUID(text).bytes)


def long_id(text: str) -> str | None:
    """Return our id with dashes; an empty text is the zero id. None for another text."""
    try:
        return str(uuid.UUID(bytes=from_text(text) if text else bytes(16)))
    except ValueError:
        return None


# --- requests -----------------------------------------------------------------------------------------------------------


def build_request(api: str, version: int | None, neutral: dict[str, Value], *, is_refused: bool = False) -> Message:
    """Return our request for a recorded one. CannotMap for a field that ours lacks; if Kafka refused the whole request unread
    (`is_refused`), the field is omitted instead.
    """
    method = METHODS.get(api)
    if method is None:
        raise CannotMap(f"there is no call {api}")
    request: Any = method.request()
    for name, value in neutral.items():
        if name in request.DESCRIPTOR.fields_by_name and name != "header":
            _set(request, name, value, f"{api}.{name}")
        elif name in request.header.DESCRIPTOR.fields_by_name:
            _set(request.header, name, value, f"{api}.{name}")
        elif value not in (None, False, 0, -1, "", []) and not is_refused:
            raise CannotMap(f"{api} has no field {name} (asked with {value!r})")
    if version is not None:
        request.header.api_version = version
    return request  # type: ignore[no-any-return]


def _set(message: Any, name: str, value: Any, at: str) -> None:
    """Set one field; null leaves it absent."""
    if value is None:
        return
    field = message.DESCRIPTOR.fields_by_name[name]
    try:
        if field.is_repeated:
            _extend(message, field, value, at)
        elif field.message_type is not None:
            _fill(getattr(message, name), value, at)
        else:
            setattr(message, name, _scalar(field, value))
    except (TypeError, ValueError, AttributeError) as error:
        raise CannotMap(f"{at}={value!r} does not fit: {error}") from error


def _fill(message: Any, value: Any, at: str) -> None:
    """Fill a message from an object, or the list in a wrapper from a list, also from an empty list."""
    message.SetInParent()
    wrapped = wrapped_field(message.DESCRIPTOR)
    if isinstance(value, list) and wrapped is not None:
        _extend(message, wrapped, value, at)
        return
    for name, inner in value.items():
        if name in message.DESCRIPTOR.fields_by_name:
            _set(message, name, inner, f"{at}.{name}")
        elif inner not in (None, False, 0, -1, "", []):
            raise CannotMap(f"{at} has no field {name} (asked with {inner!r})")


def _extend(message: Any, field: FieldDescriptor, values: list[Any], at: str) -> None:
    target = getattr(message, field.name)
    for index, value in enumerate(values):
        if field.message_type is not None:
            _fill(target.add(), value, f"{at}[{index}]")
        else:
            # Lists of objects with nothing but a name are lists of names with us.
            only = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
            target.append(_scalar(field, only))


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return bytes.fromhex(value)
        return short_id(value) if is_uuid(value) and _is_id(field.name) else value
    return value


def _is_id(name: str) -> bool:
    return name.endswith(("_id", "_ids"))


def wrapped_field(descriptor: Descriptor) -> FieldDescriptor | None:
    """Return the only field of a message if it is repeated: such a message is a list that can be null."""
    fields = descriptor.fields
    return fields[0] if len(fields) == 1 and fields[0].is_repeated else None


# --- responses ----------------------------------------------------------------------------------------------------------


def neutral_response(response: Value) -> dict[str, Value]:
    """Return our answer in the format of recordings, with the header's error at the top unless it has its own error there."""
    answer = {name: getattr(response.header, name) if response.header.HasField(name) else None for name in ("error_message",)}
    answer["error_code"] = response.header.error_code
    for field in response.DESCRIPTOR.fields:
        if field.name != "header":
            answer[field.name] = _value(response, field)
    return answer


def neutral(message: Value) -> Value:
    """Return a message as JSON, a wrapper as its list."""
    wrapped = wrapped_field(message.DESCRIPTOR)
    if wrapped is not None and wrapped.name in ("values", "names"):
        return _value(message, wrapped)
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: FieldDescriptor) -> Any:
    if field.is_repeated:
        return [_plain(field, value) for value in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, getattr(message, field.name))


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return neutral(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return value.hex()
    return int(value) if field.cpp_type in _INTEGERS else value
