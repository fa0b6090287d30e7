"""Fault plans: the same seed draws the same plan, and leaving out one kind does not change the others."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite.fault_plan import Action
from jepsen_lite.faults import splits
from jepsen_lite.faults.kinds import KINDS
from jepsen_lite.faults.plan_generator import NoSuchNemesis, chosen_kinds, draw_plan
from jepsen_lite.faults.targets import NoSuchTarget, View, target_nodes
from jepsen_lite.workload import Options

names = st.sets(st.sampled_from(sorted(KINDS)), min_size=1)
options = st.builds(
    Options,
    seed=st.text(max_size=5),
    time_s=st.floats(1, 120),
    controllers=st.integers(1, 7),
    brokers=st.integers(0, 5),
)
views = st.builds(
    lambda controllers, brokers, up, leader: View(
        tuple(range(3000, 3000 + controllers)),
        tuple(range(brokers)),
        frozenset(node for node in (*range(3000, 3000 + controllers), *range(brokers)) if node % 3000 in up),
        leader if leader is None else 3000 + leader % controllers,
    ),
    st.integers(1, 7),
    st.integers(1, 5),
    st.sets(st.integers(0, 6)),
    st.none() | st.integers(0, 6),
)


@settings(max_examples=30)
@given(options, names)
def test_the_same_seed_draws_the_same_plan(options: Options, names: set[str]) -> None:
    assert draw_plan(options, sorted(names)) == draw_plan(options, sorted(names, reverse=True))


@settings(max_examples=30)
@given(options, names)
def test_a_kind_draws_the_same_whatever_others_are_drawn(options: Options, names: set[str]) -> None:
    together = draw_plan(options, names).actions
    for name in names:
        assert tuple(action for action in together if action.kind == name) == draw_plan(options, [name]).actions


@settings(max_examples=30)
@given(options, names)
def test_actions_are_sorted_by_time_numbered_by_kind_and_over_at_the_end(options: Options, names: set[str]) -> None:
    actions = draw_plan(options, names).actions
    assert [action.at_ms for action in actions] == sorted(action.at_ms for action in actions)
    for name in names:
        numbers = [action.number for action in actions if action.kind == name]
        assert numbers == list(range(len(numbers)))
    assert all(action.at_ms >= 0 and action.at_ms + action.for_ms <= options.time_s * 1000 for action in actions)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_strikes_in_a_minute(kind: str) -> None:
    assert len(draw_plan(Options(time_s=60), [kind]).actions) >= 2


def test_all_is_a_few_kinds_that_change_with_the_seed() -> None:
    drawn = [chosen_kinds(Options(seed=str(seed)), ["all"]) for seed in range(40)]
    assert all(drawn)
    assert {name for kinds in drawn for name in kinds} == set(KINDS)
    assert len(set(drawn)) > 10
    assert all(set(chosen_kinds(Options(seed=str(seed)), ["all"], available=["pause"])) == {"pause"} for seed in range(40))


def test_an_unknown_nemesis_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NoSuchNemesis, match="unknown nemesis earthquake; known: kill, pause, partition"):
        draw_plan(Options(), ["kill", "earthquake"])


def test_actions_have_known_kinds_and_targets() -> None:
    view = View((3000, 3001, 3002), (0, 1, 2), frozenset({3000, 3001, 3002, 0, 1, 2}), 3001)
    for seed in range(20):
        plan = draw_plan(Options(seed=str(seed), time_s=60), KINDS)
        assert all(target_nodes(action.target, view, Random(0)) for action in plan.actions)


# -- words -------------------------------------------------------------------------------------------------------------


@given(views, st.integers())
def test_words_mean_nodes_of_their_role(view: View, seed: int) -> None:
    def meant(word: str) -> tuple[int, ...]:
        return target_nodes(word, view, Random(seed))

    assert meant("all") == tuple(sorted(view.nodes))
    assert len(meant("majority")) > len(view.controllers) / 2
    assert set(meant("majority")) <= set(view.controllers)
    assert meant("leader") == (view.leader,) if view.leader is not None else set(meant("leader")) <= set(view.controllers)
    assert set(meant("broker")) <= set(view.brokers)
    assert meant("controller:0") == meant("controller:3000") == (3000,)
    if len(view.controllers) > 2:
        assert 0 < len(meant("minority")) < len(view.controllers) / 2
    if len(view.controllers) > 1:
        assert view.leader not in meant("follower")


@given(views, st.integers())
def test_words_for_one_node_mean_one_that_runs_if_any_does(view: View, seed: int) -> None:
    for word, nodes in (("controller", view.controllers), ("broker", view.brokers), ("node", view.nodes)):
        (node,) = target_nodes(word, view, Random(seed))
        assert node in view.up or not view.up & set(nodes)


@pytest.mark.parametrize("word", ["controller:7", "broker:x", "boss", "boss:1"])
def test_a_target_without_nodes_is_refused(word: str) -> None:
    with pytest.raises(NoSuchTarget, match=word):
        target_nodes(word, View((3000,), (0,), frozenset()), Random(0))


# -- splits ------------------------------------------------------------------------------------------------------------


def heard(links: splits.Links, node: int, nodes: range) -> set[int]:
    """Return the nodes that a node still receives from, including itself."""
    return {other for other in nodes if other == node or (other, node) not in links}


@given(st.integers(2, 9), st.sampled_from(splits.HOW), st.integers())
def test_a_split_cuts_links_between_its_nodes(count: int, how: str, seed: int) -> None:
    links = splits.split(how, range(count), Random(seed))
    assert links or (how, count) == ("majorities-ring", 2)
    assert all(source != target and {source, target} <= set(range(count)) for source, target in links)


@given(st.integers(2, 9), st.sampled_from(["halves", "random-halves", "one"]), st.integers())
def test_halves_hear_themselves_alone(count: int, how: str, seed: int) -> None:
    nodes = range(count)
    links = splits.split(how, nodes, Random(seed))
    sides = {frozenset(heard(links, node, nodes)) for node in nodes}
    assert len(sides) == 2
    assert sum(len(side) for side in sides) == count


@given(st.integers(3, 9), st.integers())
def test_in_a_ring_each_node_reaches_another_majority(count: int, seed: int) -> None:
    nodes = range(count)
    links = splits.split("majorities-ring", nodes, Random(seed))
    sides = [frozenset(heard(links, node, nodes)) for node in nodes]
    assert all(len(side) == count // 2 + 1 for side in sides)
    assert len(set(sides)) == count


@given(st.integers(3, 9), st.integers())
def test_one_node_bridges_two_halves(count: int, seed: int) -> None:
    nodes = range(count)
    links = splits.split("bridge", nodes, Random(seed))
    sides = [heard(links, node, nodes) for node in nodes]
    (middle,) = [side for side in sides if len(side) == count]
    halves = {frozenset(side) for side in sides if side != middle}
    assert len(halves) == 2
    assert len(frozenset.intersection(*halves)) == 1


def test_one_way_cuts_leave_the_other_way() -> None:
    assert splits.one_way("out", [1], [0, 1, 2]) == {(1, 0), (1, 2)}
    assert splits.one_way("in", [1], [0, 1, 2]) == {(0, 1), (2, 1)}


def test_unknown_splits_and_directions_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown split 'thirds'; known: halves, random-halves"):
        splits.split("thirds", [1, 2, 3], Random(0))
    with pytest.raises(ValueError, match="unknown direction 'up'; known: out, in"):
        splits.one_way("up", [1], [2])


def test_actions_survive_their_file() -> None:
    import msgspec

    plan = draw_plan(Options(time_s=60), KINDS)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan
    assert all(isinstance(action, Action) for action in plan.actions)
