"""The records of one partition of `__consumer_offsets`, while this broker leads it in one leader epoch.

Theory of operation. The leader of the partition coordinates its groups. At the start of the epoch it reads the partition up to
the epoch's first offset, once the high watermark covers that: then every record that it reads is committed, and no other one can
appear below. From then on it alone appends, and an append counts when the high watermark covers it (acks=all).

An append names the role under which it was decided. A role that has ended, also one of the same broker, writes nothing: a
decision on old state never reaches the log of a newer epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.records.codecs import decompress
from kraftlab.records.errors import LogError
from kraftlab.records.record_batch import CODEC_MASK, HEADER_BYTES, Record, StoredRecord, build_batch, records_of, validate

from ..log.disks import Disks
from ..log.errors import LogClosed, OffsetOutOfRange
from ..log.partition_log import PartitionLog
from ..replication.acknowledgement import replicated
from ..replication.partition import LeaderRole, Partition
from ..replication.replica_errors import ReplicaError, code_of
from .records import Entry, decode

logger = logging.getLogger("kraftlab.broker.groups")

READ_BYTES = 1024 * 1024
BATCH_BYTES = 256 * 1024
RECORD_OVERHEAD_BYTES = 64
RETRY_S = 5.0


class LeadershipOver(Exception):
    """This broker no longer leads the partition in this epoch."""


class NotWritten(Exception):
    """The log did not take the records; nothing was written."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Piece(NamedTuple):
    """Some records, and the offset after them."""

    records: Sequence[StoredRecord]
    end_offset: int


class Store:
    """Reads and appends under one leader role. ReplicaError if this broker does not lead the partition."""

    def __init__(self, partition: Partition, disks: Disks) -> None:
        self.partition = partition
        self.role: LeaderRole = partition.leader_role()
        self._disks = disks
        self.end_offset = self.role.epoch_start_offset
        """End of the records that count for the state in memory."""

    def __repr__(self) -> str:
        return f"{self.partition} in epoch {self.role.epoch}"

    @property
    def is_current(self) -> bool:
        """True while the role lasts."""
        return self.partition.role is self.role and self.partition.log is not None

    @property
    def is_replicated(self) -> bool:
        """True if all records of this store are below the high watermark."""
        log = self.partition.log
        return self.is_current and log is not None and log.high_watermark >= self.end_offset

    async def ended(self) -> None:
        """Return when the role is over."""
        await self._wait(lambda: not self.is_current)

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while True:
            changed = trio.Event()
            with self.partition.watched_by(changed):
                if condition():
                    return
                await changed.wait()

    # --- loading -------------------------------------------------------------------------------------------------------------

    async def load(self, take: Callable[[Entry], None], now_ms: int) -> int:
        """Give every committed record before this epoch to `take`, in order; return their number. LeadershipOver."""
        await self._wait(lambda: self.is_replicated or not self.is_current)
        offset, count = 0, 0
        while offset < self.role.epoch_start_offset:
            piece = await self._read(offset)
            for record in piece.records:
                entry = self._decoded(record, now_ms)
                if entry is not None:
                    take(entry)
                    count += 1
            offset = piece.end_offset
            await trio.lowlevel.checkpoint()
        self._check()
        return count

    async def _read(self, offset: int) -> _Piece:
        """Read some records in a worker thread; again after a move of the log, and after a fault of the disk."""
        while True:
            log = self._check()
            try:
                return await self._disks.run(log.log_dir, _read_piece, log, offset, self.role.epoch_start_offset)
            except LogClosed:
                if self.partition.log is log:
                    await trio.sleep(RETRY_S)
            except LogError as error:
                logger.error("%s: its groups cannot be loaded: %s; trying again", self, error)
                await trio.sleep(RETRY_S)

    def _check(self) -> PartitionLog:
        log = self.partition.log
        if not self.is_current or log is None:
            raise LeadershipOver(f"{self} is over")
        return log

    def _decoded(self, record: StoredRecord, now_ms: int) -> Entry | None:
        try:
            return decode(record.key, record.value, now_ms)
        except ValueError as error:
            logger.error("%s: the record at offset %d is skipped, it cannot be read: %s", self, record.offset, error)
            return None

    # --- appending -----------------------------------------------------------------------------------------------------------

    async def append(self, records: Sequence[Record]) -> None:
        """Append records in order, all or none. NotWritten; LeadershipOver."""
        self._check()
        if self.partition.is_below_min_isr():
            raise NotWritten(ErrorCode.NOT_ENOUGH_REPLICAS, f"fewer replicas of {self} are in sync than min.insync.replicas")
        try:
            batches = b"".join(build_batch(some) for some in _in_batches(records))
        except ValueError as error:
            raise NotWritten(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
        try:
            appended, _ = await self.partition.append_as_leader(batches, role=self.role)
        except (ReplicaError, LogError) as error:
            if not self.is_current:
                raise LeadershipOver(f"{self} is over") from error
            raise NotWritten(code_of(error), str(error)) from error
        self.end_offset = appended.end_offset

    async def replicated(self, end_offset: int, timeout_ms: int) -> ErrorCode:
        """Wait until the high watermark covers the offset: NONE, or the error of a produce request with acks=all."""
        if not self.is_current:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return await replicated(self.partition, end_offset, self.role.epoch, timeout_ms)


def _read_piece(log: PartitionLog, offset: int, upto: int) -> _Piece:
    """Read whole batches from `offset` on. Blocks; LogError."""
    try:
        data = log.read(offset, READ_BYTES, upto=upto)
    except OffsetOutOfRange:
        if log.log_start_offset <= offset:
            raise
        data = log.read(log.log_start_offset, READ_BYTES, upto=upto)
    records: list[StoredRecord] = []
    end_offset = upto
    for position, header in validate(data):
        end_offset = header.end_offset
        if header.is_control:
            continue
        body = bytes(data[position + HEADER_BYTES : position + header.size_bytes])
        if header.attributes & CODEC_MASK:
            body = decompress(header.codec, body)
        records += records_of(header, body, position)
    return _Piece(records, end_offset)


def _in_batches(records: Sequence[Record]) -> list[list[Record]]:
    """Divide records into batches that any topic takes; a record that is larger has one of its own."""
    batches: list[list[Record]] = []
    room_bytes = 0
    for record in records:
        size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        if not batches or size_bytes > room_bytes:
            batches.append([])
            room_bytes = BATCH_BYTES
        batches[-1].append(record)
        room_bytes -= size_bytes
    return batches
