"""Throttles that belong to moves, and what brokers report of moves."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.broker.upkeep.move_reports import MoveReports
from kraftlab.metadata.records import ChangeMoveThrottles, QueueMoves, StartMoves

from ...helpers.waiting import eventually

RATE = 100_000


async def add_replica(world: Any, number: int, broker_id: int, throttle: int | None = RATE) -> None:
    """A move that adds a replica to a partition of topic t, and owns a throttle."""
    await world.add_replica(number, broker_id)
    topic_id = world.image.topics.by_name["t"]
    await world.commit(StartMoves(0, 7, "User:a", "", 1, ((topic_id, number, number),), throttle=throttle))


async def filled(world: Any, batches: int, *assignments: list[int]) -> Any:
    source = await world.add_broker(0)
    await world.create_topic("t", *assignments)
    for number in range(len(assignments)):
        await world.fill(batches, 2_000, number)
    return source


async def test_the_throttle_of_a_move_holds_over_its_copy_with_nothing_configured(autojump_clock: Any, world: Any) -> None:
    source = await filled(world, 100, [0])
    target = await world.add_broker(1)
    size = source.log("t", 0).size_bytes
    begun = trio.current_time()
    await add_replica(world, 0, 1)
    await eventually(lambda: 1 in world.state("t", 0).isr, "the new replica is in sync", 60)
    rate = size / (trio.current_time() - begun)
    assert RATE * 0.9 <= rate <= RATE * 1.1 + 2_000
    assert target.configs.follower_gate.rate is None


async def test_moves_of_one_request_share_their_throttle_and_others_do_not_wait_for_it(autojump_clock: Any, world: Any) -> None:
    source = await filled(world, 60, [0], [0], [0])
    target = await world.add_broker(1)
    total = 2 * source.log("t", 0).size_bytes
    begun = trio.current_time()
    for number in (0, 1):
        await add_replica(world, number, 1)
    await add_replica(world, 2, 1, throttle=None)
    await eventually(lambda: 1 in world.state("t", 2).isr, "the one without throttle is in sync", 1.5)
    await eventually(lambda: all(1 in world.state("t", number).isr for number in (0, 1)), "all in sync", 60)
    assert 0.9 * RATE <= total / (trio.current_time() - begun) <= 1.1 * RATE + 2_000
    assert target.log("t", 0).log_end_offset == 60


@pytest.mark.parametrize("rate", [None, 10 * RATE])
async def test_a_throttle_that_is_lifted_or_raised_lets_the_copy_go_on_at_once(
    autojump_clock: Any, world: Any, rate: int | None
) -> None:
    await filled(world, 200, [0])
    await world.add_broker(1)
    await add_replica(world, 0, 1)
    await trio.sleep(1)
    assert 1 not in world.state("t", 0).isr
    topic_id = world.image.topics.by_name["t"]
    await world.commit(ChangeMoveThrottles(0, ((topic_id, 0),), rate))
    await eventually(lambda: 1 in world.state("t", 0).isr, "in sync soon", 0.6)


async def test_a_replica_that_waits_for_a_tiny_budget_goes_on_when_the_throttle_of_its_move_is_removed(
    autojump_clock: Any, world: Any
) -> None:
    await filled(world, 20, [0])
    await world.add_broker(1)
    await add_replica(world, 0, 1, throttle=1)
    await trio.sleep(30)
    assert 1 not in world.state("t", 0).isr, "one batch went, and its debt takes half an hour"
    await world.commit(ChangeMoveThrottles(0, ((world.image.topics.by_name["t"], 0),)))
    await eventually(lambda: 1 in world.state("t", 0).isr, "in sync soon", 2)


async def test_a_replica_that_fell_out_of_sync_is_not_held_back_by_a_throttle_of_moves(autojump_clock: Any, world: Any) -> None:
    await filled(world, 1, [0])
    second = await world.add_broker(1)
    await add_replica(world, 0, 1)
    await eventually(lambda: 1 in world.state("t", 0).isr, "in sync", 5)
    await world.change("t", 0, adding_replicas=(), removing_replicas=(), original_replicas=(), target_replicas=())
    world.unreachable.add(0)
    await world.fill(100, 2_000, acks=1)
    await eventually(lambda: 1 not in world.state("t", 0).isr, "the follower fell behind", 20)
    world.unreachable.discard(0)
    await eventually(lambda: 1 in world.state("t", 0).isr, "in sync again at once", 1.5)
    assert second.replicas.move_throttles.gate_of((world.image.topics.by_name["t"], 0)) is None


class Controller:
    """Takes reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, bytes]] = []

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reports.append((api, body))
        return b""


async def test_a_broker_reports_what_it_fills_with_bytes_rate_and_throttle(autojump_clock: Any, world: Any) -> None:
    source = await filled(world, 200, [0])
    target = await world.add_broker(1)
    reports = MoveReports(Controller(), target.replicas, lambda: 5)
    assert reports.report().replicas == ()
    await add_replica(world, 0, 1)
    await trio.sleep(2)
    [progress] = reports.report().replicas
    size = source.log("t", 0).size_bytes
    assert progress.bytes_done + progress.bytes_left == pytest.approx(size, rel=0.05)
    assert progress.bytes_per_second == pytest.approx(RATE, rel=0.2)
    assert (progress.is_throttled, progress.error, progress.partition) == (True, "", 0)
    leaders = MoveReports(Controller(), source.replicas, lambda: 5)
    assert [entry.size_bytes for entry in leaders.report().sizes] == [size], "of the partition that moves"
    assert (reports.report().broker_id, reports.report().broker_epoch) == (1, 5)


async def test_the_leader_reports_the_size_of_a_partition_that_waits_and_silence_is_said_once(
    autojump_clock: Any, world: Any
) -> None:
    source = await filled(world, 10, [0])
    controller = Controller()
    reports = MoveReports(controller, source.replicas, lambda: 5)
    world.nursery.start_soon(reports.run)
    await trio.sleep(3.5)
    assert controller.reports == []
    topic_id = world.image.topics.by_name["t"]
    await world.commit(QueueMoves(0, 9, "User:a", "", 1, ((topic_id, 0, 0, (1,), ()),)))
    [size] = reports.report().sizes
    assert size.size_bytes == source.log("t", 0).size_bytes
    await trio.sleep(1.1)
    reported = len(controller.reports)
    assert reported >= 1
    await world.delete_topic("t")
    await trio.sleep(5)
    assert len(controller.reports) == reported + 1, "one more, which is empty"
