"""Moves between the log directories of a broker: nothing acknowledged is lost, and the metadata always names a directory that
holds a log."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.log.errors import NoSpace, TooManyOpenFiles
from kraftlab.broker.moves.move_state import MoveState
from kraftlab.common.errors import ErrorCode
from kraftlab.records.record_batch import iterate

from ...helpers.waiting import eventually
from ..conftest import batch, same_data


async def described(broker: Any) -> dict[tuple[int, bool], admin_pb2.LogDirPartition]:
    response = await broker.log_dirs_api.describe(admin_pb2.DescribeLogDirsRequest())
    return {
        (part.partition_index, part.is_future_key): part
        for result in response.results
        for topic in result.topics
        for part in topic.partitions
    }


async def filled(world: Any, replicas: list[int], batches: int = 40) -> list[Any]:
    """Brokers with a topic t of one partition that holds some data and whose directories the metadata knows."""
    brokers = [await world.add_broker(broker_id) for broker_id in sorted(replicas)]
    await world.create_topic("t", replicas)
    await world.fill(batches, 5_000)
    await trio.sleep(1)
    return brokers


async def slow_down(world: Any, bytes_per_second: int) -> None:
    await world.configure(4, "", replica_alter_log_dirs_io_max_bytes_per_second=str(bytes_per_second))


@pytest.mark.parametrize("mover", [0, 1], ids=["leader", "follower"])
async def test_a_replica_moves_while_a_producer_keeps_appending(autojump_clock: Any, world: Any, mover: int) -> None:
    brokers = await filled(world, [0, 1])
    await slow_down(world, 150_000)
    moving, target = brokers[mover], brokers[mover].other_dir()
    acknowledged: list[int] = []

    async def produce() -> None:
        while True:
            answer = await brokers[0].produce("t", 0, batch(1, 500))
            assert answer.error == ErrorCode.NONE
            acknowledged.append(answer.base_offset)
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        assert await moving.alter(target) == (ErrorCode.NONE, "")
        await eventually(lambda: moving.log("t", 0).log_dir == target, "the replica has moved", 30)
        await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    assert len(acknowledged) > 50
    await trio.sleep(1)
    assert same_data("t", 0, brokers)
    held = {header.base_offset for _, header in iterate(moving.log("t", 0).read(0, 1 << 24))}
    assert set(acknowledged) <= held
    assert world.state("t", 0).directory_of(mover) == moving.log("t", 0).directory_id


@pytest.mark.parametrize("threads", [1, 2])
async def test_as_many_replicas_are_copied_at_a_time_as_there_are_threads(autojump_clock: Any, world: Any, threads: int) -> None:
    broker = await world.add_broker(0, num_replica_alter_log_dirs_threads=str(threads))
    await world.create_topic("t", [0], [0])
    for number in range(2):
        await world.fill(40, 5_000, number)
    await slow_down(world, 10_000)
    for number in range(2):
        assert await broker.alter(broker.other_dir("t", number), "t", number) == (ErrorCode.NONE, "")
    await trio.sleep(5)
    begun = [number for number in range(2) if broker.partition("t", number).future.size_bytes > 0]
    assert len(begun) == threads


async def test_producers_that_never_pause_cannot_keep_a_move_from_its_end(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    end = 0

    async def produce() -> None:
        nonlocal end
        while True:
            answer = await broker.produce("t", 0, batch(1, 2_000))
            assert answer.error == ErrorCode.NONE
            end = max(end, answer.base_offset + 1)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(produce)
        for rate in (None, "10000000"):
            await world.configure(4, "", replica_alter_log_dirs_io_max_bytes_per_second=rate)
            assert await broker.alter(broker.other_dir()) == (ErrorCode.NONE, "")
            await eventually(lambda: not broker.mover.moves, f"the replica has moved, limit {rate}", 20)
        nursery.cancel_scope.cancel()
    assert broker.log("t", 0).log_end_offset >= end


async def test_the_controller_learns_of_the_target_before_the_swap(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    source, target = broker.log("t", 0).log_dir, broker.other_dir()
    world.controller_answers = trio.Event()
    await broker.alter(target)
    replica = broker.partition("t", 0).id
    await eventually(lambda: broker.mover.moves[replica].state is MoveState.QUEUED, "caught up and queued")
    await broker.produce("t", 0, batch(1, 5_000))
    await trio.sleep(3)
    assert broker.log("t", 0).log_dir == source
    world.controller_answers.set()
    await eventually(lambda: broker.log("t", 0).log_dir == target, "swapped once the metadata said so")
    assert [request.assignments[0].directory_id for request in world.directory_requests[-1:]] == [
        broker.logs.directory_id_of(target)
    ]
    assert broker.log("t", 0).log_end_offset == 41


async def test_a_high_watermark_that_rises_during_the_swap_does_not_go_back(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await filled(world, [0])
    source, swap = broker.log("t", 0), broker.logs.swap
    end_offset, target = source.log_end_offset, broker.other_dir()

    def swap_while_a_follower_fetches(*arguments: Any) -> Any:
        source.high_watermark = end_offset - 1
        swapped = swap(*arguments)
        source.high_watermark = end_offset
        return swapped

    monkeypatch.setattr(broker.logs, "swap", swap_while_a_follower_fetches)
    await broker.alter(target)
    await eventually(lambda: broker.log("t", 0).log_dir == target, "moved")
    assert broker.log("t", 0).high_watermark == end_offset


async def test_the_move_throttle_holds_and_progress_is_shown(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    size, target = broker.log("t", 0).size_bytes, broker.other_dir()
    await slow_down(world, 50_000)
    begun = trio.current_time()
    await broker.alter(target)
    await trio.sleep(2)
    shown = (await described(broker))[0, True]
    assert shown.bytes_left + shown.partition_size == pytest.approx(size, rel=0.01)
    assert shown.bytes_per_second == pytest.approx(50_000, rel=0.2)
    assert shown.offset_lag == broker.log("t", 0).log_end_offset - shown.log_end_offset > 0
    await eventually(lambda: broker.log("t", 0).log_dir == target, "moved", 30)
    assert 45_000 <= size / (trio.current_time() - begun) <= 55_000


@pytest.mark.parametrize("way", ["any", "current directory"])
async def test_a_cancelled_move_leaves_no_trace(autojump_clock: Any, world: Any, way: str) -> None:
    [broker] = await filled(world, [0])
    source = broker.log("t", 0).log_dir
    await slow_down(world, 50_000)
    await broker.alter(broker.other_dir())
    await trio.sleep(1)
    assert (0, True) in await described(broker)
    assert await broker.alter("any" if way == "any" else str(source)) == (ErrorCode.NONE, "")
    broker.logs.remove_expired(1 << 60)
    assert broker.directories() == {f"{source.name}/t-0"}
    assert not broker.mover.moves
    assert (await broker.produce("t", 0, batch())).error == ErrorCode.NONE
    assert world.directory_requests[1:] == []


async def test_a_move_is_dropped_even_if_its_cancellation_times_out_on_a_slow_disk(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await filled(world, [0])
    run, target, answers, is_asked = broker.disks.run, broker.other_dir(), trio.Event(), trio.Event()

    async def run_late(log_dir: Any, *work: Any, **options: Any) -> Any:
        if log_dir == target:
            is_asked.set()
            with trio.CancelScope(shield=True):
                await answers.wait()
        return await run(log_dir, *work, **options)

    await slow_down(world, 50_000)
    await broker.alter(target)
    monkeypatch.setattr(broker.disks, "run", run_late)
    await is_asked.wait()
    with trio.move_on_after(1) as in_time:
        await broker.alter("any")
    assert in_time.cancelled_caught
    answers.set()
    assert await broker.alter(target) == (ErrorCode.NONE, "")
    await eventually(lambda: broker.log("t", 0).log_dir == target, "a move that was asked for later is carried out", 30)
    broker.logs.remove_expired(1 << 60)
    assert broker.directories() == {f"{target.name}/t-0"}


async def test_a_move_that_is_asked_for_while_the_files_of_the_last_one_are_being_dropped_waits_for_that(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await world.add_broker(0, log_dirs=3)
    await world.create_topic("t", [0])
    await broker.produce("t", 0, batch(1, 50_000))
    await slow_down(world, 1)
    target, other = (path for path in broker.dirs if path != broker.log("t", 0).log_dir)
    await broker.alter(target)
    run, answers = broker.disks.run, trio.Event()

    async def run_late(log_dir: Any, work: Any, *args: Any, **options: Any) -> Any:
        if work == broker.logs.drop_future:
            with trio.CancelScope(shield=True):
                await answers.wait()
        return await run(log_dir, work, *args, **options)

    monkeypatch.setattr(broker.disks, "run", run_late)
    with trio.move_on_after(1):
        await broker.alter("any")

    outcomes: list[tuple[int, str]] = []

    async def ask() -> None:
        outcomes.append(await broker.alter(other))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        answers.set()
    assert outcomes == [(ErrorCode.NONE, "")]
    await slow_down(world, 1_000_000)
    await eventually(lambda: broker.log("t", 0).log_dir == other, "the move that was asked for last is carried out")


async def test_a_move_cancelled_while_the_controller_is_asked_gives_the_old_directory_back(
    autojump_clock: Any, world: Any
) -> None:
    [broker] = await filled(world, [0])
    source = broker.log("t", 0).directory_id
    world.controller_answers = trio.Event()
    await broker.alter(broker.other_dir())
    replica = broker.partition("t", 0).id
    await eventually(lambda: broker.mover.moves[replica].state is MoveState.QUEUED, "queued")
    await trio.sleep(0.1)
    await broker.alter("any")
    world.controller_answers.set()
    await trio.sleep(1)
    assert world.state("t", 0).directory_of(0) == source == broker.log("t", 0).directory_id


async def test_a_move_to_a_third_directory_replaces_the_one_that_runs(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0, log_dirs=3)
    await world.create_topic("t", [0])
    await world.fill(40, 5_000)
    first, second = (path for path in broker.dirs if path != broker.log("t", 0).log_dir)
    await slow_down(world, 100_000)
    await broker.alter(first)
    await trio.sleep(0.5)
    await broker.alter(second)
    await eventually(lambda: broker.log("t", 0).log_dir == second, "it is in the second one", 30)
    broker.logs.remove_expired(1 << 60)
    assert broker.directories() == {f"{second.name}/t-0"}


async def test_a_follower_that_is_cut_while_it_moves_does_not_keep_what_was_cut(autojump_clock: Any, world: Any) -> None:
    brokers = await filled(world, [0, 1], batches=10)
    world.unreachable.add(0)
    await trio.sleep(1)
    await world.fill(10, 5_000, acks=1)
    world.controller_answers = trio.Event()
    target = brokers[0].other_dir()
    await brokers[0].alter(target)
    replica = brokers[0].partition("t", 0).id
    await eventually(lambda: brokers[0].mover.moves[replica].state is MoveState.QUEUED, "the copy has it all")
    await world.change("t", 0, leader=1, isr=(1,))
    await brokers[1].produce("t", 0, batch(1, 5_000))
    world.unreachable.clear()
    world.controller_answers.set()
    await eventually(lambda: brokers[0].log("t", 0).log_dir == target, "moved")
    await eventually(lambda: world.state("t", 0).isr == (1, 0), "in sync again")
    assert same_data("t", 0, brokers)


async def test_records_that_are_deleted_during_a_move_go_from_both_copies(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    await world.configure(2, "t", retention_bytes="60000", segment_bytes="20000")
    await slow_down(world, 50_000)
    partition, target = broker.partition("t", 0), broker.other_dir()
    await broker.alter(target)
    future = partition.future
    await eventually(lambda: future.log_end_offset > 10, "some are copied")
    await slow_down(world, 1)

    assert await partition.delete_records_before(5) == 5
    assert future.log_start_offset == 5
    assert await partition.delete_records_before(30) == 30
    assert (future.log_start_offset, future.log_end_offset, future.size_bytes) == (30, 30, 0), "the copy had not come so far"
    await world.fill(10, 5_000)
    await slow_down(world, 50_000)
    await eventually(lambda: future.log_end_offset > 45, "some are copied")
    await slow_down(world, 1)
    assert await partition.delete_old_segments() > 0
    assert future.log_start_offset == partition.log.log_start_offset > 30

    await slow_down(world, 10_000_000)
    before = broker.log("t", 0).digest()
    await eventually(lambda: broker.log("t", 0).log_dir == target, "the replica has moved")
    assert broker.log("t", 0).digest() == before


async def test_a_replica_of_a_topic_with_the_longest_name_moves_also_over_a_crash(autojump_clock: Any, world: Any) -> None:
    broker, topic = await world.add_broker(0), "long." + "n" * 244
    await world.create_topic(topic, [0])
    for _ in range(10):
        await broker.produce(topic, 0, batch(1, 5_000))
    before, target = broker.log(topic, 0).digest(), broker.other_dir(topic)
    await slow_down(world, 20_000)
    assert await broker.alter(target, topic) == (ErrorCode.NONE, "")
    await trio.sleep(1)
    broker.crash()
    await broker.restart()
    await eventually(lambda: broker.log(topic, 0).log_dir == target, "the replica has moved")
    assert broker.log(topic, 0).digest() == before
    assert broker.log(topic, 0).directory.name == f"{topic}-0"


async def test_a_move_goes_on_after_a_crash(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    end, target = broker.log("t", 0).log_end_offset, broker.other_dir()
    await slow_down(world, 50_000)
    await broker.alter(target)
    await trio.sleep(2)
    copied = broker.partition("t", 0).future.size_bytes
    assert copied
    broker.crash()
    await broker.restart()
    assert broker.partition("t", 0).future.size_bytes == copied
    await eventually(lambda: broker.log("t", 0).log_dir == target, "moved", 30)
    assert broker.log("t", 0).log_end_offset == end


async def test_a_move_that_is_asked_for_as_the_broker_ends_goes_on_after_the_next_start(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await filled(world, [0])
    run, target, has_ended, is_asked = broker.disks.run, broker.other_dir(), trio.Event(), trio.Event()

    async def run_late(log_dir: Any, *work: Any, **options: Any) -> Any:
        made = await run(log_dir, *work, **options)
        is_asked.set()
        await has_ended.wait()
        return made

    monkeypatch.setattr(broker.disks, "run", run_late)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.alter, target)
        await is_asked.wait()
        broker.crash()
        await trio.sleep(1)
        has_ended.set()
    await broker.restart()
    await eventually(lambda: broker.log("t", 0).log_dir == target, "moved", 30)


async def test_a_move_whose_target_fails_ends_and_the_replica_serves_on(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    target = broker.other_dir()
    await slow_down(world, 50_000)
    await broker.alter(target)
    await trio.sleep(1)
    await broker.lose(target)
    assert not broker.mover.moves
    assert (await broker.produce("t", 0, batch())).error == ErrorCode.NONE
    code, text = await broker.alter(target)
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "offline" in text


async def test_replicas_of_a_failed_directory_answer_storage_error_and_the_others_serve_on(
    autojump_clock: Any, world: Any
) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0], [0])
    dead, alive = broker.log("t", 0).log_dir, broker.log("t", 1).log_dir
    assert dead != alive
    await broker.lose(dead)
    assert (await broker.produce("t", 0, batch())).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await broker.produce("t", 1, batch())).error == ErrorCode.NONE


async def test_a_topic_deleted_in_the_middle_of_a_move_goes_with_both_its_logs(autojump_clock: Any, world: Any) -> None:
    [broker] = await filled(world, [0])
    await slow_down(world, 50_000)
    await broker.alter(broker.other_dir())
    await trio.sleep(1)
    await world.delete_topic("t")
    broker.logs.remove_expired(1 << 60)
    assert broker.directories() == set()
    assert not broker.mover.moves


async def test_a_parked_move_shows_why_and_is_tried_again_on_request(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await filled(world, [0])
    target = broker.other_dir()
    await slow_down(world, 50_000)
    await broker.alter(target)
    await trio.sleep(1)

    def full(*_: object) -> int:
        raise NoSpace(target, 0)

    future = broker.partition("t", 0).future
    monkeypatch.setattr(future, "append_checked", full)
    await trio.sleep(20)
    assert "no space left" in (await described(broker))[0, True].error
    monkeypatch.undo()
    await slow_down(world, 10_000_000)
    begun = trio.current_time()
    assert await broker.alter(target) == (ErrorCode.NONE, "")
    await eventually(lambda: broker.log("t", 0).log_dir == target, "moved")
    assert trio.current_time() - begun < 1


async def test_a_destination_that_is_taken_back_is_forgotten(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("first", [0])
    crowded = broker.log("first", 0).log_dir
    assert (await broker.alter(crowded, "second"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await broker.alter("any", "second"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    await world.create_topic("second", [0])

    assert broker.log("second", 0).log_dir != crowded


async def test_a_destination_survives_a_crash_and_not_the_topic_it_was_for(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    crowded, other = broker.dirs
    await world.add_broker(1)
    await world.create_topic("t", [1], [1])
    for topic in ("t", "later"):
        for number in (0, 1):
            await broker.alter(crowded if number else other, topic, number)
    broker.crash()
    await broker.restart()
    await world.add_replica(0, 0)
    await world.create_topic("later", [0], [0])
    assert broker.log("t", 0).log_dir == broker.log("later", 0).log_dir == other
    assert broker.log("later", 1).log_dir == crowded
    assert len(broker.logs.destinations) == 1, "that of t-1"
    await world.delete_topic("t")
    broker.crash()
    await broker.restart()
    assert len(broker.logs.destinations) == 0


async def test_a_move_that_is_asked_for_again_right_after_its_cancel_is_not_forgotten(autojump_clock: Any, world: Any) -> None:
    """The metadata names the target still when the second request comes: nothing about it will change."""
    [broker] = await filled(world, [0])
    source, target = broker.log("t", 0).log_dir, broker.other_dir()
    replica = broker.partition("t", 0).id
    future_is_stuck = trio.Event()
    swap = broker.logs.swap

    def fails_to_swap(*args: Any) -> Any:
        future_is_stuck.set()
        raise TooManyOpenFiles("no more files for now")

    broker.logs.swap = fails_to_swap
    await broker.alter(target)
    await future_is_stuck.wait()
    assert broker.mover.moves[replica].state is MoveState.ACCEPTED
    world.controller_answers = trio.Event()
    await broker.alter(source)
    broker.logs.swap = swap
    await broker.alter(target)
    await trio.sleep(1)
    world.controller_answers.set()
    await eventually(lambda: broker.log("t", 0).log_dir == target, "the replica has moved")
    await trio.sleep(1)
    assert world.state("t", 0).directory_of(0) == broker.logs.directory_id_of(target)


async def test_a_change_of_the_partition_does_not_take_back_the_question_of_a_move_that_waits(
    autojump_clock: Any, world: Any
) -> None:
    """The replica moves before the controller has heard where it was placed at first."""
    broker = await world.add_broker(0)
    world.controller_answers = trio.Event()
    await world.create_topic("t", [0])
    target = broker.other_dir()
    await broker.alter(target)
    replica = broker.partition("t", 0).id
    await eventually(lambda: broker.mover.moves[replica].state is MoveState.QUEUED, "caught up and queued")
    await world.change("t", 0, leader=0)
    world.controller_answers.set()
    await eventually(lambda: broker.log("t", 0).log_dir == target, "the replica has moved")
    await trio.sleep(1)
    assert world.state("t", 0).directory_of(0) == broker.logs.directory_id_of(target)
