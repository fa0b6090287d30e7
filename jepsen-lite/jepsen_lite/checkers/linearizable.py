"""Linearizability of the operations of each key. Offsets are ignored.

Each key is an object that is judged separately: first by the search of Wing and Gong, which is fast on legal histories; if that
takes too many steps, by just-in-time linearization, which is fast on illegal ones; if that takes too many as well, the verdict is
"unknown". An undecided history never counts as legal. A call of unknown outcome that is not in the committed log never happened
and is left out.

Two things are kept of an illegal history for people: the *picture* (how far orders get, and which calls are refused next), and a
*minimal* part (`contradiction.py`) that is still illegal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraftlab.checking.calls import NamedModel, Operation
from kraftlab.checking.contradiction import contradiction
from kraftlab.checking.linearizability import STEPS_MAX, Decision, decide
from kraftlab.checking.partial_orders import Picture, picture

from .. import evidence
from ..evidence import IllegalHistory, Orders, Partial
from ..history import Op
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run
from .calls import as_call
from .resolution import one_per_request, resolved

SHOWN_MAX = 5
"""Illegal keys that are explained."""


class Linearizable:
    """`model` returns the object of a key."""

    name = "linearizable"

    def __init__(self, model: Callable[[str], NamedModel[Any]], *, steps_max: int = STEPS_MAX) -> None:
        self.model = model
        self.steps_max = steps_max

    def judged(self, key: str, calls: Sequence[Operation]) -> Decision:
        """Judge one key with the two searches."""
        return decide(calls, self.model(key), self.steps_max)

    def keys_of(self, run: Run) -> dict[str, tuple[list[Op], list[Operation]]]:
        """Return the judged operations of a run by key, without those that never happened. A request that was sent again is one
        call.
        """
        history = one_per_request(run.history)
        return self.calls_by_key(history if run.log is None else resolved(history, run.log))

    def calls_by_key(self, history: Sequence[Op]) -> dict[str, tuple[list[Op], list[Operation]]]:
        """Return the judged operations and their calls by key."""
        models: dict[str, NamedModel[Any]] = {}
        keys: dict[str, tuple[list[Op], list[Operation]]] = {}
        for op in history:
            model = models.get(op.key)
            if model is None:
                model = models[op.key] = self.model(op.key)
            call = as_call(op, model)
            if call is None:
                continue
            ops, calls = keys.setdefault(op.key, ([], []))
            ops.append(op)
            calls.append(call)
        return keys

    def check(self, run: Run) -> Verdict:
        keys = self.keys_of(run)
        answers = {key: self.judged(key, calls) for key, (_, calls) in keys.items()}
        illegal = [key for key, answer in answers.items() if answer.legal is False]
        undecided = [key for key, answer in answers.items() if answer.legal is None]
        checked = sum(answer.calls for answer in answers.values())
        certain = sum(1 for _, calls in keys.values() for call in calls if not call.is_unknown)
        details: dict[str, Any] = {
            "checked": checked,
            "keys": len(answers),
            "steps": sum(answer.steps for answer in answers.values()),
            "by_jit": sum(1 for answer in answers.values() if answer.algorithm == "jit"),
            "illegal_keys": illegal[:100],
            "undecided_keys": {key: f"given up after {answers[key].steps} steps" for key in undecided[:100]},
        }
        if illegal:
            shown = [self._explained(key, *keys[key]) for key in illegal[:SHOWN_MAX]]
            details |= evidence.shown(illegal=shown)
            more = f"; and {len(illegal) - 1} more keys" if len(illegal) > 1 else ""
            ops = tuple(dict.fromkeys(index for explained in shown for index in explained.minimal))
            return Verdict(checker=self.name, valid=False, reason=shown[0].text + more, ops=ops, details=details)
        if undecided:
            key = undecided[0]
            reason = (
                f"{len(undecided)} of {len(answers)} keys could not be decided, for example {key!r}: given up after"
                f" {answers[key].steps} steps; ask for fewer operations per key, or judge again: kraftlab chaos check --steps"
            )
            return Verdict(checker=self.name, valid=UNKNOWN, reason=reason, details=details)
        if not certain:
            return Verdict(
                checker=self.name, valid=UNKNOWN, reason="no operation has an outcome that can be judged", details=details
            )
        return Verdict(checker=self.name, valid=True, details=details)

    def _explained(self, key: str, ops: list[Op], calls: list[Operation]) -> IllegalHistory:
        model = self.model(key)
        kept = contradiction(calls, model)
        indices = tuple(ops[number].index for number in kept.numbers)
        return IllegalHistory(
            key=key,
            text=f"key {key!r}: these operations cannot have happened one at a time: {_list_of(kept.calls, indices)}",
            minimal=indices,
            stuck=ops[kept.stuck_at].index,
            picture=_named(picture(kept.calls, model), indices),
            initial=model.describe(model.initial()),
        )


def _named(found: Picture, indices: Sequence[int]) -> Orders:
    """Replace the numbers of calls by indices of operations."""
    partials = tuple(
        Partial(
            tuple(indices[number] for number in partial.order),
            partial.states,
            tuple(indices[number] for number in partial.refused),
        )
        for partial in found.partials
    )
    return Orders(tuple(indices), partials, dict(zip(indices, found.longest, strict=True)))


def _list_of(calls: Sequence[Operation], indices: Sequence[int], calls_max: int = 8) -> str:
    parts = [f"{index} {text_of(call)}" for call, index in zip(calls, indices, strict=True)]
    return ", ".join(parts[:calls_max]) + (f" and {len(parts) - calls_max} more" if len(parts) > calls_max else "")


def text_of(call: Operation) -> str:
    """Return a call as text: "set 5 -> ?"."""
    request: Any = call.input
    f, value = request
    asked = f if value is None else f"{f} {value!r}"
    return f"{asked} -> ?" if call.is_unknown else f"{asked} -> {call.output!r}"
