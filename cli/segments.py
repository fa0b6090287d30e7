"""Imports captured segment files into a cluster: whole batches, offsets kept.

A directory of the shape `TOPIC-N/*.log` is read partition by partition in order of base offset; every batch's CRC is checked
before it is sent to the partition's leader, from where it replicates. Nothing is decoded. A leader that keeps offsets refuses
batches that it has already, so a second import changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kraftlab.client import DataClient

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")
_REQUEST_BYTES = 512 * 1024


class ImportFailed(Exception):
    """The files cannot be imported; the text says which and why."""


class PartitionFiles(msgspec.Struct, frozen=True):
    """One partition's segment files, in order of base offset."""

    topic: str
    partition: int
    files: tuple[Path, ...]
    size_bytes: int


class Imported(msgspec.Struct, frozen=True):
    """What was imported into one partition. `records` counts control records too."""

    topic: str
    partition: int
    batches: int
    records: int
    size_bytes: int
    log_end_offset: int


def find_partitions(directory: Path) -> list[PartitionFiles]:
    """The partitions that stand in a directory, sorted. ImportFailed if it is none or holds none."""
    if not directory.is_dir():
        raise ImportFailed(f"{directory} is not a directory; give one that holds TOPIC-N/*.log")
    found = []
    for child in directory.iterdir():
        match = _PARTITION_DIRECTORY.fullmatch(child.name)
        if match is None or not child.is_dir():
            continue
        files = tuple(sorted(child.glob("*.log"), key=lambda path: path.name))
        found.append(PartitionFiles(match["topic"], int(match["partition"]), files, sum(path.stat().st_size for path in files)))
    if not found:
        raise ImportFailed(f"{directory} holds no TOPIC-N directories; give the directory above them")
    return sorted(found, key=lambda files: (files.topic, files.partition))


def chunks(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """A file's batches as (bytes, batches, records), each at most half a mebibyte unless one batch is larger. ImportFailed."""
    from kraftlab.broker.log.errors import LogError
    from kraftlab.broker.log.record_batch import validate

    data = path.read_bytes()
    try:
        batches = validate(data)
    except (LogError, ValueError) as error:
        raise ImportFailed(f"{path} is damaged: {error}") from error
    start = batch_count = record_count = 0
    for index, (position, header) in enumerate(batches):
        end = batches[index + 1][0] if index + 1 < len(batches) else len(data)
        if batch_count and end - start > _REQUEST_BYTES:
            yield data[start:position], batch_count, record_count
            start, batch_count, record_count = position, 0, 0
        batch_count += 1
        record_count += header.record_count
    if batch_count:
        yield data[start:], batch_count, record_count


def import_partition(data: DataClient, source: PartitionFiles, advance: Callable[[int], None] = lambda size: None) -> Imported:
    """Imports one partition's files; `advance` is called with the bytes of each answered request. ImportFailed, ApiError."""
    batches = records = size_bytes = 0
    end = 0
    for path in source.files:
        for content, batch_count, record_count in chunks(path):
            response = data.produce(source.topic, source.partition, content, keep_offsets=True)
            batches += batch_count
            records += record_count
            size_bytes += len(content)
            end = response.log_end_offset
            advance(len(content))
    return Imported(source.topic, source.partition, batches, records, size_bytes, end)
