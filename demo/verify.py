"""Checks at the end, computed from the recording's files and from the nodes' own descriptions."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable

import google_crc32c
import msgspec

from kraftlab.metadata.peer_rpc import ReplicaDigest
from kraftlab.records.record_batch import mask_epochs, validate

from .recording import RecordedPartition, Recording


class Content(msgspec.Struct, frozen=True):
    """Content of a log, independent of segments and leaders: counts, and digests with the leader-epoch field masked."""

    batches: int
    records: int
    control_records: int
    size_bytes: int
    crc32c: int
    sha256: bytes


def content_of_files(paths: Iterable[pathlib.Path]) -> Content:
    """Return the content of segment files in order, every batch's CRC checked."""
    crc, sha = 0, hashlib.sha256()
    batches = records = control_records = size_bytes = 0
    for path in paths:
        data = bytearray(path.read_bytes())
        found = validate(data)
        mask_epochs(data, found)
        crc = google_crc32c.extend(crc, bytes(data))
        sha.update(data)
        size_bytes += len(data)
        batches += len(found)
        records += sum(header.record_count for _, header in found)
        control_records += sum(header.record_count for _, header in found if header.is_control)
    return Content(batches, records, control_records, size_bytes, crc, sha.digest())


def content_of_replica(digest: ReplicaDigest) -> Content:
    return Content(digest.batches, digest.records, digest.control_records, digest.size_bytes, digest.crc32c, digest.sha256)


def manifest_agrees(recorded: RecordedPartition, content: Content) -> bool:
    """Return whether the manifest, counted by another program, has the same numbers."""
    wanted = (recorded.batches, recorded.records, recorded.control_records, recorded.log_bytes)
    return wanted == (content.batches, content.records, content.control_records, content.size_bytes)


def recorded_contents(recording: Recording) -> dict[tuple[str, int], Content]:
    return {
        (partition.topic, partition.partition): content_of_files(recording.files(partition)) for partition in recording.partitions
    }


def largest_batch(recording: Recording) -> int:
    """Return the bytes of the largest recorded batch: a throttle cannot split a batch."""
    sizes = [
        header.size_bytes
        for partition in recording.partitions
        for path in recording.files(partition)
        for _, header in validate(path.read_bytes())
    ]
    return max(sizes, default=0)
