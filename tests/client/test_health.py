"""What is wrong with a cluster, by the values that a client sees."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kraftlab.client.health import NAMED_MAX, findings
from kraftlab.client.results import AllLogDirs, Broker, BrokerLogDirs, Cluster, LogDir, Partition, Topic


def broker(broker_id: int, *, fenced: bool = False, silent_ms: int | None = None) -> Broker:
    return Broker(broker_id, "h", 1, "h", 2, None, fenced, 1, False, ("d",), (), silent_ms)


def partition(number: int, replicas: tuple[int, ...], isr: tuple[int, ...], adding: tuple[int, ...] = ()) -> Partition:
    leader = isr[0] if isr else None
    return Partition(number, leader, 1, replicas, isr, (), (), (), adding, (), (), (), 1, ())


def topic(*partitions: Partition, name: str = "orders") -> Topic:
    return Topic(name, "id", False, partitions, ())


def directory(error: int) -> LogDir:
    return LogDir("/d1", "id", error, False, None, None, (), "", (), ())


def kinds(
    *topics: Topic,
    brokers: Iterable[Broker] = (),
    leader: int | None = 3000,
    dirs: AllLogDirs | None = None,
    min_isr: int = 1,
    moves: int = 0,
) -> list[str]:
    log_dirs = dirs or AllLogDirs({}, {})
    found = findings(Cluster("c", leader, tuple(brokers), (), 7), topics, log_dirs, moves, {"orders": min_isr})
    return [each.kind for each in found]


def test_an_empty_cluster_is_healthy() -> None:
    assert kinds() == []
    assert kinds(topic(partition(0, (1, 2), (2, 1))), brokers=[broker(1, silent_ms=1900), broker(2)]) == []


def test_brokers_controllers_and_directories() -> None:
    assert kinds(leader=None) == ["no-controller"]
    assert kinds(brokers=[broker(1, fenced=True), broker(2, silent_ms=5001)]) == ["fenced-broker", "silent-broker"]
    dirs = AllLogDirs({1: BrokerLogDirs(1, (directory(0), directory(56)), None)}, {2: "no answer"})
    assert kinds(dirs=dirs) == ["unknown-directories", "offline-directory"]


def test_partitions_by_what_they_lack() -> None:
    behind = partition(0, (1, 2, 3), (1,))
    assert kinds(topic(behind)) == ["under-replicated"]
    assert kinds(topic(behind), min_isr=2) == ["below-min-isr", "under-replicated"]
    assert kinds(topic(partition(0, (1, 2), ()))) == ["no-leader", "under-replicated"]


def test_an_offline_directory_may_be_why_a_partition_lacks_something() -> None:
    dirs = AllLogDirs({1: BrokerLogDirs(1, (directory(56),), None)}, {})
    (_, found) = findings(Cluster("c", 1, (), (), 7), [topic(partition(0, (1, 2), (2,)))], dirs, 0, {})
    assert found.next_step == "bring the offline log directories back, or start the brokers of their replicas, or wait"


def test_a_replica_that_is_being_added_is_no_fault() -> None:
    assert kinds(topic(partition(0, (1, 2, 3), (1, 2), adding=(3,))), moves=1) == ["reassignments"]


@pytest.mark.parametrize(("count", "text"), [(1, "partition 0 has no leader"), (2, "partitions 0, 1 have no leader")])
def test_partitions_of_a_topic_are_one_finding(count: int, text: str) -> None:
    found = findings(
        Cluster("c", 1, (), (), 7), [topic(*(partition(n, (1,), ()) for n in range(count)))], AllLogDirs({}, {}), 0, {}
    )
    assert found[0].text == f"orders: {text}"


def test_many_partitions_are_counted() -> None:
    many = topic(*(partition(n, (1,), ()) for n in range(NAMED_MAX + 90_000)))
    (first, _) = findings(Cluster("c", 1, (), (), 7), [many], AllLogDirs({}, {}), 0, {})
    assert first.text.endswith("7 and 90000 more have no leader")
