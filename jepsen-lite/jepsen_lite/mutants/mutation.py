"""What a mutation is: an id, what is wrong, and the bugs to plant that make it so.

A planted bug is a patch of one function from outside (`simulation/consensus/mutants`, `simulation/metadata/mutants`); production
code has no switch for it, and a patch whose target is gone says so. A *game* is where it is hunted: which world, and who asks.
"""

from __future__ import annotations

from typing import NamedTuple

CONSENSUS = "consensus"
"""The quorum alone, with clients that append and read lists."""
CONTROLLERS = "controllers"
"""Controllers on top, with the simulator's own administrator and brokers."""
HASH_SEEDS = "hash-seeds"
"""Controllers, each seed in two processes that hash strings differently: they must do the same."""
PROCESSES = "processes"
"""Real nodes on disks of their own (`canary.py`): once, and only where a machine can."""
LOG_DIRS = "log-dirs"
"""Moves between log directories: every image that a crash may leave, one after the other. Its seeds are images."""


class Plant(NamedTuple):
    """A bug, by the name in the registry of its game. Any other game is the name of a workload in the simulated world."""

    name: str
    game: str = CONSENSUS


class Mutation(NamedTuple):
    """`fault`: what has to go wrong for it to show. All of `plants` must be found."""

    id: str
    about: str
    fault: str
    plants: tuple[Plant, ...]
