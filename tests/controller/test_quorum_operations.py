"""Changes of the voter set and of the leader, through the admin API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.errors import ErrorCode as QuorumError
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import from_text, to_text
from kraftlab.controller.quorum_operations import QuorumOperations
from kraftlab.metadata.image import EMPTY
from kraftlab.quorum.core.messages import (
    AddVoterRequest,
    LeaderView,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from kraftlab.quorum.core.types import Voter
from kraftlab.quorum.driver.quorum_description import QuorumDescription, ReplicaDescription

DIRECTORY = "GDAXWlNIRRKoB5wdxbZcYg"
KEY = ReplicaKey(3003, from_text(DIRECTORY))
ENDPOINTS = {"CONTROLLER": Endpoint("127.0.0.1", 19093)}
LISTENERS = [pb.QuorumEndpoint(name="CONTROLLER", host="127.0.0.1", port=19093)]


class Quorum:
    """Gives prepared answers, and keeps the requests."""

    def __init__(self) -> None:
        self.generation = 2
        self.asked: list[VoterChangeRequest] = []
        self.answer = VoterChangeResponse(QuorumError.NONE, LeaderView(1, 3000))
        voters = [ReplicaDescription(3003, KEY.directory_id, 10, 1, 1, ENDPOINTS)]
        self.description = QuorumDescription(3000, 3000, 1, 10, voters, [], 1, 7, 4, 10)

    async def ask(self, request: VoterChangeRequest) -> VoterChangeResponse:
        self.asked.append(request)
        return self.answer

    def describe(self) -> QuorumDescription:
        return self.description


@pytest.fixture
def quorum() -> Quorum:
    return Quorum()


@pytest.fixture
def operations(quorum: Quorum) -> QuorumOperations:
    return QuorumOperations("lab", quorum, lambda: EMPTY)


def header(timeout_ms: int = 2000) -> pb.RequestHeader:
    return pb.RequestHeader(timeout_ms=timeout_ms)


def add(**changes: Any) -> pb.AddRaftVoterRequest:
    fields = {"header": header(), "voter_id": 3003, "voter_directory_id": DIRECTORY, "listeners": LISTENERS}
    return pb.AddRaftVoterRequest(**{**fields, **changes})


async def test_a_request_becomes_the_quorums_own(operations: QuorumOperations, quorum: Quorum) -> None:
    await operations.add_voter(add())
    await operations.remove_voter(pb.RemoveRaftVoterRequest(header=header(), voter_id=3003, voter_directory_id=DIRECTORY))
    await operations.transfer_leadership(
        pb.TransferLeadershipRequest(header=header(), voter_id=3003, voter_directory_id=DIRECTORY)
    )
    assert quorum.asked == [
        AddVoterRequest(-1, Voter(KEY, ENDPOINTS), 1600),
        RemoveVoterRequest(-1, KEY, 1600),
        TransferLeadershipRequest(-1, KEY, 1600),
    ], "the quorum gets less time than the caller waits, to say what was in the way"


async def test_leadership_goes_to_the_voter_with_an_id(operations: QuorumOperations, quorum: Quorum) -> None:
    await operations.transfer_leadership(pb.TransferLeadershipRequest(header=header(), voter_id=3003))
    assert quorum.asked == [TransferLeadershipRequest(-1, KEY, 1600)]
    with pytest.raises(ApiError, match=r"VOTER_NOT_FOUND\(127\): Controller 3009 is not a voter; voters are 3003\."):
        await operations.transfer_leadership(pb.TransferLeadershipRequest(header=header(), voter_id=3009))


async def test_an_answer_comes_back_with_its_code_and_text(operations: QuorumOperations, quorum: Quorum) -> None:
    quorum.answer = VoterChangeResponse(QuorumError.DUPLICATE_VOTER, LeaderView(1, 3000), "n3003 is in it")
    with pytest.raises(ApiError) as raised:
        await operations.add_voter(add())
    assert (raised.value.code, raised.value.message) == (ErrorCode.DUPLICATE_VOTER, "n3003 is in it")


async def test_a_change_is_not_repeated_after_the_leadership_is_lost(operations: QuorumOperations, quorum: Quorum) -> None:
    quorum.answer = VoterChangeResponse(QuorumError.NOT_LEADER_OR_FOLLOWER, LeaderView(2, 3001), "it may still be committed")
    with pytest.raises(ApiError, match=r"NOT_LEADER_OR_FOLLOWER\(6\): it may still be committed"):
        await operations.add_voter(add())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"listeners": []},
            "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the default listener "
            "ListenerName(CONTROLLER)",
        ),
        (
            {"listeners": [pb.QuorumEndpoint(name="GRPC", host="h", port=1)]},
            "Add voter request didn't include the endpoint (Endpoints(endpoints={GRPC=h:1})) for the default listener "
            "ListenerName(CONTROLLER)",
        ),
        ({"listeners": LISTENERS * 2}, "Add voter request names the listener CONTROLLER twice"),
        (
            {"listeners": [pb.QuorumEndpoint(name="CONTROLLER", host="", port=1)]},
            "Add voter request has '', port 1, for the listener CONTROLLER; give it a host and a port from 1 to 65535",
        ),
        (
            {"listeners": [pb.QuorumEndpoint(name="CONTROLLER", host="h", port=65536)]},
            "Add voter request has 'h', port 65536, for the listener CONTROLLER; give it a host and a port from 1 to 65535",
        ),
        ({"voter_id": -1}, "Add voter request didn't include a valid voter"),
        ({"voter_directory_id": "AAAAAAAAAAAAAAAAAAAAAA"}, "Add voter request didn't include a valid voter"),
        ({"voter_directory_id": "?"}, "Add voter request: '?' is not an id of 22 base64url characters"),
    ],
)
async def test_an_invalid_voter_is_refused_before_the_quorum_is_asked(
    operations: QuorumOperations, quorum: Quorum, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ApiError) as raised:
        await operations.add_voter(add(**changes))
    assert (raised.value.code, raised.value.message) == (ErrorCode.INVALID_REQUEST, message)
    assert not quorum.asked


async def test_a_removal_without_a_voter_is_refused(operations: QuorumOperations) -> None:
    with pytest.raises(ApiError, match="Remove voter request didn't include a valid voter"):
        await operations.remove_voter(pb.RemoveRaftVoterRequest(voter_id=-1, voter_directory_id=DIRECTORY))


async def test_a_request_that_is_too_late_is_not_begun(operations: QuorumOperations, quorum: Quorum) -> None:
    with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
        await operations.add_voter(add(header=header(0)))
    assert not quorum.asked


@pytest.mark.parametrize("operation", ["add", "remove"])
async def test_a_change_of_another_clusters_voters_is_refused_before_anything_else(
    operations: QuorumOperations, quorum: Quorum, operation: str
) -> None:
    with pytest.raises(ApiError) as raised:
        if operation == "add":
            await operations.add_voter(add(cluster_id="other", listeners=[]))
        else:
            await operations.remove_voter(pb.RemoveRaftVoterRequest(cluster_id="other", voter_id=-1))
    assert raised.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert raised.value.message == 'The given id "other" doesn\'t match the cluster id "lab"'
    await operations.add_voter(add(cluster_id="lab", ack_when_committed=False))
    assert len(quorum.asked) == 1


def asking(*topics: tuple[str, list[int]]) -> pb.DescribeQuorumRequest:
    request = pb.DescribeQuorumRequest()
    for name, partitions in topics:
        topic = request.topics.add(topic_name=name)
        for number in partitions:
            topic.partitions.add(partition_index=number)
    return request


def of_node(description: QuorumDescription, node_id: int) -> QuorumDescription:
    return msgspec.structs.replace(description, node_id=node_id)


async def test_a_request_for_the_metadata_log_gets_the_quorum_with_empty_messages(operations: QuorumOperations) -> None:
    described = await operations.describe(asking(("__cluster_metadata", [0])))
    assert described.header.HasField("error_message") and described.header.error_message == ""
    ((partition,),) = [topic.partitions for topic in described.topics]
    assert (partition.partition_index, partition.error_code, partition.error_message) == (0, 0, "")
    assert partition.HasField("error_message")
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (3000, 1, 10)
    assert [voter.replica_id for voter in partition.current_voters] == [3003]
    assert [(node.node_id, [(at.name, at.port) for at in node.listeners]) for node in described.nodes] == [
        (3003, [("CONTROLLER", 19093)])
    ]
    assert (described.generation, described.leader_id) == (2, 3000), "the fields of its own are there as well"


@pytest.mark.parametrize(
    "topics",
    [
        [("other", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [])],
        [("__cluster_metadata", [0]), ("other", [0, 3])],
    ],
)
async def test_anything_besides_the_metadata_log_makes_every_partition_unknown(
    operations: QuorumOperations, topics: list[tuple[str, list[int]]]
) -> None:
    described = await operations.describe(asking(*topics))
    answers = [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in described.topics]
    assert answers == topics
    assert {part.error_code for topic in described.topics for part in topic.partitions} <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert described.header.error_code == ErrorCode.NONE


async def test_a_node_that_does_not_lead_answers_with_an_error_at_the_partition(
    operations: QuorumOperations, quorum: Quorum
) -> None:
    quorum.description = of_node(quorum.description, 3001)
    described = await operations.describe(asking(("__cluster_metadata", [0])))
    ((partition,),) = [topic.partitions for topic in described.topics]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.error_message == (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
    )


async def test_a_request_without_topics_has_an_empty_message_too(operations: QuorumOperations) -> None:
    described = await operations.describe(pb.DescribeQuorumRequest())
    assert described.header.HasField("error_message") and described.header.error_message == ""


async def test_voters_are_described_with_directory_ids_and_endpoints(operations: QuorumOperations) -> None:
    described = await operations.describe(pb.DescribeQuorumRequest())
    assert (described.generation, described.kraft_version, described.voters_offset, described.log_start_offset) == (2, 1, 7, 4)
    (voter,) = described.current_voters
    assert (voter.replica_id, voter.replica_directory_id) == (3003, to_text(KEY.directory_id))
    assert [(at.name, at.host, at.port) for at in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 19093)]
