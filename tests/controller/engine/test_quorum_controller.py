"""Committed and uncommitted batches, and the fate of both when the active controller changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.metadata import codec
from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.index import index_of
from kraftlab.metadata.records import Config, NoOp, RemoveTopic
from kraftlab.metadata.snapshot import image_digest
from kraftlab.quorum.core.types import OffsetAndEpoch


def set_key(value: str, *, atomic: bool = True, count: int = 1) -> Any:
    """An operation that writes `count` cluster configs."""

    def generate(state: ControllerState, context: Context) -> Outcome[str]:
        return Outcome([Config(0, 4, "", f"k{index}", value) for index in range(count)], value, atomic)

    return generate


def look(state: ControllerState, context: Context) -> Outcome[str]:
    """An operation that writes nothing."""
    return Outcome([], state.image.config(4, "", "k0") or "nothing")


def refuse(state: ControllerState, context: Context) -> Outcome[str]:
    raise ApiError(ErrorCode.POLICY_VIOLATION, f"refused because k0 is {state.image.config(4, '', 'k0')}")


def value(cluster: Any) -> str | None:
    return cluster.controller.committed.image.config(4, "", "k0")  # type: ignore[no-any-return]


# --- commit -----------------------------------------------------------------------------------------------------------------


async def test_a_write_is_answered_and_readable_only_once_committed(cluster: Any) -> None:
    answer = cluster.controller.write("set", set_key("1"))
    assert not answer.done
    assert value(cluster) is None
    assert cluster.controller.newest.image.config(4, "", "k0") == "1"
    await cluster.commit()
    assert (answer.value, answer.offset) == ("1", cluster.quorum.end_offset)
    assert value(cluster) == "1"


async def test_answers_come_in_the_order_of_offsets(cluster: Any) -> None:
    order: list[str] = []
    for number in range(3):
        cluster.controller.write("set", set_key(str(number))).when_done(lambda answer: order.append(answer.value))
    await cluster.commit(1)
    assert order == ["0"]
    await cluster.commit(2)
    assert order == ["0", "1", "2"]


async def test_an_operation_without_records_waits_for_the_state_it_saw(cluster: Any) -> None:
    cluster.controller.write("set", set_key("1"))
    seen = cluster.controller.write("look", look)
    refused = cluster.controller.write("refuse", refuse)
    later = cluster.controller.write("set", set_key("2"))
    assert not seen.done and not refused.done
    await cluster.commit(1)
    assert seen.value == "1"
    assert refused.error.message == "refused because k0 is 1"
    assert not later.done
    await cluster.commit()
    assert cluster.controller.write("look", look).done, "nothing is in flight"


async def test_every_write_is_one_batch_and_a_large_one_is_cut_only_if_it_may_be(cluster: Any) -> None:
    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("large", set_key("1", count=20_001, atomic=False))
    sizes = [batch.end_offset - batch.base_offset for batch in cluster.quorum.batches[batches:]]
    assert sizes == [10_000, 10_000, 1]
    await cluster.commit(2)
    assert not answer.done
    assert await cluster.done(answer) == "1"
    with pytest.raises(ApiError) as caught:
        await cluster.done(cluster.controller.write("large", set_key("2", count=10_001)))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert value(cluster) == "1"


async def test_an_operation_that_fails_unexpectedly_changes_nothing_and_costs_no_leadership(cluster: Any) -> None:
    def bug(state: ControllerState, context: Context) -> Outcome[str]:
        raise KeyError("a bug")

    answer = cluster.controller.write("buggy", bug)
    assert answer.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await cluster.done(cluster.controller.write("set", set_key("1"))) == "1"


async def test_records_that_cannot_be_replayed_never_reach_the_log(cluster: Any) -> None:
    def bad(state: ControllerState, context: Context) -> Outcome[str]:
        return Outcome([RemoveTopic(0, b"x" * 16)], "")

    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("bad", bad)
    assert answer.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(cluster.quorum.batches) == batches
    assert await cluster.done(cluster.controller.write("set", set_key("1"))) == "1"


async def test_a_batch_at_another_offset_than_it_was_replayed_for_stops_the_node(cluster: Any) -> None:
    propose = cluster.quorum.propose

    def misplace(epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        cluster.quorum.control_batch()
        offsets: tuple[int, int] = propose(epoch, body, record_count)
        return offsets

    cluster.quorum.propose = misplace
    answer = cluster.controller.write("set", set_key("1"))
    assert answer.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert cluster.controller.failure is not None
    assert cluster.controller.failed.is_set()
    assert cluster.controller.write("set", set_key("1")).error.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_full_log_holds_the_queue_and_deadlines_pass_in_it(cluster: Any) -> None:
    first = cluster.controller.write("set", set_key("1"))
    cluster.quorum.overloaded = True
    waiting = cluster.controller.write("set", set_key("2"))
    impatient = cluster.controller.write("set", set_key("3"), deadline_ms=cluster.clock.now_ms + 10)
    assert not waiting.done
    cluster.clock.now_ms += 10
    cluster.controller.queue.run_due()
    assert impatient.error.code is ErrorCode.REQUEST_TIMED_OUT
    cluster.quorum.overloaded = False
    await cluster.commit()
    assert first.value == "1"
    assert await cluster.done(waiting) == "2"
    assert value(cluster) == "2"


async def test_a_full_log_is_asked_again_although_nothing_is_in_flight(cluster: Any) -> None:
    cluster.quorum.overloaded = True
    waiting = cluster.controller.write("set", set_key("1"))
    cluster.quorum.overloaded = False
    assert not waiting.done
    cluster.clock.now_ms = cluster.controller.queue.next_deadline_ms()
    cluster.controller.queue.run_due()
    assert await cluster.done(waiting) == "1"


async def test_an_operation_is_not_run_after_its_deadline(cluster: Any) -> None:
    cluster.controller.queue.hold()
    answer = cluster.controller.write("set", set_key("1"), deadline_ms=cluster.clock.now_ms + 100)
    cluster.clock.now_ms += 100
    cluster.controller.queue.resume()
    assert answer.error.code is ErrorCode.REQUEST_TIMED_OUT
    await cluster.commit()
    assert value(cluster) is None


# --- leadership -------------------------------------------------------------------------------------------------------------


async def test_a_new_cluster_begins_with_its_bootstrap_records_in_one_batch(tools: Any) -> None:
    cluster = tools.Cluster()
    await cluster.lead()
    assert cluster.controller.committed.image.features["metadata.version"] == 30
    (batch,) = [batch for batch in cluster.quorum.batches if batch.body]
    assert codec.decode(batch.body) == bootstrap_records()


async def test_a_later_leader_writes_no_bootstrap(cluster: Any) -> None:
    await cluster.lose_leadership(survives=True)
    end = cluster.quorum.end_offset
    await cluster.lead()
    assert cluster.quorum.end_offset == end + 1, "the first batch of the epoch only"


async def test_no_request_runs_before_the_activation(tools: Any) -> None:
    cluster = tools.Cluster()
    cluster.quorum.epoch, cluster.quorum.leads = 1, True
    cluster.quorum.control_batch()
    await cluster.commit()
    cluster.controller.queue.hold()
    answer = cluster.controller.write("set", set_key("1"))
    await cluster.controller.became_leader(1)
    records = [record for batch in cluster.quorum.batches if batch.body for record in codec.decode(batch.body)]
    assert records == [*bootstrap_records(), Config(0, 4, "", "k0", "1")]
    assert await cluster.done(answer) == "1"


async def test_a_controller_that_is_not_active_refuses_writes_and_names_the_active_one(tools: Any, cluster: Any) -> None:
    nobody = tools.Cluster()
    answer = nobody.controller.write("set", set_key("1"))
    assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert "No controller appears to be active" in answer.error.message
    await cluster.lose_leadership(survives=True, leader_id=3002)
    answer = cluster.controller.write("set", set_key("1"))
    assert answer.error.message == "The active controller appears to be node 3002."


async def test_losing_leadership_fails_waiting_answers_and_undoes_uncommitted_batches(cluster: Any) -> None:
    await cluster.done(cluster.controller.write("set", set_key("1")))
    lost = [cluster.controller.write("set", set_key("2")), cluster.controller.write("look", look)]
    assert cluster.controller.newest.image.config(4, "", "k0") == "2"
    await cluster.lose_leadership(survives=False)
    for answer in lost:
        assert answer.error.code is ErrorCode.NOT_CONTROLLER
        assert "may or may not survive" in answer.error.message
    assert value(cluster) == "1"
    assert cluster.controller.newest.image is cluster.controller.committed.image
    assert cluster.controller.statistics().pending == 0


async def test_a_write_of_a_lost_leadership_may_survive_and_is_replayed(cluster: Any) -> None:
    answer = cluster.controller.write("set", set_key("2"))
    await cluster.lose_leadership(survives=True)
    assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert value(cluster) == "2"


async def test_another_leader_means_losing_leadership_even_without_a_notice(cluster: Any) -> None:
    answer = cluster.controller.write("set", set_key("1"))
    cluster.quorum.leads = False
    await cluster.controller.leader_changed(cluster.quorum.epoch + 1, 3001, {})
    assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert not cluster.controller.is_active


async def test_a_new_epoch_of_the_same_node_begins_from_committed_state(cluster: Any) -> None:
    answer = cluster.controller.write("set", set_key("1"))
    del cluster.quorum.batches[cluster.quorum.committed_batches :]
    await cluster.lead()
    assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert cluster.controller.is_active and value(cluster) is None
    assert await cluster.done(cluster.controller.write("set", set_key("2"))) == "2"


async def test_a_proposal_refused_by_the_log_is_not_controller_and_changes_nothing(cluster: Any) -> None:
    cluster.quorum.leads = False
    answer = cluster.controller.write("set", set_key("1"))
    assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert cluster.controller.newest.image.config(4, "", "k0") is None


async def test_a_standby_reaches_the_same_image_as_the_active_controller(five: Any, tools: Any) -> None:
    await five.create("t", (0, 1, 2), (1, 2, 3))
    await five.reassign("t", (3, 4, 0))
    await five.set_isr("t", (0, 1, 2, 3, 4))
    await five.stop_broker(1)
    standby = tools.Cluster()
    await standby.controller.apply(five.quorum.batches, five.quorum.end_offset)
    mine, theirs = five.controller.committed, standby.controller.committed
    assert mine.image == theirs.image
    assert mine.index == theirs.index == index_of(theirs.image)
    assert image_digest(mine.image) == image_digest(theirs.image)
    assert standby.controller.applied_offset == five.quorum.end_offset


async def test_images_at_earlier_offsets_are_remembered(cluster: Any) -> None:
    offsets = []
    for number in range(3):
        answer = cluster.controller.write("set", set_key(str(number)))
        await cluster.done(answer)
        offsets.append(answer.offset)
    for number, offset in enumerate(offsets):
        assert cluster.controller.image_at(offset).config(4, "", "k0") == str(number)
    assert cluster.controller.image_at(offsets[-1] + 1) is None
    assert cluster.controller.image_at(0) is None


# --- snapshots ---------------------------------------------------------------------------------------------------------------


async def test_a_snapshot_of_an_active_controller_is_the_committed_image(five: Any, tools: Any) -> None:
    await five.create("t", (0, 1, 2))
    committed = five.controller.committed
    five.controller.write("set", set_key("in flight"))
    assert five.controller.newest is not committed
    frozen = five.controller.freeze()
    await five.commit()
    standby = tools.Cluster().controller
    loaded = standby.read_snapshot(body for body, _ in frozen.batches())
    assert loaded.image == msgspec.structs.replace(committed.image, provenance=Provenance())
    assert loaded.index == committed.index


async def test_a_standby_goes_on_from_a_snapshot(five: Any, tools: Any) -> None:
    await five.create("t", (0, 1, 2))
    position, append_time_ms = OffsetAndEpoch(five.quorum.end_offset, five.quorum.epoch), five.clock.now_ms
    bodies = [body for body, _ in five.controller.freeze().batches()]
    before = len(five.quorum.batches)
    await five.stop_broker(1)
    standby = tools.Cluster().controller
    await standby.apply(five.quorum.batches[:2], five.quorum.end_offset)
    caught_up = trio.Event()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await standby.wait_applied(position.offset)
            caught_up.set()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await standby.load_snapshot(position, append_time_ms, standby.read_snapshot(bodies))
    assert caught_up.is_set()
    assert standby.applied_offset == position.offset
    assert standby.image_at(position.offset) is standby.committed.image
    assert standby.image_at(position.offset - 1) is None, "the images in between were never here"
    await standby.apply(five.quorum.batches[before:], five.quorum.end_offset)
    assert standby.committed.image == five.controller.committed.image
    assert standby.committed.index == five.controller.committed.index


async def test_a_controller_that_loads_a_snapshot_is_standby_and_its_batches_are_unknown(
    cluster: Any,
) -> None:
    answer = cluster.controller.write("set", set_key("lost"))
    bodies = [body for body, _ in cluster.controller.freeze().batches()]
    position = OffsetAndEpoch(cluster.quorum.end_offset + 50, cluster.quorum.epoch + 1)
    await cluster.controller.load_snapshot(position, 0, cluster.controller.read_snapshot(bodies))
    assert not cluster.controller.is_active
    assert answer.error.code == ErrorCode.NOT_CONTROLLER
    assert cluster.controller.newest is cluster.controller.committed


# --- timers -----------------------------------------------------------------------------------------------------------------


async def test_an_idle_log_keeps_moving_and_a_stuck_one_does_not_pile_up(tools: Any) -> None:
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, max_idle_interval_ms=500))
    await cluster.lead()
    end = cluster.quorum.end_offset
    await cluster.pass_time(499)
    assert cluster.quorum.end_offset == end
    await cluster.pass_time(1)
    assert codec.decode(cluster.quorum.batches[-1].body) == [NoOp(0)]
    cluster.controller.write("set", set_key("1"))
    end = cluster.quorum.end_offset
    for _ in range(5):
        cluster.clock.now_ms += 500
        cluster.controller.queue.run_due()
    assert cluster.quorum.end_offset == end


async def test_a_standby_has_no_timers(cluster: Any) -> None:
    await cluster.lose_leadership(survives=True)
    assert cluster.controller.queue.statistics()["deferred"] == 0


async def test_waiting_for_an_offset(cluster: Any, nursery: Any, autojump_clock: Any) -> None:
    reached: list[int] = []

    async def wait(offset: int) -> None:
        await cluster.controller.wait_applied(offset)
        reached.append(offset)

    end = cluster.controller.applied_offset
    for offset in (end + 2, end, end + 1):
        nursery.start_soon(wait, offset)
    await trio.testing.wait_all_tasks_blocked()
    assert reached == [end]
    cluster.controller.write("set", set_key("1"))
    await cluster.commit()
    await trio.testing.wait_all_tasks_blocked()
    assert reached == [end, end + 1]
    cluster.controller.write("set", set_key("2"))
    await cluster.commit()
    await trio.testing.wait_all_tasks_blocked()
    assert reached == [end, end + 1, end + 2]


async def test_a_wait_that_is_given_up_leaves_nothing_behind(cluster: Any, nursery: Any, autojump_clock: Any) -> None:
    with trio.move_on_after(1):
        await cluster.controller.wait_applied(1 << 50)
    assert cluster.controller.statistics().offset_waiters == 0
