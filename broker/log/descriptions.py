"""Contents of the log directories, for people and tools (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from kraftlab.common.uuids import Uuid
from kraftlab.records.errors import CorruptBatch

from .dir_names import DirKind, current_name
from .partition_log import PartitionLog
from .segment import Segment, base_offset_of


class ReplicaDescription(msgspec.Struct, frozen=True):
    """One log in a directory. `offset_lag` of a future log: offsets that only the current log has, -1 if there is no current log.
    `offset_lag` of a current log: offsets that it lacks up to its high watermark.
    """

    topic: str
    topic_id: Uuid
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


class StrayDescription(msgspec.Struct, frozen=True):
    """A directory that was set aside. A person may inspect and remove it. `log_end_offset`: -1 if it cannot be read."""

    path: Path
    topic: str
    partition: int
    size_bytes: int
    log_end_offset: int


class KeptDescription(msgspec.Struct, frozen=True):
    """A copy that a move was building when the replica's own directory went offline, or a directory that is not served for the
    reason in `doubt`. `log_end_offset`: -1 if the directory is missing.
    """

    path: Path
    topic: str
    partition: int
    size_bytes: int
    log_end_offset: int
    doubt: str = ""


class DirDescription(msgspec.Struct, frozen=True):
    """A configured log directory. If it is offline, `error` gives the reason and the sizes are -1."""

    path: Path
    directory_id: Uuid | None
    error: str | None
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: tuple[ReplicaDescription, ...] = ()
    strays: tuple[StrayDescription, ...] = ()
    kept: tuple[KeptDescription, ...] = ()


def describe_replicas(logs: Iterable[tuple[PartitionLog, PartitionLog | None]]) -> tuple[ReplicaDescription, ...]:
    """Describe logs, each given with its replica's current log; sorted by name."""
    described = (describe_replica(log, current) for log, current in logs)
    return tuple(sorted(described, key=lambda replica: (replica.topic, replica.partition, replica.is_future)))


def describe_replica(log: PartitionLog, current: PartitionLog | None) -> ReplicaDescription:
    is_future = log.directory.name.endswith(DirKind.FUTURE.value)
    if not is_future:
        lag = max(0, log.high_watermark - log.log_end_offset)
    else:
        lag = current.log_end_offset - log.log_end_offset if current is not None else -1
    return ReplicaDescription(log.topic, log.topic_id, log.partition, log.size_bytes, lag, is_future)


def describe_kept(log: PartitionLog, doubt: str) -> KeptDescription:
    size_bytes = log.size_bytes if log.is_open else log_bytes_in(log.directory)
    return KeptDescription(log.directory, log.topic, log.partition, size_bytes, log.log_end_offset, doubt)


def describe_missing(log_dir: Path, topic: str, partition: int, doubt: str) -> KeptDescription:
    """Describe a replica without a directory, which had records."""
    return KeptDescription(log_dir / current_name(topic, partition), topic, partition, 0, -1, doubt)


def log_bytes_in(path: Path) -> int:
    """Sum of the sizes of the segment files in a replica's directory. A file that a person removes meanwhile counts as 0."""
    size_bytes = 0
    for file in filter(Path.is_file, path.glob("*.log")):
        with suppress(FileNotFoundError):
            size_bytes += file.stat().st_size
    return size_bytes


def log_end_in(path: Path) -> int:
    """The end of the log in a replica's directory, as far as its last segment can be read; -1 if it cannot."""
    bases = [base_offset_of(file.name) for file in filter(Path.is_file, path.glob("*.log"))]
    base_offset = max((base for base in bases if base is not None), default=None)
    if base_offset is None:
        return -1
    with suppress(OSError):
        segment = Segment.open_file(path, base_offset)
        try:
            return segment.end_offset
        except CorruptBatch:
            return base_offset
        finally:
            segment.close()
    return -1
