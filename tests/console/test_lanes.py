"""Overlapping spans have separate lanes, and a node's state lasts from one change to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.checking.facts import Observation, Strike
from kraftlab.console import lanes
from kraftlab.console.lanes import Lane, Span
from kraftlab.lab.faults.orders import OrderState

MS = 1_000_000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_intervals_of_a_lane_do_not_overlap_and_there_are_no_more_lanes_than_overlap_at_once(
    spans: list[tuple[int, int]],
) -> None:
    intervals = sorted((begin, begin + length) for begin, length in spans)
    places = lanes.packed(intervals)
    for first, (begin, end) in enumerate(intervals):
        for second in range(first):
            if places[second] == places[first]:
                other_begin, other_end = intervals[second]
                assert end <= other_begin or other_end <= begin
    most = max((sum(begin <= at < end for begin, end in intervals) for at in range(80)), default=0)
    assert len(set(places)) == most


def _strike(kind: str, begin_ms: int, end_ms: int | None, **others: object) -> Strike:
    end_ns = None if end_ms is None else end_ms * MS
    return Strike(kind=kind, begin_ns=begin_ms * MS, end_ns=end_ns, **others)  # type: ignore[arg-type]


def test_faults_have_a_lane_for_each_kind_and_another_where_a_kind_overlaps_itself() -> None:
    strikes = [
        _strike("pause", 10, 30, nodes=(1,)),
        _strike("kill", 5, None, nodes=(2, 3), detail="for good"),
        _strike("pause", 20, 40, links=((1, 2), (2, 1))),
        _strike("disk-full", 1, 1, error="needs root"),
    ]
    assert lanes.fault_lanes(strikes, 100 * MS) == (
        Lane("kill", (Span(5_000, None, "kill", "kill 2, 3 (for good)", "2, 3"),)),
        Lane("pause", (Span(10_000, 30_000, "pause", "pause 1", "1"),)),
        Lane("", (Span(20_000, 40_000, "pause", "pause 1→2, 2→1", "1→2, 2→1"),)),
    )


def test_an_isolated_node_is_named_on_its_bar_instead_of_its_links() -> None:
    isolated = _strike("isolate-leader", 1, 2, nodes=(3000,), links=((3000, 3001), (3001, 3000)), detail="from all others")
    ((span,),) = (lane.spans for lane in lanes.fault_lanes([isolated], 100 * MS, {3000: "controller 3000"}))
    assert (span.short, span.text) == ("controller 3000", "isolate-leader 3000→3001, 3001→3000 (from all others)")


def _seen(at_ms: int, node: int, leader: int, epoch: int, *, is_up: bool = True) -> Observation:
    return Observation(at_ns=at_ms * MS, node=node, is_up=is_up, leader=leader, epoch=epoch)


def test_a_node_has_a_span_for_each_leader_it_knew_and_for_its_absence() -> None:
    seen = [
        _seen(0, 1, 1, 4),
        _seen(10, 1, 1, 4),
        _seen(20, 1, -1, 5),
        _seen(30, 1, 2, 5),
        _seen(40, 1, -1, -1, is_up=False),
        _seen(50, 1, 9, 9, is_up=False),
    ]
    (lane,) = lanes.node_lanes(seen, {1: "controller-1"}, 60 * MS)
    assert lane.label == "controller-1"
    assert [(span.begin_us, span.end_us, span.about, span.text) for span in lane.spans] == [
        (0, 20_000, "1", "leads in epoch 4"),
        (20_000, 30_000, "", "knows no leader in epoch 5"),
        (30_000, 40_000, "2", "follows 2 in epoch 5"),
        (40_000, 60_000, "down", "does not answer"),
    ]


def test_a_node_that_never_reports_a_leader_shows_only_its_epoch() -> None:
    (lane,) = lanes.node_lanes([_seen(0, 0, -1, 3), _seen(10, 0, -1, 4)], {}, 20 * MS)
    assert (lane.label, [(span.about, span.text) for span in lane.spans]) == (
        "node 0",
        [("up", "answers, in epoch 3"), ("up", "answers, in epoch 4")],
    )


def test_a_process_takes_over_the_lane_of_one_that_has_ended() -> None:
    assert lanes.process_lanes([(0, 0, 10), (1, 5, 20), (7, 25, 30)]) == {0: 0, 1: 1, 7: 0}
    assert lanes.process_lanes([(0, 0, 4), (5, 10, 12), (0, 6, 10)]) == {0: 0, 5: 0}
    assert lanes.process_lanes([(0, 0, 11), (5, 10, 12)]) == {0: 0, 5: 1}


def test_orders_have_a_lane_for_each_kind_and_another_where_a_kind_overlaps_itself() -> None:
    given = (
        OrderState(1, "broker-1: killed", order="kill", groups=(("broker-1",),), begun_ms=1000, ended_ms=3000),
        OrderState(2, "slow", order="slow", groups=(("controller-3000",), ("broker-0", "broker-1")), begun_ms=500),
        OrderState(3, "broker-2: killed", order="kill", groups=(("broker-2",),), begun_ms=2000, ended_ms=None),
    )
    assert lanes.order_lanes(given, 5000) == (
        Lane("kill", (Span(1_000_000, 3_000_000, "kill", "broker-1: killed", "1"),)),
        Lane("", (Span(2_000_000, None, "kill", "broker-2: killed", "2"),)),
        Lane("slow", (Span(500_000, None, "slow", "slow", "3000 | 0,1"),)),
    )
