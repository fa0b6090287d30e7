"""Waiting for a condition that has no event, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio


def wait_until(condition: Callable[[], object], what: str, within_s: float = 45.0) -> None:
    """Poll a condition until it holds; fail with its name after the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)


async def eventually(condition: Callable[[], object], what: str = "the condition", within_s: float = 30.0) -> None:
    """Poll a condition until it holds; fail with its name after the deadline, on trio's clock."""
    with trio.move_on_after(within_s) as scope:
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
            await trio.sleep(0.002)
    assert not scope.cancelled_caught, f"not within {within_s:g} s: {what}"
