"""A call that waits because the quorum is lost: it says so after its patience, and its error says so at the end."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, OutcomeUnknown, waiting
from kraftlab.client.quorum_probe import Voter, text_of
from kraftlab.client.waiting import CallTime
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)


def name_voters(cluster: Any, *, by: str = "DescribeQuorum") -> None:
    """Let node 2 name the three nodes as voters 3000 to 3002, and no node lead."""
    ports = {3000 + index: node.port for index, node in enumerate(cluster.nodes)}
    voters = [
        pb.QuorumReplica(replica_id=node_id, endpoints=[pb.QuorumEndpoint(name="GRPC", host="127.0.0.1", port=port)])
        for node_id, port in ports.items()
    ]
    controllers = [pb.DescribedController(controller_id=node_id, host="127.0.0.1", port=port) for node_id, port in ports.items()]
    answers: dict[str, Any] = {
        "DescribeQuorum": lambda _: pb.DescribeQuorumResponse(current_voters=voters),
        "DescribeCluster": lambda _: pb.DescribeClusterResponse(controllers=controllers),
        "CreateTopics": lambda _: pb.CreateTopicsResponse(header=pb.ResponseHeader(error_code=41, error_message="no leader")),
    }
    refused = pb.ResponseHeader(error_code=31)
    if by == "DescribeCluster":
        answers["DescribeQuorum"] = lambda _: pb.DescribeQuorumResponse(header=refused)
    for node in cluster.nodes:
        node.leader, node.is_reader, node.answers = None, True, answers


@pytest.mark.parametrize("by", ["DescribeQuorum", "DescribeCluster"])
def test_a_call_without_a_majority_says_so_while_it_waits_and_at_its_end(cluster: Any, by: str) -> None:
    name_voters(cluster, by=by)
    silent = [cluster.nodes[index].server for index in (0, 1)]
    for node in cluster.nodes[:2]:
        cluster.stop_node(node)
    said: list[str] = []
    survivor = cluster.nodes[2].server
    with (
        AdminClient(survivor, timeout_ms=900, on_wait=said.append) as client,
        pytest.raises(ClusterUnreachable) as raised,
    ):
        client.create_topics([pb.CreatableTopic(name="t")])
    finding = (
        f"1 of 3 voters answers: no majority (silent: 3000 at {silent[0]}, 3001 at {silent[1]}; answering: 3002 at {survivor})"
    )
    assert said == [finding]
    assert str(raised.value).startswith(f"{finding}; no node could answer CreateTopics within ")


def test_a_call_that_waits_for_another_reason_says_nothing_about_the_voters(cluster: Any) -> None:
    name_voters(cluster)
    said: list[str] = []
    with (
        AdminClient(cluster.nodes[2].server, timeout_ms=600, on_wait=said.append) as client,
        pytest.raises(ClusterUnreachable, match="no node could answer CreateTopics"),
    ):
        client.create_topics([pb.CreatableTopic(name="t")])
    assert said == []


def test_a_short_interruption_asks_nobody(cluster: Any) -> None:
    cluster.describe()
    with AdminClient(cluster.nodes[0].server, on_wait=pytest.fail) as client:
        client.describe_cluster()
    assert [call.api for call in cluster.nodes[0].calls] == ["DescribeCluster"]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            OutcomeUnknown(ErrorCode.REQUEST_TIMED_OUT, "connect to 10.0.0.9:1", 7),
            OutcomeUnknown,
            "lost; whether Api was carried out is unknown after ",
        ),
        (OutcomeUnknown(ErrorCode.REQUEST_TIMED_OUT, "connect", 7), ApiError, "lost; DescribeApi was not answered within "),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, "connect to 10.0.0.9:1"), ApiError, "lost; Api was not carried out within "),
        (ClusterUnreachable("10.0.0.9:1: refused"), ClusterUnreachable, "lost; no node could answer Api within "),
        (ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists"), ApiError, "it exists"),
    ],
)
def test_an_error_keeps_its_kind_and_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], text: str
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    api = "DescribeApi" if "DescribeApi" in text else "Api"
    with pytest.raises(kind) as raised, CallTime(api, lambda: "lost", None):
        raise error
    assert type(raised.value) is kind
    assert getattr(raised.value, "message", str(raised.value)).startswith(text)
    assert getattr(raised.value, "offset", 7) == 7


def test_a_probe_that_fails_does_not_hide_the_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise RuntimeError("the client is closed")

    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    with pytest.raises(ClusterUnreachable, match="refused"), CallTime("Api", fails, None):
        raise ClusterUnreachable("refused")


ONE, TWO, THREE = (Voter(3000 + number, Endpoint("h", number)) for number in range(3))


@pytest.mark.parametrize(
    ("voters", "answering", "text"),
    [
        (
            [ONE, TWO, THREE],
            [TWO],
            "1 of 3 voters answers: no majority (silent: 3000 at h:0, 3002 at h:2; answering: 3001 at h:1)",
        ),
        ([ONE, TWO], [TWO], "1 of 2 voters answers: no majority (silent: 3000 at h:0; answering: 3001 at h:1)"),
        ([ONE, Voter(9, None)], [], "0 of 2 voters answer: no majority (silent: 9 at an unknown address, 3000 at h:0)"),
        ([ONE], [], "0 of 1 voters answer: no majority (silent: 3000 at h:0)"),
        ([ONE, TWO, THREE], [ONE, THREE], None),
        ([ONE], [ONE], None),
        ([], [], None),
    ],
)
def test_the_finding_counts_the_voters(voters: list[Voter], answering: list[Voter], text: str | None) -> None:
    assert text_of(voters, answering) == text


def test_voters_that_answer_without_a_leader_need_no_start(cluster: Any) -> None:
    name_voters(cluster)
    nobody = pb.ResponseHeader(leader_id=-1)
    for node in cluster.nodes:
        node.answers["DescribeCluster"] = lambda _: pb.DescribeClusterResponse(header=nobody)
    with AdminClient(cluster.nodes[2].server, timeout_ms=900) as client, pytest.raises(ClusterUnreachable) as raised:
        client.create_topics([pb.CreatableTopic(name="t")])
    assert str(raised.value).startswith("3 of 3 voters answer, but none of them leads; no node could answer CreateTopics within ")
    assert "an election may still end" in str(raised.value) and "start the controllers" not in str(raised.value)
