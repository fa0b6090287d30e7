"""Options of a reassignment request beyond Kafka's: preview, preconditions, guards, cancels of all, identity, throttles."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine.state import Outcome
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.topics import topics
from kraftlab.metadata.image import EMPTY
from kraftlab.metadata.records import PartitionChange


async def cancel(cluster: Any, *topics: str) -> Any:
    request = admin_pb2.CancelReassignmentsRequest(topics={"names": topics} if topics else None)
    return await cluster.write(reassignments.cancel, request)


def only(response: Any) -> Any:
    [topic] = response.topics
    [entry] = topic.partitions
    return entry


# --- validate only ---------------------------------------------------------------------------------------------------------


async def test_a_preview_describes_the_result_and_writes_nothing(five: Any) -> None:
    await five.create("t", (0, 1), (1, 2))
    offset = five.quorum.end_offset
    first, second, third = await five.move("t", {0: (3, 4), 1: (9,), 7: (0,)}, validate_only=True, plan_id="p")
    assert (list(first.replicas), list(first.adding_replicas), list(first.removing_replicas)) == ([3, 4, 0, 1], [3, 4], [0, 1])
    assert (first.error_code, first.partition_epoch, first.move_id) == (0, 1, "")
    assert (second.error_code, third.error_code) == (39, 3)
    assert five.quorum.end_offset == offset
    assert five.partition("t").partition_epoch == 0


async def test_a_preview_of_a_cancel_has_the_original_set(five: Any) -> None:
    await five.create("t", (4, 1, 2))
    await five.move("t", {0: (3, 1, 2)})
    [answer] = await five.move("t", {0: None}, validate_only=True)
    assert (list(answer.replicas), list(answer.adding_replicas)) == ([4, 1, 2], [])
    assert five.listed() == [("t", 0)]


# --- preconditions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [(2, 3), None], ids=["target", "cancel"])
async def test_an_entry_whose_expectation_does_not_hold_is_refused_with_both_values(
    five: Any, target: tuple[int, ...] | None
) -> None:
    await five.create("t", (0, 1), (0, 1))
    request = five.move_request(("t", {0: target, 1: (2, 1)}))
    request.topics[0].partitions[0].expected_replicas.values.extend((1, 0))
    request.topics[0].partitions[1].expected_replicas.values.extend((0, 1))
    first, second = (await five.write(reassignments.alter, request)).responses[0].partitions
    assert first.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "[0,1], not [1,0]" in first.error_message
    assert second.error_code == 0
    assert five.listed() == [("t", 1)]


async def test_the_partition_epoch_can_be_expected_and_changes_with_every_change(five: Any) -> None:
    await five.create("t", (0, 1))
    request = five.move_request(("t", {0: (2, 3)}))
    request.topics[0].partitions[0].expected_partition_epoch = 0
    assert (await five.write(reassignments.alter, request)).responses[0].partitions[0].error_code == 0
    [answer] = (await five.write(reassignments.alter, request)).responses[0].partitions
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "partition epoch 1, not 0" in answer.error_message


async def test_no_replicas_expected_is_an_expectation_too(five: Any) -> None:
    await five.create("t", (0, 1))
    request = five.move_request(("t", {0: (2, 3)}))
    request.topics[0].partitions[0].expected_replicas.SetInParent()
    assert (await five.write(reassignments.alter, request)).responses[0].partitions[0].error_code == 95


# --- guards ----------------------------------------------------------------------------------------------------------------


async def test_the_cluster_can_forbid_changes_of_the_replication_factor(five: Any) -> None:
    await five.create("t", (0, 1))
    assert (await five.configure(4, "", ("reassignment.replication.factor.change.enable", 0, "false")))[0] == 0
    [answer] = await five.move("t", {0: (0, 1, 2)}, allow_replication_factor_change=True)
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "changed from 2 to 3" in answer.error_message
    assert "reassignment.replication.factor.change.enable=false" in answer.error_message
    [answer] = await five.move("t", {0: (2, 3)})
    assert answer.error_code == 0


async def originals_die_in_sync(five: Any) -> None:
    """0 and 1 are in the ISR but no longer active; 2, which is being added, leads (KAFKA-14424)."""
    await five.create("t", (0, 1))
    await five.move("t", {0: (2, 3)})
    await five.set_isr("t", (0, 1, 2))
    for broker_id in (0, 1):
        await five.stop_broker(broker_id)
    topic_id = five.controller.newest.image.topics.by_name["t"]
    change = PartitionChange(0, 0, topic_id, isr=(0, 1, 2), leader=2, eligible_leader_replicas=(), last_known_elr=())
    await five.done(five.controller.write("test", lambda state, context: Outcome([change], True)))


async def test_a_cancel_that_would_take_the_leader_away_is_refused_unless_forced(five: Any) -> None:
    await originals_die_in_sync(five)
    state = five.partition("t")
    [refused] = await five.move("t", {0: None})
    assert (refused.error_code, "[0,1] would leave it without a leader" in refused.error_message) == (39, True)
    assert five.partition("t") == state
    [everything] = (await cancel(five)).responses[0].partitions
    assert everything.error_code == 39
    [forced] = await five.move("t", {0: None}, force=True)
    assert (forced.error_code, five.partition("t").leader) == (0, -1)
    assert five.partition("t").replicas == (0, 1)


async def test_force_does_not_allow_an_unclean_election(five: Any) -> None:
    await five.create("t", (0,))
    await five.move("t", {0: (2, 3)})
    await five.set_isr("t", (0, 2))
    await five.stop_broker(0)
    [answer] = await five.move("t", {0: None}, force=True)
    assert (answer.error_code, "unclean" in answer.error_message) == (39, True)


# --- whole requests --------------------------------------------------------------------------------------------------------


async def test_all_moves_are_cancelled_in_one_call(five: Any) -> None:
    await five.create("a", (0, 1), (0, 1), (0, 1))
    await five.create("b", (0, 1))
    for topic, number in (("a", 0), ("a", 2), ("b", 0)):
        await five.move(topic, {number: (2, 3)})
    response = await cancel(five)
    answers = [
        (topic.name, entry.partition_index, entry.error_code) for topic in response.responses for entry in topic.partitions
    ]
    assert answers == [("a", 0, 0), ("a", 2, 0), ("b", 0, 0)]
    assert five.listed() == []
    assert five.partition("a", 2).replicas == (0, 1)
    assert list((await cancel(five)).responses) == []


async def test_the_moves_of_named_topics_are_cancelled(five: Any) -> None:
    for name in ("a", "b"):
        await five.create(name, (0, 1))
        await five.move(name, {0: (2, 3)})
    response = await cancel(five, "a", "a")
    assert [topic.name for topic in response.responses] == ["a"]
    assert five.listed() == [("b", 0)]
    with pytest.raises(ApiError, match="nope") as caught:
        await cancel(five, "nope", "b")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert five.listed() == [("b", 0)]


@pytest.mark.parametrize(
    "options",
    [
        {"throttle": -1},
        {"throttle_expires_ms": 5},
        {"throttle": 5, "throttle_expires_ms": 0},
        {"throttle": 5, "throttle_expires_ms": 10**12},
        {"plan_id": ""},
        {"reason": "x" * 1001},
        {"initiator": "x" * 250},
        {"priority": 2_000_000},
    ],
)
async def test_invalid_options_are_refused_with_the_reason(five: Any, options: dict[str, Any]) -> None:
    await five.create("t", (0, 1))
    with pytest.raises(ApiError) as caught:
        await five.move("t", {0: (2, 3)}, **options)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert five.listed() == []


# --- identity --------------------------------------------------------------------------------------------------------------


async def test_a_move_has_its_initiator_reason_start_and_plan(five: Any) -> None:
    await five.create("t", (0, 1), (0, 1))
    first, second = await five.move("t", {0: (2, 3), 1: (3, 4)}, initiator="User:eve", reason="drain 0", plan_id="p1")
    assert first.move_id != second.move_id
    [shown, _] = five.moves().topics[0].partitions
    assert (shown.move_id, shown.initiator, shown.reason, shown.plan_id) == (first.move_id, "User:eve", "drain 0", "p1")
    assert (shown.started_ms, list(shown.original_replicas)) == (five.clock.now_ms, [0, 1])


async def test_the_same_target_again_is_the_same_move_and_another_one_is_not(five: Any) -> None:
    await five.create("t", (0, 1))
    [first] = await five.move("t", {0: (2, 3)}, initiator="User:a")
    offset = five.quorum.end_offset
    [again] = await five.move("t", {0: (2, 3)}, initiator="User:b")
    assert (again.move_id, five.quorum.end_offset) == (first.move_id, offset)
    [other] = await five.move("t", {0: (2, 4)}, initiator="User:b")
    assert other.move_id != first.move_id
    assert only(five.moves()).initiator == "User:b"


@pytest.mark.parametrize("end", ["completion", "cancel", "deletion", "back"])
async def test_a_move_goes_with_its_reassignment(five: Any, end: str) -> None:
    await five.create("t", (0, 1))
    await five.move("t", {0: (2, 3)}, throttle=1000)
    assert len(five.controller.newest.image.moves.running) == 1
    if end == "completion":
        await five.set_isr("t", (0, 1, 2, 3))
    elif end == "cancel":
        await five.move("t", {0: None})
    elif end == "deletion":
        await five.write(topics.delete, admin_pb2.DeleteTopicsRequest(topics=[{"name": "t"}]))
    else:
        await five.move("t", {0: (0, 1)})
    assert five.controller.newest.image.moves == EMPTY.moves


async def test_moves_survive_a_failover(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.move("t", {0: (2, 3)}, reason="kept", throttle=5, throttle_expires_ms=1000)
    await five.lose_leadership(survives=True)
    await five.lead()
    assert (only(five.moves()).reason, only(five.moves()).throttle) == ("kept", 5)


# --- throttles -------------------------------------------------------------------------------------------------------------


async def test_a_throttle_ends_when_its_time_is_over_and_the_move_goes_on(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.move("t", {0: (2, 3)}, throttle=1000, throttle_expires_ms=5000)
    await five.pass_time(100)
    shown = only(five.moves())
    assert (shown.throttle, shown.throttle_until_ms - shown.started_ms) == (1000, 5000)
    await five.pass_time(4899)
    assert only(five.moves()).HasField("throttle")
    await five.pass_time(2)
    shown = only(five.moves())
    assert not shown.HasField("throttle")
    assert list(shown.adding_replicas) == [2, 3]


async def test_a_throttle_ends_in_time_although_the_controller_changed(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.move("t", {0: (2, 3)}, throttle=1000, throttle_expires_ms=5000)
    await five.lose_leadership(survives=True)
    five.clock.now_ms += 6000
    await five.lead()
    await five.pass_time(50)
    await five.pass_time(1)
    assert not only(five.moves()).HasField("throttle")


async def test_the_same_target_with_a_throttle_changes_it_and_zero_takes_it_away(five: Any) -> None:
    await five.create("t", (0, 1), (0, 1))
    before = await five.move("t", {0: (2, 3), 1: (2, 3)}, throttle=1000)
    after = await five.move("t", {0: (2, 3)}, throttle=500)
    assert after[0].move_id == before[0].move_id
    first, second = five.moves().topics[0].partitions
    assert (first.throttle, second.throttle) == (500, 1000)
    await five.move("t", {0: (2, 3), 1: (2, 3)}, throttle=0)
    assert [entry.HasField("throttle") for entry in five.moves().topics[0].partitions] == [False, False]


async def test_configs_are_never_touched(five: Any) -> None:
    await five.create("t", (0, 1), leader_replication_throttled_replicas="*")
    await five.configure(4, "2", ("follower.replication.throttled.rate", 0, "77"))
    before = five.controller.newest.image.configs
    await five.move("t", {0: (2, 3)}, throttle=1000)
    await five.move("t", {0: None})
    assert five.controller.newest.image.configs == before


# --- timeouts --------------------------------------------------------------------------------------------------------------


async def test_a_change_that_is_not_committed_in_time_is_unknown_and_names_its_offset(five: Any) -> None:
    await five.create("t", (0, 1))
    request = five.move_request(("t", {0: (2, 3)}))
    answer = five.controller.write(
        "test", lambda state, context: reassignments.alter(state, request, context), answer_by_ms=five.clock.now_ms + 500
    )
    assert not answer.done
    five.clock.now_ms += 501
    five.controller.queue.run_due()
    assert answer.error is not None
    assert (answer.error.code, "unknown" in answer.error.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert answer.error.offset == five.quorum.end_offset
    await five.commit()
    assert five.listed() == [("t", 0)], "it was committed after all"


async def test_a_change_that_is_not_begun_in_time_never_is(five: Any) -> None:
    await five.create("t", (0, 1))
    five.controller.queue.hold()
    request = five.move_request(("t", {0: (2, 3)}))
    due_ms = five.clock.now_ms + 500
    answer = five.controller.write(
        "test", lambda state, context: reassignments.alter(state, request, context), deadline_ms=due_ms, answer_by_ms=due_ms
    )
    five.clock.now_ms += 501
    five.controller.queue.run_due()
    assert (answer.error.code, "nothing was done" in answer.error.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    five.controller.queue.resume()
    assert five.listed() == []


# --- size ------------------------------------------------------------------------------------------------------------------


async def test_as_many_entries_as_a_batch_has_records_are_one_change_with_their_identity(
    five: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(five, "check", lambda: None)
    for name in ("a", "b"):
        await five.create(name, *[(0,)] * 5000)
    request = admin_pb2.AlterPartitionReassignmentsRequest(plan_id="p")
    for name in ("a", "b"):
        topic = request.topics.add(name=name)
        for number in range(5000):
            topic.partitions.add(partition_index=number).replicas.values.extend((1,))
    response = await five.write(reassignments.alter, request)
    assert {entry.error_code for topic in response.responses for entry in topic.partitions} == {0}
    image = five.controller.committed.image
    assert sum(len(moves) for moves in image.moves.running.values()) == 10_000
    assert image.transaction is None
    assert len(image.moves.plans["p"].partitions) == 10_000
    await cancel(five)
    assert not five.controller.committed.image.moves.running
