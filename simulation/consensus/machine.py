"""A machine: a disk and a clock that outlive processes, and the data that checkers know to be on the disk.

A crash can interrupt a flush or a store of the election state. Then the real storage code runs up to some operation, power goes,
and the simulated disk loses some of its unsynced data. The next boot runs the real recovery on the rest, and can be cut short as
well.
"""

from __future__ import annotations

from contextlib import suppress

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.core.types import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.storage import DiskFailed, FsyncFailed, LogCorrupt, LogIdentity, MetadataStore, StorageError, StorageFull
from kraftlab.quorum.storage.bootstrap import write_bootstrap
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.metadata_log import FlushWork
from kraftlab.quorum.storage.metadata_store import Rule, own_rule

from .durable_log import DurableLog
from .observed import Rot
from .process import SimulatedProcess
from .simulated_file_system import PowerCut, SimulatedFileSystem
from .stage import LISTENER, Process, Stage

DIRECTORY = "/data"
CLUSTER_ID = "simulated"
ANCHOR_MS = 1_000_000
"""Reading of every node's clock at virtual time zero."""
CUT_SHORT_AFTER = (0, 1, 1, 2, 2, 3, 4, 6)
"""Number of operations of a flush or a store that still succeed before power goes."""
CUT_SHORT_AFTER_SYNCS = (0, 0, 0, 1, 1, 2)
"""Number of syncs that still succeed before power goes. Data written before the next sync is half-way to the disk: batches
leave a torn tail.
"""
FIRST_PORT = 9093
FULL_RATE = 1_000
"""A clock's rate in thousandths: 1000 is the right rate."""
MILLISECOND = 1000 * FULL_RATE
"""One millisecond in the units of a clock's arithmetic: microseconds times the rate."""


def _directory_id(node_id: int, disks: int) -> bytes:
    return bytes([node_id + 1]) * 15 + bytes([disks + 1])


class Machine:
    """A machine. While it is down, it has the `process` None."""

    def __init__(self, world: Stage, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.boots = 0
        self.process: SimulatedProcess | None = None
        self.disks = 0
        """Number of disks that this machine has lost. Each disk has a directory id of its own."""
        self.identity = LogIdentity(CLUSTER_ID, _directory_id(node_id, 0))
        self.key = ReplicaKey(node_id, self.identity.directory_id)
        self.file_system = SimulatedFileSystem(world.options.random(f"file-system/{node_id}"))
        self.port = FIRST_PORT
        """The port of its endpoint, which changes with a move."""
        self.paused_until_us = 0
        self.durable = DurableLog()
        self.stored: ElectionState | None = None
        self.possibly_stored: ElectionState | None = None
        """An election state whose store a crash has interrupted: the disk can hold it."""
        self.is_durable_exact = True
        """False after a crash during a flush: the disk can hold more than `durable`."""
        self.possible_install: OffsetAndEpoch | None = None
        """A snapshot whose installation a crash has interrupted: the disk holds the snapshot, or the log before it."""
        self.rot: Rot | None = None
        """Damage of this disk that was not repaired so far."""
        self.before_rot: DurableLog | None = None
        """During a repair, the log before the start that found the rot."""
        self.cut_at_boot: int | None = None
        self.rule: Rule = own_rule
        """The rule by which a start judges its disk. Experiments set another one."""
        self.is_gone = False
        """True if the machine never boots again."""
        self.disk_random = world.options.random(f"disk/{node_id}")
        self._random = world.options.random(f"machine/{node_id}")
        self._clock_random = world.options.random(f"clock/{node_id}")
        self._usual_rate = self._clock_random.randint(800, 1250) if world.options.clock_drift else FULL_RATE
        self._rate = self._usual_rate
        self._anchor_ms = ANCHOR_MS
        self._anchor_us = 0
        """Virtual time at which the clock showed `_anchor_ms`; it has run at `_rate` since."""
        self._origin = 0
        self._anchored()

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        return {LISTENER: Endpoint(f"n{self.node_id}", self.port)}

    @property
    def voter(self) -> Voter:
        """The machine's entry in a voter set."""
        return Voter(self.key, self.endpoints)

    def format(self, voters: VoterSet) -> None:
        """Write the first voters, before the first boot of a quorum that has its voters in the log."""
        self.file_system.make_directory(DIRECTORY)
        write_bootstrap(self.file_system, DIRECTORY, CLUSTER_ID, voters)

    def wipe(self, reason: str) -> None:
        """Replace the disk by an empty, formatted one. The new directory id makes it another replica."""
        self.world.note(f"n{self.node_id} gets a new disk: {reason}")
        self.crash(power_cut=True, reason="its disk is gone")
        self.world.lost_disks[self.key] = self.held
        self.disks += 1
        self.identity = LogIdentity(CLUSTER_ID, _directory_id(self.node_id, self.disks))
        self.key = ReplicaKey(self.node_id, self.identity.directory_id)
        self.file_system = SimulatedFileSystem(self.world.options.random(f"file-system/{self.node_id}/{self.disks}"))
        self.durable = DurableLog()
        self.stored = self.possibly_stored = self.possible_install = None
        self.found_sound()
        self.is_durable_exact = True

    @property
    def has_rotten_log(self) -> bool:
        """True if rot can explain an invalid batch or snapshot. Rot in the election state cannot."""
        return self.rot is not None and not self.rot.is_fatal

    def found_sound(self) -> None:
        """Forget the rot: the damaged data was repaired or is no longer needed."""
        self.rot = self.before_rot = None

    @property
    def held(self) -> tuple[DurableLog, ...]:
        """The log on this disk and, during a repair, the log before the disk rotted."""
        return (self.durable,) if self.before_rot is None else (self.durable, self.before_rot)

    def segments(self) -> list[bytes]:
        """Return the log's files as a start finds them. After a kill that includes unsynced data in the page cache."""
        directory, files = partition_directory(DIRECTORY), self.file_system
        return [files.read(f"{directory}/{name}") for name in files.names(directory) if name.endswith(".log")]

    @property
    def state_name(self) -> str:
        """The state of its node, or "down"."""
        return self.process.quorum.state.name if self.process is not None else "down"

    def now_ms(self) -> int:
        return (self._origin + self.world.now_us * self._rate) // MILLISECOND

    def _anchored(self) -> None:
        """Compute the clock's origin after its anchor or its rate has changed."""
        self._origin = self._anchor_ms * MILLISECOND - self._anchor_us * self._rate
        """The clock's reading at virtual time zero, in thousandths of a microsecond."""

    def time_us_at(self, now_ms: int) -> int:
        """Return the first virtual microsecond at which this machine's clock shows `now_ms`."""
        return self._anchor_us - ((self._anchor_ms - now_ms) * MILLISECOND // self._rate)

    def set_clock(self, *, jump_ms: int = 0, rate: int | None = None) -> None:
        """Let the clock jump forward, or run at another rate in thousandths (None: its usual rate). It never goes backwards."""
        self._anchor_ms, self._anchor_us = self.now_ms() + jump_ms, self.world.now_us
        self._rate = self._usual_rate if rate is None else rate
        self._anchored()
        if self.process is not None:
            self.process.clock_changed()

    def boot(self) -> None:
        """Start a process on the disk, unless one runs or the machine is gone."""
        if self.process is not None or self.is_gone:
            return
        self.boots += 1
        options = self.world.options
        self.file_system.operations_left, self.cut_at_boot = self.cut_at_boot, None
        if options.clock_drift:
            self._anchor_ms = ANCHOR_MS + self._clock_random.randint(0, 600_000)
            self._anchor_us = self.world.now_us
            self._anchored()
        try:
            store = self._open()
        except (PowerCut, DiskFailed, StorageFull) as error:
            self.world.note(f"n{self.node_id} does not come up: {type(error).__name__}")
            is_power_cut = isinstance(error, PowerCut | FsyncFailed)
            self.file_system.crash(power_cut=is_power_cut)
            self.is_durable_exact = False
            self.world.after(50_000, self.boot)
            return
        except LogCorrupt as error:
            self.world.refused_to_start(self.node_id, error)
            return
        self.file_system.operations_left = None
        found = DurableLog(store.log.start, store.log.start_crc)
        found.extend(store.log.batches())
        self.world.checkers.on_boot(self, found, store)
        if store.boot.repair_until and self.before_rot is None:
            self.before_rot = self.durable
        self.durable = found
        self.stored, self.possibly_stored, self.is_durable_exact = store.election, None, True
        self.possible_install = None
        if not store.boot.repair_until:
            self.found_sound()
        notes = "".join(f"; {note}" for note in store.notes)
        self.world.note(f"n{self.node_id} starts: {store.election or 'nothing stored'}, log to {store.log.end_offset}{notes}")
        self.world.mended_logs += bool(store.notes)
        self.process = SimulatedProcess(self, store)

    def _open(self) -> MetadataStore:
        options = self.world.options
        return MetadataStore.open(
            self.file_system,
            DIRECTORY,
            CLUSTER_ID,
            self.identity.directory_id,
            sole_voter=self.world.static_voters.ids() == (self.node_id,),
            segment_bytes=options.segment_bytes,
            preallocate_bytes=8192,
            cache_bytes=options.cache_bytes,
            rule=self.rule,
        )

    def heal(self) -> None:
        """End all faults of this machine, and start it."""
        self.paused_until_us = min(self.paused_until_us, self.world.now_us)
        self.cut_at_boot = None
        self.file_system.heal()
        self.set_clock()
        if self.process is not None:
            self.process.crash_in_effects = None
            self.process.crash_in_flush_of_bytes = None
            self.process.crash_in_store = False
        self.boot()

    def crash(self, *, power_cut: bool, reason: str, down_us: int | None = None) -> None:
        """End the process at once, and schedule the next boot."""
        process = self.process
        if process is None:
            return
        self.world.note(f"n{self.node_id} {'loses power' if power_cut else 'is killed'}: {reason}")
        process.dead = True
        self.process = None
        if process.is_leading:
            self.world.leaders_changed()
        self.paused_until_us = 0
        self._cut_flush_short(process)
        self._cut_store_short(process)
        self._cut_work_short(process)
        self.file_system.crash(power_cut=power_cut)
        self.world.process_died(process)
        self.world.after(down_us if down_us is not None else self._random.randint(20_000, 1_500_000), self.boot)

    def crash_process(self, process: Process, reason: str) -> None:
        """Cut the power, unless that process is dead already."""
        if not process.dead:
            self.crash(power_cut=True, reason=reason)

    def flush_ended(self, taken: FlushWork) -> None:
        self.durable.flushed(taken, self.world.history.crc_at)
        self.is_durable_exact = True
        self.possible_install = None

    def flush_was_cut_short(self, taken: FlushWork) -> None:
        """Note that the disk can hold parts of an interrupted flush."""
        self.is_durable_exact = False
        if taken.install is not None:
            self.possible_install = taken.install
        elif taken.cut_position is not None:
            self.durable.cut(taken.cut_offset)

    def _cut_flush_short(self, process: SimulatedProcess) -> None:
        if process.flush is None or self._random.random() < 0.1:
            return
        taken = process.flush[0]
        self._let_power_go()
        try:
            process.log.finish_flush(taken)
        except (PowerCut, StorageFull, DiskFailed):
            self.flush_was_cut_short(taken)
        else:
            self.flush_ended(taken)
        self.file_system.operations_left = self.file_system.syncs_left = None

    def _let_power_go(self) -> None:
        """Let power go at a random place of the next writes."""
        if self._random.random() < 0.5:
            self.file_system.operations_left = self._random.choice(CUT_SHORT_AFTER)
        else:
            self.file_system.syncs_left = self._random.choice(CUT_SHORT_AFTER_SYNCS)

    def _cut_store_short(self, process: SimulatedProcess) -> None:
        if process.storing is None or self._random.random() < 0.1:
            return
        self.possibly_stored = process.storing.state
        self._let_power_go()
        try:
            process.election_store.store(process.storing.state)
        except (PowerCut, StorageFull, DiskFailed):
            pass
        else:
            self.stored = process.storing.state
        self.file_system.operations_left = self.file_system.syncs_left = None

    def _cut_work_short(self, process: SimulatedProcess) -> None:
        """Interrupt the writing, copying or removal of snapshots, each with a probability of one half."""
        for work in process.snapshots.under_way():
            if self._random.random() < 0.5:
                self._let_power_go()
                with suppress(PowerCut, StorageError):
                    work()
                self.file_system.operations_left = self.file_system.syncs_left = None

    def stop(self, down_us: int) -> None:
        """End a graceful stop: flush staged data if the disk is idle and well, then end the process."""
        process = self.process
        if process is not None and process.flush is None and process.storing is None and self.file_system.is_well:
            taken = process.log.begin_flush()
            process.log.finish_flush(taken)
            self.flush_ended(taken)
        self.crash(power_cut=False, reason="stopped", down_us=down_us)
