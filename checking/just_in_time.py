"""Just-in-time linearization: a breadth-first search over returns that forgets all it can.

Theory of operation (Lowe 2017; Knossos calls it `linear`). A *configuration* is a possible situation at a moment: the object's
state, the calls under way that have had their point, and the calls without a return that have had it. All configurations are
carried through the events in the order of time. At a return, configurations in which the call has had its point stay as they are.
The others are extended, call by call, until the call has had its point; those that cannot be extended are dropped. If no
configuration is left, the history is illegal, and it became so at this return. A depth-first search finds that later.

Calls without a return make many configurations, since each can have had its point or not. *Dominance* keeps them few: of two
configurations with the same state and the same calls under way, the one that used fewer calls without a return can do everything
that the other can, so the other is dropped.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from .calls import Model, Operation

COMPARISONS_PER_STEP_BITS = 2
"""Four comparisons of sets take about as long as a step of a model, and count as one."""

Path = tuple[Any, int] | None
"""The order that led to a configuration: (path before, number of the call)."""


class SearchResult(NamedTuple):
    """The result of a search. `legal` None: the search ended undecided after `steps` steps of the model. `order` is an order of
    calls that works: of the whole history if it is legal, otherwise the longest one up to `stuck_at`, the call that no order can
    return from (-1 if there is none).
    """

    legal: bool | None
    steps: int
    order: tuple[int, ...] = ()
    stuck_at: int = -1
    configurations_max: int = 0


class _GivenUp(Exception):
    pass


class _Frontier:
    """The possible configurations: {(state, done under way): [(used without return, path)]}, minimal sets only."""

    def __init__(self) -> None:
        self.configurations: dict[tuple[Hashable, int], list[tuple[int, Path]]] = {}
        self.size = 0
        self.compared = 0
        """Number of comparisons with known sets, which is most of the work if dominance finds little."""

    def add(self, state: Hashable, done: int, used: int, path: Path) -> bool:
        """Add a configuration; return True if it is new and no known configuration dominates it."""
        known = self.configurations.setdefault((state, done), [])
        self.compared += len(known)
        for other, _ in known:
            if other & used == other:
                return False
        kept = [item for item in known if item[0] & used != used]
        self.size += 1 + len(kept) - len(known)
        known[:] = [*kept, (used, path)]
        return True


class _Search:
    def __init__(self, calls: Sequence[Operation], model: Model[Any], steps_max: int) -> None:
        self.calls = calls
        self.model = model
        self.steps_max = steps_max
        self.steps = 0
        self.under_way: list[int] = []
        """Numbers of calls that have begun and not returned; calls without a return stay here."""
        self.unknown = 0
        """The bits of calls without a return."""

    def run(self) -> SearchResult:
        points = [(call.invoked, 0, number) for number, call in enumerate(self.calls)]
        points += [(call.returned, 1, number) for number, call in enumerate(self.calls) if not call.is_unknown]
        frontier = _Frontier()
        frontier.add(self.model.initial(), 0, 0, None)
        largest = 1
        for _, is_return, number in sorted(points):
            if not is_return:
                self.under_way.append(number)
                self.unknown |= self.calls[number].is_unknown << number
                continue
            try:
                following = self._returned(frontier, number)
            except _GivenUp:
                return SearchResult(None, self.steps, configurations_max=largest)
            if not following.size:
                return SearchResult(False, self.steps, _longest(frontier), number, largest)
            frontier = following
            largest = max(largest, frontier.size)
            self.under_way.remove(number)
        return SearchResult(True, self.steps, _longest(frontier), configurations_max=largest)

    def _returned(self, frontier: _Frontier, number: int) -> _Frontier:
        """Return the configurations that are possible after this call has had its point."""
        bit = 1 << number
        following, seen = _Frontier(), _Frontier()
        work: list[tuple[Hashable, int, int, Path]] = []
        for (state, done), sets in frontier.configurations.items():
            for used, path in sets:
                if done & bit:
                    following.add(state, done & ~bit, used, path)
                elif seen.add(state, done, used, path):
                    work.append((state, done, used, path))
        step, calls, unknown = self.model.step, self.calls, self.unknown
        while work:
            state, done, used, path = work.pop()
            taken = done | used
            for other in self.under_way:
                place = 1 << other
                if taken & place:
                    continue
                self.steps += 1
                after = step(state, calls[other])
                if after is None:
                    continue
                if other == number:
                    following.add(after, done, used, (path, other))
                elif place & unknown:
                    if seen.add(after, done, used | place, (path, other)):
                        work.append((after, done, used | place, (path, other)))
                elif seen.add(after, done | place, used, (path, other)):
                    work.append((after, done | place, used, (path, other)))
            if self.steps + (seen.compared >> COMPARISONS_PER_STEP_BITS) > self.steps_max:
                raise _GivenUp
        self.steps += seen.compared >> COMPARISONS_PER_STEP_BITS
        return following


def _longest(frontier: _Frontier) -> tuple[int, ...]:
    return max((_unrolled(path) for sets in frontier.configurations.values() for _, path in sets), key=len, default=())


def _unrolled(path: Path) -> tuple[int, ...]:
    numbers: list[int] = []
    while path is not None:
        path, number = path
        numbers.append(number)
    return tuple(reversed(numbers))


def check(calls: Sequence[Operation], model: Model[object], *, steps_max: int = 1_000_000) -> SearchResult:
    """Search the history of one object for an order of its calls that the model allows."""
    return _Search(calls, model, steps_max).run()
