"""The smallest part that still fails: delta debugging (Zeller 2002). Pure.

Theory of operation. `smallest` looks for a subsequence that still fails although no single item of it can go: halves, quarters, …
of what is left are tried alone and left out, ever finer ones, until single items cannot be left out. What was tried is not tried
again. `simplest` then walks a table of simplifications, of which each may be applied as long as the result still fails. What
fails by chance is asked several times by the caller's `fails`, which is the only thing here that costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec

from ..fault_plan import Action
from ..workload import Options

T = TypeVar("T")
State = TypeVar("State")


def smallest(items: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """A 1-minimal subsequence of `items` that fails: leaving out any one of its items makes it pass. `items` itself must fail.

    At most n² + 3n calls of `fails` for n items, of the order of m·log n where m items are left. Empty if nothing fails too.
    """
    tried: dict[tuple[int, ...], bool] = {}

    def still_fails(places: tuple[int, ...]) -> bool:
        if places not in tried:
            tried[places] = fails(tuple(items[place] for place in places))
        return tried[places]

    if still_fails(()):
        return ()
    left = tuple(range(len(items)))
    parts = 2
    while len(left) >= 2:
        cuts = [len(left) * part // parts for part in range(parts + 1)]
        pieces = [left[begin:end] for begin, end in pairwise(cuts)]
        alone = next((piece for piece in pieces if still_fails(piece)), None)
        if alone is not None:
            left, parts = alone, 2
            continue
        rests = (tuple(place for place in left if place not in piece) for piece in map(set, pieces))
        rest = next((rest for rest in rests if still_fails(rest)), None)
        if rest is not None:
            left, parts = rest, max(parts - 1, 2)
        elif parts < len(left):
            parts = min(parts * 2, len(left))
        else:
            break
    return tuple(items[place] for place in left)


def simplest(state: State, steps: Iterable[Callable[[State], State | None]], fails: Callable[[State], bool]) -> State:
    """The state after as many of the steps, in their order, as leave it failing. A step gives None if it has nothing to do; one
    that helped is taken again, as long as it helps.
    """
    for step in steps:
        while (simpler := step(state)) is not None and simpler != state and fails(simpler):
            state = simpler
    return state


# -- of a run ------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What a run is made of that may become less."""

    options: Options
    actions: tuple[Action, ...]


def smallest_case(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A case that fails with as few faults, and then as little time, clients, operations and nodes, as `fails` lets go.

    All faults of a kind are left out together first, since most kinds have nothing to do with it; single ones again at the end,
    since a smaller cluster may need fewer. `case` itself must fail.
    """

    def with_actions(case: Case) -> Case:
        options = case.options
        return Case(options, smallest(case.actions, lambda actions: fails(Case(options, actions))))

    kinds = dict.fromkeys(action.kind for action in case.actions)
    fewer = with_actions(simplest(case, [partial(_without, kind) for kind in kinds], fails))
    smaller = simplest(fewer, STEPS, fails)
    return smaller if smaller.options == fewer.options else with_actions(smaller)


def _without(kind: str, case: Case) -> Case:
    return Case(case.options, tuple(action for action in case.actions if action.kind != kind))


def _until_the_last_fault_is_over(case: Case) -> Case | None:
    end_s = max((action.at_ms + action.for_ms for action in case.actions), default=0) / 1000 + _AFTERWARDS_S
    return _changed(case, time_s=end_s) if end_s < case.options.time_s else None


def _half_as_long(case: Case) -> Case | None:
    half_s = case.options.time_s / 2
    last_s = max((action.at_ms for action in case.actions), default=0) / 1000
    return _changed(case, time_s=half_s) if half_s >= max(_TIME_MIN_S, last_s) else None


def _changed(case: Case, **options: object) -> Case:
    return Case(msgspec.structs.replace(case.options, **options), case.actions)


_AFTERWARDS_S = 2.0
"""So long clients go on after the last fault."""
_RATE_MIN = 10.0
_TIME_MIN_S = 0.5
STEPS: tuple[Callable[[Case], Case | None], ...] = (
    _until_the_last_fault_is_over,
    _half_as_long,
    lambda case: _changed(case, concurrency=case.options.concurrency // 2) if case.options.concurrency > 1 else None,
    lambda case: _changed(case, rate=case.options.rate / 2) if case.options.rate / 2 >= _RATE_MIN else None,
    lambda case: _changed(case, brokers=case.options.brokers - 1) if case.options.brokers > 1 else None,
    lambda case: _changed(case, controllers=case.options.controllers - 2) if case.options.controllers > 2 else None,
)
"""Less of everything but faults."""
