"""The committed log, replayed from scratch beside all nodes, whose states are compared with the result (M1, M2, M4, M10).

The first node that applies a batch adds it here; Raft checkers make sure that the other nodes apply the same batch. Unlike in a
node, each record is replayed by itself and judged as a step. Changed partitions are judged after each batch. The whole image is
judged after changes of brokers and every few batches. Then the index is computed again, and the last snapshot, with the batches
since then replayed on it, must give the same image. A transaction is judged at its end. With small batches, the image can also be
one in the middle of a controlled shutdown.

Images are compared part by part, as values. Subtrees that are the same objects as in the last equal pair are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

from immutables import Map
from msgspec import Struct

from kraftlab.controller.engine.state import EMPTY_STATE, ControllerState
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.index import index_of
from kraftlab.metadata.invariants import NOT_SHUTTING_DOWN, check_changed, check_image, check_step
from kraftlab.metadata.records import (
    AbortTransaction,
    AnyRecord,
    BeginTransaction,
    EndTransaction,
    NoOp,
    Partition,
    PartitionChange,
    RemoveTopic,
    RequestOutcome,
    Topic,
)
from kraftlab.metadata.records import Config as ConfigRecord
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.quorum.state_machine import CommittedBatch

from ..consensus.invariants import Violation
from .named_requests import NamedRequests

WHOLE_IMAGE_EVERY = 16
_LOCAL_RECORDS = (
    *(Topic, RemoveTopic, Partition, PartitionChange, ConfigRecord, NoOp, RequestOutcome),
    *(BeginTransaction, EndTransaction),
)
"""Records whose effects `check_changed` judges well enough most of the time."""
_PARTS = tuple(name for name in MetadataImage.__struct_fields__ if name not in ("provenance", "transaction"))
"""The parts of an image that are equal on two nodes at one offset. The part of an open transaction in a delta can differ."""

_ABSENT = object()


def raise_violation(text: str) -> None:
    """Raise Violation."""
    raise Violation(text)


class ReplayedLog:
    """The replayed log: `state` at `end_offset`, and `records` with (end offset, records) of each batch by its base offset."""

    def __init__(self, violated: Callable[[str], None] = raise_violation, batch_records_max: int = MAX_RECORDS) -> None:
        self._violated = violated
        self._has_small_batches = batch_records_max < MAX_RECORDS
        self.state: ControllerState = EMPTY_STATE
        self.end_offset = 0
        self.records: dict[int, tuple[int, list[AnyRecord]]] = {}
        self.named = NamedRequests(violated)
        self._inside: ControllerState | None = None
        """The state in the open transaction, as if its records counted."""
        self._unjudged: list[AnyRecord] = []
        """The records of the open transaction."""
        self._images: dict[int, MetadataImage] = {0: EMPTY_STATE.image}
        """The image at each offset."""
        self._found_equal: dict[int, tuple[MetadataImage, MetadataImage]] = {}
        """By node, its newest image that was found equal, and the replayed image."""
        self._batches = 0
        self._tail: tuple[MetadataImage, list[tuple[int, list[AnyRecord]]]] | None = None
        """The last snapshot, read again, and the batches since then."""

    def extend(self, batch: CommittedBatch) -> None:
        """Replay a committed batch, if it is new."""
        if batch.end_offset <= self.end_offset:
            return
        if batch.base_offset != self.end_offset:
            raise Violation(f"M1 batch {batch.base_offset}..{batch.end_offset} is applied after {self.end_offset}")
        self.records[batch.base_offset] = (batch.end_offset, [])
        if batch.body:
            records = codec.decode(batch.body, batch.base_offset, batch.end_offset - batch.base_offset)
            self.records[batch.base_offset] = (batch.end_offset, records)
            self._replay(batch, records)
        self._images[batch.end_offset] = self.state.image
        self.end_offset = batch.end_offset

    def compare(self, node_id: int, offset: int, image: MetadataImage) -> None:
        """Raise Violation if a node's image at `offset` differs."""
        replayed = self._images.get(offset)
        if replayed is None or not is_equal(image, replayed, self._found_equal.get(node_id)):
            self._violated(f"M2 the image of n{node_id} at offset {offset} is not the one replayed from scratch")
        else:
            self._found_equal[node_id] = image, replayed

    def between(self, base_offset: int, end_offset: int) -> list[AnyRecord] | None:
        """Return the records of the batches that fill this range exactly, without begins and ends of transactions; None if no
        batches do. The quorum may have written a control batch of its own between the parts of a large change.
        """
        found: list[AnyRecord] = []
        while base_offset < end_offset:
            batch = self.records.get(base_offset)
            if batch is None:
                return None
            base_offset = batch[0]
            found += [record for record in batch[1] if not isinstance(record, BeginTransaction | EndTransaction)]
        return found if base_offset == end_offset else None

    def _replay(self, batch: CommittedBatch, records: list[AnyRecord]) -> None:
        provenance = Provenance(batch.end_offset, batch.epoch, batch.append_time_ms)
        for offset, record in enumerate(records, batch.base_offset):
            self._step(batch, offset, record, provenance)
        image = self.state.image
        self.named.extend(image)
        if self._tail is not None:
            self._tail[1].append((batch.base_offset, records))
        self._unjudged += records
        if image.transaction is not None:
            return
        records, self._unjudged = self._unjudged, []
        self._judge(batch, check_changed(image, records))
        self._batches += 1
        if self._batches % WHOLE_IMAGE_EVERY == 0 or not all(isinstance(record, _LOCAL_RECORDS) for record in records):
            self._judge(batch, check_image(image))
        if self._batches % WHOLE_IMAGE_EVERY == 0:
            self._recompute(batch)

    def _step(self, batch: CommittedBatch, offset: int, record: AnyRecord, provenance: Provenance) -> None:
        """Replay one record and judge it. A record in a transaction is judged by a state in which it counts at once."""
        before = self.state
        self.state = before.replay([record], offset, provenance)
        if isinstance(record, BeginTransaction):
            self._inside = before
        elif isinstance(record, EndTransaction | AbortTransaction):
            self._inside = None
        elif self._inside is not None:
            before, self._inside = self._inside, self._inside.replay([record], offset, provenance)
            self._judge(batch, check_step(before.image, self._inside.image, record))
        else:
            self._judge(batch, check_step(before.image, self.state.image, record))

    def _recompute(self, batch: CommittedBatch) -> None:
        """Compare the index with the image, and the image with the last snapshot and the log after it; take the next snapshot."""
        image = self.state.image
        if self.state.index != index_of(image):
            self._judge(batch, ("violated: the index is the one that the image has",))
        if self._tail is not None:
            snapshot, tail = self._tail
            for position, records in tail:
                delta = MetadataDelta(snapshot)
                delta.replay_all(records, position)
                snapshot = delta.apply(image.provenance)
            if not is_equal(snapshot, image):
                self._judge(batch, ("violated: the image is what a snapshot and the log behind it say",))
        self._tail = (image_from(body for body, _ in ImageSnapshot(image).batches()), [])

    def _judge(self, batch: CommittedBatch, broken: tuple[str, ...]) -> None:
        if self._has_small_batches:
            broken = tuple(line for line in broken if NOT_SHUTTING_DOWN not in line)
        if broken:
            self._violated(f"M1 batch {batch.base_offset}..{batch.end_offset}: {'; '.join(broken)}")


def is_equal(image: MetadataImage, other: MetadataImage, known: tuple[MetadataImage, MetadataImage] | None = None) -> bool:
    """Return True if two images are equal. `known` is an older pair of equal images."""
    if known is None:
        return all(getattr(image, part) == getattr(other, part) for part in _PARTS)
    return _are_equal_fields(image, other, *known, _PARTS)


def _are_equal_fields(one: Struct, other: Struct, older: Struct, older_other: Struct, names: tuple[str, ...]) -> bool:
    """Return True if two values are equal in these fields. Objects that are the same as in the older, equal
    values are skipped.
    """
    for name in names:
        value, found = getattr(one, name), getattr(other, name)
        known, known_found = getattr(older, name), getattr(older_other, name)
        if value is known and found is known_found:
            continue
        if type(value) is type(found) is type(known) is type(known_found) is Map:
            if len(value) != len(found) or not _are_equal_maps(value, found, known, known_found):
                return False
        elif isinstance(value, Struct) and type(value) is type(found) is type(known) is type(known_found):
            if not _are_equal_fields(value, found, known, known_found, value.__struct_fields__):
                return False
        elif value != found:
            return False
    return True


def _are_equal_maps(
    one: Map[object, object], other: Map[object, object], older: Map[object, object], older_other: Map[object, object]
) -> bool:
    """Return True if two maps of one size are equal, entry by entry."""
    in_other, in_older, in_older_other = other.get, older.get, older_other.get
    for key, value in one.items():
        found = in_other(key, _ABSENT)
        is_known = value is in_older(key, _ABSENT) and found is in_older_other(key, _ABSENT)
        if not is_known and value != found:
            return False
    return True
