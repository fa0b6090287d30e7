"""A wake-up signal and a one-time answer for tasks on one event loop."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Signal:
    """`set` from anywhere on the event loop wakes the one task in `wait`; calls before it waits are remembered as one.

    Unlike trio.Event it resets itself, as a loop that drains a queue needs.
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


class Answer(Generic[T]):
    """An answer that is given once. Any number of tasks may wait for it."""

    def __init__(self) -> None:
        self._given = trio.Event()
        self._value: T

    def give(self, value: T) -> None:
        self._value = value
        self._given.set()

    async def wait(self) -> T:
        await self._given.wait()
        return self._value
