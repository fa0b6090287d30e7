"""The controller's API: headers of admin calls, refusals of whole requests, peers' requests, envelopes."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import ZERO, to_text
from kraftlab.controller.api.apis import HANDLERS
from kraftlab.controller.engine.state import EMPTY_STATE, Outcome
from kraftlab.controller.reassignment.listing import listing
from kraftlab.controller.topics import description
from kraftlab.gateway.client_codec import decode_response, encode_request
from kraftlab.messages.generated import create_topics_request
from kraftlab.messages.generated.create_topics_request import CreateTopicsRequest
from kraftlab.messages.generated.create_topics_response import CreateTopicsResponse
from kraftlab.messages.generated.describe_quorum_request import DescribeQuorumRequest
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Api,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    MoveProgress,
    MoveProgressRequest,
    MoveProgressResponse,
)
from kraftlab.metadata.records import Listener
from kraftlab.rpc.calls import CALLS, QUORUM, READ, WRITE
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call

ANONYMOUS = "User:ANONYMOUS"
FEATURES = supported_features()
API_OF = {method.request: method.api for method in METHODS.values()}


def _answers_nothing(api: str) -> Callable[[Any], Awaitable[Any]]:
    async def answer(request: Any) -> Any:
        return METHODS[api].response()

    return answer


CHANGES = {api: _answers_nothing(api) for api in ("AddRaftVoter", "RemoveRaftVoter", "TransferLeadership")}


async def _describe_quorum(request: Any) -> pb.DescribeQuorumResponse:
    return pb.DescribeQuorumResponse(leader_id=3000)


async def _describe_metadata(request: Any) -> pb.DescribeMetadataResponse:
    return pb.DescribeMetadataResponse(node_id=3000)


LOCAL = {"DescribeQuorum": _describe_quorum, "DescribeMetadata": _describe_metadata, **CHANGES}


class Client:
    """An anonymous client of a controller, whose log commits once all tasks wait."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.cluster = served.cluster
        self.service = served.service
        self.peer = served.peer

    async def call(self, api: str, request: Any, **header: Any) -> Any:
        request.header.MergeFrom(pb.RequestHeader(**header))
        return await self.served.ask(Call(api, request, ANONYMOUS))


@pytest.fixture(params=[True, False], ids=["accept", "dispatch"])
async def client(cluster: Any, tools: Any, request: pytest.FixtureRequest) -> Client:
    await cluster.start_brokers(0, 1, 2)
    made = Client(tools.ServedController(cluster, request.param, LOCAL))
    listeners = (Listener("CONTROLLER", "c", 1), Listener("GRPC", "c", 2))
    registration = ControllerRegistrationRequest(3000, b"i" * 16, listeners, FEATURES)
    await made.peer(Api.CONTROLLER_REGISTRATION, registration, ControllerRegistrationResponse)
    return made


def creation(name: str = "t") -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def move(*entries: tuple[str, int, tuple[int, ...]]) -> pb.AlterPartitionReassignmentsRequest:
    request = pb.AlterPartitionReassignmentsRequest()
    for name, index, replicas in entries:
        topic = request.topics.add(name=name)
        topic.partitions.add(partition_index=index, replicas=pb.Int32List(values=replicas))
    return request


def test_every_write_and_read_has_a_handler() -> None:
    assert HANDLERS.keys() == {api for api, row in CALLS.items() if row.place in (WRITE, READ)}


# --- what needs no task -------------------------------------------------------------------------------------------------------


async def test_a_write_is_taken_at_once_and_answered_when_it_is_committed(client: Client) -> None:
    answers: list[Any] = []
    assert client.service.accept(Call("CreateTopics", creation(), ANONYMOUS), answers.append) is None
    assert not answers
    await client.cluster.commit()
    assert (answers[0].topics[0].error_code, answers[0].header.leader_id) == (0, 3000)


async def test_a_write_in_flight_is_answered_when_leadership_is_lost_and_names_the_new_leader(client: Client) -> None:
    answers: list[Any] = []
    assert client.service.accept(Call("CreateTopics", creation(), ANONYMOUS), answers.append) is None
    await client.cluster.controller.leader_changed(client.cluster.quorum.epoch + 1, 3001, {})
    header = answers[0].header
    assert (header.error_code, header.leader_id) == (ErrorCode.NOT_CONTROLLER, 3001)
    assert answers[0].topics[0].error_code == ErrorCode.NOT_CONTROLLER


async def test_reads_and_writes_that_wait_are_left_to_a_task(client: Client) -> None:
    later = pb.CreateTopicsRequest(topics=creation().topics, header=pb.RequestHeader(min_offset=1 << 40))
    for api, request in (("DescribeCluster", pb.DescribeClusterRequest()), ("CreateTopics", later)):
        assert client.service.accept(Call(api, request, ANONYMOUS), pytest.fail) is not None


async def test_refused_and_empty_requests_are_answered_at_once(client: Client) -> None:
    elsewhere = pb.RequestHeader(cluster_id="other")
    for api, request, code in (
        ("CreateTopics", pb.CreateTopicsRequest(), ErrorCode.NONE),
        ("CreateTopics", pb.CreateTopicsRequest(topics=creation().topics, header=elsewhere), ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("DescribeCluster", pb.DescribeClusterRequest(header=elsewhere), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ):
        answers: list[Any] = []
        assert client.service.accept(Call(api, request, ANONYMOUS), answers.append) is None
        assert (answers[0].header.error_code, answers[0].header.leader_id) == (code, 3000)


async def test_a_write_that_waited_is_due_from_its_arrival(client: Client) -> None:
    """The time that a call waits for a task and for its offset counts."""
    offset = client.cluster.controller.applied_offset
    request = creation()
    request.header.MergeFrom(pb.RequestHeader(min_offset=offset + 1, timeout_ms=100))
    later = client.service.accept(Call("CreateTopics", request, ANONYMOUS), pytest.fail)
    assert later is not None
    client.cluster.controller.write("more", lambda state, context: _config_outcome())
    await client.cluster.commit()
    client.cluster.clock.now_ms += 100
    response: Any = await later()
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not client.cluster.controller.newest.image.topics.by_name


# --- headers ----------------------------------------------------------------------------------------------------------------


async def test_an_answer_has_its_offset_and_the_active_controller(client: Client) -> None:
    response = await client.call("CreateTopics", creation())
    header = response.header
    assert response.topics[0].error_code == 0
    assert header.metadata_offset == client.cluster.quorum.end_offset == client.cluster.controller.applied_offset
    assert (header.error_code, header.epoch, header.leader_id) == (0, client.cluster.quorum.epoch, 3000)
    assert (header.leader.host, header.leader.port) == ("c", 2)
    described = await client.call("DescribeTopicPartitions", pb.DescribeTopicPartitionsRequest())
    assert described.header.metadata_offset == header.metadata_offset


async def test_requests_for_another_cluster_are_refused(client: Client) -> None:
    response = await client.call("CreateTopics", creation(), cluster_id="other")
    assert response.header.error_code == response.topics[0].error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "other" in response.header.error_message
    response = await client.call("CreateTopics", creation(), cluster_id=client.cluster.settings.cluster_id)
    assert response.header.error_code == 0


LINEARIZABLE_READS = [api for api, row in CALLS.items() if row.place in (READ, QUORUM)]


@pytest.mark.parametrize("api", LINEARIZABLE_READS)
async def test_every_read_of_replicated_state_can_be_linearizable(client: Client, api: str) -> None:
    response = await client.call(api, METHODS[api].request(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert response.header.error_code in (ErrorCode.NONE, ErrorCode.SECURITY_DISABLED)
    assert response.header.metadata_offset >= client.cluster.controller.applied_offset


async def test_a_linearizable_read_waits_until_the_read_index_is_applied(client: Client, autojump_clock: Any) -> None:
    offset = client.cluster.controller.applied_offset

    async def ahead() -> int:
        return offset + 1

    client.cluster.quorum.read_index = ahead
    client.cluster.controller.write("more", lambda state, context: _config_outcome())
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert (response.header.error_code, response.header.metadata_offset) == (0, offset + 1)
    response = await client.call(
        "DescribeCluster", pb.DescribeClusterRequest(), read_mode=pb.READ_MODE_LINEARIZABLE, min_offset=offset + 2, timeout_ms=50
    )
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT, "both conditions hold, or there is no answer"
    assert str(offset + 2) in response.header.error_message


async def test_a_linearizable_read_that_is_not_confirmed_in_time_is_not_answered(client: Client, autojump_clock: Any) -> None:
    client.cluster.quorum.confirms = None
    request = pb.DescribeTopicPartitionsRequest()
    response = await client.call("DescribeTopicPartitions", request, read_mode=pb.READ_MODE_LINEARIZABLE, timeout_ms=300)
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert response.header.error_message.startswith("Not answered")
    assert not response.topics


async def test_a_node_that_does_not_lead_any_more_redirects_linearizable_reads(client: Client) -> None:
    client.cluster.quorum.confirms = False
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert response.header.error_code == ErrorCode.NOT_CONTROLLER
    client.cluster.quorum.confirms = True
    await client.cluster.lose_leadership(survives=True)
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert response.header.error_code == ErrorCode.NOT_CONTROLLER
    assert "3001" in response.header.error_message
    committed = await client.call("DescribeCluster", pb.DescribeClusterRequest())
    assert committed.header.error_code == 0, "committed state is read anywhere"


async def test_too_many_linearizable_reads_are_turned_away(client: Client) -> None:
    client.cluster.quorum.overloaded = True
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert response.header.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_local_calls_are_never_linearizable(client: Client) -> None:
    response = await client.call("DescribeMetadata", pb.DescribeMetadataRequest(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert response.header.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "min_offset" in response.header.error_message


async def test_a_write_does_not_care_about_the_read_mode(client: Client) -> None:
    response = await client.call("CreateTopics", creation(), read_mode=pb.READ_MODE_LINEARIZABLE)
    assert response.header.error_code == 0


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_write_without_time_is_refused_everywhere_without_text_before_any_other_check(
    client: Client, timeout_ms: int
) -> None:
    response = await client.call("AlterPartitionReassignments", move(("no", 0, (0,))), timeout_ms=timeout_ms)
    entry = response.responses[0].partitions[0]
    assert response.header.error_code == entry.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not response.header.HasField("error_message") and not entry.HasField("error_message")
    created = await client.call("CreateTopics", creation(), timeout_ms=timeout_ms)
    assert (created.topics[0].error_code, created.topics[0].num_partitions) == (ErrorCode.REQUEST_TIMED_OUT, -1)


async def test_a_listing_needs_no_time(client: Client) -> None:
    response = await client.call("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest(), timeout_ms=0)
    assert response.header.error_code == 0


async def test_min_offset_waits_until_it_is_applied_or_the_time_is_over(client: Client, autojump_clock: Any) -> None:
    offset = client.cluster.controller.applied_offset
    late = await client.call("DescribeCluster", pb.DescribeClusterRequest(), min_offset=offset + 1, timeout_ms=200)
    assert late.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert str(offset + 1) in late.header.error_message
    client.cluster.controller.write("more", lambda state, context: _config_outcome())
    reached = await client.call("DescribeCluster", pb.DescribeClusterRequest(), min_offset=offset + 1, timeout_ms=200)
    assert reached.header.error_code == 0
    assert reached.header.metadata_offset == offset + 1


def _config_outcome() -> Any:
    from kraftlab.metadata.records import NoOp

    return Outcome([NoOp(0)], "")


async def test_an_empty_request_is_answered_even_if_the_queue_is_held(client: Client) -> None:
    client.cluster.controller.queue.hold()
    call = Call("AlterPartitionReassignments", pb.AlterPartitionReassignmentsRequest(), ANONYMOUS)
    response: Any = await client.service.dispatch(call)
    assert (response.header.error_code, response.allow_replication_factor_change) == (0, True)
    assert response.header.HasField("error_message"), "Kafka's answer to an empty reassignment has an empty text"


async def test_a_standby_refuses_changes_in_every_entry_and_serves_reads(client: Client) -> None:
    await client.call("CreateTopics", creation())
    await client.call("AlterPartitionReassignments", move(("t", 0, (1, 2))))
    await client.cluster.lose_leadership(survives=True, leader_id=3001)
    text = "The active controller appears to be node 3001."
    response = await client.call("AlterPartitionReassignments", move(("t", 0, (0,)), ("u", 3, (0,))))
    entries = [p for topic in response.responses for p in topic.partitions]
    assert [(p.error_code, p.error_message) for p in entries] == [(41, text)] * 2
    assert (response.header.error_code, response.header.error_message) == (41, text)
    assert (response.header.leader_id, response.header.HasField("leader")) == (3001, False), "its endpoint is not known yet"
    assert (await client.call("CreateTopics", creation("u"))).topics[0].error_code == 41
    deletion = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name="t")])
    deleted = (await client.call("DeleteTopics", deletion)).responses[0]
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("t", to_text(ZERO), 41)
    change = pb.IncrementalAlterConfigsRequest(resources=[pb.AlterConfigsResource(resource_type=2, resource_name="t")])
    assert (await client.call("IncrementalAlterConfigs", change)).responses[0].error_code == 41
    assert (await client.call("DescribeQuorum", pb.DescribeQuorumRequest())).header.error_code == 41
    for api in CHANGES:
        answer = await client.call(api, METHODS[api].request())
        assert (answer.header.error_code, answer.header.leader_id) == (41, 3001), api
    listing = await client.call("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
    assert listing.topics[0].name == "t"


async def test_calls_about_log_directories_belong_to_brokers(client: Client) -> None:
    for api, request in [
        ("DescribeLogDirs", pb.DescribeLogDirsRequest()),
        ("AlterReplicaLogDirs", pb.AlterReplicaLogDirsRequest()),
    ]:
        response = await client.call(api, request)
        assert response.header.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_local_calls_are_passed_on(client: Client) -> None:
    assert (await client.call("DescribeQuorum", pb.DescribeQuorumRequest())).leader_id == 3000
    assert (await client.call("DescribeMetadata", pb.DescribeMetadataRequest())).node_id == 3000


async def test_describe_cluster(client: Client) -> None:
    await client.cluster.stop_broker(2)
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest(include_fenced_brokers=True))
    assert (response.cluster_id, response.controller_id, response.node_id) == (client.cluster.settings.cluster_id, 3000, 3000)
    assert [(b.broker_id, b.port, b.peer_port, b.is_fenced) for b in response.brokers] == [
        (0, 8000, 9000, False),
        (1, 8001, 9001, False),
        (2, 8002, 9002, True),
    ]
    assert not response.brokers[0].HasField("rack")
    assert [(c.controller_id, c.port, c.peer_port) for c in response.controllers] == [(3000, 2, 1)]
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest())
    assert [b.broker_id for b in response.brokers] == [0, 1]


async def test_configs_are_described_through_the_door(client: Client) -> None:
    request = pb.DescribeConfigsRequest(resources=[pb.DescribeConfigsResource(resource_type=4, resource_name="0")])
    assert (await client.call("DescribeConfigs", request)).results[0].error_code == 0


# --- peers ------------------------------------------------------------------------------------------------------------------


async def test_a_broker_registers_and_is_unfenced_over_peer_requests(client: Client) -> None:
    registration = client.cluster.registration(7)
    response = await client.peer(Api.BROKER_REGISTRATION, registration, BrokerRegistrationResponse)
    assert response.error == 0 and response.broker_epoch == client.cluster.broker(7).epoch
    beat = await client.peer(Api.BROKER_HEARTBEAT, client.cluster.beat(7), BrokerHeartbeatResponse)
    assert beat == BrokerHeartbeatResponse(0, None, is_caught_up=True, is_fenced=False)


async def test_refusals_of_peers_are_in_the_response(client: Client) -> None:
    registration = client.cluster.registration(7, cluster_id="other")
    response = await client.peer(Api.BROKER_REGISTRATION, registration, BrokerRegistrationResponse)
    assert response.error == ErrorCode.INCONSISTENT_CLUSTER_ID and "other" in response.message
    await client.cluster.lose_leadership(survives=True)
    change = AlterPartitionRequest(0, 1, ())
    assert (await client.peer(Api.ALTER_PARTITION, change, AlterPartitionResponse)).error == ErrorCode.NOT_CONTROLLER
    beat = client.cluster.beat(0)
    assert (await client.peer(Api.BROKER_HEARTBEAT, beat, BrokerHeartbeatResponse)).error == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("api", [Api.ALTER_PARTITION, Api.BROKER_HEARTBEAT, Api.BROKER_REGISTRATION, Api.ASSIGN_REPLICAS_TO_DIRS])
async def test_bodies_that_cannot_be_read_are_refused(client: Client, api: int) -> None:
    code, text = await client.peer(api, b"\xc1garbage", None)
    assert code == ErrorCode.INVALID_REQUEST
    assert "cannot be read" in text


async def test_a_known_registration_of_a_controller_writes_nothing(client: Client) -> None:
    request = ControllerRegistrationRequest(3001, b"j" * 16, (Listener("GRPC", "d", 3),), FEATURES)
    for writes in (1, 0):
        end = client.cluster.quorum.end_offset
        response = await client.peer(Api.CONTROLLER_REGISTRATION, request, ControllerRegistrationResponse)
        assert response.error == 0
        assert client.cluster.quorum.end_offset == end + writes
    old = ControllerRegistrationRequest(3002, b"k" * 16, ())
    response = await client.peer(Api.CONTROLLER_REGISTRATION, old, ControllerRegistrationResponse)
    assert response.error == ErrorCode.UNSUPPORTED_VERSION


async def envelope(client: Client, api: str, request: bytes) -> EnvelopeResponse:
    answer: EnvelopeResponse = await client.peer(Api.ENVELOPE, EnvelopeRequest(api, ANONYMOUS, request), EnvelopeResponse)
    return answer


async def test_an_admin_call_that_a_broker_passes_on_is_answered_like_any_other(client: Client) -> None:
    answer = await envelope(client, "CreateTopics", creation().SerializeToString())
    assert answer.error == 0
    response = pb.CreateTopicsResponse.FromString(answer.response)
    assert (response.topics[0].name, response.topics[0].error_code) == ("t", 0)


async def test_an_envelope_reports_that_the_controller_has_moved(client: Client) -> None:
    await client.cluster.lose_leadership(survives=True)
    answer = await envelope(client, "CreateTopics", creation().SerializeToString())
    assert (answer.error, answer.outcome_unknown, answer.response) == (ErrorCode.NOT_CONTROLLER, False, b"")


async def test_envelopes_with_unknown_calls_or_garbage_are_refused(client: Client) -> None:
    assert (await envelope(client, "NoSuchCall", b"")).error == ErrorCode.UNSUPPORTED_VERSION
    assert (await envelope(client, "CreateTopics", b"\xff\xff")).error == ErrorCode.INVALID_REQUEST


async def frame(client: Client, request: bytes, api: str = "CreateTopics", timeout_ms: int | None = None) -> EnvelopeResponse:
    envelope = EnvelopeRequest(api, ANONYMOUS, request, "client", is_frame=True, timeout_ms=timeout_ms)
    answer: EnvelopeResponse = await client.peer(Api.ENVELOPE, envelope, EnvelopeResponse)
    return answer


def creation_frame(version: int = 7, name: str = "t") -> bytes:
    topic = create_topics_request.CreatableTopic(name, 1, 1)
    return encode_request(9, "client", CreateTopicsRequest([topic]), version)[4:]


async def test_a_frame_that_a_broker_forwards_is_answered_with_a_frame(client: Client) -> None:
    answer = await frame(client, creation_frame())
    assert (answer.error, answer.metadata_offset) == (0, client.cluster.controller.applied_offset)
    assert answer.response[:8] == struct.pack(">ii", len(answer.response) - 4, 9)
    response = decode_response(answer.response[4:], CreateTopicsResponse, 7)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0)]


async def test_the_time_that_a_broker_leaves_replaces_the_time_in_a_frame(client: Client) -> None:
    late = decode_response((await frame(client, creation_frame(), timeout_ms=0)).response[4:], CreateTopicsResponse, 7)
    assert [topic.error_code for topic in late.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    await client.cluster.lose_leadership(survives=True)
    moved = await frame(client, creation_frame())
    assert (moved.error, moved.response) == (ErrorCode.NOT_CONTROLLER, b"")


async def test_an_error_without_a_place_in_the_response_is_named_beside_it(client: Client) -> None:
    request = encode_request(9, "client", DescribeQuorumRequest(), 0)[4:]
    await client.cluster.lose_leadership(survives=True)
    assert (await frame(client, request, "DescribeQuorum")).error == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("api", "bytes_"),
    [
        ("CreateTopics", b""),
        ("CreateTopics", creation_frame()[:-5]),
        ("CreateTopics", creation_frame()[:2] + b"\0\x63" + creation_frame()[4:]),
        ("CreateTopics", b"\x7f\xff" + creation_frame()[2:]),
        ("DeleteTopics", creation_frame()),
        ("NoSuchCall", creation_frame()),
        ("CreateSnapshot", b"\xff\xff\0\0" + creation_frame()[4:]),
        ("Vote", b"\0\x34\0\0" + creation_frame()[4:]),
        ("Fetch", b"\0\x01\0\x0c" + creation_frame()[4:]),
        ("CreateTopics", creation_frame()[:16] + b"\xff\xff\xff\x7f"),
    ],
)
async def test_frames_that_are_damaged_or_another_call_are_refused(client: Client, api: str, bytes_: bytes) -> None:
    end = client.cluster.quorum.end_offset
    refused = await frame(client, bytes_, api)
    assert refused.error == ErrorCode.INVALID_REQUEST
    assert f"the frame of {api} cannot be read: " in (refused.message or "")
    assert client.cluster.quorum.end_offset == end


async def test_a_controller_refuses_a_request_for_a_brokers_endpoint(client: Client) -> None:
    response = await client.call("DescribeCluster", pb.DescribeClusterRequest(endpoint_type=1))
    assert response.header.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert (response.controller_id, response.endpoint_type) == (-1, 1)


# --- moves ------------------------------------------------------------------------------------------------------------------


async def test_the_caller_is_the_initiator_of_a_move_unless_the_request_names_one(client: Client) -> None:
    await client.cluster.create("t", (0,), (0,))
    await client.call("AlterPartitionReassignments", move(("t", 0, (1,))))
    named = move(("t", 1, (1,)))
    named.initiator = "the night shift"
    await client.call("AlterPartitionReassignments", named)
    listed = await client.call("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
    assert [entry.initiator for entry in listed.topics[0].partitions] == [ANONYMOUS, "the night shift"]
    assert listed.has_progress


async def test_all_moves_are_cancelled_although_the_request_names_no_topic(client: Client) -> None:
    await client.cluster.create("t", (0,))
    await client.call("AlterPartitionReassignments", move(("t", 0, (1,))))
    response = await client.call("CancelReassignments", pb.CancelReassignmentsRequest())
    assert [entry.error_code for topic in response.responses for entry in topic.partitions] == [0]
    assert client.cluster.listed() == []


async def test_an_answer_distinguishes_a_write_that_never_began_from_an_unknown_outcome(client: Client) -> None:
    await client.cluster.create("t", (0,))
    never = await client.call("AlterPartitionReassignments", move(("t", 0, (1,))), timeout_ms=0)
    assert (never.header.error_code, never.header.outcome_unknown) == (ErrorCode.REQUEST_TIMED_OUT, False)
    assert never.responses[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    answers: list[Any] = []
    request = move(("t", 0, (1,)))
    request.header.timeout_ms = 300
    assert client.service.accept(Call("AlterPartitionReassignments", request, ANONYMOUS), answers.append) is None
    client.cluster.clock.now_ms += 301
    client.cluster.controller.queue.run_due()
    [unknown] = answers
    assert (unknown.header.error_code, unknown.header.outcome_unknown) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert unknown.header.metadata_offset == client.cluster.quorum.end_offset
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    await client.cluster.commit()
    assert client.cluster.listed() == [("t", 0)]


async def test_a_change_lost_with_the_leadership_is_unknown(client: Client) -> None:
    await client.cluster.create("t", (0,))
    answers: list[Any] = []
    assert client.service.accept(Call("AlterPartitionReassignments", move(("t", 0, (1,))), ANONYMOUS), answers.append) is None
    await client.cluster.controller.leader_changed(client.cluster.quorum.epoch + 1, 3001, {})
    assert (answers[0].header.error_code, answers[0].header.outcome_unknown) == (ErrorCode.NOT_CONTROLLER, True)
    standby = await client.call("AlterPartitionReassignments", move(("t", 0, (1,))))
    assert (standby.header.error_code, standby.header.outcome_unknown) == (ErrorCode.NOT_CONTROLLER, False)


async def test_changes_lost_with_the_leadership_have_their_offsets(client: Client) -> None:
    """A read at that offset shows whether the change survived. At an earlier offset it may not be visible yet."""
    await client.cluster.create("t", (0,), (0,))
    answers: list[Any] = []
    ends: list[int] = []
    for number in (0, 1):
        request = move(("t", number, (1,)))
        assert client.service.accept(Call("AlterPartitionReassignments", request, ANONYMOUS), answers.append) is None
        ends.append(client.cluster.quorum.end_offset)
    await client.cluster.controller.leader_changed(client.cluster.quorum.epoch + 1, 3001, {})
    assert [answer.header.metadata_offset for answer in answers] == ends


async def test_progress_is_taken_from_brokers_of_this_registration_by_the_active_controller(client: Client) -> None:
    await client.cluster.create("t", (0,))
    await client.call("AlterPartitionReassignments", move(("t", 0, (1,))))
    topic_id = client.cluster.controller.newest.image.topics.by_name["t"]
    epoch = client.cluster.broker(1).epoch

    async def report(broker_epoch: int) -> int:
        report = MoveProgressRequest(1, broker_epoch, (MoveProgress(topic_id, 0, 10, 90, 30.0),))
        return (await client.peer(Api.MOVE_PROGRESS, report, MoveProgressResponse)).error

    assert await report(epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert await report(epoch) == 0
    listed = await client.call("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
    [shown] = listed.topics[0].partitions
    assert (shown.bytes_done, shown.bytes_left, shown.eta_ms) == (10, 90, 3000)
    code, text = await client.peer(Api.MOVE_PROGRESS, b"no message", MoveProgressResponse)
    assert (code, "MoveProgress" in text) == (ErrorCode.INVALID_REQUEST, True)
    await client.cluster.lose_leadership(survives=True)
    assert await report(epoch) == ErrorCode.NOT_CONTROLLER
    stale = await client.call("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
    assert (stale.has_progress, stale.topics[0].partitions[0].bytes_left) == (False, -1)


async def test_names_of_an_older_deletion_are_entries(client: Client) -> None:
    for name in ("a", "b"):
        await client.cluster.create(name, (0,))
    response = await client.call("DeleteTopics", pb.DeleteTopicsRequest(topic_names=["a", "no-such"]), api_version=4)
    assert [(result.name, result.error_code) for result in response.responses] == [("a", 0), ("no-such", 3)]
    assert list(client.cluster.controller.committed.image.topics.by_name) == ["b"]


async def test_elections_and_new_partitions_have_a_door(client: Client) -> None:
    await client.cluster.create("t", (0, 1))
    asked = pb.ElectLeadersRequest(topic_partitions=pb.ElectLeadersTopics(values=[{"topic": "t", "partitions": [0]}]))  # type: ignore[list-item]
    (result,) = (await client.call("ElectLeaders", asked)).replica_election_results
    assert [(entry.partition_id, entry.error_code) for entry in result.partition_result] == [(0, 84)]
    nothing = pb.ElectLeadersRequest(topic_partitions=pb.ElectLeadersTopics())
    assert not (await client.call("ElectLeaders", nothing, timeout_ms=-1)).header.error_code
    late = await client.call("ElectLeaders", asked, timeout_ms=0)
    assert late.header.error_code == late.replica_election_results[0].partition_result[0].error_code == 7
    growth = pb.CreatePartitionsRequest(topics=[pb.CreatePartitionsTopic(name="t", count=2)])
    assert [entry.error_code for entry in (await client.call("CreatePartitions", growth)).results] == [0]
    assert [entry.error_code for entry in (await client.call("CreatePartitions", growth, timeout_ms=0)).results] == [7]
    assert (await client.call("DeleteRecords", pb.DeleteRecordsRequest())).header.error_code == 114


async def test_an_empty_list_requests_all_topics_where_kafka_does(client: Client) -> None:
    await client.call("CreateTopics", creation())

    async def topics_of(request: Any, **header: Any) -> list[str]:
        return [topic.name for topic in (await client.call(API_OF[type(request)], request, **header)).topics]

    assert await topics_of(pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames())) == ["t"]


async def test_the_event_loop_goes_on_during_a_long_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.call("CreateTopics", creation())
    monkeypatch.setattr(description, "LONG_FROM_PARTITIONS", 1)
    applied = client.cluster.controller.applied_offset
    loop, may_end = threading.get_ident(), threading.Event()
    threads: list[int] = []

    def describe(*arguments: Any) -> pb.DescribeTopicPartitionsResponse:
        assert may_end.wait(10)
        threads.append(threading.get_ident())
        return original(*arguments)

    original, request = description.describe, pb.DescribeTopicPartitionsRequest()
    monkeypatch.setattr(description, "describe", describe)
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await client.service.dispatch(Call("DescribeTopicPartitions", request, ANONYMOUS)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await client.call("CreateTopics", creation("later"))
        may_end.set()
    (answer,) = answers
    assert loop not in threads
    # The answer may be newer than its offset, but never older.
    assert answer.header.metadata_offset == applied < client.cluster.controller.applied_offset
    assert "t" in [topic.name for topic in answer.topics]


async def test_a_request_for_little_is_answered_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.call("CreateTopics", creation())
    monkeypatch.setattr(description, "LONG_FROM_PARTITIONS", 2)
    monkeypatch.setattr(trio.to_thread, "run_sync", None)
    assert len((await client.call("DescribeTopicPartitions", pb.DescribeTopicPartitionsRequest())).topics) == 1


async def test_a_long_listing_of_moves_runs_on_a_thread(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.call("CreateTopics", creation())
    (leader,) = client.cluster.partition("t").replicas
    await client.call("AlterPartitionReassignments", move(("t", 0, ((leader + 1) % 3,))))
    threads: list[int] = []

    def counted(*arguments: Any) -> pb.ListPartitionReassignmentsResponse:
        threads.append(threading.get_ident())
        return listing(*arguments)

    monkeypatch.setattr("kraftlab.controller.api.apis.listing", counted)
    everything = pb.ListPartitionReassignmentsRequest()
    nothing = pb.ListPartitionReassignmentsRequest(topics=pb.ListReassignmentsTopics())
    for limit in (2, 1):
        monkeypatch.setattr("kraftlab.controller.reassignment.listing.LONG_FROM_MOVES", limit)
        for request, count in ((everything, 1), (nothing, 0)):
            assert len((await client.call("ListPartitionReassignments", request)).topics) == count
    loop = threading.get_ident()
    assert [thread == loop for thread in threads] == [True, True, False, True]


async def test_loggers_of_another_cluster_are_left_alone(client: Client) -> None:
    change = pb.AlterableConfig(name="kraftlab.test.service", config_operation=0, value="DEBUG")
    resource = pb.AlterConfigsResource(resource_type=8, resource_name="3000", configs=[change])
    request = pb.IncrementalAlterConfigsRequest(resources=[resource])
    response = await client.call("IncrementalAlterConfigs", request, cluster_id="other")
    assert response.header.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert logging.getLogger("kraftlab.test.service").level == logging.NOTSET


def test_threads_compute_what_has_very_many_entries_and_sees_no_changes() -> None:
    many = pb.CreateAclsRequest(creations=[pb.AclCreation(resource_name=f"t{number}") for number in range(10_000)])
    assert HANDLERS["CreateAcls"].takes_long(EMPTY_STATE, many)
    assert not HANDLERS["CreateAcls"].takes_long(EMPTY_STATE, pb.CreateAclsRequest(creations=many.creations[:10]))
    padded = pb.DescribeClusterRequest(header=pb.RequestHeader(cluster_id="x" * 100_000))
    assert not HANDLERS["DescribeCluster"].takes_long(EMPTY_STATE, padded)
