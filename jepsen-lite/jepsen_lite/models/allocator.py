"""What gives out blocks of numbers, each number once. Call: `allocate` n (or None) → [start, length].

The state is the first number that was not given out. With `gaps`, blocks may begin behind it; a block that nobody was told of is
one of unknown length, so with lost answers `gaps` is needed unless the length is asked for.
"""

from __future__ import annotations

from typing import Any

from .model import Operation


class Allocator:
    functions = frozenset({"allocate"})
    reads: frozenset[str] = frozenset()
    refusals: frozenset[str] = frozenset()

    def __init__(self, *, first: int = 0, gaps: bool = False) -> None:
        self._first = first
        self._gaps = gaps

    def initial(self) -> int:
        return self._first

    def step(self, state: int, operation: Operation) -> int | None:
        request: Any = operation.input
        asked: int | None = request[1]
        if operation.is_unknown:
            return state if asked is None else state + asked
        block: Any = operation.output
        start, length = block
        if start < state or (start > state and not self._gaps) or (asked is not None and length != asked):
            return None
        following: int = start + length
        return following

    def describe(self, state: int) -> str:
        return f"next {state}"
