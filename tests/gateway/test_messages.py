"""Kafka's messages have the bytes of kio in every version, in both directions."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeLogDirsResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from kraftlab.messages.catalog import message_class, request_class, response_class
from kraftlab.messages.generated import (
    METADATA_RECORDS,
    REQUESTS,
    RESPONSES,
    describe_log_dirs_response,
    fetch_response,
    metadata_response,
)
from kraftlab.messages.reading import MalformedMessage, read
from kraftlab.messages.schema import NO_ID, Message
from kraftlab.messages.writing import Unwritable, write, write_element
from kraftlab.wire.network import Wire
from kraftlab.wire.parts import Part, part_bytes

ROOT = Path(__file__).parents[2]
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
OF_CLIENTS = [
    (kind, load, key, version)
    for keys, kind, load in ((REQUESTS, request_class, load_request_schema), (RESPONSES, response_class, load_response_schema))
    for key in keys
    for version in range(kind(key).OLDEST, kind(key).NEWEST + 1)
]
RECORDS = (
    "leader_change_message.LeaderChangeMessage",
    "snapshot_header_record.SnapshotHeaderRecord",
    "snapshot_footer_record.SnapshotFooterRecord",
    "k_raft_version_record.KRaftVersionRecord",
    "voters_record.VotersRecord",
    "request_header.RequestHeader",
    "response_header.ResponseHeader",
)
"""Messages beside requests and responses, with the names of kio."""
OTHERS = [(name, version) for name in RECORDS for version in range(message_class(name).OLDEST, message_class(name).NEWEST + 1)]
Entities = Callable[[type], st.SearchStrategy[Any]]


def test_the_generated_code_is_current() -> None:
    check = [sys.executable, str(ROOT / "proto" / "kafka" / "generate.py"), "--check"]
    assert subprocess.run(check, check=False, capture_output=True, text=True).stderr == ""


def test_a_start_imports_only_the_messages_that_its_handlers_name() -> None:
    names = "[name for name in sys.modules if name.startswith('kraftlab.messages.generated.')]"
    command = [sys.executable, "-c", f"import sys, kraftlab.gateway.listener; print(len({names}), 'kio' in sys.modules)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert int(done[0]) < 15
    assert done[1] == "False"


def label(value: object) -> str:
    return str(value) if isinstance(value, int) else getattr(value, "__name__", "").split("_")[0]


@pytest.mark.parametrize(("kind", "load", "key", "version"), OF_CLIENTS, ids=label)
@settings(max_examples=4)
@given(data=st.data())
def test_a_message_of_kio_is_read_and_written_alike(
    kind: Any, load: Any, key: int, version: int, entities: Entities, data: st.DataObject
) -> None:
    assert_alike(kind(key), version, data.draw(entities(load(key, version))))


@pytest.mark.parametrize(("name", "version"), OTHERS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_header_or_control_record_of_kio_is_read_and_written_alike(
    name: str, version: int, entities: Entities, data: st.DataObject
) -> None:
    package, _, kind = name.partition(".")
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{'header' if kind.endswith('Header') else 'data'}")
    assert_alike(message_class(name), version, data.draw(entities(getattr(module, kind))))


def assert_alike(kind: type[Message], version: int, entity: Any) -> None:
    data = of_kio_bytes(entity)
    for frame, at in ((data, 0), (memoryview(b"before" + data + b"after"), 6)):
        value, end = read(kind, version, frame, at)
        assert end == at + len(data)
        assert value == to_value(entity, kind)
    assert joined(write(value, version)) == data


@pytest.mark.parametrize("name", [*METADATA_RECORDS.values(), *RECORDS, *REQUESTS.values(), *RESPONSES.values()])
def test_a_message_with_nothing_but_defaults_is_read_as_it_was_written(name: str) -> None:
    kind = message_class(name)
    for version in range(kind.OLDEST, kind.NEWEST + 1):
        data = joined(write(kind(), version))
        value, end = read(kind, version, data)
        assert end == len(data)
        assert joined(write(value, version)) == data
        for size in range(len(data)):
            with pytest.raises(MalformedMessage):
                read(kind, version, data[:size])


def of_kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def joined(parts: list[Part]) -> bytes:
    return b"".join(parts)  # type: ignore[arg-type]


def to_value(entity: Any, kind: Any) -> Any:
    """Return the value of a class of ours for an entity of kio: fields have the same order in both."""
    ours = {field.name: field for field in kind.FIELDS}
    given = {}
    for field in dataclasses.fields(entity):
        name = field.name if field.name in ours else f"{field.name}_ms"
        given[name] = plain(getattr(entity, field.name), ours[name], field.metadata.get("kafka_type"))
    return kind(**given)


def plain(value: Any, field: Any, kafka_type: str | None) -> Any:
    match value:
        case None:
            return NO_ID if kafka_type == "uuid" else -1 if kafka_type == "datetime_i64" else None
        case tuple():
            return tuple(plain(each, field, kafka_type) for each in value)
        case uuid.UUID():
            return value.bytes
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case _:
            return to_value(value, field.kind) if dataclasses.is_dataclass(value) else value


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"acks": 40_000}, "ProduceRequest.acks is 40000, expected int16"),
        ({"transactional_id": 5}, "ProduceRequest.transactional_id is 5, expected string"),
        ({"transactional_id": "x" * 40_000}, "ProduceRequest.transactional_id is 'xxx"),
        ({"topic_data": (7,)}, "ProduceRequest.topic_data is 7, expected a TopicProduceData"),
        ({"topic_data": None}, "ProduceRequest.topic_data is None, expected a tuple"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_named(values: dict[str, Any], text: str) -> None:
    with pytest.raises(Unwritable) as caught:
        write(request_class(0)(**values), 3)
    assert str(caught.value).startswith(text)


# --- values that are written ------------------------------------------------------------------------------------------------


class Piece:
    """Bytes that an encoder cannot see."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    async def send(self, wire: Wire, /) -> None:
        raise AssertionError("an encoder sends nothing")


OF_KAFKA_PYTHON = [
    (
        MetadataResponse,
        metadata_response.MetadataResponse(
            brokers=[metadata_response.MetadataResponseBroker(node_id=2, host="127.0.0.1", port=9092)],
            topics=[
                metadata_response.MetadataResponseTopic(
                    name="orders",
                    topic_id=bytes(range(16)),
                    partitions=[
                        metadata_response.MetadataResponsePartition(partition_index=7, leader_id=2, replica_nodes=(2, 3))
                    ],
                )
            ],
        ),
    ),
    (
        FetchResponse,
        fetch_response.FetchResponse(
            responses=[
                fetch_response.FetchableTopicResponse(
                    topic="orders",
                    topic_id=bytes(range(16)),
                    partitions=[fetch_response.PartitionData(partition_index=7, high_watermark=9, records=b"batches")],
                )
            ]
        ),
    ),
    (
        DescribeLogDirsResponse,
        describe_log_dirs_response.DescribeLogDirsResponse(
            results=[
                describe_log_dirs_response.DescribeLogDirsResult(
                    log_dir="/data",
                    topics=[
                        describe_log_dirs_response.DescribeLogDirsTopic(
                            name="orders",
                            partitions=[describe_log_dirs_response.DescribeLogDirsPartition(partition_size=100)],
                        )
                    ],
                )
            ]
        ),
    ),
]
"""Class of kafka-python, and a value with a structure at each level."""


@pytest.mark.parametrize(("kind", "value"), OF_KAFKA_PYTHON)
def test_the_bytes_are_those_of_kafka_python(kind: Any, value: Any) -> None:
    for version in range(type(value).OLDEST, type(value).NEWEST + 1):
        expected = to_kafka_python(kind, value, version).encode(version=version)
        assert joined(write(value, version)) == expected, f"version {version}"


def to_kafka_python(kind: Any, value: Any, version: int) -> Any:
    """Return the object of kafka-python for the value of an encoder."""
    given, default = {}, type(value)()
    for name in value.__struct_fields__:
        each = getattr(value, name)
        if each == getattr(default, name):
            continue
        if isinstance(each, list):
            each = [to_kafka_python(getattr(kind, type(element).__name__), element, version) for element in each]
        elif name == "topic_id":
            each = uuid.UUID(bytes=each)
        given[name] = each
    return kind(version=version, **given)


@pytest.mark.parametrize("version", [4, 17])
def test_records_are_parts_of_their_own(version: int) -> None:
    """Batches are not copied, wherever they are; null and empty ones take no part."""
    pieces: list[Part | None] = [b"in memory", None, Piece(300), b"", memoryview(b"a view")]
    partitions = [fetch_response.PartitionData(partition_index=index, records=piece) for index, piece in enumerate(pieces)]
    topic = fetch_response.FetchableTopicResponse(topic="orders", partitions=partitions)
    parts = write(fetch_response.FetchResponse(responses=(topic,)), version)
    assert [id(part) for part in parts[1::2]] == [id(piece) for piece in (pieces[0], pieces[2], pieces[4])]
    assert len(parts) == 7 if version == 17 else 6
    in_memory = [with_records_in_memory(partition) for partition in partitions]
    same = fetch_response.FetchResponse(responses=(fetch_response.FetchableTopicResponse(topic="orders", partitions=in_memory),))
    assert part_bytes(parts) == part_bytes(write(same, version))


def with_records_in_memory(partition: fetch_response.PartitionData) -> fetch_response.PartitionData:
    records = bytes(partition.records.size_bytes) if isinstance(partition.records, Piece) else partition.records
    return fetch_response.PartitionData(partition_index=partition.partition_index, records=records)


@pytest.mark.parametrize("version", range(14))
def test_an_encoded_topic_takes_the_place_of_the_topic(version: int) -> None:
    partitions = tuple(
        metadata_response.MetadataResponsePartition(partition_index=index, replica_nodes=(1, 2)) for index in range(3)
    )
    topics = [metadata_response.MetadataResponseTopic(name=name, partitions=partitions) for name in ("orders", "returns")]
    encoded = [topics[0], write_element(metadata_response.MetadataResponse, topics[1], version)]
    expected = write(metadata_response.MetadataResponse(topics=topics), version)
    assert write(metadata_response.MetadataResponse(topics=encoded), version) == expected


def test_null_is_empty_in_a_version_without_null() -> None:
    """Metadata version 9 has no null names of topics."""
    null, empty = (metadata_response.MetadataResponseTopic(name=name) for name in (None, ""))
    message = metadata_response.MetadataResponse
    assert write_element(message, null, 9) == write_element(message, empty, 9)
    assert write_element(message, null, 12) != write_element(message, empty, 12)
