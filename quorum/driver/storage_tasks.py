"""The tasks that make data durable: one for the log, one for the election state, each with its own worker thread.

Theory of operation. The core's storage effects reach the log at once, in memory, and readers see them from then on. `LogFlusher`
flushes all staged operations with one write and one fdatasync in a worker thread, reports the newest durable operation, and
starts again: proposals during a flush share the next one. That is group commit without a timer; `kick` starts a flush of an idle
log at once. `ElectionWriter` does the same for the election state, of which only the newest version is written. The two are
separate so that a vote does not wait for a long flush.

A full disk loses nothing: staged data stays in memory and is tried again. Every other error is final and ends the node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType

import trio

from kraftlab.common.signal import Signal

from ..core.effects import Append, CleanLog, InstallSnapshot, StoreElectionState, Truncate
from ..storage.election_store import ElectionStateStore
from ..storage.errors import StorageFull
from ..storage.metadata_log import MetadataLog
from .disk_threads import SETTLE_TIMEOUT_S
from .environment import Threads, Worker
from .figures import QuorumFigures
from .full_disk import FULL_DISK_RETRY_S

logger = logging.getLogger("kraftlab.quorum")


class LogFlusher:
    """Stages log operations and flushes them. `on_durable(append_id)` and `on_full(reason)` are called on the event loop.

    Use as `with LogFlusher(…) as writer`, with `run` as a task.
    """

    def __init__(
        self,
        log: MetadataLog,
        threads: Threads,
        figures: QuorumFigures,
        on_durable: Callable[[int], None],
        on_full: Callable[[str], None],
    ) -> None:
        self._log = log
        self._flush = figures.timed_flush(log.flush)
        self.on_durable = on_durable
        self._on_full = on_full
        self._idle = trio.Event()
        self._idle.set()
        self._worker = threads.worker("metadata-log")
        self._staged_id = 0
        self._flushing_id = 0
        self._durable_id = 0
        self._flushing_bytes = 0
        self._has_rubbish = False
        self._has_ended = False
        self.staged_bytes = 0
        """Bytes of appends that are not durable yet."""
        self.busy_since: float | None = None
        """Start of the running flush (with its retries), or None."""
        self.flushes = 0

    def __enter__(self) -> LogFlusher:
        self._worker.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._worker.__exit__(kind, error, trace)

    def append(self, effect: Append) -> None:
        self._log.append(effect.base_offset, effect.end_offset, effect.data)
        self.staged_bytes += len(effect.data)
        self._staged(effect.append_id)

    def truncate(self, effect: Truncate) -> None:
        self._log.truncate(effect.to_offset)
        self._staged(effect.append_id)

    def install(self, effect: InstallSnapshot) -> None:
        """Replace the whole log by a verified copy of a snapshot, in order with operations that were staged before."""
        self._log.install(effect.id, effect.last_crc)
        self._staged(effect.append_id)

    def clean(self, effect: CleanLog) -> None:
        """Remove everything below the start soon. Nothing waits for it."""
        self._log.clean(effect.start)
        self._has_rubbish = True

    def kick(self) -> None:
        """Start a flush of the staged operations, unless one is running: then the next one follows it.

        Once `run` has ended nothing starts. Peers can still send requests while the other tasks end, and nobody would wait for a
        flush on their account. Their data is not durable then, and nobody has been answered that it is.
        """
        if self._has_ended:
            return
        if self.busy_since is None and (self._staged_id > self._durable_id or self._has_rubbish):
            self.busy_since = trio.current_time()
            self._has_rubbish = False
            self._flushing_id, self._flushing_bytes = self._staged_id, self.staged_bytes
            self._worker.start(self._flush)

    async def wait_idle(self) -> None:
        """Wait until everything staged is durable."""
        await self._idle.wait()

    @property
    def is_stuck(self) -> bool:
        """True if a flush still runs: after `run` has ended, the log's files must not be touched."""
        return self._worker.is_working

    async def run(self) -> None:
        try:
            while True:
                await self._flushed()
                self.flushes += 1
                self.busy_since = None
                self.staged_bytes -= self._flushing_bytes
                is_news = self._flushing_id > self._durable_id
                self._durable_id = durable_id = self._flushing_id
                if self._staged_id == durable_id:
                    self._idle.set()
                self.kick()
                if is_news:
                    self.on_durable(durable_id)
        finally:
            self._has_ended = True
            await self._worker.settle(SETTLE_TIMEOUT_S)

    def _staged(self, append_id: int) -> None:
        self._staged_id = append_id
        if self._idle.is_set():
            self._idle = trio.Event()

    async def _flushed(self) -> None:
        """Wait for the running or the next flush; try again while the disk is full."""
        attempts = 0
        while True:
            try:
                await self._worker.finished()
                return
            except StorageFull as error:
                attempts += 1
                if attempts == 1:
                    logger.error("metadata log cannot be written, trying again until space returns: %s", error)
                self._on_full(str(error))
                await trio.sleep(FULL_DISK_RETRY_S)
                self._worker.start(self._flush)


class ElectionWriter:
    """Stores election states, the newest only. `on_stored(version)` reports that it and all before it are durable."""

    def __init__(self, store: ElectionStateStore, threads: Threads, on_stored: Callable[[int], None]) -> None:
        self._store = store
        self._threads = threads
        self._on_stored = on_stored
        self._wanted = Signal()
        self._newest: StoreElectionState | None = None
        self._is_full = False

    def store(self, effect: StoreElectionState) -> None:
        self._newest = effect
        self._wanted.set()

    async def run(self) -> None:
        with self._threads.worker("election-state") as worker:
            try:
                while True:
                    await self._wanted.wait()
                    if self._newest is not None:
                        await self._store_durably(worker, self._newest)
            finally:
                await worker.settle(SETTLE_TIMEOUT_S)

    async def _store_durably(self, worker: Worker, newest: StoreElectionState) -> None:
        try:
            worker.start(partial(self._store.store, newest.state))
            await worker.finished()
        except StorageFull as error:
            if not self._is_full:
                logger.error("election state cannot be written, trying again until space returns: %s", error)
            self._is_full = True
            await trio.sleep(FULL_DISK_RETRY_S)
            self._wanted.set()
        else:
            self._is_full = False
            self._on_stored(newest.version)
