"""The simulated world: actions by virtual time, a heap of those times, and the machines, network and clients they act on.

A run has two phases. In the fault phase, faults that the seed has drawn strike, while a workload proposes batches to every leader
and asks leaders for linearizable reads. Clients do both as well, and keep a history. Then everything heals for good, or enough of
it, and the checks of liveness begin (liveness.py). Nothing here reads a clock, a hash or a thread: a seed is a run.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import repeat

import msgspec

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.core.raft_node import RaftNode
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.quorum.storage import LogCorrupt

from .check_quorum import CheckQuorum
from .clients import Clients, lists_state_machine
from .committed_history import CommittedHistory
from .coverage import Coverage
from .durable_log import DurableLog
from .faults import FAULTS
from .invariants import Checkers, Violation
from .liveness import Liveness
from .machine import Machine
from .membership_invariants import MEMBERSHIP_CHECKERS
from .network import SimulatedNetwork
from .observed import ObservedMachine, Rot
from .operators import Operators
from .options import SimulationOptions, Strike
from .plan import draw_strikes, strike_seed
from .process import SimulatedProcess
from .snapshot_invariants import SNAPSHOT_CHECKERS
from .stage import Process
from .state_machine import SimulatedStateMachine
from .transcript import Transcript
from .voter_trail import Voters

HEALTHY_DISK_US = 200
TIMES_MAX = 3_000_000
TIMES_AT_ONCE = 200
BURSTS = (1, 1, 1, 1, 4)
"""Batches proposed at once. Batches of one burst travel and reach the disk together."""
BODY_BYTES = (0, 10, 200, 900, 3_000)

StateMachineFactory = Callable[[int], SimulatedStateMachine]


class World:
    """A simulated cluster. `run` plays the seed to its end, and raises an exception if a rule is broken."""

    make_core: type[RaftNode] = RaftNode
    """The consensus core of every node. A subclass of the world can play another one (docs/research/another-core.md)."""

    def __init__(
        self,
        options: SimulationOptions,
        transcript: Transcript,
        make_state_machine: StateMachineFactory = lists_state_machine,
    ) -> None:
        self.options = options
        self.transcript = transcript
        self.make_state_machine = make_state_machine
        self.now_us = 0
        self.strikes = draw_strikes(options)
        """The strikes of the run; can be replaced before `run`."""
        self.until_us: int | None = None
        """Time at which the run ends, without a verdict on later events; None: when liveness is shown."""
        self.trace: Callable[[str], object] | None = None
        """Called with a line of NDJSON for every core transition (quorum/trace.py)."""
        self.coverage = Coverage()
        self.acknowledged = 0
        self.asks: tuple[int, int] | None = None
        """Range of the proposals and reads that leaders are asked for, by number; the others are left out. None: all of them."""
        self.asked = 0
        """Number of proposals and reads that leaders were asked for."""
        self._ask_number = 0
        self.reads = 0
        """Number of linearizable reads that were answered."""
        self.mended_logs = 0
        """Number of boots that found a torn tail or a half-made segment."""
        self.lost_disks: dict[ReplicaKey, tuple[DurableLog, ...]] = {}
        """By replica, the logs of disks that were replaced: the last one, and the one before the disk rotted."""
        self.disk_slowness: dict[int, int] = {}
        self.slow_until_us = 0
        """Time by which every operation that began on a slow disk has ended."""
        self.bootstrap_ids = tuple(range(options.voters))
        """The voters that the cluster begins with."""
        self.network = SimulatedNetwork(self)
        self.snapshots_taken = self.snapshots_loaded = self.repairs = 0
        self.has_rotten_snapshots = False
        """True if a snapshot has ever rotted."""
        self.has_equal_snapshots = make_state_machine is lists_state_machine
        """True if two snapshots at the same offset have the same bytes."""
        self.history = CommittedHistory()
        self.checkers: Checkers = Checkers(self, (*SNAPSHOT_CHECKERS, *MEMBERSHIP_CHECKERS))
        self.machines: list[Machine] = [Machine(self, node_id) for node_id in range(options.voters + options.observers)]
        self.leaders: tuple[SimulatedProcess, ...] = ()
        """The processes that believe to lead, in the order of node ids. Each leads an epoch of its own."""
        self._tuning = msgspec.structs.asdict(options.tuning)
        self.static_voters = VoterSet(())
        """The voters that the configuration names; empty if the voters are in the log."""
        self.voters: Voters = Voters(self._first_voters())
        self._times_us: list[int] = []
        """A heap of the times at which actions are due. Each time is in the heap once, since integers compare fast."""
        self._due: dict[int, list[tuple[Callable[..., object], tuple[object, ...]]]] = {}
        """By time, the actions that are due, in the order in which they were scheduled."""
        self._workload = options.random("workload")
        self._readers = options.random("readers")
        self._strike_random = options.random("strikes")
        """Seeded for each strike."""
        self.liveness = Liveness(self)
        self.clients: Clients | None = None
        if options.clients and make_state_machine is lists_state_machine:
            self.clients = Clients(self)
            self.checkers.add(self.clients)
        self.operators = Operators(self)
        self.checkers.add(self.operators)
        self._is_done = False

    def _first_voters(self) -> VoterSet:
        if not self.options.dynamic_voters:
            self.static_voters = VoterSet.of(Voter(ReplicaKey(node_id), {}) for node_id in self.bootstrap_ids)
            return self.static_voters
        voters = VoterSet.of(self.machines[node_id].voter for node_id in self.bootstrap_ids)
        for node_id in self.bootstrap_ids:
            self.machines[node_id].format(voters)
        return voters

    def config_of(self, node_id: int) -> RaftConfig:
        options, machine = self.options, self.machines[node_id]
        return RaftConfig(
            node_id=machine.node_id,
            voters=self.static_voters,
            directory_id=machine.identity.directory_id,
            endpoints=machine.endpoints if options.dynamic_voters else {},
            fetch_max_bytes=options.fetch_max_bytes,
            snapshots_kept=options.snapshots_kept,
            snapshot_chunk_bytes=options.snapshot_chunk_bytes,
            auto_join=options.auto_join,
            **self._tuning,
        )

    def machine_of(self, key: ReplicaKey) -> Machine | None:
        """Return the machine that has the replica's disk; None if the disk was replaced."""
        machine = self.machines[key.node_id]
        return machine if machine.key.matches(key) else None

    def has_held(self, key: ReplicaKey, offset: int, crc: int | None) -> bool:
        """Return True if the voter's disk holds that committed batch, or did before it was lost or rotted."""
        machine = self.machine_of(key)
        held = machine.held if machine is not None else self.lost_disks[key]
        return any(log.holds(offset, crc) for log in held)

    def newest_voters(self) -> VoterSet:
        """Return the voters in the newest leader's log. Without a leader, return the newest committed voters."""
        leader = max(self.leaders, key=lambda process: process.quorum.epoch, default=None)
        return leader.voter_trail.latest if leader is not None else self.voters.committed.latest

    def refused_to_start(self, node_id: int, error: LogCorrupt) -> None:
        """Handle a start that refuses its damaged disk. If rot is the reason, an operator replaces the disk where that is safe.

        A node that was once the only voter still takes itself for the only voter if the later record of voters has rotted.
        """
        machine = self.machines[node_id]
        if machine.rot is not None and self._is_alone(machine):
            # The atlas looked at the voters at the time of the strike. All others were removed later, and no node saw the rot.
            self.note(f"n{machine.node_id} refuses to start: {error}")
            self.liveness.excuse = f"only-voter-has-rotted: n{machine.node_id} refuses to start"
            self.finish()
            return
        if machine.rot is None or not self._explains(machine, machine.rot, error):
            raise error
        self.note(f"n{machine.node_id} refuses to start: {error}")
        if self.options.dynamic_voters or not self.static_voters.has(machine.key):
            machine.wipe("its operator has given it up")
            machine.boot()
        else:
            machine.is_gone = True

    def _explains(self, machine: Machine, rot: Rot, error: LogCorrupt) -> bool:
        """Return True if this rot makes a start refuse with that error."""
        return rot.file in str(error) if rot.is_fatal else self._seems_alone(machine, rot)

    def _is_alone(self, machine: Machine) -> bool:
        """Return True if the node is the only voter. The record of that can be on its disk alone, not known to be durable: no
        other node can be elected then, since that takes a voter with this record.
        """
        alone = (machine.node_id,)
        survived = self.voters.standing_in(machine.segments())
        return self.newest_voters().ids() == alone or (
            survived.latest_offset >= machine.durable.end_offset and survived.latest.ids() == alone
        )

    def _seems_alone(self, machine: Machine, rot: Rot) -> bool:
        """Return True if the node is the only member of the newest voter set that can be read from its disk."""
        trail = self.voters.trail_of(machine.before_rot or machine.durable)
        readable = [voters.ids() for offset, voters in trail.entries if offset not in rot.unreadable]
        return self.options.dynamic_voters and [self.bootstrap_ids, *readable][-1] == (machine.node_id,)

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object) -> None:
        """Schedule an action. Actions of the same time run in the order in which they were scheduled."""
        time_us, due = self.now_us + delay_us, self._due
        if time_us in due:
            due[time_us].append((action, arguments))
        else:
            due[time_us] = [(action, arguments)]
            heappush(self._times_us, time_us)

    def process_died(self, process: Process) -> None:
        """Break the connections of a process that has ended."""
        self.network.process_died(process)

    def leaders_changed(self) -> None:
        """Update `leaders`: a process has begun to lead, or has stopped."""
        processes = [machine.process for machine in self.machines]
        self.leaders = tuple(process for process in processes if process is not None and process.is_leading)

    def moved(self, source: str, target: str) -> None:
        """Count a node's transition from one state to another."""
        self.coverage.moved(source, target)

    def is_given_up(self, machine: ObservedMachine) -> bool:
        """Return True if the machine stays broken for good."""
        return machine in self.liveness.outside

    def unanswered(self) -> str | None:
        """Describe a client's call, or a change of the voters, that should have its answer by now; None if there is none."""
        missing = self.clients.unanswered() if self.clients is not None else None
        return missing or self.operators.unanswered()

    def note(self, text: str) -> None:
        self.transcript.note(self.now_us, text)

    def disk_latency_us(self, node_id: int) -> int:
        if self.liveness.healed_at_us is not None:
            return HEALTHY_DISK_US
        slowness = self.disk_slowness.get(node_id, 1)
        latency_us = self.options.disk_latency_us * slowness
        if slowness > 1:
            self.slow_until_us = max(self.slow_until_us, self.now_us + 2 * latency_us)
        return latency_us

    @property
    def is_healed(self) -> bool:
        """True once the heal has begun: no further fault strikes, and the workload has ended."""
        return self.liveness.healed_at_us is not None

    def run(self) -> None:
        """Play both phases. Raises Violation, or an exception of the code under test."""
        self.note(f"{self.options}")
        CheckQuorum(self, self.after).start()
        self.begin()
        for _ in range(TIMES_MAX // TIMES_AT_ONCE):
            self._go_on()
            if self._is_done:
                return
            self.transcript.hash_steps()
        raise Violation(f"L0 {TIMES_MAX} times without an end")

    def begin(self) -> None:
        """Schedule the boots, the workload, the strikes and the heal."""
        for machine in self.machines:
            self.after(0, machine.boot)
        self.after(self.options.propose_interval_us, self._propose)
        if self.options.read_interval_us:
            self.after(self.options.read_interval_us, self._read)
        if self.clients is not None:
            self.clients.start()
        for strike in self.strikes:
            self.after(strike.time_us, self._strike, strike)
        self.after(self.options.fault_phase_ms * 1000, self.liveness.heal)
        if self.until_us is not None:
            self.after(self.until_us, self.finish)

    def _go_on(self) -> None:
        """Run the actions of the next TIMES_AT_ONCE times. The bound keeps the steps that wait to be hashed few.

        An action that is scheduled without delay runs after all others of that time, as an entry of its own in the heap.
        """
        times_us, take = self._times_us, self._due.pop
        for _ in repeat(None, TIMES_AT_ONCE):
            self.now_us = time_us = heappop(times_us)
            for action, arguments in take(time_us):
                action(*arguments)
                if self._is_done:
                    return

    # The workload

    def _propose(self) -> None:
        if self.liveness.healed_at_us is not None:
            return
        random = self._workload
        for process in self.leaders:
            if random.random() < 0.9:
                for _ in range(random.choice(BURSTS)):
                    if self._is_to_ask():
                        self.work(process)
        self.after(1 + int(random.random() * 2 * self.options.propose_interval_us), self._propose)

    def _is_to_ask(self) -> bool:
        """Return False if `asks` leaves out the next proposal or read."""
        self._ask_number += 1
        is_left_out = self.asks is not None and not self.asks[0] < self._ask_number <= self.asks[1]
        self.asked += not is_left_out
        return not is_left_out

    def work(self, process: SimulatedProcess) -> None:
        """Put one piece of the workload to a leader. A world with other state machines overrides this."""
        process.propose(*self._body())

    def _read(self) -> None:
        """Ask each leader for a linearizable read, until the heal. All must be answered for the cluster to converge."""
        if self.liveness.healed_at_us is not None:
            return
        for process in self.leaders:
            if self._is_to_ask():
                process.read()
        self.after(1 + int(self._readers.random() * 2 * self.options.read_interval_us), self._read)

    def _body(self) -> tuple[bytes, int]:
        """Return a body, a MessagePack array of integers and a blob, and its record count.

        No two bodies are equal, and no sector is all zeros, so that a lost sector shows.
        """
        random = self._workload
        count, size = random.choice((1, 1, 1, 2, 5)), random.choice(BODY_BYTES)
        records = b"".join(b"\xce" + random.randrange(1 << 32).to_bytes(4, "big") for _ in range(count - 1))
        blob = bytes((random.randrange(1, 256),)) * size
        return bytes([0x90 + count]) + records + b"\xc5" + size.to_bytes(2, "big") + blob, count

    # Faults

    def _strike(self, strike: Strike) -> None:
        states = [machine.state_name for machine in self.machines]
        self.coverage.struck(strike.fault, [states[node_id] for node_id in self.strike_with(strike)])

    def strike_with(self, strike: Strike) -> tuple[int, ...]:
        """Apply the strike and return the nodes that it has hit."""
        self._strike_random.seed(strike_seed(self.options, strike))
        return FAULTS[strike.fault].strike(self, self._strike_random)

    # The end

    def finish(self) -> None:
        """End the run."""
        self._is_done = True

    def converged(self) -> None:
        """Judge the clients' history, since all conditions of liveness are met, and end the run."""
        process = self.liveness.core[0].process
        if self.clients is not None and process is not None:
            self.clients.judge(process)
        self.finish()

    def has_converged(self, offset: int) -> bool:
        """Return True if every node of the core runs on, has committed and applied through `offset`, and has ended all reads.
        Raises Violation if their states differ.
        """
        digests: list[int] = []
        for machine in self.liveness.core:
            process = machine.process
            if process is None or process.is_stopping or process.reads:
                return False
            if process.raft.high_watermark != offset or process.applying.applied_offset != offset:
                return False
            digests.append(process.state_machine.digest())
        if len(set(digests)) != 1:
            raise Violation(f"L2 equal offsets {offset}, different states: {digests}")
        return True
