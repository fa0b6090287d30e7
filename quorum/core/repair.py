"""Repair of a log that rot has damaged below what was known to be committed.

Theory of operation. Recovery keeps the valid beginning of such a log, sets the rest aside, and says up to where the log had been
known to reach (`BootState.repair_until`). The records in between are committed, and this node may have been one of the majority
that has them: whoever counts on it must not notice that it has lost them. So until it durably holds everything below that offset
again, it

- grants no vote and no pre-vote: its own log is too short to judge a candidate's by;
- does not stand: it would lead with a log that lacks committed records;
- acknowledges only what it has, since a fetch from offset o claims nothing above o.

Otherwise it follows like any other: it fetches what is missing, checks crc and chain, and takes a snapshot if the leader's
log no longer reaches back so far. When its durable end has come to `until`, the repair is over for good (`RepairEnded`,
once): it is a full voter again, and what was set aside can go. A crash on the way changes nothing, storage remembers the
repair. What the damaged log held beyond the leader's end was never committed; the repair then waits until the leader's log has
grown as far. If so many voters repair that the others are no majority, nobody can be elected: which of them lacks what can not be
told without them.
"""

from __future__ import annotations


class Repair:
    """Whether this node repairs. `until` 0: it does not."""

    __slots__ = ("until",)

    def __init__(self, until: int) -> None:
        self.until = until

    @property
    def is_on(self) -> bool:
        return self.until > 0

    def ends_at(self, durable_end_offset: int) -> bool:
        """True, once, if the log is whole now that it is durable up to there."""
        if not self.is_on or durable_end_offset < self.until:
            return False
        self.until = 0
        return True

    def __repr__(self) -> str:
        return f"repairs up to {self.until}" if self.is_on else "whole"
