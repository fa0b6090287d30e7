"""Past metadata from the disk of one node, in several requests if it is large. The node masks secrets."""

from __future__ import annotations

from collections.abc import Iterator

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.snapshot import image_from
from kraftlab.node.history import LoggedBatch
from kraftlab.quorum.core.batch import decode_control

from .admin import AdminClient


def image_at(client: AdminClient, endpoint: Endpoint, *, offset: int | None = None, time_ms: int | None = None) -> MetadataImage:
    """Return the image of an offset or time, by default the newest. ApiError, ClusterUnreachable."""
    request = pb.DescribeImageRequest(offset=offset, time_ms=time_ms)
    first = answer = client.call_at(endpoint, pb.DescribeImageResponse, request)
    bodies = list(first.bodies)
    while answer.next_record:
        request = pb.DescribeImageRequest(offset=first.offset, first_record=answer.next_record)
        answer = client.call_at(endpoint, pb.DescribeImageResponse, request)
        bodies += answer.bodies
    return MetadataDelta(image_from(bodies)).apply(Provenance(first.offset, first.epoch, first.append_time_ms))


def batches(client: AdminClient, endpoint: Endpoint, from_offset: int, to_offset: int) -> Iterator[LoggedBatch]:
    """Yield the batches of the metadata log that begin between two offsets. ApiError, ClusterUnreachable."""
    while from_offset < to_offset:
        request = pb.ListMetadataRecordsRequest(from_offset=from_offset, to_offset=to_offset)
        answer = client.call_at(endpoint, pb.ListMetadataRecordsResponse, request)
        for found in answer.batches:
            control = decode_control(found.body) if found.is_control else ()
            records = () if found.is_control else codec.decode(found.body, found.base_offset)
            place = found.base_offset, found.epoch, found.append_time_ms, found.record_count
            yield LoggedBatch(*place, tuple(records), tuple(control))
        from_offset = answer.next_offset
