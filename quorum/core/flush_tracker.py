"""Which part of the log is durable on this node, told only by completion numbers.

Theory of operation. Appends, truncations and installed snapshots go to storage in one FIFO stream, and each takes the next
`append_id`; ids are never reused. Storage answers "everything up to id n is durable". For each pending operation the tracker
remembers how far the log is durable once that operation is. A truncation lowers that promise for itself *and for every older
pending operation*: when the completion of an append arrives after its tail was cut off, only the part that still stands may
count (the ABA case: the same offsets may be occupied by other records by then). A snapshot that replaces the log is both:
nothing of the old log counts but what is committed, which the snapshot holds as well, and once it is there everything below
its end is durable.
"""

from __future__ import annotations

from collections import deque

from .errors import InvariantViolation


class FlushTracker:
    """`durable_end_offset`: everything below it, as the log reads now, is on this node's disk."""

    __slots__ = ("_pending", "completed_id", "durable_end_offset", "last_id")

    def __init__(self, durable_end_offset: int) -> None:
        self.durable_end_offset = durable_end_offset
        self.last_id = 0
        """The newest id given out."""
        self.completed_id = 0
        self._pending: deque[tuple[int, int]] = deque()

    def appended(self, end_offset: int) -> int:
        """An append up to `end_offset` goes to storage: its id."""
        self.last_id += 1
        self._pending.append((self.last_id, end_offset))
        return self.last_id

    def truncated(self, to_offset: int) -> int:
        """A truncation goes to storage: its id. What it drops stops counting at once, durable or on its way."""
        self.last_id += 1
        self._pending = deque((append_id, min(end, to_offset)) for append_id, end in self._pending)
        self._pending.append((self.last_id, to_offset))
        self.durable_end_offset = min(self.durable_end_offset, to_offset)
        return self.last_id

    def installed(self, end_offset: int, committed_offset: int) -> int:
        """A snapshot up to `end_offset` replaces the log, which is committed below `committed_offset`: the installation's id."""
        append_id = self.truncated(committed_offset)
        self._pending[-1] = (append_id, end_offset)
        return append_id

    def completed(self, append_id: int) -> bool:
        """Everything up to `append_id` is durable. True if the durable end has risen."""
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
