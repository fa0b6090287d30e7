"""A set of values. Calls: `add` v, `remove` v, `get` → its values in any order.

For sets of many values use the interval arithmetic of `checkers.set_full`, which needs no search.
"""

from __future__ import annotations

from typing import Any

from .model import Operation


class ValueSet:
    functions = frozenset({"add", "remove", "get"})
    reads = frozenset({"get"})
    refusals: frozenset[str] = frozenset()

    def initial(self) -> frozenset[Any]:
        return frozenset()

    def step(self, state: frozenset[Any], operation: Operation) -> frozenset[Any] | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            output: Any = operation.output
            return state if len(output) == len(state) and frozenset(output) == state else None
        return state | {value} if f == "add" else state - {value}

    def describe(self, state: frozenset[Any]) -> str:
        return "{" + ", ".join(sorted(map(str, state))) + "}"
