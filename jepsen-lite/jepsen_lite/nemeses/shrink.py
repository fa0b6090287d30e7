"""The smallest part that still fails: delta debugging (Zeller 2002). Pure.

Theory of operation. `smallest` looks for a subsequence that still fails although no single item of it can go: halves, quarters, …
of what is left are tried alone and left out, ever finer ones, until single items cannot be left out. What was tried is not tried
again. `simplest` then walks a table of simplifications, of which each may be applied as long as the result still fails. What
fails by chance is asked several times by the caller's `fails`, which is the only thing here that costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

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
