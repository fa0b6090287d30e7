"""Keys and values of `__consumer_offsets`, from bytes and to bytes: Kafka's messages, with their type or version in front."""

from __future__ import annotations

import struct
from typing import TypeVar

from kraftlab.messages.generated.group_metadata_key import GroupMetadataKey
from kraftlab.messages.generated.group_metadata_value import GroupMetadataValue
from kraftlab.messages.generated.legacy_offset_commit_key import LegacyOffsetCommitKey
from kraftlab.messages.generated.offset_commit_key import OffsetCommitKey
from kraftlab.messages.generated.offset_commit_value import OffsetCommitValue
from kraftlab.messages.reading import MalformedMessage, read
from kraftlab.messages.schema import Message
from kraftlab.messages.writing import write_element
from kraftlab.wire.parts import InMemory

_INT16 = struct.Struct(">h")
V = TypeVar("V", bound=Message)


def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Return the key of a record, with its type in front."""
    return _INT16.pack(key.KEY) + write_element(type(key), key, 0)


def decode_key(data: InMemory) -> OffsetCommitKey | GroupMetadataKey | None:
    """Return the key of a record; None for the other types of Kafka 4.3. ValueError for malformed bytes."""
    name = "key of __consumer_offsets"
    number = _number(data, name)
    if number in (LegacyOffsetCommitKey.KEY, OffsetCommitKey.KEY):
        return _body(OffsetCommitKey, 0, data, name)
    return _body(GroupMetadataKey, 0, data, name) if number == GroupMetadataKey.KEY else None


def encode_value(value: OffsetCommitValue | GroupMetadataValue, version: int) -> bytes:
    """Return the value of a record, with its version in front. Kafka 4.3 writes version 4 of offsets (1 if they have a time to
    expire), and version 3 of groups.
    """
    return _INT16.pack(version) + write_element(type(value), value, version)


def decode_offset_value(data: InMemory) -> OffsetCommitValue:
    """Return the value of an offset's record. ValueError for malformed bytes and unknown versions."""
    return _value(OffsetCommitValue, data)


def decode_group_value(data: InMemory) -> GroupMetadataValue:
    """Return the value of a group's record. ValueError for malformed bytes and unknown versions."""
    return _value(GroupMetadataValue, data)


def _value(kind: type[V], data: InMemory) -> V:
    version = _number(data, kind.__name__)
    if not 0 <= version <= kind.NEWEST:
        expected = f"expected 0 to {kind.NEWEST}; run the software that wrote it"
        raise ValueError(f"{kind.__name__} has version {version}, {expected}")
    return _body(kind, version, data, kind.__name__)


def _number(data: InMemory, name: str) -> int:
    if len(data) < _INT16.size:
        raise ValueError(f"malformed {name}: {len(data)} bytes are too few")
    number: int = _INT16.unpack_from(data)[0]
    return number


def _body(kind: type[V], version: int, data: InMemory, name: str) -> V:
    try:
        value, end = read(kind, version, data, _INT16.size)
    except MalformedMessage as error:
        raise ValueError(f"malformed {name}: {error}") from error
    if end != len(data):
        raise ValueError(f"malformed {name}: {len(data) - end} bytes after the last field, at byte {end}")
    return value
