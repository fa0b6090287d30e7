"""Apply a fault plan.

Theory of operation. Every action is a task that sleeps until its time, resolves its target, strikes, waits and undoes. Its strike
records when it truly began and when it was truly undone, by the run's clock. A fault that cannot be brought about is recorded in
its strike and does not end the run. Every fault is undone before its task is gone, whether the task ends at its time, by
cancellation, or by an error of the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import trio

from kraftlab.checking.facts import Strike

from ..fault_plan import Action, FaultPlan
from .cluster_under_faults import ClusterUnderFaults
from .errors import CLUSTER_FAULTS, CannotStrike, CannotUndo
from .kind import Hit, Kind
from .kinds import KINDS
from .plan_generator import chance_of
from .targets import NEW_LEADER, OF_LEADER, NoSuchTarget, target_nodes

_POLL_S = 0.02
_PATIENCE_S = 5.0
"""A strike at the next leader waits so long for an election."""
_LEAST_PART = 0.25
"""A strike that had to wait for its target lasts at least this part of its duration."""
_EXPECTED = (CannotStrike, CannotUndo, NoSuchTarget, *CLUSTER_FAULTS)


async def carry_out(
    victim: ClusterUnderFaults,
    plan: FaultPlan,
    now_ns: Callable[[], int],
    *,
    ended: Callable[[Strike], None] = lambda strike: None,
    begun: Callable[[Strike], None] = lambda strike: None,
    kinds: Mapping[str, Kind] = KINDS,
) -> tuple[Strike, ...]:
    """Strike as planned; return the strikes, by begin time, when all of them are undone.

    `now_ns` is the run's clock. `ended` gets each strike as soon as it is over, even during a cancellation; `begun` gets each
    strike as soon as it is in force, without an end. An error of the harness itself passes through.
    """
    strikes: list[Strike] = []

    def report(struck: Strike) -> None:
        strikes.append(struck)
        ended(struck)

    async with victim.noted(), trio.open_nursery() as nursery:
        for action in plan.actions:
            nursery.start_soon(_strike, victim, plan, action, now_ns, report, begun, kinds)
    return tuple(sorted(strikes, key=lambda strike: (strike.begin_ns, strike.kind)))


async def _strike(
    victim: ClusterUnderFaults,
    plan: FaultPlan,
    action: Action,
    now_ns: Callable[[], int],
    report: Callable[[Strike], None],
    begun: Callable[[Strike], None],
    kinds: Mapping[str, Kind],
) -> None:
    end_s = (action.at_ms + action.for_ms) / 1000
    await trio.sleep(max(action.at_ms / 1000 - now_ns() / 1e9, 0))
    begin_ns, hit, error = now_ns(), None, ""
    try:
        random = chance_of(plan, action)
        nodes = await _aim(victim, action, random)
        hit, begin_ns = Hit(nodes, action.arguments, random), now_ns()
        async with kinds[action.kind].fault(victim, hit):
            begun(Strike(kind=action.kind, begin_ns=begin_ns, end_ns=None, nodes=hit.nodes, links=hit.links, detail=hit.detail))
            await trio.sleep(max(end_s - now_ns() / 1e9, action.for_ms / 1000 * _LEAST_PART))
    except _EXPECTED as fault:
        error = str(fault)
    finally:
        if hit is not None or error:
            report(
                Strike(
                    kind=action.kind,
                    begin_ns=begin_ns,
                    end_ns=now_ns(),
                    nodes=() if hit is None else hit.nodes,
                    links=() if hit is None else hit.links,
                    detail="" if hit is None else hit.detail,
                    error=error,
                )
            )


async def _aim(victim: ClusterUnderFaults, action: Action, random: Random) -> tuple[int, ...]:
    """Return the nodes that the action's target means now. CannotStrike, NoSuchTarget."""
    if action.target == NEW_LEADER:
        return (await _next_leader(victim),)
    return target_nodes(action.target, await victim.view(with_leader=action.target in OF_LEADER), random)


async def _next_leader(victim: ClusterUnderFaults) -> int:
    """Wait for the next election and return its winner."""
    before = await victim.find_leader()
    above = -1 if before is None else before.epoch
    with trio.move_on_after(_PATIENCE_S):
        while True:
            leads = await victim.find_leader(above)
            if leads is not None and leads.epoch > above:
                return leads.node
            await trio.sleep(_POLL_S)
    raise CannotStrike(f"no leader was elected within {_PATIENCE_S:g} s")
