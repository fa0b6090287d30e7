"""Fault plans: the faults of a run as data.

A plan is drawn from a seed before the run, or read from a file; the run itself draws nothing. So one action can be left out and
all others stay the same, which shrinking relies on. Targets are symbolic ("leader", "controller:1", "broker:0") and are resolved
when the action strikes; a `Strike` (`kraftlab.checking.facts`) names the nodes that it hit.
"""

from __future__ import annotations

import msgspec

from kraftlab.checking.facts import Observation, Strike

__all__ = ["Action", "FaultPlan", "Observation", "Strike"]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """At `at_ms` of the run the fault `kind` strikes `target` with `arguments`, for `for_ms` (0: no duration). `number` counts
    the actions of its kind and names its own random stream.
    """

    at_ms: int
    kind: str
    target: str = ""
    for_ms: int = 0
    arguments: dict[str, object] = {}
    number: int = 0


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of a run by time, and the seed that names their random streams."""

    seed: str
    actions: tuple[Action, ...] = ()
    version: int = 1
