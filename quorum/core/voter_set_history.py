"""Every voter set that a log has named, and from which offset on (KIP-853).

Theory of operation. With kraft.version 1 the voters live in the log: a KRaftVoters record is in force from its own offset on,
committed or not, until the next one. A log that is cut takes its sets back with it. So the voters of a node are a function of its
log alone: an ascending list of (offset, set), whose first entry, the *base*, says who votes where no record of the log does. The
base comes from, in order of strength: the snapshot that the log starts at; the bootstrap checkpoint that formatting wrote; the
configuration (static voters, kraft.version 0). kraft.version itself is a record and is treated alike; while it is 0, the
configured voters vote.

Two sets that follow each other in a log must share a voter in whichever majorities one takes of them, or two leaders could be
elected side by side: they differ by one voter at most. A log that breaks this was written by a bug or by hand and is refused. One
exception is deliberate: a set directly followed by a ForcedStandalone record was written by an operator who has given up a
lost majority. The base of a log is compared only if it was replicated itself (a snapshot): what formatting wrote on a node that
joins later says nothing about the others.

Pure: records in, sets out. Whether a set is committed is not known here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from .batch import ControlRecord, ForcedStandalone, KRaftVersion, KRaftVoters
from .errors import CorruptBatch
from .types import VoterSet

BASE_OFFSET = -1
"""The offset of a set that no record of the log holds."""
KRAFT_VERSION_MAX = 1


class VoterSetHistory:
    """Voter sets and kraft.versions by the offset of their record. `static` votes while kraft.version is 0."""

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
        """Whether the base is a snapshot's, known to be committed."""

    # What it says

    @property
    def voters(self) -> VoterSet:
        """The set in force at the log's end."""
        return self._sets[-1]

    @property
    def offset(self) -> int:
        """Where the record stands that says so; -1: no record of the log does."""
        return self._offsets[-1]

    @property
    def previous(self) -> VoterSet | None:
        """The set before the one in force, if both stand in this log."""
        return self._sets[-2] if len(self._sets) > 1 else None

    @property
    def kraft_version(self) -> int:
        return self._versions[-1]

    @property
    def is_bootstrap(self) -> bool:
        """True if these voters are the bootstrap checkpoint's: the first leader must write them into the log."""
        return self.kraft_version > 0 and self.offset == BASE_OFFSET and not self.is_base_replicated

    def at(self, offset: int) -> VoterSet:
        """The set that the log below `offset` ends with."""
        return self._sets[max(0, bisect_left(self._offsets, offset) - 1)]

    def kraft_version_at(self, offset: int) -> int:
        """The kraft.version that the log below `offset` ends with."""
        return self._versions[max(0, bisect_left(self._version_offsets, offset) - 1)]

    # How it changes

    def append(self, entries: Sequence[tuple[int, ControlRecord]]) -> None:
        """Control records that were appended to the log, with their offsets. CorruptBatch, and nothing has changed, if a set
        among them can not follow the one before.
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
        """The log was cut at `to_offset`: what it said from there on is void. The base stays."""
        keep = max(1, bisect_left(self._offsets, to_offset))
        del self._offsets[keep:], self._sets[keep:]
        keep = max(1, bisect_left(self._version_offsets, to_offset))
        del self._version_offsets[keep:], self._versions[keep:]

    def reset(self, control: Iterable[ControlRecord]) -> None:
        """The log was replaced by a snapshot that holds these records: it is the base from now on."""
        self._start(control, is_replicated=True)

    def __repr__(self) -> str:
        sets = " ".join(f"{offset}:{voters!r}" for offset, voters in zip(self._offsets, self._sets, strict=True))
        return f"voters[{sets}] kraft.version {self.kraft_version}"
