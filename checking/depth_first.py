"""Depth-first search for an order of calls: the algorithm of Wing and Gong, with Lowe's memory, for one object.

Theory of operation. Every call has an interval, from its invocation to its return. A history is linearizable if one point can be
chosen in each interval such that the calls, made one after the other at those points, give the recorded answers. The search walks
the events in the order of time. At an invocation it can choose that call's point now, if the model allows it. At a return whose
call has no point it has to go back and choose again. Visited pairs (set of calls that have their point, state of the model) are
remembered: two orders that lead to the same pair have the same future (Lowe 2017; Porcupine does the same). The set is the bits
of one integer.

A call with an unknown outcome has no return: its point can come at any time after its invocation, or never. Objects that do not
affect each other are checked separately (`by_key`), which keeps the search cheap. The problem is NP-complete, so the search gives
up after `steps_max` steps of the model, with a verdict that proves nothing (`legal=None`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple

from .calls import Model, Operation, State


class Verdict(NamedTuple):
    """The result of a search. `legal` None: the search ended undecided. If illegal, `longest` is the longest start of an order
    that works, as indices into the history.
    """

    legal: bool | None
    steps: int
    longest: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()

    def explanation(self) -> str:
        """Explain which call cannot be placed first; "" if the history is legal."""
        if self.legal is not False:
            return ""
        placed = set(self.longest)
        stuck = min(
            (operation for number, operation in enumerate(self.operations) if number not in placed and not operation.is_unknown),
            key=lambda operation: operation.returned,
        )
        return f"{len(self.longest)} of {len(self.operations)} calls can be ordered, none such that {stuck!r} makes sense"


class _Event:
    """An invocation or a return in the doubly linked list of all; `match` is an invocation's return."""

    __slots__ = ("match", "next", "number", "previous")

    def __init__(self, number: int) -> None:
        self.number = number
        self.match: _Event | None = None
        self.previous: _Event | None = None
        self.next: _Event | None = None


def _linked(operations: Sequence[Operation]) -> _Event:
    """The head of the list of events in the order of time. At equal times invocations come first: then the calls overlap."""
    points: list[tuple[int, int, int, _Event]] = []
    for number, operation in enumerate(operations):
        invocation = _Event(number)
        points.append((operation.invoked, 0, number, invocation))
        invocation.match = _Event(number)
        points.append((operation.returned, 1, number, invocation.match))
    head = last = _Event(-1)
    for _, _, _, event in sorted(points, key=lambda point: point[:3]):
        last.next, event.previous = event, last
        last = event
    return head


def _lift(invocation: _Event) -> None:
    for event in (invocation, invocation.match):
        assert event is not None and event.previous is not None
        event.previous.next = event.next
        if event.next is not None:
            event.next.previous = event.previous


def _unlift(invocation: _Event) -> None:
    for event in (invocation.match, invocation):
        assert event is not None and event.previous is not None
        event.previous.next = event
        if event.next is not None:
            event.next.previous = event


class _Search(Generic[State]):
    """One object's search, with the path that led to where it is."""

    def __init__(self, operations: tuple[Operation, ...], model: Model[State]) -> None:
        self.operations = operations
        self.model = model
        self.left = sum(1 for operation in operations if not operation.is_unknown)
        """Calls with a known outcome that have no point yet."""
        self.path: list[tuple[_Event, State]] = []
        self.longest: tuple[int, ...] = ()

    def run(self, steps_max: int) -> Verdict:
        head = _linked(self.operations)
        state, done, steps = self.model.initial(), 0, 0
        seen: set[tuple[int, State]] = set()
        event = head.next
        while self.left:
            assert event is not None, "a call that must have a point has a return in the list"
            if event.match is None:
                if len(self.path) > len(self.longest):
                    self.longest = tuple(placed.number for placed, _ in self.path)
                if not self.path:
                    return Verdict(False, steps, self.longest, self.operations)
                placed, state = self.path.pop()
                done &= ~(1 << placed.number)
                self.left += not self.operations[placed.number].is_unknown
                _unlift(placed)
                event = placed.next
                continue
            steps += 1
            if steps > steps_max:
                return Verdict(None, steps, (), self.operations)
            following = self.model.step(state, self.operations[event.number])
            reached = done | 1 << event.number
            if following is None or (reached, following) in seen:
                event = event.next
                continue
            seen.add((reached, following))
            self.path.append((event, state))
            self.left -= not self.operations[event.number].is_unknown
            _lift(event)
            state, done = following, reached
            event = head.next
        return Verdict(True, steps, tuple(placed.number for placed, _ in self.path), self.operations)


def check(operations: Iterable[Operation], model: Model[State], *, steps_max: int = 1_000_000) -> Verdict:
    """Search the history of one object for an order of its calls that the model allows."""
    return _Search(tuple(operations), model).run(steps_max)
