"""DescribeMetadata of one broker: the digest of the image it has published, and of what its metadata log on disk gives."""

from __future__ import annotations

import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.snapshot import image_digest
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage.log_reader import read_batches

from .metadata_publisher import MetadataPublisher, replay

REREAD_PATIENCE_S = 2.0
"""How long a re-read waits for this node's disk to catch up with what is committed."""


class MetadataApi:
    """Handler of the call."""

    def __init__(self, node_id: int, metadata_log_dir: str, publisher: MetadataPublisher) -> None:
        self._node_id = node_id
        self._directory = metadata_log_dir
        self._publisher = publisher

    async def describe(self, message: Message) -> Message:
        """`at_offset` 0: the newest. OFFSET_OUT_OF_RANGE for an offset that this broker has not reached."""
        assert isinstance(message, admin_pb2.DescribeMetadataRequest)
        newest = self._publisher.image.provenance
        offset = message.at_offset or newest.offset
        header = admin_pb2.ResponseHeader(metadata_offset=newest.offset, epoch=newest.epoch, leader_id=-1)
        if offset > newest.offset:
            header.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            header.error_message = (
                f"broker {self._node_id} has metadata up to {newest.offset}, not {offset}; send min_offset to wait for it"
            )
            return admin_pb2.DescribeMetadataResponse(header=header, node_id=self._node_id)
        image = self._publisher.image_at(offset)
        if image is None:
            # Published together with later batches, or long ago: the log has it.
            image = await self._reread(offset)
        response = admin_pb2.DescribeMetadataResponse(
            header=header,
            node_id=self._node_id,
            offset=offset,
            epoch=image.provenance.epoch,
            image_digest=await trio.to_thread.run_sync(image_digest, image),
        )
        if message.reread_log:
            reread = await self._reread(offset)
            response.reread_offset = reread.provenance.offset
            response.reread_digest = await trio.to_thread.run_sync(image_digest, reread)
        return response

    async def _reread(self, offset: int) -> MetadataImage:
        give_up = trio.current_time() + REREAD_PATIENCE_S
        while True:
            image = await trio.to_thread.run_sync(reread_image, self._directory, offset)
            if image.provenance.offset >= offset or trio.current_time() >= give_up:
                return image
            await trio.sleep(0.05)


def reread_image(directory: str, end_offset: int) -> MetadataImage:
    """The image from the batches on disk that end at or before `end_offset`; its provenance says how far they go. Blocks."""
    image = EMPTY
    for header, body, _ in read_batches(directory, end_offset):
        batch = CommittedBatch(
            header.base_offset, header.end_offset, header.epoch, header.append_time_ms, b"" if header.is_control else body
        )
        image = replay(MetadataDelta(image), [batch])
    return image
