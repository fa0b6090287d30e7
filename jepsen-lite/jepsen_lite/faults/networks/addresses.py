"""Places of nodes in a network that a run makes for itself, and the messages between the run and the holder of the network.

Addresses are of 198.18.0.0/24, which is reserved for tests of networks (RFC 2544). Everybody knows the hardware address of
everybody else from the beginning: nobody asks for one, so a link that is cut for long is no address that was forgotten.
"""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kraftlab.lab.links.shape import PLAIN, LinkShape

OBSERVER = -1
"""The place of the harness itself, whose links are never touched."""
PLACES_MAX = 250
_SUBNET = ipaddress.IPv4Network("198.18.0.0/24")
_OBSERVER_NUMBER = 254
_HARDWARE = b"\x02\x6b\x6c\x00\x00"
"""Locally administered."""
_COMMAND_TIMEOUT_S = 20.0


class Place(NamedTuple):
    """`number` tells places of one network apart."""

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
    """The place of each node, by the order in which they are named; the observer's is always there."""
    return {**{node: Place(number) for number, node in enumerate(nodes, 1)}, OBSERVER: Place(_OBSERVER_NUMBER)}


class Setup(msgspec.Struct, frozen=True):
    """What to make. `observer` names the namespace of the harness, "" if it does not take part."""

    nodes: tuple[int, ...]
    observer: str = ""
    seed: int = 0


class LinkState(msgspec.Struct, frozen=True):
    """What a link is to do from now on. `cut` is "hold", "reset" or None, as in `links/link.py`."""

    source: int
    target: int
    cut: str | None = None
    shape: LinkShape = PLAIN

    @property
    def link(self) -> tuple[int, int]:
        return self.source, self.target


class Change(msgspec.Struct, frozen=True):
    """All at one instant. `drop`: what links held that are not cut any more is lost, else it comes late."""

    states: tuple[LinkState, ...]
    drop: bool = False


class Reply(msgspec.Struct, frozen=True):
    """Setup or change was carried out, or `error` says why not. `namespaces` are paths to those of the nodes."""

    error: str = ""
    namespaces: dict[int, str] = {}


class CannotMake(Exception):
    """A part of a network cannot be had here; the text says which, and why."""


def configure(device: str, own: Place, others: Iterable[Place]) -> None:
    """Gives a device in this namespace its addresses and those of all others. CannotMake."""
    strangers = [other for other in others if other != own]
    ip(
        "link set dev lo up",
        f"link set dev {device} address {own.hardware_text}",
        f"addr add {own.address}/{_SUBNET.prefixlen} dev {device}",
        f"link set dev {device} up",
        *(f"neigh replace {other.address} lladdr {other.hardware_text} dev {device} nud permanent" for other in strangers),
    )


def ip(*lines: str) -> None:
    """Carries out lines of `ip` in this namespace. CannotMake."""
    run("ip", "-batch", "-", text="\n".join(lines) + "\n")


def run(*command: str, text: str) -> None:
    """Lets a command read the text. CannotMake says what it had against that."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise CannotMake(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise CannotMake(f"`{' '.join(command)}` did not end within {_COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise CannotMake(f"`{' '.join(command)}`: {said or f'exit code {done.returncode}'}")
