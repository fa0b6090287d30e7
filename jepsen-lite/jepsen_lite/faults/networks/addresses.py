"""Addresses of nodes in a network of a run, and the messages between the run and the holder of the network.

Addresses are from 198.18.0.0/24, which is reserved for tests of networks (RFC 2544). Every node knows the hardware addresses of
all others from the beginning. So there are no ARP requests, and a link that is cut for long loses no address.
"""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kraftlab.lab.links.shape import PLAIN, LinkShape

OBSERVER = -1
"""The place of the harness itself. Its links are never touched."""
PLACES_MAX = 250
_SUBNET = ipaddress.IPv4Network("198.18.0.0/24")
_OBSERVER_NUMBER = 254
_HARDWARE = b"\x02\x6b\x6c\x00\x00"
"""Locally administered."""
_COMMAND_TIMEOUT_S = 20.0


class Place(NamedTuple):
    """`number` identifies the place within its network."""

    number: int

    @property
    def address(self) -> str:
        return str(_SUBNET[self.number])

    @property
    def hardware(self) -> bytes:
        return _HARDWARE + bytes([self.number])

    @property
    def hardware_text(self) -> str:
        return self.hardware.hex(":")


def places(nodes: Iterable[int]) -> dict[int, Place]:
    """Return the place of each node, in the given order, and the place of the observer."""
    return {**{node: Place(number) for number, node in enumerate(nodes, 1)}, OBSERVER: Place(_OBSERVER_NUMBER)}


class Setup(msgspec.Struct, frozen=True):
    """The network to make. `observer` is the namespace of the harness, "" if it does not take part."""

    nodes: tuple[int, ...]
    observer: str = ""
    seed: int = 0


class LinkState(msgspec.Struct, frozen=True):
    """The new state of a link. `cut` is "hold", "reset" or None, as in `links/link.py`."""

    source: int
    target: int
    cut: str | None = None
    shape: LinkShape = PLAIN

    @property
    def link(self) -> tuple[int, int]:
        return self.source, self.target


class LinkChange(msgspec.Struct, frozen=True):
    """Changes of links at one instant. `drop`: lose what the healed links held instead of delivering it late."""

    states: tuple[LinkState, ...]
    drop: bool = False


class Reply(msgspec.Struct, frozen=True):
    """The answer to a setup or a change; `error` is empty if it succeeded. `namespaces` are the paths of the nodes'
    namespaces.
    """

    error: str = ""
    namespaces: dict[int, str] = {}


class CannotMake(Exception):
    """A part of a network cannot be made here; the text says which and why."""


def configure(device: str, own: Place, others: Iterable[Place]) -> None:
    """Give a device in this namespace its addresses and those of all others. CannotMake."""
    strangers = [other for other in others if other != own]
    ip(
        "link set dev lo up",
        f"link set dev {device} address {own.hardware_text}",
        f"addr add {own.address}/{_SUBNET.prefixlen} dev {device}",
        f"link set dev {device} up",
        *(f"neigh replace {other.address} lladdr {other.hardware_text} dev {device} nud permanent" for other in strangers),
    )


def ip(*lines: str) -> None:
    """Run lines of `ip` in this namespace. CannotMake with its error message."""
    command, text = ("ip", "-batch", "-"), "\n".join(lines) + "\n"
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise CannotMake("ip is not installed") from None
    except subprocess.TimeoutExpired:
        raise CannotMake(f"`{' '.join(command)}` did not end within {_COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        output = " ".join((done.stderr or done.stdout).split())
        raise CannotMake(f"`{' '.join(command)}`: {output or f'exit code {done.returncode}'}")
