"""A network that the kernel switches: veth pairs to a bridge in a namespace of the holder, links broken by nftables.

Theory of operation. Frames from a node pass a chain in the ingress hook of the bridge's end of its pair, before the bridge. There
the hardware address of the target selects the chain of that directed link. The chain is empty while the link is whole; otherwise
it has rules: drop, reject with a TCP reset, drop or duplicate at random. The rules of many links change in one transaction.
Frames pass no program, so this is fast, and the kernel's random numbers decide. The kernel cannot hold or delay frames.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from kraftlab.lab import namespaces

from .addresses import OBSERVER, CannotMake, LinkChange, LinkState, Place, configure, ip, run
from .namespace_holder import hold

BRIDGE = "kraftlab"
TABLE = "netdev kraftlab"
_PARTS = 1_000_000
"""The resolution of probabilities."""


class NftNetwork:
    """The bridge and its ends of all pairs are in the namespace in which it is made."""

    def __init__(self, places: Mapping[int, Place], paths: Mapping[int, str], seed: int) -> None:
        self._places = {node: places[node] for node in paths}
        home = os.open(namespaces.OWN, os.O_RDONLY | os.O_CLOEXEC)
        name = f"kraftlab{os.getpid()}"
        try:
            ip(
                f"link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0",
                f"link set {BRIDGE} up",
                *(line for node, place in self._places.items() for line in _pair(name, place, paths[node])),
            )
            run("nft", "-f", "-", text="\n".join(_table(self._places)))
            for node, place in self._places.items():
                namespaces.enter(paths[node])
                configure(name, place, places.values())
        finally:
            namespaces.enter(f"/proc/self/fd/{home}")
            os.close(home)

    @property
    def descriptors(self) -> Iterable[int]:
        return ()

    def ready(self, descriptor: int) -> None:
        """There is nothing to read."""

    def pause_s(self) -> float | None:
        return None

    def deliver(self) -> None:
        """The kernel delivers."""

    def change(self, change: LinkChange) -> None:
        lines = [line for state in change.states for line in rules(state, self._places)]
        run("nft", "-f", "-", text="\n".join(lines))

    def close(self) -> None:
        if OBSERVER in self._places:
            with contextlib.suppress(CannotMake):  # the harness was killed, and its end of the pair is gone
                ip(f"link delete {_port(self._places[OBSERVER])}")


def _port(place: Place) -> str:
    """Return the name of the bridge's end of a pair."""
    return f"port{place.number}"


def _pair(name: str, place: Place, path: str) -> Iterator[str]:
    yield f"link add {_port(place)} type veth peer name {name} netns {path}"
    yield f"link set {_port(place)} master {BRIDGE} up"


def _chain(source: Place, target: Place) -> str:
    return f"{TABLE} link_{source.number}_{target.number}"


def _table(places: Mapping[int, Place]) -> Iterator[str]:
    """Yield the rules that select a chain for each frame."""
    yield f"add table {TABLE}"
    for source in places.values():
        others = [target for target in places.values() if target != source]
        for target in others:
            yield f"add chain {_chain(source, target)}"
        ingress = f"{TABLE} from_{source.number}"
        yield f'add chain {ingress} {{ type filter hook ingress device "{_port(source)}" priority 0; policy accept; }}'
        verdicts = ", ".join(f"{target.hardware_text} : jump {_chain(source, target).rpartition(' ')[2]}" for target in others)
        yield f"add rule {ingress} ether daddr vmap {{ {verdicts} }}"


def rules(state: LinkState, places: Mapping[int, Place]) -> Iterator[str]:
    """Yield lines of nft that put a link into this state. CannotMake if nftables cannot do it."""
    shape = state.shape
    late = [name for name in ("delay_ms", "jitter_ms", "reorder") if getattr(shape, name)]
    if late:
        raise CannotMake(
            f"nftables can lose and duplicate packets but not delay them ({', '.join(late)}); --net links and netns can"
        )
    source, target = places[state.source], places[state.target]
    chain = _chain(source, target)
    yield f"flush chain {chain}"
    if state.cut == "reset":
        yield f"add rule {chain} meta l4proto tcp reject with tcp reset"
    if state.cut is not None:
        yield f"add rule {chain} drop"
    for chance, verdict in ((shape.loss, "drop"), (shape.duplicate, f'dup to "{_port(target)}"')):
        parts = round(chance * _PARTS)
        if parts:
            yield f"add rule {chain} {f'numgen random mod {_PARTS} < {parts} ' if parts < _PARTS else ''}{verdict}"


if __name__ == "__main__":
    hold(NftNetwork)
