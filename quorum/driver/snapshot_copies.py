"""Snapshots on their way between nodes: pieces of own ones are read for followers, pieces of a leader's are stored and checked.

Theory of operation. Reading needs no order: a few pieces are read at a time, each in a worker thread. A copy is one sequence of
open, store, verify, in the order in which the core wants it, so one task does them one after the other and reports each. A full
disk delays it: the step is tried again until there is room.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import trio

from ..core.effects import OpenSnapshot, ReadSnapshot, StoreSnapshotChunk, VerifySnapshot
from ..core.events import Event, SnapshotChunkStored, SnapshotRead, SnapshotRefused, SnapshotVerified
from ..storage.errors import StorageFull
from ..storage.snapshot_file import SnapshotInvalid
from ..storage.snapshot_store import SnapshotStore
from .signal import Signal

logger = logging.getLogger("kraftlab.quorum")

READS_AT_ONCE = 4
FULL_DISK_RETRY_S = 0.5

Step = OpenSnapshot | StoreSnapshotChunk | VerifySnapshot


class SnapshotCopies:
    """Carries out what the core wants done with snapshots that travel. `step` takes the events that come of it."""

    def __init__(self, store: SnapshotStore, step: Callable[[Event], None]) -> None:
        self._store = store
        self._step = step
        self._readers = trio.CapacityLimiter(READS_AT_ONCE)
        self._queue: deque[Step] = deque()
        self._wanted = Signal()

    async def read(self, effect: ReadSnapshot) -> None:
        """A task: reads one piece."""
        found = await trio.to_thread.run_sync(
            self._store.read, effect.id, effect.position, effect.max_bytes, limiter=self._readers
        )
        size_bytes, data = (-1, b"") if found is None else found
        self._step(SnapshotRead(effect.read_id, size_bytes, data))

    def put(self, effect: Step) -> None:
        """The next step of the copy; each is answered by one event."""
        self._queue.append(effect)
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            while self._queue:
                self._step(await self._carry_out(self._queue.popleft()))

    async def _carry_out(self, effect: Step) -> Event:
        attempts = 0
        while True:
            try:
                return await trio.to_thread.run_sync(self._do, effect)
            except SnapshotInvalid as error:
                return SnapshotRefused(effect.id, str(error))
            except StorageFull as error:
                attempts += 1
                if attempts == 1:
                    logger.error(
                        "the copy of snapshot %s cannot be written, trying again until space returns: %s", effect.id, error
                    )
                await trio.sleep(FULL_DISK_RETRY_S)

    def _do(self, effect: Step) -> Event:
        """Worker thread."""
        if isinstance(effect, OpenSnapshot):
            return SnapshotChunkStored(effect.id, self._store.open_part(effect.id))
        if isinstance(effect, StoreSnapshotChunk):
            return SnapshotChunkStored(effect.id, self._store.store_part(effect.id, effect.position, effect.data))
        verified = self._store.verify_part(effect.id)
        return SnapshotVerified(effect.id, verified.last_crc, verified.control)
