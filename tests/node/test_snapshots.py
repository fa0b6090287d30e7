"""CreateSnapshot and ListSnapshots of a node's own snapshots."""

from __future__ import annotations

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.node.snapshots import SnapshotCalls
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.errors import NoSnapshot
from kraftlab.quorum.driver.quorum_description import QuorumDescription
from kraftlab.quorum.storage.errors import StorageFull
from kraftlab.quorum.storage.snapshot_store import SnapshotInfo


class Replica:
    """Has what it is given; `refusal` is raised instead of taking a snapshot."""

    def __init__(self) -> None:
        self.infos = [SnapshotInfo(OffsetAndEpoch(40, 2), 300, 1_700_000_000_123)]
        self.refusal: Exception | None = None
        self.generation = 3

    async def take_snapshot(self) -> OffsetAndEpoch:
        if self.refusal is not None:
            raise self.refusal
        self.infos.append(SnapshotInfo(OffsetAndEpoch(90, 4), 500, 1_700_000_000_456))
        return OffsetAndEpoch(90, 4)

    def snapshots(self) -> list[SnapshotInfo]:
        return self.infos

    def describe(self) -> QuorumDescription:
        return QuorumDescription(7, 3000, 4, 95, [], [], 1, 2, 40, 96, True)


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.fixture
def calls(replica: Replica) -> SnapshotCalls:
    return SnapshotCalls(7, replica)


async def test_a_snapshot_is_taken_and_described(calls: SnapshotCalls) -> None:
    answer = await calls.create(pb.CreateSnapshotRequest(node_id=7))
    assert answer == pb.CreateSnapshotResponse(
        node_id=7,
        snapshot=pb.MetadataSnapshot(end_offset=90, epoch=4, size_bytes=500, last_contained_log_timestamp=1_700_000_000_456),
    )


async def test_the_list_says_where_the_log_begins_and_ends_and_whether_it_is_whole(calls: SnapshotCalls) -> None:
    answer = await calls.list(pb.ListSnapshotsRequest())
    assert [(item.end_offset, item.epoch) for item in answer.snapshots] == [(40, 2)]
    assert (answer.node_id, answer.log_start_offset, answer.log_end_offset) == (7, 40, 96)
    assert (answer.generation, answer.is_repairing) == (3, True)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (NoSnapshot("there is nothing new"), ErrorCode.SNAPSHOT_NOT_FOUND),
        (StorageFull("no space left"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_the_obstacle_to_a_snapshot_is_reported(
    calls: SnapshotCalls, replica: Replica, refusal: Exception, code: ErrorCode
) -> None:
    replica.refusal = refusal
    with pytest.raises(ApiError, match=f"node 7: {refusal}") as raised:
        await calls.create(pb.CreateSnapshotRequest())
    assert raised.value.code == code


async def test_a_request_that_is_meant_for_another_node_is_refused(calls: SnapshotCalls, replica: Replica) -> None:
    for request in (pb.CreateSnapshotRequest(node_id=8), pb.ListSnapshotsRequest(node_id=8)):
        call = calls.create if isinstance(request, pb.CreateSnapshotRequest) else calls.list
        with pytest.raises(ApiError, match=r"INVALID_REQUEST\(42\): This is node 7, not 8"):
            await call(request)  # type: ignore[arg-type]
    assert len(replica.infos) == 1
