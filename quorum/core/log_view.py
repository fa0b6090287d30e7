"""The log in memory, as consensus needs it: the ends of batches, their crcs, and the starts of epochs.

Theory of operation. The bytes are in storage. This view holds twelve bytes per batch (end offset and crc) and the epoch index. It
changes in the same step that requests storage to append, truncate, clean or replace the log, so it is always *ahead* of the disk;
`FlushTracker` knows the durable part. With the crc at a boundary the leader chains its next batch, and a follower checks the
batches that it was sent: equal crcs at equal offsets mean equal prefixes.

A log need not start at 0: a snapshot can precede it (KIP-630). `start` is that snapshot's id, with the crc of the chain there.
`clean` moves the start up to a later snapshot and keeps the rest. `reset` forgets everything: the log is empty after a snapshot
from another node. An append that does not begin at the end, or a truncation or cleaning that does not end at a batch boundary, is
a bug of ours and raises InvariantViolation.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from kraftlab.common.errors import InvariantViolation

from .batch import NO_PREVIOUS_CRC, BatchHeader
from .epoch_index import EpochIndex
from .types import OffsetAndEpoch


class LogView:
    """The log `[start_offset, end_offset)`. `start` is the id of the snapshot that precedes it, 0@0 without one."""

    __slots__ = (
        "_crcs",
        "_ends",
        "_epochs",
        "_start_crc",
        "end_offset",
        "high_watermark_stamp",
        "last_crc",
        "last_epoch",
        "start",
    )

    def __init__(self, start: OffsetAndEpoch = OffsetAndEpoch(0, 0), start_crc: int = NO_PREVIOUS_CRC) -> None:
        self.start = start
        self.high_watermark_stamp = 0
        """The largest high watermark in a batch header, or proven by a snapshot: everything below it was committed then."""
        self._start_crc = start_crc
        self.end_offset = start.offset
        self.last_epoch = start.epoch
        """The epoch of the last record, or of what precedes an empty log."""
        self.last_crc = start_crc
        """The crc of the last batch, the `previous_crc` of the next one."""
        self._ends = array("q")
        self._crcs = array("I")
        self._epochs = EpochIndex()

    @classmethod
    def from_headers(
        cls, headers: Iterable[BatchHeader], start: OffsetAndEpoch = OffsetAndEpoch(0, 0), start_crc: int = NO_PREVIOUS_CRC
    ) -> LogView:
        """Return the view of a recovered log. The headers must follow `start`, and each other, without gaps."""
        view = cls(start, start_crc)
        view.extend(headers)
        return view

    @property
    def start_offset(self) -> int:
        return self.start.offset

    @property
    def committed_offset(self) -> int:
        """Everything below was committed, by this log alone: the part that a snapshot replaced, and the part below the stamps."""
        return max(self.start.offset, min(self.high_watermark_stamp, self.end_offset))

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def append(self, header: BatchHeader) -> None:
        """Add one batch at the end."""
        self.extend((header,))

    def extend(self, headers: Iterable[BatchHeader]) -> None:
        """Add batches at the end."""
        ends, crcs = self._ends, self._crcs
        end_offset, last_epoch, last_crc = self.end_offset, self.last_epoch, self.last_crc
        for header in headers:
            offset, epoch, stamp = header.base_offset, header.epoch, header.high_watermark
            if offset != end_offset or epoch < last_epoch or header.previous_crc != last_crc:
                raise InvariantViolation(f"batch {header!r} does not continue {self!r}")
            if epoch != last_epoch or not ends:
                self._epochs.assign(epoch, offset)
                last_epoch = epoch
            end_offset = offset + header.record_count
            last_crc = header.crc
            ends.append(end_offset)
            crcs.append(last_crc)
            if stamp > self.high_watermark_stamp:
                self.high_watermark_stamp = max(self.high_watermark_stamp, min(stamp, offset))
        self.end_offset, self.last_epoch, self.last_crc = end_offset, last_epoch, last_crc

    def truncate(self, to_offset: int) -> None:
        """Forget every batch at or above `to_offset`, which must be a batch boundary."""
        if not self.is_boundary(to_offset):
            raise InvariantViolation(f"{to_offset} is not a batch boundary of {self!r}")
        keep = bisect_left(self._ends, to_offset + 1)
        del self._ends[keep:]
        del self._crcs[keep:]
        self._epochs.truncate(to_offset)
        self.end_offset = to_offset
        self.last_epoch = self._epochs.last_epoch if self._ends else self.start.epoch
        self.last_crc = self._crcs[-1] if self._crcs else self._start_crc

    def clean(self, start: OffsetAndEpoch) -> None:
        """Forget every batch below `start`, a position of this log. The rest does not change."""
        if not self.holds(start):
            raise InvariantViolation(f"{self!r} cannot start at {start}, which is not a position of it")
        self._start_crc = self.crc_at(start.offset)
        self.start = start
        drop = bisect_left(self._ends, start.offset + 1)
        del self._ends[:drop]
        del self._crcs[:drop]
        self._epochs.clean(start.offset, self.end_offset)

    def reset(self, start: OffsetAndEpoch, start_crc: int) -> None:
        """Forget everything. The log is empty and starts at `start`, where the chain of crcs is at `start_crc`."""
        self.start = start
        self._start_crc = start_crc
        self.end_offset = start.offset
        self.last_epoch = start.epoch
        self.last_crc = start_crc
        self._ends = array("q")
        self._crcs = array("I")
        self._epochs = EpochIndex()

    def position_at(self, offset: int) -> OffsetAndEpoch | None:
        """Return the position of the batch boundary at `offset`; None if the log has none there."""
        if offset == self.start.offset:
            return self.start
        if not self.start.offset < offset <= self.end_offset or not self.is_boundary(offset):
            return None
        return OffsetAndEpoch(offset, self._epochs.epoch_at(offset - 1))

    def holds(self, position: OffsetAndEpoch) -> bool:
        """Return True if `position` is a batch boundary of this log (its start included), with the same epoch before it."""
        return self.position_at(position.offset) == position

    def is_boundary(self, offset: int) -> bool:
        """Return True if a batch ends (or the log starts) exactly at `offset`."""
        if offset == self.end_offset or offset == self.start.offset:
            return True
        position = bisect_left(self._ends, offset)
        return position < len(self._ends) and self._ends[position] == offset

    def crc_at(self, offset: int) -> int:
        """Return the crc of the batch that ends at `offset`; at the log's start, the crc before it. KeyError: not a boundary."""
        if offset == self.end_offset:
            return self.last_crc
        if offset == self.start.offset:
            return self._start_crc
        position = bisect_left(self._ends, offset)
        if position == len(self._ends) or self._ends[position] != offset:
            raise KeyError(f"{offset} is not a batch boundary of {self!r}")
        return self._crcs[position]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, which must be inside the log."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch <= `epoch` and its end; the log's start if all its epochs are larger (KIP-595)."""
        return self._epochs.end_of(epoch, self.end_offset) or self.start

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._ends)

    def __repr__(self) -> str:
        return f"log[{self.start.offset}..{self.end_offset}@{self.last_epoch}]"
