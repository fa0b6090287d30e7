"""A `ByteBudget` for tasks: waits for a grant under trio, and wakes when the rate changes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import trio

from .throttle import ByteBudget

TURN_PAUSE_S = 0.005
"""Pause before a claimant tries again that was not the next in turn."""


class ByteGate:
    """One throttle of this broker. Owned by the event loop; every throttled copy passes through it."""

    def __init__(self) -> None:
        self._budget = ByteBudget(None, trio.current_time())
        self._rate_changed = trio.Event()

    @property
    def rate(self) -> float | None:
        """Bytes per second; None: unlimited."""
        return self._budget.rate

    @property
    def is_limited(self) -> bool:
        return self._budget.rate is not None

    def set_rate(self, rate: float | None) -> None:
        if rate != self._budget.rate:
            self._budget.set_rate(rate, trio.current_time())
            self._rate_changed.set()
            self._rate_changed = trio.Event()

    @contextmanager
    def claim(self, key: Hashable, weight: int = 1) -> Iterator[Claim]:
        """Claim bytes for `weight` replicas, until the block ends. Shares are kept by key."""
        self._budget.enter(key, weight, trio.current_time())
        try:
            yield Claim(self, self._budget, key)
        finally:
            self._budget.leave(key, trio.current_time())

    def is_waiting(self, key: Hashable) -> bool:
        return self._budget.is_waiting(key)

    def ready_at(self) -> float:
        """The time (trio's clock) at which the next claim may get a grant."""
        return self._budget.ready_at(trio.current_time())

    async def rate_changed(self) -> None:
        await self._rate_changed.wait()


class Claim:
    """A place in the queue of a throttle."""

    def __init__(self, gate: ByteGate, budget: ByteBudget, key: Hashable) -> None:
        self._gate = gate
        self._budget = budget
        self._key = key

    def try_take(self, wanted_bytes: int) -> int:
        """Return the bytes granted now, 0 if there are none."""
        return self._budget.take(self._key, wanted_bytes, trio.current_time())

    async def take(self, wanted_bytes: int) -> int:
        """Wait for a grant."""
        while True:
            granted = self.try_take(wanted_bytes)
            if granted:
                return granted
            with trio.move_on_at(max(self._gate.ready_at(), trio.current_time() + TURN_PAUSE_S)):
                await self._gate.rate_changed()

    def settle(self, granted_bytes: int, used_bytes: int) -> None:
        """Correct a grant by the bytes that were really used."""
        self._budget.settle(self._key, granted_bytes, used_bytes, trio.current_time())
