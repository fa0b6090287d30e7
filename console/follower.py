"""The follower of the metadata log: the newest image, and a ring of the newest batches.

Theory of operation. One thread asks one node for the newest image, then for the batches from the image's end on. The node answers
when it has applied more, or REQUEST_TIMED_OUT when nothing is new after POLL_MS (a long poll). Then the next node is asked: an
idle log gets a NoOp record now and then, so a node without news may be cut off. Each batch is replayed on the image and kept
with the image before it, so that a change can be told with the state it changed.

A node that does not answer, is behind, or no longer has the batches is left for the next one; the offset goes on. If none of the
nodes can continue, because they have another log or are another cluster by now, or the batches do not fit, the follower begins
again with an image, and pages get a reset. It rests while nobody looks. After a rest, a failure or a change of node, the node
must have the batch that led to our image.

The follower alone replaces `known`. A value of `known` never changes, so that readers need no lock.
"""

from __future__ import annotations

import logging
import threading

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.time_travel import batches, image_at
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.node.history import LoggedBatch

from .known import Known, KnownBatch, message_about
from .streams import RESET, Streams

logger = logging.getLogger("kraftlab.console")

POLL_MS = 15_000
GATHER_S = 0.05
"""Rest after an answer, so that many changes cost few calls."""
PAUSE_S = 0.3
UNREADABLE_S = 5.0
ELSEWHERE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_CLUSTER_ID)
"""Refusals of a node that cannot continue our log: it was cleaned, or belongs to another cluster."""


class Follower(threading.Thread):
    """Follows the log of the cluster of `client`. `endpoint` is the node that is asked now."""

    def __init__(self, client: AdminClient, seeds: tuple[Endpoint, ...], streams: Streams) -> None:
        super().__init__(name="follower", daemon=True)
        self.known = Known()
        self.is_current = threading.Event()
        self.generation = 0
        """Number of times that all was forgotten, because the nodes have another log."""
        self.endpoint = seeds[0]
        self._client = client
        self._cluster_id = ""
        self._seeds = seeds
        self._streams = streams
        self._stopping = threading.Event()
        self._failures, self._is_lost = 0, False
        """Nodes in a row that could not continue, and True if one of them refused with one of ELSEWHERE."""
        self._sure_of: Endpoint | None = None
        """The node that has the log of our image, by its last answer."""

    @property
    def image(self) -> MetadataImage | None:
        return self.known.image

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            if not self._streams.watched.is_set():
                self.is_current.clear()  # nobody looks, and what is known grows old
            if self._streams.watched.wait(PAUSE_S):
                self._stopping.wait(self.step())

    def step(self) -> float:
        """Ask the node once and replay what is new. Return how long to wait before the next step, in seconds. Blocks."""
        try:
            before = self.image
            self._look(before or self._begin())
            self._failures, self._is_lost = 0, False
            return GATHER_S if before is not self.image else PAUSE_S
        except (ApiError, ClusterUnreachable) as error:
            self._failures += 1
            self._sure_of = None
            self._is_lost |= isinstance(error, ApiError) and error.code in ELSEWHERE
            if self._is_lost and self._failures >= len(self.nodes()):
                self._forget()
            self._streams.put("log", None, str(error))
            self.endpoint = self._next_node()
            return PAUSE_S
        except Exception as error:  # records of a newer version, or that do not fit the image
            logger.exception("cannot read the metadata log of %s", self.endpoint)
            self._streams.put("log", None, f"cannot read the metadata log of {self.endpoint}: {error}")
            self._forget()
            self.endpoint = self._next_node()
            return UNREADABLE_S

    def _begin(self) -> MetadataImage:
        asked = pb.DescribeClusterRequest()
        self._cluster_id = self._client.call_at(self.endpoint, pb.DescribeClusterResponse, asked, timeout_ms=POLL_MS).cluster_id
        image = image_at(self._client, self.endpoint)
        self.known = Known(image)
        self._sure_of = self.endpoint
        self.is_current.set()
        self._note(image)
        return image

    def _check_log(self, at: Provenance) -> None:
        """Check that the node has the batch that led to our image: its log may be a new one, of a cluster with the same id.
        OFFSET_OUT_OF_RANGE if the node has another batch there, or none.
        """
        found = [*batches(self._client, self.endpoint, at.offset - 1, at.offset)] if at.offset else []
        ends = [Provenance(each.base_offset + each.record_count, each.epoch, each.append_time_ms) for each in found]
        if at.offset and ends[-1:] != [at]:
            text = f"{self.endpoint} has another log than the one that was read up to offset {at.offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _look(self, image: MetadataImage) -> None:
        start = image.provenance.offset
        has_rested = not self.is_current.is_set()
        end = self._end(start, pb.RequestHeader()) if has_rested else self._end_after(start)
        if has_rested or self._sure_of != self.endpoint:
            self._check_log(image.provenance)
            self._sure_of = self.endpoint
        if end > start:
            for batch in batches(self._client, self.endpoint, start, end):
                image = self._replay(image, batch)
        self.is_current.set()
        self._note(image)

    def _end_after(self, offset: int) -> int:
        """Wait until the node has applied more than `offset`, and return the end of what it has applied. OFFSET_OUT_OF_RANGE if
        the node has less.
        """
        try:
            return self._end(offset, pb.RequestHeader(min_offset=offset + 1, timeout_ms=POLL_MS))
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
        self.endpoint = self._next_node()
        return self._end(offset, pb.RequestHeader())

    def _end(self, offset: int, header: pb.RequestHeader) -> int:
        header.cluster_id = self._cluster_id
        request = pb.ListMetadataRecordsRequest(header=header, from_offset=offset, to_offset=offset)
        response = pb.ListMetadataRecordsResponse
        return self._client.call_at(self.endpoint, response, request, timeout_ms=POLL_MS * 6 // 5).header.metadata_offset

    def _replay(self, before: MetadataImage, batch: LoggedBatch) -> MetadataImage:
        """Publish the image after a batch, then tell the pages. ValueError if the batch does not continue the image."""
        at, end = before.provenance, batch.base_offset + batch.record_count
        if batch.base_offset != at.offset or batch.epoch < at.epoch:
            raise ValueError(f"offset {batch.base_offset} of epoch {batch.epoch} comes after {at.offset} of epoch {at.epoch}")
        delta = MetadataDelta(before)
        delta.replay_all(batch.records, batch.base_offset)
        image = delta.apply(Provenance(end, batch.epoch, batch.append_time_ms))
        message = message_about(batch, before, image, delta.changes().partitions)
        self.known = self.known.after(KnownBatch(batch, before, message), image)
        self._streams.send(message)
        return image

    def _forget(self) -> None:
        self.is_current.clear()
        self.generation += 1
        self.known = Known()
        self._failures, self._is_lost = 0, False
        self._streams.send(RESET)

    def _note(self, image: MetadataImage) -> None:
        at = image.provenance
        self._streams.put("log", {"offset": at.offset, "epoch": at.epoch, "node": str(self.endpoint)})

    def nodes(self) -> list[Endpoint]:
        """Return the nodes that are known: the named ones, then brokers and controllers of the image."""
        known = dict.fromkeys(self._seeds)
        if self.image is not None:
            for member in (*self.image.cluster.brokers.values(), *self.image.cluster.controllers.values()):
                listener = member.listener("GRPC")
                if listener is not None:
                    known[Endpoint(listener.host, listener.port)] = None
        return [*known]

    def _next_node(self) -> Endpoint:
        nodes = self.nodes()
        return nodes[(nodes.index(self.endpoint) + 1) % len(nodes)] if self.endpoint in nodes else nodes[0]
