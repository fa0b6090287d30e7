"""Clocks of machines, which can be made to run wrong.

Theory of operation. A machine shows how long it has run, which never goes back, and the time of day. Both follow trio's mock
clock until a fault holds them: then they run at another rate, or jump ahead as on a machine that was suspended, or the time of
day alone is set to another one. Faults overlap: rates multiply, and what the time of day is set by adds up. When the last one
ends all goes at the usual rate, and the time of day is corrected (which may set it back); how long the machine has run is not.

Timers of the node's core and controller go off by its own clock: its followers are called at each change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from .machine import STARTED_S

LEAST_WAIT_S = 1e-6
"""Delay of a look at a time on a clock that runs wrong: by then the clock has certainly reached it."""


class Skew(NamedTuple):
    """The effect of one fault on a machine's clocks."""

    rate: float = 1.0
    jump_s: float = 0.0
    """Both clocks go ahead by this, at once."""
    set_s: float = 0.0
    """The time of day alone is changed by this, at once."""


class MachineClocks:
    """`kraftlab.quorum.driver.environment.Clock` of one node, for all its lives."""

    def __init__(self) -> None:
        self._skews: list[Skew] = []
        self._since_s = self._shown_s = trio.current_time()
        """On trio's clock: when the rate changed the last time, and what the machine's own clock said then."""
        self._correction_s = 0.0
        self._followers: list[Callable[[], None]] = []

    @property
    def _rate(self) -> float:
        return math.prod(skew.rate for skew in self._skews)

    def now_s(self) -> float:
        return self._shown_s + (trio.current_time() - self._since_s) * self._rate

    def wall_s(self) -> float:
        return STARTED_S + self.now_s() + self._correction_s + sum(skew.set_s for skew in self._skews)

    def at(self, now_s: float) -> float:
        if self._since_s == self._shown_s and self._rate == 1:
            return now_s
        return self._since_s + (now_s - self._shown_s) / self._rate + LEAST_WAIT_S

    def follow(self, changed: Callable[[], None]) -> None:
        self._followers.append(changed)

    def boot(self) -> None:
        """Nobody follows any more who has died."""
        self._followers.clear()

    @contextmanager
    def wrong(self, skew: Skew) -> Iterator[None]:
        """For as long as this lasts."""
        self._anchor(skew.jump_s)
        self._skews.append(skew)
        self._tell()
        try:
            yield
        finally:
            self._anchor(0.0)
            self._skews.remove(skew)
            if not self._skews:
                self._correction_s = trio.current_time() - self._shown_s
            self._tell()

    def _anchor(self, jump_s: float) -> None:
        self._shown_s, self._since_s = self.now_s() + jump_s, trio.current_time()

    def _tell(self) -> None:
        for changed in self._followers:
            changed()
