"""Models of objects: registers, counters, lists, sets, allocators and topic names.

Requests and results are JSON values with lists as tuples. A state is a hashable value.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from .calls import Operation, Refused

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
        if type(operation.output) is Refused:
            return state if (expected,) != state else None
        return (new,) if (expected,) == state else None

    def describe(self, state: Held) -> str:
        return "never set" if state[0] is None else str(state[0])


class VersionedRegister:
    """A register that counts its changes. Calls: `set` v; `get` → [v, version]; `cas` [expected version, new].

    The version is 0 at first and 1 more with each change. The result of a change is its version, or None if the answer had none.
    """

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


class Allocator:
    """An allocator of blocks of numbers, each number once. Call: `allocate` n (or None) → [start, length].

    The state is the first number that was not allocated.
    """

    functions = frozenset({"allocate"})
    reads: frozenset[str] = frozenset()
    refusals: frozenset[str] = frozenset()

    def initial(self) -> int:
        return 0

    def step(self, state: int, operation: Operation) -> int | None:
        request: Any = operation.input
        asked: int | None = request[1]
        if operation.is_unknown:
            return state if asked is None else state + asked
        block: Any = operation.output
        start, length = block
        if start != state or (asked is not None and length != asked):
            return None
        following: int = start + length
        return following

    def describe(self, state: int) -> str:
        return f"next {state}"


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


class ValueSet:
    """A set. Calls: `add` v, `remove` v, `get` → its values in any order. Large sets are checked by interval arithmetic instead
    (`jepsen_lite.checkers.set_full`).
    """

    functions = frozenset({"add", "remove", "get"})
    reads = frozenset({"get"})
    refusals: frozenset[str] = frozenset()

    def initial(self) -> frozenset[object]:
        return frozenset()

    def step(self, state: frozenset[object], operation: Operation) -> frozenset[object] | None:
        request: Any = operation.input
        f, value = request
        if f == "get":
            output: Any = operation.output
            return state if len(output) == len(state) and frozenset(output) == state else None
        return state | {value} if f == "add" else state - {value}

    def describe(self, state: frozenset[object]) -> str:
        return "{" + ", ".join(sorted(map(str, state))) + "}"


class Topic(NamedTuple):
    """The known fields of a topic; None is unknown."""

    id: object = None
    tag: object = None


Existing = tuple[Topic, ...]
"""() or (topic,)."""


class TopicName:
    """One topic name: a topic of that name exists, with the id that the cluster gave it, or none does.

    Calls: `create` {"tag": t, …} → the new id, or None if the answer had none; `delete` None, or {"id": i} → anything;
    `describe` → {"id": i, "tag": t, …} or None. An id whose creation was not answered is learnt from the first call that sees it.
    That no id is given twice concerns all names together, and is checked by `jepsen_lite.checkers.unique`.
    """

    functions = frozenset({"create", "delete", "describe"})
    reads = frozenset({"describe"})
    refusals = frozenset({"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})

    def initial(self) -> Existing:
        return ()

    def step(self, state: Existing, operation: Operation) -> Existing | None:
        request: Any = operation.input
        f, value = request
        refused = type(operation.output) is Refused
        if f == "create":
            if refused:
                return state if state else None
            created = Topic(None if operation.is_unknown else operation.output, _field(value, "tag"))
            return None if state else (created,)
        wanted = Topic(_field(value, "id")) if f == "delete" else _seen(operation.output)
        found = _merged(state, wanted)
        if refused:
            return state if not state or (f == "delete" and found is None) else None
        if f == "delete":
            return None if found is None else ()
        return found if operation.output is not None else (state if not state else None)

    def describe(self, state: Existing) -> str:
        return f"topic {state[0].id or 'of unknown id'}" if state else "no topic"


def _field(value: Any, name: str) -> Any:
    return dict(value).get(name) if isinstance(value, tuple) else None


def _seen(output: Any) -> Topic:
    return Topic(_field(output, "id"), _field(output, "tag"))


def _merged(state: Existing, seen: Topic) -> Existing | None:
    """The topic that there is, with what was seen of it; None if there is none, or it is another."""
    if not state:
        return None
    merged = []
    for known, new in zip(state[0], seen, strict=True):
        if known is not None and new is not None and known != new:
            return None
        merged.append(new if known is None else known)
    return (Topic(*merged),)


class AppendModel:
    """A list that only grows, whose final content is known. Inputs: ("append", value), ("read",); a read's output is
    (length, digest), as `digest` chains it.

    The state is the length: since the list only grows and ends as `final`, every append has one place it can go to. That is no
    assumption of the search, it follows from a read of everything at the end, and it keeps unknown calls from multiplying.
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
