"""The world as a checker sees it: nodes, disks and the committed log. Everything is read-only but the records of the checkers.

The rules in invariants.py and its siblings depend on these protocols alone. So the type checker makes sure that no checker can
step a process or change a disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.apply_order import ApplyOrder
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.messages import Request
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.raft_node import RaftNode
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage.metadata_log import MetadataLog

from .committed_history import CommittedHistory
from .durable_log import DurableLog
from .options import SimulationOptions
from .voter_trail import Voters, VoterTrail


class Rot(NamedTuple):
    """Damage of `file`. Everything below `until` was committed and on the disk. `unreadable` are the offsets of records that can
    be lost. If `is_fatal`, a start must refuse the disk.
    """

    file: str
    until: int
    unreadable: range
    is_fatal: bool


class ObservedMachine(Protocol):
    """A disk and a clock; machine.py documents the attributes."""

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
    """One incarnation of a node. Checkers keep the two attributes at the end."""

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
    def is_leading(self) -> bool: ...

    voter_trail: VoterTrail
    """The voter sets of this node's log, as the simulation has read them from batches."""
    repair_until: int
    """Offset up to which the log must be fetched again, since storage has found rot; 0: nowhere."""


class ObservedWorld(Protocol):
    """The whole world. Checkers keep `history` and `voters`, their record of the committed log."""

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
    def has_equal_snapshots(self) -> bool: ...

    @property
    def has_rotten_snapshots(self) -> bool: ...

    def machine_of(self, key: ReplicaKey) -> ObservedMachine | None: ...

    def has_held(self, key: ReplicaKey, offset: int, crc: int | None) -> bool: ...
