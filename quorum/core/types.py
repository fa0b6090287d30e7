"""Values of the quorum: ids, log positions, endpoints, voter sets (KIP-595, KIP-853).

Offsets are 0-based. Every *end* offset is exclusive. Epoch 0 is primordial: no leader, no record.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey

NEVER_MS = 1 << 62
"""A deadline that never passes."""
NO_LEADER = -1
EPOCH_MAX = 2**31 - 1
"""Kafka's int32. No node is ever in this epoch."""
EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch that a node adopts or opens."""
EPOCH_JUMP_MAX = 1_000_000
"""Larger steps of a node's epoch are not believed: elections at full speed take days for so many."""


class OffsetAndEpoch(NamedTuple):
    """A log position: an offset and the epoch of the record before it."""

    offset: int
    epoch: int

    def __repr__(self) -> str:
        return f"{self.offset}@{self.epoch}"


class Standing(enum.Enum):
    """Standing of a request's sender, as the shell knows it. Voters need none: the core knows them by their keys."""

    CONTROLLER = "controller"
    """May stand for election, announce a leadership, and raise this node's epoch."""
    OBSERVER = "observer"
    """May read the metadata log."""
    STRANGER = "stranger"
    """May not read the metadata log."""


class Voter(msgspec.Struct, frozen=True, array_like=True):
    """A member of the voter set: its key and its endpoints by listener name (CONTROLLER, GRPC, …)."""

    key: ReplicaKey
    endpoints: dict[str, Endpoint]

    def __repr__(self) -> str:
        return repr(self.key)


class VoterSet(msgspec.Struct, frozen=True, array_like=True):
    """The voters, sorted by node id. Immutable: a change makes a new set."""

    voters: tuple[Voter, ...]

    def ids(self) -> tuple[int, ...]:
        return tuple(v.key.node_id for v in self.voters)

    def get(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.key.node_id == node_id:
                return voter
        return None

    def has(self, key: ReplicaKey) -> bool:
        voter = self.get(key.node_id)
        return voter is not None and key.matches(voter.key)

    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """Return the sorted set of these voters. ValueError if two have the same node id."""
        ordered = tuple(sorted(voters, key=lambda voter: voter.key.node_id))
        if any(a.key.node_id == b.key.node_id for a, b in pairwise(ordered)):
            raise ValueError(f"two voters have the same node id: {ordered!r}")
        return cls(ordered)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return this set with `voter` added, or in place of the voter with its node id."""
        return VoterSet.of((*(v for v in self.voters if v.key.node_id != voter.key.node_id), voter))

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(tuple(v for v in self.voters if v.key.node_id != node_id))

    def overlaps_in_majority(self, other: VoterSet) -> bool:
        """Return True if every majority of this set shares a voter with every majority of `other`: at most one voter differs."""
        mine, theirs = [v.key for v in self.voters], [v.key for v in other.voters]
        return sum(key not in theirs for key in mine) + sum(key not in mine for key in theirs) <= 1

    def __repr__(self) -> str:
        return "{" + ",".join(map(str, self.ids())) + "}"
