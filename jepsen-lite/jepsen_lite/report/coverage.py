"""Coverage of runs: which faults struck nodes in which state, and how operations ended.

Pure, and computed from data that every run keeps. The state of a struck node is its last observation before the strike; nodes are
observed a few times a second, so a strike right after a change counts for the state before. Strikes at links count for both ends.
A pair that never occurred is a hole only if it is possible. The possible pairs are not known here, so holes are shown and not
counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kraftlab.checking.facts import Observation, Strike

from ..history import FAIL, INFO, OK

LEADS, FOLLOWS, SEEKS, BROKER, DOWN, UNSEEN = "leads", "follows", "knows no leader", "broker", "down", "not seen yet"
STATES = (LEADS, FOLLOWS, SEEKS, BROKER, DOWN, UNSEEN)
OUTCOMES = (OK, FAIL, INFO)
Pair = tuple[str, str]
WIDTH, HEIGHT = 720, 140


class RunPairs(msgspec.Struct, frozen=True):
    """The pairs that one run covers: (fault, state) and (function, outcome), each with its count."""

    strikes: dict[Pair, int]
    outcomes: dict[Pair, int]


class Table(msgspec.Struct, frozen=True):
    """Counts over all runs: a row has a name and one number per column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]


class Growth(msgspec.Struct, frozen=True):
    """A curve as an SVG path, and its ticks: (y, text)."""

    width: int
    height: int
    path: str
    ticks: tuple[tuple[int, str], ...]


class Coverage(msgspec.Struct, frozen=True):
    """Counts over all runs. `pairs`: after each run, oldest first, the number of pairs of both kinds covered so far."""

    strikes: Table
    outcomes: Table
    pairs: tuple[int, ...]


def states_struck(strikes: Iterable[Strike], observations: Iterable[Observation]) -> dict[Pair, int]:
    """Count the strikes by fault and state of the struck node."""
    by_node: dict[int, list[Observation]] = {}
    for seen in sorted(observations, key=lambda observation: observation.at_ns):
        by_node.setdefault(seen.node, []).append(seen)
    voters = {seen.node for node in by_node.values() for seen in node if seen.is_up and seen.leader >= 0}
    times = {node: [seen.at_ns for seen in states] for node, states in by_node.items()}
    counts: Counter[Pair] = Counter()
    for strike in strikes:
        if not strike.error:
            for node in {*strike.nodes, *(end for link in strike.links for end in link)}:
                place = bisect_left(times.get(node, []), strike.begin_ns)
                counts[strike.kind, _state(by_node[node][place - 1], node in voters) if place else UNSEEN] += 1
    return dict(counts)


def _state(seen: Observation, speaks_of_leaders: bool) -> str:
    if not seen.is_up:
        return DOWN
    if seen.leader == seen.node:
        return LEADS
    if seen.leader >= 0:
        return FOLLOWS
    return SEEKS if speaks_of_leaders else BROKER


def coverage(runs: Sequence[RunPairs]) -> Coverage:
    """Combine these runs, oldest first."""
    pairs: set[tuple[str, Pair]] = set()
    grown = []
    for run in runs:
        pairs |= {("strike", pair) for pair in run.strikes} | {("outcome", pair) for pair in run.outcomes}
        grown.append(len(pairs))
    return Coverage(_table((run.strikes for run in runs), STATES), _table((run.outcomes for run in runs), OUTCOMES), tuple(grown))


def growth(pairs: Sequence[int]) -> Growth:
    """Return a curve with a step up at each run that covers a new pair."""
    left, top, bottom = 44, 10, HEIGHT - 20
    most = max(*pairs, 1)
    step = (WIDTH - left) / max(len(pairs) - 1, 1)
    path = "".join(
        f"{'H' if place else 'M'}{left + place * step:.1f}{'V' if place else ','}{bottom - (bottom - top) * count / most:.1f}"
        for place, count in enumerate(pairs)
    )
    return Growth(WIDTH, HEIGHT, path, ((bottom, "0"), (top, str(most))))


def _table(counts: Iterable[dict[Pair, int]], columns: Sequence[str]) -> Table:
    """Return a table without columns that no run covers; columns of outcomes always stay."""
    total: Counter[Pair] = Counter()
    for each in counts:
        total.update(each)
    used = tuple(column for column in columns if column in OUTCOMES or any(pair[1] == column for pair in total))
    rows = sorted({row for row, _ in total})
    return Table(used, tuple((row, tuple(total[row, column] for column in used)) for row in rows))
