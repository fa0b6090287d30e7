"""The back ends that break links between nodes, and the abilities of each."""

from __future__ import annotations

from typing import NamedTuple

CUT, HOLD, DELAY, LOSS, DUPLICATE, REORDER = "cut", "hold", "delay", "loss", "duplicate", "reorder"
"""Abilities. HOLD: deliver later what was sent while the link was cut."""


class BackEnd(NamedTuple):
    """`needs` are capabilities of the machine, `does` the abilities. `module` is the holder's module in this room, "" if nodes
    stay on the machine's loopback address.
    """

    name: str
    summary: str
    does: frozenset[str]
    needs: tuple[str, ...] = ()
    module: str = ""


LINKS, NETNS, NFT = "links", "netns", "nft"
NETS: dict[str, BackEnd] = {
    back_end.name: back_end
    for back_end in (
        BackEnd(
            LINKS,
            "proxies between the nodes, for whole messages",
            frozenset({CUT, HOLD, DELAY, LOSS, DUPLICATE, REORDER}),
            ("links",),
        ),
        BackEnd(
            NETNS,
            "a network namespace for each node, and a switch in a program",
            frozenset({CUT, HOLD, DELAY, LOSS, DUPLICATE, REORDER}),
            ("netns",),
            "tap_network",
        ),
        BackEnd(
            NFT,
            "a network namespace for each node, a bridge of the kernel, and nftables",
            frozenset({CUT, LOSS, DUPLICATE}),
            ("nft",),
            "nft_network",
        ),
    )
}
"""By name, in the order of help and doctor."""
