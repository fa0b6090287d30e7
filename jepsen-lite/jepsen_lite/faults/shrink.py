"""Simplifications of a run under faults: fewer faults, then less time, fewer clients, operations and nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from kraftlab.checking.ddmin import simplest, smallest

from ..fault_plan import Action
from ..workload import Options


class Case(NamedTuple):
    """The parts of a run that can be reduced."""

    options: Options
    actions: tuple[Action, ...]


def smallest_case(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a case that fails with as few faults, and then as little time, clients, operations and nodes, as `fails` allows.

    All faults of a kind are removed together first, since most kinds are irrelevant; single faults are tried again at the end,
    since a smaller cluster may need fewer. `case` itself must fail.
    """

    def with_actions(case: Case) -> Case:
        options = case.options
        return Case(options, smallest(case.actions, lambda actions: fails(Case(options, actions))))

    kinds = dict.fromkeys(action.kind for action in case.actions)
    fewer = with_actions(simplest(case, [partial(_without, kind) for kind in kinds], fails))
    smaller = simplest(fewer, STEPS, fails)
    return smaller if smaller.options == fewer.options else with_actions(smaller)


def _without(kind: str, case: Case) -> Case:
    return Case(case.options, tuple(action for action in case.actions if action.kind != kind))


def _until_the_last_fault_is_over(case: Case) -> Case | None:
    end_s = max((action.at_ms + action.for_ms for action in case.actions), default=0) / 1000 + _AFTERWARDS_S
    return _changed(case, time_s=end_s) if end_s < case.options.time_s else None


def _half_as_long(case: Case) -> Case | None:
    half_s = case.options.time_s / 2
    last_s = max((action.at_ms for action in case.actions), default=0) / 1000
    return _changed(case, time_s=half_s) if half_s >= max(_TIME_MIN_S, last_s) else None


def _changed(case: Case, **options: object) -> Case:
    return Case(msgspec.structs.replace(case.options, **options), case.actions)


_AFTERWARDS_S = 2.0
"""Clients continue so long after the last fault."""
_RATE_MIN = 10.0
_TIME_MIN_S = 0.5
STEPS: tuple[Callable[[Case], Case | None], ...] = (
    _until_the_last_fault_is_over,
    _half_as_long,
    lambda case: _changed(case, concurrency=case.options.concurrency // 2) if case.options.concurrency > 1 else None,
    lambda case: _changed(case, rate=case.options.rate / 2) if case.options.rate / 2 >= _RATE_MIN else None,
    lambda case: _changed(case, brokers=case.options.brokers - 1) if case.options.brokers > 1 else None,
    lambda case: _changed(case, controllers=case.options.controllers - 2) if case.options.controllers > 2 else None,
)
"""Reductions of everything except faults."""
