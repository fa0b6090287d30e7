"""Every served request and response crosses the door in every offered version, whatever it holds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.lowlevel
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.gateway.codec import Header, KafkaRequest, MalformedRequest, decode_request, encode_response
from kraftlab.gateway.door import OFFERS, Door, Unanswerable
from kraftlab.gateway.translation import to_message, to_value
from kraftlab.messages.catalog import API_VERSIONS, request_class, response_class
from kraftlab.messages.generated import alter_partition_reassignments_request as kafka
from kraftlab.messages.generated.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kraftlab.messages.schema import Structure
from kraftlab.metadata.peer_rpc import EnvelopeResponse
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import CONNECTION, LISTENER, Row, fault
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call

from .conftest import make_request, read_response

CALLER = Caller("User:broker-0", "127.0.0.1")
SERVED = [
    (offer.key, version)
    for offer in OFFERS.values()
    if offer.place not in (LISTENER, CONNECTION)
    for version in range(offer.lowest, offer.highest + 1)
]


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_an_empty_response_can_be_encoded_in_every_offered_version(key: int, version: int) -> None:
    value = to_value(METHODS[OFFERS[key].name].response(), response_class(key), version)
    parts = encode_response(Header(key, version, 5), value)
    read_response(key, version, parts)


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
    (row,) = to_value(message, response_class(20), 6).responses  # type: ignore[attr-defined]
    assert (row.name, row.topic_id, row.error_code, row.error_message) == (*("orders", bytes(range(16)), 3, "no such topic"),)


@given(st.sampled_from(SERVED), st.binary(max_size=200))
def test_arbitrary_bytes_are_decoded_or_refused(served: tuple[int, int], data: bytes) -> None:
    key, version = served
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + data
    try:
        request = decode_request(frame)
    except MalformedRequest:
        return
    assert (request.header.key, request.header.version) == served


@settings(max_examples=120)
@given(st.sampled_from(SERVED), st.data())
def test_a_damaged_request_is_refused_or_reaches_the_admin_api(
    entities: Callable[[type], st.SearchStrategy[Any]], served: tuple[int, int], data: st.DataObject
) -> None:
    """Bytes of a whole request are changed, cut out or put in: it is read as another request, or refused; nothing else."""
    schema: Any = load_request_schema(*served)
    buffer = io.BytesIO()
    header = schema.__header_schema__(request_api_key=served[0], request_api_version=served[1], correlation_id=1, client_id="c")
    entity_writer(schema.__header_schema__)(buffer, header)
    entity_writer(schema)(buffer, data.draw(entities(schema)))
    frame = bytearray(buffer.getvalue())
    for at, cut, put in data.draw(
        st.lists(st.tuples(st.integers(4, len(frame)), st.integers(0, 3), st.binary(max_size=3)), max_size=3)
    ):
        frame[at : at + cut] = put
    try:
        request = decode_request(bytes(frame))
    except MalformedRequest:
        return
    to_message(request.body, served[1], METHODS[OFFERS[served[0]].name].request())


def test_our_own_error_codes_reach_clients_as_unknown_server_error() -> None:
    message = admin_pb2.DeleteTopicsResponse()
    message.responses.add(name="orders", error_code=ErrorCode.STALE_GENERATION)
    (row,) = to_value(message, response_class(20), 6).responses  # type: ignore[attr-defined]
    assert row.error_code == -1


def _unmapped(kind: type[Structure], version: int, messages: list[Any], at: str) -> Iterator[str]:
    """Yield the fields of a structure that none of the messages has."""
    for field in kind.FIELDS:
        if not field.is_in(version):
            continue
        found = next((each.fields_by_name[field.name] for each in messages if field.name in each.fields_by_name), None)
        if found is None:
            yield f"{at}.{field.name}"
        elif not isinstance(field.kind, str) and found.message_type is not None:
            inner = found.message_type
            wrapped = inner.fields[0] if not found.is_repeated and len(inner.fields) == 1 else None
            if wrapped is not None and wrapped.message_type is None:
                # A list of names: the structure has nothing but the name.
                yield from [f"{at}.{field.name}.{each.name}" for each in field.kind.FIELDS[1:]]
            else:
                descriptor = inner if wrapped is None else wrapped.message_type
                yield from _unmapped(field.kind, version, [descriptor], f"{at}.{field.name}")


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_no_field_is_dropped(key: int, version: int) -> None:
    method = METHODS[OFFERS[key].name]
    for message, kind in ((method.request, request_class(key)), (method.response, response_class(key))):
        descriptor: Any = message.DESCRIPTOR
        header = descriptor.fields_by_name["header"].message_type
        assert list(_unmapped(kind, version, [descriptor, header], method.api)) == []


async def test_a_failure_that_a_response_cannot_show_is_no_success() -> None:
    async def no_controller(call: Call) -> Message:
        return fault(METHODS[call.api], "no controller leads", ErrorCode.REQUEST_TIMED_OUT)

    async def published(offset: int) -> None:
        """The broker has all metadata."""

    door = Door(no_controller, published, {})
    for key, version in SERVED:
        if key == API_VERSIONS:
            continue
        body = to_value(METHODS[OFFERS[key].name].request(), request_class(key), version)
        request = KafkaRequest(Header(key, version, 5), "", body)
        try:
            parts = await door.answer(request, Caller("User:ANONYMOUS", "127.0.0.1"))
        except Unanswerable as error:
            assert "no controller leads" in str(error)
        else:
            assert parts is not None
            assert int(read_response(key, version, parts).error_code) == ErrorCode.REQUEST_TIMED_OUT


class Refusing:
    """A way to the active controller, which refuses every frame."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def forwards(self, row: Row, request: KafkaRequest) -> bool:
        return True

    async def forward_frame(self, row: Row, request: KafkaRequest, caller: Caller) -> EnvelopeResponse:
        raise ApiError(self._code, "for a reason")


def refusing(code: ErrorCode) -> Door:
    async def unused(_: object) -> Any:
        raise AssertionError("the controller answers")

    return Door(unused, unused, {}, forwarding=Refusing(code))


@pytest.mark.parametrize("version", [version for key, version in SERVED if key == 20])
async def test_a_refusal_by_the_controller_is_told_in_entries(version: int) -> None:
    """DeleteTopics has no other place for it."""
    named = {"topics": [{"name": "t"}], "topic_names": ("t",)}
    parts = await refusing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED).answer(make_request(20, version, **named), CALLER)
    (entry,) = read_response(20, version, parts).responses
    assert (entry.name, entry.error_code) == ("t", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION])
async def test_a_change_in_doubt_is_not_told_in_entries(code: ErrorCode) -> None:
    with pytest.raises(Unanswerable):
        await refusing(code).answer(make_request(20, 6, topics=[{"name": "t"}]), CALLER)


async def test_other_tasks_get_turns_while_a_large_answer_is_encoded() -> None:
    count, turns = 20_000, 0

    async def describe(request: KafkaRequest, caller: Caller) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=f"g{each}") for each in range(count)])

    async def unused(_: object) -> Any:
        raise AssertionError("groups are described by the broker itself")

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    request = KafkaRequest(Header(15, 5, 5), "", request_class(15)())
    door = Door(unused, unused, {"DescribeGroups": describe})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        parts = await door.answer(request, Caller("User:ANONYMOUS", "127.0.0.1"))
        nursery.cancel_scope.cancel()
    assert parts is not None
    assert len(read_response(15, 5, parts).groups) == count
    assert turns > 10
