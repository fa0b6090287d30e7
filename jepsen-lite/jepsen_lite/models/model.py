"""What one object does when calls come one at a time, and how the operations of a history become calls of it.

A model is pure: `step` takes a state and a call and gives the state after it, or None if that call cannot end as it did in that
state. States are hashable. A call is an operation without its context: `input` is (f, value), `output` its result, or `Refused`
if a node refused it for a reason that says something of the state (a topic that exists already, a comparison that failed).

What becomes a call is decided by the model's three tables:

- `functions`: the operations that it understands; all others are not its business.
- `reads`: those of them that change nothing. One of unknown outcome says nothing and is left out.
- `refusals`: errors that say something of the state. An operation that failed otherwise did nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

from kraftlab.checking.linearizability import NEVER, Operation

from ..history import FAIL, INFO, Op

State = TypeVar("State", bound=Hashable)

__all__ = ["NEVER", "Model", "Operation", "Refused", "State", "all_frozen", "as_call", "frozen"]


class Refused(NamedTuple):
    """The output of a call that was refused."""

    error: str


class Model(Protocol[State]):
    """An object. `initial` is what it is before the first call."""

    functions: frozenset[str]
    reads: frozenset[str]
    refusals: frozenset[str]

    def initial(self) -> State: ...

    def step(self, state: State, operation: Operation) -> State | None:
        """The state after the call, None if it cannot have that output in this state. The output of a call without a return
        (`operation.is_unknown`) means nothing.
        """

    def describe(self, state: State) -> str:
        """The state, for people; short."""


_PLAIN = frozenset({int, str, type(None), bool, float})


def frozen(value: Any) -> Hashable:
    """A JSON value that can be hashed: lists as tuples, objects as sorted tuples of pairs."""
    if isinstance(value, list | tuple):
        return tuple(all_frozen(value))
    if isinstance(value, dict):
        return tuple(sorted((name, frozen(item)) for name, item in value.items()))
    hashable: Hashable = value
    return hashable


def all_frozen(values: Iterable[Any]) -> list[Hashable]:
    """Each of them so that it can be hashed."""
    return [value if type(value) in _PLAIN else frozen(value) for value in values]


def as_call(op: Op, model: Model[Any]) -> Operation | None:
    """The call that an operation is to a model, None if it says nothing about the object."""
    if op.f not in model.functions:
        return None
    value, result = op.value, op.result
    input_ = (op.f, value if type(value) in _PLAIN else frozen(value))
    if op.outcome == INFO:
        return None if op.f in model.reads else Operation(op.key, op.invoked_ns, NEVER, input_)
    if op.outcome == FAIL:
        return Operation(op.key, op.invoked_ns, op.ended_ns, input_, Refused(op.error)) if op.error in model.refusals else None
    return Operation(op.key, op.invoked_ns, op.ended_ns, input_, result if type(result) in _PLAIN else frozen(result))
