"""A metadata log in memory, and nodes that answer from it as `AdminClient.call_at` does: behind, cleaned, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import AnyRecord, NoOp, Partition, PartitionChange, Topic
from kraftlab.metadata.snapshot import image_records
from kraftlab.node.history import LoggedBatch
from kraftlab.quorum.core.batch import LeaderChange, encode_control

ID = bytes(15) + b"\1"
ANSWER_BATCHES = 3
SECOND_MS = 1000


class ScriptedLog:
    """Batches, and the image after each. Batch N is appended at N seconds."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.images: list[MetadataImage] = [EMPTY]
        self.epoch = 1

    @property
    def end(self) -> int:
        return self.images[-1].provenance.offset

    def append(self, *records: AnyRecord) -> LoggedBatch:
        return self._append(records, ())

    def elect(self, leader: int, *granted: int) -> LoggedBatch:
        self.epoch += 1
        return self._append((), (LeaderChange(0, leader, (1, 2, 3), granted or (1, 2)),))

    def topic(self, name: str, number: int = 1) -> bytes:
        """Append a topic with one partition, and return its id."""
        topic_id = number.to_bytes(16, "big")
        self.append(Topic(0, name, topic_id), Partition(0, 0, topic_id, (0, 1), (0, 1), leader=0))
        return topic_id

    def no_ops(self, count: int) -> None:
        for _ in range(count):
            self.append(NoOp(0))

    def shrink(self, topic_id: bytes, *isr: int) -> LoggedBatch:
        return self.append(PartitionChange(0, 0, topic_id, isr=isr, leader=isr[0]))

    def _append(self, records: Sequence[AnyRecord], control: tuple[LeaderChange, ...]) -> LoggedBatch:
        at_ms = SECOND_MS * len(self.images)
        batch = LoggedBatch(self.end, self.epoch, at_ms, len(records) + len(control), tuple(records), control)
        delta = MetadataDelta(self.images[-1])
        delta.replay_all(records, batch.base_offset)
        self.images.append(delta.apply(Provenance(batch.base_offset + batch.record_count, self.epoch, at_ms)))
        self.batches.append(batch)
        return batch

    def image_at(self, offset: int) -> MetadataImage:
        return [each for each in self.images if each.provenance.offset <= offset][-1]


class ScriptedNode:
    """A node that has applied the log up to `end` (None: all of it), and whose log begins at `first`."""

    def __init__(self, log: ScriptedLog) -> None:
        self.log = log
        self.first = 0
        self.behind = 0
        """Number of batches at the end that the node does not have yet."""
        self.is_up = True
        self.cluster_id = "lab"

    @property
    def end(self) -> int:
        return self.log.images[max(0, len(self.log.images) - 1 - self.behind)].provenance.offset


class ScriptedClient:
    """Answers for nodes by endpoint. `calls` are the requests so far."""

    def __init__(self, nodes: dict[Endpoint, ScriptedNode]) -> None:
        self.nodes = nodes
        self.calls: list[Any] = []

    def as_client(self) -> AdminClient:
        return cast("AdminClient", self)

    def call_at(self, endpoint: Endpoint, answer: type[Any], request: Any, *, timeout_ms: int | None = None) -> Any:
        self.calls.append(request)
        node = self.nodes[endpoint]
        if not node.is_up:
            raise ClusterUnreachable(f"{endpoint} does not answer; start it")
        if answer is pb.DescribeClusterResponse:
            return answer(cluster_id=node.cluster_id)
        if request.header.cluster_id not in ("", node.cluster_id):
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if request.header.min_offset > node.end:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        answers: dict[Any, Callable[[ScriptedNode, Any], Any]] = {
            pb.ListSnapshotsResponse: self._snapshots,
            pb.DescribeImageResponse: self._image,
        }
        response = answers.get(answer, self._records)(node, request)
        response.header.metadata_offset = node.end
        return response

    def _snapshots(self, node: ScriptedNode, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        snapshots = [pb.MetadataSnapshot(end_offset=node.first)] if node.first else []
        return pb.ListSnapshotsResponse(snapshots=snapshots, log_start_offset=node.first, log_end_offset=node.end)

    def _image(self, node: ScriptedNode, request: pb.DescribeImageRequest) -> pb.DescribeImageResponse:
        offset = request.offset if request.HasField("offset") else node.end
        if request.HasField("time_ms"):
            late = (each for each in node.log.batches if each.append_time_ms > request.time_ms)
            offset = min(node.end, next((each.base_offset for each in late), node.end))
        self._check(node, offset)
        image = node.log.image_at(offset)
        bodies = [codec.encode(list(image_records(image)))[0]]
        return pb.DescribeImageResponse(**_place(image.provenance), bodies=bodies)

    def _records(self, node: ScriptedNode, request: pb.ListMetadataRecordsRequest) -> pb.ListMetadataRecordsResponse:
        self._check(node, request.from_offset)
        self._check(node, request.to_offset)
        found = [
            each for each in node.log.batches if request.from_offset < each.base_offset + each.record_count <= request.to_offset
        ]
        response = pb.ListMetadataRecordsResponse(next_offset=request.to_offset)
        for each in found[:ANSWER_BATCHES]:
            body = encode_control(list(each.control)) if each.control else codec.encode(list(each.records))[0]
            place = {"base_offset": each.base_offset, "epoch": each.epoch, "append_time_ms": each.append_time_ms}
            response.batches.add(**place, record_count=each.record_count, is_control=bool(each.control), body=body)
        if found[ANSWER_BATCHES:]:
            response.next_offset = found[ANSWER_BATCHES].base_offset
        return response

    def _check(self, node: ScriptedNode, offset: int) -> None:
        if not node.first <= offset <= node.end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the node has offsets {node.first} to {node.end}, not {offset}")


def _place(at: Provenance) -> dict[str, Any]:
    return {"offset": at.offset, "epoch": at.epoch, "append_time_ms": at.append_time_ms}


def endpoints(count: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint("localhost", 9000 + number) for number in range(count))
