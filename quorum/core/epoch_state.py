"""What all six states have in common: an epoch, perhaps a leader, perhaps a vote. One module per state builds on this.

A state object holds only what is valid in that state and dies with it; timers and in-flight bookkeeping therefore can not leak
from one state to the next. `QuorumState` alone makes them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from .effects import ElectionState
from .types import Endpoint, ReplicaKey

NEVER_MS = 1 << 62
"""A deadline that does not come."""
NO_LEADER = -1
EPOCH_MAX = 2**31 - 1
"""Epochs beyond this (Kafka's int32) are a peer's nonsense."""


class EpochState:
    """One node's part in one epoch. `leader_id` -1: none known; `voted_key` None: no vote cast in this epoch.

    Abstract for the type checker; without ABCMeta, whose isinstance takes a long way round and is asked at every step.
    """

    __slots__ = ("epoch", "leader_endpoints", "leader_id", "voted_key")
    name: ClassVar[str]

    def __init__(
        self, epoch: int, leader_id: int, voted_key: ReplicaKey | None, leader_endpoints: dict[str, Endpoint] | None = None
    ) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted_key = voted_key
        self.leader_endpoints: dict[str, Endpoint] = leader_endpoints or {}

    def election(self) -> ElectionState:
        """The durable part."""
        return ElectionState(self.epoch, self.leader_id, self.voted_key)

    def announced_leader_id(self) -> int:
        """Whom this node names as leader to others."""
        return self.leader_id

    @abstractmethod
    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether this state grants a vote of its own epoch to `candidate`, whose log is `up_to_date` or not (KIP-996)."""

    @abstractmethod
    def next_deadline_ms(self) -> int:
        """When the state wants to be polled, at latest."""

    def _who(self) -> str:
        leader = f" L{self.leader_id}" if self.leader_id >= 0 else ""
        vote = f" V{self.voted_key.node_id}" if self.voted_key else ""
        return f"{self.name} e{self.epoch}{leader}{vote}"

    def __repr__(self) -> str:
        return self._who()
