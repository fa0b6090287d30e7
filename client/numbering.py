"""Numbers of batches, so that a batch that is sent again is stored once (KIP-98, KIP-360).

Theory of operation. A `DataClient` is one idempotent producer: it gets a producer id from a broker and numbers its batches per
partition. One request per partition is in flight; other threads wait for their turn, so that sequences arrive in order. A request
whose answer is lost is sent again with the same numbers, and the leader finds the stored batches.

If a request fails for good although its batches may be stored, the next one begins a new epoch at sequence 0: it is accepted
whether they are there or not, and a late copy of the old request is refused from then on. If a leader refuses numbers that it
cannot have seen before, they collide with those of another producer (an import brought them), or the leader has lost earlier
batches (an unclean election): nothing of the request is stored, and the partition goes on with a new producer id.

Not numbered: batches with acks=0, with their own producer id, and with offsets of their own (imports find theirs by the offsets).
"""

from __future__ import annotations

import threading

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import ProduceResponse
from kraftlab.wire.parts import InMemory

REFUSED_NUMBERS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
EPOCH_MAX = 2**15 - 1
_MAYBE_STORED = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR}
)


class Numbers:
    """Numbers of one partition. Change them with the lock held. `producer_id` -1: none yet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.producer_id = -1
        self.epoch = 0
        self.sequence = 0

    def begin(self, producer_id: int) -> None:
        """Go on as a new producer."""
        self.producer_id, self.epoch, self.sequence = producer_id, 0, 0

    def begin_epoch(self) -> None:
        """Go on after a request with an unknown outcome."""
        self.producer_id = self.producer_id if self.epoch < EPOCH_MAX else -1
        self.epoch, self.sequence = (self.epoch + 1) % (EPOCH_MAX + 1), 0


class SendAttempts:
    """Sendings of one request. `may_be_stored`: an earlier one may have been executed."""

    def __init__(self) -> None:
        self.may_be_stored = False
        self._is_unanswered = False

    def send(self) -> bool:
        """Begin an attempt; return True if an earlier one may have been executed."""
        self.may_be_stored = self.may_be_stored or self._is_unanswered
        self._is_unanswered = True
        return self.may_be_stored

    def answered(self, response: ProduceResponse) -> None:
        self._is_unanswered = False
        self.may_be_stored = self.may_be_stored or response.base_offset >= 0 or response.error in _MAYBE_STORED

    @property
    def is_open(self) -> bool:
        """After the last attempt failed: True if the batches may be stored."""
        return self.may_be_stored or self._is_unanswered


def requests_of(records: InMemory) -> list[InMemory] | None:
    """Return the batches in groups that may be sent together; None if they are not to be numbered."""
    from kraftlab.broker.log.producer_state import BATCHES_KEPT
    from kraftlab.records.errors import CorruptBatch
    from kraftlab.records.record_batch import iterate

    try:
        batches = list(iterate(records))
    except CorruptBatch:
        return None
    if not batches or any(header.producer_id >= 0 for _, header in batches):
        return None
    view, starts = memoryview(records), [position for position, _ in batches[::BATCHES_KEPT]]
    return [view[start:end] for start, end in zip(starts, [*starts[1:], len(records)], strict=True)]


def numbered(records: InMemory, numbers: Numbers) -> tuple[bytearray, int]:
    """Return a copy of batches with the next numbers, and the sequence after them."""
    from kraftlab.records.record_batch import iterate, sequence_after, set_producer

    data, sequence = bytearray(records), numbers.sequence
    for position, header in iterate(records):
        set_producer(data, position, header, (numbers.producer_id, numbers.epoch, sequence))
        sequence = sequence_after(sequence, header.record_count)
    return data, sequence
