"""The end of a generation of the cluster on one of its nodes.

A generation ends when a lost majority is forced: one survivor continues alone with its own data (the command `kraftlab
metadata-quorum force-standalone`). The new generation refuses frames of the old one, so a node that was away learns of it from
the first controller that it asks. Only that answer counts: a claim in a request, or of a broker, ends nothing. A generation that
does not follow the node's own is not believed either, unless the node's log is empty: a person decides then.

The data of a node that was away may differ from the history that was kept, anywhere after their last common record, and no
comparison can find out what brokers and clients have already seen. So none of it is kept:

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


def generations_missed(directory: str, mine: int, newer: int, who: str) -> str:
    """Return the advice for a node that cannot follow because it missed more than one generation."""
    return (
        f"{who} says that it is at generation {newer} of the cluster, and {directory} is at {mine}: the quorum was forced more "
        "than once since, or that node is not what it seems. Nothing is discarded. If the quorum was forced, stop this node. On "
        f"a broker, move {partition_directory(directory)} aside. On a controller, move {directory} aside, and format it again "
        "with 'kraftlab storage format --no-initial-controllers'. Then start this node: it loads the metadata again"
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
