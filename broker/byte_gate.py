"""A `ByteBudget` for tasks: waiting for one's turn under trio, and waking when the rate changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from .throttle import ByteBudget


class ByteGate:
    """One throttle of this broker. Owned by the event loop; every copy that must not go faster passes through it."""

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
    def claim(self) -> Iterator[Claim]:
        """The caller wants bytes, until the block ends."""
        ticket = self._budget.enter(trio.current_time())
        try:
            yield Claim(self, ticket)
        finally:
            self._budget.leave(ticket, trio.current_time())

    def ready_at(self) -> float:
        """The time (trio's clock) at which the next claim may be granted something."""
        return self._budget.ready_at(trio.current_time())

    def try_take(self, ticket: int, wanted_bytes: int) -> int:
        return self._budget.take(ticket, wanted_bytes, trio.current_time())

    async def rate_changed(self) -> None:
        await self._rate_changed.wait()

    def settle(self, granted_bytes: int, used_bytes: int) -> None:
        """What of a grant was really used."""
        self._budget.settle(granted_bytes, used_bytes, trio.current_time())


class Claim:
    """A place in the queue for bytes."""

    def __init__(self, gate: ByteGate, ticket: int) -> None:
        self._gate = gate
        self._ticket = ticket

    def try_take(self, wanted_bytes: int) -> int:
        """Bytes granted now, 0 if none."""
        return self._gate.try_take(self._ticket, wanted_bytes)

    async def take(self, wanted_bytes: int) -> int:
        """Waits until something is granted."""
        while True:
            granted = self.try_take(wanted_bytes)
            if granted:
                return granted
            with trio.move_on_at(self._gate.ready_at()):
                await self._gate.rate_changed()
