"""The back ends that break links between nodes. Each can cut, delay, lose, duplicate and reorder."""

from __future__ import annotations

from typing import NamedTuple


class BackEnd(NamedTuple):
    """`needs` are capabilities of the machine. `has_namespaces`: nodes have a network of their own; otherwise they stay on the
    machine's loopback address.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    has_namespaces: bool


LINKS, NETNS = "links", "netns"
NETS: dict[str, BackEnd] = {
    back_end.name: back_end
    for back_end in (
        BackEnd(LINKS, "proxies between the nodes, for whole messages", ("links",), has_namespaces=False),
        BackEnd(NETNS, "a network namespace for each node, and a switch in a program", ("netns",), has_namespaces=True),
    )
}
"""By name, in the order of help and doctor."""
