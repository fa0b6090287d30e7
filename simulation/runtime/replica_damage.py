"""Replicas on a broker that is down: damages their records, once the cluster does not need them.

Theory of operation. A record is acknowledged when all in-sync replicas have it, synced or not: KIP-966 assumes that they never
lose unsynced records all at once. So a broker's disk is damaged only when the cluster does not count on it: the broker is killed,
and its disk is damaged when the broker has left every ISR and ELR, and others are in each ISR. It comes back after an unclean
shutdown, and must not lead before it has all records again.

Rot goes into bytes that a start checks: the newest segment of each log, within the checksum of a batch (which covers neither base
offset nor leader epoch in Kafka's format). A torn batch is the beginning of a batch after the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from kraftlab.broker.log.dir_names import DirKind, parse
from kraftlab.broker.log.indexes import LOG_SUFFIX
from kraftlab.metadata.image import MetadataImage
from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import HEADER_BYTES, read_header

CHECKED_FROM = 16
"""First byte of a batch that its checksum covers: after base offset, length and leader epoch."""


class Patch(NamedTuple):
    """A change of bytes of a file."""

    path: Path
    position: int
    before: bytes
    after: bytes


def needed_for(image: MetadataImage, broker: int) -> str:
    """Return the first partition that needs the broker's replica, "" if there is none."""
    for topic in sorted(image.topics.by_id.values(), key=lambda topic: topic.name):
        for index, partition in sorted(topic.partitions.items()):
            is_needed = broker in partition.isr or broker in partition.elr or not partition.isr
            if broker in partition.replicas and is_needed:
                return f"{topic.name}-{index}"
    return ""


def newest_segments(log_dirs: Sequence[Path]) -> dict[Path, bytes]:
    """Return the newest segment of each log in these directories, by path."""
    found: dict[Path, bytes] = {}
    for directory in (directory for log_dir in log_dirs for directory in sorted(log_dir.iterdir())):
        name = parse(directory.name)
        if directory.is_dir() and name is not None and name.kind in (DirKind.CURRENT, DirKind.FUTURE):
            segments = sorted(directory.glob(f"*{LOG_SUFFIX}"))
            found.update({path: path.read_bytes() for path in segments[-1:]})
    return found


def rot(segments: Mapping[Path, bytes], random: Random) -> Patch | None:
    """Flip a few bits of one batch; None if there is no batch."""
    found = [batch for path, segment in segments.items() for batch in _batches(path, segment)]
    if not found:
        return None
    chosen = random.choice(found)
    after = bytearray(chosen.before)
    for place in random.sample(range(CHECKED_FROM, len(after)), random.choice((1, 1, 3))):
        after[place] ^= 1 << random.randrange(8)
    return chosen._replace(after=bytes(after))


def torn(segments: Mapping[Path, bytes], random: Random) -> Patch | None:
    """Add the beginning of a batch after the last one of a log; None if no log has a batch."""
    found = [batch for path, segment in segments.items() for batch in list(_batches(path, segment))[-1:]]
    if not found:
        return None
    path, position, whole, _ = random.choice(found)
    return Patch(path, position + len(whole), b"", whole[: random.randrange(1, len(whole))])


def _batches(path: Path, segment: bytes) -> Iterator[Patch]:
    """Yield the batches of a segment, up to the first invalid one."""
    position = 0
    while position + HEADER_BYTES <= len(segment):
        try:
            size_bytes = read_header(segment, position).size_bytes
        except CorruptBatch:
            return
        whole = segment[position : position + size_bytes]
        yield Patch(path, position, whole, whole)
        position += size_bytes
