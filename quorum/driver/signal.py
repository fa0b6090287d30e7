"""A wake-up call between two tasks on the event loop."""

from __future__ import annotations

import trio


class Signal:
    """`set` from anywhere on the event loop wakes the one task in `wait`; calls before it waits are remembered as one.

    Unlike trio.Event it resets itself, which a loop that drains a queue wants.
    """

    __slots__ = ("_set", "sleepers")

    def __init__(self) -> None:
        self._set = False
        self.sleepers = trio.lowlevel.ParkingLot()

    def set(self) -> None:
        self._set = True
        self.sleepers.unpark()

    async def wait(self) -> None:
        if self._set:
            await trio.lowlevel.checkpoint()
        else:
            await self.sleepers.park()
        self._set = False
