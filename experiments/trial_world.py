"""One election in virtual time: voters boot, elect a leader and follow, the leader crashes, and the next leader ends the trial.

Theory of operation. The world is the simulator's: the real RaftNode with the real storage code, on simulated disks and links. Its
rules are checked meanwhile. Delays of messages and of disks are uniform over exact ranges, and nothing is lost.
When all voters have followed one leader for a while, that leader appends a batch, which every parked fetch gets at once: the
synchronized heartbeat of the paper, which makes split votes likely. `laggards` do not get it, so their logs are too short to win.
After a random part of `heartbeat_ms` the leader crashes, and `failed` others with it. If it `refuses`, its kernel refuses new
connections and resets open ones from then on, as after kill -9. Otherwise nothing comes from there again, as after a power cut.

Not shown: clocks that run apart, lost messages, and other work of the nodes.
"""

from __future__ import annotations

import msgspec

from kraftlab.quorum.core.events import RequestFailed
from kraftlab.simulation.consensus.network import SimulatedNetwork
from kraftlab.simulation.consensus.options import NetworkOptions, RaftTuning, SimulationOptions
from kraftlab.simulation.consensus.stage import Peer
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.world import World

from .experiment import Row, Trial

NEVER_US = 1 << 50
LOOK_US = 5_000
SIZE_BYTES = 1 << 20
FOLLOW_WITHIN_MS = 20_000
"""Time after which a quorum counts as one that does not keep a leader."""
LEADS_WITHIN_MS = 30_000
"""Time after which a crash counts as one without a next leader."""
BODY = bytes([0x91, 0xC4, 0x00])
"""The body of a batch: a MessagePack array of one empty record."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a trial. Timers run for `timeout_ms` and a random part of `spread_ms`; -1: kraftlab's own rule."""

    servers: int = 5
    timeout_ms: int = 150
    election_timeout_ms: int = 0
    """The timeout of candidates, if it is not that of followers."""
    spread_ms: int = 150
    delay_least_us: int = 500
    delay_most_us: int = 1_500
    disk_mean_us: int = 6_500
    heartbeat_ms: float = 0.0
    laggards: int = 0
    failed: int = 0
    refuses: bool = False
    pre_vote: bool = True


class ExactTuning(RaftTuning, frozen=True):
    """Settings of RaftConfig that a trial chooses."""

    fetch_timeout_ms: int = 600
    timer_spread_ms: int | None = None


class ExactNetwork(SimulatedNetwork):
    """A network with delays that are uniform over a range."""

    def __init__(self, world: World, least_us: int, most_us: int) -> None:
        super().__init__(world)
        self._delays = world.options.random("delays")
        self._range = least_us, most_us

    def delay_us(self, way: tuple[int, int]) -> int:
        """Draw the delay of a message."""
        return self._delays.randint(*self._range)


class TrialWorld(World):
    """The world of one trial. `run` ends when there is a next leader, or none for LEADS_WITHIN_MS."""

    def __init__(self, scenario: Scenario, seed: str) -> None:
        self.scenario = scenario
        self.crashed_at_us: int | None = None
        self.old_epoch = 0
        self.epoch = 0
        """The epoch of the next leader; 0: there is none."""
        self.candidacies = 0
        """Number of times that a voter has become a candidate after the crash."""
        super().__init__(_options(scenario, seed), Transcript())
        self.network = ExactNetwork(self, scenario.delay_least_us, scenario.delay_most_us)
        self._draws = self.options.random("trial")

    def begin(self) -> None:
        """Boot one machine before the others, so that it becomes the first leader, and wait until all follow."""
        first = self._draws.randrange(self.scenario.servers)
        for machine in self.machines:
            self.after(0 if machine.node_id == first else self.scenario.timeout_ms * 500, machine.boot)
        self.after(LOOK_US, self._look)
        self.after(FOLLOW_WITHIN_MS * 1000, self._end_unless_crashed)

    def _end_unless_crashed(self) -> None:
        if self.crashed_at_us is None:
            self.finish()

    def _look(self) -> None:
        settled_us = 3_000 * self.scenario.timeout_ms + self._draws.randrange(LOOK_US)
        self.after(*((settled_us, self._heartbeat) if self._all_follow() else (LOOK_US, self._look)))

    def _all_follow(self) -> bool:
        """Return True if every voter follows the one leader, and has what the leader has committed."""
        if len(self.leaders) != 1 or any(machine.process is None for machine in self.machines):
            return False
        leader = self.leaders[0]
        processes = [machine.process for machine in self.machines if machine.process is not None]
        return all(
            process.quorum.leader_id == leader.node_id and process.raft.high_watermark == leader.local_log.view.end_offset
            for process in processes
        )

    def _heartbeat(self) -> None:
        if not self._all_follow():
            self.after(LOOK_US, self._look)
            return
        leader = self.leaders[0]
        others = [machine.node_id for machine in self.machines if machine.node_id != leader.node_id]
        chosen = self._draws.sample(others, self.scenario.laggards + self.scenario.failed)
        for node_id in chosen[: self.scenario.laggards]:
            self.network.cut_for_good(leader.node_id, node_id)
        leader.propose(BODY, 1)
        wait_us = int(self._draws.random() * self.scenario.heartbeat_ms * 1000)
        self.after(wait_us, self._crash, leader.node_id, chosen[self.scenario.laggards :])

    def _crash(self, leader_id: int, failed: list[int]) -> None:
        leader = self.machines[leader_id].process
        self.crashed_at_us = self.now_us
        self.old_epoch = leader.quorum.epoch if leader is not None else 0
        for node_id in (leader_id, *failed):
            if not self.scenario.refuses:
                for other in range(self.scenario.servers):
                    self.network.cut_for_good(node_id, other)
            self.machines[node_id].crash(power_cut=False, reason="the trial", down_us=NEVER_US)
        self.after(LEADS_WITHIN_MS * 1000, self.finish)

    def process_died(self, process: Peer) -> None:
        """Reset every open connection, as a kernel does. The simulator's own rule lets some resets be lost."""
        for inbound in process.inbound.values():
            if self.scenario.refuses:
                way = (process.node_id, inbound.caller.node_id)
                failure = RequestFailed(inbound.correlation, process.node_id)
                self.after(self.network.delay_us(way), inbound.caller.fail, failure)

    def moved(self, source: str, target: str) -> None:
        """Count candidacies."""
        super().moved(source, target)
        self.candidacies += self.crashed_at_us is not None and target == "candidate"

    def leaders_changed(self) -> None:
        """End the trial at the next leader."""
        super().leaders_changed()
        if self.crashed_at_us is not None and self.leaders and self.leaders[0].quorum.epoch > self.old_epoch:
            self.epoch = self.leaders[0].quorum.epoch
            self.finish()


def _options(scenario: Scenario, seed: str) -> SimulationOptions:
    return SimulationOptions(
        seed=seed,
        voters=scenario.servers,
        observers=0,
        fault_phase_ms=NEVER_US // 1000,
        network=NetworkOptions(),
        disk_latency_us=scenario.disk_mean_us,
        apply_delay_us=0,
        propose_interval_us=NEVER_US,
        read_interval_us=0,
        clock_drift=False,
        fetch_max_bytes=SIZE_BYTES,
        segment_bytes=SIZE_BYTES,
        cache_bytes=SIZE_BYTES,
        fault_pace=100,
        faults=(),
        tuning=ExactTuning(
            pre_vote=scenario.pre_vote,
            fetch_timeout_ms=scenario.timeout_ms,
            election_timeout_ms=scenario.election_timeout_ms or scenario.timeout_ms,
            timer_spread_ms=None if scenario.spread_ms < 0 else scenario.spread_ms,
        ),
    )


def elect(trial: Trial) -> list[Row]:
    """Play a trial with the parameters of a scenario. Return its row: the time from the crash to the next leader.

    Not `settled`: the voters never followed one leader for long, and none crashed. Not `elected`: there was no next leader.
    """
    world = TrialWorld(msgspec.convert(trial.parameters, Scenario), trial.seed)
    world.run()
    crashed_at_us = world.now_us if world.crashed_at_us is None else world.crashed_at_us
    return [
        {
            "settled": world.crashed_at_us is not None,
            "elected": world.epoch > 0,
            "ms": (world.now_us - crashed_at_us) / 1000,
            "epochs": max(0, world.epoch - world.old_epoch),
            "candidacies": world.candidacies,
        }
    ]
