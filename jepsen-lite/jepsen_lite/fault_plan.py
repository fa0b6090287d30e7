"""Faults as data: what is to strike when, and what did strike.

A plan is drawn from a seed before the run, or read from a file: the run itself draws nothing. So an action may be left out and
the others still do what they did; that is what shrinking needs. Targets are words that mean something in any cluster ("leader",
"controller:1", "broker:0"), and are looked up when the action strikes; a *strike* says whom it hit.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """At `at_ms` of the run, the fault `kind` strikes `target` with `arguments`, and is undone after `for_ms` (0: it is over at
    once). `number` is its place among those drawn for its kind, and names its own stream of chance.
    """

    at_ms: int
    kind: str
    target: str = ""
    for_ms: int = 0
    arguments: dict[str, Any] = {}
    number: int = 0


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of a run by time, and the seed that its chance is named by."""

    seed: str
    actions: tuple[Action, ...] = ()
    version: int = 1


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did: to which nodes or links, from when until when (the run's nanoseconds); `end_ns` None: it was never
    undone, as a kill of a node that stays down. `detail` is for people. `error`: why it could not be done, "" if it could.
    """

    kind: str
    begin_ns: int
    end_ns: int | None
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    detail: str = ""
    error: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a node said of itself while the run went on: who it thinks leads, and how far its log goes. `clock_ahead_ms`: how far
    its clock is ahead of true time, None where nobody can tell, or where all nodes share one clock.
    """

    at_ns: int
    node: int
    is_up: bool
    epoch: int = -1
    leader: int = -1
    high_watermark: int = -1
    log_end: int = -1
    clock_ahead_ms: int | None = None
