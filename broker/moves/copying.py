"""Copying the current log of a replica into the future log of a move. These functions block: run them in a thread.

Each chunk begins with `align`, which makes the future log a prefix of the current one. Then the next batches are read and their
CRCs checked, and that range of the file is copied by the kernel (`file_ranges.py`), while a second thread reads and checks the
next one. The bytes that are copied are those that were checked: the log is pinned, and what is written to a log is never written
again in place. A batch whose CRC is wrong ends the chunk with an error before it is copied.

The future log gets the same batches with the same offsets and epochs, and makes its own segments and indexes of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import HEADER_BYTES, BatchHeader, check_crc, read_header

from ..log.errors import CorruptLog, OffsetOutOfRange, disk_errors
from ..log.file_ranges import FileRange
from ..log.log_view import Slice
from ..log.partition_log import PartitionLog
from ..replication.divergence import leader_answer, truncation_offset

READ_BYTES = 1024 * 1024
RANGE_BYTES = 4 * READ_BYTES
"""Bytes that are checked, about a mebibyte at a time, and then copied in one call."""
LARGE_BATCH_BYTES = 16 * 1024
"""Mean size of batches from which on a second thread helps: reads and CRCs need no interpreter, decoding many headers does."""


def copy_chunk(current: PartitionLog, future: PartitionLog, max_bytes: int) -> tuple[int, int]:
    """Make `future` a prefix of `current` and append the next batches: (bytes copied, bytes still to come).

    At most `max_bytes`, but at least one batch. LogError of either log; what was copied before it stays.
    """
    align(current, future)
    copied = 0
    if future.log_end_offset < current.log_end_offset:
        try:
            with current.slices(future.log_end_offset, max_bytes) as places:
                for place in places:
                    copied += _copy(current, future, place)
        except OffsetOutOfRange:
            # A fetch has just advanced the start of the current log.
            align(current, future)
    future.high_watermark = min(current.high_watermark, future.log_end_offset)
    if future.log_end_offset < current.log_end_offset:
        return copied, current.bytes_from(future.log_end_offset)
    if future.latest_epoch != current.latest_epoch:
        # The latest epoch has no record yet.
        future.start_epoch(current.latest_epoch)
    return copied, 0


def _copy(current: PartitionLog, future: PartitionLog, place: Slice) -> int:
    """Check and copy the batches of one place; return their bytes. A second thread checks the next range meanwhile."""
    end = place.position + place.size_bytes
    with disk_errors(current.log_dir), place.segment.file() as descriptor, ThreadPoolExecutor(1, "check") as second:
        ranges = _ranges(descriptor, place.position, end)
        try:
            found = next(ranges, None)
            while found is not None:
                position, size_bytes, headers = found
                is_worth_a_thread = position + size_bytes < end and size_bytes >= len(headers) * LARGE_BATCH_BYTES
                ahead = second.submit(next, ranges, None) if is_worth_a_thread else None
                future.append_checked(FileRange(current.log_dir, descriptor, position, size_bytes), headers)
                found = next(ranges, None) if ahead is None else ahead.result()
        except CorruptBatch as error:
            raise CorruptLog(f"{place.segment.log_path} is damaged: {error}; its records are not copied") from error
    return place.size_bytes


def _ranges(descriptor: int, position: int, end: int) -> Iterator[tuple[int, int, list[BatchHeader]]]:
    """Yield (position, bytes, headers) of checked ranges of a few mebibytes. CorruptBatch, OSError."""
    size_bytes = 0
    headers: list[BatchHeader] = []
    for run, run_bytes in checked(descriptor, position, end):
        headers += run
        size_bytes += run_bytes
        if size_bytes >= RANGE_BYTES or position + size_bytes == end:
            yield position, size_bytes, headers
            position, size_bytes, headers = position + size_bytes, 0, []


def checked(descriptor: int, position: int, end: int) -> Iterator[tuple[list[BatchHeader], int]]:
    """Yield (headers, bytes) of runs of whole batches between two positions of a file, about a mebibyte each, after a
    check of their CRCs. CorruptBatch, OSError.

    One buffer serves all reads, and no byte is read twice: the beginning of a batch that was read in part is kept.
    """
    buffer, held = bytearray(min(READ_BYTES, end - position)), 0
    while position < end:
        limit = min(len(buffer), end - position)
        read = os.preadv(descriptor, [memoryview(buffer)[held:limit]], position + held)
        if not read:
            raise CorruptBatch(position, f"the file ends {end - position - held} bytes before the last batch")
        held += read
        headers, used = _whole_batches(memoryview(buffer)[:held], position)
        if headers:
            yield headers, used
            buffer[: held - used] = buffer[used:held]
            position, held = position + used, held - used
        elif held == limit:
            size_bytes = read_header(buffer, origin=position).size_bytes
            if position + size_bytes > end:
                raise CorruptBatch(position, f"cut short: {end - position} of {size_bytes} bytes")
            buffer.extend(bytes(size_bytes - len(buffer)))


def _whole_batches(data: memoryview, origin: int) -> tuple[list[BatchHeader], int]:
    """Return (headers, bytes) of the whole batches at the beginning of `data`. CorruptBatch if a CRC is wrong."""
    headers: list[BatchHeader] = []
    used = 0
    while len(data) - used >= HEADER_BYTES:
        header = read_header(data, used, origin=origin)
        if used + header.size_bytes > len(data):
            break
        check_crc(data, used, header, origin=origin)
        headers.append(header)
        used += header.size_bytes
    return headers, used


def align(current: PartitionLog, future: PartitionLog) -> None:
    """Truncate `future` where it differs from `current`, by leader epochs and by both ends of the log."""
    if future.log_end_offset < current.log_start_offset:
        future.truncate_fully_and_start_at(current.log_start_offset)
    while True:
        end, epoch = future.log_end_offset, future.latest_epoch
        diverging = leader_answer(end, epoch, current.log_end_offset, current.latest_epoch, current.end_offset_for)
        if diverging is not None:
            future.truncate_to(truncation_offset(diverging, end, future.end_offset_for))
        elif end > current.log_end_offset:
            future.truncate_to(current.log_end_offset)
        if (future.log_end_offset, future.latest_epoch) == (end, epoch):
            break
    if future.log_start_offset < current.log_start_offset <= future.log_end_offset:
        future.advance_log_start(current.log_start_offset)
