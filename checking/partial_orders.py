"""Partial orders of an illegal history, which the report draws (as Porcupine does).

A *partial* is an order of some calls that works and cannot be continued. For each call, the longest partial that contains it is
kept, with the calls that could come next by their times but that the model refuses. Together they show why no order contains all
calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .calls import NamedModel, Operation

NODES_MAX = 50_000
"""Limit of the search; orders found until then are shown."""


class Partial(NamedTuple):
    """A start of an order that the model allows and that cannot be continued: numbers of calls, the state after each, and the
    calls that could come next by their times but are refused.
    """

    order: tuple[int, ...]
    states: tuple[str, ...]
    refused: tuple[int, ...] = ()


class Picture(NamedTuple):
    """The partials of a history. `longest[n]` is the place of the longest one that contains call n, -1 if there is none."""

    partials: tuple[Partial, ...]
    longest: tuple[int, ...]


def next_in_time(calls: Sequence[Operation], done: int) -> list[int]:
    """Return the calls that may come next: no call without a place had returned before they began."""
    left = [number for number in range(len(calls)) if not done >> number & 1]
    first_return = min((calls[number].returned for number in left), default=0)
    return [number for number in left if calls[number].invoked <= first_return]


def walked(calls: Sequence[Operation], model: NamedModel[object], order: Sequence[int]) -> Partial:
    """Walk an order that works; return it with its states and the calls that are refused after it."""
    state, done, states = model.initial(), 0, []
    for number in order:
        state = model.step(state, calls[number])
        assert state is not None, f"the order {order} does not work at {number}"
        states.append(model.describe(state))
        done |= 1 << number
    refused = tuple(
        number
        for number in next_in_time(calls, done)
        if not calls[number].is_unknown and model.step(state, calls[number]) is None
    )
    return Partial(tuple(order), tuple(states), refused)


def picture(calls: Sequence[Operation], model: NamedModel[object], *, nodes_max: int = NODES_MAX) -> Picture:
    """Search all orders of a few dozen calls, up to `nodes_max` nodes."""
    best: list[tuple[int, ...]] = [()] * len(calls)
    seen: set[tuple[int, Any]] = set()
    work: list[tuple[Any, int, tuple[int, ...]]] = [(model.initial(), 0, ())]
    nodes = 0
    while work and nodes < nodes_max:
        state, done, order = work.pop()
        nodes += 1
        ended = True
        for number in reversed(next_in_time(calls, done)):
            after = model.step(state, calls[number])
            if after is None:
                continue
            ended = False
            place = (done | 1 << number, after)
            if place not in seen:
                seen.add(place)
                work.append((after, place[0], (*order, number)))
        if ended:
            for number in order:
                if len(order) > len(best[number]):
                    best[number] = order
    kept = sorted({order for order in best if order}, key=lambda order: (-len(order), order)) or [()]
    places = {order: place for place, order in enumerate(kept)}
    partials = tuple(walked(calls, model, order) for order in kept)
    return Picture(partials, tuple(places.get(order, -1) if order else -1 for order in best))
