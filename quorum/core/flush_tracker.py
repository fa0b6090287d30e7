"""The durable part of the log on this node, derived from completion numbers alone.

Theory of operation. Appends, truncations and installed snapshots go to storage in one FIFO stream. Each takes the next
`append_id`; ids are never reused. Storage reports "everything up to id n is durable". For each pending operation the tracker
keeps the offset up to which the log is durable once that operation is. A truncation lowers that offset for itself *and for every
older pending operation*: when an append completes after its tail was cut off, only the remaining part may count (the ABA case:
other records can be at the same offsets by then). A snapshot that replaces the log is both. Of the old log only the committed
part counts, which the snapshot holds as well. Once the snapshot is installed, everything below its end is durable.
"""

from __future__ import annotations

from collections import deque

from kraftlab.common.errors import InvariantViolation


class FlushTracker:
    """Everything below `durable_end_offset`, as the log reads now, is on this node's disk."""

    __slots__ = ("_pending", "completed_id", "durable_end_offset", "last_id")

    def __init__(self, durable_end_offset: int) -> None:
        self.durable_end_offset = durable_end_offset
        self.last_id = 0
        """The newest id that was assigned."""
        self.completed_id = 0
        self._pending: deque[tuple[int, int]] = deque()

    def appended(self, end_offset: int) -> int:
        """Return the id of an append up to `end_offset`, which goes to storage."""
        self.last_id += 1
        self._pending.append((self.last_id, end_offset))
        return self.last_id

    def truncated(self, to_offset: int) -> int:
        """Return the id of a truncation, which goes to storage. The removed part stops counting at once, durable or not."""
        self.last_id += 1
        self._pending = deque((append_id, min(end, to_offset)) for append_id, end in self._pending)
        self._pending.append((self.last_id, to_offset))
        self.durable_end_offset = min(self.durable_end_offset, to_offset)
        return self.last_id

    def installed(self, end_offset: int, committed_offset: int) -> int:
        """Return the id of an installation.

        A snapshot up to `end_offset` replaces the log, which is committed below `committed_offset`.
        """
        append_id = self.truncated(committed_offset)
        self._pending[-1] = (append_id, end_offset)
        return append_id

    def completed(self, append_id: int) -> bool:
        """Note that everything up to `append_id` is durable. Return True if the durable end has risen."""
        if append_id > self.last_id:
            raise InvariantViolation(f"storage completed operation {append_id}, but the newest is {self.last_id}")
        before = self.durable_end_offset
        while self._pending and self._pending[0][0] <= append_id:
            self.completed_id, end = self._pending.popleft()
            if end > self.durable_end_offset:
                self.durable_end_offset = end
        return self.durable_end_offset > before

    def __repr__(self) -> str:
        return f"durable={self.durable_end_offset} a{self.completed_id}/{self.last_id}"
