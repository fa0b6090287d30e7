"""The broker's view of the metadata log: committed batches in, published images out (KIP-500, KIP-631).

Theory of operation. The publisher is the observer's state machine: it takes committed batches and only keeps them. One task
merges the pending batches into one delta, makes one new image, and passes both to the publishers, one after the other in a fixed
order. Batches that come meanwhile form the next delta, so a slow disk makes publications larger, not later.

A snapshot replaces everything before it. Its changes against the published image are found by a comparison and published as one
step with the batches that have followed it, deletions included.

Nothing is published before the high watermark that was known at the start is reached: a broker never acts on an old prefix of the
log. An unreadable record ends the broker. An error of a publisher is logged and the others still run, unless it is one of
`fatal`.

Records of an open transaction (KIP-868) are in the image but not visible: the offset stays at the beginning of the transaction,
and its end is published as one step.

The newest images are kept by offset, so that nodes can be compared (images share their common parts).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.signal import Signal
from kraftlab.metadata import codec
from kraftlab.metadata.changes import MetadataChanges, changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch

from ..log.disks import InThread, in_thread

logger = logging.getLogger("kraftlab.broker.metadata")

HISTORY_MAX = 4096
PENDING_MAX = 64
"""`apply` waits while more calls are pending, since the log can be larger than memory."""

COMPARED_AT_ONCE_TOPICS = 100


class Publication(NamedTuple):
    """A step from one published image to the next, with the changes between them."""

    before: MetadataImage
    after: MetadataImage
    changes: MetadataChanges
    is_first: bool


Publisher = Callable[[Publication], Awaitable[None]]


class MetadataPublisher:
    """The observer's state machine. `run` publishes until cancelled; a bad record ends it with an exception."""

    def __init__(
        self,
        publishers: Sequence[tuple[str, Publisher]],
        on_leader_changed: Callable[[], None],
        fatal: tuple[type[Exception], ...] = (),
        in_thread: InThread = in_thread,
    ) -> None:
        self.image = EMPTY
        """The newest image; publishers may still be at work on it."""
        self.errors = 0
        """Publications that failed."""
        self._offset = EMPTY.stable_offset
        self._publishers = publishers
        self._fatal = fatal
        self._in_thread = in_thread
        self._on_leader_changed = on_leader_changed
        self._pending: list[CommittedBatch] = []
        self._replayed = EMPTY
        """The image before `_pending`. It is ahead of the published image at the start and after a snapshot."""
        self._high_watermark_at_start = -1
        self._is_first = True
        self._arrived = Signal()
        self._taken = Signal()
        self._published = trio.Event()
        self._history: deque[MetadataImage] = deque(maxlen=HISTORY_MAX)

    @property
    def offset(self) -> int:
        """Every publisher is done with everything below; 0 before the first image."""
        return self._offset

    # --- the state machine ---------------------------------------------------------------------------------------------------

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        if self._high_watermark_at_start < 0:
            self._high_watermark_at_start = high_watermark
        while len(self._pending) > PENDING_MAX:
            await self._taken.wait()
        self._pending.extend(batches)
        self._arrived.set()

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        self._on_leader_changed()

    async def became_leader(self, epoch: int) -> None:
        raise AssertionError(f"a broker is an observer and cannot lead epoch {epoch}")

    async def resigned(self, epoch: int, reason: str) -> None:
        raise AssertionError(f"a broker is an observer and never led epoch {epoch}")

    def freeze(self) -> ImageSnapshot | None:
        """The image after all applied batches, published or not; None while a transaction is open."""
        image = self._replayed
        if self._pending:
            image = replay(MetadataDelta(image), self._pending)
        return None if image.transaction is not None else ImageSnapshot(image)

    def read_snapshot(self, bodies: Iterable[bytes]) -> MetadataImage:
        return image_from(bodies)

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: MetadataImage) -> None:
        """Replace the state. Pending batches lie below the snapshot and are part of it."""
        self._pending.clear()
        self._taken.set()
        self._replayed = msgspec.structs.replace(state, provenance=Provenance(position.offset, position.epoch, append_time_ms))
        self._arrived.set()

    # --- publishing ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Publish until cancelled. UnreadableRecords or ReplayError if this broker cannot understand the log."""
        while True:
            await self._arrived.wait()
            while self._pending or self._may_publish():
                delta = MetadataDelta(self._replayed)
                if self._pending:
                    batches, self._pending = self._pending, []
                    self._taken.set()
                    self._replayed = replay(delta, batches)
                if self._may_publish():
                    await self._publish(delta, self._replayed)
                await trio.lowlevel.checkpoint()

    def _may_publish(self) -> bool:
        """Return True if there is an unpublished image that is not an old prefix of the log."""
        replayed = self._replayed
        is_newer = replayed.stable_offset > self.offset
        return is_newer and replayed.provenance.offset >= self._high_watermark_at_start >= 0

    async def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before = self.image
        if delta.image.is_same_content(before):
            changes = delta.changes()
        else:
            # Between the two lies a snapshot, or batches before the first publication, or the beginning of a transaction.
            changes = await self._compare(before, image)
        publication = Publication(before, image, changes, self._is_first)
        self._is_first = False
        self.image = image
        self._history.append(image)
        for name, publish in self._publishers:
            try:
                await publish(publication)
            except self._fatal:
                raise
            except Exception:
                self.errors += 1
                logger.exception("publishing metadata %s to %s failed", image.provenance, name)
        self._offset = image.stable_offset
        self._published.set()
        self._published = trio.Event()

    async def _compare(self, before: MetadataImage, after: MetadataImage) -> MetadataChanges:
        """Return the changes between two images; computed in a worker thread if the images are large."""
        if len(before.topics.by_id) + len(after.topics.by_id) <= COMPARED_AT_ONCE_TOPICS:
            return changes_between(before, after)
        return await self._in_thread(None, changes_between, before, after)

    async def wait_for(self, offset: int) -> None:
        """Return once an image at or beyond the offset is published and in force on this broker."""
        while self.offset < offset:
            await self._published.wait()

    def image_at(self, offset: int) -> MetadataImage | None:
        """The image at exactly that offset; None if it was published together with later batches, or is no longer kept."""
        index = bisect_right(self._history, offset, key=lambda image: image.provenance.offset)
        image = self._history[index - 1] if index else None
        return image if image is not None and image.provenance.offset == offset else None


def replay(delta: MetadataDelta, batches: list[CommittedBatch]) -> MetadataImage:
    """Replay whole batches; return the image after the last."""
    for batch in batches:
        if batch.body:
            delta.replay_all(codec.decode(batch.body, batch.base_offset), batch.base_offset)
    last = batches[-1]
    return delta.apply(Provenance(last.end_offset, last.epoch, last.append_time_ms))
