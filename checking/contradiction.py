"""Finds a small part of an illegal history that is illegal by itself.

Leaving out arbitrary calls would be wrong: a read without its write is illegal too. So only changes that can make no legal
history illegal are made:

- calls that begin after the return at which the history became illegal are cut off;
- reads and refusals are left out: they change nothing;
- writes are *weakened*: they can take effect at any time after their invocation, or never.

A part that is still illegal contradicts itself, whatever the other calls did. Delta debugging (ddmin.py) finds it. The searches
have a budget, and calls whose removal could not be decided stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from . import just_in_time
from .calls import NEVER, NamedModel, Operation, RefusedOutput
from .ddmin import smallest

STEPS_MAX = 800_000
"""Maximum number of steps of the model in all searches together."""
STEPS_EACH_MAX = 100_000


class Contradiction(NamedTuple):
    """A part of a history. `numbers` are the places of `calls` in the history. `stuck_at` is the call at which the history became
    illegal, `order` the longest order of the whole history up to there.
    """

    numbers: tuple[int, ...]
    calls: tuple[Operation, ...]
    stuck_at: int
    order: tuple[int, ...]


class _Shrinker:
    def __init__(self, calls: Sequence[Operation], model: NamedModel[Any], kept: list[int], cut_at: int) -> None:
        self.calls = calls
        self.model = model
        self.kept = kept
        self.cut_at = cut_at
        self.hidden: list[int] = []
        self.steps = 0

    def changes_nothing(self, number: int) -> bool:
        call = self.calls[number]
        return _request(call)[0] in self.model.reads or type(call.output) is RefusedOutput

    def is_illegal_without(self, chosen: set[int]) -> bool:
        if self.steps > STEPS_MAX:
            return False
        part = []
        for number in sorted({*self.kept, *self.hidden}):
            call = self.calls[number]
            weak = number in chosen or number in self.hidden or call.returned > self.cut_at
            if not weak:
                part.append(call)
            elif not self.changes_nothing(number):
                part.append(call._replace(returned=NEVER, output=None))
        answer = just_in_time.check(part, self.model, steps_max=STEPS_EACH_MAX)
        self.steps += answer.steps
        return answer.legal is False

    def leave_out(self, candidates: Sequence[int]) -> None:
        """Leave out as many of the candidates as possible."""
        left = smallest(candidates, lambda left: self.is_illegal_without({*candidates} - {*left}))
        self.kept = [number for number in self.kept if number in left or number not in candidates]
        self.hidden += [number for number in candidates if number not in left and not self.changes_nothing(number)]


def _request(call: Operation) -> tuple[str, Hashable]:
    """(f, value)"""
    request: Any = call.input
    return request[0], request[1]


def _atoms(value: Hashable) -> set[Hashable]:
    """Return the numbers and texts in a value, which distinguish writes."""
    if isinstance(value, tuple):
        return {atom for item in value for atom in _atoms(item)}
    return set() if value is None or isinstance(value, bool) else {value}


def contradiction(calls: Sequence[Operation], model: NamedModel[object]) -> Contradiction:
    """Reduce an illegal history of one object. Writes whose values the remaining calls see are kept in `calls`."""
    found = just_in_time.check(calls, model, steps_max=STEPS_MAX)
    if found.legal is None:
        last = max(
            (number for number, call in enumerate(calls) if not call.is_unknown), key=lambda number: calls[number].returned
        )
        found = found._replace(stuck_at=last)
    cut_at = calls[found.stuck_at].returned
    kept = [number for number, call in enumerate(calls) if call.invoked <= cut_at]
    kept = [number for number in kept if calls[number].returned <= cut_at or _request(calls[number])[0] not in model.reads]
    shrinker = _Shrinker(calls, model, kept, cut_at)
    still = [number for number in kept if number != found.stuck_at]
    shrinker.leave_out([number for number in still if shrinker.changes_nothing(number)])
    shrinker.leave_out([number for number in still if not shrinker.changes_nothing(number)])
    seen = {atom for number in shrinker.kept for atom in _atoms((calls[number].output, _request(calls[number])[1]))}
    shown = [number for number in shrinker.hidden if seen & _atoms(_request(calls[number])[1])]
    numbers = tuple(sorted({*shrinker.kept, *shown}))
    return Contradiction(numbers, tuple(calls[number] for number in numbers), found.stuck_at, found.order)
