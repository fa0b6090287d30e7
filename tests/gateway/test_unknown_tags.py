"""Tagged fields of newer clients are skipped, wherever they are in a request."""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_writer

from kraftlab.gateway.codec import decode_request
from kraftlab.gateway.door import OFFERS
from kraftlab.messages.catalog import request_class
from kraftlab.messages.generated.request_header import RequestHeader as OurHeader
from kraftlab.messages.reading import MalformedMessage, read
from kraftlab.messages.schema import Message

OLDEST = {0: 3}
"""Produce is offered from version 0, for clients that look for that, and served from version 3."""
OFFERED = [
    (offer.key, version)
    for offer in OFFERS.values()
    for version in range(max(offer.lowest, OLDEST.get(offer.key, 0)), offer.highest + 1)
]
FETCHES = [(1, 12), (1, 18)]
"""Their own tagged fields are structures."""
FLEXIBLE = [(key, version) for key, version in OFFERED + FETCHES if load_request_schema(key, version).__flexible__]
UNKNOWN = (90, 20_000)
"""Tags that no class of kio has."""
BEFORE = b"before"
Entities = Callable[[type], st.SearchStrategy[Any]]


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
@settings(max_examples=4)
@given(data=st.data())
def test_a_request_with_unknown_tags_is_the_request_without(
    key: int, version: int, entities: Entities, data: st.DataObject
) -> None:
    assert_unknown_tags_are_skipped(request_class(key), version, load_request_schema(key, version), entities, data)


@given(data=st.data())
def test_unknown_tags_of_a_header_are_skipped(entities: Entities, data: st.DataObject) -> None:
    assert_unknown_tags_are_skipped(OurHeader, 2, RequestHeader, entities, data)


def assert_unknown_tags_are_skipped(
    kind: type[Message], version: int, schema: Any, entities: Entities, data: st.DataObject
) -> None:
    entity = data.draw(entities(schema))
    expected, _ = read(kind, version, written(schema, entity))
    frame = BEFORE + written(extended(schema), with_unknown_tags(entity, data.draw)) + b"after"
    assert read(kind, version, frame, len(BEFORE)) == (expected, len(frame) - len(b"after"))


@settings(max_examples=80)
@given(st.sampled_from(OFFERED), st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(pair: tuple[int, int], data: bytes) -> None:
    key, version = pair
    try:
        _, end = read(request_class(key), version, data)
    except MalformedMessage:
        return
    assert end <= len(data)


# --- kio's own writer, with classes that have more tagged fields ----------------------------------------------------------


def written(schema: Any, entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, entity)
    return buffer.getvalue()


@functools.cache
def extended(kind: Any) -> Any:
    """Return a class of kio with unknown tagged fields, in the structures within it too."""
    fields: list[Any] = [(field.name, extended_type(field.type), copied(field)) for field in dataclasses.fields(kind)]
    metadata = {f"unknown_{tag}": {"kafka_type": "bytes", "tag": tag} for tag in UNKNOWN}
    fields += [(name, bytes, dataclasses.field(default=b"", metadata=each)) for name, each in metadata.items()]
    return dataclasses.make_dataclass(kind.__name__, fields, kw_only=True, frozen=True, namespace={"__flexible__": True})


def extended_type(kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        first, second = (extended_type(option) for option in typing.get_args(kind))
        return first | second
    if typing.get_origin(kind) is tuple:
        return tuple[extended_type(typing.get_args(kind)[0]), ...]
    return extended(kind) if dataclasses.is_dataclass(kind) else kind


def copied(field: dataclasses.Field[Any]) -> Any:
    if field.default is dataclasses.MISSING:
        return dataclasses.field(metadata=field.metadata)
    default = with_unknown_tags(field.default, None) if dataclasses.is_dataclass(field.default) else field.default
    return dataclasses.field(default=default, metadata=field.metadata)


def with_unknown_tags(entity: Any, draw: Callable[[st.SearchStrategy[bytes]], bytes] | None) -> Any:
    """Return the entity as one of the class with unknown tags, some of which have drawn values."""
    if isinstance(entity, tuple):
        return tuple(with_unknown_tags(each, draw) for each in entity)
    if not dataclasses.is_dataclass(entity):
        return entity
    given = {field.name: with_unknown_tags(getattr(entity, field.name), draw) for field in dataclasses.fields(entity)}
    if draw is not None:
        given |= {f"unknown_{tag}": draw(st.just(b"") | st.binary(max_size=200)) for tag in UNKNOWN}
    return extended(type(entity))(**given)


def test_unknown_tags_in_a_request_with_many_elements_are_skipped_too() -> None:
    """Metadata version 12 with a list of so many short names, each with an unknown tag."""
    count = 20_000
    topic = bytes(16) + b"\x02a" + b"\x01" + b"\x5a" + b"\x01?"
    frame = struct.pack(">hhih", 3, 12, 5, -1) + b"\x00" + b"\xa1\x9c\x01" + topic * count + b"\x00\x00" + b"\x00"
    topics = decode_request(frame).body.topics
    assert {entry.name for entry in topics} == {"a"}
    assert len(topics) == count
