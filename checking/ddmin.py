"""Delta debugging (Zeller 2002): finds the smallest part that still fails. Pure.

Theory of operation. `smallest` looks for a subsequence that still fails, and passes without any one of its items. Halves,
quarters, … of the remaining items are tried alone and left out, in ever finer parts, until no single item can be left out. No
part is tried twice. `simplest` walks a table of simplifications and applies each as long as the result still fails. If failures
are random, `fails` should try several times. Calls of `fails` are the only cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")
State = TypeVar("State")


def smallest(items: Sequence[Item], fails: Callable[[tuple[Item, ...]], bool]) -> tuple[Item, ...]:
    """Return a 1-minimal subsequence of `items` that fails: without any one of its items it passes. `items` itself must fail.

    At most n² + 3n calls of `fails` for n items, of the order of m·log n if m items are left. The result is empty if the empty
    sequence fails as well.
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
    """Return the state after as many of the steps, in their order, as leave it failing.

    A step gives None if it has nothing to do. A step that helped is taken again, as long as it helps.
    """
    for step in steps:
        while (simpler := step(state)) is not None and simpler != state and fails(simpler):
            state = simpler
    return state
