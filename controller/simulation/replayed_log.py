"""The committed log, replayed from scratch beside all nodes: the state that theirs are compared with (M1, M2, M4, M10).

The first node that applies a batch brings it here; the raft checkers see to it that the others apply the same one. Each record is
replayed alone, as no node does it, and judged as a step; a changed partition is judged after each batch, the whole image
whenever brokers or topics have changed, and now and then. Batches of very many records are replayed as a whole.
"""

from __future__ import annotations

from kraftlab.metadata import codec
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.invariants import check_image, check_partition, check_requests, check_step
from kraftlab.metadata.records import AnyRecord, NoOp, Partition, PartitionChange, RequestOutcome
from kraftlab.metadata.records import Config as ConfigRecord
from kraftlab.metadata.snapshot import image_digest
from kraftlab.quorum.simulation.invariants import Violation
from kraftlab.quorum.state_machine import CommittedBatch

from ..engine.state import EMPTY_STATE, ControllerState
from .named_requests import AppliedRequests

SINGLY_MAX = 100
"""Batches with more records are replayed as a whole."""
WHOLE_IMAGE_EVERY = 16
_LOCAL_RECORDS = (Partition, PartitionChange, ConfigRecord, NoOp, RequestOutcome)
"""Records whose effects `check_partition` judges well enough most of the time."""


class ReplayedLog:
    """`state` stands at `end_offset`; `records` has each batch's end offset and records by its base offset."""

    def __init__(self) -> None:
        self.state: ControllerState = EMPTY_STATE
        self.end_offset = 0
        self.records: dict[int, tuple[int, list[AnyRecord]]] = {}
        self.applied = AppliedRequests()
        self._digests: dict[int, bytes] = {0: image_digest(EMPTY_STATE.image)}
        self._batches = 0

    def extend(self, batch: CommittedBatch) -> None:
        """Takes in a committed batch, if it is a new one."""
        if batch.end_offset <= self.end_offset:
            return
        if batch.base_offset != self.end_offset:
            raise Violation(f"M1 batch {batch.base_offset}..{batch.end_offset} is applied behind {self.end_offset}")
        if batch.body:
            records = codec.decode(batch.body, batch.base_offset, batch.end_offset - batch.base_offset)
            self.records[batch.base_offset] = (batch.end_offset, records)
            self._replay(batch, records)
            self._digests[batch.end_offset] = image_digest(self.state.image)
        else:
            self._digests[batch.end_offset] = self._digests[self.end_offset]
        self.end_offset = batch.end_offset

    def compare(self, node_id: int, offset: int, image: MetadataImage) -> None:
        """Raises Violation if a node's image at `offset` is another."""
        if self._digests.get(offset) != image_digest(image):
            raise Violation(f"M2 the image of n{node_id} at offset {offset} is not the one replayed from scratch")

    def between(self, base_offset: int, end_offset: int) -> list[AnyRecord] | None:
        """The records of the batches that fill this range exactly; None if no batches do."""
        found: list[AnyRecord] = []
        while base_offset < end_offset:
            batch = self.records.get(base_offset)
            if batch is None:
                return None
            base_offset = batch[0]
            found += batch[1]
        return found if base_offset == end_offset else None

    def _replay(self, batch: CommittedBatch, records: list[AnyRecord]) -> None:
        provenance = Provenance(batch.end_offset, batch.epoch, batch.append_time_ms)
        if len(records) > SINGLY_MAX:
            self.state = self.state.replay(records, batch.base_offset, provenance)
        else:
            for offset, record in enumerate(records, batch.base_offset):
                before = self.state
                self.state = before.replay([record], offset, provenance)
                self._judge(batch, check_step(before.image, self.state.image, record))
        image = self.state.image
        for record in records:
            if isinstance(record, Partition | PartitionChange):
                partition = image.topics.partition(record.topic_id, record.partition_id)
                if partition is not None:
                    self._judge(batch, check_partition(partition))
        self._batches += 1
        if self._batches % WHOLE_IMAGE_EVERY == 0 or not all(isinstance(record, _LOCAL_RECORDS) for record in records):
            self._judge(batch, check_image(image))
        self._judge(batch, check_requests(image.requests))
        self.applied.extend(image)

    def _judge(self, batch: CommittedBatch, broken: tuple[str, ...]) -> None:
        if broken:
            raise Violation(f"M1 batch {batch.base_offset}..{batch.end_offset}: {'; '.join(broken)}")
