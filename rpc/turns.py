"""Requests and answers with many elements: a thread does what is pure, and the rest gives way to other tasks in between."""

from __future__ import annotations

import trio

ELEMENTS_AT_ONCE = 1000
"""Elements of a request that are decoded, or answered, before other tasks get the event loop."""


class Turns:
    """Counts the steps of one answer, and lets other tasks run after each ELEMENTS_AT_ONCE of them."""

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        self._steps += 1
        if not self._steps % ELEMENTS_AT_ONCE:
            await trio.lowlevel.checkpoint()
