"""`.snapshot` files: the producers of a log as of an offset, in Kafka's format.

`<20-digit offset>.snapshot` holds the state after all batches below that offset::

    version i16 (1) | crc u32 (CRC-32C of the rest) | count i32 | entries of 46 bytes:
    producer_id i64 | epoch i16 | last_sequence i32 | last_offset i64 | offset_delta i32 | timestamp i64 | coordinator_epoch i32 |
    transaction_offset i64

Kafka writes one entry for each producer, its last batch. Here each of its known batches gets one, oldest first: Kafka's reader
keeps the last entry of a producer, and a restart here does not forget the others. Producers stand in the order of their last
appends.

A file is written when a segment is rolled, for the offset where the next one begins, and at a clean shutdown for the log's end.
Only the latter is made durable: after a crash the state is built from the newest valid file at or below the first segment that is
scanned, and from the headers after it (`rebuild`). A file that is missing, cut short or stale in its CRC costs reading more
headers. A log without any file, closed cleanly, has no producers. Files go with the segments below them; those above the log's
end go at once, before other records get there.
"""

from __future__ import annotations

import itertools
import logging
import os
import struct
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import google_crc32c

from kraftlab.common.clock import wall_clock_ms
from kraftlab.config.regular_files import remove_file
from kraftlab.records.errors import CorruptBatch

from .errors import CorruptFile
from .files import TABLE_MAX_BYTES, read_small
from .producer_state import NONE, Producer, ProducerState, StoredBatch
from .segment import Segment, base_offset_of, file_name

SUFFIX = ".snapshot"
VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")

logger = logging.getLogger(__name__)


def encode(state: ProducerState) -> bytes:
    """Return the content of a snapshot file."""
    no_batch = (StoredBatch(NONE, NONE, 0, NONE),)
    entries = [
        _ENTRY.pack(producer_id, known.epoch, *stored, known.coordinator_epoch, known.transaction_offset)
        for producer_id, known in state.producers.items()
        for stored in known.batches or no_batch
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(VERSION, google_crc32c.value(body)) + body


def decode(data: bytes, path: Path, offset: int, now_ms: int) -> ProducerState:
    """Return the state as of `offset` in a file of this module or of Kafka. CorruptFile.

    Producers count as if they had appended at `now_ms`.
    """
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptFile(path, f"{len(data)} bytes are too few for a snapshot of producers")
    version, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if version != VERSION:
        raise CorruptFile(path, f"version {version}; expected {VERSION}")
    if google_crc32c.value(body) != crc:
        raise CorruptFile(path, "its CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptFile(path, f"{len(body)} bytes do not hold {count} entries")
    producers: dict[int, Producer] = {}
    for key, group in itertools.groupby(_ENTRY.iter_unpack(body[_COUNT.size :]), key=lambda entry: entry[:2]):
        entries = list(group)
        producer_id, epoch = key
        stored = tuple(StoredBatch(*entry[2:6]) for entry in entries if entry[2] != NONE)
        *_, coordinator_epoch, transaction_offset = entries[-1]
        last_offset = stored[-1].last_offset if stored else offset - 1
        producers.pop(producer_id, None)
        producers[producer_id] = Producer(epoch, stored, NONE, last_offset, transaction_offset, coordinator_epoch, now_ms)
    return ProducerState(producers)


def write(directory: Path, offset: int, state: ProducerState) -> None:
    """Write the snapshot as of `offset`. Not durable. OSError."""
    descriptor = os.open(_path(directory, offset), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        data = memoryview(encode(state))
        position = 0
        while position < len(data):
            position += os.pwrite(descriptor, data[position:], position)
    finally:
        os.close(descriptor)


def offsets(directory: Path) -> list[int]:
    """Return the offsets of the snapshots in `directory`, ascending. OSError."""
    names = (name for name in os.listdir(directory) if name.endswith(SUFFIX))
    return sorted(offset for name in names if (offset := base_offset_of(name)) is not None and name == file_name(offset, SUFFIX))


def remove_outside(directory: Path, first: int, last: int) -> bool:
    """Remove the snapshots below `first` and above `last`; True if there were any. OSError."""
    outside = [offset for offset in offsets(directory) if not first <= offset <= last]
    for offset in outside:
        remove_file(_path(directory, offset))
    return bool(outside)


def truncated(directory: Path, state: ProducerState, segments: Sequence[Segment], end_offset: int) -> tuple[ProducerState, bool]:
    """Return the state after a truncation to `end_offset`, and True if snapshots above were removed. OSError."""
    has_removed = remove_outside(directory, 0, end_offset)
    return state if state.truncate(end_offset) else rebuild(directory, segments, end_offset), has_removed


def write_last(directory: Path, offset: int, state: ProducerState) -> bool:
    """Write the snapshot for the next start; False if there are no producers and no older snapshots. Not durable. OSError."""
    if not state and not offsets(directory):
        return False
    write(directory, offset, state)
    return True


def rebuild(directory: Path, segments: Sequence[Segment], end_offset: int) -> ProducerState:
    """Return the state as of `end_offset`, from the newest valid snapshot and the headers after it. OSError.

    Headers that cannot be read are left out: the next reader of those records finds the damage.
    """
    now_ms = wall_clock_ms()
    state, start = ProducerState(), 0
    for offset in reversed(offsets(directory)):
        if offset > end_offset:
            continue
        path = _path(directory, offset)
        try:
            state, start = decode(read_small(path, TABLE_MAX_BYTES), path, offset, now_ms), offset
            break
        except CorruptFile as error:
            logger.warning("a snapshot of producers is ignored: %s", error)
            remove_file(path)
    for segment, following in zip_longest(segments, segments[1:]):
        begins_next = end_offset if following is None else following.base_offset
        if begins_next > start and segment.base_offset < end_offset:
            try:
                _take_in(state, segment, start, end_offset, now_ms)
            except CorruptBatch as error:
                logger.warning("%s: not all producers are known: %s", segment.log_path, error)
    return state


def _take_in(state: ProducerState, segment: Segment, start: int, end_offset: int, now_ms: int) -> None:
    """Note the batches of a segment from `start` up to `end_offset`."""
    found = segment.locate(start) if segment.base_offset < start else (0, None)
    if found is None:
        return
    for _, header in segment.headers(found[0]):
        if header.base_offset >= end_offset:
            return
        if header.base_offset >= start:
            state.update(header, now_ms)


def _path(directory: Path, offset: int) -> Path:
    return directory / file_name(offset, SUFFIX)
