"""Faults as data: what is to strike, and when.

A plan is drawn from a seed before the run, or read from a file: the run itself draws nothing. So an action may be left out and
the others still do what they did; that is what shrinking needs. Targets are words that mean something in any cluster ("leader",
"controller:1", "broker:0"), and are looked up when the action strikes; a `Strike` (`kraftlab.checking.facts`) names the nodes
that it hit.
"""

from __future__ import annotations

import msgspec

from kraftlab.checking.facts import Observation, Strike

__all__ = ["Action", "FaultPlan", "Observation", "Strike"]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """At `at_ms` of the run, the fault `kind` strikes `target` with `arguments`, and is undone after `for_ms` (0: it is over at
    once). `number` is its place among those drawn for its kind, and names its own stream of chance.
    """

    at_ms: int
    kind: str
    target: str = ""
    for_ms: int = 0
    arguments: dict[str, object] = {}
    number: int = 0


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of a run by time, and the seed that its chance is named by."""

    seed: str
    actions: tuple[Action, ...] = ()
    version: int = 1
