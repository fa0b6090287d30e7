"""The mutations: of Raft (R), of the controller (C), of moves between log directories (M), further ones (X), and the canary."""

from __future__ import annotations

from .mutation import CONTROLLERS, HASH_SEEDS, LOG_DIRS, PROCESSES, Mutation, Plant


def _consensus(*names: str) -> tuple[Plant, ...]:
    return tuple(Plant(name) for name in names)


def _controllers(*names: str) -> tuple[Plant, ...]:
    return tuple(Plant(name, CONTROLLERS) for name in names)


def _moves(*names: str) -> tuple[Plant, ...]:
    return tuple(Plant(name, LOG_DIRS) for name in names)


STRETCH = "X"
"""Ids of the further ones begin so."""
CANARY = "CANARY"

MUTATIONS: dict[str, Mutation] = {
    row.id: row
    for row in (
        Mutation("R1", "vote answered before it is durable", "crash after vote", _consensus("vote-before-store")),
        Mutation("R2", "epoch bump kept in memory only", "crash", _consensus("epoch-not-stored")),
        Mutation("R3", "fetch position acknowledged before fsync", "power loss", _consensus("fetch-before-flush")),
        Mutation("R4", "leader counts its own unflushed tail", "power loss of the leader", _consensus("unsynced-counts")),
        Mutation("R5", "second vote in one epoch", "split election", _consensus("second-vote", "vote-forgotten")),
        Mutation("R6", "half is a majority", "partition", _consensus("half-is-a-majority")),
        Mutation(
            "R7",
            "up-to-date check by offset only, epoch only, or not at all",
            "stale candidate",
            _consensus("only-length-counts", "only-the-last-epoch-counts", "any-log-is-good-enough"),
        ),
        Mutation("R8", "high watermark by records of an older epoch", "leader kills", _consensus("older-epochs-by-counting")),
        Mutation("R9", "high watermark of fewer than a majority", "any lag", _consensus("minority-commits")),
        Mutation("R10", "a log end is taken that was not compared", "divergent tail", _consensus("no-divergence")),
        Mutation("R11", "follower truncates more than differs", "divergence", _consensus("truncates-the-whole-epoch")),
        Mutation("R12", "divergence ignored, never truncates", "divergent tail", _consensus("never-truncates")),
        Mutation(
            "R13",
            "follower's high watermark not clamped to what agrees",
            "divergent tail",
            _consensus("committed-before-truncated", "own-end-is-committed"),
        ),
        Mutation("R14", "leader takes a diverging fetch as progress", "leader change", _consensus("divergence-is-progress")),
        Mutation(
            "R15",
            "linearizable read from local state",
            "partitioned leader",
            (*_consensus("read-without-a-round"), Plant("linearizable-read-as-it-is", "registers")),
        ),
        Mutation("R16", "read before the leader's first own record", "election", _consensus("read-before-own-commit")),
        Mutation("R17", "a leader of an older epoch is followed", "delayed message", _consensus("old-leader-followed")),
        Mutation(
            "R18",
            "a vote or an acknowledgement of an older epoch is counted",
            "message delayed across elections",
            _consensus("older-votes-count", "older-fetches-count"),
        ),
        Mutation("R19", "cut-off leader never resigns", "asymmetric partition", _consensus("never-resigns")),
        Mutation(
            "R20",
            "snapshot's id wrong, or the log dropped before it is durable",
            "crash, snapshot",
            _consensus("snapshot-named-by-the-last-epoch", "cleaned-above-the-snapshot", "segments-removed-before-the-install"),
        ),
        Mutation(
            "R21",
            "voters in force once committed, or two changes at once",
            "partition, membership",
            _consensus("voters-effective-on-commit", "no-settled-gate"),
        ),
        Mutation(
            "R22",
            "bad crc ignored, or an fsync error swallowed",
            "torn write, EIO",
            _consensus("crc-ignored", "fsync-error-swallowed"),
        ),
        Mutation("C1", "no deduplication by request id", "retry", _controllers("no-deduplication")),
        Mutation("C2", "reply at append, not at commit", "leader isolated", _controllers("answer-before-commit")),
        Mutation(
            "C3",
            "uncommitted state visible to reads, or kept on resignation",
            "leader loses its epoch",
            (*_controllers("revert-forgotten"), Plant("uncommitted-state-shown", "registers")),
        ),
        Mutation("C4", "broker-epoch check missing", "zombie", _controllers("broker-epoch-unchecked")),
        Mutation("C5", "broker epoch reused", "restarts", _controllers("broker-epoch-reused")),
        Mutation(
            "C6", "reassignment ends before the target is in sync", "new replica lags", _controllers("reassigned-too-early")
        ),
        Mutation("C7", "leader is fenced or outside the ISR", "broker silent", _controllers("leaderships-stay")),
        Mutation("C8", "partition epoch not compared", "concurrent ISR change", _controllers("partition-epoch-unchecked")),
        Mutation(
            "C9",
            "one operation in two batches",
            "kill between batches",
            _controllers("transaction-in-parts", "outcome-apart"),
        ),
        Mutation(
            "C10",
            "snapshot omits a table",
            "snapshot, restart",
            _controllers("outcomes-not-in-snapshots", "queue-not-in-snapshots"),
        ),
        Mutation("M1", "swap before the future copy has the last batch", "appends during the move", _moves("M1-swap+M1-ends")),
        Mutation("M2", "future files not fsynced before the swap", "power loss", _moves("M2")),
        Mutation("M3", "no directory fsync after rename", "power loss", _moves("M3")),
        Mutation("M4", "source deleted before the rename is durable", "power loss", _moves("M4")),
        Mutation("M5", "controller told before the data are durable", "crash, with M7", _moves("M5+M7")),
        Mutation("M6", "recovery promotes an incomplete copy", "crash during copy", _moves("M6")),
        Mutation("M7", "recovery creates an empty log", "crash between swap and report", _moves("M7")),
        Mutation(
            "M8",
            "epoch cache or checkpoints not carried along",
            "move of an idle partition",
            _moves("M8-epochs", "M8-checkpoints"),
        ),
        Mutation("X1", "copy verified by length only", "leader change, power loss", _moves("X1-level+X1-align")),
        Mutation("X2", "no space during a copy counts as done", "full disk", _moves("X2-append", "X2-copy")),
        Mutation("X3", "truncation during a copy not mirrored", "leader change", _moves("X3-cut+X3-align")),
        Mutation("X4", "election timer not reset by fetches", "none", _consensus("timer-runs-on")),
        Mutation("X5", "higher epoch ignored by a leader", "partition", _consensus("higher-epoch-ignored")),
        Mutation("X6", "vote not cleared on a new epoch", "election", _consensus("vote-kept-in-new-epoch")),
        Mutation("X7", "pre-vote in spite of a live leader", "none", _consensus("pre-vote-in-spite-of-a-leader")),
        Mutation("X8", "session timeout on the wall clock", "clock set back", _controllers("contacts-by-the-wall-clock")),
        Mutation(
            "X9", "a set of strings is iterated while applying", "another hash seed", (Plant("answers-in-a-set", HASH_SEEDS),)
        ),
        Mutation("X10", "stale progress overwrites newer", "reordering", _consensus("high-watermark-follows-late-fetches")),
        Mutation(
            "X11", "removed voter still counted", "membership", _consensus("old-set-commits", "removed-leader-counts-itself")
        ),
        Mutation("X12", "observers counted", "observers lead voters", _consensus("observers-count")),
        Mutation(CANARY, "a real node whose fsyncs do nothing", "power loss", (Plant("syncs-ignored", PROCESSES),)),
    )
}
