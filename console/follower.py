"""The follower of the metadata log: the newest image, and a ring of the newest batches.

Theory of operation. One thread asks one node for the newest image, then for the batches from the image's end on. The node answers
when it has applied more, or REQUEST_TIMED_OUT when nothing is new after POLL_MS (a long poll). Each batch is replayed on the
image. The ring has each batch with the image before it, so that a change can be told with the state it changed; images share
their unchanged parts. Pages are told of a batch once it is in the ring, so that a page which comes back misses none. A node that
does not answer, or that no longer has the batches, is left for the next one; the offset goes on. If no node has the batches any
more, the follower begins again with an image, and pages are told. It rests while nobody looks.

The follower is the only writer of `image` and of the ring. Both are replaced, never changed, so that readers need no lock.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.time_travel import batches, image_at
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.records import RegisterBroker, UnregisterBroker
from kraftlab.node.history import LoggedBatch
from kraftlab.quorum.core.batch import LeaderChange

from .streams import Streams, encode, event

logger = logging.getLogger("kraftlab.console")

RING_BATCHES = 4096
POLL_MS = 15_000
GATHER_S = 0.05
"""Rest after an answer, so that many changes cost few calls."""
BATCHES_MAX = 64
"""Batches that pages are told of one by one; of more they only learn that they missed some."""
PAUSE_S = 0.3
UNREADABLE_S = 5.0
NAMED_MAX = 20
"""Topics that a change names; a page that needs more asks again anyway."""


class Kept(NamedTuple):
    """A batch with the image before it, and the message about it."""

    batch: LoggedBatch
    before: MetadataImage
    message: bytes

    @property
    def end(self) -> int:
        return self.batch.base_offset + self.batch.record_count


class Follower(threading.Thread):
    """Follows the log of the cluster of `client`. `image` is None until the first answer."""

    def __init__(self, client: AdminClient, seeds: tuple[Endpoint, ...], streams: Streams) -> None:
        super().__init__(name="follower", daemon=True)
        self.image: MetadataImage | None = None
        self.has_image = threading.Event()
        self.ring: tuple[Kept, ...] = ()
        self._client = client
        self._seeds = seeds
        self._streams = streams
        self._stopping = threading.Event()
        self._endpoint: Endpoint | None = None
        self._turn = itertools.count()
        self._newest: deque[Kept] = deque(maxlen=RING_BATCHES)

    @property
    def endpoint(self) -> Endpoint:
        """The node that is asked now."""
        return self._endpoint or self._seeds[0]

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            if not self._streams.watched.wait(PAUSE_S):
                continue
            try:
                self._look()
            except (ApiError, ClusterUnreachable) as error:
                if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self.image is not None:
                    self._begin_again()
                self._streams.put("log", None, str(error))
                self._endpoint = self._next_node()
                self._stopping.wait(PAUSE_S)
            except ValueError as error:  # records of a newer version, or that do not fit the image
                logger.error("cannot read the metadata log of %s: %s", self.endpoint, error)
                self._streams.put("log", None, f"cannot read the metadata log: {error}")
                self._begin_again()
                self._stopping.wait(UNREADABLE_S)

    def _look(self) -> None:
        if self.image is None:
            self.image = image_at(self._client, self.endpoint)
            self.has_image.set()
            self._note()
        start = self.image.provenance.offset
        end = self._end_after(start)
        if end > start:
            for batch in batches(self._client, self.endpoint, start, end):
                self._replay(batch)
            self.ring = tuple(self._newest)
            self._tell(start)
        self._note()
        if end > start:
            self._stopping.wait(GATHER_S)

    def _tell(self, start: int) -> None:
        told = [kept for kept in self.ring[-BATCHES_MAX - 1 :] if kept.end > start]
        if len(told) > BATCHES_MAX:
            self._streams.reset(told[-1].end)
        else:
            for kept in told:
                self._streams.change(kept.message)

    def _end_after(self, offset: int) -> int:
        """Wait until the node has applied more than `offset`, and return the end of what it has applied."""
        header = pb.RequestHeader(min_offset=offset + 1, timeout_ms=POLL_MS)
        request = pb.ListMetadataRecordsRequest(header=header, from_offset=offset, to_offset=offset)
        try:
            answer = self._client.call_at(
                self.endpoint, pb.ListMetadataRecordsResponse, request, timeout_ms=POLL_MS + 2 * POLL_MS // 10
            )
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            return offset
        return answer.header.metadata_offset

    def _replay(self, batch: LoggedBatch) -> None:
        before = self.image
        assert before is not None, "batches are asked for after an image"
        end = batch.base_offset + batch.record_count
        if end <= before.provenance.offset:
            return
        delta = MetadataDelta(before)
        delta.replay_all(batch.records, batch.base_offset)
        self.image = delta.apply(Provenance(end, batch.epoch, batch.append_time_ms))
        names = [
            (topics.get(topic_id) or before.topics.by_id[topic_id]).name
            for topics in (self.image.topics.by_id,)
            for topic_id in itertools.islice(delta.changes().partitions, NAMED_MAX)
        ]
        change = {
            "offset": end,
            "epoch": batch.epoch,
            "at_ms": batch.append_time_ms,
            "topics": names,
            "brokers": sorted({each.broker_id for each in batch.records if isinstance(each, RegisterBroker | UnregisterBroker)}),
            "leader": next((each.leader_id for each in batch.control if isinstance(each, LeaderChange)), None),
        }
        self._newest.append(Kept(batch, before, event("change", encode(change), end)))

    def _begin_again(self) -> None:
        self.image = None
        self.has_image.clear()
        self._newest.clear()
        self.ring = ()
        self._streams.reset()

    def _note(self) -> None:
        assert self.image is not None, "it was read"
        at = self.image.provenance
        self._streams.put("log", {"offset": at.offset, "epoch": at.epoch, "node": str(self.endpoint)})

    def _next_node(self) -> Endpoint:
        """Return the next of the nodes that are known: the named ones, then brokers and controllers of the image."""
        known = dict.fromkeys(self._seeds)
        if self.image is not None:
            for member in (*self.image.cluster.brokers.values(), *self.image.cluster.controllers.values()):
                listener = member.listener("GRPC")
                if listener is not None:
                    known[Endpoint(listener.host, listener.port)] = None
        nodes = [*known]
        return nodes[next(self._turn) % len(nodes)]

    def missed(self, last_id: int | None) -> list[bytes]:
        """Return what a browser missed after an event id: messages of batches, or `reset` if the ring begins later."""
        image, ring = self.image, self.ring
        if last_id is None or (image is not None and last_id == image.provenance.offset):
            return []
        if not ring or not ring[0].batch.base_offset <= last_id <= ring[-1].end:
            return [event("reset", b"{}")]
        missed = [kept.message for kept in ring if kept.end > last_id]
        return missed if len(missed) <= BATCHES_MAX else [event("reset", b"{}", ring[-1].end)]

    def kept(self, start: int, end: int) -> Iterator[Kept]:
        """Yield the batches of the ring between two offsets."""
        return (kept for kept in self.ring if kept.batch.base_offset >= start and kept.end <= end)
