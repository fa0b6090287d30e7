"""Decides when to take a snapshot of the state machine, and writes it to the disk (KIP-630).

Theory of operation. A snapshot is due when enough bytes were applied since the last one, when anything was applied and the last
one is old, on request, or when the newest can no longer be read: then the next one replaces it, at the same position if nothing
was applied since. The apply task offers the occasion between two applies: the state machine is frozen, which is cheap, consensus
provides the beginning of the file, and a worker thread writes it while everything else continues. There is one at a time. A
snapshot that is due but impossible now (a transaction is open, the log is being repaired) is tried again shortly.

Age is measured on this node's own monotonic clock. Append times are the leader's, whose clock may be wrong or have been
suspended, so they only give the age of a snapshot when it was loaded.

A snapshot only saves space and time: a full disk leaves only a log line, and the snapshot is tried again after a while. A failed
fsync, however, ends the node as any other does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import trio

from kraftlab.common.signal import Answer, Signal

from ..core.effects import RewriteSnapshot
from ..core.snapshots import SnapshotContext
from ..core.types import OffsetAndEpoch
from ..state_machine import CommittedBatch, FrozenState, StateMachine
from ..storage.errors import StorageFull
from ..storage.snapshot_store import SnapshotStore
from .environment import Threads
from .errors import NoSnapshot

logger = logging.getLogger("kraftlab.quorum")

NOT_NOW_RETRY_S = 0.1
FULL_DISK_RETRY_S = 10.0
BATCH_OVERHEAD_BYTES = 48

SnapshotAnswer = Answer[OffsetAndEpoch | Exception]


class SnapshotTaker:
    """`run` writes the snapshots that `consider` has frozen.

    `context(applied_offset, append_time_ms)` is the core's answer, a text if there can be no snapshot now. `on_taken`, `wake` and
    `on_full` are called on the event loop. `on_full(reason)`: an unreadable one has to stay, because there is no room for
    another. A leader resigns then, because followers wait for it in vain.
    """

    def __init__(
        self,
        store: SnapshotStore,
        threads: Threads,
        state_machine: StateMachine,
        max_new_bytes: int,
        max_interval_ms: int,
        context: Callable[[int, int], SnapshotContext | str],
        on_taken: Callable[[OffsetAndEpoch], None],
        wake: Callable[[], None],
        on_full: Callable[[str], None],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._threads = threads
        self._state_machine = state_machine
        self._max_new_bytes = max_new_bytes
        self._max_interval_ms = max_interval_ms
        self._context = context
        self._on_taken = on_taken
        self._wake = wake
        self._on_full = on_full
        self._wall_s = wall_s
        self._new_bytes = 0
        self._old_at: float | None = None
        """Time at which the last snapshot, or without one the first batch, is old enough for another."""
        self._append_time_ms = 0
        self._retry_at = 0.0
        self._to_replace: OffsetAndEpoch | None = None
        """The newest, if it can no longer be read: another is due as soon as possible."""
        self._hindrance = ""
        """The last logged reason why it is still there."""
        self._frozen: tuple[SnapshotContext, FrozenState] | None = None
        self._work = Signal()
        self._asked: list[SnapshotAnswer] = []
        self._answering: list[SnapshotAnswer] = []

    # --- calls of the apply task ---------------------------------------------------------------------------------------------

    def applied(self, batches: list[CommittedBatch]) -> None:
        """Count the batches that the next snapshot will replace."""
        if self._old_at is None:
            self._old_at = self._when_old(batches[0].append_time_ms)
        self._append_time_ms = batches[-1].append_time_ms
        self._new_bytes += sum(len(batch.body) + BATCH_OVERHEAD_BYTES for batch in batches)

    def loaded(self, snapshot: OffsetAndEpoch, append_time_ms: int) -> None:
        """Restart the count: `snapshot` was loaded."""
        self._new_bytes = 0
        if self._to_replace is not None and snapshot.offset > self._to_replace.offset:
            self._to_replace = None
        self._append_time_ms = append_time_ms
        self._old_at = self._when_old(append_time_ms)

    def consider(self, applied_offset: int) -> None:
        """Freeze the state if a snapshot is due. Between two applies, with everything below `applied_offset` applied."""
        if self._frozen is not None or not (self._asked or self._is_due()):
            return
        context = self._context(applied_offset, self._append_time_ms)
        frozen = None if isinstance(context, str) else self._state_machine.freeze()
        if isinstance(context, str) or frozen is None:
            reason = context if isinstance(context, str) else "a metadata transaction is open; try again later"
            self._refuse(NoSnapshot(f"no snapshot can be taken at offset {applied_offset}: {reason}"))
            self._hindered_by(reason)
            self._retry_at = trio.current_time() + NOT_NOW_RETRY_S
            return
        self._answering, self._asked = self._asked, []
        self._new_bytes = 0
        self._old_at = trio.current_time() + self._max_interval_ms / 1000
        self._frozen = (context, frozen)
        self._work.set()

    def _hindered_by(self, reason: str) -> None:
        """Log, once for each reason, why the unreadable snapshot cannot be replaced.

        Followers that need it get nothing until then.
        """
        if self._to_replace is not None and reason != self._hindrance:
            logger.error("snapshot %s cannot be read, and none can be written in its place so far: %s", self._to_replace, reason)
            self._hindrance = reason

    def _is_due(self) -> bool:
        if trio.current_time() < self._retry_at:
            return False
        if self._to_replace is not None:
            return True
        return self._new_bytes > 0 and (self._new_bytes >= self._max_new_bytes or self._is_old())

    def _is_old(self) -> bool:
        return self._old_at is not None and self._max_interval_ms > 0 and trio.current_time() >= self._old_at

    def _when_old(self, append_time_ms: int) -> float:
        """Return the time on this node's clock at which data of that age is old: between now and one interval from now."""
        age_ms = min(max(0.0, self._wall_s() * 1000 - append_time_ms), float(self._max_interval_ms))
        return trio.current_time() + (self._max_interval_ms - age_ms) / 1000

    # --- calls of others -----------------------------------------------------------------------------------------------------

    async def take(self) -> OffsetAndEpoch:
        """Take a snapshot of the state that is applied now or later. NoSnapshot says why there is none; StorageFull."""
        request = SnapshotAnswer()
        self._asked.append(request)
        self._wake()
        try:
            outcome = await request.wait()
        finally:
            if request in self._asked:
                self._asked.remove(request)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def rewrite(self, effect: RewriteSnapshot) -> None:
        """Write a snapshot that replaces the unreadable newest one, at the same offset or later."""
        self._to_replace, self._hindrance = effect.id, ""
        self._wake()

    def close(self) -> None:
        """Refuse all waiting requests: the node ends."""
        self._answering += self._asked
        self._asked = []
        self._refuse(NoSnapshot("the node is stopping"))

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_clock)
            while True:
                await self._work.wait()
                if self._frozen is not None:
                    await self._write(*self._frozen)
                    self._frozen = None
                    self._wake()

    async def _run_clock(self) -> None:
        """Wake the apply task for a snapshot that is due by time when nothing is applied."""
        while True:
            await trio.sleep(max(NOT_NOW_RETRY_S, min(self._max_interval_ms / 4000, 10.0)))
            if self._frozen is None and self._is_due():
                self._wake()

    # --- writing -------------------------------------------------------------------------------------------------------------

    async def _write(self, context: SnapshotContext, frozen: FrozenState) -> None:
        started = trio.current_time()
        try:
            counts = await self._threads.run(self._write_in_thread, context, frozen)
        except StorageFull as error:
            logger.error("snapshot %s cannot be written, trying again in %.0f s: %s", context.id, FULL_DISK_RETRY_S, error)
            self._retry_at = trio.current_time() + FULL_DISK_RETRY_S
            self._new_bytes = max(self._new_bytes, self._max_new_bytes)
            self._refuse(error)
            if self._to_replace is not None:
                self._on_full(f"{self._to_replace} cannot be read, and there is no room for another: {error}")
            return
        if counts is not None:
            logger.info("snapshot %s: %d records in %.2f s", context.id, counts, trio.current_time() - started)
            if self._to_replace is not None and context.id.offset >= self._to_replace.offset:
                logger.warning("snapshot %s takes the place of %s, which could not be read", context.id, self._to_replace)
                self._to_replace = None
            self._on_taken(context.id)
            for request in self._answering:
                request.give(context.id)
        else:
            self._refuse(NoSnapshot(f"a newer snapshot than {context.id} has come from the leader meanwhile"))
        self._answering = []

    def _write_in_thread(self, context: SnapshotContext, frozen: FrozenState) -> int | None:
        """Write the snapshot; return its number of records, or None if a newer snapshot has displaced it."""
        writer = self._store.writer(context.id, context.control)
        records = 0
        try:
            for body, count in frozen.batches():
                self._threads.check_cancelled()
                writer.append(body, count)
                records += count
            return records if writer.finish() else None
        except (StorageFull, trio.Cancelled):
            writer.abandon()
            raise

    def _refuse(self, error: Exception) -> None:
        """Answer the waiting requests with an error."""
        requests = self._answering + (self._asked if self._frozen is None else [])
        self._answering = []
        if self._frozen is None:
            self._asked = []
        for request in requests:
            request.give(error)
