"""Faults of the links between the nodes of a local cluster, if it was started with allow_chaos."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .cluster_plan import HOST, ClusterError, ClusterPlan, NodePlan
from .links.shape import PLAIN, Cut, LinkShape

if TYPE_CHECKING:
    from .links.network import LinkControl, Network
    from .links.proxies import LinkProxies, LinkStatus


class ProxiedLinks:
    """Part of `LocalCluster`. Links are directed and named by node ids; methods may be called from any thread.

    In a network of the cluster's own, faults apply to packets instead of messages; see `links/network.py`.
    """

    plan: ClusterPlan
    node: Callable[[int], NodePlan]

    def __init__(self, seed: int, network: Network | None = None) -> None:
        self._link_seed = seed
        self._network = network
        self._proxies: LinkProxies | None = None

    @property
    def links_are_proxied(self) -> bool:
        """True if there are proxies between the nodes: the cluster was made with `allow_chaos`."""
        return all(node.listen_port is not None for node in self.plan.nodes)

    def cut(self, source: int, target: int, *, reset: bool = False) -> None:
        """Hold every message from `source` to `target`, requests and answers; with `reset`, break their connections."""
        self.cut_all([(source, target)], reset=reset)

    def heal(self, source: int, target: int, *, drop: bool = False) -> None:
        """Clear the link; held messages come late, or are lost with `drop`."""
        self.heal_links([(source, target)], drop=drop)

    def shape(self, source: int, target: int, shape: LinkShape) -> None:
        """Delay, lose, double or reorder messages from `source` to `target` from now on; a cut link stays cut."""
        self.shape_links([(source, target)], shape)

    def heal_all(self, *, drop: bool = False) -> None:
        """Clear every link. Does nothing in a cluster without proxies and network."""
        control = self._network or self._proxies
        if control is not None:
            control.heal_all(drop=drop)

    def cut_all(self, links: list[tuple[int, int]], *, reset: bool = False) -> None:
        """Cut several links at one instant."""
        self._of(links).cut(links, Cut.RESET if reset else Cut.HOLD)

    def heal_links(self, links: list[tuple[int, int]], *, drop: bool = False) -> None:
        """Heal several links at one instant."""
        self._of(links).heal(links, drop=drop)

    def shape_links(self, links: list[tuple[int, int]], shape: LinkShape) -> None:
        """Shape several links at one instant. ClusterError for faults of single messages that TLS hides."""
        if self.plan.secure and self.links_are_proxied and (shape.loss or shape.duplicate or shape.reorder):
            raise ClusterError(
                "TLS hides the messages between these nodes, so none can be lost, doubled or reordered; cut or slow the link "
                "instead (kraftlab cluster cut, slow), or start a cluster without --secure"
            )
        self._of(links).shape(links, shape)

    def what_cuts_do(self, *, reset: bool = False) -> str:
        """Effect of a cut on messages, for people."""
        if reset:
            return "connections break"
        return "messages wait" if self._network is None else "packets wait"

    def links_status(self) -> list[LinkStatus]:
        """The links with faults. Networks do not report theirs."""
        return self._proxies.status() if self._proxies is not None else []

    def _host(self, node_id: int) -> str:
        """The address of a node."""
        return HOST if self._network is None else self._network.host(node_id)

    def _of(self, links: list[tuple[int, int]]) -> LinkControl:
        for source, target in links:
            if self.node(source) == self.node(target):
                raise ClusterError(f"{self.node(source).name} has no link to itself; name two nodes")
        if self._network is not None:
            return self._network
        if not self.links_are_proxied:
            raise ClusterError(
                "the links of this cluster cannot be changed; start it with allow_chaos (kraftlab up --allow-chaos)"
            )
        self._start_proxies()
        assert self._proxies is not None, "just started"
        return self._proxies

    def _start_proxies(self) -> None:
        """Start missing proxies. A proxy without its port tries again each second, with a warning."""
        if not self.links_are_proxied:
            return
        from .links.frame_splitter import FrameSplitter
        from .links.introduction import ByteSplitter
        from .links.proxies import LinkProxies

        if self._proxies is None:
            self._proxies = LinkProxies(HOST, self._link_seed, ByteSplitter if self.plan.secure else FrameSplitter)
        self._proxies.add({node.node_id: (node.peer_port, node.listens.port) for node in self.plan.nodes})

    def _close_proxies(self) -> None:
        if self._proxies is not None:
            self._proxies.close()
            self._proxies = None


__all__ = ("PLAIN", "LinkShape", "ProxiedLinks")
