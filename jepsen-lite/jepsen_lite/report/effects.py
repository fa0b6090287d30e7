"""What each fault did to clients, strike by strike, as the availability checker counts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kraftlab.checking.facts import Strike

from ..checkers.availability import AroundStrike, Successes
from ..history import Op


class Effect(NamedTuple):
    """A strike, and how well operations went around it."""

    strike: Strike
    around: AroundStrike


def effects(ops: Sequence[Op], strikes: Iterable[Strike], ended_ns: int) -> tuple[Effect, ...]:
    """One for each strike that could be done, by the time of its begin; none if nothing was asked."""
    if not ops:
        return ()
    successes = Successes(ops, ended_ns)
    done = sorted((strike for strike in strikes if not strike.error), key=lambda strike: strike.begin_ns)
    return tuple(Effect(strike, successes.around(strike)) for strike in done)
