"""Admin calls on a broker: its own are answered here, the others by the active controller, wherever that is by then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.api.admin_service import AdminService
from kraftlab.broker.api.forwarding import OutcomeUnknown
from kraftlab.broker.control.controller_channel import NoController
from kraftlab.broker.control.metadata_publisher import MetadataPublisher
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.gateway.client_codec import encode_request
from kraftlab.gateway.codec import KafkaRequest, decode_request
from kraftlab.messages.generated.delete_topics_request import DeleteTopicsRequest
from kraftlab.messages.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kraftlab.messages.generated.describe_log_dirs_request import DescribeLogDirsRequest
from kraftlab.messages.generated.elect_leaders_request import ElectLeadersRequest
from kraftlab.metadata.peer_rpc import EnvelopeRequest, EnvelopeResponse, ForwardingBroker
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import CALLS
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call
from kraftlab.wire.frames import FrameError
from kraftlab.wire.transport import PeerTimeout, PeerUnreachable

Answer = EnvelopeResponse | Exception


class Channel:
    """Gives the answers it was told to, one for each attempt, the last one for ever."""

    controller_id = 3001

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.passed_on: list[EnvelopeRequest] = []

    async def pass_on(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        await trio.sleep(0.01)
        self.passed_on.append(msgspec.msgpack.decode(body, type=EnvelopeRequest))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return msgspec.msgpack.encode(answer)

    async def wait_for_change(self, timeout_s: float) -> None:
        await trio.sleep(timeout_s)


def service_on(channel: Channel, handler: Callable[[Message], Any] | None = None) -> AdminService:
    async def local(message: Message) -> Message:
        return admin_pb2.DescribeLogDirsResponse(broker_id=3)

    return AdminService("cluster", channel, MetadataPublisher((), lambda: None), {"DescribeLogDirs": handler or local})


def done(offset: int = 42) -> EnvelopeResponse:
    header = admin_pb2.ResponseHeader(metadata_offset=offset, leader_id=3001)
    return EnvelopeResponse(0, None, admin_pb2.CreateTopicsResponse(header=header).SerializeToString())


def create(timeout_ms: int = 1000) -> Call:
    header = admin_pb2.RequestHeader(timeout_ms=timeout_ms)
    return Call("CreateTopics", admin_pb2.CreateTopicsRequest(header=header, validate_only=True), "User:alice")


async def test_a_call_is_passed_on_and_the_controllers_answer_given_unchanged(autojump_clock: Any) -> None:
    channel = Channel(done())
    response: Any = await service_on(channel).dispatch(create())
    assert (response.header.metadata_offset, response.header.leader_id) == (42, 3001)
    [envelope] = channel.passed_on
    assert (envelope.api, envelope.principal) == ("CreateTopics", "User:alice")
    assert admin_pb2.CreateTopicsRequest.FromString(envelope.request).validate_only


async def test_the_controller_is_looked_for_until_the_deadline(autojump_clock: Any) -> None:
    moved = EnvelopeResponse(ErrorCode.NOT_CONTROLLER, "node 3000 is not the active controller")
    channel = Channel(moved, NoController("nobody"), PeerUnreachable("refused", refused=True), done())
    response: Any = await service_on(channel).dispatch(create())
    assert response.header.metadata_offset == 42
    response = await service_on(Channel(moved)).dispatch(create(500))
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "node 3000 is not the active controller" in response.header.error_message


async def test_an_error_of_the_controller_that_no_table_knows_is_passed_back(autojump_clock: Any) -> None:
    response: Any = await service_on(Channel(EnvelopeResponse(777))).dispatch(create())
    assert (response.header.error_code, response.header.error_message) == (-1, "the controller answered UNKNOWN(777)")


async def test_a_controller_lost_in_the_middle_is_asked_again_only_if_that_is_harmless(autojump_clock: Any) -> None:
    lost = PeerUnreachable("the connection to 127.0.0.1:9 was lost")
    response: Any = await service_on(Channel(lost, done())).dispatch(create())
    assert response.header.error_code == ErrorCode.NETWORK_EXCEPTION
    assert "unknown" in response.header.error_message
    listing = Call("ListPartitionReassignments", admin_pb2.ListPartitionReassignmentsRequest(), "User:alice")
    channel = Channel(lost, EnvelopeResponse(0, None, b""))
    response = await service_on(channel).dispatch(listing)
    assert response.header.error_code == ErrorCode.NONE
    assert len(channel.passed_on) == 2


async def test_a_controller_lost_in_the_middle_is_asked_again_for_a_write_with_an_id(autojump_clock: Any) -> None:
    channel = Channel(PeerUnreachable("the connection to 127.0.0.1:9 was lost"), done())
    call = create()
    request: Any = call.request
    request.validate_only = False
    request.header.request_id.CopyFrom(admin_pb2.RequestId(client_id=bytes(16), sequence=3))
    response: Any = await service_on(channel).dispatch(call)
    assert response.header.metadata_offset == 42
    sent = [admin_pb2.CreateTopicsRequest.FromString(envelope.request).header.request_id for envelope in channel.passed_on]
    assert sent == [request.header.request_id] * 2


async def test_a_controller_that_does_not_answer_in_time_is_a_timeout(autojump_clock: Any) -> None:
    response: Any = await service_on(Channel(PeerTimeout("no answer"))).dispatch(create())
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_change_that_may_have_arrived_has_an_unknown_outcome(autojump_clock: Any) -> None:
    refused = EnvelopeResponse(ErrorCode.NOT_CONTROLLER, "moved")
    lost = EnvelopeResponse(ErrorCode.NOT_CONTROLLER, "lost", outcome_unknown=True)
    for channel, is_unknown in (
        (Channel(PeerTimeout("no answer")), True),
        (Channel(lost, refused), True),
        (Channel(refused), False),
        (Channel(NoController("nobody")), False),
        (Channel(PeerUnreachable("refused", refused=True)), False),
    ):
        named = create(200)
        named.request.validate_only = False
        named.request.header.request_id.client_id = bytes(16)
        response: Any = await service_on(channel).dispatch(named)
        assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert response.header.outcome_unknown is is_unknown
    listing = Call(
        "ListPartitionReassignments",
        admin_pb2.ListPartitionReassignmentsRequest(header=admin_pb2.RequestHeader(timeout_ms=200)),
        "User:alice",
    )
    response = await service_on(Channel(PeerTimeout("no answer"))).dispatch(listing)
    assert not response.header.outcome_unknown, "a read changes nothing"


@pytest.mark.parametrize("lost", ["the connection", "the leadership"])
@pytest.mark.parametrize("api", ["CreateTopics", "AlterPartitionReassignments", "DeleteAcls"])
async def test_a_change_without_an_id_that_may_be_made_is_not_asked_for_again(api: str, lost: str, autojump_clock: Any) -> None:
    """The second answer would be that the topic exists, that nothing moves, that there is no such rule."""
    method = METHODS[api]
    call = Call(api, method.request(header=admin_pb2.RequestHeader(timeout_ms=1000)), "User:alice")
    gone = EnvelopeResponse(ErrorCode.NOT_CONTROLLER, "the leadership", outcome_unknown=True)
    channel = Channel(PeerUnreachable("the connection") if lost == "the connection" else gone, done())
    response: Any = await service_on(channel).dispatch(call)
    assert response.header.error_code == ErrorCode.NETWORK_EXCEPTION
    assert response.header.error_message == f"{lost}; whether {api} was carried out is unknown"
    assert response.header.outcome_unknown
    assert len(channel.passed_on) == 1


async def test_a_call_that_is_too_large_to_be_passed_on_is_refused_with_its_size(autojump_clock: Any) -> None:
    channel = Channel(FrameError("a frame of 20000000 bytes is over the limit of 16777216; send less at once"))
    response: Any = await service_on(channel).dispatch(create())
    assert response.header.error_code == ErrorCode.INVALID_REQUEST
    assert response.header.error_message == (
        "Not carried out, since it cannot be passed on: a frame of 20000000 bytes is over the limit of 16777216; "
        "send less at once, or send it to a controller."
    )
    assert len(channel.passed_on) == 1


async def test_the_brokers_own_calls_are_answered_here(autojump_clock: Any) -> None:
    channel = Channel(done())
    response: Any = await service_on(channel).dispatch(Call("DescribeLogDirs", admin_pb2.DescribeLogDirsRequest(), "User:alice"))
    assert response.broker_id == 3
    assert not channel.passed_on


async def test_a_linearizable_read_is_passed_on_to_the_active_controller(autojump_clock: Any) -> None:
    header = admin_pb2.RequestHeader(read_mode=admin_pb2.READ_MODE_LINEARIZABLE)
    channel = Channel(done())
    call = Call("DescribeTopicPartitions", admin_pb2.DescribeTopicPartitionsRequest(header=header), "User:alice")
    response: Any = await service_on(channel).dispatch(call)
    assert response.header.metadata_offset == 42
    [envelope] = channel.passed_on
    passed_on = admin_pb2.DescribeTopicPartitionsRequest.FromString(envelope.request)
    assert passed_on.header.read_mode == admin_pb2.READ_MODE_LINEARIZABLE


async def test_an_answer_about_the_broker_itself_is_never_linearizable(autojump_clock: Any) -> None:
    header = admin_pb2.RequestHeader(read_mode=admin_pb2.READ_MODE_LINEARIZABLE)
    call = Call("DescribeLogDirs", admin_pb2.DescribeLogDirsRequest(header=header), "User:alice")
    response: Any = await service_on(Channel(done())).dispatch(call)
    assert response.header.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "DescribeLogDirs is about this node itself" in response.header.error_message


async def test_a_request_for_another_cluster_or_a_later_offset_is_refused_with_the_value(autojump_clock: Any) -> None:
    service = service_on(Channel(done()))
    elsewhere = admin_pb2.DescribeLogDirsRequest(header=admin_pb2.RequestHeader(cluster_id="other"))
    response: Any = await service.dispatch(Call("DescribeLogDirs", elsewhere, "User:alice"))
    assert response.header.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "other" in response.header.error_message
    later = admin_pb2.DescribeLogDirsRequest(header=admin_pb2.RequestHeader(min_offset=99, timeout_ms=100))
    response = await service.dispatch(Call("DescribeLogDirs", later, "User:alice"))
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "99" in response.header.error_message


async def test_a_call_that_is_late_is_refused_at_each_of_its_entries(autojump_clock: Any) -> None:
    request = admin_pb2.DeleteRecordsRequest(header=admin_pb2.RequestHeader(min_offset=99, timeout_ms=100))
    request.topics.add(name="t").partitions.add(partition_index=4)

    async def slow(message: Message) -> Message:
        await trio.sleep(5)
        return admin_pb2.DeleteRecordsResponse()

    service = AdminService("cluster", Channel(done()), MetadataPublisher((), lambda: None), {"DeleteRecords": slow})
    response: Any = await service.dispatch(Call("DeleteRecords", request, "User:alice"))
    assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    [entry] = response.topics[0].partitions
    assert (entry.partition_index, entry.error_code) == (4, ErrorCode.REQUEST_TIMED_OUT)


async def test_a_call_whose_deadline_is_over_from_the_start_is_passed_on_unchanged(autojump_clock: Any) -> None:
    channel = Channel(done())
    response: Any = await service_on(channel).dispatch(create(0))
    assert response.header.metadata_offset == 42
    [envelope] = channel.passed_on
    assert admin_pb2.CreateTopicsRequest.FromString(envelope.request).header.timeout_ms == 0


def describe_cluster(**fields: Any) -> Call:
    return Call("DescribeCluster", admin_pb2.DescribeClusterRequest(**fields), "User:alice")


async def test_a_broker_describes_brokers_as_a_broker_endpoint(autojump_clock: Any) -> None:
    answer = admin_pb2.DescribeClusterResponse(
        endpoint_type=1,
        brokers=[admin_pb2.DescribedBroker(broker_id=3)],
        controllers=[admin_pb2.DescribedController(controller_id=3000)],
    )
    channel = Channel(EnvelopeResponse(0, None, answer.SerializeToString()))
    service = service_on(channel)
    response: Any = await service.dispatch(describe_cluster(endpoint_type=1))
    assert (len(response.brokers), len(response.controllers), response.endpoint_type) == (1, 0, 1)
    response = await service.dispatch(describe_cluster())
    assert (len(response.brokers), len(response.controllers)) == (1, 1)
    assert not any(
        admin_pb2.DescribeClusterRequest.FromString(envelope.request).HasField("endpoint_type") for envelope in channel.passed_on
    )


async def test_a_broker_refuses_to_act_as_a_controller_endpoint(autojump_clock: Any) -> None:
    channel = Channel(done())
    response: Any = await service_on(channel).dispatch(describe_cluster(endpoint_type=2))
    assert response.header.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert (response.controller_id, channel.passed_on) == (-1, [])


async def test_loggers_are_not_changed_for_another_cluster(autojump_clock: Any) -> None:
    channel = Channel(done())
    service = AdminService("cluster", channel, MetadataPublisher((), lambda: None), {}, identity=ForwardingBroker(3, {}))
    change = admin_pb2.AlterableConfig(name="kraftlab.test.admin", config_operation=0, value="DEBUG")
    resource = admin_pb2.AlterConfigsResource(resource_type=8, resource_name="3", configs=[change])
    request = admin_pb2.IncrementalAlterConfigsRequest(resources=[resource], header=admin_pb2.RequestHeader(cluster_id="other"))
    response: Any = await service.dispatch(Call("IncrementalAlterConfigs", request, "User:alice"))
    assert response.header.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert logging.getLogger("kraftlab.test.admin").level == logging.NOTSET
    assert channel.passed_on == []


@pytest.mark.parametrize(("api", "is_open"), [("AlterReplicaLogDirs", True), ("DeleteRecords", True), ("DescribeLogDirs", False)])
async def test_an_own_change_that_began_and_did_not_end_in_time_has_an_unknown_outcome(
    autojump_clock: Any, api: str, is_open: bool
) -> None:
    async def slow(message: Message) -> Message:
        await trio.sleep(5)
        return METHODS[api].response()

    service = AdminService("cluster", Channel(done()), MetadataPublisher((), lambda: None), {api: slow})
    for min_offset, may_be_made in ((0, is_open), (99, False)):
        header = admin_pb2.RequestHeader(timeout_ms=100, min_offset=min_offset)
        response: Any = await service.dispatch(Call(api, METHODS[api].request(header=header), "User:alice"))
        assert response.header.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert response.header.outcome_unknown == may_be_made
        assert ("may have been carried out in part" in response.header.error_message) == may_be_made


# --- frames of Kafka clients ------------------------------------------------------------------------------------------------


def frame_of(key: int, version: int, body: Any) -> KafkaRequest:
    return decode_request(encode_request(9, "client", body, version)[4:])


ALICE = Caller("User:alice", "10.0.0.1", "client")
ELECTION = frame_of(43, 2, ElectLeadersRequest(timeout_ms=700))


async def test_a_frame_is_forwarded_as_it_is_with_the_time_that_is_left(autojump_clock: Any) -> None:
    channel = Channel(PeerUnreachable("refused", refused=True), EnvelopeResponse(0, None, b"answer", 42))
    answer = await service_on(channel).forward_frame(CALLS["ElectLeaders"], ELECTION, ALICE)
    assert (answer.response, answer.metadata_offset) == (b"answer", 42)
    first, second = channel.passed_on
    assert (first.api, first.principal, first.host, first.client_id) == ("ElectLeaders", "User:alice", "10.0.0.1", "client")
    assert first.is_frame and first.request == bytes(ELECTION.frame) and first.broker is None
    assert first.timeout_ms is not None and second.timeout_ms is not None
    assert 700 >= first.timeout_ms > second.timeout_ms > 0


async def test_a_frame_whose_time_is_over_keeps_its_time(autojump_clock: Any) -> None:
    channel = Channel(EnvelopeResponse(0, None, b"answer"))
    await service_on(channel).forward_frame(CALLS["ElectLeaders"], frame_of(43, 2, ElectLeadersRequest(timeout_ms=-1)), ALICE)
    assert channel.passed_on[0].timeout_ms is None


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (PeerTimeout("no answer"), OutcomeUnknown, ErrorCode.REQUEST_TIMED_OUT),
        (PeerUnreachable("refused", refused=True), ApiError, ErrorCode.REQUEST_TIMED_OUT),
        (PeerUnreachable("lost"), OutcomeUnknown, ErrorCode.NETWORK_EXCEPTION),
        (EnvelopeResponse(ErrorCode.NOT_CONTROLLER, "gone", outcome_unknown=True), OutcomeUnknown, ErrorCode.NETWORK_EXCEPTION),
        (EnvelopeResponse(ErrorCode.INVALID_REQUEST, "damaged"), ApiError, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_frame_that_is_not_answered_has_the_reason(
    answer: Answer, kind: type[ApiError], code: ErrorCode, autojump_clock: Any
) -> None:
    deletion = frame_of(20, 6, DeleteTopicsRequest(timeout_ms=300))
    with pytest.raises(ApiError) as refused:
        await service_on(Channel(answer)).forward_frame(CALLS["DeleteTopics"], deletion, ALICE)
    assert (type(refused.value), refused.value.code) == (kind, code)


def test_calls_about_this_nodes_disks_and_loggers_are_not_forwarded() -> None:
    service = service_on(Channel())
    topic, logger = DescribeConfigsResource(2, "t"), DescribeConfigsResource(8, "0")
    assert service.forwards(CALLS["DescribeConfigs"], frame_of(32, 4, DescribeConfigsRequest([topic])))
    assert not service.forwards(CALLS["DescribeConfigs"], frame_of(32, 4, DescribeConfigsRequest([topic, logger])))
    assert not service.forwards(CALLS["DescribeLogDirs"], frame_of(35, 4, DescribeLogDirsRequest()))
