"""When the active controller looks after moves: after each change that may let a queued one start, and when a throttle's time
is over.

What it does then stands in `reassignment/upkeep.py`; here is only the clock. A look comes a moment after the change that called
for it, so that many changes together cost one look; it changes nothing if there is nothing to do, and so calls for no other.
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

LOOK_TAG = "look after moves"
EXPIRY_TAG = "end throttles of moves"
SCAN_PAUSE_MS = 1000
"""A throttle may end this much late, if very many moves come and go."""


class MoveUpkeep:
    """One per controller. `newest` gives the state that the next write starts from."""

    def __init__(
        self, queue: EventQueue, clock: Callable[[], int], run_write: RunWrite, newest: Callable[[], ControllerState]
    ) -> None:
        self.progress = MoveProgressTable()
        self._queue = queue
        self._clock = clock
        self._run_write = run_write
        self._newest = newest
        self._seen = MovesImage()
        self._is_due = False
        self._scan_from_ms = 0

    @property
    def is_due(self) -> bool:
        """A look is about to come."""
        return self._is_due

    def activate(self, image: MetadataImage) -> None:
        """This controller became active: nothing is known of progress, and what waits is looked at."""
        self.progress.clear()
        self._seen = MovesImage()
        self._is_due = False
        self._scan_from_ms = 0
        self.changed(image)

    def deactivate(self) -> None:
        self.progress.clear()
        self._queue.cancel(LOOK_TAG)
        self._queue.cancel(EXPIRY_TAG)

    def changed(self, image: MetadataImage) -> None:
        """Something was written; `image` is the newest."""
        moves = image.moves
        if not self._is_due and (moves.queued or moves.running is not self._seen.running):
            self._is_due = True
            self._queue.schedule(LOOK_TAG, self._clock() + upkeep.PAUSE_MS, self._look)

    def _look(self) -> None:
        sizes = self.progress.sizes(self._clock())
        self._run_write("start queued moves", lambda state, context: upkeep.start_waiting(state, sizes, context), Answer())
        self._is_due = False
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        """Looks for the next throttle to end, through all moves: so not more often than `SCAN_PAUSE_MS`."""
        now_ms = self._clock()
        image = self._newest().image
        if image.moves.running is self._seen.running:
            return
        if now_ms < self._scan_from_ms:
            self._queue.schedule(EXPIRY_TAG, self._scan_from_ms, self._expire)
            return
        self._scan_from_ms = now_ms + SCAN_PAUSE_MS
        self._seen = image.moves
        at_ms = upkeep.next_expiry_ms(image)
        if at_ms is None:
            self._queue.cancel(EXPIRY_TAG)
        else:
            self._queue.schedule(EXPIRY_TAG, at_ms, self._expire)

    def _expire(self) -> None:
        self._run_write("end throttles of moves", upkeep.end_throttles, Answer())
        self._seen = MovesImage()
        self._schedule_expiry()
