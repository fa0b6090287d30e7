"""A number that is added to. Calls: `add` n → the sum, or None if the answer did not say; `get` → the sum."""

from __future__ import annotations

from typing import Any

from .model import Operation


class Counter:
    functions = frozenset({"add", "get"})
    reads = frozenset({"get"})
    refusals: frozenset[str] = frozenset()

    def initial(self) -> int:
        return 0

    def step(self, state: int, operation: Operation) -> int | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            return state if operation.output == state else None
        after: int = state + value
        return after if operation.is_unknown or operation.output in (None, after) else None

    def describe(self, state: int) -> str:
        return str(state)
