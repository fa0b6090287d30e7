"""The proven identity of the other end of a connection between nodes."""

from __future__ import annotations

from typing import NamedTuple


class PeerName(NamedTuple):
    """The identity that a peer has proven. `role` is that of a node ("controller", "broker"), or "" for a client."""

    principal: str
    role: str = ""
    node_id: int = -1

    def __str__(self) -> str:
        return f"{self.role} {self.node_id}" if self.role else self.principal
