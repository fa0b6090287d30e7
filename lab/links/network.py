"""Networks that a cluster's nodes may live in instead of on this machine's loopback address."""

from __future__ import annotations

from typing import Protocol

from .shape import Cut, LinkShape

Links = list[tuple[int, int]]
"""(source, target) of each."""


class LinkControl(Protocol):
    """What can be done to links; proxies do it to messages, networks to packets. Thread-safe. ClusterError."""

    def cut(self, pairs: Links, cut: Cut) -> None:
        """Nothing passes; shapes stay."""

    def heal(self, pairs: Links, *, drop: bool = False) -> None:
        """They are clear; what they held is released, or dropped."""

    def shape(self, pairs: Links, shape: LinkShape) -> None:
        """Links that are cut stay cut."""

    def heal_all(self, *, drop: bool = False) -> None:
        """As `heal`, for all links."""


class Network(LinkControl, Protocol):
    """Each node has an address and a network namespace of its own in it. Whoever made it closes it, after the cluster.

    `holds`: what is sent over a link that is cut comes when it is healed; else it is lost.
    """

    holds: bool

    def host(self, node_id: int) -> str:
        """The node's address. ClusterError if it has no place here."""

    def namespace(self, node_id: int) -> str:
        """A path that names the node's namespace. ClusterError as well."""
