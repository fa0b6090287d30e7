"""The voter sets of a log, by the offset from which each is in force (KIP-853).

Theory of operation. With kraft.version 1 the voters are in the log. A KRaftVoters record is in force from its own offset on,
committed or not, until the next one. A log that is cut loses its last sets again. The voters of a node are thus a function of its
log alone: an ascending list of (offset, set). Its first entry, the *base*, holds where no record of the log names voters. The
base comes from, in order of strength: the snapshot that the log starts at; the bootstrap checkpoint from formatting; the
configuration (static voters, kraft.version 0). kraft.version is a record as well and is treated alike; while it is 0, the
configured voters vote.

Two consecutive sets of a log must share a voter in every pair of majorities, or two leaders could be elected at the same time. So
they differ by at most one voter. A log that breaks this rule was written by a bug or by hand and is refused. There is one
exception: a set directly before a ForcedStandalone record, written by an operator who has given up a lost majority. The base is
compared only if it was replicated itself (a snapshot): the checkpoint of a node that joins later says nothing about the other
nodes.

Pure: records in, sets out. It does not know which sets are committed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from .batch import ControlRecord, ForcedStandalone, KRaftVersion, KRaftVoters
from .errors import CorruptBatch
from .types import VoterSet

BASE_OFFSET = -1
"""Offset of a set that is not in a record of the log."""
KRAFT_VERSION_MAX = 1


class VoterSetHistory:
    """Voter sets and kraft.versions by the offset of their record. The `static` set votes while kraft.version is 0."""

    __slots__ = ("_offsets", "_sets", "_static", "_version_offsets", "_versions", "is_base_replicated")

    def __init__(self, static: VoterSet, bootstrap: Iterable[ControlRecord] = ()) -> None:
        self._static = static
        self._start(bootstrap, is_replicated=False)

    def _start(self, control: Iterable[ControlRecord], is_replicated: bool) -> None:
        voters, version = self._static, 0
        for record in control:
            if isinstance(record, KRaftVersion):
                version = record.kraft_version
            elif isinstance(record, KRaftVoters):
                voters = record.voters
        self._offsets, self._sets = [BASE_OFFSET], [voters if version else self._static]
        self._version_offsets, self._versions = [BASE_OFFSET], [version]
        self.is_base_replicated = is_replicated
        """True if the base comes from a snapshot and is therefore committed."""

    # Queries

    @property
    def voters(self) -> VoterSet:
        """The set in force at the end of the log."""
        return self._sets[-1]

    @property
    def offset(self) -> int:
        """Offset of the record with the set in force; -1 if it is not in the log."""
        return self._offsets[-1]

    @property
    def previous(self) -> VoterSet | None:
        """The set before the one in force, if this log holds both."""
        return self._sets[-2] if len(self._sets) > 1 else None

    @property
    def kraft_version(self) -> int:
        return self._versions[-1]

    @property
    def is_bootstrap(self) -> bool:
        """True if these voters come from the bootstrap checkpoint: the first leader must write them into the log."""
        return self.kraft_version > 0 and self.offset == BASE_OFFSET and not self.is_base_replicated

    def at(self, offset: int) -> VoterSet:
        """Return the voter set at the end of the log below `offset`."""
        return self._sets[max(0, bisect_left(self._offsets, offset) - 1)]

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version at the end of the log below `offset`."""
        return self._versions[max(0, bisect_left(self._version_offsets, offset) - 1)]

    # Changes

    def append(self, entries: Sequence[tuple[int, ControlRecord]]) -> None:
        """Add control records that were appended to the log, with their offsets.

        CorruptBatch, and nothing has changed, if one of their sets must not follow the set before it.
        """
        for position, (offset, record) in enumerate(entries):
            try:
                if isinstance(record, KRaftVersion):
                    self._append_version(offset, record.kraft_version)
                elif isinstance(record, KRaftVoters):
                    follower = entries[position + 1] if position + 1 < len(entries) else (0, None)
                    is_forced = follower[0] == offset + 1 and isinstance(follower[1], ForcedStandalone)
                    self._append_voters(offset, record.voters, is_forced)
            except CorruptBatch:
                self.truncate(entries[0][0])
                raise

    def _append_version(self, offset: int, version: int) -> None:
        if not self.kraft_version <= version <= KRAFT_VERSION_MAX:
            raise CorruptBatch(
                f"the record at offset {offset} sets kraft.version {version} after {self.kraft_version}; this node knows "
                f"versions up to {KRAFT_VERSION_MAX}"
            )
        self._version_offsets.append(offset)
        self._versions.append(version)

    def _append_voters(self, offset: int, voters: VoterSet, is_forced: bool) -> None:
        if not self.kraft_version:
            raise CorruptBatch(f"the record at offset {offset} names voters, but kraft.version is 0")
        ids = voters.ids()
        if not ids or any(a >= b for a, b in pairwise(ids)):
            raise CorruptBatch(f"the record at offset {offset} names no proper set of voters: {voters!r}")
        is_comparable = self.offset != BASE_OFFSET or self.is_base_replicated
        if is_comparable and not is_forced and not self.voters.overlaps_in_majority(voters):
            raise CorruptBatch(
                f"the record at offset {offset} changes the voters from {self.voters!r} to {voters!r}, by more than one: "
                "majorities of the two need not meet"
            )
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate(self, to_offset: int) -> None:
        """Forget the records at or above `to_offset`, where the log was cut. The base stays."""
        keep = max(1, bisect_left(self._offsets, to_offset))
        del self._offsets[keep:], self._sets[keep:]
        keep = max(1, bisect_left(self._version_offsets, to_offset))
        del self._version_offsets[keep:], self._versions[keep:]

    def reset(self, control: Iterable[ControlRecord]) -> None:
        """Make these records of a snapshot the base: the snapshot has replaced the log."""
        self._start(control, is_replicated=True)

    def __repr__(self) -> str:
        sets = " ".join(f"{offset}:{voters!r}" for offset, voters in zip(self._offsets, self._sets, strict=True))
        return f"voters[{sets}] kraft.version {self.kraft_version}"
