"""Making the directories of new replicas, under temporary names: `log_manager.py` says what a crash may leave."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kraftlab.common.uuids import Uuid
from kraftlab.records.errors import LogError

from . import checkpoints
from .dir_names import CREATING_PREFIX, keeps_name_inside
from .errors import disk_errors
from .files import sync_new_directories
from .log_config import LogConfig
from .log_dir import LogDir
from .partition_log import PartitionLog

ReplicaId = tuple[Uuid, int]
"""Topic id and partition."""


class NewReplica(NamedTuple):
    """A replica that needs a log; the arguments of `get_or_create`."""

    topic: str
    topic_id: Uuid
    partition: int
    directory_id: Uuid
    is_new: bool
    config: LogConfig
    is_counted_on: bool = False
    can_be_filled: bool = False
    """Another broker has answered that it leads, and nobody counts on this replica. Then an empty log may take the place of a
    doubtful or missing directory. `is_counted_on`: see `AssignedReplica`."""

    @property
    def key(self) -> ReplicaId:
        return (self.topic_id, self.partition)


def prepare_together(
    log_dir: LogDir, replicas: Iterable[NewReplica], refused: list[LogError]
) -> list[tuple[NewReplica, LogDir, Path]]:
    """Make durable directories under temporary names; note errors. LogError: none of them is durable."""
    made: list[tuple[NewReplica, LogDir, Path]] = []
    log_dir.check_in_place()
    for replica in replicas:
        with collecting(refused):
            made.append((replica, log_dir, _make_directory(log_dir, replica.topic, replica.topic_id)))
    directories = [directory for _, _, directory in made]
    with removing_on_error(directories), disk_errors(log_dir.path):
        sync_new_directories(directories)
    return made


def _make_directory(log_dir: LogDir, topic: str, topic_id: Uuid) -> Path:
    """Make a replica's directory, with its first files, under a temporary name. Not durable yet. Needs no lock."""
    directory = log_dir.path / f"{CREATING_PREFIX}{uuid.uuid4().hex}"
    with removing_on_error([directory]), disk_errors(log_dir.path):
        os.mkdir(directory)
        checkpoints.write_partition_metadata(directory, topic_id)
        if keeps_name_inside(topic):
            checkpoints.write_topic_name(directory, topic)
    return directory


@contextmanager
def removing_on_error(directories: Sequence[Path]) -> Iterator[None]:
    """Remove directories under temporary names if the block fails."""
    try:
        yield
    except LogError:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def remove_new(log: PartitionLog, passing: Path) -> None:
    """Remove a new log. If its files cannot be removed now, the next start does it, by the temporary name."""
    log.close()
    with suppress(OSError):
        os.rename(log.directory, passing)
    shutil.rmtree(passing, ignore_errors=True)


@contextmanager
def collecting(refused: list[LogError]) -> Iterator[None]:
    """Note the error of one replica; the others go on."""
    try:
        yield
    except LogError as error:
        refused.append(error)
