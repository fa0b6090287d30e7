"""The small models that TLC checks exhaustively (Model.tla): bounds, and what each is for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from . import tlc

INVARIANTS = (
    "ElectionSafety",
    "LeaderCompleteness",
    "LogMatching",
    "StateMachineSafety",
    "CommittedNeverLost",
    "OneUncommittedChange",
    "LinearizableReads",
)


class Model(NamedTuple):
    """Bounds of Model.tla. `voters` are the first voters among `nodes`; `parts` are the mechanisms that take part. Without
    `proposals`, leaders propose as much as logs may hold. `turns` are the numbers of the nodes that campaign, in their order;
    `sides` are, for each epoch, its leader and the nodes that may follow it ("13": n1 and n3); others only vote.
    """

    name: str
    about: str
    nodes: int = 3
    voters: int = 3
    epochs: int = 2
    batches: int = 2
    campaigns: int = 2
    proposals: int | None = None
    restarts: int = 0
    changes: int = 0
    reads: int = 0
    parts: tuple[str, ...] = ()
    turns: tuple[int, ...] = ()
    sides: tuple[str, ...] = ()


FIGURE_8 = Model(
    "figure-8",
    "a record of an older epoch on a majority of disks, which commits nothing yet (Raft, figure 8)",
    epochs=4,
    campaigns=4,
    proposals=0,
    parts=("short answers",),
    turns=(1, 2, 1, 2),
    sides=("1", "2", "13", "2"),
)

MODELS = {
    model.name: model
    for model in (
        Model("replication", "three leaderships of three voters: append, divergence, truncation, commit", epochs=3, campaigns=3),
        FIGURE_8,
        Model("restarts", "crashes between any two operations of a disk, and in the middle of one", batches=1, restarts=1),
        Model("pre-votes", "elections with pre-votes", batches=1, parts=("pre-votes",)),
        Model("resigning", "leaders that resign, and the epochs that follow", parts=("resigning",)),
        Model("changes", "voters added and removed, one at a time", voters=2, batches=3, changes=2),
        Model("snapshots", "a snapshot that replaces the log of an observer", voters=2, parts=("snapshots",)),
        Model("reads", "a linearizable read while another leader is elected", reads=1),
    )
}


def check(model: Model, *, workers: int = 1, timeout_s: float | None = None) -> tlc.Run:
    """Check all invariants in every state of the model. TlcMissing, TlcFailed."""
    with tempfile.TemporaryDirectory(prefix="kraftlab-tlc-") as directory:
        return tlc.run("Model", configuration(model), Path(directory), workers=workers, timeout_s=timeout_s)


def configuration(model: Model) -> str:
    names = [f"n{number}" for number in range(1, model.nodes + 1)]
    return "\n".join(
        [
            "SPECIFICATION Spec",
            "CONSTRAINT Small",
            "SYMMETRY Symmetry",
            "VIEW Seen",
            "CHECK_DEADLOCK FALSE",
            f"INVARIANTS {' '.join(INVARIANTS)}",
            "CONSTANTS",
            "Nobody = Nobody",
            *(f"{name} = {name}" for name in names),
            f"Node = {{{', '.join(names)}}}",
            f"FirstVoters = {{{', '.join(names[: model.voters])}}}",
            f"MaxEpoch = {model.epochs}",
            f"MaxLog = {model.batches}",
            f"MaxCampaigns = {model.campaigns}",
            f"MaxProposals = {'Nobody' if model.proposals is None else model.proposals}",
            f"MaxRestarts = {model.restarts}",
            f"MaxChanges = {model.changes}",
            f"MaxReads = {model.reads}",
            *(f"Turn{at + 1} = {f'n{model.turns[at]}' if at < len(model.turns) else 'Nobody'}" for at in range(4)),
            *(f"Side{at + 1} = {_side(model, at, names)}" for at in range(4)),
            "Parts = {" + ", ".join(f'"{part}"' for part in model.parts) + "}",
            "",
        ]
    )


def _side(model: Model, at: int, everybody: list[str]) -> str:
    """Return the set of nodes that may lead or follow in epoch `at` + 1."""
    return f"{{{', '.join([f'n{digit}' for digit in model.sides[at]] if at < len(model.sides) else everybody)}}}"
