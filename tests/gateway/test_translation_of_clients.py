"""Requests and responses between a client and a Kafka cluster, in every version, through Kafka's bytes and back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.gateway.client_codec import MalformedResponse, decode_response, encode_request
from kraftlab.gateway.codec import Header, decode_request, encode_response
from kraftlab.gateway.translation import lost_fields, to_message, to_response, to_value
from kraftlab.messages.catalog import request_class, response_class
from kraftlab.messages.reading import read
from kraftlab.messages.schema import Field, Message, Structure
from kraftlab.messages.writing import write
from kraftlab.rpc.calls import BROKER_OFFERS
from kraftlab.rpc.methods import METHODS

OFFERS = {offer.key: offer for offer in BROKER_OFFERS if offer.name in METHODS}
SERVED = [(offer.key, version) for offer in OFFERS.values() for version in range(offer.lowest, offer.highest + 1)]
SEEDS = range(5)


def filled(kind: type[Structure], version: int, chance: random.Random) -> Any:
    """Return a value with random values in all fields of a version."""
    return kind(**{field.name: _value(field, version, chance) for field in kind.FIELDS if field.is_in(version)})


def _value(field: Field, version: int, chance: random.Random) -> Any:
    if field.null_since <= version and chance.random() < 0.3:
        return None
    if field.is_array:
        return tuple(_one(field, version, chance) for _ in range(chance.randrange(4)))
    return _one(field, version, chance)


def _one(field: Field, version: int, chance: random.Random) -> Any:
    if not isinstance(field.kind, str):
        return filled(field.kind, version, chance)
    if field.name == "error_code":
        return chance.choice([0, 41, -1])
    if field.kind == "uuid":
        return chance.randbytes(16)
    if field.kind == "bool":
        return chance.random() < 0.5
    if field.kind == "float64":
        return float(chance.randrange(1000))
    if field.kind in ("string", "bytes"):
        text = "".join(chance.choices("abcäé-_.", k=chance.randrange(1, 9)))
        return text if field.kind == "string" else text.encode()
    return chance.randrange(1 << 7)


def through_bytes(value: Message, version: int) -> Any:
    return read(type(value), version, b"".join(write(value, version)))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_request_survives_kafkas_bytes(key: int, version: int) -> None:
    kind = request_class(key)
    for seed in SEEDS:
        asked: Any = METHODS[OFFERS[key].name].request()
        to_message(filled(kind, version, random.Random(seed)), version, asked)
        assert lost_fields(asked, kind, version) == []
        again: Any = METHODS[OFFERS[key].name].request()
        to_message(through_bytes(to_value(asked, kind, version), version), version, again)
        assert again == asked


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_response_survives_kafkas_bytes(key: int, version: int) -> None:
    kind = response_class(key)
    for seed in SEEDS:
        said: Any = METHODS[OFFERS[key].name].response()
        to_response(filled(kind, version, random.Random(seed)), version, said)
        again: Any = METHODS[OFFERS[key].name].response()
        to_response(through_bytes(to_value(said, kind, version), version), version, again)
        assert again == said


def framed(head: Header, response: Message) -> bytes:
    return b"".join(encode_response(head, response))  # type: ignore[arg-type]


def test_a_request_is_framed_as_the_listener_reads_it() -> None:
    kind = request_class(45)
    asked = pb.AlterPartitionReassignmentsRequest()
    asked.topics.add(name="orders").partitions.add(partition_index=3)
    frame = encode_request(7, "kraftlab", to_value(asked, kind, 1), 1)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found = decode_request(frame[4:])
    assert (found.header.key, found.header.version, found.header.correlation_id, found.client_id) == (45, 1, 7, "kraftlab")
    assert found.body == to_value(asked, kind, 1)


def test_a_response_is_read_as_the_listener_frames_it() -> None:
    kind = response_class(20)
    said = pb.DeleteTopicsResponse()
    said.responses.add(name="orders", error_code=3)
    frame = framed(Header(20, 6, 7), to_value(said, kind, 6))
    assert decode_response(frame[4:], kind, 6) == to_value(said, kind, 6)
    with pytest.raises(MalformedResponse, match="DeleteTopicsResponse version 6"):
        decode_response(frame[4:12], kind, 6)


def test_tagged_fields_of_newer_brokers_are_left_out() -> None:
    kind = response_class(46)
    said = pb.ListPartitionReassignmentsResponse()
    frame = framed(Header(46, 0, 7), to_value(said, kind, 0))[4:]
    no_tags, unknown_tag = b"\x00", b"\x01\x63\x02\x07\x07"
    assert frame.endswith(no_tags)
    assert decode_response(frame[:-1] + unknown_tag, kind, 0) == to_value(said, kind, 0)


def test_fields_that_kafka_lacks_are_named_wherever_they_are() -> None:
    asked = pb.AlterPartitionReassignmentsRequest(plan_id="friday", throttle=0)
    asked.topics.add(name="orders").partitions.add(partition_index=3).expected_replicas.SetInParent()
    assert lost_fields(asked, request_class(45), 1) == ["expected_replicas", "plan_id", "throttle"]
    asked = pb.AlterPartitionReassignmentsRequest(allow_replication_factor_change=False)
    assert lost_fields(asked, request_class(45), 1) == []
    assert lost_fields(asked, request_class(45), 0) == ["allow_replication_factor_change"]


def test_a_list_of_names_is_a_list_of_entities() -> None:
    asked = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=["a", "b"]))
    value: Any = to_value(asked, request_class(75), 0)
    assert [topic.name for topic in value.topics] == ["a", "b"]
    assert value.response_partition_limit == 2000


def test_what_a_broker_does_not_report_is_unknown_and_not_zero() -> None:
    kind = response_class(35)
    said = pb.DescribeLogDirsResponse()
    said.results.add(log_dir="/d").topics.add(name="orders").partitions.add(partition_size=5)
    found = pb.DescribeLogDirsResponse()
    to_response(to_value(said, kind, 1), 1, found)
    (result,) = found.results
    (replica,) = result.topics[0].partitions
    assert (result.total_bytes, replica.partition_size, replica.bytes_left, replica.log_end_offset) == (-1, 5, -1, -1)
