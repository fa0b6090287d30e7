"""The first offset of each epoch, to find the point where two logs diverge.

Theory of operation. The epochs of a log never fall. For a comparison, a short ascending list of (epoch, first offset) describes
the log completely. An epoch ends where the next one begins; the last one ends at the log's end. A follower sends the epoch of its
last record. The leader answers with its own largest epoch that is not larger, and the end of that epoch. Two logs that both hold
an epoch hold the same records in it up to the shorter end, because one leader wrote them (KIP-595).

A log whose beginning was cleaned away knows only the epochs after its start. For older epochs the index returns None, and the
log's start is the only possible answer.

The index does not check that records exist. It only refuses entries that can never be true.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from kraftlab.common.errors import InvariantViolation

from .types import OffsetAndEpoch


class EpochIndex:
    """Ascending epochs with the offset of their first record."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs = array("q")
        self._starts = array("q")

    @property
    def last_epoch(self) -> int:
        """The newest epoch; 0 if the index is empty."""
        return self._epochs[-1] if self._epochs else 0

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`. Do nothing if it is the newest epoch already."""
        if self._epochs:
            if epoch == self._epochs[-1]:
                return
            if epoch < self._epochs[-1] or start_offset <= self._starts[-1]:
                raise InvariantViolation(f"epoch {epoch} cannot begin at {start_offset} after {self!r}")
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def truncate(self, to_offset: int) -> None:
        """Forget the epochs that begin at or above `to_offset`."""
        keep = bisect_left(self._starts, to_offset)
        del self._epochs[keep:]
        del self._starts[keep:]

    def clean(self, start_offset: int, log_end_offset: int) -> None:
        """Forget everything below `start_offset`. Epochs that end there or before go; one that continues begins there now."""
        is_empty = start_offset >= log_end_offset
        drop = len(self._starts) if is_empty else max(0, bisect_right(self._starts, start_offset) - 1)
        del self._epochs[:drop]
        del self._starts[:drop]
        if self._starts:
            self._starts[0] = max(self._starts[0], start_offset)

    def end_of(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """Return the largest epoch <= `epoch` and its end offset; None if every epoch is larger."""
        position = bisect_right(self._epochs, epoch)
        if position == 0:
            return None
        end = self._starts[position] if position < len(self._starts) else log_end_offset
        return OffsetAndEpoch(end, self._epochs[position - 1])

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`; 0 before the first epoch."""
        position = bisect_right(self._starts, offset)
        return self._epochs[position - 1] if position else 0

    def __len__(self) -> int:
        return len(self._epochs)

    def __repr__(self) -> str:
        return "epochs[" + " ".join(f"{e}:{s}" for e, s in zip(self._epochs, self._starts, strict=True)) + "]"
