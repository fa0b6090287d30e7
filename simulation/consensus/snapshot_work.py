"""The snapshots of a simulated process: takes snapshots, copies a leader's, reads chunks for followers, and loads the newest.

Everything is done as in the driver. An own snapshot is frozen between two applications and then written batch by batch while
everything else goes on. A copy is a sequence of open, store and verify. Chunks for followers are read in any order. The state
machine loads the newest finished snapshot whenever the log begins beyond its position. A snapshot that can no longer be read is
written again. Every step takes time, and power can go between two steps or during one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from kraftlab.quorum.core.effects import CopyStep, ReadSnapshot, RepairEnded, RewriteSnapshot
from kraftlab.quorum.core.events import (
    Event,
    SnapshotRead,
    SnapshotRefused,
    SnapshotTaken,
    StorageFailed,
)
from kraftlab.quorum.core.snapshots import SnapshotContext
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import FrozenState
from kraftlab.quorum.storage import DiskFailed, LogCorrupt, MetadataStore, SnapshotInvalid, SnapshotWriter, StorageFull

from .applying import ApplyLoop
from .stage import Process
from .state_machine import run_at_once

RETRY_US = 30_000


class SnapshotInProgress:
    """An own snapshot that is being written: a file, then its batches, then its name."""

    def __init__(self, store: MetadataStore, context: SnapshotContext, frozen: FrozenState) -> None:
        self.id = context.id
        self._store = store.snapshots
        self._control = context.control
        self._batches: Iterator[tuple[bytes, int]] = frozen.batches()
        self.writer: SnapshotWriter | None = None
        self.is_finished: bool | None = None
        """True if the finished file counts as a snapshot, None before it is finished."""

    def go_on(self) -> None:
        """Apply the next step."""
        if self.writer is None:
            self.writer = self._store.writer(self.id, self._control)
            return
        batch = next(self._batches, None)
        if batch is not None:
            self.writer.append(*batch)
        else:
            self.is_finished = self.writer.finish()


class SnapshotWork:
    """The snapshots of one process; see the module's docstring."""

    def __init__(self, process: Process, applying: ApplyLoop, store: MetadataStore) -> None:
        machine = process.machine
        self._process = process
        self._applying = applying
        self._world = process.world
        self._store = store
        self._random = process.world.options.random(f"snapshots/{machine.node_id}/{machine.boots}")
        self._copies: deque[CopyStep] = deque()
        self._copying: CopyStep | None = None
        self._writing: SnapshotInProgress | None = None
        self._is_ending_repair = False
        self._append_time_ms = 0
        self._to_replace: OffsetAndEpoch | None = None
        """The newest snapshot, if it cannot be read and has to be replaced as soon as possible; None: nothing to replace."""
        self.is_loading = False
        interval_us = self._world.options.snapshot_interval_us
        if interval_us:
            self._world.after(1 + int(self._random.random() * 2 * interval_us), self._take_now_and_then)

    def under_way(self) -> list[Callable[[], object]]:
        """Return the next step of each operation that is writing to the disk."""
        work: list[Callable[[], object]] = []
        if self._copying is not None:
            work.append(partial(self._store.snapshots.carry_out, self._copying))
        if self._writing is not None:
            work.append(self._writing.go_on)
        if self._is_ending_repair:
            work.append(self._store.end_repair)
        return work

    def _later(self, action: Callable[..., object], *arguments: object) -> None:
        self._world.after(self._process.latency_us(), action, *arguments)

    # Own snapshots

    def applied(self, append_time_ms: int) -> None:
        """Note the time of the newest applied batch."""
        self._append_time_ms = append_time_ms

    def rewrite(self, effect: RewriteSnapshot) -> None:
        """Replace a snapshot that cannot be read."""
        is_news = self._to_replace is None
        self._to_replace = effect.id
        if is_news:
            self._later(self._replace)

    def _replace(self) -> None:
        """Take a snapshot, and try again until one replaces the unreadable one."""
        process = self._process
        if process.postponed(self._replace):
            return
        if self._to_replace is not None and self._to_replace == process.raft.snapshots[-1]:
            self.take()
            self._world.after(RETRY_US, self._replace)
        else:
            self._to_replace = None

    def _replaced(self, snapshot: OffsetAndEpoch) -> None:
        """Note that a new, sound file of `snapshot` was written."""
        if self._to_replace == snapshot:
            self._to_replace = None
        machine = self._process.machine
        if machine.rot is not None and machine.rot.file == self._store.snapshots.path(snapshot):
            machine.found_sound()

    def _take_now_and_then(self) -> None:
        if self._process.postponed(self._take_now_and_then):
            return
        self.take()
        if not self._world.is_healed:
            interval_us = self._world.options.snapshot_interval_us
            self._world.after(1 + int(self._random.random() * 2 * interval_us), self._take_now_and_then)

    def take(self) -> bool:
        """Begin a snapshot of the applied state. Return False if that is impossible now."""
        process = self._process
        if self._writing is not None or self.is_loading:
            return False
        context = process.raft.snapshot_context(
            self._applying.applied_offset,
            cluster_id=self._store.identity.cluster_id,
            generation=self._store.identity.generation,
            append_time_ms=self._append_time_ms,
        )
        frozen = process.state_machine.freeze() if context is not None else None
        if context is None or frozen is None:
            return False
        self._world.checkers.on_frozen(process, context)
        self._writing = SnapshotInProgress(self._store, context, frozen)
        self._later(self._write)
        return True

    def _write(self) -> None:
        process, writing = self._process, self._writing
        if writing is None or process.postponed(self._write):
            return
        try:
            writing.go_on()
        except StorageFull as error:
            self._abandon(writing)
            if self._to_replace is not None and process.is_leading:
                process.step(StorageFailed(f"{self._to_replace} cannot be read, and there is no room for another: {error}"))
            return
        except DiskFailed as error:
            process.end_of(error)
            return
        if writing.is_finished is None:
            self._later(self._write)
            return
        self._writing = None
        if writing.is_finished:
            self._replaced(writing.id)
            self._world.snapshots_taken += 1
            process.step(SnapshotTaken(writing.id))
            if not process.dead:
                self._world.checkers.on_snapshot(process, self._store.snapshots, writing.id)

    def _abandon(self, writing: SnapshotInProgress) -> None:
        self._writing = None
        if writing.writer is not None:
            try:
                writing.writer.abandon()
            except DiskFailed as error:
                self._process.end_of(error)

    # Chunks for followers, and copies

    def read(self, effect: ReadSnapshot) -> None:
        """Read a chunk for a follower."""
        self._later(self._read_done, effect)

    def _read_done(self, effect: ReadSnapshot) -> None:
        process = self._process
        if process.postponed(self._read_done, effect):
            return
        if effect.position == 0 and effect.max_bytes > 0 and self._store.snapshots.is_sound(effect.id):
            self._check(effect.id)
        found = self._store.snapshots.read(effect.id, effect.position, effect.max_bytes)
        size_bytes, data = (-1, b"") if found is None else found
        process.step(SnapshotRead(effect.read_id, size_bytes, data))

    def _check(self, snapshot: OffsetAndEpoch) -> None:
        """Check the whole snapshot before its first chunk is served, so that a rotten snapshot is not copied."""
        try:
            self._store.snapshots.check(snapshot)
        except SnapshotInvalid as error:
            machine = self._process.machine
            if not machine.has_rotten_log and not machine.file_system.broken:
                raise LogCorrupt(str(error)) from error

    def copy(self, effect: CopyStep) -> None:
        """Queue the next step of a copy. Steps run one after the other, and each is answered by one event."""
        self._copies.append(effect)
        self._begin_copy()

    def _begin_copy(self) -> None:
        if self._copying is None and self._copies and not self._process.dead:
            self._copying = self._copies.popleft()
            self._later(self._end_copy)

    def _end_copy(self) -> None:
        process, effect = self._process, self._copying
        if effect is None or process.postponed(self._end_copy):
            return
        try:
            event: Event = self._store.snapshots.carry_out(effect)
        except SnapshotInvalid as error:
            self._world.checkers.on_refused(process, effect.id, str(error))
            event = SnapshotRefused(effect.id, str(error))
        except StorageFull:
            self._world.after(RETRY_US, self._end_copy)
            return
        except DiskFailed as error:
            process.end_of(error)
            return
        self._copying = None
        process.step(event)
        self._begin_copy()

    # Loading

    def load_newest(self) -> None:
        """Load the newest snapshot into the state machine, if it is on the disk under its name."""
        snapshot = self._newest()
        if snapshot is not None and not self.is_loading:
            self.is_loading = True
            self._later(self._load, snapshot)

    def _newest(self) -> OffsetAndEpoch | None:
        ids = self._process.raft.snapshots
        return ids[-1] if ids and ids[-1] in self._store.snapshots.ids() else None

    def _load(self, snapshot: OffsetAndEpoch) -> None:
        process = self._process
        if process.postponed(self._load, snapshot):
            return
        self.is_loading = False
        try:
            reader = self._store.snapshots.reader(snapshot)
            state = process.state_machine.read_snapshot(reader.bodies())
        except KeyError:
            self._applying.go_on()
            return
        except (DiskFailed, LogCorrupt) as error:
            process.end_of(error)
            return
        self._append_time_ms = reader.append_time_ms
        self._world.snapshots_loaded += 1
        run_at_once(process.state_machine.load_snapshot(snapshot, reader.append_time_ms, state))
        self._applying.loaded(snapshot)

    # Repair

    def end_repair(self, effect: RepairEnded) -> None:
        self._is_ending_repair = True
        self._later(self._end_repair)

    def _end_repair(self) -> None:
        process = self._process
        if process.postponed(self._end_repair):
            return
        try:
            self._store.end_repair()
        except StorageFull:
            self._world.after(RETRY_US, self._end_repair)
        except DiskFailed as error:
            process.end_of(error)
        else:
            self._is_ending_repair = False
            process.machine.found_sound()
            self._world.repairs += 1
