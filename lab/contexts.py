"""Contexts: the clusters that are up on this machine, so that commands find one without being given its address.

`kraftlab up` writes one file per cluster into the user's state directory and removes it at the end:

    $XDG_STATE_HOME/kraftlab/clusters/HASH        default of XDG_STATE_HOME: ~/.local/state

A file holds the path of the cluster's directory. That directory holds the endpoints (`cluster_plan.py`) and the lock that says
whether the cluster is up, so the file that a killed `up` leaves behind counts for nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import cluster_plan
from .cluster_plan import ClusterError, ClusterPlan
from .locking import is_in_use


def state_directory() -> Path:
    """Return the directory of the files. RuntimeError if the user has no home directory."""
    home = os.environ.get("XDG_STATE_HOME")
    return Path(home or Path.home() / ".local" / "state", "kraftlab", "clusters")


@contextmanager
def published(directory: Path) -> Iterator[None]:
    """Let other commands find the cluster on `directory` inside the `with` block. OSError, RuntimeError."""
    path = state_directory() / hashlib.sha256(bytes(directory.absolute())).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(directory.absolute()))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running() -> list[Path]:
    """Return the directories of the clusters that `kraftlab up` runs now, newest first."""
    with suppress(OSError, RuntimeError):
        files = sorted(state_directory().iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [directory for file in files if is_in_use(directory := Path(os.fsdecode(file.read_bytes())))]
    return []


def plan_of(directory: Path) -> ClusterPlan:
    """Return the plan of the cluster that is up on `directory`. ClusterError if no cluster is up there."""
    plan = cluster_plan.load(directory)
    if plan is None:
        raise ClusterError(f"{directory} holds no cluster; start one with: kraftlab up --data {directory}")
    if not is_in_use(directory):
        raise ClusterError(f"the cluster on {directory} is not up; start it with: kraftlab up --data {directory}")
    return plan
