"""Scenarios of what-if plans: a lost rack, more brokers, a wider or narrower band. Each has a plan of its own, in one line."""

from __future__ import annotations

import msgspec

from ..errors import WrongUse
from .documents import Broker, ClusterDocument
from .goals import DISK, REPLICAS
from .options import PlanOptions
from .propose import propose

EPS = (0.05, 0.1, 0.2)
ADDED = (1, 3)


class Scenario(msgspec.Struct, frozen=True):
    """A name, lost brokers, a number of added ones, and the options."""

    name: str
    options: PlanOptions
    lost: tuple[int, ...] = ()
    added: int = 0


class Summary(msgspec.Struct, frozen=True):
    """Summary of a scenario's plan. `problem` is the reason for no plan, empty otherwise. Disk and replicas are relative to share
    and mean.
    """

    scenario: str
    plan_id: str = ""
    replica_moves: int = 0
    bytes_moved: int = 0
    lower_bound_bytes: int = 0
    disk_least: float = 0.0
    disk_most: float = 0.0
    replicas_least: float = 0.0
    replicas_most: float = 0.0
    unmet: str = ""
    problem: str = ""


def standard_scenarios(document: ClusterDocument, options: PlanOptions) -> list[Scenario]:
    """Return the band at 5, 10 and 20 %, each rack lost, one and three more brokers."""
    found = [Scenario(f"eps {eps:.0%}", msgspec.structs.replace(options, eps=eps)) for eps in EPS]
    for rack in sorted({broker.rack for broker in document.brokers if broker.rack is not None}):
        lost = tuple(broker.id for broker in document.brokers if broker.rack == rack)
        found.append(Scenario(f"lose {rack}", msgspec.structs.replace(options, drain=lost, balance=True), lost))
    found += [Scenario(f"add {number}", options, added=number) for number in ADDED]
    return found


def document_for(document: ClusterDocument, scenario: Scenario) -> ClusterDocument:
    """Return the cluster of the scenario. New brokers copy the one with most log directories, in the racks by turns."""
    brokers = [msgspec.structs.replace(one, alive=one.alive and one.id not in scenario.lost) for one in document.brokers]
    racks = sorted({one.rack for one in brokers if one.rack is not None and one.alive})
    model = max(brokers, key=lambda one: (one.alive, len(one.log_dirs)))
    first = max(one.id for one in brokers) + 1
    empty = tuple(
        msgspec.structs.replace(entry, usable_bytes=max(entry.usable_bytes, entry.total_bytes)) for entry in model.log_dirs
    )
    brokers += [Broker(first + at, racks[at % len(racks)] if racks else None, True, empty) for at in range(scenario.added)]
    return msgspec.structs.replace(document, brokers=tuple(brokers))


def summarise(document: ClusterDocument, scenario: Scenario) -> Summary:
    """Plan for one scenario."""
    try:
        plan = propose(document_for(document, scenario), scenario.options)
    except WrongUse as error:
        return Summary(scenario.name, problem=str(error))
    states = {goal.name: goal.after for goal in plan.goals}
    disk, count = states.get(DISK), states.get(REPLICAS)
    return Summary(
        scenario=scenario.name,
        plan_id=plan.plan_id,
        replica_moves=plan.replica_moves,
        bytes_moved=plan.bytes_moved,
        lower_bound_bytes=plan.lower_bound_bytes,
        disk_least=disk.least if disk else 0.0,
        disk_most=disk.most if disk else 0.0,
        replicas_least=count.least if count else 0.0,
        replicas_most=count.most if count else 0.0,
        unmet=", ".join(goal.name for goal in plan.goals if not goal.met),
    )
