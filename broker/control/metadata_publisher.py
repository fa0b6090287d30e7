"""The broker's view of the metadata log: committed batches in, published images out (KIP-500, KIP-631).

Theory of operation. As the observer's state machine it is handed committed batches and only puts them aside. One task merges
everything that has come into one delta, makes one new image, and hands both to the publishers, in the order they were given,
one after the other. While they work, new batches gather and become the next delta, so a slow disk makes publications larger,
not later.

A snapshot takes the place of whatever came before it: what it changes against the published image is found by comparing the
two, and published as one step with all that follows it by then, deletions included.

Nothing is published before the high watermark that was known at the start is reached: a broker never acts on an old prefix of
the log. A fault in a record ends the broker; a fault in a publisher is logged and the others still run, unless it is one of
`fatal`.

Records of an open transaction (KIP-868) are held in the image and seen by nobody: the offset stays at its beginning, and its
end is published as one step.

The newest images are kept by offset, for those who compare what nodes hold (images share what they have in common).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import trio

from kraftlab.metadata import codec
from kraftlab.metadata.changes import MetadataChanges, changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.types import Endpoint, OffsetAndEpoch
from kraftlab.quorum.driver.signal import Signal
from kraftlab.quorum.state_machine import CommittedBatch

from ..log.disks import InThread, in_thread

logger = logging.getLogger("kraftlab.broker.metadata")

HISTORY_MAX = 4096
PENDING_MAX = 64
"""Applying waits while more publications' worth of calls is pending: the log can be larger than memory."""

COMPARED_AT_ONCE_TOPICS = 100


class Publication(NamedTuple):
    """A step from one published image to the next, with what differs."""

    before: MetadataImage
    after: MetadataImage
    changes: MetadataChanges
    is_first: bool


Publisher = Callable[[Publication], Awaitable[None]]


class MetadataPublisher:
    """State machine of the observer. `run` publishes until cancelled; a bad record leaves it as an exception."""

    def __init__(
        self,
        publishers: Sequence[tuple[str, Publisher]],
        on_leader_changed: Callable[[], None],
        fatal: tuple[type[Exception], ...] = (),
        in_thread: InThread = in_thread,
    ) -> None:
        self.image = EMPTY
        """The newest image; publishers may still be at work on it."""
        self._offset = EMPTY.stable_offset
        self._publishers = publishers
        self._fatal = fatal
        self._in_thread = in_thread
        self._on_leader_changed = on_leader_changed
        self._pending: list[CommittedBatch] = []
        self._replayed = EMPTY
        """The image that `_pending` follows; ahead of the published one at the start and behind a snapshot."""
        self._high_watermark_at_start = -1
        self._is_first = True
        self._arrived = Signal()
        self._taken = Signal()
        self._published = trio.Event()
        self._history: deque[MetadataImage] = deque(maxlen=HISTORY_MAX)

    @property
    def offset(self) -> int:
        """Every publisher has been given everything below and is done with it; 0 before the first image."""
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
        """The image with everything that was applied, published or not; None while a transaction is open."""
        image = self._replayed
        if self._pending:
            image = replay(MetadataDelta(image), self._pending)
        return None if image.transaction is not None else ImageSnapshot(image)

    def read_snapshot(self, bodies: Iterable[bytes]) -> MetadataImage:
        return image_from(bodies)

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: MetadataImage) -> None:
        """What is put aside lies below the snapshot and is part of it."""
        self._pending.clear()
        self._taken.set()
        self._replayed = msgspec.structs.replace(state, provenance=Provenance(position.offset, position.epoch, append_time_ms))
        self._arrived.set()

    # --- publishing ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Publishes until cancelled. UnreadableRecords or ReplayError if the log holds what this broker cannot understand."""
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
        """Whether there is an unpublished image that is not an old prefix of the log."""
        replayed = self._replayed
        is_newer = replayed.stable_offset > self.offset
        return is_newer and replayed.provenance.offset >= self._high_watermark_at_start >= 0

    async def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before = self.image
        if delta.image.is_same_content(before):
            changes = delta.changes()
        else:
            # A snapshot, or what came before the first publication, or with the begin of a transaction, lies between the two.
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
                logger.exception("publishing metadata %s to %s failed", image.provenance, name)
        self._offset = image.stable_offset
        self._published.set()
        self._published = trio.Event()

    async def _compare(self, before: MetadataImage, after: MetadataImage) -> MetadataChanges:
        """What differs; in a worker thread if finding it out would hold up the event loop."""
        if len(before.topics.by_id) + len(after.topics.by_id) <= COMPARED_AT_ONCE_TOPICS:
            return changes_between(before, after)
        return await self._in_thread(None, changes_between, before, after)

    async def wait_for(self, offset: int) -> None:
        """Returns once an image at or beyond that offset is published, and what it changes here is done."""
        while self.offset < offset:
            await self._published.wait()

    def image_at(self, offset: int) -> MetadataImage | None:
        """The image at exactly that offset; None if it was published together with later batches, or is not kept any more."""
        index = bisect_right(self._history, offset, key=lambda image: image.provenance.offset)
        image = self._history[index - 1] if index else None
        return image if image is not None and image.provenance.offset == offset else None


def replay(delta: MetadataDelta, batches: list[CommittedBatch]) -> MetadataImage:
    """Replays whole batches; the image after the last."""
    for batch in batches:
        if batch.body:
            delta.replay_all(codec.decode(batch.body, batch.base_offset), batch.base_offset)
    last = batches[-1]
    return delta.apply(Provenance(last.end_offset, last.epoch, last.append_time_ms))
