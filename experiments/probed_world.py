"""A simulated quorum without faults, with a client at every node that writes all the time, and links that are cut as planned.

Every ROUND_US, the client at each node gives a write to the leader that its node knows. The write succeeds if the links between
the two are whole and the leader acknowledges it within PATIENCE_US. All else is the simulation that plays seeds: the real core
and storage, and the checkers of every safety rule. A broken rule ends a run with an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftlab.simulation.consensus.invariants import Checker
from kraftlab.simulation.consensus.observed import ObservedProcess
from kraftlab.simulation.consensus.options import CALM, RaftTuning, SimulationOptions
from kraftlab.simulation.consensus.process import SimulatedProcess
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.world import World

Link = tuple[int, int]

ROUND_US = 50_000
PATIENCE_US = 300_000
NEVER_MS = 1_000_000
BODY, RECORDS = b"\x91\x01", 1


def calm_options(seed: str, voters: int, tuning: RaftTuning) -> SimulationOptions:
    """Return options without any fault: 0.5 ms of delay on each link, 1 ms for a write to a disk."""
    return SimulationOptions(
        seed=seed,
        voters=voters,
        observers=0,
        fault_phase_ms=NEVER_MS,
        network=CALM,
        disk_latency_us=1_000,
        apply_delay_us=0,
        propose_interval_us=NEVER_MS * 1_000,
        read_interval_us=0,
        clock_drift=False,
        fetch_max_bytes=1024 * 1024,
        segment_bytes=1024 * 1024,
        cache_bytes=1024 * 1024,
        fault_pace=100,
        faults=(),
        tuning=tuning,
    )


@dataclass
class Round:
    """One write of each client. `leading` are the epochs that had a leader, `served` the nodes of the clients that succeeded."""

    time_us: int
    leading: tuple[int, ...]
    served: set[int] = field(default_factory=set)


class Probes(Checker):
    """The clients, and a record of every leader that was elected."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._world = world
        self._waiting: dict[tuple[ObservedProcess, int, int], tuple[Round, list[int]]] = {}
        self.rounds: list[Round] = []
        self.elected: list[tuple[int, int]] = []
        """Time in microseconds and epoch of each leader that was elected."""

    def write(self) -> None:
        """Let every client write once."""
        world = self._world
        self.rounds.append(Round(world.now_us, tuple(leader.quorum.epoch for leader in world.leaders)))
        clients: dict[int, list[int]] = {}
        for machine in world.machines:
            if machine.process is not None:
                clients.setdefault(machine.process.raft.leader_id, []).append(machine.node_id)
        for leader in world.leaders:
            reached = [node_id for node_id in clients.get(leader.node_id, ()) if self._is_linked(node_id, leader)]
            if reached:
                self._propose(leader, reached)

    def _is_linked(self, node_id: int, leader: SimulatedProcess) -> bool:
        network = self._world.network
        return not (network.is_cut(node_id, leader.node_id) or network.is_cut(leader.node_id, node_id))

    def _propose(self, leader: SimulatedProcess, clients: list[int]) -> None:
        end_offset = leader.raft.log_end_offset + RECORDS
        if leader.propose(BODY, RECORDS):
            self._waiting[leader, end_offset, leader.local_log.view.crc_at(end_offset)] = self.rounds[-1], clients

    def on_acknowledged(self, process: ObservedProcess, base_offset: int, end_offset: int, crc: int) -> None:
        asked, clients = self._waiting.pop((process, end_offset, crc), (None, []))
        if asked is not None and self.world.now_us - asked.time_us <= PATIENCE_US:
            asked.served.update(clients)

    def on_state(self, process: ObservedProcess) -> None:
        if process.raft.is_leader and process.quorum.epoch not in {epoch for _, epoch in self.elected}:
            self.elected.append((self.world.now_us, process.quorum.epoch))


class ProbedWorld(World):
    """The quorum. A subclass schedules the plan of its experiment, with `after`."""

    def __init__(self, seed: str, voters: int, tuning: RaftTuning, until_us: int, transcript: Transcript | None = None) -> None:
        super().__init__(calm_options(seed, voters, tuning), transcript or Transcript())
        self.until_us = until_us
        self.probes = Probes(self)
        self.checkers.add(self.probes)

    def start_clients(self) -> None:
        """Let every client write now, and again in every round."""
        self.probes.write()
        self.after(ROUND_US, self.start_clients)

    def settled_leader(self) -> SimulatedProcess:
        """Return the one leader of a quorum to which nothing has happened so far."""
        [leader] = self.leaders
        return leader

    def cut(self, links: Iterable[Link]) -> None:
        """Cut exactly these links, each in one direction, and restore all others."""
        self.network.calm()
        ways = sorted(links)
        self.note(f"cut {' '.join(f'{a}>{b}' for a, b in ways) or 'nothing'}")
        for source, target in ways:
            self.network.cut(source, target)
