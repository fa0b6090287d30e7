"""Timers of moves on the active controller: queued moves start after changes, throttles end at their time.

`reassignment/upkeep.py` decides what to do; this module has the timers. A check runs a moment after the change that called for
it, so many changes together cost one check. A check that finds nothing to do writes nothing, and so calls for no further
check.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.moves import MovesImage

from ..reassignment import upkeep
from ..reassignment.progress import MoveProgressTable
from .background import RunWrite
from .purgatory import Answer
from .queue import EventQueue
from .state import ControllerState

START_TAG = "start queued moves"
EXPIRY_TAG = "end throttles of moves"
SCAN_PAUSE_MS = 1000
"""Shortest time between two scans for throttles. A throttle may end this much late while very many moves come and go."""


class MoveUpkeep:
    """One per controller. `newest`: the state that the next write starts from."""

    def __init__(
        self, queue: EventQueue, clock: Callable[[], int], run_write: RunWrite, newest: Callable[[], ControllerState]
    ) -> None:
        self.progress = MoveProgressTable()
        self._queue = queue
        self._clock = clock
        self._run_write = run_write
        self._newest = newest
        self._checked = MovesImage()
        self._is_due = False
        self._scan_from_ms = 0

    @property
    def is_due(self) -> bool:
        """True while a check is scheduled."""
        return self._is_due

    def activate(self, image: MetadataImage) -> None:
        """Forget all progress, and check the queue."""
        self.progress.clear()
        self._checked = MovesImage()
        self._is_due = False
        self._scan_from_ms = 0
        self.changed(image)

    def deactivate(self) -> None:
        self.progress.clear()
        self._queue.cancel(START_TAG)
        self._queue.cancel(EXPIRY_TAG)

    def changed(self, image: MetadataImage) -> None:
        """Schedule a check if `image`, the newest, has queued moves or other running moves than before."""
        moves = image.moves
        if not self._is_due and (moves.queued or moves.running is not self._checked.running):
            self._is_due = True
            self._queue.schedule(START_TAG, self._clock() + upkeep.PAUSE_MS, self._start_queued)

    def _start_queued(self) -> None:
        sizes = self.progress.sizes(self._clock())
        self._run_write("start queued moves", lambda state, context: upkeep.start_waiting(state, sizes, context), Answer())
        self._is_due = False
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        """Schedule the end of the next throttle. Finding it scans all moves, so it runs at most once per `SCAN_PAUSE_MS`."""
        now_ms = self._clock()
        image = self._newest().image
        if image.moves.running is self._checked.running:
            return
        if now_ms < self._scan_from_ms:
            self._queue.schedule(EXPIRY_TAG, self._scan_from_ms, self._expire)
            return
        self._scan_from_ms = now_ms + SCAN_PAUSE_MS
        self._checked = image.moves
        at_ms = upkeep.next_expiry_ms(image)
        if at_ms is None:
            self._queue.cancel(EXPIRY_TAG)
        else:
            self._queue.schedule(EXPIRY_TAG, at_ms, self._expire)

    def _expire(self) -> None:
        self._run_write("end throttles of moves", upkeep.end_throttles, Answer())
        self._checked = MovesImage()
        self._schedule_expiry()
