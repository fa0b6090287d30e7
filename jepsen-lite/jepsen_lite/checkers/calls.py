"""The border to `kraftlab.checking`: an operation of a history becomes a call of a model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kraftlab.checking.calls import NEVER, NamedModel, Operation, RefusedOutput

from ..history import FAIL, INFO, Op

_PLAIN = frozenset({int, str, type(None), bool, float})


def frozen(value: object) -> Hashable:
    """Return a hashable form of a JSON value: lists as tuples, objects as sorted tuples of pairs."""
    if isinstance(value, list | tuple):
        return tuple(all_frozen(value))
    if isinstance(value, dict):
        return tuple(sorted((name, frozen(item)) for name, item in value.items()))
    hashable: Hashable = value
    return hashable


def all_frozen(values: Iterable[object]) -> list[Hashable]:
    """Return the hashable form of each value."""
    return [value if type(value) in _PLAIN else frozen(value) for value in values]


def as_call(op: Op, model: NamedModel[object]) -> Operation | None:
    """Convert an operation to a call of the model; None if the operation says nothing about the object."""
    if op.f not in model.functions:
        return None
    value, result = op.value, op.result
    input_ = (op.f, value if type(value) in _PLAIN else frozen(value))
    if op.outcome == INFO:
        return None if op.f in model.reads else Operation(op.key, op.invoked_ns, NEVER, input_)
    if op.outcome == FAIL:
        return (
            Operation(op.key, op.invoked_ns, op.ended_ns, input_, RefusedOutput(op.error)) if op.error in model.refusals else None
        )
    return Operation(op.key, op.invoked_ns, op.ended_ns, input_, result if type(result) in _PLAIN else frozen(result))
