"""The newest image of a cluster, and a ring of the batches that led to it. Immutable.

Each batch is kept with the image before it; images share their unchanged parts. The ring has at most RING_BATCHES batches and
RING_RECORDS records, but always the newest batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RegisterBroker, UnregisterBroker
from kraftlab.node.history import LoggedBatch
from kraftlab.quorum.core.batch import LeaderChange

from .streams import RESET, encode, event

RING_BATCHES = 4096
RING_RECORDS = 100_000
NAMED_MAX = 20
"""Topics that a message names; a page that needs more asks again anyway."""


class KnownBatch(NamedTuple):
    """A batch with the image before it, and the message to pages about it."""

    batch: LoggedBatch
    before: MetadataImage
    message: bytes = b""

    @property
    def end(self) -> int:
        return self.batch.base_offset + self.batch.record_count


class Known(NamedTuple):
    """All that is known at one moment. `image` is None before the first answer of a node. `records`: number in the ring."""

    image: MetadataImage | None = None
    ring: tuple[KnownBatch, ...] = ()
    records: int = 0

    def after(self, told: KnownBatch, image: MetadataImage) -> Known:
        """Return what is known after one more batch, which led to `image`."""
        ring, first, records = (*self.ring, told), 0, self.records + told.batch.record_count
        while first < len(ring) - 1 and (len(ring) - first > RING_BATCHES or records > RING_RECORDS):
            records -= ring[first].batch.record_count
            first += 1
        return Known(image, ring[first:], records)

    @property
    def begin(self) -> int | None:
        """Offset at which the ring begins; None without an image. The image of every later offset is known."""
        if self.ring:
            return self.ring[0].batch.base_offset
        return None if self.image is None else self.image.provenance.offset

    def at(self, offset: int) -> MetadataImage | None:
        """Return the image after the last batch that ends at or before the offset; None if the ring begins later."""
        if self.begin is None or self.begin > offset:
            return None
        return next((told.before for told in self.ring if told.end > offset), self.image)

    def at_time(self, time_ms: int) -> MetadataImage | None:
        """Return the image before the first batch that was appended after the time; None if the ring begins later."""
        if not self.ring or self.ring[0].batch.append_time_ms > time_ms:
            return None
        return next((told.before for told in self.ring if told.batch.append_time_ms > time_ms), self.image)

    def between(self, start: int, end: int) -> list[KnownBatch] | None:
        """Return the batches that end after `start` and not after `end`; None if the ring begins later."""
        if self.begin is None or self.begin > start:
            return None
        return [told for told in self.ring if start < told.end <= end]

    def missed(self, last_id: int | None) -> list[bytes]:
        """Return what a browser missed after an event id: messages of batches, or RESET if they are not known."""
        if last_id is None or (self.image is not None and last_id == self.image.provenance.offset):
            return []
        if self.image is None or last_id > self.image.provenance.offset or self.begin is None or self.begin > last_id:
            return [RESET]
        return [told.message for told in self.ring if told.end > last_id]


def message_about(batch: LoggedBatch, before: MetadataImage, after: MetadataImage, changed: Iterable[Uuid]) -> bytes:
    """Return the message to pages about a batch, which `changed` partitions of these topics."""
    topics = [after.topics.by_id.get(each) or before.topics.by_id.get(each) for each in changed]
    change = {
        "offset": after.provenance.offset,
        "epoch": batch.epoch,
        "at_ms": batch.append_time_ms,
        "topics": [topic.name for topic in islice(topics, NAMED_MAX) if topic is not None],
        "brokers": sorted({each.broker_id for each in batch.records if isinstance(each, RegisterBroker | UnregisterBroker)}),
        "leader": next((each.leader_id for each in batch.control if isinstance(each, LeaderChange)), None),
    }
    return event("change", encode(change), after.provenance.offset)
