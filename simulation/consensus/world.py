"""The simulated world: actions by virtual time, a heap of those times, and everything the actions happen to.

A run has two phases. In the fault phase everything that the seed has drawn may go wrong while a workload proposes batches to
whoever leads, and asks it for linearizable reads; clients do both as well, and keep a history. Then everything heals for good, or
enough of it, and liveness is demanded (liveness.py). Nothing here reads a clock, a hash or a thread: a seed is a run.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import repeat

import msgspec

from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.core.types import ReplicaKey, Voter, VoterSet
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
"""Batches proposed at once; several of them travel and reach the disk together."""
BODY_BYTES = (0, 10, 200, 900, 3_000)

StateMachineFactory = Callable[[int], SimulatedStateMachine]


class World:
    """`run` plays the seed to its end; a broken rule leaves it as an exception."""

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
        """What will strike when; may be replaced before `run`."""
        self.until_us: int | None = None
        """Where a run ends without a verdict on what would come later."""
        self.trace: Callable[[str], object] | None = None
        """Gets a line of NDJSON for every core transition (quorum/trace.py)."""
        self.coverage = Coverage()
        self.acknowledged = 0
        self.asks: tuple[int, int] | None = None
        """Of the proposals and reads that leaders would be asked for, only those from the first number to below the second."""
        self.asked = 0
        """How many that were."""
        self._ask_number = 0
        self.reads = 0
        """Linearizable reads that were answered."""
        self.mended_logs = 0
        """Boots that found a torn tail or a half-made segment."""
        self.lost_disks: dict[ReplicaKey, tuple[DurableLog, ...]] = {}
        """What was on disks that are gone, also before they rotted, by whose they were."""
        self.disk_slowness: dict[int, int] = {}
        self.slow_until_us = 0
        """When at latest a disk has done what was asked of it while it was slow."""
        self.bootstrap_ids = tuple(range(options.voters))
        """Whom a node asks that knows nobody: the voters that the cluster begins with."""
        self.network = SimulatedNetwork(self)
        self.snapshots_taken = self.snapshots_loaded = self.repairs = 0
        self.has_rotten_snapshots = False
        """Whether any snapshot has ever rotted."""
        self.has_equal_snapshots = make_state_machine is lists_state_machine
        """Whether two snapshots at the same offset are the same bytes."""
        self.history = CommittedHistory()
        self.checkers: Checkers = Checkers(self, (*SNAPSHOT_CHECKERS, *MEMBERSHIP_CHECKERS))
        self.machines: list[Machine] = [Machine(self, node_id) for node_id in range(options.voters + options.observers)]
        self.leaders: tuple[SimulatedProcess, ...] = ()
        """The processes that lead, each of its own epoch, by node id."""
        self._tuning = msgspec.structs.asdict(options.tuning)
        self.static_voters = VoterSet(())
        """Those that the configuration names; nobody if they live in the log."""
        self.voters: Voters = Voters(self._first_voters())
        self._times_us: list[int] = []
        """A heap of the times at which anything is due, each once: integers are quickly compared."""
        self._due: dict[int, list[tuple[Callable[..., object], tuple[object, ...]]]] = {}
        """What is due at each of them, in the order of the calls."""
        self._workload = options.random("workload")
        self._readers = options.random("readers")
        self._strike_random = options.random("strikes")
        """Seeded anew for each strike, which keeps nothing of it."""
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
        """The machine whose disk is that replica's; None if the disk is gone."""
        machine = self.machines[key.node_id]
        return machine if machine.key.matches(key) else None

    def has_held(self, key: ReplicaKey, offset: int, crc: int | None) -> bool:
        """Whether the disk of that voter holds the committed batch that ends there, or did before it was lost or rotted."""
        machine = self.machine_of(key)
        held = machine.held if machine is not None else self.lost_disks[key]
        return any(log.holds(offset, crc) for log in held)

    def newest_voters(self) -> VoterSet:
        """The set in force, as the newest leader's log says; if nobody leads, the newest that is committed."""
        leader = max(self.leaders, key=lambda process: process.quorum.epoch, default=None)
        return leader.voter_trail.latest if leader is not None else self.voters.committed.latest

    def refused_to_start(self, node_id: int, error: LogCorrupt) -> None:
        """What this disk holds can not be trusted. If rot has done that, its operator replaces the disk, where that is safe.

        A node that once was the only voter takes itself for that if rot has eaten the record that says otherwise.
        """
        machine = self.machines[node_id]
        if machine.rot is not None and self._is_alone(machine):
            # The atlas knows the voters of the moment of a strike. All others were removed since, and nobody saw the rot.
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
        """Whether this rot makes a start refuse with that error."""
        return rot.file in str(error) if rot.is_fatal else self._seems_alone(machine, rot)

    def _is_alone(self, machine: Machine) -> bool:
        """Whether the node is the only voter. Its disk may say so in what was not known to be durable, but has survived the end
        of its process, or a loss of power: no other can be elected without a voter that has this record.
        """
        alone = (machine.node_id,)
        survived = self.voters.standing_in(machine.segments())
        return self.newest_voters().ids() == alone or (
            survived.latest_offset >= machine.durable.end_offset and survived.latest.ids() == alone
        )

    def _seems_alone(self, machine: Machine, rot: Rot) -> bool:
        """Whether the newest voter set that this disk still tells of is the node alone."""
        trail = self.voters.trail_of(machine.before_rot or machine.durable)
        readable = [voters.ids() for offset, voters in trail.entries if offset not in rot.unreadable]
        return self.options.dynamic_voters and [self.bootstrap_ids, *readable][-1] == (machine.node_id,)

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object) -> None:
        """Schedule an action; equal times keep the order of the calls."""
        time_us, due = self.now_us + delay_us, self._due
        if time_us in due:
            due[time_us].append((action, arguments))
        else:
            due[time_us] = [(action, arguments)]
            heappush(self._times_us, time_us)

    def process_died(self, process: Process) -> None:
        """Whoever is connected with it may notice."""
        self.network.process_died(process)

    def leaders_changed(self) -> None:
        """A process has begun to lead, or no longer does."""
        processes = [machine.process for machine in self.machines]
        self.leaders = tuple(process for process in processes if process is not None and process.is_leading)

    def moved(self, source: str, target: str) -> None:
        """A node has gone from one state to another."""
        self.coverage.moved(source, target)

    def is_given_up(self, machine: ObservedMachine) -> bool:
        """Return True if the machine stays broken for good."""
        return machine in self.liveness.outside

    def unanswered(self) -> str | None:
        """A call of a client, or a change of the voters, that ought to have its answer."""
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
        """Nothing goes wrong any more, and the workload has ended."""
        return self.liveness.healed_at_us is not None

    def run(self) -> None:
        """Both phases. Raises Violation or whatever the code under test raises."""
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
        """Schedules what happens of the world's own accord."""
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
        """What is due next, for so many times that what it leaves behind for the transcript does not grow large.

        An action that is due at once runs behind all that were due by then: it finds its time gone, and makes it anew.
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
        """Whether the next of what leaders are asked for is not left out."""
        self._ask_number += 1
        is_left_out = self.asks is not None and not self.asks[0] < self._ask_number <= self.asks[1]
        self.asked += not is_left_out
        return not is_left_out

    def work(self, process: SimulatedProcess) -> None:
        """One piece of the workload, for a process that leads. A world with state machines of its own asks those."""
        process.propose(*self._body())

    def _read(self) -> None:
        """Reads stop when everything heals: after that each must have its answer, or there is no convergence."""
        if self.liveness.healed_at_us is not None:
            return
        for process in self.leaders:
            if self._is_to_ask():
                process.read()
        self.after(1 + int(self._readers.random() * 2 * self.options.read_interval_us), self._read)

    def _body(self) -> tuple[bytes, int]:
        """One MessagePack array of integers and a blob: body and record count. No two are equal, and a lost sector is missed."""
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
        """Whom it hit."""
        self._strike_random.seed(strike_seed(self.options, strike))
        return FAULTS[strike.fault].strike(self, self._strike_random)

    # The end

    def finish(self) -> None:
        """The run ends here."""
        self._is_done = True

    def converged(self) -> None:
        """All that liveness demands is there: the clients' history can be judged."""
        process = self.liveness.core[0].process
        if self.clients is not None and process is not None:
            self.clients.judge(process)
        self.finish()

    def has_converged(self, offset: int) -> bool:
        """Every node of the core is there to stay, has committed and applied through `offset` and ended all reads; all states
        are equal.
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
