"""What becomes of a node whose generation of the cluster is over.

A generation ends when a lost majority is forced: one survivor goes on alone, with what it has (the command
`kraftlab metadata-quorum force-standalone`). Frames of the old generation are refused by the new one, so whoever was away learns
of it from the first node it asks. What it holds may differ from the history that was kept, anywhere behind their last common
record, and no comparison would tell what brokers and clients have already been told. So nothing of it is kept:

- a voter stops and says so, since what it alone holds may be worth a person's look; so does one whose removal may not be
  committed;
- an observer's copy proves nothing: it is removed, from its newest record to its oldest so that what a crash leaves is still a
  prefix, and only then does the directory belong to the new generation.
"""

from __future__ import annotations

from ..core.effects import ElectionState
from ..storage.election_store import FILE_NAME, ElectionStateStore
from ..storage.file_system import FileSystem
from ..storage.identity import LogIdentity, partition_directory
from .errors import GenerationOver

SEGMENT = ".log"
NOBODY = -1


def generation_over(directory: str, cluster_id: str, mine: int, newer: int, who: str, *, is_expendable: bool) -> GenerationOver:
    """The error, with what to do if a person has to."""
    return GenerationOver(
        f"the quorum was forced since this node last heard of it: {who} is at generation {newer} of cluster {cluster_id}, and "
        f"{directory} at {mine}. What it has beyond the history that was kept is lost to the cluster. Set {directory} aside, "
        "format it anew with 'kraftlab storage format --no-initial-controllers', and start this node: it follows as an "
        "observer, and 'kraftlab metadata-quorum add-controller' makes it a voter again.",
        newer,
        is_expendable,
    )


def discard_copy(file_system: FileSystem, directory: str, identity: LogIdentity) -> None:
    """Replaces the copy in a metadata.log.dir by an empty one of `identity.generation`. Worker thread; the driver has ended.

    A crash on the way leaves less of the old generation: the next start hears of the newer one again. meta.properties stays, so
    the node remains who it is.
    """
    partition = partition_directory(directory)
    names = file_system.names(partition)
    segments = sorted((name for name in names if name.endswith(SEGMENT)), reverse=True)
    rest = sorted((name for name in names if not name.endswith(SEGMENT) and name != FILE_NAME), reverse=True)
    for name in (*segments, *rest):
        file_system.remove(f"{partition}/{name}")
        file_system.sync_directory(partition)
    ElectionStateStore(file_system, directory, identity).store(ElectionState(0, NOBODY, None))
