"""How far orders of an illegal history get: what the report draws (in the manner of Porcupine).

A *partial* is an order of some calls that works and cannot be continued. For each call the longest partial that contains it is
kept. Behind the end of a partial stand the calls that could come next as far as time goes, but that the model refuses: together
they are why there is no order of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kraftlab.checking.linearizability import Operation

from ..evidence import Orders, Partial
from ..models.model import Model

NODES_MAX = 50_000
"""Of the search; what was found till then is shown."""


class Picture(NamedTuple):
    """Of calls by number. `longest[n]` is the place in `partials` of the longest one that has call n, -1 if there is none."""

    partials: tuple[Partial, ...]
    longest: tuple[int, ...]

    def with_indices(self, indices: Sequence[int]) -> Orders:
        """The same with indices of operations instead of numbers of calls."""
        partials = [
            Partial(
                tuple(indices[number] for number in partial.order),
                partial.states,
                tuple(indices[number] for number in partial.refused),
            )
            for partial in self.partials
        ]
        return Orders(tuple(indices), tuple(partials), dict(zip(indices, self.longest, strict=True)))


def next_in_time(calls: Sequence[Operation], done: int) -> list[int]:
    """The calls that may come next: none that has no place yet had returned before they began."""
    left = [number for number in range(len(calls)) if not done >> number & 1]
    first_return = min((calls[number].returned for number in left), default=0)
    return [number for number in left if calls[number].invoked <= first_return]


def walked(calls: Sequence[Operation], model: Model[Any], order: Sequence[int]) -> Partial:
    """An order that works, with its states and what is refused behind it."""
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


def picture(calls: Sequence[Operation], model: Model[Any], *, nodes_max: int = NODES_MAX) -> Picture:
    """Searches all orders, as far as `nodes_max` goes. For a history of a few dozen calls."""
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
