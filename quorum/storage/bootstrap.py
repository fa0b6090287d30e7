"""The bootstrap checkpoint: the first voters of a dynamic quorum, until its log says more (KIP-853).

Formatting writes it under the name of a snapshot of nothing, 0-0. It is never served, listed or removed like a snapshot. The
first leader copies its records into the log.
"""

from __future__ import annotations

from contextlib import closing

from ..core.batch import ControlRecord, KRaftVersion, KRaftVoters, SnapshotHeader
from ..core.types import VoterSet
from .checked_file import replacing
from .file_system import FileSystem
from .identity import partition_directory
from .snapshot_file import BOOTSTRAP_ID, SnapshotEncoder, SnapshotInvalid, read_summary, snapshot_name


def write_bootstrap(file_system: FileSystem, directory: str, cluster_id: str, voters: VoterSet) -> None:
    """Write the checkpoint durably into a metadata.log.dir, which is created if missing. An existing checkpoint is replaced."""
    partition = partition_directory(directory)
    file_system.make_directory(partition)
    control: list[ControlRecord] = [SnapshotHeader(0, cluster_id, 0, 0, 0), KRaftVersion(0, 1), KRaftVoters(0, voters)]
    with replacing(file_system, partition, snapshot_name(BOOTSTRAP_ID)) as file:
        SnapshotEncoder(file, BOOTSTRAP_ID, control).finish()
    file_system.sync_directory(directory)


def read_bootstrap(file_system: FileSystem, directory: str, cluster_id: str) -> tuple[ControlRecord, ...]:
    """Return its KRaftVersion and KRaftVoters; () without one (static voters).

    SnapshotInvalid if it is damaged or of another cluster.
    """
    path = f"{partition_directory(directory)}/{snapshot_name(BOOTSTRAP_ID)}"
    try:
        with closing(file_system.open(path)) as file:
            summary = read_summary(file, BOOTSTRAP_ID)
    except FileNotFoundError:
        return ()
    if summary.cluster_id != cluster_id:
        raise SnapshotInvalid(f"{path} belongs to cluster {summary.cluster_id!r}, not {cluster_id!r}")
    return summary.control
