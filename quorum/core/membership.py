"""The voter set as one node knows it; consensus uses no other source.

It follows the end of the log (voter_set_history.py). A set is in force as soon as its record is appended, replayed at boot or
installed with a snapshot, and until the record is truncated. `LocalLog` reports these changes. Between two changes everything
here is constant and is computed once.

A set that is not known as committed may never have reached a majority. Until it is, a node that it has removed remains
*eligible*: perhaps no other node has the record, and no majority elects a shorter log than this one (Raft thesis §4.2.2). Such a
node requests votes from the voters of the new set, without counting itself, commits the record, and resigns.

The set from formatting must be the same on every node that has one, because majorities of two different sets need not meet. While
a node uses that set, its vote requests carry a fingerprint of it (`initial_voters`), and nodes with another fingerprint refuse
them.

A voter is a replica key: node id and directory id. A node with a voter's id and another directory (a wiped disk) is an observer.
Static voters have no known directory and match by id alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kraftlab.common.endpoint import Endpoint, are_sane_endpoints
from kraftlab.common.replica_key import ReplicaKey

from .batch import ControlRecord
from .raft_config import BootState, RaftConfig
from .types import Voter, VoterSet
from .voter_set_history import VoterSetHistory


class Membership:
    """The voter set seen from one node."""

    __slots__ = (
        "_high_watermark",
        "_relocated",
        "_voters_by_id",
        "has_moved",
        "history",
        "initial_voters",
        "is_eligible",
        "is_sole_voter",
        "is_voter",
        "kraft_version",
        "majority",
        "others",
        "own",
        "own_key",
        "voters",
    )

    def __init__(self, own: Voter, history: VoterSetHistory, high_watermark: int) -> None:
        self.own = own
        """This node as its entry in the voter set should be."""
        self.own_key = own.key
        self.history = history
        self._high_watermark = high_watermark
        self._relocated: dict[int, tuple[dict[str, Endpoint], dict[str, Endpoint]]] = {}
        """Voter → its endpoints in the set when it announced others, and the announced ones."""
        self._refresh()

    @classmethod
    def boot(cls, config: RaftConfig, boot: BootState, high_watermark: int) -> Membership:
        """Build the membership from the disk's contents, of which everything below `high_watermark` was committed.

        CorruptBatch if the voter sets of the log do not follow each other.
        """
        history = VoterSetHistory(config.voters, boot.bootstrap)
        from_snapshot = [record for offset, record in boot.control if offset < 0]
        if from_snapshot:
            history.reset(from_snapshot)
        history.append([(offset, record) for offset, record in boot.control if offset >= 0])
        return cls(Voter(config.key, config.voter_endpoints or config.endpoints), history, high_watermark)

    def _refresh(self) -> None:
        self.voters: VoterSet = self.history.voters
        self.kraft_version = self.history.kraft_version
        self._voters_by_id = {voter.key.node_id: voter for voter in self.voters.voters}
        self.is_voter = self.has(self.own_key)
        self.others: tuple[Voter, ...] = tuple(v for v in self.voters.voters if v.key.node_id != self.own_key.node_id)
        self.is_eligible = self.is_voter or self._is_removed_perhaps()
        """True if this node may stand for election."""
        self.is_sole_voter = self.is_voter and not self.others
        self.majority = self.voters.majority()
        self.initial_voters = _fingerprint(self.voters) if self.history.is_bootstrap else 0
        self.has_moved = (
            self.kraft_version > 0
            and self.is_voter
            and bool(self.own.endpoints)
            and self.endpoints_of(self.own_key.node_id) != self.own.endpoints
        )
        """True if the set names other endpoints for this node than it has."""

    def _is_removed_perhaps(self) -> bool:
        previous = self.history.previous
        return previous is not None and previous.has(self.own_key) and self.history.offset >= self._high_watermark

    # Changes. Each returns True if the voters have changed.

    def append(self, entries: Sequence[tuple[int, ControlRecord]]) -> bool:
        """Follow appended control records. CorruptBatch, and nothing has changed, if the log must not continue with them."""
        return self._changed(lambda: self.history.append(entries))

    def truncate(self, to_offset: int) -> bool:
        return self._changed(lambda: self.history.truncate(to_offset))

    def reset(self, control: Iterable[ControlRecord]) -> bool:
        """Follow a snapshot with these control records, which has replaced the log."""
        return self._changed(lambda: self.history.reset(control))

    def committed(self, high_watermark: int) -> None:
        """Note that everything below `high_watermark` is committed."""
        self._high_watermark = high_watermark
        if self.is_eligible != self.is_voter:
            self._refresh()

    def _changed(self, change: Callable[[], None]) -> bool:
        before = self.voters
        change()
        self._refresh()
        return self.voters != before

    # Queries

    @property
    def voters_offset(self) -> int:
        """Offset of the record that names these voters; -1: not in the log."""
        return self.history.offset

    def has(self, key: ReplicaKey) -> bool:
        voter = self._voters_by_id.get(key.node_id)
        return voter is not None and key.matches(voter.key)

    def key_of(self, node_id: int) -> ReplicaKey:
        """Return the voter's stored key; for a node that is not a voter, its id with an unknown directory."""
        voter = self._voters_by_id.get(node_id)
        return voter.key if voter is not None else ReplicaKey(node_id)

    def endpoints_of(self, node_id: int) -> dict[str, Endpoint]:
        """Return the voter's endpoints in the set."""
        voter = self._voters_by_id.get(node_id)
        return voter.endpoints if voter is not None else {}

    def address_of(self, node_id: int) -> dict[str, Endpoint]:
        """Return the voter's current endpoints. Those that it announced itself count until the set changes them."""
        written = self.endpoints_of(node_id)
        if node_id not in self._relocated:
            return written
        before, said = self._relocated[node_id]
        return said if before == written else written

    def note_endpoints(self, voter: ReplicaKey, endpoints: dict[str, Endpoint]) -> bool:
        """Note the endpoints that a voter announces; return True if they are new. Those of other nodes are ignored."""
        if not self.has(voter) or not are_sane_endpoints(endpoints) or endpoints in ({}, self.address_of(voter.node_id)):
            return False
        self._relocated[voter.node_id] = self.endpoints_of(voter.node_id), endpoints
        return True

    def can_reach(self, node_id: int, endpoints: dict[str, Endpoint]) -> bool:
        """Return True if this node has an address for requests to `node_id`."""
        return bool(endpoints) or node_id in self._voters_by_id

    def __repr__(self) -> str:
        return f"{self.voters!r}{'' if self.is_voter else ' (observer)'}"


def _fingerprint(voters: VoterSet) -> int:
    """Return equal numbers for equal replica keys, whatever their endpoints; never 0."""
    return zlib.crc32(msgspec.msgpack.encode([voter.key for voter in voters.voters])) or 1
