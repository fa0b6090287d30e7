"""Fault plans drawn from a seed.

Theory of operation. Every kind of fault draws from its own random stream, named by seed and kind, so leaving out a kind changes
nothing about the others. Random choices at the time of a strike come from a stream named by kind and number, so leaving out an
action changes nothing about the others either. Every action is over by the end of the run.

"all" is not every kind at once, under which nothing would ever get done: each kind takes part with probability one third,
different kinds for each seed (swarm testing), and at least one takes part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from random import Random

from ..fault_plan import Action, FaultPlan
from ..workload import Options
from .kind import Kind, Shape
from .kinds import ALL, KINDS

_INTERVALS_PER_RUN = 6
_INTERVAL_MS = (1_000, 10_000)
"""Minimum and maximum. Shorter intervals would leave no time for an election between two strikes; longer ones would test little.
"""
_SWARM = 1 / 3
_LAST_BEGIN = 0.9
"""No action begins after this part of a run, so that each lasts for a while."""


class NoSuchNemesis(ValueError):
    """Unknown name of a nemesis; the text lists the known ones."""


def draw_plan(
    options: Options, names: Iterable[str], *, available: Collection[str] | None = None, kinds: Mapping[str, Kind] = KINDS
) -> FaultPlan:
    """Return the plan of those nemeses for a run. `available`: the kinds that "all" may choose from, None: every kind. `kinds` is
    the table of the world. NoSuchNemesis.
    """
    chosen = chosen_kinds(options, names, available=available, kinds=kinds)
    actions = [action for name in chosen for action in _draw(kinds[name], options)]
    order = {name: place for place, name in enumerate(kinds)}
    actions.sort(key=lambda action: (action.at_ms, order[action.kind], action.number))
    return FaultPlan(seed=options.seed, actions=tuple(actions))


def chosen_kinds(
    options: Options, names: Iterable[str], *, available: Collection[str] | None = None, kinds: Mapping[str, Kind] = KINDS
) -> tuple[str, ...]:
    """Return the kinds that these names mean, in the order of the table. NoSuchNemesis."""
    asked = set(names)
    unknown = sorted(asked - {*kinds, ALL})
    if unknown:
        raise NoSuchNemesis(f"unknown nemesis {', '.join(unknown)}; known: {', '.join(kinds)}, all")
    if ALL in asked:
        possible = [name for name in kinds if available is None or name in available]
        asked = (asked - {ALL}) | _swarm(options, possible)
    return tuple(name for name in kinds if name in asked)


def _swarm(options: Options, possible: Sequence[str]) -> set[str]:
    found = {name for name in possible if options.random(f"nemesis/swarm/{name}").random() < _SWARM}
    return found or set(options.random("nemesis/swarm").choices(possible))


def _draw(kind: Kind, options: Options) -> Iterator[Action]:
    random = options.random(f"nemesis/{kind.name}")
    shape = Shape(options.controllers, options.brokers)
    end_ms = int(options.time_s * 1000)
    interval_ms = min(max(end_ms / _INTERVALS_PER_RUN, _INTERVAL_MS[0]), _INTERVAL_MS[1])
    at_ms, number = 0, 0
    while True:
        at_ms += int(random.uniform(*kind.rhythm.pause) * interval_ms)
        for_ms = int(random.uniform(*kind.rhythm.duration) * interval_ms)
        drafts = kind.draw(random, shape)
        if at_ms >= end_ms * _LAST_BEGIN:
            return
        for draft in drafts:
            yield Action(
                at_ms=at_ms,
                kind=kind.name,
                target=draft.target,
                for_ms=min(for_ms, end_ms - at_ms),
                arguments=draft.arguments,
                number=number,
            )
            number += 1
        at_ms += for_ms


def chance_of(plan: FaultPlan, action: Action) -> Random:
    """Return the random generator of the action for its strike."""
    return Random(f"{plan.seed}/nemesis/{action.kind}/{action.number}")
