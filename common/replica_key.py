"""Keys of replicas (KIP-853)."""

from __future__ import annotations

import msgspec

from .uuids import ZERO, to_text

NODE_ID_MAX = 2**31 - 1
"""Largest valid node id, Kafka's int32. No answer could repeat a larger one."""


class ReplicaKey(msgspec.Struct, frozen=True, array_like=True):
    """A replica: node id and id of the directory that holds its log (KIP-853).

    A wiped disk gets another directory id and is therefore another replica.
    """

    node_id: int
    directory_id: bytes = ZERO

    def matches(self, stored: ReplicaKey) -> bool:
        """Return True if this key may act as `stored`: same node id, and same directory if `stored` names one."""
        return self.node_id == stored.node_id and stored.directory_id in (ZERO, self.directory_id)

    def described(self) -> str:
        """Return the key as people read it."""
        return f"node {self.node_id} with directory id {to_text(self.directory_id)}"

    def __repr__(self) -> str:
        return f"n{self.node_id}"
