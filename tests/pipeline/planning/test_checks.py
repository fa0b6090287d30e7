"""Checks: each finds its fault, in plans and in Kafka's reassignment files."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kraftlab.pipeline.planning.checks import CHECKS, CheckOptions, Target, check
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.plan import Plan
from kraftlab.pipeline.planning.propose import propose

MakeCluster = Callable[..., ClusterDocument]
UNBANDED = CheckOptions(banded=False)


def cluster() -> ClusterDocument:
    """Brokers 1 to 6 in racks a, b, c by turns; 5 is down; 6 has a directory that is offline and one that is cordoned."""
    directories = (LogDir("/d", usable_bytes=1000), LogDir("/e", usable_bytes=1000))
    brokers = [Broker(id, "abc"[id % 3], id != 5, directories) for id in range(1, 6)]
    last = Broker(6, "a", True, (LogDir("/d", usable_bytes=1000), LogDir("/off", online=False), LogDir("/cordon", cordoned=True)))
    partitions = (
        Partition(0, (1, 2, 3), 1, 400, ("/d", "/d", "/d")),
        Partition(1, (2, 3, 4), 2, 10, ("/d", "/d", "/d")),
        Partition(2, (1, 2, 3, 4), 1, 10, (None,) * 4, (4,), (1,)),
    )
    return validated(ClusterDocument((*brokers, last), (Topic("t", partitions),)))


@pytest.mark.parametrize(
    ("name", "target", "asked"),
    [
        ("unknown_partition", Target("t", 9, (1, 2, 3)), UNBANDED),
        ("stale", Target("t", 0, (1, 2, 3), before=(1, 2, 4)), UNBANDED),
        ("under_way", Target("t", 2, (2, 3, 4)), UNBANDED),
        ("duplicate", Target("t", 0, (1, 1, 2)), UNBANDED),
        ("replication_factor", Target("t", 0, (1, 2)), UNBANDED),
        ("replication_factor", Target("t", 0, (1, 2, 3)), CheckOptions(rf={"t": 2}, banded=False)),
        ("unknown_broker", Target("t", 0, (1, 2, 77)), UNBANDED),
        ("dead_broker", Target("t", 0, (1, 3, 5)), UNBANDED),
        ("rack", Target("t", 0, (1, 4, 3)), UNBANDED),
        ("not_empty", Target("t", 0, (1, 2, 3)), CheckOptions(empty=(2,), banded=False)),
        ("excluded", Target("t", 0, (4, 2, 3)), CheckOptions(untouched=(4,), banded=False)),
        ("log_dir", Target("t", 0, (1, 2, 3), ("any", "/nowhere", "any")), UNBANDED),
        ("log_dir", Target("t", 0, (1, 2, 6), ("any", "any", "/off")), UNBANDED),
        ("log_dir", Target("t", 0, (1, 2, 6), ("any", "any", "/cordon")), UNBANDED),
        ("budget", Target("t", 0, (4, 2, 3)), CheckOptions(max_bytes=399, banded=False)),
        ("disk_band", Target("t", 0, (4, 2, 3)), CheckOptions()),
        ("replica_band", Target("t", 0, (4, 2, 3)), CheckOptions()),
        ("leader_band", Target("t", 0, (2, 1, 3)), CheckOptions()),
    ],
)
def test_each_fault_is_found_by_name(name: str, target: Target, asked: CheckOptions) -> None:
    found = {finding.check: finding for finding in check(cluster(), [target], asked)}

    assert name in found
    assert found[name].severity == {check: severity for check, severity, _ in CHECKS}[name]


def test_a_sound_change_has_no_findings() -> None:
    assert check(cluster(), [Target("t", 0, (4, 2, 3), ("/e", "any", "any"), (1, 2, 3))], UNBANDED) == []


def test_a_partition_that_is_twice_in_a_file_is_found() -> None:
    target = Target("t", 0, (1, 2, 3))

    assert [finding.check for finding in check(cluster(), [target, target], UNBANDED)] == ["duplicate"]


def test_disks_that_get_too_full_are_found() -> None:
    document = cluster()
    small = tuple(
        msgspec.structs.replace(one, log_dirs=(LogDir("/d", usable_bytes=300), LogDir("/e", usable_bytes=90)))
        if one.id == 4
        else one
        for one in document.brokers
    )
    document = msgspec.structs.replace(document, brokers=small)

    found = {finding.check for finding in check(document, [Target("t", 0, (4, 2, 3), ("/e", "any", "any"))], UNBANDED)}

    assert found == {"disk_capacity", "log_dir_capacity"}


def test_a_partition_that_broke_the_rack_rule_before_may_stay_as_it_is() -> None:
    document = cluster()
    crowded = Partition(3, (1, 4, 3), 1, 10, (None,) * 3)
    topics = (msgspec.structs.replace(document.topics[0], partitions=(*document.topics[0].partitions, crowded)),)

    assert check(msgspec.structs.replace(document, topics=topics), [Target("t", 3, (4, 1, 3))], UNBANDED) == []


def test_a_plan_that_was_tampered_with_is_found_out(make_cluster: MakeCluster, judge: Callable[[Plan], list[object]]) -> None:
    plan = propose(make_cluster(1, brokers=8, racks=4, new=0), PlanOptions(drain=(3,)))
    first = plan.moves[0]
    shorter = msgspec.structs.replace(first, after=first.after[:2], dirs=first.dirs[:2])

    assert judge(plan) == []
    assert judge(msgspec.structs.replace(plan, moves=(shorter, *plan.moves[1:]))) != []


def test_what_leaves_the_only_directory_of_a_broker_makes_room_in_it_though_its_directory_is_unknown() -> None:
    brokers = (Broker(1, log_dirs=(LogDir("/d", usable_bytes=100),)), Broker(2))
    partitions = (Partition(0, (1,), 1, 300), Partition(1, (2,), 2, 250))
    document = validated(ClusterDocument(brokers, (Topic("t", partitions),)))

    assert check(document, [Target("t", 0, (2,)), Target("t", 1, (1,), ("/d",))], UNBANDED) == []
