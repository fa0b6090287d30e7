"""Small text files that outlive a restart: per log directory offsets by partition, per partition its topic id and, if long, its
name.

Offset checkpoints hold recovery points (all below is fsynced), high watermarks and log start offsets, as `version 0`, a count,
and `topic partition offset` lines. They are a help, never the truth: one that is missing or corrupt reads as if all offsets were
0, which costs a scan of the log (recovery point) or a wait for the leader (high watermark), not data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from kraftlab.metadata.uuids import Uuid, from_text, to_text

from .errors import CorruptFile
from .files import write_durably, write_first

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
TOPIC_NAME = "topic-name"

TopicPartition = tuple[str, int]

logger = logging.getLogger(__name__)


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint at `path`, durably."""
    lines = ["0", str(len(offsets)), *(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))]
    write_durably(path, "\n".join(lines) + "\n")


def parse_offsets(path: Path, text: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint's text; CorruptFile names `path` and what is wrong."""
    lines = text.split("\n")
    offsets: dict[TopicPartition, int] = {}
    try:
        version, count = int(lines[0]), int(lines[1])
        for line in filter(None, lines[2:]):
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"expected a version, a count and lines of `topic partition offset`: {error}") from error
    if version != 0 or count != len(offsets) or any(offset < 0 for offset in offsets.values()):
        raise CorruptFile(
            path, f"version {version} with {len(offsets)} of {count} entries; expected version 0 and all, none negative"
        )
    return offsets


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets at `path`; none if the file is missing, and none but a warning if it is corrupt. OSError if the disk fails."""
    try:
        return parse_offsets(path, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (CorruptFile, UnicodeDecodeError) as error:
        logger.warning("checkpoint %s is ignored, its offsets count as 0: %s", path, error)
        return {}


def write_partition_metadata(directory: Path, topic_id: Uuid) -> None:
    """Say which topic the new partition directory belongs to (KIP-516)."""
    write_first(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {to_text(topic_id)}\n")


def read_partition_metadata(directory: Path) -> Uuid | None:
    """The topic id in `directory`, None if there is no file. CorruptFile if it cannot be understood."""
    path = directory / PARTITION_METADATA
    try:
        fields = dict(line.split(": ", 1) for line in path.read_text(encoding="utf-8").splitlines() if line)
        if fields["version"] != "0":
            raise CorruptFile(path, f"version {fields['version']}; expected 0")
        return from_text(fields["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise CorruptFile(path, f"expected `version: 0` and `topic_id: …`: {error}") from error


def write_topic_name(directory: Path, topic: str) -> None:
    """Keep a topic's whole name inside a new directory whose own name may have to be cut."""
    write_first(directory / TOPIC_NAME, topic + "\n")


def read_topic_name(directory: Path) -> str | None:
    """The whole topic name if the directory carries one."""
    try:
        return (directory / TOPIC_NAME).read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, UnicodeDecodeError):
        return None
