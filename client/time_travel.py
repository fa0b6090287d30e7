"""The metadata as it was, from the disk of one node, in as many requests as it takes. Secrets are masked by the node."""

from __future__ import annotations

from collections.abc import Iterator

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.quorum.core.types import Endpoint

from .admin import AdminClient


def describe_image(
    client: AdminClient, endpoint: Endpoint, *, offset: int | None = None, time_ms: int | None = None
) -> tuple[pb.DescribeImageResponse, list[bytes]]:
    """The image of that offset or time, or the newest: where it stands, and the bodies of records that make it.

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
    """The batches of the metadata log between two offsets. ApiError, ClusterUnreachable."""
    while from_offset < to_offset:
        request = pb.ListMetadataRecordsRequest(from_offset=from_offset, to_offset=to_offset)
        answer = client.call_at(endpoint, pb.ListMetadataRecordsResponse, request)
        yield from answer.batches
        from_offset = answer.next_offset
