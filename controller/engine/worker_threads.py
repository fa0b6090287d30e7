"""Threads for long computations on values that never change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import trio
from outcome import Outcome

T = TypeVar("T")


def on_a_thread(work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
    """Run `work` on a thread, then `done` with its result on the event loop, unless the loop has ended."""
    token = trio.lowlevel.current_trio_token()

    def deliver(result: Outcome[T]) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(done, result)

    trio.lowlevel.start_thread_soon(work, deliver, name="controller: a long write")
