"""Who votes, as this node knows it: the only object that consensus asks about the voter set.

Voters are static here (KRaft version 0): they come from the configuration and are matched by node id, since their stored
directory id is zero. When voters move into the log (KIP-853), this object follows the log's end — appended, replayed and
truncated alike — and nobody who asks it has to change.
"""

from __future__ import annotations

from .types import Endpoint, ReplicaKey, Voter, VoterSet


class Membership:
    """The voter set seen from one node."""

    __slots__ = ("_keys", "is_sole_voter", "is_voter", "majority", "others", "own_key", "voters")

    def __init__(self, own_key: ReplicaKey, voters: VoterSet) -> None:
        self.own_key = own_key
        self.voters = voters
        self._keys = {voter.key.node_id: voter.key for voter in voters.voters}
        self.is_voter = self.has(own_key)
        self.others: tuple[Voter, ...] = tuple(v for v in voters.voters if v.key.node_id != own_key.node_id)
        self.is_sole_voter = self.is_voter and not self.others
        self.majority = voters.majority()

    def has(self, key: ReplicaKey) -> bool:
        stored = self._keys.get(key.node_id)
        return stored is not None and key.matches(stored)

    def key_of(self, node_id: int) -> ReplicaKey:
        """The voter's stored key; for a node that is no voter, its id with an unknown directory."""
        return self._keys.get(node_id) or ReplicaKey(node_id)

    def endpoints_of(self, node_id: int) -> dict[str, Endpoint]:
        voter = self.voters.get(node_id)
        return voter.endpoints if voter else {}

    def can_reach(self, node_id: int, endpoints: dict[str, Endpoint]) -> bool:
        """True if this node would know where to send a request to `node_id`."""
        return bool(endpoints) or self.voters.get(node_id) is not None

    def __repr__(self) -> str:
        return f"{self.voters!r}{'' if self.is_voter else ' (observer)'}"
