"""Small text files that outlive a restart: offsets by partition for each log directory; the topic id, and a long topic name, for
each replica.

Offset checkpoints hold recovery points (all records below are fsynced), high watermarks, log start offsets and the ends of
compacted parts, as `version 0`, a count, and `topic partition offset` lines. The data do not depend on them: a checkpoint that is
missing or corrupt reads as if all offsets were 0, which costs a scan of the log (recovery point), a wait for the leader (high
watermark) or a compaction of the whole log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from kraftlab.common.uuids import Uuid, from_text, is_reserved, to_text
from kraftlab.records.record_batch import INT64_MAX

from .errors import CorruptFile
from .files import TABLE_MAX_BYTES, read_small, write_durably, write_first

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_ENDS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
TOPIC_NAME = "topic-name"

TopicPartition = tuple[str, int]

logger = logging.getLogger(__name__)


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint at `path`, durably."""
    lines = ["0", str(len(offsets)), *(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))]
    write_durably(path, "\n".join(lines) + "\n")


def parse_offsets(path: Path, text: str) -> dict[TopicPartition, int]:
    """Return the offsets in a checkpoint's text; CorruptFile names `path` and the fault."""
    lines = text.split("\n")
    offsets: dict[TopicPartition, int] = {}
    try:
        version, count = int(lines[0]), int(lines[1])
        for line in filter(None, lines[2:]):
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"expected a version, a count and lines of `topic partition offset`: {error}") from error
    if version != 0 or count != len(offsets) or any(not 0 <= offset < INT64_MAX for offset in offsets.values()):
        found = f"version {version} with {len(offsets)} of {count} entries"
        raise CorruptFile(path, f"{found}; expected version 0 and all, with offsets from 0 to below {INT64_MAX}")
    return offsets


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets at `path`; {} if the file is missing or, with a warning, corrupt. OSError if the disk fails."""
    try:
        return parse_offsets(path, read_small(path, TABLE_MAX_BYTES).decode())
    except FileNotFoundError:
        return {}
    except (CorruptFile, UnicodeDecodeError) as error:
        logger.warning("checkpoint %s is ignored, its offsets count as 0: %s", path, error)
        return {}


def write_partition_metadata(directory: Path, topic_id: Uuid) -> None:
    """Write the topic id into a new partition directory (KIP-516)."""
    write_first(directory / PARTITION_METADATA, _partition_metadata(topic_id))


def replace_partition_metadata(directory: Path, topic_id: Uuid) -> None:
    """Replace a damaged file, durably. OSError."""
    write_durably(directory / PARTITION_METADATA, _partition_metadata(topic_id))


def _partition_metadata(topic_id: Uuid) -> str:
    return f"version: 0\ntopic_id: {to_text(topic_id)}\n"


def read_partition_metadata(directory: Path) -> Uuid | None:
    """Return the topic id in `directory`, None if there is no file. CorruptFile if it cannot be read."""
    path = directory / PARTITION_METADATA
    try:
        fields = dict(line.partition(": ")[::2] for line in read_small(path).decode().splitlines() if line)
        if absent := [f"`{name}: …`" for name in ("version", "topic_id") if name not in fields]:
            raise CorruptFile(path, f"has no line {' and no line '.join(absent)}")
        if fields["version"] != "0":
            raise CorruptFile(path, f"version {fields['version']}; expected 0")
        topic_id = from_text(fields["topic_id"])
        if is_reserved(topic_id):
            raise CorruptFile(path, f"topic_id: {fields['topic_id']} is reserved")
        return topic_id
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptFile(path, f"expected the lines `version: 0` and `topic_id: …`: {error}") from error


def write_topic_name(directory: Path, topic: str) -> None:
    """Write a topic's whole name into a new directory, whose own name may be truncated."""
    write_first(directory / TOPIC_NAME, topic + "\n")


def read_topic_name(directory: Path) -> str | None:
    """Return the whole topic name if the directory holds one."""
    try:
        return read_small(directory / TOPIC_NAME).decode().strip() or None
    except (FileNotFoundError, CorruptFile, UnicodeDecodeError):
        return None
