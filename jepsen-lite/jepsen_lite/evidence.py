"""What a checker shows beside its sentence: shapes of `Verdict.details` that the report draws.

A checker that finds histories illegal puts a list of `IllegalHistory` into `details["illegal"]`, one that finds cycles of
dependencies a list of `Cycle` into `details["cycles"]`, both as JSON values (`shown` makes them); other keys may stand beside.
Operations are named by their index in the run's history; states and reasons are texts for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Partial(msgspec.Struct, frozen=True):
    """A start of an order that the model allows and that cannot be continued: operations, the state after each, and those that
    could come next by their times but are refused.
    """

    order: tuple[int, ...]
    states: tuple[str, ...]
    refused: tuple[int, ...] = ()


class Orders(msgspec.Struct, frozen=True):
    """How far orders of `ops` get. `longest`: for each operation the place in `partials` of the longest one that has it, -1 if
    there is none.
    """

    ops: tuple[int, ...]
    partials: tuple[Partial, ...]
    longest: dict[int, int]


class IllegalHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one key that no order explains, and of which none can be left out (`minimal`). `initial` is the model's first
    state, `stuck` the operation at which every order ends.
    """

    key: str
    text: str
    minimal: tuple[int, ...]
    stuck: int
    picture: Orders
    initial: str = ""


class Edge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """`source` must come before `target`. `kind` is a short name for people, "wr" say; `why` is one sentence."""

    source: int
    target: int
    kind: str
    why: str


class Cycle(msgspec.Struct, frozen=True):
    """Edges of which each begins where the one before ends, the first where the last one does. `name` as in Adya ("G1c")."""

    name: str
    edges: tuple[Edge, ...]


class Evidence(msgspec.Struct, frozen=True):
    """What the details of a verdict hold of all this."""

    illegal: tuple[IllegalHistory, ...] = ()
    cycles: tuple[Cycle, ...] = ()


def shown(*, illegal: Iterable[IllegalHistory] = (), cycles: Iterable[Cycle] = ()) -> dict[str, object]:
    """For `Verdict.details`: JSON values, without keys that would be empty."""
    found: dict[str, Any] = msgspec.to_builtins({"illegal": tuple(illegal), "cycles": tuple(cycles)})
    return {name: values for name, values in found.items() if values}


def of(details: Mapping[str, object]) -> Evidence:
    """What details hold, whatever else stands in them. msgspec.ValidationError if it has another shape."""
    found = {name: details[name] for name in ("illegal", "cycles") if name in details}
    return msgspec.convert(found, Evidence, str_keys=True)
