"""The finished snapshots of this node, and the position of the next one (KIP-630).

Theory of operation. A snapshot at `end@epoch` holds the state that the records below `end` make, so that they are no longer
needed. Its id must be a position of the log at or below the high watermark. Then it is a position of every other log too, and any
node may use it. A snapshot proves that everything below it is committed: a node that finds one on its disk, or installs one,
knows a high watermark at least as high (KAFKA-9491).

The shell makes snapshots. It freezes the state machine between two applies, gets the beginning of the file from `context`, writes
in its own time, and reports SnapshotTaken when the file has its name. Only then does anything change here: the newest `kept`
snapshots stay, and the log starts at the end of the oldest of them (`CleanLog`). So there is never a gap between a snapshot and
the log, and a replica that lags by less than one snapshot is served from the log. A leader keeps more snapshots, and the
beginning of the log, while an observer fetches that lags further: an observer that follows the log for its history, and not for
the state, finds none in a snapshot. A leader that has just been elected may have cleaned its log further before. Ids that storage
found but that are not a position of the recovered log (damage has cut it, or a crash has left it shorter than the snapshot) are
not used.

A finished snapshot never changes, with one exception. The newest can turn out to be unreadable (`lost`). Then the next may be
made at the same position, and takes its place under its name. That must be possible, because there need never be a newer one: the
leader of a new epoch commits nothing before a majority follows, and a follower may need just this snapshot. Two files of the same
id need not have the same bytes; a node that copied parts of both notices by the digest and begins again. An older one that is
lost is not needed, because followers are never sent to it.

Nothing here makes a follower's own snapshots equal to its leader's: each shell decides when to take its own.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftlab.common.errors import InvariantViolation

from .batch import ControlRecord, KRaftVersion, KRaftVoters, SnapshotHeader
from .local_log import LocalLog
from .log_view import LogView
from .membership import Membership
from .types import OffsetAndEpoch


class SnapshotContext(NamedTuple):
    """The beginning of a snapshot: its id, and the records of its first batch.

    These are SnapshotHeader and, if the voters are in the log, KRaftVersion and KRaftVoters.
    """

    id: OffsetAndEpoch
    control: tuple[ControlRecord, ...]


def found_at_boot(view: LogView, found: tuple[OffsetAndEpoch, ...]) -> tuple[OffsetAndEpoch, ...]:
    """Return the usable finished snapshots, oldest first. The view learns what they prove to be committed."""
    ids = tuple(sorted(snapshot for snapshot in found if snapshot.offset and view.holds(snapshot)))
    if view.start_offset and view.start not in ids:
        raise InvariantViolation(f"{view!r} starts after a snapshot that is not there: {found!r}")
    if ids:
        view.high_watermark_stamp = max(view.high_watermark_stamp, ids[-1].offset)
    return ids


class Snapshots:
    """The ids, oldest first. `kept` of them stay, and at most `kept_for_observers` while observers need them."""

    __slots__ = ("_kept", "_kept_for_observers", "_log", "_lost", "_membership", "ids")

    def __init__(
        self, log: LocalLog, membership: Membership, found: tuple[OffsetAndEpoch, ...], kept: int, kept_for_observers: int
    ) -> None:
        self._log = log
        self._membership = membership
        self._kept = kept
        self._kept_for_observers = kept_for_observers
        self.ids = found
        """Initially the result of `found_at_boot`."""
        self._lost: OffsetAndEpoch | None = None
        """The newest, if it cannot be read and another must replace it."""

    def context(self, offset: int, cluster_id: str, generation: int, append_time_ms: int) -> SnapshotContext | None:
        """Return the beginning of a snapshot of everything below `offset`; None if it is impossible there, or not needed.

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
        """Note that the snapshot is on the disk. The oldest ones go, and the log starts after the oldest remaining snapshot.

        `needed_from` is the offset of the observer that is furthest behind, None if there is none. A snapshot that was overtaken
        by another while it was written changes nothing, but is removed.
        """
        view = self._log.view
        is_overtaken = snapshot.offset < view.start_offset
        if not is_overtaken and snapshot not in self.ids:
            if not view.holds(snapshot) or snapshot.offset > self._log.high_watermark:
                raise InvariantViolation(f"snapshot {snapshot} is not a committed position of {self._log!r}")
            ids = tuple(sorted((*self.ids, snapshot)))
            self.ids = ids[-self._count(ids, needed_from) :]
        if self._lost is not None and snapshot.offset >= self._lost.offset:
            self._lost = None
        if is_overtaken:
            self._log.clean(view.start)
        elif self.ids[0] != view.start and not self._keeps_beginning(needed_from):
            self._log.clean(self.ids[0])

    def _keeps_beginning(self, needed_from: int | None) -> bool:
        """Return True if an observer needs records older than every snapshot. They count as one of those kept for observers."""
        is_whole = self._log.view.start_offset == 0 and len(self.ids) < self._kept_for_observers
        return is_whole and needed_from is not None and needed_from < self.ids[0].offset

    def _count(self, ids: tuple[OffsetAndEpoch, ...], needed_from: int | None) -> int:
        count = min(self._kept, len(ids))
        if needed_from is not None:
            while count < min(self._kept_for_observers, len(ids)) and ids[-count].offset > needed_from:
                count += 1
        return count

    def lost(self, snapshot: OffsetAndEpoch) -> bool:
        """Note that the snapshot cannot be read. Return True if that is new and it is the newest: another must replace it."""
        if self.ids[-1:] != (snapshot,) or snapshot == self._lost:
            return False
        self._lost = snapshot
        return True

    def installed(self, snapshot: OffsetAndEpoch) -> None:
        """Note that the snapshot came from another node and has replaced the log."""
        self.ids, self._lost = (snapshot,), None

    def __repr__(self) -> str:
        return f"snapshots{list(self.ids)}"
