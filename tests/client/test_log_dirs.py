"""Questions about log directories to all brokers: in parallel, with one deadline, and silent brokers named."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.log_dirs import LogDirFilter
from kraftlab.client.results import LogDirMove, LogDirReplica, ReplicaLogDirs


def answer(broker_id: int) -> pb.DescribeLogDirsResponse:
    """t-0 moves from /a to /b, at a limit of 100; t-1 is filled from its leader; t-2 rests."""
    response = pb.DescribeLogDirsResponse(broker_id=broker_id, move_limit=100)
    first = response.results.add(log_dir="/a").topics.add(name="t")
    first.partitions.add(partition_index=0, offset_lag=0, bytes_left=-1, bytes_per_second=-1, started_ms=-1)
    first.partitions.add(partition_index=1, offset_lag=3, bytes_left=300, bytes_per_second=150.0, started_ms=7)
    first.partitions.add(partition_index=2, offset_lag=0, bytes_left=-1, bytes_per_second=-1, started_ms=-1)
    second = response.results.add(log_dir="/b").topics.add(name="t")
    second.partitions.add(partition_index=0, offset_lag=9, is_future_key=True, bytes_left=50, bytes_per_second=80.0, started_ms=5)
    second.partitions[0].source_log_dir = "/a"
    return response


@pytest.fixture
def brokers(cluster: Any) -> Any:
    """Brokers 0 and 1, which lead themselves, so that they answer."""
    cluster.describe()
    for broker_id, node in enumerate(cluster.nodes[:2]):
        node.is_reader = True
        node.answers["DescribeLogDirs"] = lambda _, broker_id=broker_id: answer(broker_id)
    return cluster


def test_replicas_that_are_filled_anywhere_have_their_source_and_time_to_go(brokers: Any) -> None:
    with AdminClient(brokers.nodes[0].server) as client:
        found = client.log_dir_moves()
    assert [
        (move.broker_id, move.replica.partition_index, move.replica.source_log_dir, move.log_dir) for move in found.moves
    ] == [
        (0, 0, "/a", "/b"),
        (0, 1, None, "/a"),
        (1, 0, "/a", "/b"),
        (1, 1, None, "/a"),
    ]
    assert [move.eta_ms for move in found.moves[:2]] == [500, 2000], "the first has a limit of 100 bytes per second"
    assert found.silent == {}
    [request] = [call.request for call in brokers.nodes[1].calls if call.api == "DescribeLogDirs"]
    assert request.only_filling and not request.HasField("topics")


def test_a_broker_that_is_silent_is_named_and_holds_nothing_up(brokers: Any) -> None:
    brokers.nodes[1].last_words = 0
    with AdminClient(brokers.nodes[0].server) as client:
        asked_at = time.monotonic()
        found = client.log_dir_moves(timeout_ms=400)
        assert time.monotonic() - asked_at < 5
    assert {move.broker_id for move in found.moves} == {0}
    assert list(found.silent) == [1] and "DescribeLogDirs" in found.silent[1]


def test_a_broker_that_is_down_or_unknown_is_named(brokers: Any) -> None:
    with AdminClient(brokers.nodes[0].server) as client:
        client.describe_cluster()
        brokers.stop_node(brokers.nodes[1])
        found = client.all_log_dirs(brokers=[0, 1, 7], timeout_ms=2_000)
    assert list(found.brokers) == [0] and list(found.silent) == [1, 7]
    assert found.silent[7] == "broker 7 is not registered; registered brokers: 0,1"
    assert found.brokers[0].move_limit == 100


def test_the_directories_of_replicas_are_described(brokers: Any) -> None:
    replicas = [("t", 0, 0), ("t", 1, 1), ("u", 0, 1)]
    with AdminClient(brokers.nodes[0].server) as client:
        found = client.replica_log_dirs(replicas)
    assert found.replicas == {
        ("t", 0, 0): ReplicaLogDirs("/a", 0, "/b", 9),
        ("t", 1, 1): ReplicaLogDirs("/a", 3),
        ("u", 0, 1): ReplicaLogDirs(),
    }
    [request] = [call.request for call in brokers.nodes[1].calls if call.api == "DescribeLogDirs"]
    assert {topic.topic: list(topic.partitions) for topic in request.topics.values} == {"t": [0, 1], "u": [0]}


def test_a_filter_is_the_brokers_work() -> None:
    request = LogDirFilter(topics=["t"], partitions=[("u", 3), ("u", 4)], log_dirs=["/a"]).request()
    named = {topic.topic: (topic.all_partitions, list(topic.partitions)) for topic in request.topics.values}
    assert named == {"t": (True, []), "u": (False, [3, 4])}
    assert list(request.log_dirs) == ["/a"]
    assert LogDirFilter(topics=[]).request().HasField("topics"), "no topic at all"


@pytest.mark.parametrize(
    ("left", "rate", "error", "limit", "shared", "eta_ms"),
    [
        (100, 50.0, "", None, 0, 2000),
        (100, 0.0, "", None, 0, None),
        (None, None, "", None, 0, None),
        (0, 0.0, "", 10, 500, 0),
        (100, 900.0, "", 20, 300, 15_000),
        (100, 900.0, "", 0, 300, None),
        (100, 50.0, "disk full", None, 0, None),
    ],
)
def test_the_time_to_go(
    left: int | None, rate: float | None, error: str, limit: int | None, shared: int, eta_ms: int | None
) -> None:
    replica = LogDirReplica("t", 0, 1, 2, True, left, rate, 3, error, 4, "/a")
    assert LogDirMove(0, "/b", replica, limit, shared).eta_ms == eta_ms
