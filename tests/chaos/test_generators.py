"""Generators, seen by what workers do that ask them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite.generators import (
    Context,
    Invocation,
    Pending,
    any_of,
    cycle,
    delay,
    each_process,
    each_worker,
    f_map,
    flip_flop,
    generator,
    independent,
    limit,
    mapped,
    mix,
    on_workers,
    once,
    only,
    phases,
    process_limit,
    repeat,
    reserve,
    stagger,
    time_limit,
    until_ok,
)
from jepsen_lite.scheduler import GeneratorStuck
from jepsen_lite.workloads.admin import asked_until_ok

READ, WRITE, LIST = Invocation("read"), Invocation("write"), Invocation("list")


def numbered(f):
    """`count` invocations of one function, their values from 0 up."""
    return lambda count: [Invocation(f, value=number) for number in range(count)]


def functions(ops):
    return [op.f for op in ops]


def context(**changes):
    return Context(0, 0, 0, 1, random.Random(1))._replace(**changes)


# -- sources -------------------------------------------------------------------------------------------------------------------


def test_an_invocation_is_given_once_a_sequence_in_its_order_and_a_function_until_it_has_nothing(played):
    left = iter([WRITE, LIST])
    assert functions(played([READ, [WRITE, READ], lambda _: next(left, None)])) == ["read", "write", "read", "write", "list"]


def test_a_generator_is_a_value_that_answers_the_same_again():
    source = mix(repeat(READ), repeat(WRITE))
    answers = {generator(source).next(context(random=random.Random(7)))[0] for _ in range(5)}
    assert len(answers) == 1


# -- how many, how often -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 5))
def test_limit_gives_no_more_than_that_and_no_more_than_there_is(played, count, there, workers):
    ops = played(limit(count, numbered("read")(there)), workers=workers)
    assert [op.value for op in ops] == list(range(min(count, there)))


@given(st.integers(0, 8), st.integers(1, 4))
def test_repeat_gives_the_first_and_cycle_the_whole_so_often(played, count, length):
    source = numbered("read")(length)
    assert [op.value for op in played(repeat(source, count))] == [0] * count
    assert [op.value for op in played(cycle(source, count))] == list(range(length)) * count


def test_a_cycle_of_nothing_ends(played):
    assert played(cycle(())) == []
    assert len(played(limit(7, cycle([READ, WRITE])))) == 7


def test_once_gives_one(played):
    assert functions(played(once(repeat(READ)))) == ["read"]


@given(st.integers(1, 6))
def test_delay_sets_invocations_of_all_workers_apart(played, workers):
    ops = played(delay(0.5, numbered("read")(10)), workers=workers)
    assert [op.invoked_ns for op in ops] == [number * 500_000_000 for number in range(10)]


def test_stagger_comes_to_the_rate_over_all_workers_and_never_waits_twice_as_long(played):
    ops = played(stagger(0.02, numbered("read")(2_000)), workers=6)
    assert ops[-1].invoked_ns / 1e9 == pytest.approx(40, rel=0.05)
    assert max(after.invoked_ns - before.invoked_ns for before, after in pairwise(ops)) <= 40_000_000


def test_what_slow_workers_held_up_is_made_up_for_but_not_without_end(played):
    ops = played(stagger(0.01, numbered("read")(100)), workers=1, seconds=lambda what: 10.0 if what.value == 0 else 0.001)
    at_once = [op for op in ops[1:] if op.invoked_ns < 10_050_000_000]
    assert 5 <= len(at_once) <= 40


@given(st.floats(0.0, 2.0), st.integers(1, 4))
def test_nothing_begins_after_the_time_limit(played, seconds, workers):
    ops = played([WRITE, time_limit(seconds, repeat(READ))], workers=workers)
    begun = [op.invoked_ns for op in ops[1:]]
    assert all(at <= 10_000_000 + seconds * 1e9 for at in begun)
    assert len(begun) >= workers * int(seconds * 100 - 2)


def test_a_time_limit_ends_those_who_wait_for_others(played):
    assert played(time_limit(1.0, on_workers([0], phases(READ))), workers=2)[0].f == "read"


def test_a_process_limit_ends_when_infos_have_made_more_processes(played):
    ops = played(process_limit(5, repeat(READ)), workers=2, outcome=lambda _: "info")
    assert len({op.process for op in ops}) <= 5
    assert 3 <= len(ops) <= 5


def test_in_the_end_each_is_asked_until_ok_and_all_are_given_up_together(played):
    outcomes = iter(["fail", "ok", "ok"])
    ops = played(asked_until_ok(READ, WRITE), workers=1, outcome=lambda _: next(outcomes))
    assert functions(ops) == ["read", "read", "write"]
    ops = played(asked_until_ok(READ, WRITE), workers=1, outcome=lambda _: "fail")
    assert set(functions(ops)) == {"read"}
    assert ops[-1].invoked_ns <= 30e9


def test_until_ok_goes_on_until_one_has_ended_as_ok(played):
    outcomes = iter(["fail", "info", "fail", "ok", "ok"])
    ops = played([until_ok(repeat(READ)), WRITE], workers=1, outcome=lambda _: next(outcomes))
    assert functions(ops) == ["read"] * 4 + ["write"]


def test_each_worker_until_its_own_is_ok(played):
    seen = Counter()

    def outcome(what):
        seen[what.value] += 1
        return "ok" if seen[what.value] > what.value else "fail"

    ops = played(each_worker(until_ok(lambda c: READ)), workers=3, outcome=lambda _: "ok")
    assert Counter(op.process for op in ops) == {0: 1, 1: 1, 2: 1}
    ops = played(until_ok(cycle(numbered("read")(3))), workers=1, outcome=outcome)
    assert [op.outcome for op in ops] == ["ok"]


# -- one of several ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers())
def test_a_mix_gives_all_of_each_in_the_order_of_each(played, lengths, workers, seed):
    sources = [numbered(str(place))(length) for place, length in enumerate(lengths)]
    ops = played(mix(*sources), workers=workers, seed=str(seed))
    for place, length in enumerate(lengths):
        assert [op.value for op in ops if op.f == str(place)] == list(range(length))
    assert len(ops) == sum(lengths)


def test_a_mix_keeps_to_its_weights_and_to_the_seed(played):
    source = limit(3_000, mix(repeat(READ), repeat(WRITE), weights=(3, 1)))
    counts = Counter(functions(played(source)))
    assert counts["read"] / counts["write"] == pytest.approx(3, rel=0.15)
    assert functions(played(source)) == functions(played(source)) != functions(played(source, seed="1"))
    with pytest.raises(ValueError, match="2 sources have 1 weights"):
        mix(READ, WRITE, weights=(1,))


def test_any_of_takes_what_is_there_and_else_waits_for_the_soonest(played):
    ops = played(any_of(delay(10, numbered("slow")(3)), delay(1, numbered("quick")(12))), workers=2)
    assert [op.invoked_ns // 10**9 for op in ops if op.f == "slow"] == [0, 10, 20]
    assert [op.invoked_ns // 10**9 for op in ops if op.f == "quick"] == list(range(12))


def test_flip_flop_takes_turns_until_one_has_nothing(played):
    assert functions(played(flip_flop(repeat(READ), [WRITE, LIST]))) == ["read", "write", "read", "list", "read"]


# -- one after the other -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(1, 5), st.integers())
def test_a_phase_begins_when_all_of_the_one_before_has_ended_and_a_sequence_does_not_wait(played, lengths, workers, seed):
    chance = random.Random(seed)
    sources = [numbered(str(place))(length) for place, length in enumerate(lengths)]
    ops = played(phases(*sources), workers=workers, seconds=lambda _: chance.random())
    assert [op.f for op in ops] == [str(place) for place, length in enumerate(lengths) for _ in range(length)]
    for before in ops:
        assert all(before.ended_ns <= after.invoked_ns for after in ops if after.f > before.f)


def test_a_sequence_goes_on_while_its_last_operation_is_under_way(played):
    slow, quick = played([READ, WRITE], workers=2, seconds=lambda what: 5.0 if what.f == "read" else 0.1)
    assert quick.invoked_ns == 0 and slow.ended_ns == 5 * 10**9


# -- for whom ------------------------------------------------------------------------------------------------------------------


def test_on_workers_leaves_the_others_idle_and_they_count_as_all(played):
    ops = played(on_workers([2, 0], each_worker(numbered("read")(4))), workers=5)
    assert Counter(op.process for op in ops) == {0: 4, 2: 4}
    assert played(on_workers([9], READ), workers=2) == []


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 8))
def test_reserve_gives_each_source_its_own_workers(played, counts, workers):
    parts = [(count, numbered(str(place))(6)) for place, count in enumerate(counts)]
    ops = played(reserve(*parts, rest=numbered("rest")(6)), workers=workers)
    owner = [str(place) for place, count in enumerate(counts) for _ in range(count)] + ["rest"] * 8
    assert all(op.f == owner[op.process] for op in ops)
    assert len(ops) == 6 * len(set(owner[:workers]))


def test_each_process_begins_again_after_an_info_and_each_worker_does_not(played):
    outcomes = {True: "info", False: "ok"}

    def first_is_lost(what):
        first, outcomes[True] = outcomes[True], "ok"
        return first

    ops = played(each_process(numbered("read")(2)), workers=2, outcome=first_is_lost)
    assert Counter(op.process for op in ops) == {0: 1, 2: 2, 1: 2}
    outcomes[True] = "info"
    ops = played(each_worker(numbered("read")(2)), workers=2, outcome=first_is_lost)
    assert Counter(op.process % 2 for op in ops) == {0: 2, 1: 2}


# -- changed on the way --------------------------------------------------------------------------------------------------------


def test_functions_get_other_names_and_values_are_made_anew(played):
    renamed = f_map({"read": "get"}, [READ, WRITE])
    assert functions(played(mapped(lambda what: what._replace(value=1), renamed))) == ["get", "write"]
    assert [op.value for op in played(mapped(lambda what: what._replace(value=1), renamed))] == [1, 1]


def test_only_leaves_out_the_rest_and_does_not_look_for_ever(played):
    assert [op.value for op in played(only(lambda what: what.value % 3 == 0, numbered("read")(10)))] == [0, 3, 6, 9]
    with pytest.raises(ValueError, match="none of 10,000 invocations passed"):
        only(lambda what: False, repeat(READ)).next(context())


# -- keys ----------------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 6), st.integers(1, 7), st.integers(1, 4), st.integers(1, 9), st.integers())
def test_groups_of_workers_go_from_key_to_key(played, keys, workers, group, per_key, seed):
    chance = random.Random(seed)
    names = [f"k{number}" for number in range(keys)]
    source = independent(names, lambda key: lambda _: Invocation("read", value=key), group=group, limit=per_key)
    ops = played(source, workers=workers, seconds=lambda _: chance.random(), outcome=lambda _: chance.choice(["ok", "info"]))
    assert Counter(op.key for op in ops) == dict.fromkeys(names, per_key)
    assert all(op.value == op.key for op in ops)
    groups = defaultdict(set)
    for op in ops:
        groups[op.key].add(op.process % workers // group)
    assert all(len(found) == 1 for found in groups.values())


def test_keys_may_come_from_a_function_and_end_by_its_none(played):
    source = independent(lambda number: f"t{number}" if number < 3 else None, lambda key: [WRITE, READ], group=2)
    assert Counter(op.key for op in played(source, workers=4)) == {"t0": 2, "t1": 2, "t2": 2}
    with pytest.raises(ValueError, match="a group of 0 workers"):
        independent(["a"], lambda key: READ, group=0)


def test_phases_of_a_key_wait_for_its_own_group_only(played):
    def seconds(what):
        return 100.0 if what.key == "a" else 0.1

    source = independent(["a", "b"], lambda key: phases(repeat(WRITE, 2), READ), group=2)
    ops = played(source, workers=4, seconds=seconds)
    assert max(op.ended_ns for op in ops if op.key == "b") < 10**9


# -- what does not work --------------------------------------------------------------------------------------------------------


def test_workers_that_all_wait_for_one_another_are_found(played):
    class Never:
        def next(self, context):
            return Pending(), self

    with pytest.raises(GeneratorStuck, match="all 3 workers wait for one another"):
        played(Never())
