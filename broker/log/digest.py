"""Digests of logs: equal digests mean equal batches, under any leaders and any segmentation.

The digest runs over the batches' bytes in order, with the leader-epoch field zeroed: the leader of another cluster stamps another
epoch on the same data.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from typing import Protocol

import google_crc32c
import msgspec

from kraftlab.records.record_batch import mask_epochs

from .log_view import LogView
from .segment import Batches


class LogDigest(msgspec.Struct, frozen=True):
    """Checksums over the masked bytes; counts from the headers. `records` includes `control_records` (attribute bit 5)."""

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


class RangeDigest:
    """A digest of the whole batches within [`start_offset`, `end_offset`), made piece by piece."""

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self._start_offset, self._end_offset = start_offset, end_offset
        self._crc32c, self._sha256 = 0, hashlib.sha256()
        self._size_bytes = self._batches = self._records = self._control_records = 0
        self._first = self._end = -1

    def take(self, origin: int, data: bytes, batches: Batches) -> None:
        """Add the next batches, which lie in `data`; `origin` is the position of `data` in their file."""
        start_offset, end_offset = self._start_offset, self._end_offset
        chosen = [pair for pair in batches if pair[1].base_offset >= start_offset and pair[1].end_offset <= end_offset]
        if not chosen:
            return
        at, last = chosen[0][0], chosen[-1]
        masked = bytearray(data[at - origin : last[0] + last[1].size_bytes - origin])
        mask_epochs(masked, ((position - at, header) for position, header in chosen))
        counted = bytes(masked)
        self._crc32c = google_crc32c.extend(self._crc32c, counted)
        self._sha256.update(counted)
        self._size_bytes += len(counted)
        self._batches += len(chosen)
        self._records += sum(header.record_count for _, header in chosen)
        self._control_records += sum(header.record_count for _, header in chosen if header.is_control)
        self._first = chosen[0][1].base_offset if self._first < 0 else self._first
        self._end = last[1].end_offset

    def finish(self) -> LogDigest:
        return LogDigest(
            self._crc32c,
            self._sha256.digest(),
            self._size_bytes,
            self._batches,
            self._records,
            self._control_records,
            self._first,
            self._end,
        )


class DigestibleLog(Protocol):
    """The part of a log that a digest needs."""

    @property
    def cuts(self) -> int: ...
    def pinned(self) -> AbstractContextManager[LogView]: ...
    def reading(self) -> AbstractContextManager[None]: ...


def digest_of(log: DigestibleLog, end_offset: int | None) -> LogDigest:
    """Digest of the whole batches from the log start to `end_offset` (None: log end), as they were at one time.

    The log is pinned for each piece alone, so that a truncation does not wait for the whole digest. A truncation of batches that
    were digested, or are still to come, restarts it.
    """
    while True:
        digest = _digest_of_one_time(log, end_offset)
        if digest is not None:
            return digest


def _digest_of_one_time(log: DigestibleLog, end_offset: int | None) -> LogDigest | None:
    with log.pinned() as view:
        cuts, offset = log.cuts, view.log_start_offset
        end = view.log_end_offset if end_offset is None else end_offset
    digesting = RangeDigest(offset, end)
    while offset < end:
        with log.pinned() as view, log.reading():
            if log.cuts != cuts or view.log_start_offset > offset:
                return None
            piece = view.batches_from(offset)
        if piece is None:
            break
        digesting.take(*piece)
        offset = piece[2][-1][1].end_offset
    return digesting.finish()
