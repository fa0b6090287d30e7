"""The owner of a metadata directory, stamped into every segment's header page and into `quorum-state`."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from .errors import WrongIdentity

PARTITION_DIRECTORY = "__cluster_metadata-0"
CLUSTER_ID_MAX_BYTES = 64


class LogIdentity(NamedTuple):
    """`cluster_id` as in meta.properties, `directory_id` 16 bytes, `generation` rises only when a lost majority is forced."""

    cluster_id: str
    directory_id: bytes
    generation: int = 0

    def check(self, found: LogIdentity, path: str) -> None:
        """Raise WrongIdentity if the file at `path`, which carries `found`, is not ours."""
        if found.cluster_id != self.cluster_id:
            raise WrongIdentity(
                f"{path} belongs to cluster {found.cluster_id!r}, this node is configured for cluster {self.cluster_id!r}. "
                "Point metadata.log.dir at this cluster's directory, or format an empty one with 'kraftlab storage format'."
            )
        if found.directory_id != self.directory_id:
            raise WrongIdentity(
                f"{path} was written by directory {uuid.UUID(bytes=found.directory_id)}, but meta.properties says this "
                f"directory is {uuid.UUID(bytes=self.directory_id)}: the files were copied from another node. "
                "Put the node's own files back, or format an empty directory with 'kraftlab storage format'."
            )
        if found.generation > self.generation:
            raise WrongIdentity(
                f"{path} has generation {found.generation}, quorum-state says {self.generation}: forcing the quorum was "
                "interrupted. Run 'kraftlab metadata-quorum force-standalone' again, it finishes what it began. If it never ran "
                "here, the files were mixed up: copy quorum-state and the segments back together, or format an empty directory."
            )


def partition_directory(directory: str) -> str:
    """Return the directory of the log and `quorum-state` inside metadata.log.dir."""
    return f"{directory}/{PARTITION_DIRECTORY}"
