"""The metadata log as it stands on disk, read again from its first segment: does it give the image that this node serves?

Read-only and beside the running log: what is below the committed offset does not change any more, and nothing above it is
looked at. For a worker thread, since whole segments are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.quorum.core.batch import Batch, decode
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES, segment_base_offset


def reread_image(directory: str, end_offset: int) -> MetadataImage:
    """The image from the batches on disk that end at or before `end_offset`; its provenance says how far they go."""
    image = EMPTY
    for header, body, _ in read_batches(directory, end_offset):
        delta = MetadataDelta(image)
        if not header.is_control:
            delta.replay_all(codec.decode(body, header.base_offset, header.record_count), header.base_offset)
        image = delta.apply(Provenance(header.end_offset, header.epoch, header.append_time_ms))
    return image


def read_batches(directory: str, end_offset: int) -> Iterator[Batch]:
    """The chained batches in the segments of a metadata.log.dir, in order, up to `end_offset` or the end of what is on disk."""
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
