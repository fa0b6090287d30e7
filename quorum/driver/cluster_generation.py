"""The end of a generation of the cluster on one of its nodes.

A generation ends when a lost majority is forced: one survivor continues alone with its own data (the command `kraftlab
metadata-quorum force-standalone`). The new generation refuses frames of the old one, so a node that was away learns of it from
the first node that it contacts. Its data may differ from the history that was kept, anywhere after their last common record, and
no comparison can find out what brokers and clients have already seen. So none of it is kept:

- a voter stops and says so, because data that it alone holds may be worth a person's look; so does one whose removal may not be
  committed;
- an observer's copy proves nothing. It is removed, from its newest record to its oldest so that a crash leaves a prefix, and only
  then does the directory belong to the new generation.
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
    """Return the error, with instructions if a person has to act."""
    return GenerationOver(
        f"the quorum was forced since this node last heard of it: {who} is at generation {newer} of cluster {cluster_id}, and "
        f"{directory} at {mine}. Its data beyond the history that was kept is lost to the cluster. Set {directory} aside, "
        "format it again with 'kraftlab storage format --no-initial-controllers', and start this node: it follows as an "
        "observer, and 'kraftlab metadata-quorum add-controller' makes it a voter again.",
        newer,
        is_expendable,
    )


def discard_copy(file_system: FileSystem, directory: str, identity: LogIdentity) -> None:
    """Replace the copy in a metadata.log.dir by an empty one of `identity.generation`. Worker thread; the driver has ended.

    A crash leaves less of the old generation, and the next start learns of the newer one again. meta.properties stays, so the
    node keeps its identity.
    """
    partition = partition_directory(directory)
    names = file_system.names(partition)
    segments = sorted((name for name in names if name.endswith(SEGMENT)), reverse=True)
    rest = sorted((name for name in names if not name.endswith(SEGMENT) and name != FILE_NAME), reverse=True)
    for name in (*segments, *rest):
        file_system.remove(f"{partition}/{name}")
        file_system.sync_directory(partition)
    ElectionStateStore(file_system, directory, identity).store(ElectionState(0, NOBODY, None))
