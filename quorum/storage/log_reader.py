"""Reading a metadata log's files beside the node that writes them: the chained batches, up to an offset.

Read-only: what is committed does not change any more, and nothing above `end_offset` is looked at. For worker threads, since
whole segments are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..core.batch import Batch, decode
from ..core.errors import CorruptBatch
from .identity import partition_directory
from .segment import HEADER_PAGE_BYTES, segment_base_offset


def read_batches(directory: str, end_offset: int) -> Iterator[Batch]:
    """The batches in the segments of a metadata.log.dir, in order, up to `end_offset` or the end of what is on disk."""
    path = Path(partition_directory(directory))
    expected = 0
    for name in sorted(os.listdir(path)):
        if segment_base_offset(name) != expected:
            continue
        data = (path / name).read_bytes()
        position = HEADER_PAGE_BYTES
        while position < len(data):
            try:
                batch = decode(data, position)
            except CorruptBatch:
                break
            if batch.header.base_offset != expected or batch.header.end_offset > end_offset:
                break
            yield batch
            position, expected = position + batch.header.size_bytes, batch.header.end_offset
