"""The metadata log as it stands on disk, read again from its first segment: does it give the image that this node serves?

Read-only and beside the running log: what is below the committed offset does not change any more, and nothing above it is
looked at. For a worker thread, since whole segments are read.
"""

from __future__ import annotations

from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.quorum.storage.log_reader import read_batches


def reread_image(directory: str, end_offset: int) -> MetadataImage:
    """The image from the batches on disk that end at or before `end_offset`; its provenance says how far they go."""
    image = EMPTY
    for header, body, _ in read_batches(directory, end_offset):
        delta = MetadataDelta(image)
        if not header.is_control:
            delta.replay_all(codec.decode(body, header.base_offset, header.record_count), header.base_offset)
        image = delta.apply(Provenance(header.end_offset, header.epoch, header.append_time_ms))
    return image
