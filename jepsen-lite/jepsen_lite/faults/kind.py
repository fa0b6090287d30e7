"""What a kind of fault is: a row of the table in `kinds.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, NamedTuple

from .cluster_under_faults import ClusterUnderFaults

Fault = AbstractAsyncContextManager[None]
"""Entering it strikes, leaving it undoes that, however it is left."""


class Shape(NamedTuple):
    """How large the cluster will be that a plan is drawn for."""

    controllers: int
    brokers: int


class Draft(NamedTuple):
    """What an action does, before it has a time. Those drawn together begin together."""

    target: str
    arguments: dict[str, Any] = {}


class Hit:
    """One action as it strikes. `nodes` is whom its word means now, then whom of these the fault strikes; `links` are those that
    its arguments mean; faults add to `detail`, which is for people. `random` is the action's own.
    """

    def __init__(self, nodes: tuple[int, ...], arguments: Mapping[str, Any], random: Random) -> None:
        self.nodes = nodes
        self.arguments = arguments
        self.random = random
        self.links: tuple[tuple[int, int], ...] = ()
        self.detail = ""


class Rhythm(NamedTuple):
    """How often a kind strikes and how long it lasts, in intervals of the run (lowest, highest)."""

    pause: tuple[float, float] = (0.3, 1.5)
    duration: tuple[float, float] = (0.2, 1.2)


class Kind(NamedTuple):
    """`needs` are names of capabilities (`capabilities.py`), `asks` what links must be able to do (`networks/back_ends.py`).
    `ends_nodes`: that a node ends by itself is what may be expected.
    """

    name: str
    summary: str
    draw: Callable[[Random, Shape], list[Draft]]
    fault: Callable[[ClusterUnderFaults, Hit], Fault]
    needs: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    rhythm: Rhythm = Rhythm()
    ends_nodes: bool = False


def one_of(random: Random, weights: Mapping[str, float]) -> str:
    """One of the words, the heavier the likelier."""
    return random.choices(tuple(weights), tuple(weights.values()))[0]
