"""A kind of fault: a row of the table in `kinds.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, NamedTuple

from .cluster_under_faults import ClusterUnderFaults

Fault = AbstractAsyncContextManager[None]
"""Entering it strikes; leaving it undoes the fault, however it is left."""


class Shape(NamedTuple):
    """The size of the cluster that a plan is drawn for."""

    controllers: int
    brokers: int


class Draft(NamedTuple):
    """The effect of an action, before it has a time. Drafts drawn together begin together."""

    target: str
    arguments: dict[str, Any] = {}


class Hit:
    """One action as it strikes. `nodes` are first the nodes that its target means, then those that the fault strikes; `links` are
    the links concerned; faults write to `detail`, a text for people. `random` is the action's own generator.
    """

    def __init__(self, nodes: tuple[int, ...], arguments: Mapping[str, Any], random: Random) -> None:
        self.nodes = nodes
        self.arguments = arguments
        self.random = random
        self.links: tuple[tuple[int, int], ...] = ()
        self.detail = ""


class Rhythm(NamedTuple):
    """Pauses between strikes and durations of strikes, in intervals of the run (lowest, highest)."""

    pause: tuple[float, float] = (0.3, 1.5)
    duration: tuple[float, float] = (0.2, 1.2)


class Kind(NamedTuple):
    """`needs` are capabilities (`capabilities.py`), `breaks_links`: a back end applies the fault (`networks/back_ends.py`).
    `ends_nodes`: a node may end by itself.
    """

    name: str
    summary: str
    draw: Callable[[Random, Shape], list[Draft]]
    fault: Callable[[ClusterUnderFaults, Hit], Fault]
    needs: tuple[str, ...] = ()
    breaks_links: bool = False
    rhythm: Rhythm = Rhythm()
    ends_nodes: bool = False


def one_of(random: Random, weights: Mapping[str, float]) -> str:
    """Return one of the words at random, by weight."""
    return random.choices(tuple(weights), tuple(weights.values()))[0]
