"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch in every version, over the leader's own calls."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.codec import encode_response
from kraftlab.gateway.data import Acks0Failed, DataCalls, ReadableTopics
from kraftlab.metadata.acls import Acl, AclsImage, Operation, PatternType, PermissionType, ResourceType
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import (
    EpochEnd,
    EpochEndsRequest,
    EpochEndsResponse,
    FetchedPartition,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from kraftlab.records.record_batch import TRANSACTIONAL, Record, build_batch
from kraftlab.rpc.caller import Caller
from kraftlab.wire.network import Wire
from kraftlab.wire.parts import FilePart

from .conftest import ORDERS, everything, limited_to, make_request, read_response, topic_id

CALLER = Caller("User:ANONYMOUS", "127.0.0.1")
SECOND = datetime.timedelta(seconds=1)


class Leader:
    """Remembers what was asked, and answers with what a test sets, by partition."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.produced: dict[int, ProduceResponse] = {}
        self.fetched: dict[int, FetchedPartition] = {}
        self.stored: dict[int, FilePart] = {}
        self.session_error = ErrorCode.NONE
        self.listed: dict[int, ListedOffset] = {}
        self.ends: dict[int, EpochEnd] = {}

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        return self.produced.get(request.partition, ProduceResponse(0, None, 10, 11, -1, 3))

    async def fetch(
        self, request: ReplicaFetchRequest, topics: ReadableTopics
    ) -> tuple[ReplicaFetchResponse, Mapping[tuple[bytes, int], FilePart]]:
        self.asked.append(request)
        found, stored = [], {}
        for part in request.partitions:
            topic_id = topics.find(part.topic_id)
            if isinstance(topic_id, ErrorCode):
                found.append(FetchedPartition(part.topic_id, part.partition, topic_id))
                continue
            answer = self.fetched.get(part.partition, FetchedPartition(topic_id, part.partition, 0, 8, 2, 9))
            found.append(msgspec.structs.replace(answer, topic_id=part.topic_id))
            if part.partition in self.stored:
                stored[part.topic_id, part.partition] = self.stored[part.partition]
        return ReplicaFetchResponse(self.session_error, partitions=tuple(found), session_id=request.session_id), stored

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        self.asked.append(request)
        return ListOffsetsResponse(
            tuple(
                self.listed.get(part.partition, ListedOffset(part.topic_id, part.partition, 0, None, 77, 5, 4))
                for part in request.partitions
            )
        )

    async def epoch_ends(self, request: EpochEndsRequest) -> EpochEndsResponse:
        self.asked.append(request)
        return EpochEndsResponse(
            tuple(
                self.ends.get(part.partition, EpochEnd(part.topic_id, part.partition, 0, None, part.leader_epoch, 12))
                for part in request.partitions
            )
        )


class Stored:
    """Records that are sent from a file."""

    size_bytes = 5

    async def send(self, wire: Wire, /) -> None:
        raise AssertionError("the parts are looked at, not sent")

    def __bytes__(self) -> bytes:
        return b"batch"


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def calls(leader: Leader, image: MetadataImage) -> DataCalls:
    return DataCalls(leader, lambda: image, everything)


async def produce(calls: DataCalls, version: int, *topics: dict[str, Any], acks: int = -1, **fields: Any) -> Any:
    request = make_request(0, version, acks=acks, timeout=SECOND, topic_data=topics, **fields)
    response = await calls.produce(request, CALLER)
    return None if response is None else read_response(0, version, encode_response(request.header, response))


def to_produce(
    *indexes: int, name: str = "orders", known: bytes | None = ORDERS, records: bytes | None = b"batch"
) -> dict[str, Any]:
    partitions = [{"index": index, "records": records} for index in indexes]
    return {"name": name, "topic_id": None if known is None else topic_id(known), "partition_data": partitions}


async def fetch(calls: DataCalls, version: int, *topics: dict[str, Any], **fields: Any) -> Any:
    request = make_request(1, version, max_wait=SECOND, min_bytes=1, topics=topics, **fields)
    response = await calls.fetch(request, CALLER)
    return read_response(1, version, encode_response(request.header, response))


def to_fetch(*indexes: int, name: str = "orders", known: bytes | None = ORDERS, offset: int = 7) -> dict[str, Any]:
    partitions = [{"partition": index, "fetch_offset": offset, "partition_max_bytes": 100} for index in indexes]
    return {"topic": name, "topic_id": None if known is None else topic_id(known), "partitions": partitions}


# --- Produce -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
async def test_batches_reach_the_leader_in_every_version(version: int, calls: DataCalls, leader: Leader) -> None:
    answer = await produce(calls, version, to_produce(0, 1))
    asked = {(each.topic_id, each.partition, each.acks, each.timeout_ms, bytes(each.records)) for each in leader.asked}
    assert asked == {(ORDERS, index, -1, 1000, b"batch") for index in (0, 1)}
    [topic] = answer.responses
    assert (topic.topic_id.bytes if version >= 13 else topic.name) == (ORDERS if version >= 13 else "orders")
    assert [(each.index, int(each.error_code), each.base_offset) for each in topic.partition_responses] == [
        (0, 0, 10),
        (1, 0, 10),
    ]
    if version >= 5:
        assert topic.partition_responses[0].log_start_offset == 3


async def test_each_partition_has_its_own_error_and_its_leader(calls: DataCalls, leader: Leader) -> None:
    leader.produced[1] = ProduceResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "broker 2 leads")
    answer = await produce(calls, 12, to_produce(0, 1), to_produce(0, name="no-such"))
    (good, misled), (unknown,) = (topic.partition_responses for topic in answer.responses)
    assert (int(good.error_code), int(misled.error_code), int(unknown.error_code)) == (0, 6, 3)
    assert (misled.current_leader.leader_id, misled.current_leader.leader_epoch) == (2, 6)
    assert [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints] == [
        (2, "127.0.0.1", 9002, "rack-2")
    ]


async def test_faulty_records_are_named(calls: DataCalls, leader: Leader) -> None:
    leader.produced[0] = ProduceResponse(ErrorCode.INVALID_RECORD, "no key", record_errors=((2, "no key"),))
    [topic] = (await produce(calls, 8, to_produce(0))).responses
    [answer] = topic.partition_responses
    assert (answer.error_message, answer.record_errors[0].batch_index) == ("no key", 2)


async def test_missing_records_are_refused_like_empty_ones(calls: DataCalls, leader: Leader) -> None:
    await produce(calls, 12, to_produce(0, records=None))
    assert bytes(leader.asked[0].records) == b""


async def test_a_second_batch_for_a_partition_is_refused(calls: DataCalls, leader: Leader) -> None:
    batch = build_batch([Record(b"k", b"v", 1)])
    for records, code in ((batch + batch, 87), (batch, 0), (batch + batch[:30], 0)):
        [topic] = (await produce(calls, 12, to_produce(0, records=records))).responses
        assert int(topic.partition_responses[0].error_code) == code
    assert [bytes(each.records) for each in leader.asked] == [batch, batch + batch[:30]], "the rest is the leader's to refuse"


async def test_acks_0_has_no_answer_and_its_failure_ends_the_connection(calls: DataCalls, leader: Leader) -> None:
    assert await produce(calls, 12, to_produce(0), acks=0) is None
    leader.produced[0] = ProduceResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(Acks0Failed, match="partition 0 with acks=0 was not written"):
        await produce(calls, 12, to_produce(0), acks=0)


async def test_unknown_ids_internal_topics_and_transactions_are_refused(calls: DataCalls, leader: Leader) -> None:
    async def refusal(version: int, topic: dict[str, Any], **fields: Any) -> int:
        [answer] = (await produce(calls, version, topic, **fields)).responses
        return int(answer.partition_responses[0].error_code)

    assert await refusal(13, to_produce(0, known=None)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert await refusal(12, to_produce(0, name="__consumer_offsets")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    batch = to_produce(0, records=build_batch([Record(b"k", b"v", 1)], attributes=TRANSACTIONAL))
    assert await refusal(12, batch, transactional_id="tx") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert leader.asked == []
    assert await refusal(12, to_produce(0), transactional_id="tx") == ErrorCode.NONE, "the batch is in no transaction"


async def test_only_topics_that_the_caller_may_write_are_written(leader: Leader, image: MetadataImage) -> None:
    for version in (12, 13):
        calls = DataCalls(leader, lambda: image, limited_to(WRITE=set()))
        [answer] = (await produce(calls, version, to_produce(0))).responses
        assert int(answer.partition_responses[0].error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert leader.asked == []


# --- Fetch -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
async def test_records_are_fetched_in_every_version(version: int, calls: DataCalls, leader: Leader) -> None:
    leader.fetched[0] = FetchedPartition(ORDERS, 0, 0, 8, 2, 9, None, memoryview(b"batch"))
    answer = await fetch(calls, version, to_fetch(0))
    [asked] = leader.asked
    assert (asked.replica_id, asked.max_wait_ms, asked.min_bytes) == (-1, 1000, 1)
    assert [(part.topic_id, part.partition, part.fetch_offset, part.max_bytes) for part in asked.partitions] == [
        (ORDERS if version >= 13 else b"orders", 0, 7, 100)
    ]
    [topic] = answer.responses
    assert (topic.topic_id.bytes if version >= 13 else topic.topic) == (ORDERS if version >= 13 else "orders")
    [part] = topic.partitions
    assert (int(part.error_code), part.high_watermark, part.last_stable_offset, bytes(part.records)) == (0, 8, 8, b"batch")


@pytest.mark.parametrize("version", [4, 11, 12, 18])
async def test_records_in_files_are_not_read_into_the_answer(version: int, calls: DataCalls, leader: Leader) -> None:
    leader.stored[1] = Stored()
    leader.fetched[0] = FetchedPartition(ORDERS, 0, 0, 8, 2, 9, None, memoryview(b"small"))
    [topic] = (await fetch(calls, version, to_fetch(0, 1, 2))).responses
    assert [bytes(part.records or b"") for part in topic.partitions] == [b"small", b"batch", b""]


async def test_divergence_and_the_leader_are_in_the_answer(calls: DataCalls, leader: Leader) -> None:
    leader.fetched[0] = FetchedPartition(ORDERS, 0, 0, 8, 2, 9, (3, 6))
    leader.fetched[1] = FetchedPartition(ORDERS, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer = await fetch(calls, 16, to_fetch(0, 1))
    diverged, misled = answer.responses[0].partitions
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (3, 6)
    assert (int(misled.error_code), misled.high_watermark, misled.current_leader.leader_id) == (6, -1, 2)
    assert [node.node_id for node in answer.node_endpoints] == [2]


@pytest.mark.parametrize(("isolation_level", "aborted"), [(0, None), (1, ())])
async def test_aborted_transactions_are_listed_for_read_committed_only(
    isolation_level: int, aborted: object, calls: DataCalls
) -> None:
    [topic] = (await fetch(calls, 12, to_fetch(0), isolation_level=isolation_level)).responses
    assert topic.partitions[0].aborted_transactions == aborted


async def test_the_answer_about_an_unknown_topic_id_has_an_empty_list_of_transactions(calls: DataCalls) -> None:
    [topic] = (await fetch(calls, 13, to_fetch(0, known=bytes([9] * 16)))).responses
    assert topic.partitions[0].aborted_transactions == ()


async def test_the_leader_is_named_since_version_16(calls: DataCalls, leader: Leader) -> None:
    leader.fetched[0] = FetchedPartition(ORDERS, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    [topic] = (await fetch(calls, 15, to_fetch(0))).responses
    assert topic.partitions[0].current_leader.leader_id == -1


@pytest.mark.parametrize(("version", "is_anywhere"), [(10, False), (11, True)])
async def test_followers_are_read_since_version_11_and_a_limit_of_0_gets_a_batch(
    version: int, is_anywhere: bool, calls: DataCalls, leader: Leader
) -> None:
    wanted = to_fetch(0)
    wanted["partitions"][0]["partition_max_bytes"] = 0
    await fetch(calls, version, wanted, max_bytes=0)
    [asked] = leader.asked
    assert (asked.any_replica, asked.max_bytes, asked.partitions[0].max_bytes) == (is_anywhere, 1, 1)


async def test_partitions_that_cannot_be_read_are_answered_in_their_places(calls: DataCalls, leader: Leader) -> None:
    answer = await fetch(calls, 12, to_fetch(0, name="no-such"), to_fetch(0))
    assert [(topic.topic, int(topic.partitions[0].error_code)) for topic in answer.responses] == [("no-such", 3), ("orders", 0)]
    answer = await fetch(calls, 13, to_fetch(0, known=bytes([9] * 16)))
    assert int(answer.responses[0].partitions[0].error_code) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [12, 13])
async def test_only_topics_that_the_caller_may_read_are_read(version: int, leader: Leader, image: MetadataImage) -> None:
    calls = DataCalls(leader, lambda: image, limited_to(READ=set()))
    [topic] = (await fetch(calls, version, to_fetch(0))).responses
    assert int(topic.partitions[0].error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_rights_are_the_same_as_long_as_nothing_that_they_follow_from_has_changed(image: MetadataImage) -> None:
    seen: list[Any] = []

    class Noting(Leader):
        async def fetch(self, request: ReplicaFetchRequest, topics: ReadableTopics) -> Any:
            seen.append(topics.view)
            return await super().fetch(request, topics)

    acl = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", Operation.READ, PermissionType.ALLOW)
    images = [image, msgspec.structs.replace(image), msgspec.structs.replace(image, acls=AclsImage().after({bytes(16): acl}))]
    calls = DataCalls(Noting(), lambda: images[0], everything)
    while images:
        await fetch(calls, 12, to_fetch(0))
        images.pop(0)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("version", [12, 13])
async def test_a_session_is_the_leaders(version: int, calls: DataCalls, leader: Leader) -> None:
    gone = {**to_fetch(1), "partitions": (1,)}
    answer = await fetch(calls, version, to_fetch(0), session_id=5, session_epoch=3, forgotten_topics_data=[gone])
    [asked] = leader.asked
    named = ORDERS if version >= 13 else b"orders"
    assert (asked.session_id, asked.session_epoch, asked.forgotten, answer.session_id) == (5, 3, ((named, 1),), 5)


async def test_a_session_is_refused_with_its_error(calls: DataCalls, leader: Leader) -> None:
    leader.session_error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    answer = await fetch(calls, 12, session_epoch=3)
    assert (int(answer.error_code), answer.session_id, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, ())


# --- ListOffsets and OffsetForLeaderEpoch ------------------------------------------------------------------------------------


async def list_offsets(calls: DataCalls, version: int, *wanted: tuple[int, int], name: str = "orders") -> Any:
    partitions = [{"partition_index": index, "timestamp": time} for index, time in wanted]
    request = make_request(2, version, replica_id=-1, topics=[{"name": name, "partitions": partitions}])
    response = await calls.list_offsets(request, CALLER)
    [topic] = read_response(2, version, encode_response(request.header, response)).topics
    return topic.partitions


@pytest.mark.parametrize("version", range(1, 12))
async def test_offsets_are_found_in_every_version(version: int, calls: DataCalls) -> None:
    [found] = await list_offsets(calls, version, (0, -1))
    assert (int(found.error_code), found.offset, found.timestamp) == (0, 5, 77)
    assert version < 4 or found.leader_epoch == 4


@pytest.mark.parametrize(("special", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
async def test_special_timestamps_need_their_version(special: int, since: int, calls: DataCalls) -> None:
    [early] = await list_offsets(calls, since - 1, (0, special))
    [found] = await list_offsets(calls, since, (0, special))
    assert (int(early.error_code), int(found.error_code)) == (ErrorCode.UNSUPPORTED_VERSION, 0)


async def test_a_partition_that_is_named_twice_is_refused_once(calls: DataCalls) -> None:
    rows = await list_offsets(calls, 10, (0, -1), (1, -1), (0, -2))
    assert [(row.partition_index, int(row.error_code)) for row in rows] == [(0, 42), (1, 0)]
    [unknown] = await list_offsets(calls, 10, (0, -1), name="no-such")
    assert (int(unknown.error_code), unknown.offset) == (3, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_ends_of_epochs_are_found_in_every_version(version: int, calls: DataCalls) -> None:
    partitions = [{"partition": 0, "leader_epoch": 4, "current_leader_epoch": 4}]
    topics = [{"topic": "orders", "partitions": partitions}, {"topic": "no-such", "partitions": partitions}]
    request = make_request(23, version, replica_id=-1, topics=topics)
    answer = read_response(23, version, encode_response(request.header, await calls.epoch_ends(request, CALLER)))
    (found,), (unknown,) = (topic.partitions for topic in answer.topics)
    assert (int(found.error_code), found.partition, found.leader_epoch, found.end_offset) == (0, 0, 4, 12)
    assert (int(unknown.error_code), unknown.end_offset) == (3, -1)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (-2, 74)])
async def test_an_epoch_that_no_leader_has_is_fenced(epoch: int, code: int, calls: DataCalls) -> None:
    partition = {"partition": 0, "leader_epoch": 4, "current_leader_epoch": epoch}
    request = make_request(23, 4, replica_id=-1, topics=[{"topic": "orders", "partitions": [partition]}])
    answer = read_response(23, 4, encode_response(request.header, await calls.epoch_ends(request, CALLER)))
    assert int(answer.topics[0].partitions[0].error_code) == code
    entry = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
    request = make_request(2, 10, replica_id=-1, topics=[{"name": "orders", "partitions": [entry]}])
    listed = read_response(2, 10, encode_response(request.header, await calls.list_offsets(request, CALLER)))
    assert int(listed.topics[0].partitions[0].error_code) == code


# --- errors by the version of the request ------------------------------------------------------------------------------------


async def test_a_topic_that_is_deleted_meanwhile_is_unknown_in_the_terms_of_the_request(calls: DataCalls, leader: Leader) -> None:
    """A request by name that has found its topic gets the error of names, one by id the error of ids."""
    gone = ErrorCode.UNKNOWN_TOPIC_ID
    leader.produced[0] = ProduceResponse(gone)
    leader.fetched[0] = FetchedPartition(ORDERS, 0, gone)
    leader.listed[0] = ListedOffset(ORDERS, 0, gone)
    leader.ends[0] = EpochEnd(ORDERS, 0, gone)
    answers = await codes_by_version(calls)
    assert {code for (api, version), code in answers.items() if api in (0, 1) and version >= 13} == {100}
    assert {code for (api, version), code in answers.items() if api in (2, 23) or version < 13} == {3}


async def test_a_failed_disk_is_another_leader_for_clients_that_do_not_know_the_error(calls: DataCalls, leader: Leader) -> None:
    offline = ErrorCode.KAFKA_STORAGE_ERROR
    leader.produced[0] = ProduceResponse(offline)
    leader.fetched[0] = FetchedPartition(ORDERS, 0, offline)
    leader.listed[0] = ListedOffset(ORDERS, 0, offline)
    leader.ends[0] = EpochEnd(ORDERS, 0, offline)
    answers = await codes_by_version(calls)
    assert [place for place, code in answers.items() if code != 56] == [(0, 3), (1, 4), (1, 5)]
    assert {answers[0, 3], answers[1, 4], answers[1, 5]} == {6}


async def codes_by_version(calls: DataCalls) -> dict[tuple[int, int], int]:
    """Return the error code of partition 0 in the answer to each data request, by API key and version."""
    found: dict[tuple[int, int], int] = {}
    for version in range(3, 14):
        [produced] = (await produce(calls, version, to_produce(0))).responses[0].partition_responses
        found[0, version] = int(produced.error_code)
    for version in range(4, 19):
        [fetched] = (await fetch(calls, version, to_fetch(0))).responses[0].partitions
        found[1, version] = int(fetched.error_code)
    for version in range(1, 12):
        [listed] = await list_offsets(calls, version, (0, -1))
        found[2, version] = int(listed.error_code)
    for version in range(2, 5):
        partitions = [{"partition": 0, "leader_epoch": 4, "current_leader_epoch": 4}]
        request = make_request(23, version, replica_id=-1, topics=[{"topic": "orders", "partitions": partitions}])
        answer = read_response(23, version, encode_response(request.header, await calls.epoch_ends(request, CALLER)))
        found[23, version] = int(answer.topics[0].partitions[0].error_code)
    return found
