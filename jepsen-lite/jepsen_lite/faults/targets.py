"""Targets of faults: symbolic names that are resolved when the fault strikes.

    controller:N  broker:N     the Nth of them by id, from 0, or the one with that id
    controller  broker  node   one of them, at random
    leader                     the active controller
    new-leader                 the winner of the next election, for which the strike waits
    follower                   a controller that does not lead, at random
    minority  majority         so many controllers, at random; the minority of one is empty
    controllers  brokers  all  every one

Roles are resolved to nodes that run, if there are any. Without a leader, "leader" is a random controller, so that a plan strikes
as often as it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

NEW_LEADER = "new-leader"
WORDS = (
    *("leader", NEW_LEADER, "follower", "controller", "broker", "node"),
    *("minority", "majority", "controllers", "brokers", "all"),
)
OF_LEADER = ("leader", "follower")
"""Targets that depend on the leader."""


class View(NamedTuple):
    """The state of a cluster: its nodes by id, the running ones, and the leader (None: unknown)."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    up: frozenset[int]
    leader: int | None = None

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.controllers, *self.brokers)


class NoSuchTarget(Exception):
    """No node matches the target; the text names the target and the nodes."""


def target_nodes(word: str, view: View, random: Random) -> tuple[int, ...]:
    """Return the nodes that `word` means now, by id. NoSuchTarget."""
    role, colon, number = word.partition(":")
    if colon:
        return (_placed(word, role, number, view),)
    found = tuple(sorted(_of_word(word, view, random)))
    if not found:
        raise NoSuchTarget(f"the target {word!r} matches none of {_text(view.nodes)}")
    return found


def _of_word(word: str, view: View, random: Random) -> Sequence[int]:
    match word:
        case "all":
            return view.nodes
        case "controllers":
            return view.controllers
        case "brokers":
            return view.brokers
        case "leader" | "new-leader":
            return _one_of(view.controllers, view, random) if view.leader is None else (view.leader,)
        case "follower":
            return _one_of([node for node in view.controllers if node != view.leader], view, random)
        case "controller":
            return _one_of(view.controllers, view, random)
        case "broker":
            return _one_of(view.brokers, view, random)
        case "node":
            return _one_of(view.nodes, view, random)
        case "minority":
            return random.sample(view.controllers, (len(view.controllers) - 1) // 2)
        case "majority":
            return random.sample(view.controllers, len(view.controllers) // 2 + 1)
    raise NoSuchTarget(f"unknown target {word!r}; known: {', '.join(WORDS)}, controller:N, broker:N")


def _one_of(nodes: Sequence[int], view: View, random: Random) -> Sequence[int]:
    candidates = [node for node in nodes if node in view.up] or list(nodes)
    return (random.choice(candidates),) if candidates else ()


def _placed(word: str, role: str, number: str, view: View) -> int:
    nodes = sorted({"controller": view.controllers, "broker": view.brokers}.get(role, ()))
    if number.isdecimal():
        if int(number) in nodes:
            return int(number)
        if int(number) < len(nodes):
            return nodes[int(number)]
    raise NoSuchTarget(f"the target {word!r} matches none of {_text(view.nodes)}")


def _text(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "no nodes"
