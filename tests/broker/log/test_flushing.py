"""When records are flushed besides at the end of a segment: flush.messages and flush.ms; and threads that work on many logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kraftlab.broker.log import partition_log as partition_log_module
from kraftlab.broker.log.disks import Disks
from kraftlab.broker.log.loading import work_in_threads
from kraftlab.broker.log.log_config import NO_LIMIT, LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.upkeep import flushing as flushing_module
from kraftlab.broker.upkeep.flushing import Flusher

from .conftest import TOPIC, Broker, batch


def test_flush_messages_flushes_within_the_append_that_reaches_the_number(open_log) -> None:
    log = open_log(config=LogConfig(flush_messages=5))
    flushed = []
    for count in (2, 2, 1, 4, 7):
        log.append_as_leader(batch(count), 1)
        flushed.append(log.recovery_point)
    assert flushed == [0, 0, 5, 5, 16]


def test_flush_messages_holds_for_followers_too(open_log) -> None:
    log = open_log(config=LogConfig(flush_messages=1))
    log.append_as_follower(batch(3))
    assert log.recovery_point == 3


@pytest.mark.parametrize(
    ("settings", "log_flush_scheduler_interval_ms", "looks_ms", "flushed_at_ms"),
    [({"flush_ms": 3000}, NO_LIMIT, 1000, 3000), ({"flush_ms": 3000}, 2000, 2000, 4000), ({}, 2000, 2000, None)],
)
def test_flush_ms_is_seen_to_at_every_look(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, int],
    log_flush_scheduler_interval_ms: int,
    looks_ms: int,
    flushed_at_ms: int | None,
) -> None:
    manager, log = broker.with_log()
    log.config = LogConfig(**settings)
    began_ms = log.flushed_at_ms
    log.append_as_leader(batch(3), 1)
    flushed: list[int] = []

    def now_ms() -> int:
        return began_ms + round(trio.current_time() * 1000)

    async def at_once(_: object, work: Callable[..., object], *args: object, **kwargs: object) -> object:
        flushed.append(now_ms() - began_ms)
        return work(*args, **kwargs)

    async def look() -> None:
        flushing = Flusher(manager, Disks(lambda error: None, at_once), log_flush_scheduler_interval_ms)
        with trio.move_on_after(10.5):
            await flushing.run()

    monkeypatch.setattr(flushing_module, "wall_clock_ms", now_ms)
    monkeypatch.setattr(partition_log_module, "wall_clock_ms", now_ms)
    trio.run(look, clock=MockClock(autojump_threshold=0, rate=0))
    assert flushed == ([flushed_at_ms] if flushed_at_ms is not None else [])
    assert log.recovery_point == (3 if flushed else 0)
    assert looks_ms == min(log_flush_scheduler_interval_ms, 2000) or log_flush_scheduler_interval_ms == NO_LIMIT


def test_num_recovery_threads_per_data_dir_logs_are_opened_at_a_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `num.recovery.threads.per.data.dir` says: each thread waits here until all of them have a log."""
    manager = broker.start()
    for number in range(6):
        manager.get_or_create("t", TOPIC, number, broker.ids[0]).append_as_leader(batch(number + 1), 1)
    together, real = threading.Barrier(3, timeout=20), PartitionLog.open

    def opened(directory: Path, **options: object) -> PartitionLog:
        together.wait()
        return real(directory, **options)

    monkeypatch.setattr(PartitionLog, "open", opened)
    manager = broker.open(recovery_threads=3)
    manager.start([], now_ms=0)
    logs = [manager.get_or_create("t", TOPIC, number) for number in range(6)]
    described = [(log.partition, log.log_end_offset) for log in logs]
    assert described == [(number, number + 1) for number in range(6)]
    flush, flushing = PartitionLog.flush, threading.Barrier(3, timeout=20)
    monkeypatch.setattr(PartitionLog, "flush", lambda log, **options: (flushing.wait(), flush(log, **options))[1])
    manager.close()
    assert (broker.dirs[0] / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_return_results_in_order_and_end_at_the_first_error(threads: int) -> None:
    assert work_in_threads(threads, lambda number: number * 2, range(20)) == [number * 2 for number in range(20)]
    begun: list[int] = []

    def fail(number: int) -> None:
        begun.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match=r"\d"):
        work_in_threads(threads, fail, range(1000))
    assert len(begun) <= threads
