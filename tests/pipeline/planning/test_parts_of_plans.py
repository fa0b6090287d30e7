"""Leaders, log directories, waves, exports, and the text of plans."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated
from kraftlab.pipeline.planning.explain import Sentences, duration, goals_known, move_lines, plan_lines
from kraftlab.pipeline.planning.goals import DIRECTORY, LEADERS, band_of_counts, parse_goals
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.plan import encode_plan, read_plan
from kraftlab.pipeline.planning.propose import propose
from kraftlab.pipeline.planning.waves import Caps, summaries, with_waves

MakeCluster = Callable[..., ClusterDocument]


def feasible(rows: list[tuple[int, ...]], brokers: int, fewest: int, most: int) -> bool:
    """Return whether leaders can be chosen so that each broker leads so many: a flow with lower bounds, solved by SciPy."""
    source, sink, super_source, super_sink = range(len(rows) + brokers, len(rows) + brokers + 4)
    size = super_sink + 1
    arcs: list[tuple[int, int, int]] = [(sink, source, len(rows))]
    for at, replicas in enumerate(rows):
        arcs.append((super_source, at, 1))
        arcs += [(at, len(rows) + broker, 1) for broker in replicas]
    arcs.append((source, super_sink, len(rows)))
    arcs += [(len(rows) + broker, sink, most - fewest) for broker in range(brokers)]
    arcs += [(len(rows) + broker, super_sink, fewest) for broker in range(brokers)]
    arcs.append((super_source, sink, brokers * fewest))
    graph = csr_array(
        (np.array([arc[2] for arc in arcs], dtype=np.int32), ([arc[0] for arc in arcs], [arc[1] for arc in arcs])),
        shape=(size, size),
    )
    needed = len(rows) + brokers * fewest
    return int(maximum_flow(graph, super_source, super_sink).flow_value) == needed


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_leaders_are_in_their_band_wherever_the_replicas_allow_it(data: st.DataObject) -> None:
    brokers = data.draw(st.integers(3, 7))
    rows = data.draw(
        st.lists(st.permutations(range(brokers)).map(lambda ids: tuple(ids[:2])), min_size=brokers, max_size=4 * brokers)
    )
    skewed = [tuple(sorted(replicas)) for replicas in rows]
    partitions = tuple(Partition(at, replicas, size_bytes=1) for at, replicas in enumerate(skewed))
    document = validated(ClusterDocument(tuple(Broker(id) for id in range(brokers)), (Topic("t", partitions),)))
    mean = len(rows) / brokers
    fewest, most = int(np.floor(mean * 0.9 + 1e-9)), int(np.ceil(mean * 1.1 - 1e-9))

    plan = propose(document, PlanOptions(goals=parse_goals(["leader"])))

    goal = next(goal for goal in plan.goals if goal.name == LEADERS)
    assert plan.bytes_moved == 0
    assert all(sorted(move.before) == sorted(move.after) for move in plan.moves)
    assert goal.met == feasible(skewed, brokers, fewest, most)


def test_log_directories_end_in_their_band_by_moves_within_brokers_only(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, directories=4, topics=20, partitions=10, new=0)

    plan = propose(document, PlanOptions(goals=parse_goals(["logdir"])))

    goal = next(goal for goal in plan.goals if goal.name == DIRECTORY)
    assert goal.before.most > 3.9 and goal.met
    assert plan.replica_moves == 0 and plan.bytes_moved == 0 and plan.intra_moves > 0
    assert all(move.before == move.after for move in plan.moves)


def test_new_replicas_are_born_in_the_emptiest_directory(make_cluster: MakeCluster) -> None:
    plan = propose(make_cluster(1, brokers=8, racks=4, new=0), PlanOptions(drain=(3,)))

    for move in plan.moves:
        assert all((path == "any") == (broker in move.before) for broker, path in zip(move.after, move.dirs, strict=True))
        assert "/d0" not in move.dirs


def test_a_drained_directory_is_emptied_into_the_others(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, directories=3, new=0)
    held = sum(2 in entry.replicas for topic in document.topics for entry in topic.partitions)

    plan = propose(document, PlanOptions(drain_dirs=((2, "/d0"),)))

    assert plan.intra_moves == held > 0 and plan.bytes_moved == 0 and not plan.leaves_in_directories
    assert {(why.reason, why.source, why.source_dir) for move in plan.moves for why in move.why} == {("drain-dir", 2, "/d0")}
    assert {why.target_dir for move in plan.moves for why in move.why} == {"/d1", "/d2"}


@pytest.mark.parametrize(("others", "excluded"), [((), ()), ((LogDir("/e", cordoned=True),), ()), ((LogDir("/e"),), ("t",))])
def test_a_directory_that_cannot_be_drained_is_reported(others: tuple[LogDir, ...], excluded: tuple[str, ...]) -> None:
    partitions = tuple(Partition(at, (1,), 1, 10, ("/d",)) for at in range(3))
    broker = Broker(1, log_dirs=(LogDir("/d"), *others))
    document = validated(ClusterDocument((broker, Broker(2)), (Topic("t", partitions),)))

    plan = propose(document, PlanOptions(drain_dirs=((1, "/d"),), exclude_topics=excluded))

    assert plan.leaves_in_directories
    assert any("3 replicas stay in /d of broker 1, which was to be drained" in note for note in plan.notes)


def test_directories_that_are_offline_or_cordoned_take_nothing(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, brokers=7, racks=0, directories=4, new=0)
    log_dirs = (LogDir("/d0", online=False), LogDir("/d1", cordoned=True), LogDir("/d2"), LogDir("/d3"))
    brokers = tuple(msgspec.structs.replace(one, log_dirs=log_dirs) for one in document.brokers)

    plan = propose(msgspec.structs.replace(document, brokers=brokers), PlanOptions(drain=(3,)))

    assert {path for move in plan.moves for path in move.dirs} == {"any", "/d2", "/d3"}


def test_waves_keep_to_their_caps_and_mending_goes_first(make_cluster: MakeCluster) -> None:
    document = make_cluster(2, brokers=10, racks=5, topics=30, new=2)
    plan = with_waves(propose(document, PlanOptions()), Caps(per_broker=3, per_broker_intra=1, cluster=8, leaders=4))

    waves = defaultdict(list)
    for move in plan.moves:
        waves[move.wave].append(move)
    assert sorted(waves) == list(range(1, plan.waves + 1))
    for moves in waves.values():
        busy = Counter(broker for move in moves for broker in {*move.added, *move.removed})
        intra = Counter(why.source for move in moves for why in move.why if why.source_dir)
        assert max(busy.values(), default=0) <= 3
        assert sum(bool(move.added or move.removed) for move in moves) <= 8
        assert sum(move.leader_changes for move in moves) <= 4
        own = max(sum(1 for why in move.why if why.source_dir and why.source == at) for move in moves for at in range(11))
        assert max(intra.values(), default=0) <= max(own, 1)
    mending = [move.wave for move in plan.moves if any(why.reason == "rack" for why in move.why)]
    assert mending and min(mending) == 1


def test_a_wave_has_its_time_and_the_disk_that_it_would_overfill() -> None:
    brokers = (Broker(1, log_dirs=(LogDir("/d", usable_bytes=50),)), *(Broker(id) for id in (2, 3)))
    partitions = tuple(Partition(at, (2, 3), 2, 30, (None, None)) for at in range(3))
    document = validated(ClusterDocument(brokers, (Topic("t", partitions),)))
    plan = propose(document, PlanOptions(drain=(2,), goals=parse_goals(["count"])))

    (wave,) = summaries(plan, throttle=9.0)

    assert wave.bytes == 90 and wave.seconds == 10.0
    assert wave.overfull == (1,)


def test_every_move_has_a_reason_in_words(make_cluster: MakeCluster) -> None:
    plan = propose(make_cluster(5, brokers=9, racks=3, new=2, topics=4), PlanOptions())
    sentences = Sentences(plan)

    for move in plan.moves:
        reasons = [why for why in move.why if not why.source_dir and not why.reason.startswith("leader")]
        assert sorted(why.target for why in reasons) == sorted(move.added)
        assert sorted(why.source for why in reasons) == sorted(move.removed)
        assert (move.before[0] == move.after[0]) or any(
            why.reason.startswith("leader") or why.source == move.before[0] for why in move.why
        )
        assert all(f"broker {why.source}" in sentences.of(why) or why.reason == "leader" for why in move.why)
    text = "\n".join([*plan_lines(plan), *move_lines(plan, plan.moves)])
    assert "DiskUsageDistributionGoal: broker 8 holds 0.00 x its share of bytes, the minimum is 0.90" in text
    assert "CpuCapacityGoal" in "\n".join(goals_known())


@given(seed=st.integers(0, 10_000), brokers=st.integers(4, 7), partitions=st.integers(3, 8), eps=st.sampled_from([0.1, 0.3]))
@settings(max_examples=6, deadline=None)
def test_the_numbers_in_a_reason_are_true(
    make_cluster: MakeCluster, seed: int, brokers: int, partitions: int, eps: float
) -> None:
    document = make_cluster(seed, brokers=brokers, partitions=partitions, topics=1, factor=2, new=0, directories=0)

    plan = propose(document, PlanOptions(eps=eps))

    fewest, most = band_of_counts(2 * partitions / brokers, eps)
    load = {entry.id: entry for entry in plan.brokers}
    holds = {
        "disk-high": lambda why: load[why.source].bytes_before > load[why.source].share_bytes * (1 + eps),
        "disk-low": lambda why: load[why.target].bytes_before < (load[why.target].share_bytes + 1) * (1 - eps),
        "count-high": lambda why: load[why.source].replicas_before > most,
        "count-low": lambda why: load[why.target].replicas_before < fewest,
    }
    for move in plan.moves:
        for why in move.why:
            assert holds.get(why.reason, lambda _: True)(why), (move, why)
            assert (why.reason != "leader") or why.source in move.after


def test_a_leader_that_gives_its_replica_up_is_not_said_to_lead_too_much() -> None:
    brokers = tuple(Broker(id) for id in (1, 2, 3))
    document = validated(ClusterDocument(brokers, (Topic("t", (Partition(0, (1, 3), 1, 10),)),)))

    plan = propose(document, PlanOptions(rf={"t": 1}, exclude_brokers=(3,)))

    assert plan.moves[0].after == (3,)
    assert [line.strip() for line in move_lines(plan, plan.moves)[1:]] == [
        "broker 1 gives its replica up: the replication factor falls",
        "preferred leader 1 → 3: broker 1 no longer has a replica",
    ]


def test_a_disk_that_is_too_full_is_the_reason_for_what_leaves_it() -> None:
    """Broker 1 holds 900 of 1,100 bytes, broker 2 has 800: both are in the band."""
    full, roomy = LogDir("/d", usable_bytes=200), LogDir("/d", usable_bytes=300)
    partitions = tuple(Partition(at, (1 + at % 2,), size_bytes=45 - 5 * (at % 2), log_dirs=("/d",)) for at in range(40))
    brokers = (Broker(1, log_dirs=(full,)), Broker(2, log_dirs=(roomy,)))

    plan = propose(validated(ClusterDocument(brokers, (Topic("t", partitions),))), PlanOptions(goals=parse_goals(["disk"])))

    assert [why.reason for move in plan.moves for why in move.why] == ["disk-full"]
    assert "DiskCapacityGoal: the disks of broker 1 are more than 80% full" in "\n".join(move_lines(plan, plan.moves))


def test_a_plan_comes_back_from_its_file(make_cluster: MakeCluster, tmp_path: object) -> None:
    plan = propose(make_cluster(1), PlanOptions(drain=(3,), rf={"t0": 2}))
    path = f"{tmp_path}/plan.json"
    with open(path, "wb") as file:
        file.write(encode_plan(plan))

    assert read_plan(path) == plan
    assert json.loads(encode_plan(plan))["format"] == "kraftlab-plan"


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (65, "1 min 5 s"), (7260, "2 h 1 min"), (200_000, "2 d 7 h")])
def test_times_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
