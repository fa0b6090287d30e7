"""Reading a log directory at start: every current and future log is opened and recovered; the other directories are
only noted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from kraftlab.metadata.uuids import ZERO, Uuid

from . import checkpoints
from .checkpoints import TopicPartition
from .dir_names import DirKind, DirName
from .errors import CorruptFile
from .log_config import LogConfig
from .log_dir import UNKNOWN_EPOCH, LogDir
from .partition_log import PartitionLog
from .startup import FoundDir

NAMED_MAX = 5
"""Number of replicas that a log line names."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")

logger = logging.getLogger(__name__)


class LoadedDir(msgspec.Struct, frozen=True):
    """A replica's directory that was found. `log`: None for -delete and -stray directories."""

    found: FoundDir
    path: Path
    log_dir: LogDir
    log: PartitionLog | None


def load_log_dir(log_dir: LogDir, config: LogConfig, before_truncation: Callable[[], None]) -> list[LoadedDir]:
    """Open the logs in `log_dir`. OSError, LogError: the whole directory is offline. TooManyOpenFiles: it is not at fault."""
    loaded: list[LoadedDir] = []
    for path, name in log_dir.scan():
        topic = _topic(path, name)
        topic_id = _topic_id(path)
        log = None
        if name.kind in (DirKind.CURRENT, DirKind.FUTURE):
            log = _open(log_dir, path, name._replace(topic=topic), topic_id, config, before_truncation)
        found = FoundDir(
            log_dir.directory_id,
            path.name,
            name.kind,
            topic,
            name.partition,
            topic_id,
            log_start_offset=log.log_start_offset if log else 0,
            log_end_offset=log.log_end_offset if log else 0,
            epochs=log.epochs if log else (),
        )
        loaded.append(LoadedDir(found, path, log_dir, log))
    if log_dir.was_clean:
        _compare_with_the_stop(log_dir, loaded)
    return loaded


def _compare_with_the_stop(log_dir: LogDir, loaded: list[LoadedDir]) -> None:
    """Take the mark of a clean shutdown back if records are missing that were durable then: the broker must not lead before
    replicas that have them (KIP-966).
    """
    ends: dict[TopicPartition, int] = {}
    for item in loaded:
        key = (item.found.topic, item.found.partition)
        ends[key] = max(item.found.log_end_offset, ends.get(key, 0))
    lost = {(item.found.topic, item.found.partition) for item in loaded if item.log is not None and item.log.recovery.reason}
    lost |= {replica for replica, end in log_dir.recovery_points.items() if ends.get(replica, 0) < end}
    if lost:
        log_dir.previous_broker_epoch = UNKNOWN_EPOCH
        first = ", ".join(f"{topic}-{number}" for topic, number in sorted(lost)[:NAMED_MAX])
        logger.warning(
            "%s was shut down cleanly, but records of %d replicas are missing now (%s): treated as a crash; check the disk",
            *(log_dir, len(lost), first),
        )


def _topic(path: Path, name: DirName) -> str:
    """Return the whole name: the one in the file inside, if it continues the truncated name of the directory."""
    inside = checkpoints.read_topic_name(path)
    if inside is None or inside == name.topic:
        return name.topic
    if name.kind is not DirKind.CURRENT and inside.startswith(name.topic) and _LEGAL.fullmatch(inside):
        return inside
    logger.warning("%s names the topic %r, which does not match; the directory's own name is used", path, inside)
    return name.topic


def _topic_id(path: Path) -> Uuid | None:
    try:
        return checkpoints.read_partition_metadata(path)
    except CorruptFile as error:
        logger.warning("the topic of %s is unknown: %s", path, error)
        return None


def _open(
    log_dir: LogDir, path: Path, name: DirName, topic_id: Uuid | None, config: LogConfig, before_truncation: Callable[[], None]
) -> PartitionLog:
    key = (name.topic, name.partition)
    return PartitionLog.open(
        path,
        topic=name.topic,
        partition=name.partition,
        topic_id=topic_id or ZERO,
        directory_id=log_dir.directory_id,
        config=config,
        log_start_offset=log_dir.log_start_offsets.get(key, 0),
        high_watermark=log_dir.high_watermarks.get(key, 0),
        recovery_point=log_dir.recovery_points.get(key, 0),
        clean=log_dir.was_clean,
        before_truncation=before_truncation,
    )
