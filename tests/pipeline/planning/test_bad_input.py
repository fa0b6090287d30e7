"""Impossible clusters and options: each error names the fault, the value and the next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.planning.checks import ERROR, Finding
from kraftlab.pipeline.planning.documents import (
    BadCluster,
    Broker,
    ClusterDocument,
    LogDir,
    Partition,
    Topic,
    parse_cluster,
    validated,
)
from kraftlab.pipeline.planning.explain import Sentences, plan_lines
from kraftlab.pipeline.planning.goals import RACK, parse_goals
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.plan import Plan, encode_plan, read_plan
from kraftlab.pipeline.planning.propose import propose

MakeCluster = Callable[..., ClusterDocument]
Judge = Callable[[Plan], list[Finding]]

ONE = '{"brokers":[{"id":1}],"topics":[{"name":"t","partitions":[%s]}]}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a description of a cluster"),
        ('{"brokers":[],"topics":[],"version":2}', "has version 2; this release knows version 1"),
        ('{"brokers":[],"topics":[]}', "the cluster has no brokers"),
        ('{"brokers":[{"id":1}],"topics":[]}', "the cluster has no partitions"),
        ('{"brokers":[{"id":1},{"id":1}],"topics":[]}', "broker 1 occurs 2 times"),
        (ONE % '{"partition":0,"replicas":[]}', "t-0 has no replicas"),
        (ONE % '{"partition":0,"replicas":[1,1]}', "t-0 has a broker twice in its replicas [1, 1]"),
        (ONE % '{"partition":0,"replicas":[-1]}', "t-0 has a negative number (replicas [-1])"),
        (ONE % '{"partition":0,"replicas":[1],"size_bytes":-5}', "t-0 has a size of -5 bytes"),
        (ONE % f'{{"partition":0,"replicas":[1],"size_bytes":{10**30}}}', f"t-0 has a size of {10**30} bytes"),
        (ONE % f'{{"partition":{10**30},"replicas":[1]}}', "has too large a number (replicas"),
        (
            '{"brokers":[{"id":1,"log_dirs":[{"path":"d0"}]}],"topics":[]}',
            "log directory 'd0' of broker 1 is not an absolute path",
        ),
        ('{"brokers":[{"id":-1}],"topics":[]}', "broker id -1 is out of range; ids are from 0 to 2147483647"),
        ('{"brokers":[{"id":2147483648}],"topics":[]}', "broker id 2147483648 is out of range"),
        (
            f'{{"brokers":[{{"id":1,"log_dirs":[{{"path":"/d","usable_bytes":{10**400}}}]}}],"topics":[]}}',
            "log directory /d of broker 1 has more than",
        ),
        (
            ONE % '{"partition":0,"replicas":[1],"log_dirs":[]},{"partition":0,"replicas":[1]}',
            "partition of topic t 0 occurs 2",
        ),
        (ONE % '{"partition":0,"replicas":[1,2],"log_dirs":["/a"]}', "t-0 has 2 replicas and 1 log_dirs"),
    ],
)
def test_clusters_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(BadCluster) as refused:
        parse_cluster(text.encode(), "cluster.json")

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"drain": (99,)}, "broker 99 is not in the cluster; there are 1, 2, 3"),
        ({"drain": (1,), "exclude_brokers": (1,)}, "broker 1 is drained or replaced, and also listed to take or keep"),
        ({"replace": ((1, 1),)}, "broker 1 is drained or replaced, and also listed to take or keep"),
        ({"replace": ((1, 4), (2, 4))}, "a broker is named twice"),
        ({"add_brokers": (4,), "exclude_brokers": (4,)}, "broker 4 is listed to take replicas, and also excluded"),
        ({"rf": {"nothing": 2}}, "topic nothing is not in the cluster"),
        ({"rf": {"t0": 0}}, "topic t0 cannot have 0 replicas"),
        ({"rf": {"t0": 3}, "exclude_topics": ("t*",)}, "topic t0 is listed in --rf, and also excluded"),
        ({"rf": {"t0": 10**30}}, f"topic t0 cannot have {10**30} replicas"),
        ({"rf": {"t0": 7}}, "t0-0 needs 7 replicas, but only 6 brokers can take them"),
        ({"drain": (1, 2, 3, 4, 5, 6)}, "no broker can take a replica"),
        ({"drain": (1, 2, 3, 4)}, "needs 3 replicas, but only 2 brokers can take them"),
        ({"exclude_topics": ("x*",)}, "no topic is called x*"),
        ({"drain_dirs": ((1, "/nowhere"),)}, "broker 1 has no log directory /nowhere; it has /d0, /d1"),
        ({"eps": 0.0}, "eps 0.0"),
        ({"max_bytes": -1}, "a plan cannot move -1 bytes"),
    ],
)
def test_options_that_do_not_fit_are_refused(make_cluster: MakeCluster, options: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse) as refused:
        propose(make_cluster(1), PlanOptions(**options))

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("alive", "online", "said"),
    [
        (True, False, "log directory /d of broker 1 is offline: nothing can be copied out of /d; --drain 1"),
        (False, True, "broker 1 is down: nothing can be copied out of /d; --drain 1"),
    ],
)
def test_a_directory_that_nothing_can_be_copied_out_of_is_not_drained(alive: bool, online: bool, said: str) -> None:
    brokers = (Broker(1, None, alive, (LogDir("/d", online=online), LogDir("/e"))), Broker(2))
    document = validated(ClusterDocument(brokers, (Topic("t", (Partition(0, (1,), log_dirs=(None,)),)),)))

    with pytest.raises(WrongUse) as refused:
        propose(document, PlanOptions(drain_dirs=((1, "/d"),)))

    assert said in str(refused.value)


@pytest.mark.parametrize("options", [PlanOptions(replace=((1, 3),)), PlanOptions(add_brokers=(2, 3))])
@pytest.mark.parametrize(
    "directory", [LogDir("/d", online=False), LogDir("/d", cordoned=True), LogDir("/d", usable_bytes=0)], ids=repr
)
def test_a_broker_that_has_no_place_for_replicas_is_not_given_any(directory: LogDir, options: PlanOptions) -> None:
    partitions = tuple(Partition(at, (1,), 1, 10) for at in range(4))
    document = validated(ClusterDocument((Broker(1), Broker(2), Broker(3, log_dirs=(directory,))), (Topic("t", partitions),)))

    with pytest.raises(WrongUse, match="broker 3 has no log directory that takes replicas"):
        propose(document, options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"after":[2]', '"after":[]', 1), "needs replicas before and after"),
        (lambda text: text.replace('"before":[1]', '"before":[]', 1), "needs replicas before and after"),
        (lambda text: text.replace('"dirs":["any"]', '"dirs":[]', 1), "and one dir for each replica after"),
        (lambda text: text[:-1], "is not a plan"),
    ],
)
def test_plans_that_somebody_changed_are_refused(change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    document = parse_cluster((ONE % '{"partition":0,"replicas":[1]}').replace("}],", '},{"id":2}],', 1).encode(), "cluster.json")
    file = tmp_path / "plan.json"
    file.write_text(change(encode_plan(propose(document, PlanOptions(drain=(1,)))).decode()))

    with pytest.raises(WrongUse) as refused:
        read_plan(str(file))

    assert said in str(refused.value)


def test_a_reason_that_this_release_does_not_know_is_named() -> None:
    document = parse_cluster((ONE % '{"partition":0,"replicas":[1]}').replace("}],", '},{"id":2}],', 1).encode(), "cluster.json")
    plan = propose(document, PlanOptions(drain=(1,)))

    assert Sentences(plan).of(msgspec.structs.replace(plan.moves[0].why[0], reason="moon")) == "broker 1 → 2: moon"


def test_goals_that_are_not_done_are_refused_with_the_reason() -> None:
    with pytest.raises(WrongUse, match="no CPU load is measured"):
        parse_goals(["CpuCapacityGoal"])
    with pytest.raises(WrongUse, match="known are rack"):
        parse_goals(["nonsense"])
    assert parse_goals(["RackAware"]) == (RACK,)


def test_a_broker_that_only_replicas_name_is_down_and_its_partitions_are_left_alone(make_cluster: MakeCluster) -> None:
    document = make_cluster(1)
    gone = msgspec.structs.replace(document, brokers=tuple(broker for broker in document.brokers if broker.id != 2))

    plan = propose(parse_cluster(msgspec.json.encode(gone), "c"), PlanOptions())

    assert all(2 not in move.before for move in plan.moves)
    assert any("brokers that are down (2)" in note and "--drain 2" in note for note in plan.notes)


def test_one_rack_gives_no_rule_and_more_replicas_than_racks_are_spread_evenly(make_cluster: MakeCluster) -> None:
    one = propose(make_cluster(1, racks=1, topics=1), PlanOptions())
    two = propose(make_cluster(1, racks=2, topics=1), PlanOptions())

    assert next(goal for goal in one.goals if goal.name == RACK).before.violations == 0
    assert next(goal for goal in two.goals if goal.name == RACK).met
    assert any("more replicas than racks exist (2)" in note for note in two.notes)


def test_racks_with_few_brokers_hold_fewer_replicas(judge: Judge) -> None:
    """One broker in rack a, three in rack b: four replicas are on all four of them."""
    brokers = (Broker(1, "a"), Broker(2, "b"), Broker(3, "b"), Broker(4, "b"))
    document = validated(ClusterDocument(brokers, (Topic("t", (Partition(0, (2, 1), 2, 10),)),)))

    plan = propose(document, PlanOptions(rf={"t": 4}))

    assert [sorted(move.after) for move in plan.moves] == [[1, 2, 3, 4]]
    assert not plan.misses_factors and not plan.breaks_hard_goals
    assert judge(plan) == []


def test_unknown_sizes_count_as_the_mean_of_their_topic(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, topics=1, partitions=4)
    (topic,) = document.topics
    first, *rest = topic.partitions
    entries = (msgspec.structs.replace(first, size_bytes=None), *(msgspec.structs.replace(one, size_bytes=1000) for one in rest))
    document = msgspec.structs.replace(document, topics=(msgspec.structs.replace(topic, partitions=entries),))

    plan = propose(document, PlanOptions(drain=(first.replicas[0],)))

    assert next(move.size_bytes for move in plan.moves if move.partition == 0) == 1000
    assert any("the size of 1 partitions is unknown" in note for note in plan.notes)


def test_partitions_under_way_are_left_alone_and_count_where_they_end(make_cluster: MakeCluster) -> None:
    document = make_cluster(1, topics=1)
    (topic,) = document.topics
    busy = msgspec.structs.replace(topic.partitions[0], replicas=(1, 2, 3, 6), log_dirs=(None,) * 4, adding=(6,), removing=(1,))
    entries = (busy, *topic.partitions[1:])
    document = msgspec.structs.replace(document, topics=(msgspec.structs.replace(topic, partitions=entries),))

    plan = propose(document, PlanOptions())

    assert all(move.partition != 0 for move in plan.moves)
    assert any("1 partitions are being reassigned" in note for note in plan.notes)
    assert next(load.replicas_before for load in plan.brokers if load.id == 6) == 1


def test_topics_with_no_size_at_all_are_balanced_by_number(make_cluster: MakeCluster) -> None:
    document = make_cluster(3, directories=0)
    topics = tuple(
        msgspec.structs.replace(
            topic, partitions=tuple(msgspec.structs.replace(entry, size_bytes=None) for entry in topic.partitions)
        )
        for topic in document.topics
    )

    plan = propose(msgspec.structs.replace(document, topics=topics), PlanOptions())

    assert plan.bytes_moved == 0 and plan.replica_moves > 0
    assert all(goal.met for goal in plan.goals)
    assert not any("no broker's load changes" in line for line in plan_lines(plan))


def _errors(findings: list[Finding]) -> set[str]:
    return {finding.check for finding in findings if finding.severity == ERROR}


def test_a_replaced_broker_hands_over_no_more_than_the_budget(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(1)

    nothing = propose(document, PlanOptions(replace=((1, 6),), max_bytes=0))
    some = propose(document, PlanOptions(replace=((1, 6),), max_bytes=2 * 10**9))

    assert nothing.bytes_moved == 0 and any("--max-bytes is too small for the required moves" in note for note in nothing.notes)
    assert 0 < some.bytes_moved <= 2 * 10**9
    assert "budget" not in _errors(judge(some))


def test_what_a_replaced_broker_hands_over_counts_in_the_budget_of_all_else(judge: Judge) -> None:
    rows = ((9, 700), *((4, 300) for _ in range(9)))
    topic = Topic("t", tuple(Partition(number, (broker,), broker, size) for number, (broker, size) in enumerate(rows)))
    document = validated(ClusterDocument(tuple(Broker(id) for id in (2, 4, 5, 9)), (topic,)))

    plan = propose(document, PlanOptions(replace=((9, 2),), balance=True, max_bytes=1000))

    assert plan.bytes_moved <= 1000
    assert "budget" not in _errors(judge(plan))


def test_a_smaller_replication_factor_takes_nothing_from_excluded_brokers(make_cluster: MakeCluster, judge: Judge) -> None:
    document = make_cluster(1)

    plan = propose(document, PlanOptions(rf={"t0": 1}, exclude_brokers=(1, 2)))
    both = {entry.partition for entry in document.topics[0].partitions if {1, 2} <= set(entry.replicas)}

    assert all(not {1, 2} & set(move.removed) for move in plan.moves if move.partition not in both)
    assert {len(move.after) for move in plan.moves} == {1}


def test_a_partition_that_cannot_leave_a_dead_broker_is_left_as_it_is(judge: Judge) -> None:
    full = Broker(4, log_dirs=(LogDir("/d", cordoned=True),))
    brokers = (Broker(1), Broker(2, alive=False), Broker(3), full, Broker(5))
    document = validated(
        ClusterDocument(brokers, (Topic("t", (Partition(0, (1, 2, 5), 1, 10), Partition(1, (1, 5, 2), 1, 10))),))
    )

    plan = propose(document, PlanOptions(drain=(2, 5)))

    assert "dead_broker" not in _errors(judge(plan))
    assert all(2 not in move.after for move in plan.moves)
    assert any("on a broker that is down and do not move" in note for note in plan.notes)


def test_a_topic_that_is_excluded_on_a_broker_that_is_drained_is_reported(make_cluster: MakeCluster) -> None:
    plan = propose(make_cluster(1), PlanOptions(drain=(1,), exclude_topics=("t0",)))

    assert any("partitions of excluded topics stay on drained brokers" in note for note in plan.notes)


def test_one_broker_alone_is_planned_for() -> None:
    brokers = (Broker(1, log_dirs=(LogDir("/d", usable_bytes=1),)), Broker(2, alive=False))
    document = validated(ClusterDocument(brokers, (Topic("t", (Partition(0, (1,), 1, 1000), Partition(1, (1,), 1, 5))),)))

    assert not propose(document, PlanOptions()).moves


def test_what_the_solver_prints_stays_out_of_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    import ctypes

    from kraftlab.pipeline.planning import solver

    with solver.silent():
        ctypes.CDLL(None).puts(b"a word of the solver's")
    print("a plan")

    assert capfd.readouterr().out == "a plan\n"


def test_checks_count_unknown_sizes_as_plans_do(judge: Judge) -> None:
    sizes = {"large": 10**9, "small": 10}
    topics = tuple(
        Topic(name, (Partition(0, (1,), 1, None), *(Partition(at, (1,), 1, size) for at in range(1, 5))))
        for name, size in sizes.items()
    )
    document = validated(ClusterDocument((Broker(1), Broker(2)), topics))

    plan = propose(document, PlanOptions(rf={"small": 2}, max_bytes=50))

    assert plan.bytes_moved == 50
    assert "budget" not in _errors(judge(plan))
