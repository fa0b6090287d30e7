"""Compare bins, rates, samples and curves with counts by hand."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jepsen_lite.history import History, Op
from jepsen_lite.report import curves
from kraftlab.checking.facts import Observation

MS = 1_000_000
SPAN_NS = 3_000 * MS


def history_of(seed: int) -> History:
    chance = random.Random(seed)
    ops = []
    for index in range(chance.randrange(60)):
        begin = chance.randrange(SPAN_NS)
        end = chance.randint(begin, SPAN_NS)
        f, outcome = chance.choice(("get", "set")), chance.choice(("ok", "fail", "info"))
        ops.append(Op(index=index, process=index, f=f, outcome=outcome, invoked_ns=begin, ended_ns=end))
    return History(ops)


histories = st.integers(0, 10**9).map(history_of)


@given(st.integers(1, 10**13), st.integers(1, 200))
def test_a_bin_is_the_least_round_number_of_milliseconds_that_is_wide_enough(span_ns: int, bins_max: int) -> None:
    rounds = [factor * 10**decade * MS for decade in range(9) for factor in (1, 2, 5)]
    assert curves.bin_width_ns(span_ns, bins_max) == next(width for width in rounds if width * bins_max >= span_ns)


@given(histories)
def test_rates_count_every_operation_once_where_it_ended(history: History) -> None:
    width_ns = curves.bin_width_ns(SPAN_NS)
    rates = curves.rates(history, width_ns, SPAN_NS)
    assert {(each.f, each.outcome): sum(each.counts) for each in rates} == Counter((op.f, op.outcome) for op in history)
    last = len(rates[0].counts) - 1 if rates else 0
    for each in rates:
        places = Counter(min(op.ended_ns // width_ns, last) for op in history if (op.f, op.outcome) == (each.f, each.outcome))
        assert {place: count for place, count in enumerate(each.counts) if count} == places


@given(histories)
def test_quantiles_of_a_bin_are_those_of_its_ok_operations(history: History) -> None:
    found = curves.quantiles(history, 500 * MS)
    assert sum(each.count for each in found) == history.counts()["ok"]
    for each in found:
        took = sorted(
            (op.ended_ns - op.invoked_ns) // 1000
            for op in history
            if op.outcome == "ok" and op.ended_ns // (500 * MS) == each.bin
        )
        assert each.count == len(took)
        assert each.latencies_us[-1] == took[-1]
        for share, latency_us in zip((50, 95, 99), each.latencies_us, strict=False):
            assert sum(other <= latency_us for other in took) * 100 >= share * len(took)


def test_quantiles_overall_of_nothing_are_none() -> None:
    assert curves.overall([]) == curves.Quantiles(0, 0, ())


@given(histories, st.integers(1, 20))
def test_a_sample_keeps_what_is_named_the_slowest_and_every_nth(history: History, drawn_max: int) -> None:
    named = frozenset(op.index for op in history[:1])
    found = curves.sample(history, named, SPAN_NS, drawn_max)
    kept = {op.index for op in found.ops}
    if len(history) <= drawn_max:
        assert (kept, found.step) == ({op.index for op in history}, 1)
        return
    assert named <= kept
    assert {op.index for op in history if op.index % found.step == 0} <= kept
    assert len(history) / found.step <= drawn_max
    slowest = max(op.ended_ns - op.invoked_ns for op in history)
    assert any(op.ended_ns - op.invoked_ns == slowest for op in found.ops)


def test_a_large_sample_stays_small() -> None:
    ops = [Op(index=n, process=0, f="get", outcome="ok", invoked_ns=n * MS, ended_ns=n * MS + 1) for n in range(50_000)]
    found = curves.sample(ops, frozenset(), 50_000 * MS)
    assert found.step == 5
    assert 10_000 <= len(found.ops) <= 10_000 + curves.SLOWEST_BINS


def _seen(at_ms: int, high_watermark: int, log_end: int, *, is_up: bool = True) -> Observation:
    return Observation(at_ns=at_ms * MS, node=1, is_up=is_up, high_watermark=high_watermark, log_end=log_end)


def test_a_curve_has_the_points_at_which_something_changed_and_the_last() -> None:
    found = curves.offset_curves([_seen(0, 1, 2), _seen(1, 1, 2), _seen(2, 5, 6, is_up=False), _seen(3, 2, 2), _seen(4, 2, 2)])
    assert found == (curves.Curve(1, ((0, 1, 2), (2000, -1, -1), (3000, 2, 2), (4000, 2, 2))),)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    (found,) = curves.offset_curves([_seen(at, at, at) for at in range(999)], points_max=100)
    assert len(found.points) <= 101
    assert found.points[0] == (0, 0, 0)
    assert found.points[-1] == (998_000, 998, 998)


def test_a_node_that_never_reported_its_log_has_no_curve() -> None:
    assert curves.offset_curves([_seen(0, -1, -1)]) == ()


def shown(at_ms: int, clock_ahead_ms: int | None, node: int = 1) -> Observation:
    return Observation(at_ns=at_ms * MS, node=node, is_up=True, clock_ahead_ms=clock_ahead_ms)


def test_clocks_go_ahead_of_where_they_were_first_seen_and_keep_the_points_at_which_they_bend() -> None:
    clocks = curves.clock_curves([shown(at_ms, 500 + (0 if at_ms < 50 else 100)) for at_ms in range(0, 100, 10)])
    assert [(clock.node, clock.points) for clock in clocks] == [(1, ((0, 0), (40_000, 0), (50_000, 100), (90_000, 100)))]


def test_clocks_that_run_true_but_for_their_grain_are_not_drawn() -> None:
    assert curves.clock_curves([shown(0, 0), shown(10, 0), shown(20, -1)]) == ()
    assert curves.clock_curves([shown(0, None), shown(10, None)]) == ()


def test_a_wrong_clock_is_drawn_beside_the_right_ones() -> None:
    clocks = curves.clock_curves([shown(0, 0), shown(0, 7, node=2), shown(10, 30), shown(10, 7, node=2)])
    assert [(clock.node, clock.points) for clock in clocks] == [(1, ((0, 0), (10_000, 30))), (2, ((0, 0), (10_000, 0)))]
