"""Generated encoders write the bytes of kio, and of kafka-python, in every version."""

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
from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from kraftlab.gateway.generated import ENCODERS, describe_log_dirs_response, fetch_response, metadata_response
from kraftlab.gateway.primitives import NO_ID
from kraftlab.wire.network import Wire
from kraftlab.wire.parts import Part, part_bytes

ROOT = Path(__file__).parents[2]
VERSIONS = {0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 23: (2, 4), 35: (1, 5), 46: (0, 0), 75: (0, 0)}
"""API key → lowest and highest version of Apache Kafka 4.3."""
PAIRS = [(key, version) for key, (lowest, highest) in VERSIONS.items() for version in range(lowest, highest + 1)]
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


class Piece:
    """Bytes that an encoder cannot see."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    async def send(self, wire: Wire, /) -> None:
        raise AssertionError("an encoder sends nothing")


def test_the_generated_code_is_current() -> None:
    check = [sys.executable, str(ROOT / "proto" / "kafka" / "generate.py"), "--check"]
    assert subprocess.run(check, check=False, capture_output=True, text=True).stderr == ""


def test_the_table_has_every_encoder() -> None:
    assert ENCODERS.keys() == VERSIONS.keys()


@pytest.mark.parametrize(("key", "version"), PAIRS)
@settings(max_examples=6)
@given(data=st.data())
def test_the_bytes_are_those_of_kio(
    key: int, version: int, entities: Callable[[type], st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    entity = data.draw(entities(load_response_schema(key, version)))
    assert joined(ENCODERS[key](to_value(entity), version)) == written(entity)


@pytest.mark.parametrize(("key", "version"), PAIRS)
@settings(max_examples=2)
@given(data=st.data())
def test_fields_of_newer_versions_are_left_out(
    key: int, version: int, entities: Callable[[type], st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    newest = to_value(data.draw(entities(load_response_schema(key, VERSIONS[key][1]))))
    encoded = joined(ENCODERS[key](newest, version))
    entity, size = entity_reader(load_response_schema(key, version))(encoded, 0)
    assert (written(entity), size) == (encoded, len(encoded))


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
    lowest, highest = VERSIONS[kind.API_KEY]
    for version in range(lowest, highest + 1):
        expected = to_kafka_python(kind, value, version).encode(version=version)
        assert joined(ENCODERS[kind.API_KEY](value, version)) == expected, f"version {version}"


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
    parts = fetch_response.encode(fetch_response.FetchResponse(responses=(topic,)), version)
    assert [id(part) for part in parts[1::2]] == [id(piece) for piece in (pieces[0], pieces[2], pieces[4])]
    assert len(parts) == 7 if version == 17 else 6
    in_memory = [with_records_in_memory(partition) for partition in partitions]
    same = fetch_response.FetchResponse(responses=(fetch_response.FetchableTopicResponse(topic="orders", partitions=in_memory),))
    assert part_bytes(parts) == part_bytes(fetch_response.encode(same, version))


def with_records_in_memory(partition: fetch_response.PartitionData) -> fetch_response.PartitionData:
    records = bytes(partition.records.size_bytes) if isinstance(partition.records, Piece) else partition.records
    return fetch_response.PartitionData(partition_index=partition.partition_index, records=records)


@pytest.mark.parametrize("version", range(14))
def test_an_encoded_topic_takes_the_place_of_the_topic(version: int) -> None:
    partitions = tuple(
        metadata_response.MetadataResponsePartition(partition_index=index, replica_nodes=(1, 2)) for index in range(3)
    )
    topics = [metadata_response.MetadataResponseTopic(name=name, partitions=partitions) for name in ("orders", "returns")]
    encoded = [topics[0], metadata_response.encode_topic(topics[1], version)]
    expected = metadata_response.encode(metadata_response.MetadataResponse(topics=topics), version)
    assert metadata_response.encode(metadata_response.MetadataResponse(topics=encoded), version) == expected


def test_null_is_empty_in_a_version_without_null() -> None:
    """Metadata version 9 has no null names of topics."""
    null, empty = (metadata_response.MetadataResponseTopic(name=name) for name in (None, ""))
    assert metadata_response.encode_topic(null, 9) == metadata_response.encode_topic(empty, 9)
    assert metadata_response.encode_topic(null, 12) != metadata_response.encode_topic(empty, 12)


def joined(parts: list[Part]) -> bytes:
    assert all(isinstance(part, bytes | bytearray | memoryview) for part in parts)
    return b"".join(parts)  # type: ignore[arg-type]


def written(entity: Any) -> bytes:
    """Return the bytes that kio writes."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def to_value(entity: Any) -> Any:
    """Return the value of an encoder for an entity of kio."""
    message = type(entity).__module__.split(".")[2]
    kind = getattr(importlib.import_module(f"kraftlab.gateway.generated.{message}_response"), type(entity).__name__)
    given = {}
    for field in dataclasses.fields(entity):
        name = field.name if field.name in kind.__struct_fields__ else f"{field.name}_ms"
        given[name] = of_kio(getattr(entity, field.name), field.metadata.get("kafka_type"))
    return kind(**given)


def of_kio(value: Any, kind: str | None) -> Any:
    match value:
        case None:
            return NO_ID if kind == "uuid" else -1 if kind == "datetime_i64" else None
        case tuple():
            return tuple(of_kio(each, None) for each in value)
        case uuid.UUID():
            return value.bytes
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case _:
            return to_value(value) if dataclasses.is_dataclass(value) else value
