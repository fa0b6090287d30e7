"""The voters of every log, as the simulation reads them from batches, never from a node's own view.

Every appended batch is read here once, and its records of voters are kept under its crc. A crc identifies a batch with everything
before it, so the voter sets of a log follow from its batches. The committed voter sets form one trail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import CRC_AT, ControlRecord, KRaftVoters, check
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.core.types import VoterSet

from .durable_log import DurableLog


class VoterTrail:
    """Voter sets by the offsets of their records, after a base at offset -1."""

    __slots__ = ("entries",)

    def __init__(self, base: VoterSet, entries: Iterable[tuple[int, VoterSet]] = ()) -> None:
        self.entries: list[tuple[int, VoterSet]] = [(-1, base), *entries]

    @property
    def latest(self) -> VoterSet:
        return self.entries[-1][1]

    @property
    def latest_offset(self) -> int:
        return self.entries[-1][0]

    def previous_has(self, key: ReplicaKey) -> bool:
        """Return True if the set before the current one has that replica."""
        return len(self.entries) > 1 and self.entries[-2][1].has(key)

    def at(self, offset: int) -> VoterSet:
        """Return the voters of a log that ends at `offset`."""
        return self.entries[max(1, bisect_left(self.entries, offset, key=lambda entry: entry[0])) - 1][1]

    def append(self, offset: int, voters: VoterSet) -> None:
        self.entries.append((offset, voters))

    def truncate(self, to_offset: int) -> None:
        while len(self.entries) > 1 and self.entries[-1][0] >= to_offset:
            self.entries.pop()


class Voters:
    """The voter sets of one world. `base`: the static voters, or the voters that the quorum was formatted with."""

    def __init__(self, base: VoterSet) -> None:
        self.committed = VoterTrail(base)
        self._batches: dict[int, tuple[int, list[tuple[int, VoterSet]]]] = {}

    def record(self, crc: int, end_offset: int, control: Sequence[tuple[int, ControlRecord]]) -> list[tuple[int, VoterSet]]:
        """Keep and return the voter sets in a control batch that ends at `end_offset`, with their offsets."""
        entries = [(offset, record.voters) for offset, record in control if isinstance(record, KRaftVoters)]
        if entries:
            self._batches[crc] = (end_offset, entries)
        return entries

    def commit(self, crc: int) -> None:
        """Note that a batch is committed. Batches come in the order of the log."""
        found = self._batches.get(crc)
        if found is not None:
            self.committed.entries.extend(found[1])

    def trail_of(self, log: DurableLog) -> VoterTrail:
        """Return the voter sets of that log."""
        start = log.start.offset
        trail = VoterTrail(self.committed.at(start))
        if self._batches:
            found = [entries for crc, (end, entries) in self._batches.items() if end > start and log.crc_at(end) == crc]
            trail.entries.extend(sorted((entry for entries in found for entry in entries), key=lambda entry: entry[0]))
        return trail

    def standing_in(self, segments: Iterable[bytes]) -> VoterTrail:
        """Return the voter sets of the batches that are whole in segments, even if there is damage between them."""
        segments = list(segments)
        found = [entries for crc, (_, entries) in self._batches.items() if any(_stands_in(data, crc) for data in segments)]
        return VoterTrail(
            self.committed.at(0), sorted((entry for entries in found for entry in entries), key=lambda entry: entry[0])
        )


def _stands_in(segment: bytes, crc: int) -> bool:
    sought = crc.to_bytes(4, "big")
    at = segment.find(sought)
    while at >= 0:
        if at >= CRC_AT:
            with suppress(CorruptBatch):
                if check(segment, at - CRC_AT).crc == crc:
                    return True
        at = segment.find(sought, at + 1)
    return False


def differ_by_one(before: VoterSet, after: VoterSet) -> bool:
    """Return True if the sets of replicas differ by at most one addition or removal. Endpoints do not count."""
    old, new = {voter.key for voter in before.voters}, {voter.key for voter in after.voters}
    return len(old ^ new) <= 1
