"""Replication factors that changed by accident (KIP-860).

A tool that reads a partition's replicas during a reassignment sees the old and the new replicas together. KIP-860 describes two
ways to that reading: list the reassignments (none runs), one starts, describe the partition; or describe the partition while one
runs, it ends, list the reassignments (none runs). The tool then requests a list that contains that union, and the partition keeps
unwanted replicas.

*union_race*: a request for a list with all original and adding replicas of an earlier reassignment of the same partition that had
replicas to remove, and that was running when the request came or had ended at most a window before. The confidence is high.

*rf_change*: a reassignment that ended, or will end, with another number of replicas than the partition had settled on. A cancel
can be one: Kafka's cancel restores an inflated list if a running target had been replaced. The confidence is medium, and low if
most of the topic has that number now, as after a change on purpose.

*sibling_mismatch*: a partition with another number of replicas than the most frequent one of its topic. The confidence is high,
and low if the most frequent number has no majority.

One reassignment is one finding, of the first class that fits. An earlier reassignment that only added replicas does not make a
race, since the union was its target. A superseded reassignment has not settled and never is an `rf_change`; its request can still
be a `union_race`.

These rules work on rows in memory. `drift_arrow` finds the few rows of large tables that the rules have to look at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .life_cycles import DELETED, SUPERSEDED, UNKNOWN, Reassignment

UNION_RACE, RF_CHANGE, SIBLING_MISMATCH = "union_race", "rf_change", "sibling_mismatch"
HIGH, MEDIUM, LOW = "high", "medium", "low"

RACE_WINDOW_MS = 300_000
"""Time after the end of a reassignment in which a request can still come from a reading made during the reassignment."""


class SettledPartition(NamedTuple):
    """An existing partition and its settled number of replicas."""

    topic_id: str
    topic: str | None
    partition: int
    rf: int


class Drift(NamedTuple):
    """A row of `gold.rf_drift`. `rf_mode_of_topic` is None if the topic was deleted."""

    topic: str | None
    partition: int
    rf: int
    rf_expected: int
    rf_mode_of_topic: int | None
    drift_class: str
    culprit_reassignment_id: str | None
    offset: int | None
    confidence: str


class Mode(NamedTuple):
    """The most frequent number of replicas of a topic (of two, the smaller), and whether more than half of the partitions have
    it.
    """

    rf: int
    is_majority: bool


PlaceOfPartition = tuple[str, int]
"""(topic id, partition)."""


def of_cycles(
    reassignments: Iterable[Reassignment], modes: Mapping[str, Mode], race_window_ms: int = RACE_WINDOW_MS
) -> tuple[list[Drift], dict[PlaceOfPartition, Drift]]:
    """Return the findings about reassignments, and the last finding of each partition. Pass all reassignments of a partition or
    none.
    """
    histories: dict[PlaceOfPartition, list[Reassignment]] = defaultdict(list)
    for cycle in reassignments:
        histories[cycle.topic_id, cycle.partition].append(cycle)
    found = []
    culprits: dict[PlaceOfPartition, Drift] = {}
    for key, cycles in histories.items():
        for cycle in cycles:
            drift = _of_cycle(cycle, cycles, modes, race_window_ms)
            if drift is not None:
                found.append(drift)
                culprits[key] = max(drift, culprits.get(key, drift), key=lambda each: each.offset or 0)
    return found, culprits


def of_siblings(
    settled: Iterable[SettledPartition], modes: Mapping[str, Mode], culprits: Mapping[PlaceOfPartition, Drift]
) -> Iterator[Drift]:
    """Yield the findings about partitions that differ from most of their topic."""
    for each in settled:
        mode = modes[each.topic_id]
        if each.rf != mode.rf:
            culprit = culprits.get((each.topic_id, each.partition))
            yield Drift(
                each.topic,
                each.partition,
                each.rf,
                mode.rf,
                mode.rf,
                SIBLING_MISMATCH,
                culprit.culprit_reassignment_id if culprit else None,
                culprit.offset if culprit else None,
                HIGH if mode.is_majority else LOW,
            )


def place(drift: Drift) -> tuple[int, bool, str, int]:
    """Return the sort key of a finding."""
    offset = -1 if drift.offset is None else drift.offset
    return offset, drift.drift_class == SIBLING_MISMATCH, drift.topic or "", drift.partition


def _of_cycle(cycle: Reassignment, cycles: list[Reassignment], modes: Mapping[str, Mode], race_window_ms: int) -> Drift | None:
    rf = final_rf(cycle)
    if cycle.status == UNKNOWN or rf is None or cycle.rf_before is None:
        return None
    mode = modes.get(cycle.topic_id)
    if any(_is_union_race(cycle, earlier, race_window_ms) for earlier in cycles):
        drift_class, confidence = UNION_RACE, HIGH
    elif rf != cycle.rf_before and cycle.status not in (SUPERSEDED, DELETED):
        drift_class, confidence = RF_CHANGE, LOW if mode is not None and mode == (rf, True) else MEDIUM
    else:
        return None
    offset = cycle.end_offset if cycle.start_offset is None else cycle.start_offset
    return Drift(
        cycle.topic,
        cycle.partition,
        rf,
        cycle.rf_before,
        None if mode is None else mode.rf,
        drift_class,
        cycle.reassignment_id,
        offset,
        confidence,
    )


def final_rf(cycle: Reassignment) -> int | None:
    """Return the number of replicas that a reassignment ended with, or will end with if nothing interferes."""
    if cycle.rf_after is not None:
        return cycle.rf_after
    return None if cycle.target is None else len(cycle.target)


def _is_union_race(cycle: Reassignment, earlier: Reassignment, race_window_ms: int) -> bool:
    """Return whether `cycle` requests the union that a reader saw while `earlier` ran."""
    if cycle.start_offset is None or cycle.start_ms is None or not cycle.requested or not earlier.removing:
        return False
    if earlier.end_offset is None or earlier.end_ms is None or earlier.end_offset > cycle.start_offset:
        return False
    if earlier.reassignment_id == cycle.reassignment_id or earlier.orig is None or earlier.adding is None:
        return False
    union = {*earlier.orig, *earlier.adding}
    overlaps = earlier.end_offset == cycle.start_offset
    just_before = cycle.start_ms - earlier.end_ms <= race_window_ms
    return (overlaps or just_before) and union.issubset(cycle.requested) and len(cycle.requested) > (cycle.rf_before or 0)


def modes_of(counts: Iterable[tuple[str, int, int]]) -> dict[str, Mode]:
    """Return modes by topic id. `counts` are (topic id, number of replicas, partitions that have this number), each pair once."""
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for topic_id, rf, count in counts:
        by_topic[topic_id].append((-count, rf))
    return {
        topic_id: Mode(min(counted)[1], -2 * min(counted)[0] > -sum(count for count, _ in counted))
        for topic_id, counted in by_topic.items()
    }
