"""Registers: one value that is set, read, and exchanged if it is as expected.

Calls: `set` v; `get` → v, None if it was never set; `unset` (it is as if it was never set); `cas` [expected, new].
A `VersionedRegister` counts its changes: `get` → [v, version], `cas` [expected version, new]; a change may be answered with the
version that it made.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from .model import Operation, Refused

Held = tuple[Any]
"""The value of a register, in a tuple because None is a value too."""


class Register:
    """`cas` compares values; `refusals` are the errors of one that found another. `initial_value`: before the first `set`."""

    functions = frozenset({"set", "get", "unset", "cas"})
    reads = frozenset({"get"})

    def __init__(self, refusals: frozenset[str] = frozenset(), initial_value: Hashable = None) -> None:
        self.refusals = refusals
        self._initial_value = initial_value

    def initial(self) -> Held:
        return (self._initial_value,)

    def step(self, state: Held, operation: Operation) -> Held | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            return state if (operation.output,) == state else None
        if f == "set":
            return (value,)
        if f == "unset":
            return (None,)
        expected, new = value
        if type(operation.output) is Refused:
            return state if (expected,) != state else None
        return (new,) if (expected,) == state else None

    def describe(self, state: Held) -> str:
        return "never set" if state[0] is None else str(state[0])


class VersionedRegister:
    """The version is 0 at first, 1 more with each change. The result of a change is its version, None if it did not say."""

    functions = frozenset({"set", "get", "cas"})
    reads = frozenset({"get"})

    def __init__(self, refusals: frozenset[str] = frozenset()) -> None:
        self.refusals = refusals

    def initial(self) -> tuple[Hashable, int]:
        return (None, 0)

    def step(self, state: tuple[Hashable, int], operation: Operation) -> tuple[Hashable, int] | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            return state if operation.output == state else None
        version = state[1] + 1
        if f == "cas":
            expected, value = value
            if type(operation.output) is Refused:
                return state if expected != state[1] else None
            if expected != state[1]:
                return None
        if not operation.is_unknown and operation.output is not None and operation.output != version:
            return None
        return (value, version)

    def describe(self, state: tuple[Hashable, int]) -> str:
        return f"{state[0]} (version {state[1]})"
