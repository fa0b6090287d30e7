"""Models of objects: registers, counters and lists.

Requests and results are JSON values with lists as tuples. A state is a hashable value.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .calls import Operation, RefusedOutput

Held = tuple[object]
"""The value of a register, in a tuple because None is a value too."""


class Register:
    """One value. Calls: `set` v; `get` → v, None if it was never set; `unset`; `cas` [expected, new].

    `refusals` are the errors of a `cas` that found another value. `initial_value`: before the first `set`.
    """

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
        if type(operation.output) is RefusedOutput:
            return state if (expected,) != state else None
        return (new,) if (expected,) == state else None

    def describe(self, state: Held) -> str:
        return "never set" if state[0] is None else str(state[0])


class Counter:
    """A number. Calls: `add` n → the sum, or None if the answer had none; `get` → the sum."""

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


Values = tuple[object, ...]


class AppendList:
    """A list config. Calls: `append` v → the list, or None if the answer had none; `remove` v → likewise; `get` → the list.

    Appending a value that is in the list changes nothing, as does removing one that is not.
    """

    functions = frozenset({"append", "remove", "get"})
    reads = frozenset({"get"})
    refusals: frozenset[str] = frozenset()

    def initial(self) -> Values:
        return ()

    def step(self, state: Values, operation: Operation) -> Values | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            return state if operation.output == state else None
        if f == "append":
            after = state if value in state else (*state, value)
        else:
            after = tuple(item for item in state if item != value)
        return after if operation.is_unknown or operation.output in (None, after) else None

    def describe(self, state: Values) -> str:
        return "[" + ", ".join(map(str, state)) + "]"


class AppendModel:
    """A list that only grows, whose final content is known. Inputs: ("append", value), ("read",); a read's output is
    (length, digest), as `digest` chains it.

    The state is the length: since the list only grows and ends as `final`, every append has one possible place. The search need
    not assume that, since everything is read at the end; and it keeps the number of states with unknown calls small.
    """

    def __init__(self, final: Sequence[int]) -> None:
        self.final = tuple(final)
        self._digests = [0]
        for value in final:
            self._digests.append(digest(self._digests[-1], value))

    def initial(self) -> int:
        return 0

    def step(self, state: int, operation: Operation) -> int | None:
        match operation.input:
            case ("append", value):
                return state + 1 if state < len(self.final) and self.final[state] == value else None
            case ("read",):
                return state if operation.is_unknown or operation.output == (state, self._digests[state]) else None
        raise ValueError(f"{operation!r} is not a call of a list")


def digest(before: int, value: int) -> int:
    """The digest of a list with `value` after the list with digest `before`: FNV-1a over whole values, 64 bits."""
    return (before ^ value ^ 0xCBF29CE484222325) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
