"""Past metadata from the disk of one node, in several requests if it is large. The node masks secrets."""

from __future__ import annotations

from collections.abc import Iterator

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint

from .admin import AdminClient


def describe_image(
    client: AdminClient, endpoint: Endpoint, *, offset: int | None = None, time_ms: int | None = None
) -> tuple[pb.DescribeImageResponse, list[bytes]]:
    """Return the image of an offset or time, by default the newest: its position, and the bodies of its records.

    ApiError, ClusterUnreachable.
    """
    request = pb.DescribeImageRequest(offset=offset, time_ms=time_ms)
    first = answer = client.call_at(endpoint, pb.DescribeImageResponse, request)
    bodies = list(first.bodies)
    while answer.next_record:
        request = pb.DescribeImageRequest(offset=first.offset, first_record=answer.next_record)
        answer = client.call_at(endpoint, pb.DescribeImageResponse, request)
        bodies += answer.bodies
    return first, bodies


def list_metadata_records(
    client: AdminClient, endpoint: Endpoint, from_offset: int, to_offset: int
) -> Iterator[pb.MetadataBatch]:
    """Yield the batches of the metadata log between two offsets. ApiError, ClusterUnreachable."""
    while from_offset < to_offset:
        request = pb.ListMetadataRecordsRequest(from_offset=from_offset, to_offset=to_offset)
        answer = client.call_at(endpoint, pb.ListMetadataRecordsResponse, request)
        yield from answer.batches
        from_offset = answer.next_offset
