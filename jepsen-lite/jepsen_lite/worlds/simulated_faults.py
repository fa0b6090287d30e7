"""Faults of the simulated world: options and strikes by seed, and plans of them.

The simulator has finer faults than real processes: a power loss between two effects of one step, an election state that is half
written. The name of a nemesis report for a group of them. A plan names the simulator's own faults; random choices at the time of
a strike come from a generator named by seed, fault and number.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.options import NetworkOptions, SimulationOptions, draw_options
from kraftlab.simulation.consensus.options import Strike as Blow
from kraftlab.simulation.consensus.plan import draw_strikes

from ..fault_plan import Action, FaultPlan
from ..workload import Options

ALL = "all"
ALWAYS = ("take-snapshot",)
"""Part of every run, and harmless."""
FAULTS_OF: dict[str, tuple[str, ...]] = {
    "kill": ("kill", "graceful-restart", "crash-between-effects"),
    "pause": ("pause",),
    "partition": ("partition", "isolate", "broken-link"),
    "one-way": ("isolate",),
    "isolate-leader": ("isolate", "resign"),
    "slow": ("clog",),
    "late": ("clog",),
    "loss": (),
    "duplicate": (),
    "reorder": (),
    "clock": ("clock-jump", "clock-rate"),
    "power-loss": ("power-cut", "power-cut-everywhere", "crash-in-store", "crash-in-recovery"),
    "disk-full": ("full-disk",),
    "disk-error": ("failed-fsync", "failing-disk", "refused-names"),
    "slow-disk": ("slow-disk",),
    "bit-rot": ("rot",),
    "torn": ("crash-in-flush",),
    "membership": ("add-voter", "remove-voter", "hasty-change", "transfer-leadership", "replace-disk", "move-node", "resign"),
}
"""Nemesis → faults of the simulator."""
NETWORK_OF: dict[str, dict[str, int | bool]] = {
    "slow": {"delay_us": 20_000},
    "late": {"replays": 50},
    "loss": {"loss": 50, "response_loss": 50},
    "duplicate": {"duplicates": 200, "replays": 50},
    "reorder": {"reordering": True},
}
"""Nemesis → options of the network between nodes."""
UNSTRUCK_MS = 1_000
"""Clients run without faults for this time."""


NAMED_PACE = 40
"""Named nemeses strike more often than those that the seed draws: there are fewer of them."""


class NoSuchFault(ValueError):
    """Unknown name of a fault; the text lists the known ones."""


def draw_world(options: Options, nemeses: Collection[str]) -> SimulationOptions:
    """Return the options of a seed's world. NoSuchFault.

    "all" is a swarm: each seed has some kinds of trouble and not the others. Named nemeses all take part.
    """
    unknown = sorted(set(nemeses) - {ALL, *FAULTS_OF})
    if unknown:
        raise NoSuchFault(f"unknown nemesis {', '.join(unknown)} in the simulated world; known: {', '.join(FAULTS_OF)}, all")
    drawn = draw_options(options.seed, FAULTS, fault_phase_ms=max(1, int(options.time_s * 1000)))
    random = options.random("simulated world")
    named = {fault for nemesis in nemeses if nemesis != ALL for fault in FAULTS_OF[nemesis]}
    chosen = {*ALWAYS, *named, *(drawn.faults if ALL in nemeses else ())} if nemeses else set()
    network = drawn.network if ALL in nemeses else NetworkOptions(delay_us=drawn.network.delay_us)
    for nemesis in sorted(nemeses):
        network = msgspec.structs.replace(network, **NETWORK_OF.get(nemesis, {}))
    is_dynamic = drawn.dynamic_voters if ALL in nemeses else "membership" in nemeses
    return msgspec.structs.replace(
        drawn,
        voters=options.controllers,
        observers=random.choice((0, 0, 1)) + is_dynamic,
        network=network,
        fault_pace=drawn.fault_pace if ALL in nemeses else NAMED_PACE,
        faults=tuple(name for name in FAULTS if name in chosen),
        clock_drift=drawn.clock_drift and (ALL in nemeses or "clock" in nemeses),
        dynamic_voters=is_dynamic,
        auto_join=drawn.auto_join and is_dynamic,
        rots_in_the_end=False,
        clients=0,
        read_interval_us=0,
    )


def draw_plan(options: Options, world: SimulationOptions) -> FaultPlan:
    """Return the seed's own strikes, to the millisecond."""
    actions = tuple(
        Action(at_ms=UNSTRUCK_MS + blow.time_us // 1_000, kind=blow.fault, number=blow.number)
        for blow in draw_strikes(world)
        if UNSTRUCK_MS + blow.time_us // 1_000 < world.fault_phase_ms
    )
    return FaultPlan(seed=options.seed, actions=actions)


def blows_of(plan: FaultPlan) -> tuple[Blow, ...]:
    """Return a plan as strikes of the simulator. NoSuchFault."""
    unknown = sorted({action.kind for action in plan.actions} - FAULTS.keys())
    if unknown:
        raise NoSuchFault(f"unknown fault {', '.join(unknown)} in the simulated world; known: {', '.join(FAULTS)}")
    return tuple(Blow(action.at_ms * 1_000, action.kind, action.number) for action in plan.actions)
