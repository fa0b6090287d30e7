"""Records of partitions on a broker that is down: whether others have them, and how what it has of them goes bad.

Theory of operation. A record is acknowledged when all in-sync replicas have it, synced or not: that they lose what they have not
synced all at once is ruled out by assumption (KIP-966). So nothing is taken from a broker as long as the cluster counts on it. It
is killed, and its disk is struck only when it is in no ISR or ELR any more, and others are in each ISR. It comes back as one that
was not shut down cleanly, which must not lead before it has all again.

Rot is put where a start looks for it, which is in the newest segment of each log, and in bytes that the checksum of their batch
covers: Kafka's format has none for base offset and leader epoch. What is torn is the beginning of a batch behind the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from kraftlab.broker.log.dir_names import DirKind, parse
from kraftlab.broker.log.errors import CorruptBatch
from kraftlab.broker.log.record_batch import HEADER_BYTES, read_header
from kraftlab.broker.log.segment import LOG_SUFFIX
from kraftlab.metadata.image import MetadataImage

from ..faults.damage import Damage

CHECKED_FROM = 16
"""Where in a batch the bytes begin which a start can tell are wrong: behind base offset, length and leader epoch."""


def counts_on(image: MetadataImage, broker: int) -> str:
    """For which partition the cluster by this image still needs what the broker has; "" if for none."""
    for topic in image.topics.by_id.values():
        for index, partition in sorted(topic.partitions.items()):
            is_needed = broker in partition.isr or broker in partition.elr or not partition.isr
            if broker in partition.replicas and is_needed:
                return f"{topic.name}-{index}"
    return ""


class _Batch(NamedTuple):
    path: Path
    position: int
    data: bytes


def newest_segments(log_dirs: Sequence[Path]) -> dict[Path, bytes]:
    """Of each log in these directories, by path."""
    found: dict[Path, bytes] = {}
    for directory in (directory for log_dir in log_dirs for directory in sorted(log_dir.iterdir())):
        name = parse(directory.name)
        if directory.is_dir() and name is not None and name.kind in (DirKind.CURRENT, DirKind.FUTURE):
            segments = sorted(directory.glob(f"*{LOG_SUFFIX}"))
            found.update({path: path.read_bytes() for path in segments[-1:]})
    return found


def rot(segments: Mapping[Path, bytes], random: Random) -> Damage | None:
    """A few bits of one batch flip; None if there is none."""
    found = [batch for path, segment in segments.items() for batch in _batches(path, segment)]
    if not found:
        return None
    path, position, before = random.choice(found)
    after = bytearray(before)
    for place in random.sample(range(CHECKED_FROM, len(before)), random.choice((1, 1, 3))):
        after[place] ^= 1 << random.randrange(8)
    return Damage(path, position, before, bytes(after))


def torn(segments: Mapping[Path, bytes], random: Random) -> Damage | None:
    """The beginning of a batch stands behind the last one of a log; None if no log has one."""
    found = [batch for path, segment in segments.items() for batch in list(_batches(path, segment))[-1:]]
    if not found:
        return None
    path, position, whole = random.choice(found)
    end = position + len(whole)
    return Damage(path, end, b"", whole[: random.randrange(1, len(whole))])


def _batches(path: Path, segment: bytes) -> Iterator[_Batch]:
    """The batches of a segment, up to the first that is none."""
    position = 0
    while position + HEADER_BYTES <= len(segment):
        try:
            size_bytes = read_header(segment, position).size_bytes
        except CorruptBatch:
            return
        yield _Batch(path, position, segment[position : position + size_bytes])
        position += size_bytes
