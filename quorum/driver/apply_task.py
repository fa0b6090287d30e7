"""Feeds the state machine: a snapshot or committed batches in log order, and the leadership notices between them.

Theory of operation. The order is that of `ApplyOrder`. The task reads the log from its last position, in chunks, and passes them
on with the notices between them. Batches come from the log's memory while they are there; older ones are read and checked in a
worker thread.

At the start, and when the log begins beyond the applied offset because a leader's snapshot has replaced it, the newest finished
snapshot is loaded instead. It is read and decoded in a worker thread, then put into the state machine between two applies. An
installed snapshot counts once it has its name on the disk; `storage_completed` reports that.

Own snapshots are frozen here, between two applies, when `SnapshotTaker` requires it, and written elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import trio

from kraftlab.common.errors import InvariantViolation
from kraftlab.common.signal import Signal

from ..apply_order import ApplyOrder, committed_batches
from ..core.batch import check_all, headers_of
from ..core.types import OffsetAndEpoch
from ..state_machine import CommittedBatch, StateMachine
from ..storage.metadata_log import MetadataLog
from ..storage.snapshot_store import SnapshotStore
from .environment import Threads
from .full_disk import when_there_is_room
from .garbage_collection import loading_state
from .snapshot_taker import SnapshotTaker

logger = logging.getLogger("kraftlab.quorum")

CHUNK_BYTES = 256 * 1024
"""Bytes that are applied without a checkpoint; a larger batch is still applied whole."""


class ApplyTask(ApplyOrder):
    """Feeds one state machine. `run` is its task."""

    def __init__(
        self,
        log: MetadataLog,
        snapshots: SnapshotStore,
        threads: Threads,
        newest_snapshot: Callable[[], OffsetAndEpoch | None],
        state_machine: StateMachine,
        taker: SnapshotTaker,
    ) -> None:
        super().__init__(state_machine)
        self._log = log
        self._snapshots = snapshots
        self._threads = threads
        self._newest_snapshot = newest_snapshot
        self._taker = taker
        self._wanted = Signal()

    @property
    def busy(self) -> bool:
        """True if there are committed batches to apply."""
        return self.applied_offset < self.high_watermark

    def wake(self) -> None:
        self._wanted.set()

    def storage_completed(self) -> None:
        """Note that storage has completed an operation: an installed snapshot may have its name now."""
        if self._log.start_offset > self.applied_offset:
            self._wanted.set()

    async def run(self) -> None:
        await self._load_newest()
        while True:
            await self._wanted.wait()
            while await self._advance():
                pass
            self._taker.consider(self.applied_offset)

    async def _advance(self) -> bool:
        """Take one step: a snapshot, a notice or some batches. Return False if there is nothing to do now."""
        if self._log.start_offset > self.applied_offset:
            return await self._load_newest()
        notice = self.due_notice()
        if notice is not None:
            await notice()
            return True
        end_offset = self.end_offset
        if self.applied_offset >= end_offset:
            return False
        batches = await self._read(end_offset)
        if batches:
            await self._state_machine.apply(batches, self.high_watermark)
            self.applied_offset = batches[-1].end_offset
            self._taker.applied(batches)
            if self.applied_offset < self.high_watermark:
                self._taker.consider(self.applied_offset)
                await trio.lowlevel.checkpoint()
        return True

    # --- snapshots -----------------------------------------------------------------------------------------------------------

    async def _load_newest(self) -> bool:
        """Load the newest snapshot. Return False if there is none, or if an installed one has no name on the disk yet."""
        snapshot = self._newest_snapshot()
        if snapshot is None or snapshot not in self._snapshots.ids():
            return False
        complaint = f"snapshot {snapshot} cannot be loaded, trying again until it can be"
        try:
            append_time_ms, state = await when_there_is_room(self._threads, complaint, self._read_snapshot, snapshot)
        except KeyError:
            return True  # another has replaced it
        await self._state_machine.load_snapshot(snapshot, append_time_ms, state)
        self.applied_offset = snapshot.offset
        self.high_watermark = max(self.high_watermark, snapshot.offset)
        self._taker.loaded(snapshot, append_time_ms)
        return True

    def _read_snapshot(self, snapshot: OffsetAndEpoch) -> tuple[int, Any]:
        reader = self._snapshots.reader(snapshot)
        with loading_state():
            return reader.append_time_ms, self._state_machine.read_snapshot(self._cancellable(reader.bodies()))

    def _cancellable(self, bodies: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the bodies until the waiting task is cancelled. Worker thread."""
        for body in bodies:
            self._threads.check_cancelled()
            yield body

    # --- batches -------------------------------------------------------------------------------------------------------------

    async def _read(self, end_offset: int) -> list[CommittedBatch]:
        """Return some committed batches from the applied offset on; none if a snapshot has replaced them meanwhile."""
        start_offset = self.applied_offset
        if self._log.cached(start_offset):
            data = self._log.read(start_offset, CHUNK_BYTES, end_offset=end_offset)
            batches = committed_batches(data, headers_of(data))
        else:
            batches = await self._threads.run(self._read_from_disk, start_offset, end_offset)
        if not batches and self._log.start_offset > start_offset:
            return []
        if not batches or batches[0].base_offset != start_offset or batches[-1].end_offset > end_offset:
            raise InvariantViolation(f"the log gave {batches!r} for the committed range {start_offset} to {end_offset}")
        return batches

    def _read_from_disk(self, start_offset: int, end_offset: int) -> list[CommittedBatch]:
        data = self._log.read(start_offset, CHUNK_BYTES, end_offset=end_offset)
        return committed_batches(data, check_all(data))
