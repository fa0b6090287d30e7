"""Import of captured segment files into a cluster: whole batches with their offsets.

A directory with `TOPIC-N/*.log` is read partition by partition, in order of base offset. Every batch's CRC is checked before the
batch goes to the partition's leader, from where it replicates. Batches are not decoded. A leader that keeps offsets refuses
batches that it has, so a second import changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..output import BadInput

if TYPE_CHECKING:
    from kraftlab.client import DataClient
    from kraftlab.metadata.peer_rpc import ProduceResponse

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")
_REQUEST_BYTES = 512 * 1024


class PartitionFiles(msgspec.Struct, frozen=True):
    """One partition's segment files, in order of base offset."""

    topic: str
    partition: int
    files: tuple[Path, ...]
    size_bytes: int


class ImportResult(msgspec.Struct, frozen=True):
    """Result of the import into one partition. `records` includes control records."""

    topic: str
    partition: int
    batches: int
    records: int
    size_bytes: int
    log_end_offset: int


def find_partitions(directory: Path, topics: Collection[str] = ()) -> list[PartitionFiles]:
    """Return the partitions of these topics, or of all, in a directory, sorted. BadInput for a topic without partitions."""
    if not directory.is_dir():
        raise BadInput(f"{directory} is not a directory; give one that holds TOPIC-N/*.log")
    found = []
    for child in directory.iterdir():
        match = _PARTITION_DIRECTORY.fullmatch(child.name)
        if match is None or not child.is_dir():
            continue
        files = tuple(sorted(child.glob("*.log"), key=lambda path: path.name))
        found.append(PartitionFiles(match["topic"], int(match["partition"]), files, sum(path.stat().st_size for path in files)))
    if not found:
        raise BadInput(f"{directory} holds no TOPIC-N directories; give the directory above them")
    there = {files.topic for files in found}
    if missing := set(topics) - there:
        raise BadInput(f"{directory} holds no partition of {', '.join(sorted(missing))}; it holds {', '.join(sorted(there))}")
    chosen = [files for files in found if not topics or files.topic in topics]
    return sorted(chosen, key=lambda files: (files.topic, files.partition))


def chunks(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """Yield the batches of a file as (bytes, batches, records) of at most 512 KiB, or one larger batch. BadInput."""
    from kraftlab.records.errors import LogError
    from kraftlab.records.record_batch import validate

    data = path.read_bytes()
    try:
        batches = validate(data)
    except (LogError, ValueError) as error:
        raise BadInput(f"{path} is damaged: {error}") from error
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


def _append(data: DataClient, source: PartitionFiles, content: bytes) -> ProduceResponse:
    from kraftlab.common.errors import ApiError, ErrorCode

    try:
        return data.produce(source.topic, source.partition, content, keep_offsets=True)
    except ApiError as error:
        name, topic = f"{source.topic}-{source.partition}", f"--topic {source.topic}"
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise BadInput(f"the cluster has no {name}; create it with kraftlab topics --create {topic} --partitions N") from None
        if error.code == ErrorCode.INVALID_RECORD:
            raise BadInput(
                f"{error.message}. A partition must be empty, or end where its files begin; after an interrupted import, "
                f"start over: kraftlab topics --delete {topic}, then --create it"
            ) from None
        raise


def import_partition(
    data: DataClient, source: PartitionFiles, advance: Callable[[int], None] = lambda size: None
) -> ImportResult:
    """Import one partition's files. `advance` is called with the size of each answered request. BadInput, ApiError."""
    batches = records = size_bytes = 0
    end = 0
    for path in source.files:
        for content, batch_count, record_count in chunks(path):
            response = _append(data, source, content)
            batches += batch_count
            records += record_count
            size_bytes += len(content)
            end = response.log_end_offset
            advance(len(content))
    return ImportResult(source.topic, source.partition, batches, records, size_bytes, end)
