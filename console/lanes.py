"""Intervals in parallel lanes: faults by kind, the leader in each node's view, and processes.

Pure. Overlapping intervals get separate lanes; a lane is free again at the end of its interval.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from kraftlab.checking.facts import Observation, Strike
from kraftlab.lab.faults.orders import OrderState

Process = TypeVar("Process", int, tuple[int, int])


class Span(msgspec.Struct, frozen=True):
    """An interval from `begin_us` to `end_us` (None: never undone). `about` selects the colour: a fault's kind or a leader's id.
    `text` is for people, `short` for narrow spans.
    """

    begin_us: int
    end_us: int | None
    about: str
    text: str
    short: str = ""


class Lane(msgspec.Struct, frozen=True):
    """Spans that do not overlap, by time."""

    label: str
    spans: tuple[Span, ...]


def packed(intervals: Sequence[tuple[int, int]]) -> list[int]:
    """Return, for each interval (begin, end) in order of begin, the lowest free lane."""
    free: list[int] = []
    ends: list[tuple[int, int]] = []
    lanes = []
    for begin, end in intervals:
        while ends and ends[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(ends)[1])
        lane = heapq.heappop(free) if free else len(ends)
        lanes.append(lane)
        heapq.heappush(ends, (max(end, begin + 1), lane))
    return lanes


def fault_lanes(strikes: Iterable[Strike], span_ns: int, names: Mapping[int, str] = {}) -> tuple[Lane, ...]:
    """Return one lane per kind in the order of their first strikes, and more where strikes of a kind overlap. Spans name
    the nodes that were hit, also if their links were cut; links alone are named as links.
    """
    kinds: dict[str, list[Strike]] = {}
    for strike in sorted(strikes, key=lambda strike: strike.begin_ns):
        if not strike.error:
            kinds.setdefault(strike.kind, []).append(strike)
    lanes = []
    for kind, struck in kinds.items():
        ends = [span_ns if strike.end_ns is None else strike.end_ns for strike in struck]
        places = packed([(strike.begin_ns, end) for strike, end in zip(struck, ends, strict=True)])
        for lane in range(max(places) + 1):
            spans = tuple(_span_of(strike, names) for strike, place in zip(struck, places, strict=True) if place == lane)
            lanes.append(Lane(kind if lane == 0 else "", spans))
    return tuple(lanes)


def _span_of(strike: Strike, names: Mapping[int, str]) -> Span:
    end_us = None if strike.end_ns is None else strike.end_ns // 1000
    short = ", ".join(names.get(node, str(node)) for node in strike.nodes) or targets_of(strike)
    return Span(strike.begin_ns // 1000, end_us, strike.kind, text_of(strike), short)


def order_lanes(orders: Iterable[OrderState], now_ms: int) -> tuple[Lane, ...]:
    """Return the lanes of orders, in µs since 1970: one per kind by name, and more where orders of a kind overlap."""
    kinds: dict[str, list[OrderState]] = {}
    for order in sorted(orders, key=lambda order: (order.order, order.begun_ms)):
        kinds.setdefault(order.order, []).append(order)
    lanes = []
    for kind, given in kinds.items():
        places = packed([(each.begun_ms, now_ms if each.ended_ms is None else each.ended_ms) for each in given])
        for lane in range(max(places) + 1):
            spans = tuple(_span_of_order(each) for each, place in zip(given, places, strict=True) if place == lane)
            lanes.append(Lane(kind if lane == 0 else "", spans))
    return tuple(lanes)


def _span_of_order(order: OrderState) -> Span:
    end_us = None if order.ended_ms is None else order.ended_ms * 1000
    short = " | ".join(",".join(name.rpartition("-")[2] for name in group) for group in order.groups)
    return Span(order.begun_ms * 1000, end_us, order.order, order.text, short)


def targets_of(strike: Strike) -> str:
    """Return the targets of a strike: "3000, 3001" or "3000→3001"."""
    links = [f"{source}→{target}" for source, target in strike.links]
    return ", ".join(links or map(str, strike.nodes))


def text_of(strike: Strike) -> str:
    """Return a strike in one line: the kind, the targets, the detail."""
    return " ".join(part for part in (strike.kind, targets_of(strike), f"({strike.detail})" if strike.detail else "") if part)


def node_lanes(observations: Iterable[Observation], names: dict[int, str], span_ns: int) -> tuple[Lane, ...]:
    """Return, for each node, its view of the leader from one change to the next. Brokers do not report a leader; their spans show
    the epoch.
    """
    by_node: dict[int, list[Observation]] = {}
    for seen in sorted(observations, key=lambda observation: observation.at_ns):
        by_node.setdefault(seen.node, []).append(seen)
    lanes = []
    for node in sorted(by_node, reverse=True):
        changes: list[Observation] = []
        for seen in by_node[node]:
            if not changes or _reported(seen) != _reported(changes[-1]):
                changes.append(seen)
        ends = [seen.at_ns for seen in changes[1:]] + [max(span_ns, changes[-1].at_ns)]
        reports_leaders = any(seen.leader >= 0 for seen in changes)
        spans = tuple(_span_of_report(seen, end_ns, reports_leaders) for seen, end_ns in zip(changes, ends, strict=True))
        lanes.append(Lane(names.get(node, f"node {node}"), spans))
    return tuple(lanes)


class LaneRecorder:
    """Lanes of nodes that are asked while somebody looks. The newest span of a node has no end: it is so now. Time without
    answers for GAP_NS, when nobody asked, is left empty. Spans that ended MEMORY_NS ago are forgotten.
    """

    GAP_NS = 5_000_000_000
    MEMORY_NS = 15 * 60 * 1_000_000_000

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[Observation, int]]] = {}
        """For each label the observations that differ from the one before, each with the time of the last equal one."""

    def add(self, label: str, seen: Observation) -> None:
        """Add what a node says now, in nanoseconds since 1970."""
        past = self._seen.setdefault(label, [])
        if past and seen.at_ns - past[-1][1] < self.GAP_NS:
            first, _ = past[-1]
            past[-1] = (first, seen.at_ns)
            if _reported(first) != _reported(seen):
                past.append((seen, seen.at_ns))
        else:
            past.append((seen, seen.at_ns))
        while past[0][1] < seen.at_ns - self.MEMORY_NS:
            past.pop(0)

    def lanes(self) -> tuple[Lane, ...]:
        """Return the lanes by label."""
        return tuple(
            Lane(label, tuple(self._spans(past))) for label, past in sorted(self._seen.items(), key=lambda each: each[0])
        )

    def _spans(self, past: list[tuple[Observation, int]]) -> Iterable[Span]:
        for at, (seen, end_ns) in enumerate(past):
            span = _span_of_report(seen, end_ns, True)
            yield span if at < len(past) - 1 else msgspec.structs.replace(span, end_us=None)


def _reported(seen: Observation) -> tuple[bool, int, int]:
    return (True, seen.leader, seen.epoch) if seen.is_up else (False, -1, -1)


def _span_of_report(seen: Observation, end_ns: int, reports_leaders: bool) -> Span:
    if not seen.is_up:
        about, text, short = "down", "does not answer", "down"
    elif seen.leader == seen.node:
        about, text, short = str(seen.leader), f"leads in epoch {seen.epoch}", f"★ {seen.epoch}"
    elif seen.leader >= 0:
        about, text, short = str(seen.leader), f"follows {seen.leader} in epoch {seen.epoch}", str(seen.epoch)
    elif reports_leaders:
        about, text, short = "", f"knows no leader in epoch {seen.epoch}", f"? {seen.epoch}"
    else:
        about, text, short = "up", f"answers, in epoch {seen.epoch}", str(seen.epoch)
    return Span(seen.at_ns // 1000, end_ns // 1000, about, text, short)


def process_lanes(spans: Iterable[tuple[Process, int, int]]) -> dict[Process, int]:
    """Return a lane for each process, from (process, begin, end) of operations; a process that has ended frees its lane."""
    whole: dict[Process, tuple[int, int]] = {}
    for process, begin, end in spans:
        first, last = whole.get(process, (begin, end))
        whole[process] = (min(first, begin), max(last, end))
    by_begin = sorted(whole, key=lambda process: (whole[process], process))
    return dict(zip(by_begin, packed([whole[process] for process in by_begin]), strict=True))
