"""Snapshots between nodes: pieces of own ones are read for followers, pieces of a leader's are stored and checked.

Theory of operation. Reading needs no order: a few pieces are read at a time, each in a worker thread. A follower that requests
the first piece will copy the whole file, and discard it if it is damaged. So the file is checked from its first byte to its last
at that moment, once for all followers that come at about the same time. A small file is checked before anything is sent. A larger
one is sent meanwhile, because the copy is checked where it arrives, and a follower that waits too long for an answer looks for
another leader. A damaged file is no longer read for followers: the core treats it as missing, and another is written.

A copy is one sequence of open, store, verify, in the core's order, so one task does them one after the other and reports each. A
full disk delays it: the step is tried again until there is room. A disk that has become read-only cannot serve its snapshots
either. That is reported like any refused write, so that another leader can serve them.

Peers can still send requests while the node's tasks end. Pieces that are requested then are no longer read.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

import trio

from kraftlab.common.signal import Signal

from ..core.effects import CopyStep, ReadSnapshot
from ..core.events import Event, SnapshotRead, SnapshotRefused
from ..core.types import OffsetAndEpoch
from ..storage.errors import StorageFull
from ..storage.snapshot_file import SnapshotInvalid
from ..storage.snapshot_store import SnapshotStore
from .environment import Threads
from .full_disk import when_there_is_room

logger = logging.getLogger("kraftlab.quorum")

READS_AT_ONCE = 4
CHECK_AGAIN_S = 10.0
"""A snapshot that was sound this long ago is checked again when a follower begins to copy it."""
CHECK_PATIENCE_S = 0.1
"""Time that the first piece waits for the check; far less than the follower waits for the answer."""


class _Check:
    """One check of a whole snapshot. `ended_at` is infinite while it runs."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.ended_at = math.inf


class SnapshotCopies:
    """Applies the core's effects on snapshots between nodes. `step` takes the resulting events.

    `on_damaged(id, reason)` reports, once, an own snapshot that is damaged. `on_full(reason)` reports a piece that cannot be read
    while the disk refuses writes.
    """

    def __init__(
        self,
        store: SnapshotStore,
        threads: Threads,
        step: Callable[[Event], None],
        on_damaged: Callable[[OffsetAndEpoch, str], None],
        on_full: Callable[[str], None],
    ) -> None:
        self._store = store
        self._threads = threads
        self._step = step
        self._on_damaged = on_damaged
        self._on_full = on_full
        self._has_ended = False
        self._checks: dict[OffsetAndEpoch, _Check] = {}
        self._readers = trio.CapacityLimiter(READS_AT_ONCE)
        self._queue: deque[CopyStep] = deque()
        self._wanted = Signal()

    async def read(self, effect: ReadSnapshot) -> None:
        """Read one piece; a task."""
        if self._has_ended:
            return
        if effect.position == 0 and effect.max_bytes > 0 and self._store.is_sound(effect.id):
            await self._ensure_checked(effect.id)
        try:
            found = await self._threads.run_limited(self._readers, self._store.read, effect.id, effect.position, effect.max_bytes)
        except StorageFull as error:
            self._on_full(str(error))
            return
        size_bytes, data = (-1, b"") if found is None else found
        self._step(SnapshotRead(effect.read_id, size_bytes, data))

    async def _ensure_checked(self, snapshot: OffsetAndEpoch) -> None:
        """Start a check of the whole file if one is due, and wait for it a little."""
        check = self._checks.get(snapshot)
        if check is None or check.ended_at + CHECK_AGAIN_S <= trio.current_time():
            finished = self._store.ids()
            self._checks = {other: known for other, known in self._checks.items() if other in finished}
            check = self._checks[snapshot] = _Check()
            self._checking.start_soon(self._check, snapshot, check)
        with trio.move_on_after(CHECK_PATIENCE_S):
            await check.ended.wait()

    async def _check(self, snapshot: OffsetAndEpoch, check: _Check) -> None:
        try:
            await self._threads.run(self._store.check, snapshot, self._threads.check_cancelled)
        except SnapshotInvalid as error:
            self._checks.pop(snapshot, None)
            self._on_damaged(snapshot, str(error))
        except (KeyError, StorageFull):
            self._checks.pop(snapshot, None)
        check.ended_at = trio.current_time()
        check.ended.set()

    def put(self, effect: CopyStep) -> None:
        """Queue the next step of the copy; one event answers each."""
        self._queue.append(effect)
        self._wanted.set()

    async def run(self) -> None:
        async with trio.open_nursery() as self._checking:
            try:
                while True:
                    await self._wanted.wait()
                    while self._queue:
                        self._step(await self._carry_out(self._queue.popleft()))
            finally:
                self._has_ended = True

    async def _carry_out(self, effect: CopyStep) -> Event:
        complaint = f"the copy of snapshot {effect.id} cannot be written, trying again until space returns"
        try:
            return await when_there_is_room(self._threads, complaint, self._store.carry_out, effect)
        except SnapshotInvalid as error:
            return SnapshotRefused(effect.id, str(error))
