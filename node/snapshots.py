"""CreateSnapshot and ListSnapshots: the snapshots of the metadata log on one node (KIP-630)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.errors import NoSnapshot
from kraftlab.quorum.driver.quorum_description import QuorumDescription
from kraftlab.quorum.storage.errors import StorageFull
from kraftlab.quorum.storage.snapshot_store import SnapshotInfo
from kraftlab.rpc.methods import LocalCall


class Replica(Protocol):
    """The node's replica of the log (`RaftDriver`)."""

    async def take_snapshot(self) -> OffsetAndEpoch: ...

    def snapshots(self) -> list[SnapshotInfo]: ...

    def describe(self) -> QuorumDescription: ...

    @property
    def generation(self) -> int: ...


class SnapshotCalls:
    """Answers for one node."""

    def __init__(self, node_id: int, replica: Replica) -> None:
        self._node_id = node_id
        self._replica = replica

    def calls(self) -> Mapping[str, LocalCall]:
        """Return the calls by method of the Admin service."""
        return {"CreateSnapshot": self.create, "ListSnapshots": self.list}

    async def create(self, request: admin_pb2.CreateSnapshotRequest) -> admin_pb2.CreateSnapshotResponse:
        """Return the response without its header, once the snapshot is durable. ApiError as the proto says."""
        self._check_node(request)
        try:
            taken = await self._replica.take_snapshot()
        except NoSnapshot as error:
            raise ApiError(ErrorCode.SNAPSHOT_NOT_FOUND, f"node {self._node_id}: {error}") from None
        except StorageFull as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"node {self._node_id}: {error}") from None
        found = next((info for info in self._replica.snapshots() if info.id == taken), SnapshotInfo(taken, 0, -1))
        return admin_pb2.CreateSnapshotResponse(node_id=self._node_id, snapshot=_described(found))

    async def list(self, request: admin_pb2.ListSnapshotsRequest) -> admin_pb2.ListSnapshotsResponse:
        """Return the response without its header. ApiError INVALID_REQUEST."""
        self._check_node(request)
        quorum = self._replica.describe()
        return admin_pb2.ListSnapshotsResponse(
            node_id=self._node_id,
            snapshots=[_described(info) for info in self._replica.snapshots()],
            log_start_offset=quorum.log_start_offset,
            log_end_offset=quorum.log_end_offset,
            generation=self._replica.generation,
            is_repairing=quorum.is_repairing,
        )

    def _check_node(self, request: admin_pb2.CreateSnapshotRequest | admin_pb2.ListSnapshotsRequest) -> None:
        if request.HasField("node_id") and request.node_id != self._node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"This is node {self._node_id}, not {request.node_id}, and every node has snapshots of its own; ask that node.",
            )


def _described(info: SnapshotInfo) -> admin_pb2.MetadataSnapshot:
    return admin_pb2.MetadataSnapshot(
        end_offset=info.id.offset,
        epoch=info.id.epoch,
        size_bytes=info.size_bytes,
        last_contained_log_timestamp=info.append_time_ms,
    )
