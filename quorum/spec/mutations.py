"""Planted bugs of consensus, written into the specification: TLC must find a bad state.

A mutation replaces lines of Kraftlab.tla, as the mutant of the same name replaces a function of the core
(simulation/consensus/mutants). Bugs below the grain of the specification have none: bytes, files, timers, answers to clients.
Neither have rules that only keep the quorum available.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from . import tlc
from .models import FIGURE_8, Model, configuration


class Mutation(NamedTuple):
    """Pairs of text in Kraftlab.tla and what replaces it, and the model in which the bug shows."""

    model: Model
    changes: tuple[tuple[str, str], ...]


def _one(model: Model, old: str, new: str) -> Mutation:
    return Mutation(model, ((old, new),))


ONE_EPOCH = Model("one-epoch", "", epochs=1, batches=1)
ONE_EPOCH_RESTART = ONE_EPOCH._replace(restarts=1)
TWO_EPOCHS = Model("two-epochs", "")
TWO_EPOCHS_RESTART = TWO_EPOCHS._replace(batches=1, proposals=0, restarts=1)
LONGER = Model("longer", "", epochs=3, batches=3, proposals=1, campaigns=3, turns=(1, 2, 1), sides=("1", "23", "1"))
TAKEN_OVER = Model("taken-over", "", batches=3, proposals=1, restarts=1, turns=(1, 2), sides=("12", "123"))
OBSERVED = Model("observed", "", nodes=3, voters=2)
CHANGING = Model(
    "changing",
    "",
    nodes=4,
    voters=4,
    epochs=3,
    batches=3,
    campaigns=3,
    proposals=0,
    changes=2,
    turns=(1, 2, 1),
    sides=("1", "24", "1"),
)
CHANGING_AGAIN = Model("changing-again", "", nodes=4, voters=3, epochs=2, batches=4, proposals=0, changes=2)
READING = Model("reading", "", proposals=0, reads=1, turns=(1, 2), sides=("12", "23"))
DEPOSED_TWICE = Model(
    "deposed-twice",
    "",
    epochs=4,
    batches=3,
    campaigns=4,
    proposals=0,
    reads=2,
    parts=("all messages",),
    turns=(1, 2, 1, 2),
    sides=("12", "2", "12", "23"),
)
EVERYTHING = ("all messages",)
"""For bugs that look at messages which a sound node ignores, and which the models therefore drop."""

MUTATIONS: dict[str, Mutation] = {
    # Elections
    "vote-before-store": _one(
        ONE_EPOCH_RESTART,
        "stores |-> Len(s.storing)",
        'stores |-> IF m.type = "VoteReply" THEN 0 ELSE Len(s.storing)',
    ),
    "vote-forgotten": _one(
        ONE_EPOCH_RESTART, 'Start("unattached", e.epoch, e.leader, e.voted)', 'Start("unattached", e.epoch, e.leader, Nobody)'
    ),
    "epoch-not-stored": _one(
        TWO_EPOCHS_RESTART,
        "Stores(n, s) == IF Requested(n, s) = Election(s)",
        "Stores(n, s) == IF Requested(n, s) = Election(s) \\/ (s.leader = Nobody /\\ s.voted = Nobody)",
    ),
    "leads-before-its-vote-is-stored": _one(
        Model("alone", "", nodes=2, voters=1, epochs=1, batches=1, restarts=1), "    /\\ HasStoredVote(n)\n", ""
    ),
    "pre-votes-count": Mutation(
        Model("pre", "", epochs=1, batches=1, parts=("pre-votes",)),
        (
            ("IsMajority(Granted(n, FALSE) \\cup {n}", "IsMajority(Granted(n, FALSE) \\cup Granted(n, TRUE) \\cup {n}"),
            ("!.grants = IF e = s.epoch THEN @ ELSE {}", "!.grants = @"),
        ),
    ),
    "any-log-is-good-enough": _one(TWO_EPOCHS, "    /\\ IsUpToDate(m.lastEpoch, m.end, s.log)\n    /\\ Move", "    /\\ Move"),
    "only-length-counts": _one(
        LONGER, "lastEpoch > LastEpoch(log) \\/ (lastEpoch = LastEpoch(log) /\\ end >= End(log))", "end >= End(log)"
    ),
    "only-the-last-epoch-counts": _one(
        TWO_EPOCHS,
        "lastEpoch > LastEpoch(log) \\/ (lastEpoch = LastEpoch(log) /\\ end >= End(log))",
        "lastEpoch >= LastEpoch(log)",
    ),
    "second-vote": _one(ONE_EPOCH._replace(parts=EVERYTHING), "    /\\ s.voted = Nobody\n", ""),
    "half-is-a-majority": _one(
        Model("pair", "", nodes=2, voters=2, epochs=1, batches=1),
        "    /\\ IsMajority(Granted(n, FALSE) \\cup {n}, Voters(s.log))\n",
        "    /\\ 2 * Cardinality(Granted(n, FALSE) \\cup {n}) >= Cardinality(Voters(s.log))\n",
    ),
    "vote-lost-in-pre-vote": _one(
        Model("pre", "", epochs=1, batches=1, parts=("pre-votes",)),
        'Move(n, "prospective", s.epoch, s.leader, s.voted)',
        'Move(n, "prospective", s.epoch, s.leader, Nobody)',
    ),
    "epoch-led-again": _one(
        ONE_EPOCH_RESTART._replace(batches=2), 'Start("resigned", e.epoch, n, e.voted)', 'Start("leader", e.epoch, n, e.voted)'
    ),
    "old-leader-followed": _one(TWO_EPOCHS._replace(parts=EVERYTHING), "    /\\ m.epoch >= s.epoch\n", ""),
    "older-votes-count": _one(
        TWO_EPOCHS._replace(campaigns=3, batches=1, proposals=0, parts=EVERYTHING, turns=(1, 1, 3)),
        '/\\ m.type = "VoteReply" /\\ m.epoch = node[n].epoch',
        '/\\ m.type = "VoteReply" /\\ m.epoch <= node[n].epoch',
    ),
    # Replication
    "fetch-before-flush": _one(ONE_EPOCH_RESTART, 'IF m.type = "Fetch" THEN Len(s.writing) ELSE 0', "0"),
    "older-epochs-by-counting": _one(FIGURE_8, "offset > Max(s.hw, s.epochStart)", "offset > s.hw /\\ offset >= s.epochStart"),
    "minority-commits": _one(
        ONE_EPOCH,
        "IN IsMajority({v \\in Node : EndOn(v) >= offset}, Voters(node[n].log))",
        "IN {v \\in Voters(node[n].log) : EndOn(v) >= offset} # {}",
    ),
    "unsynced-counts": _one(
        ONE_EPOCH_RESTART, "IF v = n THEN End(DurableLog(disk[n].log, node[n]))", "IF v = n THEN End(node[n].log)"
    ),
    "observers-count": _one(
        OBSERVED,
        "IN IsMajority({v \\in Node : EndOn(v) >= offset}, Voters(node[n].log))",
        "IN IsMajority({v \\in Node : EndOn(v) >= offset}, Node)",
    ),
    "older-fetches-count": _one(
        DEPOSED_TWICE,
        'node[n].role = "leader" /\\ m.epoch = node[n].epoch\nAcknowledge',
        'node[n].role = "leader" /\\ m.epoch <= node[n].epoch\nAcknowledge',
    ),
    "no-divergence": _one(TWO_EPOCHS, "    IN IF Holds(log, m.offset, m.lastEpoch)\n", "    IN IF TRUE\n"),
    "divergence-is-progress": _one(
        TWO_EPOCHS, 'IF m.type = "Fetch" /\\ Holds(s.log, m.offset, m.lastEpoch) THEN', 'IF m.type = "Fetch" THEN'
    ),
    "own-end-is-committed": _one(TWO_EPOCHS, "!.hw = Max(@, Min(End(log), m.hw))", "!.hw = Max(@, End(log))"),
    "committed-before-truncated": Mutation(
        TWO_EPOCHS,
        (
            ("CutAt(n, m) >= s.hw /\\ CutAt(n, m)", "CutAt(n, m)"),
            ("Writes(s, log, log))", "[Writes(s, log, log) EXCEPT !.hw = Max(@, Min(End(s.log), m.hw))])"),
        ),
    ),
    "truncates-the-whole-epoch": _one(
        TAKEN_OVER._replace(batches=2),
        "IN IF LastEpoch(agree) = m.data[1] THEN Min(End(agree), m.data[2]) ELSE End(agree)",
        "IN End(UpToEpoch(node[n].log, m.data[1] - 1))",
    ),
    "one-flush-is-all": Mutation(
        TAKEN_OVER._replace(restarts=0, parts=("slow disks",)),
        (("        items == Waiting(s, 0, count)\n", "        items == Waiting(s, 0, Len(s.writing))\n"),),
    ),
    # Reads
    "arrival-is-an-echo": _one(READING._replace(parts=EVERYTHING), 'IF m.type = "Fetch" THEN Max(@, m.round) ELSE @', "s.round"),
    "read-before-own-commit": _one(READING, "/\\ read \\in s.reads /\\ HasCommittedInEpoch(n)\n", "/\\ read \\in s.reads\n"),
    "read-without-a-round": _one(
        READING, "    /\\ IsMajority({v \\in Node : s.echoed[v] >= read.round} \\cup {n}, Voters(s.log))\n", ""
    ),
    "round-shared-too-long": _one(READING._replace(reads=2), "round == IF s.isNamed THEN s.round + 1 ELSE s.round", "round == 1"),
    # Voters
    "no-settled-gate": _one(CHANGING_AGAIN, "    /\\ VotersEnd(s.log) <= s.hw\n", ""),
    "no-committed-in-epoch-gate": Mutation(
        CHANGING,
        (
            ("    /\\ VotersEnd(s.log) <= s.hw\n    /\\ HasCommittedInEpoch(n)\n", "    /\\ VotersEnd(s.log) <= s.hw\n"),
            ("<= 1\n    /\\ voters # {}\n", "<= 1\n    /\\ n \\in voters /\\ voters \\subseteq now /\\ s.epochStart = 0\n"),
        ),
    ),
    "removed-leader-counts-itself": _one(
        Model("removing", "", nodes=3, voters=3, epochs=2, batches=2, changes=1, restarts=1),
        "IN IsMajority({v \\in Node : EndOn(v) >= offset}, Voters(node[n].log))",
        "IN LET voters == Voters(node[n].log) IN IsMajority({v \\in Node : EndOn(v) >= offset}, voters \\cup {n})",
    ),
    "anybody-may-stand": _one(OBSERVED, "    \\/ n \\in Voters(log)\n    \\/", "    \\/ TRUE\n    \\/"),
    # Snapshots
    "high-watermark-not-raised-on-install": _one(
        Model("installing", "", parts=("snapshots",)),
        "EXCEPT !.hw = End(copy), !.start = End(copy)]",
        "EXCEPT !.start = End(copy)]",
    ),
    "snapshot-voters-ignored": _one(
        Model("installing", "", nodes=3, voters=2, epochs=2, batches=3, changes=1, parts=("snapshots",)),
        "copy == disk[n].copy\n    IN\n",
        "copy == [i \\in 1..Len(disk[n].copy) |-> [disk[n].copy[i] EXCEPT !.voters = {}]]\n    IN\n",
    ),
}


HARMLESS = {
    "epoch-not-stored": "an epoch in which a node has no leader and no vote promises nothing",
    "leads-before-its-vote-is-stored": "vote requests wait until the vote is stored, and so does all that a lone voter says",
    "anybody-may-stand": "the votes of voters alone are counted, and they go to logs that are complete",
}
"""Mutations without a bad state, and the reason: the core keeps the rule, and other rules of the protocol keep it safe."""


def mutated(name: str) -> str:
    """Return Kraftlab.tla with the bug. ValueError if the text has changed, so that the mutation does not apply."""
    text = (tlc.MODULES / "Kraftlab.tla").read_text()
    for old, new in MUTATIONS[name].changes:
        if old not in text:
            raise ValueError(f"{name} does not apply: Kraftlab.tla has no {old!r}")
        text = text.replace(old, new)
    return text


def check(name: str, *, workers: int = 1, timeout_s: float | None = None) -> tlc.Run:
    """Check all states of a mutation's model. TlcMissing, TlcFailed; ValueError of `mutated`."""
    with tempfile.TemporaryDirectory(prefix="kraftlab-tlc-") as directory:
        return tlc.run(
            "Model",
            configuration(MUTATIONS[name].model),
            Path(directory),
            extra={"Kraftlab.tla": mutated(name)},
            workers=workers,
            timeout_s=timeout_s,
        )
