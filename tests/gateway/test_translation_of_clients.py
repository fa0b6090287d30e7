"""Requests and responses between a client and a Kafka cluster, in every version, through Kafka's bytes and back."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KafkaError
from kio.serial import entity_reader, entity_writer

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.gateway.client_codec import MalformedResponse, decode_response, encode_request, request_schema
from kraftlab.gateway.codec import decode_request, encode_entity, response_schema
from kraftlab.gateway.translation import lost_fields, to_entity, to_message, to_response
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.versions import BROKER_OFFERS

OFFERS = {offer.key: offer for offer in BROKER_OFFERS if offer.name in METHODS}
SERVED = [(offer.key, version) for offer in OFFERS.values() for version in range(offer.lowest, offer.highest + 1)]
SEEDS = range(5)


def filled(kind: Any, chance: random.Random) -> Any:
    """Return an entity with random values in all of its fields."""
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: _value(hints[field.name], field, chance) for field in dataclasses.fields(kind)})


def _value(hint: Any, field: Any, chance: random.Random) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in options and chance.random() < 0.3:
        return None
    (inner,) = [each for each in options if each is not type(None)]
    if typing.get_origin(inner) is tuple:
        item = typing.get_args(inner)[0]
        return tuple(_value(item, field, chance) for _ in range(chance.randrange(4)))
    if dataclasses.is_dataclass(inner):
        return filled(inner, chance)
    kind = field.metadata.get("kafka_type", "")
    if kind == "error_code":
        return chance.choice([KafkaError.none, KafkaError.not_controller, KafkaError.unknown_server_error])
    if kind == "uuid":
        return uuid.UUID(int=chance.getrandbits(128))
    if kind.startswith("timedelta"):
        return datetime.timedelta(milliseconds=chance.randrange(1 << 20))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return float(chance.randrange(1000))
    if kind.startswith(("int", "uint")):
        return chance.randrange(1 << 7)
    text = "".join(chance.choices("abcäé-_.", k=chance.randrange(1, 9)))
    return text.encode() if kind in ("bytes", "records") else text


def through_bytes(entity: Any) -> Any:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return entity_reader(type(entity))(buffer.getvalue(), 0)[0]


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_request_survives_kafkas_bytes(key: int, version: int) -> None:
    kind = request_schema(key, version)
    for seed in SEEDS:
        asked: Any = METHODS[OFFERS[key].name].request()
        to_message(filled(kind, random.Random(seed)), version, asked)
        assert lost_fields(asked, kind) == []
        again: Any = METHODS[OFFERS[key].name].request()
        to_message(through_bytes(to_entity(asked, kind)), version, again)
        assert again == asked


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_response_survives_kafkas_bytes(key: int, version: int) -> None:
    kind = response_schema(key, version)
    for seed in SEEDS:
        said: Any = METHODS[OFFERS[key].name].response()
        to_response(filled(kind, random.Random(seed)), said)
        again: Any = METHODS[OFFERS[key].name].response()
        to_response(through_bytes(to_entity(said, kind)), again)
        assert again == said


def test_a_request_is_framed_as_the_listener_reads_it() -> None:
    kind = request_schema(45, 1)
    asked = pb.AlterPartitionReassignmentsRequest()
    asked.topics.add(name="orders").partitions.add(partition_index=3)
    frame = encode_request(7, "kraftlab", to_entity(asked, kind))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read = decode_request(frame[4:])
    assert (read.header.key, read.header.version, read.header.correlation_id, read.client_id) == (45, 1, 7, "kraftlab")
    assert read.body == to_entity(asked, kind)


def test_a_response_is_read_as_the_listener_frames_it() -> None:
    kind = response_schema(20, 6)
    said = pb.DeleteTopicsResponse()
    said.responses.add(name="orders", error_code=3)
    frame = b"".join(encode_entity(7, to_entity(said, kind)))
    assert decode_response(frame[4:], kind) == to_entity(said, kind)
    with pytest.raises(MalformedResponse, match="DeleteTopicsResponse version 6"):
        decode_response(frame[4:12], kind)


def test_tagged_fields_of_newer_brokers_are_left_out() -> None:
    kind = response_schema(46, 0)
    said = pb.ListPartitionReassignmentsResponse()
    frame = b"".join(encode_entity(7, to_entity(said, kind)))[4:]
    no_tags, unknown_tag = b"\x00", b"\x01\x63\x02\x07\x07"
    assert frame.endswith(no_tags)
    assert decode_response(frame[:-1] + unknown_tag, kind) == to_entity(said, kind)


def test_fields_that_kafka_lacks_are_named_wherever_they_are() -> None:
    asked = pb.AlterPartitionReassignmentsRequest(plan_id="friday", throttle=0)
    asked.topics.add(name="orders").partitions.add(partition_index=3).expected_replicas.SetInParent()
    assert lost_fields(asked, request_schema(45, 1)) == ["expected_replicas", "plan_id", "throttle"]
    asked = pb.AlterPartitionReassignmentsRequest(allow_replication_factor_change=False)
    assert lost_fields(asked, request_schema(45, 1)) == []
    assert lost_fields(asked, request_schema(45, 0)) == ["allow_replication_factor_change"]


def test_a_list_of_names_is_a_list_of_entities() -> None:
    asked = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=["a", "b"]))
    entity: Any = to_entity(asked, request_schema(75, 0))
    assert [topic.name for topic in entity.topics] == ["a", "b"]
    assert entity.response_partition_limit == 2000


def test_what_a_broker_does_not_report_is_unknown_and_not_zero() -> None:
    kind = response_schema(35, 1)
    said = pb.DescribeLogDirsResponse()
    said.results.add(log_dir="/d").topics.add(name="orders").partitions.add(partition_size=5)
    found = pb.DescribeLogDirsResponse()
    to_response(to_entity(said, kind), found)
    (result,) = found.results
    (replica,) = result.topics[0].partitions
    assert (result.total_bytes, replica.partition_size, replica.bytes_left, replica.log_end_offset) == (-1, 5, -1, -1)
