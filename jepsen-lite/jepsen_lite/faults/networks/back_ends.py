"""What links between nodes can be broken by, and what each of that can do."""

from __future__ import annotations

from typing import NamedTuple

CUT, HOLD, DELAY, LOSS, DUPLICATE, REORDER = "cut", "hold", "delay", "loss", "duplicate", "reorder"
"""What can be asked of a link. To hold is to deliver later what was sent while it was cut."""


class BackEnd(NamedTuple):
    """`needs` are capabilities of the machine, `does` what can be asked of links. `module` is the holder's of this room, "" if
    nodes stay on the machine's loopback address.
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
            "proxies between the nodes: whole messages",
            frozenset({CUT, HOLD, DELAY, LOSS, DUPLICATE, REORDER}),
            ("links",),
        ),
        BackEnd(
            NETNS,
            "a network namespace for each node, and a program that switches their frames",
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
