"""Idempotent producers of one partition (KIP-98, KIP-360): what the newest batches of each producer were. No I/O.

Theory of operation. A producer numbers its records per partition: a batch carries the producer's id and epoch and the sequence of
its first record. The leader keeps the epoch and the last five batches of each producer. It answers a batch that equals one of the
five as the first time (`find_duplicates`) and refuses any other batch that does not follow the last one (`check`), then appends,
then notes the batch (`update`). The log holds its lock over these three steps, so of two copies that race one is stored.
Sequences wrap from 2^31 - 1 to 0. A newer epoch begins at sequence 0; an older one is refused. A producer that is not known may
begin anywhere: its state may have expired. (Recorded from Apache Kafka 4.3. UNKNOWN_PRODUCER_ID is therefore never the answer.)

The state follows from batch headers alone, in their order: followers, moves between directories and recovery call `update` for
each batch, without checks. So a duplicate is found by any later leader. `truncate` takes batches back that left the log.

A producer expires producer.id.expiration.ms after its last batch was appended here. The clock is this broker's, not the batch's
timestamps: those may be years old. Each partition keeps at most PRODUCERS_MAX producers, about 1 KiB each; above that the one
that was silent for longest is forgotten.

A request may bring several batches of a producer. If the first ones are duplicates, since a leader died when it had a part of
them, only the rest is appended.

Not checked: coordinators of transactions. Transactional batches and control batches come from imported logs only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kraftlab.records.record_batch import TRANSACTIONAL, BatchHeader, sequence_after

from .errors import OutOfOrderSequence, ProducerIdInUse, StaleProducerEpoch

BATCHES_KEPT = 5
PRODUCERS_MAX = 10_000
NONE = -1


class StoredBatch(NamedTuple):
    """A batch in the log. `offset_delta`: its last offset minus its first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return sequence_after(self.last_sequence, -self.offset_delta)


class Producer(NamedTuple):
    """State of one producer id. `batches`: the newest of its epoch, oldest first.

    `first_offset`: its first offset, -1 if older batches may have been forgotten; `last_offset`: its last, of a marker too.
    """

    epoch: int
    batches: tuple[StoredBatch, ...] = ()
    first_offset: int = NONE
    last_offset: int = NONE
    transaction_offset: int = NONE
    """First offset of an open transaction."""
    coordinator_epoch: int = NONE
    appended_ms: int = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE


class ProducerState:
    """The producers of one log, the one that appended last at the end. The log's lock guards it."""

    __slots__ = ("_producers",)

    def __init__(self, producers: Mapping[int, Producer] | None = None) -> None:
        self._producers: dict[int, Producer] = dict(producers or {})

    @property
    def producers(self) -> Mapping[int, Producer]:
        return self._producers

    def __len__(self) -> int:
        return len(self._producers)

    # Appending

    def stored_before(self, headers: Sequence[BatchHeader], may_be_stored: bool, log_name: str) -> list[StoredBatch]:
        """Return the first batches as the log has them, if it has; check the first new one. The lock is held over the append."""
        if headers[0].producer_id < 0:
            return []
        stored = self.find_duplicates(headers)
        if stored and not may_be_stored:
            raise ProducerIdInUse(
                f"{log_name} has a batch of producer {headers[0].producer_id} with sequence {headers[0].base_sequence} already, "
                "which another producer wrote; get another producer id"
            )
        if len(stored) < len(headers):
            self.check(headers[len(stored)])
        return stored

    def find_duplicates(self, headers: Sequence[BatchHeader]) -> list[StoredBatch]:
        """Return the stored batches that equal the first ones of `headers` by producer, epoch and sequences, in their order."""
        known = self._producers.get(headers[0].producer_id)
        if known is None or known.epoch != headers[0].producer_epoch:
            return []
        found: list[StoredBatch] = []
        for stored in known.batches:
            if len(found) < len(headers) and _equals(stored, headers[len(found)]):
                found.append(stored)
        return found

    def check(self, header: BatchHeader) -> None:
        """StaleProducerEpoch, OutOfOrderSequence: the batch may not be appended; the caller has looked for duplicates."""
        known = self._producers.get(header.producer_id)
        who = f"producer {header.producer_id}"
        if header.producer_epoch < (NONE + 1 if known is None else known.epoch):
            newest = "not negative" if known is None else f"{known.epoch} by now"
            raise StaleProducerEpoch(f"{who} sent a batch of epoch {header.producer_epoch}; its epoch is {newest}")
        if known is None:
            return
        is_new_epoch = header.producer_epoch > known.epoch
        expected = 0 if is_new_epoch else sequence_after(known.last_sequence, 1)
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"{who} sent sequence {header.base_sequence} in epoch {header.producer_epoch}; the next one is {expected}"
            )

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Note a batch that the log has."""
        if header.producer_id < 0:
            return
        known = self._producers.pop(header.producer_id, None) or Producer(header.producer_epoch, first_offset=header.base_offset)
        self._producers[header.producer_id] = (
            _after_marker(known, header, now_ms) if header.is_control else _after_batch(known, header, now_ms)
        )
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]

    def noted(self, headers: Iterable[BatchHeader]) -> dict[int, Producer | None]:
        """Return the state of the producers of `headers`, for `restore`."""
        return {header.producer_id: self._producers.get(header.producer_id) for header in headers if header.producer_id >= 0}

    def restore(self, noted: Mapping[int, Producer | None]) -> None:
        """Undo the updates since `noted`, for an append that failed."""
        for producer_id, known in noted.items():
            self._producers.pop(producer_id, None)
            if known is not None:
                self._producers[producer_id] = known

    # Other changes of the log

    def truncate(self, end_offset: int) -> bool:
        """Take back the batches from `end_offset` on. Return False if that is not possible: the state has to be built again.

        That is so for a producer that has lost all its known batches and may have had others before, and for transactions.
        """
        kept: dict[int, Producer] = {}
        for producer_id, known in self._producers.items():
            batches = tuple(stored for stored in known.batches if stored.last_offset < end_offset)
            is_simple = known.transaction_offset == NONE and len(batches) < len(known.batches)
            if known.last_offset < end_offset:
                kept[producer_id] = known
            elif batches and is_simple:
                kept[producer_id] = known._replace(batches=batches, last_offset=batches[-1].last_offset)
            elif known.first_offset < end_offset:
                return False
        self._producers = kept
        return True

    def expire(self, before_ms: int) -> int:
        """Forget producers without a batch since that time; return their number. Open transactions stay."""
        due = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.appended_ms < before_ms and known.transaction_offset == NONE
        ]
        for producer_id in due:
            del self._producers[producer_id]
        return len(due)

    def clear(self) -> None:
        self._producers.clear()

    def copy(self) -> ProducerState:
        return ProducerState(self._producers)

    def last_ends(self) -> dict[int, int]:
        """Producer id → end offset of its last batch, whose header compaction keeps: the next rebuild needs its sequence."""
        return {key: known.batches[-1].last_offset + 1 for key, known in self._producers.items() if known.batches}


def _equals(stored: StoredBatch, header: BatchHeader) -> bool:
    return stored.first_sequence == header.base_sequence and stored.offset_delta == header.last_offset_delta


def _after_batch(known: Producer, header: BatchHeader, now_ms: int) -> Producer:
    if header.base_sequence < 0:
        return known
    stored = StoredBatch(
        sequence_after(header.base_sequence, header.last_offset_delta),
        header.last_offset,
        header.last_offset_delta,
        header.max_timestamp_ms,
    )
    earlier = known.batches[1 - BATCHES_KEPT :] if known.epoch == header.producer_epoch else ()
    transaction_offset = known.transaction_offset
    if header.attributes & TRANSACTIONAL and transaction_offset == NONE:
        transaction_offset = header.base_offset
    return Producer(
        *(header.producer_epoch, (*earlier, stored), known.first_offset, header.last_offset),
        *(transaction_offset, known.coordinator_epoch, now_ms),
    )


def _after_marker(known: Producer, header: BatchHeader, now_ms: int) -> Producer:
    """A marker ends a transaction, and may begin an epoch."""
    batches = known.batches if known.epoch == header.producer_epoch else ()
    return Producer(header.producer_epoch, batches, known.first_offset, header.last_offset, NONE, known.coordinator_epoch, now_ms)
