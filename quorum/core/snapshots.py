"""The finished snapshots of this node, and which one may be made next (KIP-630).

Theory of operation. A snapshot at `end@epoch` holds the state that the records below `end` make, so that they are no longer
needed. Its id must be a position of the log at or below the high watermark; then it is a position of every other log too,
and any node may use any other's. A snapshot is proof that everything below it is committed: a node that finds one on its
disk, or takes one over, knows a high watermark at least as high (KAFKA-9491).

Making one is the shell's work: it freezes the state machine between two applies, asks `context` what to write in front,
writes in its own time, and reports SnapshotTaken when the file has its name. Only then does anything change here: the newest
`kept` snapshots stay, and the log starts at the end of the oldest of them (`CleanLog`). So there is never a gap between a
snapshot and the log, and a replica that lags behind by less than one snapshot is served from the log. A leader keeps some more
while an observer fetches that is further behind, the log's beginning with the first of them, since whoever follows the log for
its history, and not for the state, finds none in a snapshot; a leader that has just been elected may have cleaned its log
further, by then. The ids that storage
found but that are no position of the recovered log (damage has cut it, or a crash has left the log behind the snapshot) are
not used.

A finished snapshot never changes, with one exception. The newest may turn out to be unreadable (`lost`). Then the next may be
made at its very position, and takes its place under its name. That must be possible, since nothing newer need ever come: the
leader of a new epoch commits nothing before a majority follows, and who is to follow may need just this snapshot. Two files of
one id need not have the same bytes: whoever copies some of the one and some of the other learns from the digest that it has
neither, and begins anew. One that is not the newest is not needed: nobody is told of it any more.

Nothing here makes a follower's own snapshots equal to its leader's: each node takes its own, when its own shell thinks it is
time.
"""

from __future__ import annotations

from typing import NamedTuple

from .batch import ControlRecord, KRaftVersion, KRaftVoters, SnapshotHeader
from .errors import InvariantViolation
from .local_log import LocalLog
from .log_view import LogView
from .membership import Membership
from .types import OffsetAndEpoch


class SnapshotContext(NamedTuple):
    """What a snapshot begins with: its id, and the records of its first batch (SnapshotHeader; then KRaftVersion and KRaftVoters
    if the voters live in the log).
    """

    id: OffsetAndEpoch
    control: tuple[ControlRecord, ...]


def found_at_boot(view: LogView, found: tuple[OffsetAndEpoch, ...]) -> tuple[OffsetAndEpoch, ...]:
    """The finished snapshots that can be used, oldest first; the view knows from now on what they prove to be committed."""
    ids = tuple(sorted(snapshot for snapshot in found if snapshot.offset and view.holds(snapshot)))
    if view.start_offset and view.start not in ids:
        raise InvariantViolation(f"{view!r} starts behind a snapshot that is not there: {found!r}")
    if ids:
        view.high_watermark_stamp = max(view.high_watermark_stamp, ids[-1].offset)
    return ids


class Snapshots:
    """The ids, oldest first. `kept` is how many stay, `kept_for_observers` how many at most while observers need them."""

    __slots__ = ("_kept", "_kept_for_observers", "_log", "_lost", "_membership", "ids")

    def __init__(
        self, log: LocalLog, membership: Membership, found: tuple[OffsetAndEpoch, ...], kept: int, kept_for_observers: int
    ) -> None:
        self._log = log
        self._membership = membership
        self._kept = kept
        self._kept_for_observers = kept_for_observers
        self.ids = found
        """What `found_at_boot` says, to begin with."""
        self._lost: OffsetAndEpoch | None = None
        """The newest, if it can not be read and another is to take its place."""

    def context(self, offset: int, cluster_id: str, generation: int, append_time_ms: int) -> SnapshotContext | None:
        """What a snapshot of everything below `offset` begins with; None if there can be none there, or it is not needed.

        `append_time_ms` is that of the batch which ends at `offset`.
        """
        view = self._log.view
        position = view.position_at(offset)
        newest = self.ids[-1].offset if self.ids else view.start_offset
        is_newer = max(newest, view.start_offset) < offset <= self._log.high_watermark
        if position is None or not (is_newer or position == self._lost):
            return None
        header = SnapshotHeader(0, cluster_id, generation, view.crc_at(offset), append_time_ms)
        return SnapshotContext(position, (header, *self.voters_at(offset)))

    def voters_at(self, offset: int) -> tuple[ControlRecord, ...]:
        history = self._membership.history
        version = history.kraft_version_at(offset)
        return (KRaftVersion(0, version), KRaftVoters(0, history.at(offset))) if version else ()

    def taken(self, snapshot: OffsetAndEpoch, needed_from: int | None = None) -> None:
        """It is on the disk. The oldest go, and the log starts behind the oldest that stays. `needed_from` is where the observer
        is that is furthest behind, None if there is none.

        One that was overtaken by another while it was written changes nothing, but for being removed.
        """
        view = self._log.view
        is_overtaken = snapshot.offset < view.start_offset
        if not is_overtaken and snapshot not in self.ids:
            if not view.holds(snapshot) or snapshot.offset > self._log.high_watermark:
                raise InvariantViolation(f"snapshot {snapshot} is no committed position of {self._log!r}")
            ids = tuple(sorted((*self.ids, snapshot)))
            self.ids = ids[-self._count(ids, needed_from) :]
        if self._lost is not None and snapshot.offset >= self._lost.offset:
            self._lost = None
        if is_overtaken:
            self._log.clean(view.start)
        elif self.ids[0] != view.start and not self._keeps_beginning(needed_from):
            self._log.clean(self.ids[0])

    def _keeps_beginning(self, needed_from: int | None) -> bool:
        """Whether an observer needs what is older than every snapshot; it counts as one of those that are kept for observers."""
        is_whole = self._log.view.start_offset == 0 and len(self.ids) < self._kept_for_observers
        return is_whole and needed_from is not None and needed_from < self.ids[0].offset

    def _count(self, ids: tuple[OffsetAndEpoch, ...], needed_from: int | None) -> int:
        count = min(self._kept, len(ids))
        if needed_from is not None:
            while count < min(self._kept_for_observers, len(ids)) and ids[-count].offset > needed_from:
                count += 1
        return count

    def lost(self, snapshot: OffsetAndEpoch) -> bool:
        """It can not be read any more. True if that is news and it is the newest: another is to take its place."""
        if self.ids[-1:] != (snapshot,) or snapshot == self._lost:
            return False
        self._lost = snapshot
        return True

    def installed(self, snapshot: OffsetAndEpoch) -> None:
        """It has come from another node and replaced the log."""
        self.ids, self._lost = (snapshot,), None

    def __repr__(self) -> str:
        return f"snapshots{list(self.ids)}"
