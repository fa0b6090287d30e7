"""What a log holds, in a few numbers: equal digests mean equal batches, whoever led when they were written and however segments
are cut.

The digest runs over the batches' bytes in order with the leader-epoch field zeroed: another cluster's leader stamps another epoch
on the same data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import google_crc32c
import msgspec

from .record_batch import mask_epochs
from .segment import Segment


class LogDigest(msgspec.Struct, frozen=True):
    """`crc32c` and `sha256` over the masked bytes; counts from the headers. `records` includes `control_records` (attribute bit
    5).
    """

    crc32c: int
    sha256: bytes
    size_bytes: int
    batches: int
    records: int
    control_records: int
    first_offset: int
    """Base offset of the first batch, -1 if there is none."""
    end_offset: int
    """Offset after the last batch, -1 if there is none."""


def digest_of(pieces: Iterable[tuple[Segment, int]], start_offset: int, end_offset: int) -> LogDigest:
    """Digest of the whole batches within [`start_offset`, `end_offset`), over (segment, bytes that count) in order."""
    crc32c, sha256 = 0, hashlib.sha256()
    size_bytes = batch_count = records = control_records = 0
    first, end = -1, -1
    for segment, segment_bytes in pieces:
        if segment.base_offset >= end_offset:
            break
        for origin, data, batches in segment.chunks(0, segment_bytes):
            chosen = [pair for pair in batches if pair[1].base_offset >= start_offset and pair[1].end_offset <= end_offset]
            if not chosen:
                continue
            at, last = chosen[0][0], chosen[-1]
            masked = bytearray(data[at - origin : last[0] + last[1].size_bytes - origin])
            mask_epochs(masked, ((position - at, header) for position, header in chosen))
            counted = bytes(masked)
            crc32c = google_crc32c.extend(crc32c, counted)
            sha256.update(counted)
            size_bytes += len(counted)
            batch_count += len(chosen)
            records += sum(header.record_count for _, header in chosen)
            control_records += sum(header.record_count for _, header in chosen if header.is_control)
            first = chosen[0][1].base_offset if first < 0 else first
            end = last[1].end_offset
    return LogDigest(crc32c, sha256.digest(), size_bytes, batch_count, records, control_records, first, end)
