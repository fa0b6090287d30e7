"""Hard goals: never broken for a band, judged by disk and by log directory, and reported if a plan makes one worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.planning.checks import Finding
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated
from kraftlab.pipeline.planning.goals import DIRECTORY_CAPACITY, DISK, DISK_CAPACITY, parse_goals
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.plan import GoalReport, Plan
from kraftlab.pipeline.planning.propose import propose


def goal(plan: Plan, name: str) -> GoalReport:
    return next(report for report in plan.goals if report.name == name)


def cluster(free: Sequence[int], partitions: Sequence[Partition]) -> ClusterDocument:
    """Brokers from 1 on with one log directory each and so much free in it."""
    brokers = tuple(Broker(id, log_dirs=(LogDir("/d", usable_bytes=usable),)) for id, usable in enumerate(free, 1))
    return validated(ClusterDocument(brokers, (Topic("t", tuple(partitions)),)))


def on(number: int, size: int, *brokers: int) -> Partition:
    return Partition(number, brokers, size_bytes=size, log_dirs=("/d",) * len(brokers))


@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_no_disk_is_overfilled_for_the_sake_of_a_band(data: st.DataObject) -> None:
    """Every disk is within its bound before, so that there is always a way to keep all: to move nothing."""
    brokers = data.draw(st.integers(2, 5))
    sizes = data.draw(st.lists(st.sampled_from([5, 20, 100, 200]), min_size=4, max_size=12))
    partitions = [on(number, size, data.draw(st.integers(1, brokers))) for number, size in enumerate(sizes)]
    held = [sum(entry.size_bytes or 0 for entry in partitions if entry.replicas == (id,)) for id in range(1, brokers + 1)]
    free = [amount // 4 + 1 + data.draw(st.sampled_from([0, 10, 50, 300, 5000])) for amount in held]

    plan = propose(cluster(free, partitions), PlanOptions())

    assert not plan.breaks_hard_goals
    assert [report.after.violations for report in plan.goals if report.hard] == [0, 0, 0, 0]


def test_a_disk_that_is_full_is_not_one_of_unknown_size(judge: Callable[[Plan], list[Finding]]) -> None:
    """Broker 3 holds nothing of Kafka's and has no free byte: something else fills its disk."""
    document = cluster([10_000, 10_000, 0], [on(number, 100, 1 + number % 2) for number in range(12)])

    plan = propose(document, PlanOptions())

    assert plan.moves == ()
    assert goal(plan, DISK).after.violations == 0
    assert "disk_band" not in {finding.check for finding in judge(plan)}
    drained = propose(document, PlanOptions(drain=(1,)))
    assert {broker for move in drained.moves for broker in move.added} == {2}


def test_replicas_of_unknown_directory_are_on_the_disks_all_the_same() -> None:
    """Use 70 % of each disk, by replicas without a known directory."""
    partitions = [Partition(number, (1 + number % 2,), size_bytes=70) for number in range(10)]

    plan = propose(cluster([150, 150], partitions), PlanOptions())

    assert goal(plan, DISK_CAPACITY).before.violations == 0
    assert not plan.breaks_hard_goals


@pytest.mark.parametrize("options", [PlanOptions(drain=(2,)), PlanOptions(drain=(2,), balance=True)])
def test_a_new_replica_is_born_where_it_has_room_not_where_the_share_in_use_is_least(options: PlanOptions) -> None:
    """The small directory is at 10 % and would be at 90 %, the large one is at 15 %."""
    brokers = (Broker(1, log_dirs=(LogDir("/small", usable_bytes=90), LogDir("/large", usable_bytes=850))), Broker(2))
    partitions = (
        Partition(0, (1,), size_bytes=10, log_dirs=("/small",)),
        Partition(1, (1,), size_bytes=150, log_dirs=("/large",)),
        Partition(2, (2,), size_bytes=80),
    )

    plan = propose(validated(ClusterDocument(brokers, (Topic("t", partitions),))), options)

    assert [(move.name, move.dirs) for move in plan.moves if move.added] == [("t-2", ("/large",))]
    assert goal(plan, DIRECTORY_CAPACITY).after.violations == 0


def test_a_broker_that_was_too_full_and_gets_fuller_breaks_a_hard_goal() -> None:
    """As many brokers are too full as before, and the same one, which alone can take what broker 2 has."""
    document = cluster([10, 10_000], [on(0, 100, 1), on(1, 50, 2)])

    plan = propose(document, PlanOptions(drain=(2,)))

    report = goal(plan, DISK_CAPACITY)
    assert report.before.violations == report.after.violations == report.worse == 1
    assert plan.breaks_hard_goals


def test_a_broker_that_was_too_full_and_stays_as_it_is_breaks_none() -> None:
    document = cluster([10, 10_000, 10_000], [on(0, 100, 1), on(1, 50, 2)])

    plan = propose(document, PlanOptions(drain=(2,), goals=parse_goals(["disk"])))

    assert goal(plan, DISK_CAPACITY).after.violations == 1
    assert [move.after for move in plan.moves] == [(3,)]
    assert not plan.breaks_hard_goals
