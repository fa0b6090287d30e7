"""Networks in which a cluster's nodes may live instead of on this machine's loopback address."""

from __future__ import annotations

from typing import Protocol

from .shape import Cut, LinkShape

Links = list[tuple[int, int]]
"""(source, target) of each."""


class LinkControl(Protocol):
    """Faults of links; proxies apply them to messages, networks to packets. Thread-safe. ClusterError."""

    def cut(self, pairs: Links, cut: Cut) -> None:
        """Let nothing pass; shapes stay."""

    def heal(self, pairs: Links, *, drop: bool = False) -> None:
        """Clear the links; held messages are released, or dropped."""

    def shape(self, pairs: Links, shape: LinkShape) -> None:
        """Shape the links; links that are cut stay cut."""

    def heal_all(self, *, drop: bool = False) -> None:
        """As `heal`, for all links."""


class Network(LinkControl, Protocol):
    """A network with an address and a namespace for each node. The caller that made it closes it, after the cluster. Packets over
    a cut link arrive when the link is healed.
    """

    def host(self, node_id: int) -> str:
        """The node's address. ClusterError if it has no place here."""

    def namespace(self, node_id: int) -> str:
        """A path of the node's namespace. ClusterError if it has no place here."""
