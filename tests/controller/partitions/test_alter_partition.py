"""AlterPartition: valid requests of a leader for its ISR, and their effect on a reassignment."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.cluster import directories
from kraftlab.controller.engine.state import Outcome
from kraftlab.controller.partitions.partitions import alter_partition
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, AssignReplicasToDirsRequest, DirectoryAssignment, IsrChange
from kraftlab.metadata.records import RECOVERED, RECOVERING, FeatureLevel


@pytest.fixture
async def moved(five: Any) -> Any:
    """t-0 with replicas 1, 2, 3, led by 2 in its second epoch."""
    await five.create("t", (1, 2, 3))
    await five.stop_broker(1)
    assert five.state("t") == ((1, 2, 3), (2, 3), 2, (), ())
    return five


async def test_a_leader_shrinks_and_expands_its_isr(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    assert await five.set_isr("t", (1, 2)) == ErrorCode.NONE
    assert five.state("t")[1:3] == ((1, 2), 1)
    assert five.partition("t").leader_epoch == 0
    assert await five.set_isr("t", (1, 2, 3)) == ErrorCode.NONE
    assert five.partition("t").partition_epoch == 2


async def test_below_metadata_version_12_a_shrink_raises_the_leader_epoch(cluster: Any) -> None:
    before_levels = [FeatureLevel(0, "eligible.leader.replicas.version", 0), FeatureLevel(0, "metadata.version", 11)]
    await cluster.write(lambda state, request, context: Outcome(before_levels, "done"), None)
    await cluster.start_brokers(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    assert await cluster.set_isr("t", (1, 2)) == ErrorCode.NONE
    assert cluster.partition("t").leader_epoch == 1
    assert await cluster.set_isr("t", (1, 2, 3)) == ErrorCode.NONE
    assert cluster.partition("t").leader_epoch == 1
    await cluster.stop_broker(3)
    assert (cluster.partition("t").isr, cluster.partition("t").leader, cluster.partition("t").leader_epoch) == ((1, 2), 1, 2)


async def test_the_answer_carries_the_new_state(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    topic_id = five.controller.newest.image.topics.get("t").topic_id
    change = IsrChange(topic_id, 0, 0, ((1, -1), (3, five.broker(3).epoch)), RECOVERED, 0)
    response = await five.write(alter_partition, AlterPartitionRequest(1, five.broker(1).epoch, (change,)))
    (result,) = response.results
    assert (result.error, result.leader, result.leader_epoch, result.isr, result.partition_epoch) == (0, 1, 0, (1, 3), 1)


async def test_a_replica_whose_directory_is_offline_does_not_join(cluster: Any, tools: Any) -> None:
    """It may have fetched once more while its directory was failing."""
    first, second = tools.directory(2, 0), tools.directory(2, 1)
    await cluster.start_brokers(1)
    await cluster.start_brokers(2, log_dirs=(first, second))
    await cluster.create("t", (1, 2))
    place = DirectoryAssignment(first, cluster.controller.newest.image.topics.get("t").topic_id, 0)
    await cluster.write(directories.assign, AssignReplicasToDirsRequest(2, cluster.broker(2).epoch, (place,)))
    await cluster.heartbeat(2, offline_log_dirs=(first,))
    assert cluster.partition("t").isr == (1,)
    assert await cluster.set_isr("t", (1, 2)) == ErrorCode.INELIGIBLE_REPLICA
    await cluster.register(2, log_dirs=(first, second))
    assert await cluster.set_isr("t", (1, 2)) == ErrorCode.NONE


async def test_an_unchanged_isr_writes_nothing(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    assert await five.set_isr("t", (1, 2, 3)) == ErrorCode.NONE
    assert five.partition("t").partition_epoch == 0


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ((2, 3), {"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((2, 3), {"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((2, 3), {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((2, 3), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((2, 3), {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ((2, 3), {"sender": 3}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((2, 2), {}, ErrorCode.INVALID_REQUEST),
        ((2, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, -1), {}, ErrorCode.INVALID_REQUEST),
        ((3,), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((2,), {"leader_recovery_state": 5}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((2,), {"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 3), {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
async def test_checks_in_their_order(moved: Any, isr: tuple[int, ...], changes: dict[str, Any], code: ErrorCode) -> None:
    before = moved.partition("t")
    assert await moved.set_isr("t", isr, **changes) == code
    assert moved.partition("t") == before


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 9, "partition_epoch": 0}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0, "partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0, "sender": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 3, "partition_epoch": 0}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_the_first_matching_check_decides(moved: Any, changes: dict[str, Any], code: ErrorCode) -> None:
    assert await moved.set_isr("t", (2, 2), **changes) == code


async def test_a_stale_broker_epoch_refuses_the_whole_request(five: Any) -> None:
    await five.create("t", (1, 2))
    for epoch, sender in ((five.broker(1).epoch - 1, 1), (5, 9)):
        with pytest.raises(ApiError) as caught:
            await five.write(alter_partition, AlterPartitionRequest(sender, epoch, ()))
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_members_that_have_restarted_or_shut_down_are_not_eligible(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    await five.set_isr("t", (1,))
    stale = ((1, -1), (2, five.broker(2).epoch + 1))
    assert await five.set_isr("t", (), isr=stale) == ErrorCode.INELIGIBLE_REPLICA
    await five.create("u", (3, 2))
    await five.heartbeat(3, want_shutdown=True)
    assert five.broker(3).in_controlled_shutdown
    assert await five.set_isr("t", (1, 3)) == ErrorCode.INELIGIBLE_REPLICA
    assert await five.set_isr("t", (1, 2)) == ErrorCode.NONE


async def test_a_recovering_leader_says_when_it_has_recovered(five: Any) -> None:
    await five.create("t", (1, 2), unclean_leader_election_enable="true")
    await five.stop_broker(2)
    await five.stop_broker(1)
    await five.heartbeat(2)
    assert (five.partition("t").leader, five.partition("t").leader_recovery_state) == (2, RECOVERING)
    assert await five.set_isr("t", (2,), leader_recovery_state=RECOVERED) == ErrorCode.NONE
    assert five.partition("t").leader_recovery_state == RECOVERED


async def test_the_same_partition_twice_in_a_request_is_refused_the_second_time(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    topic_id = five.controller.newest.image.topics.get("t").topic_id
    change = IsrChange(topic_id, 0, 0, ((1, -1), (2, -1)), RECOVERED, 0)
    other = msgspec.structs.replace(change, isr=((1, -1),))
    response = await five.write(alter_partition, AlterPartitionRequest(1, five.broker(1).epoch, (change, other)))
    assert [result.error for result in response.results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert five.partition("t").isr == (1, 2)


async def test_completing_a_move_that_drops_the_leader_answers_new_leader_elected(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    await five.reassign("t", (4, 3, 2))
    assert five.state("t") == ((4, 3, 2, 1), (1, 2, 3), 1, (4,), (1,))
    assert await five.set_isr("t", (1, 2, 3, 4)) == ErrorCode.NEW_LEADER_ELECTED
    assert five.state("t") == ((4, 3, 2), (2, 3, 4), 4, (), ())
    assert (five.partition("t").leader_epoch, five.partition("t").partition_epoch) == (1, 2)
    assert five.listed() == []


async def test_a_leader_that_stays_through_the_completion_gets_a_new_epoch(five: Any) -> None:
    await five.create("t", (0, 1, 2))
    await five.reassign("t", (0, 1, 3))
    assert await five.set_isr("t", (0, 1, 2, 3)) == ErrorCode.NONE
    assert five.state("t") == ((0, 1, 3), (0, 1, 3), 0, (), ())
    assert five.partition("t").leader_epoch == 1, "so that the dropped replica is fenced"
