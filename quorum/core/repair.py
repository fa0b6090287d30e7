"""Repair of a log that is damaged below an offset known as committed.

Theory of operation. Recovery keeps the valid beginning of such a log, sets the rest aside, and reports how far the log had
reached (`BootState.repair_until`). The missing records are committed, and this node may have been part of the majority that has
them. Nobody who counts on that may notice the loss. Until the node durably holds everything below that offset again, it

- grants no vote and no pre-vote: its own log is too short to judge a candidate's by;
- does not stand for election: it would lead with a log that lacks committed records;
- acknowledges only what it has, since a fetch from offset o claims nothing above o.

Otherwise it follows like any other node. It fetches the missing records, checks crc and chain, and copies a snapshot if the
leader's log no longer reaches back so far. When its durable end has reached `until`, the repair is over for good (`RepairEnded`,
once): the node votes again, and the files that were set aside can be removed. A crash changes nothing, because storage remembers
the repair.

The part of the damaged log beyond the leader's end was never committed; the repair then waits until the leader's log is as long.
If the voters that do not repair are not a majority, nobody can be elected: it is unknown which of them lacks what.
"""

from __future__ import annotations


class Repair:
    """State of the repair. `until` 0: this node does not repair."""

    __slots__ = ("until",)

    def __init__(self, until: int) -> None:
        self.until = until

    @property
    def is_on(self) -> bool:
        return self.until > 0

    def ends_at(self, durable_end_offset: int) -> bool:
        """Return True, once, if the log is whole now that it is durable up to `durable_end_offset`."""
        if not self.is_on or durable_end_offset < self.until:
            return False
        self.until = 0
        return True

    def __repr__(self) -> str:
        return f"repairs up to {self.until}" if self.is_on else "whole"
