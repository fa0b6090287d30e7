"""Copying the current log of a replica into the future log of a move. These functions block: run them in a thread.

Each chunk begins with `align`, which makes the future log a prefix of the current one. Then the next batches are read and their
CRCs checked, about a mebibyte at a time, and that range of the file is copied by the kernel while its pages are still in the
processor's cache (`file_ranges.py`). The bytes that are copied are those that were checked: the log is pinned, and what is
written to a log is never written again in place. A batch whose CRC is wrong ends the chunk with an error before it is copied.

The future log gets the same batches with the same offsets and epochs, and makes its own segments and indexes of them.
"""

from __future__ import annotations

from ..log.errors import CorruptBatch, CorruptLog, OffsetOutOfRange, disk_errors
from ..log.file_ranges import FileRange
from ..log.partition_log import PartitionLog, Slice
from ..log.record_batch import check_crc
from ..replication.divergence import leader_answer, truncation_offset


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
    """Check and copy the batches of one place; return their bytes."""
    with disk_errors(current.log_dir), place.segment.file() as descriptor:
        try:
            for position, data, batches in place.segment.chunks(place.position, place.position + place.size_bytes):
                for at, header in batches:
                    check_crc(data, at - position, header, origin=position)
                headers = [header for _, header in batches]
                future.append_checked(FileRange(current.log_dir, descriptor, position, len(data)), headers)
        except CorruptBatch as error:
            raise CorruptLog(f"{place.segment.log_path} is damaged: {error}; its records are not copied") from error
    return place.size_bytes


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
