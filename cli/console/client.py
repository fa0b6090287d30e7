"""Producer and consumer of the consoles: records gathered into batches, and batches fetched as they arrive.

A producer keeps one batch for each partition until the batch is full or a flush. The partition follows from the key as in Kafka's
producers; records without a key stay on one partition for a batch, then the next partition follows. A consumer asks the leaders
of its partitions one after the other. If none has records, it waits at one of them, in turn.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from kraftlab.client import AdminClient, DataClient
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import BatchHeader, Record, StoredRecord, build_batch, check_crc, iterate

from ..output import BadInput
from ..stored_batches import Unreadable, stored_records
from .lines import partition_of_key

_READ_BYTES = 1 << 16
_LONGEST_WAIT_MS = 250
_LONGEST_SELECT_S = 3600.0
_RECORD_OVERHEAD_BYTES = 20
_REQUEST_MS = (2_000, 30_000)
"""Least and longest time for a leader to be found and to answer, whatever the time that is left for a record."""


def open_data(admin: AdminClient) -> DataClient:
    """Return a client for the batches of the cluster that an AdminClient calls."""
    if not admin.speaks_kafka:
        return DataClient(admin)
    from kraftlab.client.kafka_data import KafkaDataClient

    return KafkaDataClient(admin)


class Lines:
    """Lines of a file, a pipe or a terminal as they arrive. `ended` is set after the last line."""

    def __init__(self, descriptor: int) -> None:
        self.ended = False
        self._descriptor = descriptor
        self._begun = b""

    def take(self, wait_s: float | None) -> list[bytes]:
        """Return lines without their ends, none if none arrives within `wait_s`. None waits without a limit."""
        if not select.select([self._descriptor], [], [], None if wait_s is None else min(wait_s, _LONGEST_SELECT_S))[0]:
            return []
        data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            self.ended = True
            rest, self._begun = self._begun, b""
            return [rest] if rest else []
        *whole, self._begun = (self._begun + data).split(b"\n")
        return [line.removesuffix(b"\r") for line in whole]


class PartitionWrites(msgspec.Struct):
    """Records of a producer in one partition. `end_offset` follows the last batch of this producer."""

    partition: int
    records: int
    base_offset: int
    end_offset: int


class Producer:
    """A producer for one topic. `written` has the acknowledged records by partition. ApiError and ClusterUnreachable as in
    `DataClient.produce`, ValueError for a record that is too large.
    """

    def __init__(
        self, data: DataClient, topic: str, partitions: Sequence[int], *, acks: int, batch_bytes: int, timeout_ms: int
    ) -> None:
        self.written: dict[int, PartitionWrites] = {}
        self._data = data
        self._topic = topic
        self._partitions = partitions
        self._acks = acks
        self._batch_bytes = batch_bytes
        self._timeout_ms = timeout_ms
        self._turn = 0
        self._pending: dict[int, list[Record]] = {}
        self._pending_bytes: dict[int, int] = {}

    @property
    def is_waiting(self) -> bool:
        """True if there are records that were not sent."""
        return bool(self._pending)

    def add(self, record: Record) -> None:
        partition = self._partition_of(record)
        self._pending.setdefault(partition, []).append(record)
        size_bytes = self._pending_bytes.get(partition, 0) + len(record.key or b"") + len(record.value or b"")
        self._pending_bytes[partition] = size_bytes + _RECORD_OVERHEAD_BYTES
        if self._pending_bytes[partition] >= self._batch_bytes:
            self._send(partition)

    def flush(self) -> None:
        for partition in sorted(self._pending):
            self._send(partition)

    def _partition_of(self, record: Record) -> int:
        if record.key is not None:
            return self._partitions[partition_of_key(record.key, len(self._partitions))]
        return self._partitions[self._turn % len(self._partitions)]

    def _send(self, partition: int) -> None:
        records = self._pending.pop(partition)
        del self._pending_bytes[partition]
        self._turn += 1
        batch = build_batch(records)
        answer = self._data.produce(self._topic, partition, batch, acks=self._acks, timeout_ms=self._timeout_ms)
        written = self.written.setdefault(partition, PartitionWrites(partition, 0, answer.base_offset, 0))
        written.records += len(records)
        written.end_offset = answer.base_offset + len(records)


def request_ms(left_ms: int | None) -> int:
    """Return the timeout of one request of a consumer that waits `left_ms` for a record, None without a limit."""
    least, longest = _REQUEST_MS
    return longest if left_ms is None else min(max(left_ms, least), longest)


@contextmanager
def needs_leader(topic: str, partition: int) -> Iterator[None]:
    """Translate the error of a partition without a leader to BadInput with the next step."""
    try:
        yield
    except ApiError as error:
        if error.code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise
        raise BadInput(
            f"{topic}-{partition} has no leader; kraftlab topics --describe and kraftlab log-dirs --describe show why"
        ) from None


class ConsumedRecord(NamedTuple):
    partition: int
    record: StoredRecord


class Consumer:
    """A consumer of one topic. `positions`: partition → next offset. `warn` gets a line for skipped records. `has_skipped`: a
    batch could not be decompressed or decoded. BadInput at a damaged batch, since its end is unknown, and for a partition that
    has no leader in time.
    """

    def __init__(self, data: DataClient, topic: str, positions: dict[int, int], warn: Callable[[str], None]) -> None:
        self.positions = positions
        self.has_skipped = False
        self._data = data
        self._topic = topic
        self._warn = warn

    def records(self, timeout_ms: int | None) -> Iterator[list[ConsumedRecord]]:
        """Yield the records of each fetch, in order within a partition, until no record arrives for `timeout_ms`."""
        received_at = time.monotonic()
        wait_ms = turn = 0
        left_ms = timeout_ms
        while True:
            is_quiet = True
            for index, partition in enumerate(sorted(self.positions)):
                found = self._fetch(partition, wait_ms if index == turn % len(self.positions) else 0, request_ms(left_ms))
                if found:
                    is_quiet = False
                    yield found
                    received_at = time.monotonic()
            turn += 1
            wait_ms = _LONGEST_WAIT_MS if is_quiet else 0
            if timeout_ms is not None:
                left_ms = timeout_ms - int((time.monotonic() - received_at) * 1000)
                if left_ms <= 0:
                    return
                wait_ms = min(wait_ms, left_ms)

    def _fetch(self, partition: int, wait_ms: int, timeout_ms: int) -> list[ConsumedRecord]:
        position = self.positions[partition]
        try:
            with needs_leader(self._topic, partition):
                fetched = self._data.fetch(self._topic, partition, position, max_wait_ms=wait_ms, timeout_ms=timeout_ms).records
        except ApiError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._move_to_existing_offset(partition)
            return []
        found: list[ConsumedRecord] = []
        is_first, after = True, position + 1
        try:
            for start, header in iterate(fetched):
                after = max(after, header.end_offset)
                check_crc(fetched, start, header)
                found += self._records_in(partition, header, bytes(fetched[start : start + header.size_bytes]))
                self.positions[partition] = max(header.end_offset, position)
                is_first = False
        except CorruptBatch as error:
            # The records before it are printed first: the next fetch begins at the damaged batch.
            if is_first:
                where, next_step = f"{self._topic}-{partition}", f"--partition {partition} --offset {after}"
                raise BadInput(
                    f"{where}: the batch at offset {position} is damaged ({error.reason}); read on after it with {next_step}, "
                    "and look at its file on the leader with kraftlab dump-log"
                ) from None
        return [each for each in found if each.record.offset >= position]

    def _records_in(self, partition: int, header: BatchHeader, batch: bytes) -> list[ConsumedRecord]:
        """Return the records of a batch, those that can be read with a warning if some cannot."""
        found: list[ConsumedRecord] = []
        try:
            if not header.is_control:
                found.extend(ConsumedRecord(partition, record) for record in stored_records(header, batch))
        except Unreadable as error:
            self.has_skipped = True
            self._warn(f"{self._topic}-{partition} from offset {header.base_offset} to {header.last_offset}: {error}")
        return found

    def _move_to_existing_offset(self, partition: int) -> None:
        """Continue at the nearest existing offset."""
        wanted = self.positions[partition]
        first, end = self._data.bounds(self._topic, partition)
        self.positions[partition] = min(max(wanted, first), end)
        self._warn(
            f"{self._topic}-{partition} has offsets {first} to {end - 1}, not {wanted}; continuing at {self.positions[partition]}"
        )
