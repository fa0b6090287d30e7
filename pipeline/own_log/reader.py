"""Reads a segment or snapshot of our own metadata log, batch by batch, in the shapes of `kraft_log`.

A segment begins with a header page, a snapshot with its first batch. Sound batches are `Batch`es with their records, everything
else is a `Damage`; header page, batches and damages together cover the file. Zeros after the last batch are the preallocated rest
of a segment: a `Damage` of status `unwritten`, which is not a fault. A batch that is cut short there is `torn`, and so is a
snapshot without its footer.

Not checked: that batches chain to each other (`previous_crc`), and a snapshot's digest. A node checks both before it uses the
file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kraftlab.quorum.core.batch import HEADER_BYTES

from ..framing import UNWRITTEN, Frame, ReadAt, walk
from ..kraft_log.batches import Batch, Damage, up_to_footer
from .frames import FORMAT, open_segment
from .records import decode_body

SNAPSHOT_SUFFIX = ".checkpoint"


def read_file(path: Path) -> Iterator[Batch | Damage]:
    """Yield everything in a file, in order, up to its length at the time of opening. OSError."""
    with path.open("rb", buffering=0) as file:

        def read(position: int, size: int) -> bytes:
            return os.pread(file.fileno(), size, position)

        size_bytes, is_snapshot = os.fstat(file.fileno()).st_size, path.suffix == SNAPSHOT_SUFFIX
        frames = read_frames(read, size_bytes, is_snapshot=is_snapshot)
        entries = (decode_frame(entry) if isinstance(entry, Frame) else entry for entry in frames)
        yield from up_to_footer(entries, size_bytes, UNWRITTEN) if is_snapshot else entries


def read_frames(read: ReadAt, size_bytes: int, *, is_snapshot: bool) -> Iterator[Frame | Damage]:
    """Yield the same without decoding."""
    start = 0
    if not is_snapshot and size_bytes:
        opening = open_segment(read, size_bytes)
        if opening.damage is not None:
            yield opening.damage
        start = opening.batches_at
    yield from walk(read, size_bytes, FORMAT, start=start)


def decode_frame(frame: Frame) -> Batch:
    """Decode a frame's records."""
    return Batch(
        frame.base_offset,
        frame.last_offset,
        frame.record_count,
        frame.leader_epoch,
        frame.is_control,
        frame.position,
        frame.append_ms,
        frame.size_bytes,
        frame.crc,
        decode_body(frame.data[HEADER_BYTES:], frame.base_offset, frame.record_count, frame.append_ms, frame.is_control),
    )
