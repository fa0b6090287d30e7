"""Test generators through the workers that use them."""

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
    delay,
    generator,
    independent,
    limit,
    mix,
    repeat,
    stagger,
    time_limit,
    until_ok,
)
from jepsen_lite.scheduler import GeneratorStuck
from jepsen_lite.workloads.callers import repeated_until_ok

READ, WRITE, LIST = Invocation("read"), Invocation("write"), Invocation("list")


def numbered(f):
    """Return `count` invocations of one function, with values from 0 up."""
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


# -- limits and repetition -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 5))
def test_limit_gives_at_most_its_count_and_at_most_its_source(played, count, there, workers):
    ops = played(limit(count, numbered("read")(there)), workers=workers)
    assert sorted(op.value for op in ops) == list(range(min(count, there)))


@given(st.integers(0, 8), st.integers(1, 4))
def test_repeat_gives_the_first_so_often(played, count, length):
    assert [op.value for op in played(repeat(numbered("read")(length), count))] == [0] * count


@given(st.integers(1, 6))
def test_delay_sets_invocations_of_all_workers_apart(played, workers):
    ops = played(delay(0.5, numbered("read")(10)), workers=workers)
    assert [op.invoked_ns for op in ops] == [number * 500_000_000 for number in range(10)]


def test_stagger_comes_to_the_rate_over_all_workers_and_never_waits_twice_as_long(played):
    ops = played(stagger(0.02, numbered("read")(2_000)), workers=6)
    assert ops[-1].invoked_ns / 1e9 == pytest.approx(40, rel=0.05)
    assert max(after.invoked_ns - before.invoked_ns for before, after in pairwise(ops)) <= 40_000_000


def test_delays_by_slow_workers_are_made_up_for_within_limits(played):
    ops = played(stagger(0.01, numbered("read")(100)), workers=1, seconds=lambda what: 10.0 if what.value == 0 else 0.001)
    at_once = [op for op in ops[1:] if op.invoked_ns < 10_050_000_000]
    assert 5 <= len(at_once) <= 40


@settings(max_examples=40)
@given(st.floats(0.0, 1.0), st.integers(1, 4))
def test_nothing_begins_after_the_time_limit(played, seconds, workers):
    ops = played([WRITE, time_limit(seconds, repeat(READ))], workers=workers)
    begun = [op.invoked_ns for op in ops[1:]]
    assert all(at <= 10_000_000 + seconds * 1e9 for at in begun)
    assert len(begun) >= workers * int(seconds * 100 - 2)


def test_in_the_end_each_is_asked_until_ok_and_all_are_given_up_together(played):
    outcomes = iter(["fail", "ok", "ok"])
    ops = played(repeated_until_ok(READ, WRITE), workers=1, outcome=lambda _: next(outcomes))
    assert functions(ops) == ["read", "read", "write"]
    ops = played(repeated_until_ok(READ, WRITE), workers=1, outcome=lambda _: "fail")
    assert set(functions(ops)) == {"read"}
    assert ops[-1].invoked_ns <= 30e9


def test_until_ok_goes_on_until_one_has_ended_as_ok(played):
    outcomes = iter(["fail", "info", "fail", "ok", "ok"])
    ops = played([until_ok(repeat(READ)), WRITE], workers=1, outcome=lambda _: next(outcomes))
    assert functions(ops) == ["read"] * 4 + ["write"]


# -- one of several ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers())
def test_a_mix_gives_all_of_each(played, lengths, workers, seed):
    sources = [numbered(str(place))(length) for place, length in enumerate(lengths)]
    ops = played(mix(*sources), workers=workers, seed=str(seed))
    for place, length in enumerate(lengths):
        assert sorted(op.value for op in ops if op.f == str(place)) == list(range(length))
    assert len(ops) == sum(lengths)


def test_a_mix_keeps_to_its_weights_and_to_the_seed(played):
    source = limit(3_000, mix(repeat(READ), repeat(WRITE), weights=(3, 1)))
    counts = Counter(functions(played(source)))
    assert counts["read"] / counts["write"] == pytest.approx(3, rel=0.15)
    assert functions(played(source)) == functions(played(source)) != functions(played(source, seed="1"))
    with pytest.raises(ValueError, match="2 sources and 1 weights"):
        mix(READ, WRITE, weights=(1,))


def test_any_of_takes_what_is_there_and_else_waits_for_the_soonest(played):
    ops = played(any_of(delay(10, numbered("slow")(3)), delay(1, numbered("quick")(12))), workers=2)
    assert [op.invoked_ns // 10**9 for op in ops if op.f == "slow"] == [0, 10, 20]
    assert [op.invoked_ns // 10**9 for op in ops if op.f == "quick"] == list(range(12))


# -- one after the other -------------------------------------------------------------------------------------------------------


def test_a_sequence_goes_on_while_its_last_operation_is_under_way(played):
    slow, quick = played([READ, WRITE], workers=2, seconds=lambda what: 5.0 if what.f == "read" else 0.1)
    assert quick.invoked_ns == 0 and slow.ended_ns == 5 * 10**9


# -- keys ----------------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 9), st.integers(0, 60), st.integers())
def test_groups_of_workers_go_from_key_to_key(played, workers, group, per_key, count, seed):
    chance = random.Random(seed)

    def source_of(key):
        return limit(per_key, lambda _: Invocation("read", value=key))

    source = independent(lambda number: f"k{number}", source_of, group=group)
    ops = played(
        limit(count, source), workers=workers, seconds=lambda _: chance.random(), outcome=lambda _: chance.choice(["ok", "info"])
    )
    per_keys = Counter(op.key for op in ops)
    assert sum(per_keys.values()) == count
    assert sum(found < per_key for found in per_keys.values()) <= -(-workers // group), "each group is at one key"
    assert set(per_keys) == {f"k{number}" for number in range(len(per_keys))}
    assert all(op.value == op.key for op in ops)
    groups = defaultdict(set)
    for op in ops:
        groups[op.key].add(op.process % workers // group)
    assert all(len(found) == 1 for found in groups.values())


def test_a_group_has_workers():
    with pytest.raises(ValueError, match="a group of 0 workers"):
        independent(str, lambda key: READ, group=0)


# -- what does not work --------------------------------------------------------------------------------------------------------


def test_workers_that_all_wait_for_one_another_are_found(played):
    class Never:
        def next(self, context):
            return Pending(), self

    with pytest.raises(GeneratorStuck, match="all 3 workers wait for one another"):
        played(Never())
