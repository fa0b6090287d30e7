"""The log that is certainly on a disk: the batches that would survive a power cut now."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from kraftlab.quorum.core.batch import BatchHeader
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage.metadata_log import FlushWork


class DurableLog:
    """Ends, epochs and crcs of the batches after `start`, the end of a snapshot (0@0: there is no snapshot).

    Cleaning does not move `start`: batches that a snapshot has replaced still count as held.
    """

    __slots__ = ("crcs", "ends", "epochs", "start", "start_crc")

    def __init__(self, start: OffsetAndEpoch = OffsetAndEpoch(0, 0), start_crc: int = 0) -> None:
        self.start = start
        self.start_crc = start_crc
        self.ends = array("q")
        self.crcs = array("I")
        self.epochs = array("q")

    @property
    def end_offset(self) -> int:
        return self.ends[-1] if self.ends else self.start.offset

    @property
    def last_position(self) -> tuple[int, int]:
        """Epoch and end offset, by which elections compare logs."""
        return (self.epochs[-1], self.ends[-1]) if self.ends else (self.start.epoch, self.start.offset)

    def cut(self, offset: int) -> None:
        if not self.ends or self.ends[-1] <= offset:
            return
        keep = bisect_left(self.ends, offset + 1)
        del self.ends[keep:]
        del self.crcs[keep:]
        del self.epochs[keep:]

    def reset(self, start: OffsetAndEpoch, start_crc: int) -> None:
        """Replace the log by a snapshot."""
        self.start, self.start_crc = start, start_crc
        del self.ends[:], self.crcs[:], self.epochs[:]

    def extend(self, headers: Iterable[BatchHeader]) -> None:
        headers = list(headers)
        self.ends.extend([header.base_offset + header.record_count for header in headers])
        self.epochs.extend([header.epoch for header in headers])
        self.crcs.extend([header.crc for header in headers])

    def flushed(self, taken: FlushWork, crc_of: Callable[[int], int | None]) -> None:
        """Add the batches of a flush that has ended. `crc_of` returns the crc of the chain at a committed offset."""
        if taken.install is not None:
            self.reset(taken.install, crc_of(taken.install.offset) or 0)
        self.cut(taken.cut_offset)
        batches = taken.batches
        if not batches:
            return
        for _, _, _, epoch, crc in batches:
            self.epochs.append(epoch)
            self.crcs.append(crc)
        for batch in batches[1:]:
            self.ends.append(batch[1])
        self.ends.append(taken.end_offset)

    def crc_at(self, offset: int) -> int | None:
        """Return the crc of the batch that ends at `offset`; None if no batch does."""
        return self._at(offset, self.crcs, self.start_crc)

    def epoch_at_end(self, offset: int) -> int | None:
        """Return the epoch of the batch that ends at `offset`; None if no batch does."""
        return self._at(offset, self.epochs, self.start.epoch)

    def _at(self, offset: int, values: array[int], at_start: int) -> int | None:
        ends = self.ends
        if ends and ends[-1] == offset:
            return values[-1]
        if offset == self.start.offset > 0:
            return at_start
        position = bisect_left(ends, offset)
        return values[position] if position < len(ends) and ends[position] == offset else None

    def holds(self, offset: int, crc: int | None) -> bool:
        """Return True if this log, or the snapshot it starts at, holds the committed batch with this end and crc."""
        return offset < self.start.offset or self.crc_at(offset) == crc

    def crcs_after(self, offset: int) -> array[int]:
        """Return the crcs of the batches that end above `offset`."""
        return self.crcs[bisect_right(self.ends, offset) :]
