"""Evidence in `Verdict.details` that the report draws.

A checker that finds illegal histories puts a list of `IllegalHistory` into `details["illegal"]`; one that finds cycles of
dependencies puts a list of `Cycle` into `details["cycles"]`. Both are JSON values, made by `shown`; `details` may hold other keys
as well. Operations are given by their index in the run's history; states and reasons are texts for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Partial(msgspec.Struct, frozen=True):
    """The start of an order that the model allows and that cannot be continued: its operations, the state after each, and the
    operations that could come next by their times but that the model refuses.
    """

    order: tuple[int, ...]
    states: tuple[str, ...]
    refused: tuple[int, ...] = ()


class Orders(msgspec.Struct, frozen=True):
    """The partial orders of `ops`. `longest`: operation → index in `partials` of the longest one that contains it, -1 if there is
    none.
    """

    ops: tuple[int, ...]
    partials: tuple[Partial, ...]
    longest: dict[int, int]


class IllegalHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one key that no order explains. `minimal` is a part of them of which no operation can be left out. `initial`
    is the model's initial state, `stuck` the operation at which every order ends.
    """

    key: str
    text: str
    minimal: tuple[int, ...]
    stuck: int
    picture: Orders
    initial: str = ""


class Edge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """`source` must precede `target`. `kind` is a short name such as "wr"; `why` is one sentence."""

    source: int
    target: int
    kind: str
    why: str


class Cycle(msgspec.Struct, frozen=True):
    """Edges that form a cycle: each begins where the previous one ends. `name` is Adya's ("G1c")."""

    name: str
    edges: tuple[Edge, ...]


class Evidence(msgspec.Struct, frozen=True):
    """The evidence in the details of a verdict."""

    illegal: tuple[IllegalHistory, ...] = ()
    cycles: tuple[Cycle, ...] = ()


def shown(*, illegal: Iterable[IllegalHistory] = (), cycles: Iterable[Cycle] = ()) -> dict[str, object]:
    """Return JSON values for `Verdict.details`, without empty keys."""
    found: dict[str, Any] = msgspec.to_builtins({"illegal": tuple(illegal), "cycles": tuple(cycles)})
    return {name: values for name, values in found.items() if values}


def of(details: Mapping[str, object]) -> Evidence:
    """Return the evidence in `details`. msgspec.ValidationError if it has another shape."""
    found = {name: details[name] for name in ("illegal", "cycles") if name in details}
    return msgspec.convert(found, Evidence, str_keys=True)
