"""Throttles hold over every copy, however small, and starve nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.replication.byte_gate import ByteGate
from kraftlab.broker.replication.throttle import CREDIT_S, ByteBudget, RateMeter
from kraftlab.config.throttled_replicas import ThrottledReplicas

RATES = st.sampled_from([1_000.0, 37_000.0, 100_000.0, 1_000_000.0, 50_000_000.0])


def copy(budget: ByteBudget, batches: list[int], start_s: float, round_trip_s: float = 0.002) -> list[tuple[float, int]]:
    """Copies whole batches one claimant's way; (time, bytes so far) after each round."""
    now, done, position = start_s, 0, 0
    history = []
    budget.enter("a", 1, now)
    while position < len(batches):
        now = max(now, budget.ready_at(now))
        granted = budget.take("a", 1 << 20, now)
        assert granted, "ready_at is the time at which something is granted"
        used = batches[position]
        position += 1
        while position < len(batches) and used + batches[position] <= granted:
            used += batches[position]
            position += 1
        now += round_trip_s
        budget.settle("a", granted, used, now)
        done += used
        history.append((now - start_s, done))
    budget.leave("a", now)
    return history


@given(RATES, st.lists(st.integers(61, 200_000), min_size=1, max_size=200), st.floats(0, 1000))
def test_a_copy_stays_within_rate_times_time_plus_one_batch(rate: float, batches: list[int], idle_s: float) -> None:
    budget = ByteBudget(rate, 0.0)
    for elapsed_s, done in copy(budget, batches, idle_s):
        assert done <= rate * elapsed_s * 1.1 + max(batches)


@given(st.sampled_from([20_000.0, 100_000.0, 400_000.0]), st.integers(100, 5_000), st.integers(200, 400))
def test_a_copy_is_not_slower_than_nine_tenths_of_the_rate(rate: float, batch: int, count: int) -> None:
    history = copy(ByteBudget(rate, 0.0), [batch] * count, 0.0)
    elapsed_s, done = history[-1]
    assert done >= rate * (elapsed_s - 0.1) * 0.9


@given(RATES, st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(1, 1 << 20), st.integers(0, 1 << 20)), max_size=100))
def test_no_pattern_of_claims_gets_more_than_the_rate_and_what_is_kept(rate: float, claims: list[tuple[float, int, int]]) -> None:
    budget, now, used, largest = ByteBudget(rate, 0.0), 0.0, 0, 0
    for pause_s, wanted, batch in claims:
        now += pause_s
        budget.enter("a", 1, now)
        granted = budget.take("a", wanted, now)
        if granted:
            budget.settle("a", granted, batch, now)
            used, largest = used + batch, max(largest, batch)
        budget.leave("a", now)
        assert used <= rate * now + max(rate * CREDIT_S, 1) + largest


@pytest.mark.parametrize("batch", [100, 20_000])
def test_claimants_share_by_the_number_of_replicas_they_ask_for_and_none_starves(batch: int) -> None:
    budget = ByteBudget(100_000.0, 0.0)
    weights = {"one": 1, "another": 1, "two": 2}
    got = dict.fromkeys(weights, 0)
    for key, weight in weights.items():
        budget.enter(key, weight, 0.0)
    for tick in range(1, 6000):
        for key in weights:
            granted = budget.take(key, 1 << 20, tick * 0.01)
            if granted:
                used = max(granted, batch)
                budget.settle(key, granted, used, tick * 0.01)
                got[key] += used
    total = sum(got.values())
    for key, weight in weights.items():
        assert got[key] == pytest.approx(total * weight / 4, rel=0.1)


def test_a_newcomer_neither_waits_for_what_others_got_before_nor_takes_their_turns() -> None:
    budget = ByteBudget(100_000.0, 0.0)
    got = {"old": 0, "new": 0}
    budget.enter("old", 1, 0.0)
    for tick in range(1, 4000):
        if tick == 2000:
            got["old"] = 0
            budget.enter("new", 1, tick * 0.01)
        for key in got:
            granted = budget.take(key, 1 << 20, tick * 0.01) if key == "old" or tick >= 2000 else 0
            got[key] += granted
    assert got["new"] == pytest.approx(got["old"], rel=0.1)


def test_a_claimant_that_works_long_with_its_grant_does_not_delay_others() -> None:
    """As a replica does whose leader does not answer, or whose disk is slow."""
    budget, got = ByteBudget(100_000.0, 0.0), 0
    for key in ("hangs", "copies"):
        budget.enter(key, 1, 0.0)
    has_begun = False
    for step in range(1000):
        now = step / 100
        has_begun = has_begun or bool(budget.take("hangs", 10_000, now))
        granted = budget.take("copies", 10_000, now)
        if granted:
            budget.settle("copies", granted, granted, now)
            got += granted
    assert has_begun
    assert got >= 100_000 * 10 * 0.9
    budget.settle("hangs", 10_000, 0, 10.0)
    shares = dict.fromkeys(("hangs", "copies"), 0)
    for step in range(1000, 2000):
        for key in shares:
            shares[key] += budget.take(key, 10_000, step / 100)
    assert shares["hangs"] == pytest.approx(shares["copies"], rel=0.1), "it does not get what it missed"


def test_a_debt_is_paid_even_while_nobody_waits() -> None:
    budget = ByteBudget(1_000.0, 0.0)
    budget.enter("a", 1, 0.0)
    granted = budget.take("a", 1, 1.0)
    budget.settle("a", granted, 10_000, 1.0)
    budget.leave("a", 1.0)
    budget.enter("a", 1, 5.0)
    assert budget.take("a", 1, 5.0) == 0
    assert budget.ready_at(5.0) == pytest.approx(10.55, abs=0.1)


def test_a_rate_of_zero_moves_nothing_and_no_rate_holds_nothing_back() -> None:
    budget = ByteBudget(0.0, 0.0)
    budget.enter("a", 1, 0.0)
    assert budget.take("a", 1, 100.0) == 0
    assert budget.ready_at(100.0) == float("inf")
    budget.set_rate(None, 100.0)
    assert budget.take("a", 1 << 30, 100.0) == 1 << 30


def test_the_meter_shows_the_rate_of_the_last_seconds() -> None:
    meter = RateMeter(0.0)
    for tick in range(100):
        meter.record(1_000, tick * 0.1)
    assert meter.bytes_per_second(10.0) == pytest.approx(10_000, rel=0.1)
    assert meter.bytes_per_second(20.0) == 0


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        (None, False),
        ("", False),
        ("*", True),
        ("0:1,3:2", True),
        (" 3:2 ", True),
        ("3:1,2:2", False),
        ("rubbish", False),
    ],
)
def test_a_list_of_throttled_replicas_names_partition_and_broker(text: str | None, covered: bool) -> None:
    assert ThrottledReplicas.parse(text).covers(3, 2) is covered


class Mover:
    """Copies batches of one size through a gate, as a move does, until it is cancelled."""

    def __init__(self, gate: ByteGate, batch: int, pause_s: float) -> None:
        self.copied = 0
        self._gate, self._batch, self._pause_s = gate, batch, pause_s

    async def run(self) -> None:
        with self._gate.claim(self) as claim:
            while True:
                granted = await claim.take(16 << 20)
                used = max(granted // self._batch, 1) * self._batch
                await trio.sleep(self._pause_s)
                self.copied += used
                claim.settle(granted, used)


async def move_together(movers: Sequence[Mover], seconds: float) -> None:
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for mover in movers:
                nursery.start_soon(mover.run)


def in_virtual_time(work: Callable[[], Awaitable[None]]) -> None:
    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("count", [1, 4, 16])
@settings(deadline=None, max_examples=8)
@given(
    rate=st.integers(5 << 20, 500 << 20),
    batches=st.lists(st.integers(100, 256 * 1024), min_size=16, max_size=16),
    pauses_s=st.lists(st.floats(0, 0.02), min_size=16, max_size=16),
)
def test_movers_together_keep_to_the_limit_and_share_it(count: int, rate: int, batches: list[int], pauses_s: list[float]) -> None:
    async def measure() -> None:
        gate = ByteGate()
        gate.set_rate(rate)
        movers = [Mover(gate, batch, pause_s) for batch, pause_s in zip(batches[:count], pauses_s, strict=False)]
        await move_together(movers, 10)
        copied = [mover.copied for mover in movers]
        assert 0.95 * 10 * rate <= sum(copied) <= 1.05 * 10 * rate
        assert max(copied) - min(copied) <= 0.25 * 10 * rate / count + 2 * max(batches), "each gets about as much"

    in_virtual_time(measure)


@pytest.mark.parametrize("first, second", [(1.0, 50e6), (0.0, 50e6), (200e6, 10e6), (None, 10e6), (10e6, None)])
def test_a_change_of_the_rate_holds_at_once(first: float | None, second: float | None) -> None:
    async def measure() -> None:
        gate = ByteGate()
        gate.set_rate(first)
        movers = [Mover(gate, 10_000, 0.001) for _ in range(4)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move_together, movers, 3)
            await trio.sleep(1)
            gate.set_rate(second)
            before = sum(mover.copied for mover in movers)
            await trio.sleep(2)
            copied = sum(mover.copied for mover in movers) - before
        if second is None:
            assert copied > 1e9
        else:
            grants_on_their_way = 4 * min((first or 1e9) * 0.1, 16 << 20)
            assert 0.95 * 2 * second <= copied <= 1.02 * 2 * second + grants_on_their_way

    in_virtual_time(measure)
