"""The batch format of the metadata log.

A batch is a 48-byte big-endian header and a body::

    magic u32 | length u32 | crc u32 | base_offset u64 | epoch u32 | attributes u16 | record_count u16 |
    append_time_ms u64 | high_watermark u64 | previous_crc u32 | body

`length` counts the bytes after the crc field. `crc` (zlib.crc32) covers the same bytes, so it includes offset and epoch, unlike
Kafka's. `previous_crc` is the crc of the batch before: the log is a hash chain, and equal crcs at equal offsets mean equal
prefixes. `high_watermark` is the leader's when it wrote the batch: recovery never truncates below the largest stamp that it
finds.

The body is one MessagePack array of `record_count` records, each `[type, version, fields…]`. Each record takes one offset.
Consensus never reads data bodies. It reads and writes control bodies (attribute bit CONTROL); their record types are at the end
of this module.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import ClassVar, NamedTuple

import msgspec

from kraftlab.common.decoding import Decoder
from kraftlab.common.replica_key import ReplicaKey

from .errors import CorruptBatch
from .types import VoterSet

MAGIC = 0x4B4C4231  # "KLB1"
HEADER = struct.Struct(">IIIQIHHQQI")
HEADER_BYTES = HEADER.size
LENGTH_FROM = 12
"""Bytes of the header that `length` does not count: magic, length, crc."""
CRC_AT = 8
"""Position of the crc in the header."""
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_RECORDS = 10_000
CONTROL = 1 << 5
NO_PREVIOUS_CRC = 0

_EMPTY_LENGTH = HEADER_BYTES - LENGTH_FROM
_LENGTH_MAX = MAX_BATCH_BYTES - LENGTH_FROM
_START = struct.Struct(">III")
_AFTER_CRC = struct.Struct(">QIHHQQI")


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of one batch. `size_bytes` is the size of the whole batch, header included."""

    size_bytes: int
    crc: int
    base_offset: int
    epoch: int
    attributes: int
    record_count: int
    append_time_ms: int
    high_watermark: int
    previous_crc: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    def __repr__(self) -> str:
        kind = "control" if self.is_control else "data"
        return f"{kind} {self.base_offset}..{self.end_offset}@{self.epoch} crc={self.crc:08x}"


class Batch(NamedTuple):
    """A header, its body (one MessagePack array) and the bytes of the whole batch."""

    header: BatchHeader
    body: bytes
    data: bytes


def encode(
    body: bytes,
    *,
    base_offset: int,
    epoch: int,
    record_count: int,
    append_time_ms: int,
    high_watermark: int,
    previous_crc: int,
    attributes: int = 0,
) -> tuple[bytes, int]:
    """Return the bytes of a batch and its crc, the `previous_crc` of the next batch."""
    if not 0 < record_count <= MAX_RECORDS:
        raise ValueError(f"a batch holds 1 to {MAX_RECORDS} records, not {record_count}")
    covered = _AFTER_CRC.pack(base_offset, epoch, attributes, record_count, append_time_ms, high_watermark, previous_crc) + body
    crc = zlib.crc32(covered)
    if len(covered) + LENGTH_FROM > MAX_BATCH_BYTES:
        raise ValueError(f"a batch of {len(covered) + LENGTH_FROM} bytes is over the limit of {MAX_BATCH_BYTES}")
    return _START.pack(MAGIC, len(covered), crc) + covered, crc


def read_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Return the header at `position`; only magic and length are checked. CorruptBatch says what is wrong."""
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatch(f"{len(data) - position} bytes at position {position} are too few for a batch header")
    magic, length, crc, base, epoch, attributes, count, time_ms, mark, previous = HEADER.unpack_from(data, position)
    if magic != MAGIC:
        raise CorruptBatch(f"no batch at position {position}: magic is {magic:08x}, not {MAGIC:08x}")
    if not _EMPTY_LENGTH < length <= _LENGTH_MAX:
        raise CorruptBatch(f"batch at position {position} claims a length of {length} bytes")
    return BatchHeader(length + LENGTH_FROM, crc, base, epoch, attributes, count, time_ms, mark, previous)


def check(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`.

    CorruptBatch if the batch is cut short, has a wrong crc, or has no records.
    """
    header = read_header(data, position)
    end = position + header.size_bytes
    if len(data) < end:
        raise CorruptBatch(f"batch at position {position} is cut: {len(data) - position} of {header.size_bytes} bytes")
    crc = zlib.crc32(data[position + LENGTH_FROM : end])
    if crc != header.crc:
        raise CorruptBatch(
            f"batch at position {position} (offset {header.base_offset}): crc {crc:08x}, header says {header.crc:08x}"
        )
    if not header.record_count:
        raise CorruptBatch(f"batch at position {position} (offset {header.base_offset}) says it has no records")
    return header


def is_intact(data: bytes, position: int, end: int, crc: int) -> bool:
    """Return True if the sealed batch with this crc, and no other, lies at `[position, end)`."""
    start = position + LENGTH_FROM
    return data[position:start] == _START.pack(MAGIC, end - start, crc) and zlib.crc32(data[start:end]) == crc


def check_all(data: bytes) -> list[BatchHeader]:
    """Return the headers of all batches in `data`, which must hold whole batches that chain to each other.

    The same bytes are checked several times on their way from a fetch to the log and to the state machine. The results for the
    last few small inputs are cached.
    """
    return list(_checked(data) if len(data) <= _REMEMBERED_BYTES else _check_all(data))


def _check_all(data: bytes) -> tuple[BatchHeader, ...]:
    headers: list[BatchHeader] = []
    position, size_bytes = 0, len(data)
    while position < size_bytes:
        header = check(data, position)
        if headers and header.previous_crc != headers[-1].crc:
            raise CorruptBatch(f"batch {header!r} does not follow {headers[-1]!r}: the chain is broken")
        headers.append(header)
        position += header.size_bytes
    return tuple(headers)


def headers_of(data: bytes) -> list[BatchHeader]:
    """Return the headers of whole batches that were checked before, or were made here. CorruptBatch if there are other bytes."""
    if len(data) <= _REMEMBERED_BYTES:
        return check_all(data)
    headers: list[BatchHeader] = []
    position = 0
    while position < len(data):
        headers.append(read_header(data, position))
        position += headers[-1].size_bytes
    if position != len(data):
        raise CorruptBatch(f"the last batch ends at {position}, beyond {len(data)} bytes")
    return headers


_REMEMBERED_BYTES = 16 * 1024
_checked = lru_cache(maxsize=128)(_check_all)


def decode(data: bytes | memoryview, position: int = 0) -> Batch:
    """Return the batch at `position`, checked as by `check`."""
    header = check(data, position)
    raw = bytes(data[position : position + header.size_bytes])
    return Batch(header, raw[HEADER_BYTES:], raw)


def decode_all(data: bytes) -> list[Batch]:
    """Return all batches in `data`, checked as by `check_all`."""
    batches: list[Batch] = []
    position = 0
    for header in check_all(data):
        raw = data[position : position + header.size_bytes]
        batches.append(Batch(header, raw[HEADER_BYTES:], raw))
        position += header.size_bytes
    return batches


class LeaderChange(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Control record, the first of an epoch: the leader, the voters, and the voters that granted their vote."""

    TYPE: ClassVar[int] = 2
    version: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class SnapshotHeader(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Control record, the first of a snapshot (KIP-630).

    `last_crc` is the crc of the log's batch that ends where the snapshot does, so that the chain continues after it.
    `append_time_ms` is that of the same batch.
    """

    TYPE: ClassVar[int] = 3
    version: int
    cluster_id: str
    generation: int
    last_crc: int
    append_time_ms: int


class SnapshotFooter(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Control record, the last of a snapshot.

    `digest` is the SHA-256 of every byte before this record's batch. `record_count` counts the data records.
    """

    TYPE: ClassVar[int] = 4
    version: int
    digest: bytes
    record_count: int


class KRaftVersion(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Control record: 0 = static voters, 1 = the voters are in the log (KIP-853)."""

    TYPE: ClassVar[int] = 5
    version: int
    kraft_version: int


class KRaftVoters(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Control record: the voter set from this offset on, committed or not (KIP-853)."""

    TYPE: ClassVar[int] = 6
    version: int
    voters: VoterSet


class ForcedStandalone(msgspec.Struct, frozen=True, array_like=True, tag=1000):
    """Control record: a lost majority was given up. From here on the node `voter` votes alone, in `generation`.

    `previous_voters` is the unreachable set. Everything below `high_watermark` was known as committed; `end_offset` is the end of
    the log that was kept.
    """

    TYPE: ClassVar[int] = 1000
    version: int
    generation: int
    voter: ReplicaKey
    previous_voters: VoterSet
    high_watermark: int
    end_offset: int
    time_ms: int


ControlRecord = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters | ForcedStandalone

_control_decoder = Decoder(list[ControlRecord])
_encoder = msgspec.msgpack.Encoder()


def encode_control(records: list[ControlRecord]) -> bytes:
    """Return the body of a control batch."""
    return _encoder.encode(records)


def decode_control(body: bytes) -> list[ControlRecord]:
    """Return the records of a control batch's body. CorruptBatch for a type or version that this node does not know."""
    try:
        records = _control_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise CorruptBatch(f"control batch cannot be read: {error}; was it written by a newer version?") from error
    for record in records:
        if record.version != 0:
            raise CorruptBatch(f"control record of type {record.TYPE} has version {record.version}; this node reads version 0")
    return records
