"""A list that values are appended to, and taken out of.

Calls: `append` v → the list, or None if the answer did not say; `subtract` v → likewise; `get` → the list.
"""

from __future__ import annotations

from typing import Any

from .model import Operation

Values = tuple[Any, ...]


class AppendList:
    """`subtract` takes out all that are equal. With `once`, appending what is there changes nothing, as in list configs."""

    functions = frozenset({"append", "subtract", "get"})
    reads = frozenset({"get"})
    refusals: frozenset[str] = frozenset()

    def __init__(self, *, once: bool = False) -> None:
        self._once = once

    def initial(self) -> Values:
        return ()

    def step(self, state: Values, operation: Operation) -> Values | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            return state if operation.output == state else None
        if f == "append":
            after = state if self._once and value in state else (*state, value)
        else:
            after = tuple(item for item in state if item != value)
        return after if operation.is_unknown or operation.output in (None, after) else None

    def describe(self, state: Values) -> str:
        return "[" + ", ".join(map(str, state)) + "]"
