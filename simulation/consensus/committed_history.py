"""The committed log, as checkers know it: the batches that nodes have reported committed, as one sequence."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from kraftlab.quorum.core.types import OffsetAndEpoch


class CommittedHistory:
    """Ends, crcs and epochs of batches, and the epoch of the leader that first reported each end.

    Equal crcs at equal offsets mean equal prefixes. `digests` are the digests of state machines by offset.
    """

    def __init__(self) -> None:
        self.ends = array("q", [0])
        self.crcs = array("I", [0])
        self.epochs = array("q", [0])
        self.commit_epochs = array("q", [0])
        self.digests: dict[int, int] = {}

    @property
    def end_offset(self) -> int:
        return self.ends[-1]

    def crc_at(self, offset: int) -> int | None:
        position = bisect_left(self.ends, offset)
        return self.crcs[position] if position < len(self.ends) and self.ends[position] == offset else None

    def is_position(self, position: OffsetAndEpoch) -> bool:
        """Return True if a committed batch of that epoch ends there."""
        place = bisect_left(self.ends, position.offset)
        return place < len(self.ends) and (self.ends[place], self.epochs[place]) == position

    def extend(self, end_offset: int, crc: int, epoch: int, commit_epoch: int) -> None:
        """Add a batch of `epoch` that the leader of `commit_epoch` has reported committed."""
        self.ends.append(end_offset)
        self.crcs.append(crc)
        self.epochs.append(epoch)
        self.commit_epochs.append(commit_epoch)

    def end_before_epoch(self, epoch: int) -> int:
        """Return the end offset of the log that leaders of epochs below `epoch` have committed."""
        position = len(self.ends) - 1
        while position > 0 and self.commit_epochs[position] >= epoch:
            position -= 1
        return self.ends[position]
