"""Calls of one object, and models of objects that do one call at a time.

A call is an interval, from its invocation to its return, with its input and output. A model is pure: `step` takes a state and a
call and returns the state after it, or None if the call cannot have its output in that state. States are hashable.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

NEVER = 1 << 62
"""The return of a call with an unknown outcome."""


class Operation(NamedTuple):
    """One call. Times are integers of any unit. If `returned` is NEVER the outcome is unknown and `output` means nothing."""

    key: Hashable
    invoked: int
    returned: int
    input: Hashable
    output: Hashable = None

    @property
    def is_unknown(self) -> bool:
        return self.returned >= NEVER


class RefusedOutput(NamedTuple):
    """The output of a call that was refused for a reason that depends on the state, such as a topic that exists already."""

    error: str


class Model(Protocol[State]):
    """An object. `initial` is its state before the first call."""

    def initial(self) -> State: ...

    def step(self, state: State, operation: Operation) -> State | None:
        """Return the state after the call, or None if the call cannot have that output in this state. The output of a call
        without a return (`operation.is_unknown`) means nothing.
        """


class NamedModel(Model[State], Protocol[State]):
    """A model whose calls have names: `input` is (name, value), `output` a result or `RefusedOutput`.

    - `functions`: the names that the model understands.
    - `reads`: those of them that change nothing. A read of unknown outcome says nothing and is left out.
    - `refusals`: errors that depend on the state. A call that failed otherwise did nothing and is left out.
    """

    functions: frozenset[str]
    reads: frozenset[str]
    refusals: frozenset[str]

    def describe(self, state: State) -> str:
        """Return the state as a short text for people."""


def by_key(operations: Iterable[Operation]) -> dict[Hashable, list[Operation]]:
    """Split a history into the histories of each object."""
    keys: dict[Hashable, list[Operation]] = {}
    for operation in operations:
        keys.setdefault(operation.key, []).append(operation)
    return keys
