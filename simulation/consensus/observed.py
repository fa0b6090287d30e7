"""The world as a judge sees it: nodes, disks and what is committed. Everything is read-only but the judges' own books.

The rules in invariants.py and beside it are written against these protocols, so a judge can neither step a process nor touch a
disk; the type checker sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kraftlab.quorum.apply_order import ApplyOrder
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.messages import Request
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.raft_node import RaftNode
from kraftlab.quorum.core.types import OffsetAndEpoch, ReplicaKey, VoterSet
from kraftlab.quorum.storage.metadata_log import MetadataLog

from .committed_history import CommittedHistory
from .durable_log import DurableLog
from .options import SimulationOptions
from .voter_trail import Voters, VoterTrail


class Rot(NamedTuple):
    """`file` was damaged. Everything below `until` was known to be committed and was there. `unreadable`: offsets of records that
    may be gone with it. `is_fatal`: a start must refuse.
    """

    file: str
    until: int
    unreadable: range
    is_fatal: bool


class ObservedMachine(Protocol):
    """A disk and a clock; see machine.py for what each attribute says."""

    @property
    def node_id(self) -> int: ...

    @property
    def key(self) -> ReplicaKey: ...

    @property
    def durable(self) -> DurableLog: ...

    @property
    def is_durable_exact(self) -> bool: ...

    @property
    def possible_install(self) -> OffsetAndEpoch | None: ...

    @property
    def stored(self) -> ElectionState | None: ...

    @property
    def possibly_stored(self) -> ElectionState | None: ...

    @property
    def rot(self) -> Rot | None: ...

    @property
    def before_rot(self) -> DurableLog | None: ...

    @property
    def has_rotten_log(self) -> bool: ...

    @property
    def paused_until_us(self) -> int: ...

    def now_ms(self) -> int: ...


class ObservedRequest(Protocol):
    """A request that a process has received and not answered yet."""

    @property
    def request(self) -> Request: ...


class ObservedProcess(Protocol):
    """One incarnation of a node. The two books at the end are the judges' own."""

    @property
    def node_id(self) -> int: ...

    @property
    def key(self) -> ReplicaKey: ...

    @property
    def machine(self) -> ObservedMachine: ...

    @property
    def raft(self) -> RaftNode: ...

    @property
    def quorum(self) -> QuorumState: ...

    @property
    def local_log(self) -> LocalLog: ...

    @property
    def log(self) -> MetadataLog: ...

    @property
    def applying(self) -> ApplyOrder: ...

    @property
    def inbound(self) -> Mapping[int, ObservedRequest]: ...

    @property
    def is_leading(self) -> bool: ...

    voter_trail: VoterTrail
    """The voter sets of this node's log, by the simulation's own reckoning."""
    repair_until: int
    """Storage has found rot: what lies below must be fetched again first. 0 once it was."""


class Observed(Protocol):
    """The whole world. `history` and `voters` are books that the judges keep of what was committed."""

    @property
    def options(self) -> SimulationOptions: ...

    @property
    def now_us(self) -> int: ...

    @property
    def machines(self) -> Sequence[ObservedMachine]: ...

    @property
    def leaders(self) -> Sequence[ObservedProcess]: ...

    @property
    def history(self) -> CommittedHistory: ...

    @property
    def voters(self) -> Voters: ...

    @property
    def static_voters(self) -> VoterSet: ...

    @property
    def has_equal_snapshots(self) -> bool: ...

    @property
    def has_rotten_snapshots(self) -> bool: ...

    def machine_of(self, key: ReplicaKey) -> ObservedMachine | None: ...

    def has_held(self, key: ReplicaKey, offset: int, crc: int | None) -> bool: ...
