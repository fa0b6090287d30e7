"""DescribeMetadata: digests of the image that a node has published, and of the image in its metadata log on disk.

The log is read again from the newest valid snapshot (`history.py`), read-only and beside the running node. Everything below the
committed offset no longer changes, and nothing above it is read.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.snapshot import image_digest
from kraftlab.quorum.driver.environment import Threads
from kraftlab.quorum.storage.file_system import FileReader
from kraftlab.quorum.storage.identity import partition_directory

from .history import History, Moment, NoHistory, PastImage

REREAD_PATIENCE_S = 2.0
"""Time that a re-read waits for this node's disk to catch up with the committed offset."""


class MetadataDigests:
    """Answers for one node.

    `newest` returns the end offset it has published; `image_at` the image it keeps of an offset, or None. `threads` run slow
    work; `files` are this machine's by default.
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
        self._history = History(partition_directory(metadata_log_dir), files)
        self._newest = newest
        self._image_at = image_at
        self._threads = threads

    async def describe(self, request: admin_pb2.DescribeMetadataRequest) -> admin_pb2.DescribeMetadataResponse:
        """Return the response without its header. `at_offset` 0: the newest. An image that is not kept is rebuilt from the log.

        ApiError OFFSET_OUT_OF_RANGE for an offset that this node has not published yet, or whose image its disk does not have.
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
            reread = (await self._reread(offset)).image
            response.reread_offset = reread.provenance.offset
            response.reread_digest = await self._threads.run(image_digest, reread)
        return response

    async def _rebuilt(self, offset: int) -> MetadataImage:
        """Return the image at that very offset. ApiError OFFSET_OUT_OF_RANGE if the disk has only an older one."""
        found = await self._reread(offset)
        reached = found.image.provenance.offset
        if reached < offset:
            why = found.stopped or f"no batch ends at {offset}, or it is not on the disk yet"
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the disk of node {self._node_id} gives the image of {reached}, not of {offset}: {why}; ask another node",
            )
        return found.image

    async def _reread(self, offset: int) -> PastImage:
        """Return the disk's image up to that offset.

        ApiError OFFSET_OUT_OF_RANGE if the log starts after it, KAFKA_STORAGE_ERROR.
        """
        give_up = trio.current_time() + REREAD_PATIENCE_S
        while True:
            try:
                found = await self._threads.run(self._history.at, Moment(offset=offset))
            except NoHistory as error:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"node {self._node_id}: {error}") from None
            except OSError as error:
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"node {self._node_id} cannot read its metadata log: {error}"
                ) from None
            if found.image.provenance.offset >= offset or trio.current_time() >= give_up:
                return found
            await trio.sleep(0.05)
