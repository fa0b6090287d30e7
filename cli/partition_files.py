"""JSON files that name partitions, in Kafka's format."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kraftlab.config.json_files import BadJson, read_json

from .output import BadInput


class PartitionEntry(msgspec.Struct, frozen=True):
    """One entry of the file. Only deletions have an `offset`."""

    topic: str
    partition: int
    offset: int | None = None


class _Elections(msgspec.Struct, frozen=True):
    """Kafka's tool does not look at a version here."""

    partitions: tuple[PartitionEntry, ...]


class _Deletions(_Elections, frozen=True):
    """Kafka's tool takes version 1 alone."""

    version: int = 1


def read_partitions(path: Path, example: str, *, with_offsets: bool = False) -> dict[tuple[str, int], int]:
    """Return the offset of each partition in `{"partitions":[{"topic","partition"[,"offset"]}],"version":1}`, -1 without one.

    BadInput; OSError if the file cannot be read. `example` is a valid file for the error texts.
    """
    kind: type[_Elections] = _Deletions if with_offsets else _Elections
    try:
        document = read_json(path, kind)
    except BadJson as error:
        raise BadInput(f"{path} is {error}; write it like this: {example}") from None
    if isinstance(document, _Deletions) and document.version != 1:
        raise BadInput(f"{path}: Not supported version field value {document.version}; it is 1")
    if not document.partitions:
        raise BadInput(f"{path}: the list of partitions is empty; write it like this: {example}")
    found: dict[tuple[str, int], int] = {}
    for entry in document.partitions:
        if (entry.topic, entry.partition) in found:
            raise BadInput(f"{path}: it names {entry.topic}-{entry.partition} twice; leave one of the two out")
        if with_offsets and entry.offset is None:
            raise BadInput(f"{path}: {entry.topic}-{entry.partition} has no offset; write it like this: {example}")
        found[entry.topic, entry.partition] = -1 if entry.offset is None else entry.offset
    return found
