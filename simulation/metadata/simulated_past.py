"""The published images of a simulated controller, for DescribeMetadata and DescribeImage.

A real node reads older images from its disk. Here they are gone with the process, and requests for them are refused.
"""

from __future__ import annotations

from collections import deque

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata import codec
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.snapshot import image_digest, image_records
from kraftlab.rpc.methods import LocalCall

KEPT = 300


class SimulatedPast:
    """Images by offset, the newest last."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._images: deque[MetadataImage] = deque(maxlen=KEPT)

    def publish(self, image: MetadataImage) -> None:
        """Add the controller's new committed image."""
        self._images.append(image)

    def calls(self) -> dict[str, LocalCall]:
        """Return the handlers by method of the Admin service."""
        return {"DescribeMetadata": self._describe, "DescribeImage": self._image}

    def _at(self, offset: int | None) -> MetadataImage:
        """Return the image at an offset, or the newest one for None. ApiError OFFSET_OUT_OF_RANGE if no image was published
        there, for instance between two batches that were applied at once.
        """
        for image in reversed(self._images):
            if offset is None or image.provenance.offset == offset:
                return image
        held = f"{self._images[0].provenance.offset} to {self._images[-1].provenance.offset}" if self._images else "none"
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"node {self._node_id} has images of {held}, not of {offset}")

    async def _describe(self, request: admin_pb2.DescribeMetadataRequest) -> admin_pb2.DescribeMetadataResponse:
        image = self._at(request.at_offset or None)
        response = admin_pb2.DescribeMetadataResponse(
            node_id=self._node_id,
            offset=image.provenance.offset,
            epoch=image.provenance.epoch,
            image_digest=image_digest(image),
        )
        if request.reread_log:
            response.reread_offset, response.reread_digest = response.offset, response.image_digest
        return response

    async def _image(self, request: admin_pb2.DescribeImageRequest) -> admin_pb2.DescribeImageResponse:
        image = self._at(request.offset if request.HasField("offset") else None)
        return admin_pb2.DescribeImageResponse(
            node_id=self._node_id,
            offset=image.provenance.offset,
            epoch=image.provenance.epoch,
            append_time_ms=image.provenance.append_time_ms,
            bodies=[codec.encode(list(image_records(image)))[0]],
        )
