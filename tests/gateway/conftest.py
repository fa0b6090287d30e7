"""A small image of metadata, requests of the Kafka protocol made and read with kio, and random entities of kio."""

from __future__ import annotations

import dataclasses
import datetime
import io
import socket
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

import immutables
import pytest
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kraftlab.access.authorizer import AccessSettings, Rights
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.gateway.codec import KafkaRequest, decode_request
from kraftlab.metadata.image import BrokerImage, ClusterImage, MetadataImage, PartitionImage, TopicImage, TopicsImage
from kraftlab.metadata.records import Listener

ORDERS = bytes(range(16))
"""Id of the topic orders, with the partitions 0 (led by broker 1) and 1 (led by broker 2)."""
OFFSETS = bytes(range(16, 32))
"""Id of __consumer_offsets."""


def make_request(key: int, version: int, **fields: Any) -> KafkaRequest:
    """Encode a request with kio and decode it as the gateway does. Missing fields have their defaults, or zeros."""
    return decode_request(make_frame(key, version, **fields)[4:])


def make_frame(key: int, version: int, /, **fields: Any) -> bytes:
    """Encode a request with kio, with its length. Missing fields have their defaults, or zeros."""
    schema: Any = load_request_schema(key, version)
    buffer = io.BytesIO()
    header = schema.__header_schema__
    values = {"request_api_key": key, "request_api_version": version, "correlation_id": 5, "client_id": "test"}
    entity_writer(header)(buffer, header(**values))
    entity_writer(schema)(buffer, make_entity(schema, fields))
    frame = buffer.getvalue()
    return len(frame).to_bytes(4, "big") + frame


def ask(at: Endpoint | None, key: int, version: int, **fields: Any) -> Any:
    """Send one request to a KAFKA listener; return the answer. Missing fields have their defaults, or zeros."""
    assert at is not None
    with socket.create_connection((at.host, at.port), timeout=20) as client, client.makefile("rb") as answers:
        client.sendall(make_frame(key, version, **fields))
        start = answers.read(4)
        return read_response(key, version, [start, answers.read(int.from_bytes(start, "big"))])


def make_entity(kind: Any, given: dict[str, Any]) -> Any:
    """Make an entity of kio from plain values; fields that this version does not have are left out."""
    hints = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(each for each in typing.get_args(hint) if each is not type(None))
        item = typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None
        value = given.get(field.name, field.default)
        if value is dataclasses.MISSING:
            value = () if item is not None else _zero(field.metadata.get("kafka_type", ""))
        elif item is not None and value is not None and dataclasses.is_dataclass(item):
            value = tuple(make_entity(item, each) if isinstance(each, dict) else each for each in value)
        values[field.name] = value
    return kind(**values)


def _zero(kafka_type: str) -> Any:
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(0)
    return {"string": "", "bool": False, "uuid": None, "records": None}.get(kafka_type, 0)


def read_response(key: int, version: int, parts: Any) -> Any:
    """Decode the frame of an answer with kio."""
    frame = b"".join(bytes(part) for part in parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    kind: Any = load_response_schema(key, version)
    header, size = entity_reader(kind.__header_schema__)(frame, 4)
    assert header.correlation_id == 5
    entity, size = entity_reader(kind)(frame, begin := 4 + size)
    assert begin + size == len(frame)
    return entity


def topic_id(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def partition(leader: int, *replicas: int, epoch: int = 4) -> PartitionImage:
    return PartitionImage(replicas, (UNASSIGNED,) * len(replicas), replicas, leader, epoch)


def broker(broker_id: int, *, kafka: bool = True, fenced: bool = False) -> BrokerImage:
    listeners = [Listener("PEER", "127.0.0.1", 1000 + broker_id)]
    if kafka:
        listeners.append(Listener("KAFKA", "127.0.0.1", 9000 + broker_id))
    rack = f"rack-{broker_id}"
    return BrokerImage(broker_id, 1, bytes(16), tuple(listeners), (), rack, fenced, False, (), 1)


def image_of(*brokers: BrokerImage, **topics: tuple[bytes, dict[int, PartitionImage]]) -> MetadataImage:
    named = {name: TopicImage(name, topic, immutables.Map(parts)) for name, (topic, parts) in topics.items()}
    return MetadataImage(
        cluster=ClusterImage(brokers=immutables.Map({each.broker_id: each for each in brokers})),
        topics=TopicsImage(
            by_id=immutables.Map({topic.topic_id: topic for topic in named.values()}),
            by_name=immutables.Map({name: topic.topic_id for name, topic in named.items()}),
        ),
    )


@pytest.fixture
def image() -> MetadataImage:
    """Brokers 1 and 2, and the topics orders and __consumer_offsets."""
    orders = {0: partition(1, 1, 2), 1: partition(2, 2, 1, epoch=6)}
    return image_of(broker(1), broker(2), orders=(ORDERS, orders), __consumer_offsets=(OFFSETS, {0: partition(1, 1)}))


def everything(principal: str, host: str) -> Rights:
    """Rights without an authorizer."""
    return Rights(principal, host, AccessSettings(), None)


def limited_to(**operations: set[str]) -> Callable[[str, str], Rights]:
    """Rights of a caller who may use the named topics only, per operation."""

    class Limited(Rights):
        def may(self, operation: Any, resource_type: Any, name: str) -> bool:
            return name in operations.get(operation.name, ())

    return lambda principal, host: Limited(principal, host, AccessSettings(), None)


# --- random entities ---------------------------------------------------------------------------------------------------------

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


KINDS: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{bits}": signed(bits) for bits in (8, 16, 32, 64)},
    "bool": st.booleans(),
    "bytes": st.binary(max_size=200),
    "datetime_i64": st.integers(0, 2**40).map(lambda each: EPOCH + each * MILLISECOND),
    "error_code": st.sampled_from(ErrorCode),
    "float64": st.floats(allow_nan=False),
    "records": st.binary(max_size=200),
    "string": st.text(max_size=20) | st.text(min_size=128, max_size=200),
    "timedelta_i32": signed(31).map(lambda each: each * MILLISECOND),
    "timedelta_i64": signed(31).map(lambda each: each * MILLISECOND),
    "uint16": st.integers(0, 2**16 - 1),
    "uuid": st.none() | st.uuids(),
}


def entities_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for entities of a kio class; fields with a default have that default at times."""
    return st.builds(kind, **{field.name: values_of(field) for field in dataclasses.fields(kind)})


def values_of(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    inner: Any = next(option for option in options if option is not types.NoneType)
    is_array = typing.get_origin(inner) is tuple
    item = typing.get_args(inner)[0] if is_array else inner
    values = entities_of(item) if dataclasses.is_dataclass(item) else KINDS[field.metadata["kafka_type"]]
    if is_array:
        values = st.lists(values, max_size=3).map(tuple)
    if len(options) > 1 and "tag" not in field.metadata:
        values = st.none() | values
    return values if field.default is dataclasses.MISSING else st.just(field.default) | values


@pytest.fixture(scope="session")
def entities() -> Callable[[type], st.SearchStrategy[Any]]:
    """Class of kio → strategy for its entities."""
    return entities_of
