"""An unexpected error in the background work on one log ends that log: the other replicas, and the broker, go on."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import pytest
import trio

from kraftlab.broker.groups.coordinator import OFFSETS_TOPIC, Coordinator
from kraftlab.broker.groups.store import Store
from kraftlab.broker.log import log_manager
from kraftlab.broker.log.disks import look_after_each
from kraftlab.broker.log.ending import LogEnded
from kraftlab.broker.log.log_dir import CLEAN_SHUTDOWN
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.moves import copying
from kraftlab.broker.replication import partition as partition_module
from kraftlab.broker.upkeep.cleaner import Cleaner
from kraftlab.broker.upkeep.flushing import Flusher
from kraftlab.broker.upkeep.producer_expiry import ProducerExpiry
from kraftlab.broker.upkeep.retention import Retention
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import LOST

from ...helpers.waiting import eventually
from ..conftest import batch

TOPIC = 2


def bug(*_: object, **__: object) -> NoReturn:
    raise ValueError("zip() argument 2 is longer than argument 1")


async def retention(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    real = partition_module.has_expired
    patch.setattr(partition_module, "has_expired", lambda each: bug() if each is log else real(each))
    await Retention(broker.replicas, broker.configs, 1000).check(log.log_dir)


async def flushing(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "flush", bug)
    log.flushed_at_ms = 0
    await Flusher(broker.logs, broker.disks, 1000).check(log.log_dir)


async def cleaning(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "cleanable", bug)
    patch.setattr(PartitionLog, "has_dirty_segments", True)
    await Cleaner(broker.replicas, broker.configs).clean_all()


async def expiry_of_producers(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "expire_producers", bug)
    await ProducerExpiry(broker.replicas, broker.configs).check(0)


async def checkpoint(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "flush_rolled", bug)
    with pytest.raises(LogEnded) as raised:
        broker.logs.write_checkpoints()
    broker.failed.append(raised.value)


async def removal_of_files(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    log.advance_log_start(2)
    patch.setattr(log_manager, "remove_deleted", bug)
    with pytest.raises(LogEnded) as raised:
        broker.logs.remove_expired(2**63)
    broker.failed.append(raised.value)


async def lag_check(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker.partition("t", 0), "check_lag", bug)
    broker.replicas.check_lag()


async def a_new_epoch(broker: Any, log: PartitionLog, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "start_epoch", bug)
    await broker.world.change("t", 0, leader=0)


WORK = (retention, flushing, cleaning, expiry_of_producers, checkpoint, removal_of_files, lag_check, a_new_epoch)


async def take_out_ended(broker: Any) -> None:
    while broker.failed:
        await broker.give_up(broker.failed.pop())


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
async def test_a_bug_in_background_work_ends_only_the_log_that_it_meets(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, work: Any
) -> None:
    broker, _ = await world.add_brokers(2)
    await world.create_topic("t", [0, 1], [0, 1])
    await world.configure(TOPIC, "t", cleanup_policy="compact,delete", segment_bytes="300", flush_ms="1000")
    for number in (0, 1):
        for _ in range(3):
            assert (await broker.produce("t", number, batch(1, 200))).error == ErrorCode.NONE
    log = broker.log("t", 0)
    with caplog.at_level(logging.ERROR), monkeypatch.context() as patch:
        await work(broker, log, patch)
        await take_out_ended(broker)
    [event] = [record for record in caplog.records if record.name.endswith(".ending")]
    assert event.exc_info, "the stack is in the log"
    answer = await broker.produce("t", 0, batch(), acks=1)
    assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert "zip() argument 2" in answer.message and "restart the broker" in answer.message
    assert (await broker.produce("t", 1, batch())).error == ErrorCode.NONE
    await eventually(lambda: world.state("t", 0).directory_of(0) == LOST, "the controller moves the leadership")
    broker.logs.write_checkpoints()


async def test_a_bug_in_an_append_of_a_follower_ends_only_that_replica(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = await world.add_brokers(2)
    await world.create_topic("t", [0, 1], [0, 1])
    await world.change("t", 0, isr=(0,))
    monkeypatch.setattr(follower.log("t", 0), "append_as_follower", bug)
    assert (await leader.produce("t", 0, batch())).error == ErrorCode.NONE
    await eventually(lambda: bool(follower.failed), "the log ends")
    await take_out_ended(follower)
    assert follower.partition("t", 0).log is None
    assert (await leader.produce("t", 1, batch())).error == ErrorCode.NONE
    await eventually(lambda: world.state("t", 0).directory_of(1) == LOST, "the controller knows")


async def test_an_ended_log_is_checked_and_served_again_after_a_restart(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await world.add_brokers(1)
    await world.create_topic("t", [0], [0])
    assert (await broker.produce("t", 0, batch(3))).error == ErrorCode.NONE
    log_dir = broker.log("t", 0).log_dir
    with monkeypatch.context() as patch:
        await checkpoint(broker, broker.log("t", 0), patch)
    await take_out_ended(broker)
    broker.logs.close()
    assert not (log_dir / CLEAN_SHUTDOWN).exists(), "nobody knows what the bug has left behind"
    broker.crash()
    await broker.restart()
    log = broker.log("t", 0)
    assert (log.log_end_offset, log.recovery.scanned_bytes) == (3, log.size_bytes)


async def test_a_bug_in_one_turn_of_the_work_on_a_directory_ends_that_turn_only(autojump_clock: Any, tmp_path: Any) -> None:
    turns: list[Any] = []

    async def work(log_dir: Any) -> None:
        turns.append(log_dir)
        if log_dir == "d0":
            bug()

    with trio.move_on_after(2.5):
        await look_after_each(lambda: ["d0", "d1"], 1000, work)
    assert sorted(turns) == ["d0", "d0", "d1", "d1"]


async def test_a_bug_in_a_move_ends_the_copy_and_not_the_replica(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await world.add_brokers(1)
    await world.create_topic("t", [0])
    assert (await broker.produce("t", 0, batch(3))).error == ErrorCode.NONE
    monkeypatch.setattr(copying, "copy_chunk", bug)
    log, target = broker.log("t", 0), broker.other_dir()
    await broker.alter(target)
    await eventually(lambda: bool(broker.failed), "the copy ends")
    await take_out_ended(broker)
    assert not broker.mover.moves and broker.partition("t", 0).future is None
    assert broker.log("t", 0) is log and log.is_open
    assert (await broker.produce("t", 0, batch())).error == ErrorCode.NONE


async def test_a_bug_while_groups_are_loaded_ends_the_log_of_their_partition(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    [broker] = await world.add_brokers(1)
    await world.create_topic(OFFSETS_TOPIC, [0], [0])
    await world.create_topic("t", [0])
    monkeypatch.setattr(Store, "load", bug)
    coordinator = Coordinator(broker.replicas, broker.config, bug)
    await nursery.start(coordinator.run)
    assert coordinator.shard_of("g") is not None
    await eventually(lambda: bool(broker.failed), "the log ends")
    [ended] = broker.failed
    await take_out_ended(broker)
    assert broker.partition(OFFSETS_TOPIC, ended.log.partition).log is None
    with pytest.raises(ApiError) as raised:
        coordinator.shard_of("g")
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    assert (await broker.produce("t", 0, batch())).error == ErrorCode.NONE
