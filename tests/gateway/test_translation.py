"""Every served request and response crosses the door in every offered version, whatever it holds."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.alter_partition_reassignments.v1 import request as kafka
from kio.serial import entity_reader, entity_writer

from kraftlab.admin.v1 import admin_pb2
from kraftlab.gateway.codec import MalformedRequest, decode_request, encode_response, response_schema
from kraftlab.gateway.door import OFFERS
from kraftlab.gateway.translation import to_entity, to_message
from kraftlab.metadata.uuids import to_text
from kraftlab.rpc.methods import METHODS

SERVED = [(offer.key, version) for offer in OFFERS.values() for version in range(offer.lowest, offer.highest + 1)]


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_an_empty_response_can_be_encoded_in_every_offered_version(key: int, version: int) -> None:
    entity = to_entity(METHODS[OFFERS[key].name].response(), response_schema(key, version))
    frame = encode_response(5, entity)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read, _ = entity_reader(type(entity))(frame, len(frame) - len(_body(entity)))
    assert read == entity


def _body(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def test_a_reassignment_keeps_null_replicas_apart_from_none() -> None:
    partitions = tuple(
        kafka.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in enumerate((None, (), (1, 2)))
    )
    request = kafka.AlterPartitionReassignmentsRequest(topics=(kafka.ReassignableTopic(name="orders", partitions=partitions),))
    message = admin_pb2.AlterPartitionReassignmentsRequest()
    to_message(request, 1, message)
    cancelled, emptied, moved = message.topics[0].partitions
    assert not cancelled.HasField("replicas")
    assert emptied.HasField("replicas")
    assert list(moved.replicas.values) == [1, 2]
    assert message.header.timeout_ms == 60_000
    assert message.header.api_version == 1


def test_errors_and_ids_keep_their_values() -> None:
    message = admin_pb2.DeleteTopicsResponse()
    message.responses.add(name="orders", topic_id=to_text(bytes(range(16))), error_code=3, error_message="no such topic")
    (row,) = to_entity(message, response_schema(20, 6)).responses
    assert (row.name, row.topic_id.bytes, int(row.error_code), row.error_message) == (
        *("orders", bytes(range(16)), 3, "no such topic"),
    )


@given(st.sampled_from(SERVED), st.binary(max_size=200))
def test_arbitrary_bytes_are_decoded_or_refused(served: tuple[int, int], data: bytes) -> None:
    key, version = served
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + data
    try:
        request = decode_request(frame)
    except MalformedRequest:
        return
    assert (request.header.key, request.header.version) == served
