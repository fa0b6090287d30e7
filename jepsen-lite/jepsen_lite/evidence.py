"""What a checker shows beside its sentence: shapes of `Verdict.details` that the report draws.

A checker that finds a history illegal puts `shown(illegal=…)` into its details, one that finds a cycle of dependencies
`shown(cycles=…)`; other keys may stand beside. Operations are named by their index in the run's history; states and reasons are
texts for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Placed(msgspec.Struct, frozen=True):
    """An operation that has its place in an order, and the state of the model after it."""

    op: int
    state: str


class Refused(msgspec.Struct, frozen=True):
    """An operation that could come next by its times, and why the model does not let it."""

    op: int
    why: str = ""


class Partial(msgspec.Struct, frozen=True):
    """A start of an order that the model allows, as long as one gets. `refused`: what could come next and makes no sense."""

    placed: tuple[Placed, ...]
    refused: tuple[Refused, ...] = ()


class IllegalHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one key that no order explains. `ops` are all of them by invocation, `initial` is the model's first state.

    `partials[0]` is the longest partial order of all. Others may follow, so that every operation of `ops` that can be placed at all
    is in one of them: the first that has it is the longest through it. `minimal`: a subset of `ops` that is illegal by itself and
    of which none can be left out; () if none was sought.
    """

    key: str
    ops: tuple[int, ...]
    initial: str = ""
    partials: tuple[Partial, ...] = ()
    minimal: tuple[int, ...] = ()


class Edge(msgspec.Struct, frozen=True):
    """`source` must come before `target`. `kind`: "ww", "wr", "rw", "realtime" or "process"; `why` is one sentence."""

    source: int
    target: int
    kind: str
    why: str
    key: str = ""


class Cycle(msgspec.Struct, frozen=True):
    """Edges of which each begins where the one before ends, the first where the last one does. `name` as in Adya ("G1c")."""

    name: str
    edges: tuple[Edge, ...]


class Evidence(msgspec.Struct, frozen=True):
    """What the details of a verdict hold of all this."""

    illegal: tuple[IllegalHistory, ...] = ()
    cycles: tuple[Cycle, ...] = ()


def shown(*, illegal: Iterable[IllegalHistory] = (), cycles: Iterable[Cycle] = ()) -> dict[str, Any]:
    """For `Verdict.details`: JSON values, without keys that would be empty."""
    found: dict[str, Any] = msgspec.to_builtins({"illegal": tuple(illegal), "cycles": tuple(cycles)})
    return {name: values for name, values in found.items() if values}


def of(details: Mapping[str, Any]) -> Evidence:
    """What details hold, whatever else stands in them. msgspec.ValidationError if it has another shape."""
    return msgspec.convert({name: details[name] for name in ("illegal", "cycles") if name in details}, Evidence)
