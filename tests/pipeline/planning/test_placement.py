"""Plans over random small clusters: rules never broken, bands met where they can be, as few bytes as brute force finds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.planning.checks import ERROR, Finding
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, Partition, Topic, validated
from kraftlab.pipeline.planning.goals import DISK, LEADERS, RACK, REPLICAS, parse_goals
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.plan import Plan, encode_plan
from kraftlab.pipeline.planning.propose import propose

Judge = Callable[[Plan], list[Finding]]
After = Callable[[Plan], dict[tuple[str, int], tuple[int, ...]]]
MakeCluster = Callable[..., ClusterDocument]


def state(plan: Plan, name: str) -> Any:
    return next(goal.after for goal in plan.goals if goal.name == name)


@given(
    seed=st.integers(0, 10_000),
    brokers=st.integers(4, 9),
    factor=st.integers(1, 3),
    racks=st.integers(1, 4),
    new=st.integers(0, 1),
)
@settings(max_examples=4, deadline=None)
def test_no_plan_breaks_a_rule_or_leaves_the_cluster_further_from_its_goals(
    make_cluster: MakeCluster, judge: Judge, seed: int, brokers: int, factor: int, racks: int, new: int
) -> None:
    document = make_cluster(seed, brokers=brokers, factor=factor, racks=racks, new=new, topics=3)

    plan = propose(document, PlanOptions())

    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []
    assert all(goal.after.violations <= goal.before.violations for goal in plan.goals if goal.hard)
    assert state(plan, RACK).violations == 0
    if plan.bytes_moved < plan.lower_bound_bytes:
        assert not all(goal.met for goal in plan.goals)


@pytest.mark.parametrize("seed", range(6))
def test_the_band_is_met_at_both_ends(make_cluster: MakeCluster, judge: Judge, seed: int) -> None:
    plan = propose(make_cluster(seed, brokers=12, racks=4, topics=20, partitions=12, new=2), PlanOptions())

    assert plan.solver == "flow"
    assert judge(plan) == []
    for name in (DISK, REPLICAS, LEADERS):
        assert state(plan, name).violations == 0
    assert plan.bytes_moved <= 1.25 * plan.lower_bound_bytes


def needless(plan: Plan, placed: dict[tuple[str, int], tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """Replicas that could stay where they were, each by itself, with all bands met and racks distinct: (partition, from, to)."""
    eps, rack = plan.options.eps, {broker.id: broker.rack for broker in plan.cluster.brokers}
    share = {load.id: load.share_bytes for load in plan.brokers}
    held = {load.id: (load.bytes_after, load.replicas_after) for load in plan.brokers}
    mean = sum(count for _, count in held.values()) / len(held)
    fewest, most = math.floor(mean * (1 - eps) + 1e-9), math.ceil(mean * (1 + eps) - 1e-9)

    def fits(broker: int, size: int, sign: int) -> bool:
        amount, count = held[broker][0] + sign * size, held[broker][1] + sign
        return share[broker] * (1 - eps) + 1 < amount < share[broker] * (1 + eps) - 1 and fewest <= count <= most

    return [
        (move.name, source, target)
        for move in plan.moves
        for source in move.removed
        for target in move.added
        if fits(source, move.size_bytes, 1) and fits(target, move.size_bytes, -1)
        if rack[source] not in {rack[broker] for broker in placed[move.topic, move.partition] if broker != target}
    ]


def cheapest(document: ClusterDocument, eps: float) -> int | None:
    """Brute force: the fewest bytes that put bytes and replicas of every broker in the band with distinct racks."""
    ids = [broker.id for broker in document.brokers]
    rack = {broker.id: broker.rack for broker in document.brokers}
    entries = [entry for topic in document.topics for entry in topic.partitions]
    sizes = [entry.size_bytes or 0 for entry in entries]
    total = sum(len(entry.replicas) * size for entry, size in zip(entries, sizes, strict=True)) / len(ids)
    mean = sum(len(entry.replicas) for entry in entries) / len(ids)
    fewest, most = math.floor(mean * (1 - eps) + 1e-9), math.ceil(mean * (1 + eps) - 1e-9)
    choices = [
        [chosen for chosen in itertools.combinations(ids, len(entry.replicas)) if len({rack[id] for id in chosen}) == len(chosen)]
        for entry in entries
    ]
    best: int | None = None
    for placement in itertools.product(*choices):
        load, count = Counter(dict.fromkeys(ids, 0)), Counter(dict.fromkeys(ids, 0))
        copied = 0
        for entry, size, chosen in zip(entries, sizes, placement, strict=True):
            copied += size * len(set(chosen) - set(entry.replicas))
            for id in chosen:
                load[id] += size
                count[id] += 1
        fits = all(total * (1 - eps) - 1e-6 <= load[id] <= total * (1 + eps) + 1e-6 and fewest <= count[id] <= most for id in ids)
        if fits and (best is None or copied < best):
            best = copied
    return best


@pytest.mark.parametrize(
    ("seed", "shape"),
    [
        (13, {"brokers": 12, "racks": 4, "topics": 20, "partitions": 12, "new": 2}),
        (30, {"brokers": 12, "racks": 4, "topics": 20, "partitions": 12, "new": 2}),
        (59, {"brokers": 8, "racks": 4, "topics": 12, "partitions": 20, "new": 1, "factor": 2}),
    ],
)
def test_nothing_moves_that_could_stay_where_it_was(
    make_cluster: MakeCluster, after: After, seed: int, shape: dict[str, int]
) -> None:
    plan = propose(make_cluster(seed, **shape), PlanOptions(goals=parse_goals(["rack", "disk", "count"])))

    assert plan.solver == "flow" and all(goal.met for goal in plan.goals)
    assert needless(plan, after(plan)) == []


@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_tiny_clusters_get_the_fewest_bytes_there_can_be(data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, 2))
    ids = list(range(4))
    partitions = [
        Partition(number, tuple(data.draw(st.permutations(ids))[:factor]), size_bytes=data.draw(st.integers(1, 12)) * 1000)
        for number in range(data.draw(st.integers(2, 5)))
    ]
    brokers = tuple(Broker(id, f"r{id % 2 if factor == 2 else id}") for id in ids)
    document = validated(ClusterDocument(brokers, (Topic("t", tuple(partitions)),)))
    eps = data.draw(st.sampled_from([0.3, 0.6]))
    optimum = cheapest(document, eps)

    plan = propose(document, PlanOptions(goals=parse_goals(["rack", "count", "disk"]), eps=eps))

    if optimum is None:
        assert state(plan, DISK).violations + state(plan, REPLICAS).violations > 0
    else:
        assert state(plan, DISK).violations + state(plan, REPLICAS).violations == 0
        assert plan.bytes_moved == optimum
        assert plan.lower_bound_bytes <= optimum


def uneven(*partitions: tuple[tuple[int, ...], int]) -> ClusterDocument:
    """Brokers 0 to 2, each in a rack of its own, with these replicas and sizes."""
    entries = tuple(Partition(number, replicas, size_bytes=size) for number, (replicas, size) in enumerate(partitions))
    return validated(ClusterDocument(tuple(Broker(id, f"r{id}") for id in range(3)), (Topic("t", entries),)))


def test_one_byte_less_is_worth_a_move_more() -> None:
    document = uneven(((0, 1), 5000), ((0, 1), 10001), ((2, 1), 5000), ((1, 0), 5000))

    plan = propose(document, PlanOptions(goals=parse_goals(["rack", "count", "disk"]), eps=0.3))

    assert plan.solver == "exact"
    assert plan.bytes_moved == cheapest(document, 0.3) == 10000


def test_a_band_that_is_met_to_the_byte_is_not_said_to_be_impossible() -> None:
    """Broker 1 ends with 15,000 bytes, nine tenths of its share, which no float is."""
    small, large = 2500, 5000
    pairs = ((2, 0), large), ((2, 0), small), ((0, 1), large), ((0, 2), small), ((1, 2), large), ((2, 0), large)

    plan = propose(uneven(*pairs), PlanOptions(goals=parse_goals(["rack", "count", "disk"])))

    assert state(plan, DISK).violations == state(plan, REPLICAS).violations == 0
    assert not any("less out of the bands" in note for note in plan.notes)


def test_the_same_question_has_the_same_answer_byte_for_byte(make_cluster: MakeCluster) -> None:
    document = make_cluster(3, brokers=12, topics=20)

    first, second = propose(document, PlanOptions()), propose(document, PlanOptions())

    assert encode_plan(first) == encode_plan(second)
    assert propose(document, PlanOptions(eps=0.2)).plan_id != first.plan_id


def test_draining_moves_what_is_there_and_nothing_else(make_cluster: MakeCluster, judge: Judge, after: After) -> None:
    document = make_cluster(1, brokers=8, racks=4, new=0)

    plan = propose(document, PlanOptions(drain=(3,)))

    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []
    assert all(3 not in replicas for replicas in after(plan).values())
    assert all(move.removed == (3,) for move in plan.moves)
    assert {why.reason for move in plan.moves for why in move.why} == {"drain"}
    assert plan.bytes_moved == plan.lower_bound_bytes


def test_a_drained_broker_that_is_down_is_emptied_too(make_cluster: MakeCluster, judge: Judge, after: After) -> None:
    document = make_cluster(1, brokers=8, racks=4, new=0)
    down = msgspec.structs.replace(
        document, brokers=tuple(msgspec.structs.replace(one, alive=one.id != 3) for one in document.brokers)
    )

    plan = propose(down, PlanOptions(drain=(3,)))

    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []
    assert all(3 not in replicas for replicas in after(plan).values())


def test_a_replacement_takes_slot_by_slot_what_the_other_had(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(2, brokers=7, racks=0, new=1)

    plan = propose(document, PlanOptions(replace=((2, 7),)))

    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []
    assert plan.moves
    for move in plan.moves:
        assert move.after == tuple(7 if broker == 2 else broker for broker in move.before)


def test_only_the_topics_that_were_named_change_their_replication_factor(
    make_cluster: MakeCluster, judge: Judge, after: After
) -> None:
    document = make_cluster(4, brokers=7, racks=4, factor=2, new=0)

    plan = propose(document, PlanOptions(rf={"t0": 3, "t1": 1}))

    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []
    wanted = {"t0": 3, "t1": 1}
    assert all(len(replicas) == wanted.get(topic, 2) for (topic, _), replicas in after(plan).items())
    assert all(set(move.after) <= set(move.before) and move.before[0] in move.after for move in plan.moves if move.topic == "t1")
    assert plan.bytes_moved == plan.lower_bound_bytes == sum(move.size_bytes for move in plan.moves if move.topic == "t0")


def test_new_brokers_are_filled_and_nothing_moves_elsewhere(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(5, brokers=9, racks=3, new=2, topics=12)

    plan = propose(document, PlanOptions(add_brokers=(8, 9), goals=parse_goals(["disk", "count", "rack"])))

    assert {broker for move in plan.moves for broker in move.added} == {8, 9}
    loads = {load.id: load.bytes_after / load.share_bytes for load in plan.brokers}
    assert min(loads[8], loads[9]) >= 0.899


def test_a_budget_is_kept_and_used(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(6, brokers=12, racks=6, topics=16, new=2)
    whole = propose(document, PlanOptions(goals=parse_goals(["disk", "count"])))

    half = propose(document, PlanOptions(goals=parse_goals(["disk", "count"]), max_bytes=whole.bytes_moved // 2))

    assert whole.bytes_moved // 4 < half.bytes_moved <= whole.bytes_moved // 2
    unmet = [goal for goal in half.goals if not goal.met]
    assert unmet and all(goal.after.least >= goal.before.least for goal in unmet)


def test_a_budget_that_is_less_than_what_has_to_move_moves_what_it_can_with_a_note(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, brokers=8, racks=4, new=0)
    whole = propose(document, PlanOptions(drain=(3,)))

    part = propose(document, PlanOptions(drain=(3,), max_bytes=whole.bytes_moved // 2))

    assert 0 < part.bytes_moved <= whole.bytes_moved // 2
    assert any("--max-bytes is too small for the required moves" in note for note in part.notes)


def test_excluded_brokers_and_topics_are_not_touched(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(7, brokers=8, racks=4, new=2)

    plan = propose(document, PlanOptions(exclude_brokers=(1, 8), exclude_topics=("t1", "t[23]")))

    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []
    assert plan.moves
    assert {move.topic for move in plan.moves} == {"t0"}
    assert not {1, 8} & {broker for move in plan.moves for broker in (*move.added, *move.removed)}


def test_larger_disks_get_more_bytes(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(8, brokers=6, racks=0, new=0, topics=10)
    brokers = tuple(
        msgspec.structs.replace(
            one, log_dirs=tuple(msgspec.structs.replace(entry, usable_bytes=10**13 * (1 + one.id % 2)) for entry in one.log_dirs)
        )
        for one in document.brokers
    )

    plan = propose(msgspec.structs.replace(document, brokers=brokers), PlanOptions(goals=parse_goals(["disk"])))

    small = [load.bytes_after for load in plan.brokers if load.id % 2 == 0]
    large = [load.bytes_after for load in plan.brokers if load.id % 2 == 1]
    assert state(plan, DISK).violations == 0
    assert min(large) > 1.5 * max(small)


def test_one_huge_replica_makes_the_band_impossible_and_the_plan_has_a_note(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(9, brokers=4, racks=0, new=0, factor=1, topics=2)
    huge = Partition(0, (1,), 1, 10**13, ("/d0",))
    document = validated(msgspec.structs.replace(document, topics=(*document.topics, Topic("huge", (huge,)))))

    plan = propose(document, PlanOptions())

    assert state(plan, DISK).violations > 0
    assert any("huge-0" in note for note in plan.notes)
    assert [finding for finding in judge(plan) if finding.severity == ERROR] == []


def test_bands_that_the_rack_rule_forbids_are_said_to_be_impossible() -> None:
    brokers = (Broker(1, "a"), Broker(2, "b"), Broker(3, "a"))
    partitions = tuple(Partition(at, (1, 2), 1, 10) for at in range(6))
    document = validated(ClusterDocument(brokers, (Topic("t", partitions),)))

    plan = propose(document, PlanOptions())

    assert state(plan, REPLICAS).violations == 1 and state(plan, RACK).violations == 0
    assert plan.solver == "exact"
    assert any("solved exactly" in note for note in plan.notes)


def test_large_clusters_get_the_note_too_that_racks_forbid_a_band(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, brokers=11, racks=4, factor=3, topics=30, partitions=10, new=0)
    lonely = tuple(msgspec.structs.replace(one, rack="lonely" if one.id == 1 else f"r{one.id % 2}") for one in document.brokers)

    plan = propose(msgspec.structs.replace(document, brokers=lonely), PlanOptions())

    assert plan.solver == "flow" and state(plan, RACK).violations == 0
    assert state(plan, REPLICAS).violations > 0
    assert any("not all bands can be met with these racks" in note for note in plan.notes)
