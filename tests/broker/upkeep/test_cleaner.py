"""Compaction on running brokers: what is compacted when, beside replication, moves and failures."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
import trio

from kraftlab.broker.log import checkpoints
from kraftlab.broker.log.compacting import Compaction
from kraftlab.broker.upkeep.cleaner import Cleaner
from kraftlab.broker.upkeep.retention import Retention
from kraftlab.common.errors import ErrorCode
from kraftlab.records.record_batch import Record, StoredRecord, build_batch, decode_records

from ...helpers.waiting import eventually

NOW_MS = 1_700_000_000_000
TOPIC, BROKER = 2, 4


async def compacted_topic(world: Any, brokers: int = 1, partitions: int = 1, **settings: str) -> list[Any]:
    """Brokers with a compacted topic t of which each has a replica, in segments of a kilobyte."""
    hosts = [await world.add_broker(broker_id) for broker_id in range(brokers)]
    await world.create_topic("t", *[list(range(brokers))] * partitions)
    defaults = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.1"}
    await world.configure(TOPIC, "t", **(defaults | settings))
    return hosts


async def fill(leader: Any, count: int, keys: int = 5, number: int = 0, prefix: str = "k") -> None:
    for at in range(count):
        record = Record(f"{prefix}{at % keys}".encode(), b"v" * 100, NOW_MS)
        assert (await leader.produce("t", number, build_batch([record]))).error == ErrorCode.NONE


def cleaner_of(broker: Any) -> Cleaner:
    return Cleaner(broker.replicas, broker.configs)


def records_of(broker: Any, number: int = 0) -> list[StoredRecord]:
    log = broker.log("t", number)
    return list(decode_records(log.read(log.log_start_offset, 1 << 24)))


def checkpoint(log_dir: Any) -> dict[tuple[str, int], int]:
    return checkpoints.read_offsets(log_dir / checkpoints.CLEANED_ENDS)


async def test_each_replica_compacts_its_own_log_and_the_replicas_go_on(autojump_clock: Any, world: Any) -> None:
    [leader, follower] = await compacted_topic(world, brokers=2)
    await fill(leader, 60)
    await trio.sleep(2)
    assert await cleaner_of(leader).clean_all() == 1
    assert len(records_of(leader)) < 20 and len(records_of(follower)) == 60
    await fill(leader, 30, prefix="n")
    await trio.sleep(2)
    assert await cleaner_of(follower).clean_all() == 1
    assert follower.log("t", 0).epochs == leader.log("t", 0).epochs
    newest = {record.key: record for record in records_of(leader)}
    assert newest == {record.key: record for record in records_of(follower)} and len(newest) == 10
    await eventually(lambda: leader.log("t", 0).high_watermark == 90, "the follower has everything")


async def test_a_new_replica_copies_a_compacted_log_with_its_gaps(autojump_clock: Any, world: Any) -> None:
    [leader] = await compacted_topic(world)
    newcomer = await world.add_broker(1)
    await fill(leader, 60)
    await cleaner_of(leader).clean_all()
    await world.add_replica(0, 1)
    await eventually(lambda: newcomer.log("t", 0).log_end_offset == 60, "the new replica has copied everything")
    assert records_of(newcomer) == records_of(leader)
    assert newcomer.log("t", 0).epochs == leader.log("t", 0).epochs


async def test_the_cleaner_waits_for_something_to_do_and_keeps_its_checkpoint(autojump_clock: Any, world: Any) -> None:
    [broker] = await compacted_topic(world)
    world.nursery.start_soon(cleaner_of(broker).run)
    log = broker.log("t", 0)
    await fill(broker, 40)
    await eventually(lambda: log.cleaned_to > 30, "the log is compacted within the back-off", 16)
    first = log.cleaned_to
    await eventually(lambda: checkpoint(log.log_dir) == {("t", 0): first}, "the checkpoint is written")
    broker.crash()
    await broker.restart()
    assert broker.log("t", 0).cleaned_to == first


async def test_the_cleaner_looks_for_logs_as_often_as_its_back_off_says(autojump_clock: Any, world: Any) -> None:
    [broker] = await compacted_topic(world)
    await world.configure(BROKER, "", log_cleaner_backoff_ms="500")
    world.nursery.start_soon(cleaner_of(broker).run)
    await trio.sleep(2)
    await fill(broker, 40)
    await eventually(lambda: broker.log("t", 0).cleaned_to > 30, "the log is compacted within the back-off", 1)


async def test_cleaners_share_the_memory_for_keys_and_for_records(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await compacted_topic(world)
    await world.configure(
        BROKER,
        "",
        log_cleaner_threads="2",
        log_cleaner_dedupe_buffer_size="4000000",
        log_cleaner_io_buffer_load_factor="0.5",
        log_cleaner_io_buffer_size="400000",
    )
    given: list[tuple[int, int]] = []

    def note(*arguments: Any, map_bytes: int, chunk_bytes: int, **rest: Any) -> Compaction:
        given.append((map_bytes, chunk_bytes))
        return Compaction(*arguments, map_bytes=map_bytes, chunk_bytes=chunk_bytes, **rest)

    monkeypatch.setattr("kraftlab.broker.upkeep.cleaner.Compaction", note)
    await fill(broker, 40)
    assert await cleaner_of(broker).clean_all() == 1
    assert given == [(1_000_000, 200_000)]


async def test_a_throttled_cleaner_reads_and_writes_no_faster_than_the_limit(autojump_clock: Any, world: Any) -> None:
    [broker] = await compacted_topic(world)
    await fill(broker, 400)
    moved = 2 * broker.log("t", 0).size_bytes
    await world.configure(BROKER, "", log_cleaner_io_max_bytes_per_second="10000")
    began_s = trio.current_time()
    await cleaner_of(broker).clean_all()
    assert trio.current_time() - began_s > 0.8 * moved / 10_000


async def test_a_moving_replica_is_compacted_after_the_move_which_takes_the_checkpoint_along(
    autojump_clock: Any, world: Any
) -> None:
    [broker] = await compacted_topic(world)
    await fill(broker, 40)
    cleaner, source, target = cleaner_of(broker), broker.log("t", 0).log_dir, broker.other_dir()
    await cleaner.clean_all()
    compacted_to = broker.log("t", 0).cleaned_to
    await fill(broker, 40, prefix="n")
    world.controller_answers = trio.Event()
    assert await broker.alter(target) == (ErrorCode.NONE, "")
    assert await cleaner.clean_all() == 0
    world.controller_answers.set()
    await eventually(lambda: broker.log("t", 0).log_dir == target, "the replica has moved")
    assert broker.log("t", 0).cleaned_to == compacted_to
    broker.logs.write_checkpoints(source)
    assert (checkpoint(source), checkpoint(target)) == ({}, {("t", 0): compacted_to})
    assert await cleaner.clean_all() == 1
    assert broker.log("t", 0).cleaned_to > 40


async def test_a_damaged_log_is_left_alone_and_the_others_are_compacted(
    autojump_clock: Any, world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    [broker] = await compacted_topic(world, partitions=3)
    for number in range(3):
        await fill(broker, 40, number=number)
    damaged = broker.log("t", 1)
    path = damaged.directory / f"{0:020}.log"
    content = path.read_bytes()
    path.write_bytes(content[:80] + bytes([content[80] ^ 255]) + content[81:])
    cleaner = cleaner_of(broker)
    assert await cleaner.clean_all() == 3
    assert [*cleaner.uncleanable.values()] == [damaged]
    assert "t-1: cannot be compacted, and is left as it is until the broker restarts" in caplog.text
    assert [broker.log("t", number).cleaned_to > 0 for number in range(3)] == [True, False, True]
    assert await cleaner.clean_all() == 0 and len(records_of(broker, 2)) < 20


async def test_a_disk_that_fails_goes_offline_and_the_other_is_compacted(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [broker] = await compacted_topic(world, partitions=2)
    for number in range(2):
        await fill(broker, 40, number=number)
    dead, alive = broker.log("t", 0), broker.log("t", 1)
    assert dead.log_dir != alive.log_dir
    real = os.fdatasync

    def sync(descriptor: int) -> None:
        if str(dead.directory) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "bad disk")
        real(descriptor)

    cleaner = cleaner_of(broker)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", sync)
        await cleaner.clean_all()
    await broker.give_up(broker.failed[0])
    assert broker.partition("t", 0).log is None and alive.cleaned_to > 0


async def test_both_policies_together_compact_and_delete(autojump_clock: Any, world: Any) -> None:
    [broker] = await compacted_topic(world, cleanup_policy="compact,delete", retention_bytes="1500", retention_ms="-1")
    await fill(broker, 60, keys=30)
    retention, log = Retention(broker.replicas, broker.configs, 1000), broker.log("t", 0)
    await cleaner_of(broker).clean_all()
    assert len(records_of(broker)) < 60 and log.log_start_offset == 0
    await fill(broker, 60, keys=60, prefix="n")
    assert await retention.check(log.log_dir) > 0
    assert log.log_start_offset > 0 and log.size_bytes < 3000


async def test_a_topic_with_compaction_alone_is_not_deleted_by_retention(autojump_clock: Any, world: Any) -> None:
    [broker] = await compacted_topic(world, retention_bytes="1", retention_ms="1")
    await fill(broker, 40, keys=40)
    assert await Retention(broker.replicas, broker.configs, 1000).check(broker.log("t", 0).log_dir) == 0
    await cleaner_of(broker).clean_all()
    assert len(records_of(broker)) == 40


async def test_a_cleaner_that_is_switched_off_compacts_nothing(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0, log_cleaner_enable="false")
    await world.create_topic("t", [0])
    await world.configure(TOPIC, "t", cleanup_policy="compact", segment_bytes="1000")
    await fill(broker, 40)
    with trio.move_on_after(60):
        await cleaner_of(broker).run()
    assert len(records_of(broker)) == 40


async def test_as_many_logs_as_there_are_cleaner_threads_are_compacted_at_a_time(autojump_clock: Any, world: Any) -> None:
    [broker] = await compacted_topic(world, partitions=4)
    for number in range(4):
        await fill(broker, 40, number=number)
    await world.configure(BROKER, "", log_cleaner_threads="2", log_cleaner_io_max_bytes_per_second="1")
    cleaner = cleaner_of(broker)
    with trio.move_on_after(60):
        await cleaner.run()
    assert all(broker.log("t", number).cleaned_to == 0 for number in range(4))
    await world.configure(BROKER, "", log_cleaner_io_max_bytes_per_second="1e12")
    with trio.move_on_after(60):
        await cleaner.run()
    assert all(broker.log("t", number).cleaned_to > 30 for number in range(4))
