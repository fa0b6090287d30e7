"""The mutations: of Raft (R), of the controller (C), of moves between log directories (M), further ones (X), and the canary.

A mutation is a mistake that people make in such systems; its bugs are rows in the tables of planted bugs. A *game* is the world
and the clients with which a bug is hunted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kraftlab.checking.mutant import MutantDoesNotApply, Table
from kraftlab.simulation.consensus.mutants import MUTANTS as OF_CONSENSUS
from kraftlab.simulation.crash_images.mutants import BUGS
from kraftlab.simulation.metadata import mutants as of_controllers

CONSENSUS = "consensus"
"""The quorum alone, with clients that append and read lists."""
CONTROLLERS = "controllers"
"""Controllers, with the simulator's own administrator and brokers."""
HASH_SEEDS = "hash-seeds"
"""Controllers, each seed in two processes with different hash seeds, whose steps must be equal."""
PROCESSES = "processes"
"""Real nodes on disks of their own (`canary.py`): once, and only on a machine that can do it."""
LOG_DIRS = "log-dirs"
"""Moves between log directories: every possible crash image, one after the other. Its seeds are images."""

TABLES: dict[str, Table[Any]] = {
    CONSENSUS: OF_CONSENSUS,
    CONTROLLERS: of_controllers.MUTANTS,
    "registers": of_controllers.FOR_CLIENTS,
    HASH_SEEDS: of_controllers.FOR_TWO_PROCESSES,
    LOG_DIRS: BUGS,
}
"""The planted bugs by game. "registers" is a workload in the simulated world."""
SYNCS_IGNORED = "syncs-ignored"
"""The bug of the canary, which is below the code."""


class Mutation(NamedTuple):
    """All of `bugs` must be found. Bugs that must be planted together share one name ("M5+M7")."""

    id: str
    about: str
    bugs: tuple[str, ...]


def game_of(bug: str) -> str:
    """Return the game in which a bug is hunted. MutantDoesNotApply if the bug is unknown."""
    if bug == SYNCS_IGNORED:
        return PROCESSES
    for game, table in TABLES.items():
        if bug.partition("+")[0] in table:
            return game
    raise MutantDoesNotApply(f"{bug}: unknown bug")


STRETCH = "X"
"""Prefix of the ids of further mutations."""
CANARY = "CANARY"

_ROWS = (
    ("R1", "vote answered before it is durable", "vote-before-store"),
    ("R2", "epoch bump kept in memory only", "epoch-not-stored"),
    ("R3", "fetch position acknowledged before fsync", "fetch-before-flush"),
    ("R4", "leader counts its own unflushed tail", "unsynced-counts"),
    ("R5", "second vote in one epoch", "second-vote", "vote-forgotten"),
    ("R6", "half is a majority", "half-is-a-majority"),
    (
        "R7",
        "up-to-date check by offset only, epoch only, or not at all",
        "only-length-counts",
        "only-the-last-epoch-counts",
        "any-log-is-good-enough",
    ),
    ("R8", "high watermark by records of an older epoch", "older-epochs-by-counting"),
    ("R9", "high watermark of fewer than a majority", "minority-commits"),
    ("R10", "a log end is taken that was not compared", "no-divergence"),
    ("R11", "follower truncates more than differs", "truncates-the-whole-epoch"),
    ("R12", "divergence ignored, never truncates", "never-truncates"),
    ("R13", "follower's high watermark not clamped to what agrees", "committed-before-truncated", "own-end-is-committed"),
    ("R14", "leader takes a diverging fetch as progress", "divergence-is-progress"),
    ("R15", "linearizable read from local state", "read-without-a-round", "linearizable-read-as-it-is"),
    ("R16", "read before the leader's first own record", "read-before-own-commit"),
    ("R17", "a leader of an older epoch is followed", "old-leader-followed"),
    ("R18", "a vote or an acknowledgement of an older epoch is counted", "older-votes-count", "older-fetches-count"),
    ("R19", "cut-off leader never resigns", "never-resigns"),
    (
        "R20",
        "snapshot's id wrong, or the log dropped before it is durable",
        "snapshot-named-by-the-last-epoch",
        "cleaned-above-the-snapshot",
        "segments-removed-before-the-install",
    ),
    (
        "R21",
        "voters in force once committed, or two changes at once",
        "voters-effective-on-commit",
        "no-settled-gate",
        "overdue-change-forgotten",
    ),
    ("R22", "bad crc ignored, or an fsync error swallowed", "crc-ignored", "fsync-error-swallowed"),
    ("C1", "no deduplication by request id", "no-deduplication"),
    ("C2", "reply at append, not at commit", "answer-before-commit"),
    ("C3", "uncommitted state visible to reads, or kept on resignation", "revert-forgotten", "uncommitted-state-shown"),
    ("C4", "broker-epoch check missing", "broker-epoch-unchecked"),
    ("C5", "broker epoch reused", "broker-epoch-reused"),
    ("C6", "reassignment ends before the target is in sync", "reassigned-too-early"),
    ("C7", "leader is fenced or outside the ISR", "leaderships-stay"),
    ("C8", "partition epoch not compared", "partition-epoch-unchecked"),
    ("C9", "one operation in two batches", "transaction-in-parts", "outcome-apart"),
    ("C10", "snapshot omits a table", "outcomes-not-in-snapshots", "queue-not-in-snapshots"),
    ("M1", "swap before the future copy has the last batch", "M1-swap+M1-ends"),
    ("M2", "future files not fsynced before the swap", "M2"),
    ("M3", "no directory fsync after rename", "M3"),
    ("M4", "source deleted before the rename is durable", "M4"),
    ("M5", "controller notified before the data are durable", "M5+M7"),
    ("M6", "recovery promotes an incomplete copy", "M6"),
    ("M7", "recovery creates an empty log", "M7"),
    ("M8", "epoch cache or checkpoints not carried along", "M8-epochs", "M8-checkpoints"),
    ("X1", "copy verified by length only", "X1-level+X1-align+X1-sync"),
    ("X2", "no space during a copy counts as done", "X2-append", "X2-copy"),
    ("X3", "truncation during a copy not mirrored", "X3-cut+X3-align"),
    ("X4", "election timer not reset by fetches", "timer-runs-on"),
    ("X5", "higher epoch ignored by a leader", "higher-epoch-ignored"),
    ("X6", "vote not cleared on a new epoch", "vote-kept-in-new-epoch"),
    ("X7", "pre-vote in spite of a live leader", "pre-vote-in-spite-of-a-leader"),
    ("X8", "session timeout on the wall clock", "contacts-by-the-wall-clock"),
    ("X9", "a set of strings is iterated while applying", "answers-in-a-set"),
    ("X10", "stale progress overwrites newer", "high-watermark-follows-late-fetches"),
    ("X11", "removed voter still counted", "old-set-commits", "removed-leader-counts-itself"),
    ("X12", "observers counted", "observers-count"),
    (CANARY, "a real node whose fsyncs do nothing", SYNCS_IGNORED),
)
MUTATIONS: dict[str, Mutation] = {id: Mutation(id, about, tuple(bugs)) for id, about, *bugs in _ROWS}
