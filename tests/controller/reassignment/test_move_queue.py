"""Queued moves through the controller: slots, order, cancel, failover; their listing; plans and rollbacks."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.controller.cluster import directories
from kraftlab.controller.reassignment import named_changes as kip_179
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.reassignment.blockers import STARTING_MS
from kraftlab.controller.reassignment.progress import BELIEVED_MS, CURRENT_MS
from kraftlab.controller.topics import topics
from kraftlab.metadata.image import EMPTY
from kraftlab.metadata.peer_rpc import (
    AssignReplicasToDirsRequest,
    DirectoryAssignment,
    MoveProgress,
    MoveProgressRequest,
    PartitionSize,
)


async def rollback(cluster: Any, plan_id: str, **options: Any) -> Any:
    request = admin_pb2.RollbackPlanRequest(rollback_plan_id=plan_id, **options)
    return (await cluster.write(reassignments.roll_back, request)).responses


def running(cluster: Any) -> list[int]:
    return [entry.partition_index for topic in cluster.moves().topics for entry in topic.partitions]


def waiting(cluster: Any) -> list[int]:
    return [entry.partition_index for entry in cluster.moves().queued]


async def caps(cluster: Any, per_broker: int, per_cluster: int = 0, order: str = "fifo") -> None:
    values = {
        "reassignment.max.moves.per.broker": str(per_broker),
        "reassignment.max.moves.per.cluster": str(per_cluster),
        "reassignment.queue.order": order,
    }
    for key, value in values.items():
        assert (await cluster.configure(4, "", (key, 0, value)))[0] == 0


async def finish(cluster: Any, number: int) -> None:
    """The adding replicas come into sync, and the controller checks the queue a moment later."""
    state = cluster.partition("t", number)
    await cluster.set_isr("t", tuple(sorted({*state.isr, *state.target})), number)
    await cluster.pass_time(50)


def report(cluster: Any, broker_id: int, **fields: Any) -> None:
    epoch = cluster.broker(broker_id).epoch
    cluster.controller.moves.progress.report(MoveProgressRequest(broker_id, epoch, **fields), cluster.clock.now_ms)


@pytest.fixture
async def queue(five: Any) -> Any:
    """Six partitions on broker 0, of which one may move at a time."""
    await five.create("t", *[(0,)] * 6)
    await caps(five, per_broker=1)
    return five


async def test_a_move_without_a_slot_waits_and_starts_when_one_is_free(queue: Any) -> None:
    answers = await queue.move("t", dict.fromkeys(range(3), (1,)), queued=True)
    assert [answer.queued for answer in answers] == [False, True, True]
    assert len({answer.move_id for answer in answers}) == 3
    assert (running(queue), waiting(queue)) == ([0], [1, 2])
    await finish(queue, 0)
    assert (running(queue), waiting(queue)) == ([1], [2])
    assert queue.moves().topics[0].partitions[0].move_id == answers[1].move_id
    for number in (1, 2):
        await finish(queue, number)
    assert (running(queue), waiting(queue)) == ([], [])
    assert queue.controller.newest.image.moves == EMPTY.moves
    assert [queue.partition("t", number).replicas for number in range(3)] == [(1,)] * 3


async def test_caps_hold_while_everything_is_moved(queue: Any) -> None:
    await caps(queue, per_broker=2, per_cluster=3)
    await queue.move("t", {number: (1 + number % 4,) for number in range(6)}, queued=True)
    moved: list[int] = []
    while running(queue):
        busy = [queue.partition("t", number) for number in running(queue)]
        assert len(busy) <= 2, "broker 0 loses a replica in each"
        moved.append(running(queue)[0])
        await finish(queue, moved[-1])
    assert sorted(moved) == list(range(6))


async def test_without_queued_nothing_waits_and_the_caps_do_not_matter(queue: Any) -> None:
    answers = await queue.move("t", dict.fromkeys(range(4), (1,)))
    assert [answer.queued for answer in answers] == [False] * 4
    assert running(queue) == [0, 1, 2, 3]


async def test_a_higher_priority_starts_first_and_later_requests_do_not_overtake(queue: Any) -> None:
    await queue.move("t", {0: (1,), 1: (1,)}, queued=True)
    await queue.move("t", {2: (1,)}, queued=True)
    await queue.move("t", {3: (1,)}, queued=True, priority=5)
    assert waiting(queue) == [3, 1, 2]
    for expected in ([3], [1], [2]):
        await finish(queue, running(queue)[0])
        assert running(queue) == expected


async def test_the_smallest_starts_first_once_leaders_have_said_how_large_they_are(queue: Any) -> None:
    await caps(queue, per_broker=1, order="smallest-first")
    await queue.move("t", dict.fromkeys(range(4), (1,)), queued=True)
    topic_id = queue.controller.newest.image.topics.by_name["t"]
    report(queue, 0, sizes=(PartitionSize(topic_id, 1, 900), PartitionSize(topic_id, 3, 10)))
    shown = [(entry.partition_index, entry.position, entry.size_bytes) for entry in queue.moves().queued]
    assert shown == [(3, 1, 10), (1, 2, 900), (2, 3, -1)]
    await finish(queue, 0)
    assert running(queue) == [3]


async def test_a_queued_move_can_be_cancelled_replaced_or_started_at_once(queue: Any) -> None:
    await queue.move("t", dict.fromkeys(range(5), (1,)), queued=True)
    [cancelled] = await queue.move("t", {1: None})
    assert (cancelled.error_code, waiting(queue)) == (0, [2, 3, 4])
    assert (await queue.move("t", {1: None}))[0].error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    [replaced] = await queue.move("t", {2: (2,)}, queued=True)
    assert replaced.queued and waiting(queue) == [3, 4, 2]
    await queue.move("t", {3: (4,)})
    assert (running(queue), waiting(queue)) == ([0, 3], [4, 2])
    await queue.move("t", {4: (0,)})
    assert waiting(queue) == [2], "it is where it should be"
    await queue.write(reassignments.cancel, admin_pb2.CancelReassignmentsRequest())
    assert (running(queue), waiting(queue)) == ([], [])


async def test_a_failover_keeps_the_queue_and_the_new_controller_goes_on(queue: Any) -> None:
    await queue.move("t", dict.fromkeys(range(3), (1,)), queued=True, throttle=9, throttle_expires_ms=60_000)
    await queue.lose_leadership(survives=True)
    await queue.lead()
    assert waiting(queue) == [1, 2]
    await finish(queue, 0)
    shown = queue.moves().topics[0].partitions[0]
    assert (shown.partition_index, shown.throttle) == (1, 9)
    assert shown.throttle_until_ms - shown.started_ms == 60_000, "it counts from the start"


async def test_the_queue_moves_on_when_the_caps_are_raised(queue: Any) -> None:
    await queue.move("t", dict.fromkeys(range(3), (1,)), queued=True)
    await caps(queue, per_broker=3)
    await queue.pass_time(50)
    assert running(queue) == [0, 1, 2]


async def test_the_listing_names_the_reason_to_wait(queue: Any) -> None:
    await queue.move("t", {0: (1,), 1: (1,)}, queued=True)
    [shown] = queue.moves().queued
    assert shown.waits_for == "1 move keeps broker 0 busy, reassignment.max.moves.per.broker is 1"
    asked = admin_pb2.ListPartitionReassignmentsRequest()
    asked.topics.topics.add(name="t", partition_indexes=[0])
    assert not queue.moves(asked).queued


async def test_a_topic_that_is_deleted_leaves_the_queue(queue: Any) -> None:
    await queue.move("t", {0: (1,), 1: (1,)}, queued=True)
    await queue.write(topics.delete, admin_pb2.DeleteTopicsRequest(topics=[{"name": "t"}]))
    assert (waiting(queue), queue.controller.newest.image.moves) == ([], EMPTY.moves)


# --- progress and blockers -------------------------------------------------------------------------------------------------


async def test_progress_is_summed_with_the_longest_time_to_go(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (1, 2)})
    topic_id = five.controller.newest.image.topics.by_name["t"]
    report(five, 1, replicas=(MoveProgress(topic_id, 0, 100, 900, 300.0, True),))
    report(five, 2, replicas=(MoveProgress(topic_id, 0, 600, 400, 50.0),))
    [shown] = five.moves().topics[0].partitions
    assert (shown.bytes_done, shown.bytes_left, shown.bytes_per_second, shown.eta_ms) == (700, 1300, 350.0, 8000)
    assert [(blocker.broker_id, blocker.state) for blocker in shown.blockers] == [(1, "THROTTLED"), (2, "COPYING")]
    five.clock.now_ms += BELIEVED_MS + 1
    [stale] = five.moves().topics[0].partitions
    assert (stale.bytes_left, [blocker.state for blocker in stale.blockers]) == (-1, ["NOT_FETCHING"] * 2)


async def test_a_fenced_broker_has_no_rate_and_no_time_to_go(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (1, 2)}, throttle=100)
    topic_id = five.controller.newest.image.topics.by_name["t"]
    for broker_id in (1, 2):
        report(five, broker_id, replicas=(MoveProgress(topic_id, 0, 600, 400, 50.0, True),))
    await five.stop_broker(1)
    [shown] = five.moves().topics[0].partitions
    assert [(replica.bytes_left, replica.bytes_per_second, replica.eta_ms) for replica in shown.progress] == [
        (400, -1, -1),
        (400, 50, 4000),
    ]
    assert (shown.bytes_left, shown.bytes_per_second, shown.eta_ms) == (800, -1, -1)


async def test_a_broker_without_reports_is_waited_for_before_it_is_fenced(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (1,)}, throttle=100)
    topic_id = five.controller.newest.image.topics.by_name["t"]
    report(five, 1, replicas=(MoveProgress(topic_id, 0, 600, 400, 50.0, True),))
    five.clock.now_ms += CURRENT_MS
    assert five.moves().topics[0].partitions[0].eta_ms == 4000
    five.clock.now_ms += 1000
    [shown] = five.moves().topics[0].partitions
    assert (shown.bytes_left, shown.bytes_per_second, shown.eta_ms) == (400, -1, -1)
    assert [blocker.text for blocker in shown.blockers] == ["broker 1: no report for 5 s; if this lasts, start it again"]


async def test_the_time_to_go_is_that_of_all_copies_under_one_limit(five: Any) -> None:
    await five.create("t", (0,), (0,), (0,))
    await five.configure(2, "t", ("follower.replication.throttled.replicas", 0, "0:1,1:1"))
    await five.configure(4, "1", ("follower.replication.throttled.rate", 0, "100"))
    await five.move("t", {0: (1,), 1: (1,), 2: (1,)})
    topic_id = five.controller.newest.image.topics.by_name["t"]
    shown = five.moves().topics[0].partitions
    assert [entry.limit if entry.HasField("limit") else None for entry in shown] == [100, 100, None]
    assert {blocker.state for entry in shown for blocker in entry.blockers} == {"STARTING"}
    report(
        five,
        1,
        replicas=(
            MoveProgress(topic_id, 0, 1, 3000, 9000.0, True),
            MoveProgress(topic_id, 1, 1, 1000, 0.0, True),
            MoveProgress(topic_id, 2, 1, 900, 300.0),
        ),
    )
    assert [entry.eta_ms for entry in five.moves().topics[0].partitions] == [40_000, 40_000, 3000]


async def test_the_lowest_of_the_limits_holds(five: Any) -> None:
    await five.create("t", (0,))
    await five.configure(2, "t", ("leader.replication.throttled.replicas", 0, "*"))
    await five.configure(4, "", ("leader.replication.throttled.rate", 0, "50"))
    await five.move("t", {0: (1,)}, throttle=80)
    [shown] = five.moves().topics[0].partitions
    assert (shown.throttle, shown.limit) == (80, 50)
    await five.move("t", {0: (1,)}, throttle=20)
    assert five.moves().topics[0].partitions[0].limit == 20


async def test_the_time_to_go_is_at_least_that_of_the_rest_at_the_limit(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (1, 2)}, throttle=100)
    topic_id = five.controller.newest.image.topics.by_name["t"]
    for broker_id in (1, 2):
        report(five, broker_id, replicas=(MoveProgress(topic_id, 0, 1, 1000, 900.0, True),))
    [shown] = five.moves().topics[0].partitions
    assert (shown.bytes_left, shown.limit, shown.eta_ms) == (2000, 100, 20_000)
    assert [replica.eta_ms for replica in shown.progress] == [10_000, 10_000]


async def test_the_replica_that_holds_up_a_move_is_named_with_the_reason(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (1, 2, 3, 4)})
    five.clock.now_ms += STARTING_MS
    topic_id = five.controller.newest.image.topics.by_name["t"]
    await five.stop_broker(1)
    report(five, 2, replicas=(MoveProgress(topic_id, 0, 5, 0, 1.0),))
    report(five, 3, replicas=(MoveProgress(topic_id, 0, 5, -1, 0.0, False, "the disk is full"),))
    [shown] = five.moves().topics[0].partitions
    states = {blocker.broker_id: (blocker.state, blocker.text) for blocker in shown.blockers}
    assert {broker_id: state for broker_id, (state, _) in states.items()} == {
        1: "FENCED",
        2: "OUT_OF_SYNC",
        3: "NOT_FETCHING",
        4: "NOT_FETCHING",
    }
    assert "the disk is full" in states[3][1]
    assert shown.eta_ms == -1


async def test_a_kept_replica_blocks_a_shrink_and_nothing_else(five: Any) -> None:
    await five.create("t", (0, 1, 4), (0, 1, 4))
    await five.stop_broker(4)
    await five.move("t", {0: (0, 4), 1: (0, 3, 4)})
    shrink, swap = five.moves().topics[0].partitions
    assert [(blocker.broker_id, blocker.state) for blocker in shrink.blockers] == [(4, "FENCED")]
    assert [blocker.broker_id for blocker in swap.blockers] == [3], "4 is out of sync too, and holds up nothing"
    assert await five.set_isr("t", (0, 1, 3), 1) == 0
    assert not five.partition("t", 1).is_reassigning


# --- plans -----------------------------------------------------------------------------------------------------------------


async def test_a_finished_plan_is_rolled_back_order_and_directories_included(five: Any, tools: Any) -> None:
    for broker_id in (0, 1):
        await five.register(broker_id, 2, log_dirs=(tools.directory(broker_id, 0), tools.directory(broker_id, 1)))
        await five.heartbeat(broker_id)
    await five.create("t", (1, 0), (0, 1))
    topic_id = five.controller.newest.image.topics.by_name["t"]
    before = five.partition("t", 0).replicas
    await five.move("t", {0: (2, 0), 1: (1, 0)}, plan_id="p")
    await five.set_isr("t", (0, 1, 2), 0)
    plan = five.controller.newest.image.moves.plans["p"]
    assert plan.partitions[topic_id, 0].replicas == before
    [topic] = await rollback(five, "p")
    assert [entry.error_code for entry in topic.partitions] == [0, 0]
    assert five.partition("t", 1).replicas == (0, 1), "only the order was another one"
    await five.set_isr("t", (0, 1, 2), 0)
    assert five.partition("t", 0).replicas == before


async def test_plans_are_forgotten_all_or_none_and_their_moves_go_on(five: Any) -> None:
    await five.create("t", (0,), (0,))
    await five.move("t", {0: (1,)}, plan_id="p")
    await five.move("t", {1: (1,)}, plan_id="q")

    async def forget(*plan_ids: str) -> None:
        await five.write(reassignments.forget_plans, admin_pb2.ForgetPlansRequest(plan_ids=plan_ids))

    with pytest.raises(ApiError, match="no plan 'x' to forget; saved plans: p, q"):
        await forget("p", "x")
    assert set(five.controller.newest.image.moves.plans) == {"p", "q"}
    await forget("p", "p")
    assert set(five.controller.newest.image.moves.plans) == {"q"}
    assert five.partition("t", 0).is_reassigning
    with pytest.raises(ApiError, match="no plan 'p' to roll back"):
        await rollback(five, "p")


async def test_a_replica_is_born_again_in_the_directory_it_had(five: Any, tools: Any) -> None:
    second = tools.directory(7, 1)
    await five.start_brokers(7, log_dirs=(tools.directory(7, 0), second))
    await five.create("t", (0, 7))
    topic_id = five.controller.newest.image.topics.by_name["t"]
    assignments = (DirectoryAssignment(second, topic_id, 0),)
    await five.write(directories.assign, AssignReplicasToDirsRequest(7, five.broker(7).epoch, assignments))
    await five.move("t", {0: (0, 1)}, plan_id="p")
    await five.set_isr("t", (0, 1, 7))
    assert five.partition("t").replicas == (0, 1)
    await rollback(five, "p")
    assert five.partition("t").directory_of(7) == second


@pytest.mark.parametrize("queued", [True, False])
async def test_a_replica_without_a_directory_in_the_plan_goes_to_the_default(five: Any, tools: Any, queued: bool) -> None:
    only = tools.directory(8, 0)
    await five.start_brokers(7)
    await five.start_brokers(8, log_dirs=(only, tools.directory(8, 1)))
    await five.create("t", (7, 8), (0, 2))
    await five.move("t", {0: (0, 1)}, plan_id="p")
    await five.set_isr("t", (0, 1, 7, 8))
    await five.register(8, log_dirs=(only,))
    await caps(five, 0, 1)
    await five.move("t", {1: (1, 2)})
    await rollback(five, "p", queued=queued)
    assert waiting(five) == [0] * queued
    await finish(five, 1)
    assert five.partition("t").directory_of(8) == only


async def test_a_replica_that_stayed_but_changed_its_directory_is_named(five: Any, tools: Any) -> None:
    await five.start_brokers(7, log_dirs=(tools.directory(7, 0), tools.directory(7, 1)))
    await five.create("t", (0, 7))
    topic_id = five.controller.newest.image.topics.by_name["t"]

    async def assign(index: int) -> None:
        assignments = (DirectoryAssignment(tools.directory(7, index), topic_id, 0),)
        await five.write(directories.assign, AssignReplicasToDirsRequest(7, five.broker(7).epoch, assignments))

    await assign(0)
    await five.move("t", {0: (1, 7)}, plan_id="p")
    await assign(1)
    [topic] = await rollback(five, "p", validate_only=True)
    [wanted] = topic.partitions[0].directory_moves
    assert (wanted.broker_id, wanted.directory_id) == (7, to_text(tools.directory(7, 0)))


async def test_a_running_plan_is_rolled_back_at_once_and_its_queued_moves_are_dropped(queue: Any) -> None:
    await queue.move("t", {0: (1,), 1: (1,)}, queued=True, plan_id="p")
    [topic] = await rollback(queue, "p")
    assert [entry.error_code for entry in topic.partitions] == [0, 0]
    assert (running(queue), waiting(queue)) == ([], [])
    assert queue.partition("t", 0).replicas == (0,)


async def test_a_rollback_names_partitions_that_other_requests_changed_unless_forced(five: Any) -> None:
    await five.create("t", (0,), (0,))
    await five.move("t", {0: (1,), 1: (1,)}, plan_id="p")
    await five.move("t", {1: (2,)})
    with pytest.raises(ApiError, match=r"t:1 goes to \[2\]") as caught:
        await rollback(five, "p")
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert five.partition("t", 0).target == (1,), "nothing was rolled back"
    await rollback(five, "p", force=True)
    assert [five.partition("t", number).replicas for number in (0, 1)] == [(0,), (0,)]


async def test_a_target_that_waits_under_another_plan_is_not_taken_off_by_a_rollback_unless_forced(queue: Any) -> None:
    await queue.move("t", {1: (2,)}, plan_id="p")
    await queue.move("t", {1: None})
    await queue.move("t", {0: (1,), 1: (1,)}, queued=True, plan_id="other")
    assert waiting(queue) == [1]
    with pytest.raises(ApiError, match=r"t:1 goes to \[1\]") as caught:
        await rollback(queue, "p")
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert waiting(queue) == [1]
    await rollback(queue, "p", force=True)
    assert waiting(queue) == []


async def test_a_forced_rollback_leaves_a_new_topic_of_the_same_name_alone(five: Any) -> None:
    await five.create("t", (0,), (0,))
    await five.move("t", {0: (1,)}, plan_id="p")
    await five.write(topics.delete, admin_pb2.DeleteTopicsRequest(topics=[{"name": "t"}]))
    await five.create("t", (3,), (3,))
    await five.move("t", {0: (4,)}, plan_id="p")
    with pytest.raises(ApiError, match="t:0 was deleted"):
        await rollback(five, "p")
    [topic] = await rollback(five, "p", force=True)
    assert sorted(entry.error_code for entry in topic.partitions) == [0, 3]
    assert five.partition("t", 0).replicas == (3,)


async def test_a_plan_may_come_in_several_requests_and_goes_back_to_before_the_first(five: Any) -> None:
    await five.create("t", (0,), (0,))
    await five.move("t", {0: (1,)}, plan_id="p")
    await five.set_isr("t", (0, 1))
    await five.move("t", {0: (2,), 1: (2,)}, plan_id="p")
    await rollback(five, "p")
    assert (five.partition("t", 0).target, five.partition("t", 1).replicas) == ((0,), (0,))


async def test_a_plan_that_is_not_known_is_refused_with_those_that_are(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (1,)}, plan_id="mine")
    with pytest.raises(ApiError, match="mine") as caught:
        await rollback(five, "other")
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_only_the_last_plans_are_kept(five: Any) -> None:
    await five.create("t", (0,))
    await five.configure(4, "", ("reassignment.plans.kept", 0, "2"))
    for number, name in enumerate("abc", 1):
        await five.move("t", {0: (number,)}, plan_id=name)
    assert [plan.plan_id for plan in five.moves().plans] == ["b", "c"]
    await five.configure(4, "", ("reassignment.plans.kept", 0, "0"))
    await five.move("t", {0: (4,)}, plan_id="d")
    assert not five.controller.newest.image.moves.plans


# --- KIP-179 ---------------------------------------------------------------------------------------------------------------


async def test_a_replication_factor_is_previewed_and_then_reached_by_reassignments(five: Any) -> None:
    await five.create("t", (0, 1), (1, 2))
    request = admin_pb2.AlterReplicationFactorsRequest(topics=[{"name": "t", "replication_factor": 3}], validate_only=True)
    [preview] = (await five.write(kip_179.alter_replication_factors, request)).topics
    plan = {entry.partition_index: tuple(entry.target_replicas) for entry in preview.partitions}
    assert [list(target[:2]) for target in plan.values()] == [[0, 1], [1, 2]]
    assert five.listed() == []
    request.validate_only = False
    [done] = (await five.write(kip_179.alter_replication_factors, request)).topics
    assert {entry.partition_index: tuple(entry.target_replicas) for entry in done.partitions} == plan
    assert all(entry.move_id for entry in done.partitions)
    for number, target in plan.items():
        assert five.partition("t", number).target == target


async def test_each_topic_has_its_own_answer(five: Any) -> None:
    await five.create("t", (0, 1))
    asked = [("nope", 2), ("t", 9), ("u", 1), ("u", 1)]
    request = admin_pb2.AlterReplicationFactorsRequest(
        topics=[{"name": name, "replication_factor": factor} for name, factor in asked]
    )
    answers = (await five.write(kip_179.alter_replication_factors, request)).topics
    assert [answer.error_code for answer in answers] == [3, 38, 42, 42]


async def test_the_policy_forbids_it_whole(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.configure(4, "", ("reassignment.replication.factor.change.enable", 0, "false"))
    request = admin_pb2.AlterReplicationFactorsRequest(topics=[{"name": "t", "replication_factor": 3}])
    with pytest.raises(ApiError) as caught:
        await five.write(kip_179.alter_replication_factors, request)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


async def test_partition_counts_and_throttles_by_their_own_names(five: Any) -> None:
    await five.create("t", (0, 1))
    counts = admin_pb2.AlterPartitionCountsRequest(topics=[{"name": "t", "count": 3}, {"name": "nope", "count": 3}])
    answers = (await five.write(kip_179.alter_partition_counts, counts)).topics
    assert [answer.error_code for answer in answers] == [0, 3]
    assert len(five.controller.newest.image.topics.get("t").partitions) == 3
    throttle = admin_pb2.AlterInterBrokerThrottleRequest(broker_id=2, leader_rate=5)
    await five.write(kip_179.alter_inter_broker_throttle, throttle)
    assert five.controller.newest.image.config(4, "2", "leader.replication.throttled.rate") == "5"
    removal = admin_pb2.AlterInterBrokerThrottleRequest(broker_id=2, leader_rate=-1, follower_rate=7)
    await five.write(kip_179.alter_inter_broker_throttle, removal)
    assert dict(five.controller.newest.image.configs[4, "2"]) == {"follower.replication.throttled.rate": "7"}


@pytest.mark.parametrize(("broker_id", "code"), [(2, ErrorCode.INVALID_REQUEST), (99, ErrorCode.BROKER_ID_NOT_REGISTERED)])
async def test_a_throttle_without_rate_or_broker_is_refused(five: Any, broker_id: int, code: ErrorCode) -> None:
    request = admin_pb2.AlterInterBrokerThrottleRequest(broker_id=broker_id)
    if broker_id == 99:
        request.leader_rate = 5
    with pytest.raises(ApiError) as caught:
        await five.write(kip_179.alter_inter_broker_throttle, request)
    assert caught.value.code is code


async def test_a_change_of_the_factor_counts_from_the_target_that_waits_and_takes_its_place(queue: Any) -> None:
    """Otherwise the topic would get the earlier factor as soon as there is a slot."""
    await queue.move("t", {0: (1, 2, 3, 4)}, queued=True)
    await queue.create("u", (0,))
    for factor, left in ((3, [(0, 1, 2)]), (2, [(0, 1)]), (1, [])):
        request = admin_pb2.AlterReplicationFactorsRequest(topics=[{"name": "u", "replication_factor": factor}], queued=True)
        answer = (await queue.write(kip_179.alter_replication_factors, request)).topics[0]
        assert (answer.error_code, [tuple(entry.target_replicas) for entry in answer.partitions]) == (0, left or [(0,)])
        waits = [tuple(entry.target_replicas) for entry in queue.moves().queued if entry.topic == "u"]
        assert waits == left
    await finish(queue, 0)
    assert queue.partition("u").replicas == (0,)


async def test_a_queued_move_that_is_repeated_keeps_its_place_and_its_id(queue: Any) -> None:
    await queue.move("t", {0: (1,)}, queued=True)
    [first] = await queue.move("t", {1: (1,)}, queued=True, throttle=7)
    await queue.move("t", {2: (1,)}, queued=True)
    end_offset = queue.quorum.end_offset
    for options in ({}, {"throttle": 7}, {"validate_only": True}):
        [again] = await queue.move("t", {1: (1,)}, queued=True, **options)
        assert (again.move_id, again.queued) == (first.move_id, True)
    assert (waiting(queue), queue.quorum.end_offset) == ([1, 2], end_offset)


@pytest.mark.parametrize("options", [{"priority": -1}, {"throttle": 8}, {"throttle": 0}, {"plan_id": "p"}], ids=str)
async def test_a_queued_move_with_other_options_is_queued_again(queue: Any, options: dict[str, Any]) -> None:
    await queue.move("t", {0: (1,)}, queued=True)
    [first] = await queue.move("t", {1: (1,)}, queued=True, throttle=7)
    await queue.move("t", {2: (1,)}, queued=True)
    [again] = await queue.move("t", {1: (1,)}, queued=True, **options)
    assert again.queued
    assert again.move_id != first.move_id
    assert waiting(queue) == [2, 1]
