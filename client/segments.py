"""Importing segment files: recorded batches go to a partition's leader as they are, offsets kept, and replicate from there."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Iterator

from kraftlab.metadata.errors import ApiError, ErrorCode

from .data import DataClient

CHUNK_BYTES = 1 << 20
_LENGTH_FROM = 12
_HEADER_BYTES = 61


def chunks(path: pathlib.Path, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The file's whole batches, as many per chunk as fit (at least one). ApiError CORRUPT_MESSAGE if it ends in a cut batch."""
    data = path.read_bytes()
    start = position = 0
    while position < len(data):
        length = int.from_bytes(data[position + 8 : position + _LENGTH_FROM], "big", signed=True)
        end = position + _LENGTH_FROM + length
        if length < _HEADER_BYTES - _LENGTH_FROM or end > len(data):
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{path} is damaged at byte {position}: no whole batch there; import another copy of it",
            )
        if end - start > chunk_bytes and position > start:
            yield data[start:position]
            start = position
        position = end
    if position > start:
        yield data[start:position]


def import_segments(
    data: DataClient,
    topic: str,
    partition: int,
    paths: Iterable[pathlib.Path],
    *,
    on_bytes: Callable[[int], None] = lambda count: None,
) -> int:
    """Appends segment files, in offset order, to an empty or shorter log; bytes sent. ApiError, ClusterUnreachable.

    `on_bytes` hears of each chunk once the leader has it. Followers copy at their own pace: wait for them if it matters.
    """
    sent = 0
    for path in paths:
        for chunk in chunks(path):
            data.produce(topic, partition, chunk, acks=1, keep_offsets=True)
            sent += len(chunk)
            on_bytes(len(chunk))
    return sent
