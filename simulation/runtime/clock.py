"""Clocks of machines, which faults can make wrong.

Theory of operation. A machine has a monotonic clock, which never goes back, and the time of day. Both follow trio's mock clock
unless there is a fault: then they run at another rate, or jump ahead as on a machine that was suspended, or only the time of day
is set wrong. Faults overlap: rates multiply, and changes of the time of day add up. When the last fault ends, the rate is the
usual one again and the time of day is corrected, which can set it back; the monotonic clock is not corrected.

Timers of the node's core and controller use its monotonic clock, so followers of the clock are called at each change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from .machine import STARTED_S

LEAST_WAIT_S = 1e-6
"""Margin added to a time computed on a wrong clock, so that the clock has certainly reached it."""


class Skew(NamedTuple):
    """The effect of one fault on a machine's clocks."""

    rate: float = 1.0
    jump_s: float = 0.0
    """Step of both clocks."""
    set_s: float = 0.0
    """Step of the time of day alone."""


class MachineClocks:
    """`kraftlab.quorum.driver.environment.Clock` of one node, for all its lives."""

    def __init__(self) -> None:
        self._skews: list[Skew] = []
        self._since_s = self._shown_s = trio.current_time()
        """The last change of the rate, on trio's clock and on the machine's monotonic clock."""
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
        """Forget the followers, which have died with their process."""
        self._followers.clear()

    @contextmanager
    def wrong(self, skew: Skew) -> Iterator[None]:
        """Make the clocks wrong while the context lasts."""
        self._anchor(skew.jump_s)
        self._skews.append(skew)
        self._notify()
        try:
            yield
        finally:
            self._anchor(0.0)
            self._skews.remove(skew)
            if not self._skews:
                self._correction_s = trio.current_time() - self._shown_s
            self._notify()

    def _anchor(self, jump_s: float) -> None:
        self._shown_s, self._since_s = self.now_s() + jump_s, trio.current_time()

    def _notify(self) -> None:
        for changed in self._followers:
            changed()
