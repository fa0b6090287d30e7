"""DescribeMetadata: digests of the image that a node has published, and of what its metadata log on disk gives.

The log is read again from its newest snapshot on, read-only and beside the running node: what is below the committed offset does
not change any more, and nothing above it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.snapshot import image_digest, image_from
from kraftlab.quorum.driver.outside import Threads
from kraftlab.quorum.storage.file_system import FileReader
from kraftlab.quorum.storage.log_reader import oldest_snapshot, read_batches

REREAD_PATIENCE_S = 2.0
"""How long a re-read waits for this node's disk to catch up with what is committed."""
REREADS = 5


class MetadataDigests:
    """Answers for one node. `newest` is the end offset it has published; `image_at` the image it keeps of an offset, or None.
    `threads` do what takes long; `files` are this machine's if not given.
    """

    def __init__(
        self,
        node_id: int,
        metadata_log_dir: str,
        newest: Callable[[], int],
        image_at: Callable[[int], MetadataImage | None],
        threads: Threads,
        files: FileReader | None = None,
    ) -> None:
        self._node_id = node_id
        self._directory = metadata_log_dir
        self._newest = newest
        self._image_at = image_at
        self._threads = threads
        self._files = files

    async def describe(self, request: admin_pb2.DescribeMetadataRequest) -> admin_pb2.DescribeMetadataResponse:
        """The response without its header. `at_offset` 0: the newest; an offset whose image is not kept is rebuilt from the log.

        ApiError OFFSET_OUT_OF_RANGE for an offset that this node has not published yet, or whose image its disk does not give.
        """
        newest = self._newest()
        offset = request.at_offset or newest
        if not 0 <= offset <= newest:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"node {self._node_id} has metadata up to {newest}, not {offset}; send min_offset to wait for it",
            )
        image = self._image_at(offset)
        if image is None:
            image = await self._rebuilt(offset)
        response = admin_pb2.DescribeMetadataResponse(
            node_id=self._node_id,
            offset=offset,
            epoch=image.provenance.epoch,
            image_digest=await self._threads.run(image_digest, image),
        )
        if request.reread_log:
            reread = await self._reread(offset)
            response.reread_offset = reread.provenance.offset
            response.reread_digest = await self._threads.run(image_digest, reread)
        return response

    async def _rebuilt(self, offset: int) -> MetadataImage:
        """ApiError OFFSET_OUT_OF_RANGE unless it is the image at that very offset: what the disk holds may be damaged since."""
        image = await self._reread(offset)
        if image.provenance.offset < offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"what node {self._node_id} has on its disk gives the image of {image.provenance.offset}, not of {offset}: that "
                "is no end of a batch, or what comes before it cannot be read; ask another node",
            )
        return image

    async def _reread(self, offset: int) -> MetadataImage:
        give_up = trio.current_time() + REREAD_PATIENCE_S
        while True:
            image = await self._threads.run(reread_image, self._directory, offset, self._files)
            if image.provenance.offset >= offset or trio.current_time() >= give_up:
                return image
            await trio.sleep(0.05)


def reread_image(directory: str, end_offset: int, files: FileReader | None = None) -> MetadataImage:
    """The image from what the disk holds up to `end_offset`, a snapshot and batches; its provenance says how far that goes.

    Blocks. ApiError OFFSET_OUT_OF_RANGE if the log starts behind that offset.
    """
    for _ in range(REREADS - 1):
        # The node may clean its log meanwhile and remove what was about to be read; what it has then is newer.
        with suppress(FileNotFoundError):
            return _image_on_disk(directory, end_offset, files)
    return _image_on_disk(directory, end_offset, files)


def _image_on_disk(directory: str, end_offset: int, files: FileReader | None) -> MetadataImage:
    snapshot, batches = read_batches(directory, end_offset, files)
    image = EMPTY
    if snapshot is not None:
        provenance = Provenance(*snapshot.position, snapshot.append_time_ms)
        image = MetadataDelta(image_from(snapshot.bodies())).apply(provenance)
    for header, body, _ in batches:
        delta = MetadataDelta(image)
        if not header.is_control:
            delta.replay_all(codec.decode(body, header.base_offset, header.record_count), header.base_offset)
        image = delta.apply(Provenance(header.end_offset, header.epoch, header.append_time_ms))
    if image is EMPTY and end_offset > 0 and (oldest := oldest_snapshot(directory, files)) is not None:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the metadata log starts at {oldest.offset}: the image of {end_offset} can not be made any more",
        )
    return image
