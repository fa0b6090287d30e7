"""The log is read from the leader; without a leader the cluster is unreachable."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client.errors import ClusterUnreachable
from kraftlab.client.metadata_log import MetadataLog
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.errors import ErrorCode as QuorumError
from kraftlab.quorum.core.messages import (
    API_OF,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    Records,
)
from kraftlab.quorum.core.types import OffsetAndEpoch

if TYPE_CHECKING:
    from .conftest import FakeCluster


def refused(cluster: FakeCluster, code: ErrorCode) -> None:
    header = pb.ResponseHeader(error_code=code.value, error_message="connection refused")
    cluster.nodes[0].answers["DescribeQuorum"] = lambda _: pb.DescribeQuorumResponse(header=header)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE])
def test_a_request_that_a_broker_cannot_forward_is_unreachable(cluster: FakeCluster, code: ErrorCode) -> None:
    refused(cluster, code)
    with MetadataLog(cluster.nodes[0].server, timeout_ms=300) as log:
        with pytest.raises(ClusterUnreachable, match="connection refused"):
            log.state()
        with pytest.raises(ClusterUnreachable):
            _ = log.cluster_id


def test_a_refusal_is_one(cluster: FakeCluster) -> None:
    refused(cluster, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with MetadataLog(cluster.nodes[0].server, timeout_ms=300) as log, pytest.raises(ApiError):
        log.state()


def says_nothing(door: socket.socket) -> None:
    """A leader that hangs: the kernel accepts its connections."""


def says_nonsense(door: socket.socket) -> None:
    def answer() -> None:
        connected, _ = door.accept()
        connected.recv(65536)
        connected.sendall(bytes(64))

    threading.Thread(target=answer, daemon=True).start()


@pytest.mark.parametrize("behave", [says_nothing, says_nonsense])
def test_a_leader_that_does_not_answer_is_given_up_for_the_next_one(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, behave: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr("kraftlab.client.metadata_log._ATTEMPT_TIMEOUT_S", 0.1)
    node = cluster.nodes[0]
    node.peer_answers[API_OF[FetchRequest]] = lambda _: FetchResponse(QuorumError.NONE, LeaderView(2, 1), 7, 0, 0, Records(b"x"))
    with socket.create_server(("127.0.0.1", 0)) as door:
        behave(door)
        ports = iter([door.getsockname()[1]])

        def describe(_: pb.DescribeQuorumRequest) -> pb.DescribeQuorumResponse:
            at = pb.QuorumEndpoint(name="CONTROLLER", host="127.0.0.1", port=next(ports, node.peer_port))
            cluster_id = node.peer_server.identity.cluster_id
            voter = pb.QuorumReplica(replica_id=1, endpoints=[at])
            return pb.DescribeQuorumResponse(cluster_id=cluster_id, leader_id=1, current_voters=[voter])

        node.answers["DescribeQuorum"] = describe
        with MetadataLog(node.server, timeout_ms=10_000) as log:
            assert log.fetch(OffsetAndEpoch(0, 0)).data == b"x"


@pytest.mark.parametrize("other", [b"ABCD", b"A"])
def test_a_snapshot_is_all_of_one_leader(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, other: bytes) -> None:
    """Another's file of the same snapshot may have other bytes, and fewer of them."""
    snapshot, leader = OffsetAndEpoch(7, 1), 0

    def describe(_: pb.DescribeQuorumRequest) -> pb.DescribeQuorumResponse:
        voters = [
            pb.QuorumReplica(
                replica_id=number, endpoints=[pb.QuorumEndpoint(name="CONTROLLER", host="127.0.0.1", port=node.peer_port)]
            )
            for number, node in enumerate(cluster.nodes)
        ]
        cluster_id = cluster.nodes[0].peer_server.identity.cluster_id
        return pb.DescribeQuorumResponse(cluster_id=cluster_id, leader_id=leader, current_voters=voters)

    def server_of(number: int, data: bytes) -> Callable[[bytes], FetchSnapshotResponse]:
        def answer(body: bytes) -> FetchSnapshotResponse:
            nonlocal leader
            at = msgspec.msgpack.decode(body, type=FetchSnapshotRequest).position
            view = LeaderView(1, leader)
            if number != leader:
                return FetchSnapshotResponse(QuorumError.NOT_LEADER_OR_FOLLOWER, view, snapshot, -1, at, b"")
            if at >= len(data):
                return FetchSnapshotResponse(QuorumError.POSITION_OUT_OF_RANGE, view, snapshot, -1, at, b"")
            leader = 1 if at else leader  # the first one leads no more when it has given two parts
            return FetchSnapshotResponse(QuorumError.NONE, view, snapshot, len(data), at, data[at : at + 1])

        return answer

    for number, data in enumerate((b"abcd", other)):
        cluster.nodes[number].answers["DescribeQuorum"] = describe
        cluster.nodes[number].peer_answers[API_OF[FetchSnapshotRequest]] = server_of(number, data)
    with MetadataLog(cluster.nodes[0].server, timeout_ms=10_000) as log:
        assert b"".join(log.snapshot(snapshot)) == other


def test_a_leader_that_is_looked_for_again_gets_no_more_time_than_the_call_has_left(cluster: FakeCluster) -> None:
    node = cluster.nodes[0]
    answers = [
        FetchResponse(QuorumError.NOT_LEADER_OR_FOLLOWER, LeaderView(2, 1), 0, 0, 0, Records(b"")),
        FetchResponse(QuorumError.NONE, LeaderView(2, 1), 7, 0, 0, Records(b"x")),
    ]
    node.peer_answers[API_OF[FetchRequest]] = lambda _: answers.pop(0)
    at = pb.QuorumEndpoint(name="CONTROLLER", host="127.0.0.1", port=node.peer_port)
    voter = pb.QuorumReplica(replica_id=1, endpoints=[at])
    cluster_id = node.peer_server.identity.cluster_id
    node.answers["DescribeQuorum"] = lambda _: pb.DescribeQuorumResponse(
        cluster_id=cluster_id, leader_id=1, current_voters=[voter]
    )
    with MetadataLog(node.server, timeout_ms=5_000) as log:
        assert log.fetch(OffsetAndEpoch(0, 0)).data == b"x"
    asked = [call.request.header.timeout_ms for call in node.calls if call.api == "DescribeQuorum"]
    assert asked[1] <= 4_950, "the pause before it is over"
