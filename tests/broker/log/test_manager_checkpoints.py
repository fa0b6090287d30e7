"""The offsets of each log directory: written, lost, and never taken for those of another replica."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.broker.log import checkpoints, leader_epochs, log_dir
from kraftlab.broker.log.errors import (
    LogClosed,
    NoSpace,
    StartupRefused,
    TooManyOpenFiles,
)
from kraftlab.broker.log.startup import AssignedReplica

from .conftest import OTHER, TOPIC, Broker, batch, copy_all, failing, full_disk, replica


def test_everything_is_found_again_after_a_clean_stop_without_a_scan(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[1])
    for epoch in range(30):
        log.append_as_leader(batch(2, value_bytes=100), epoch)
    log.high_watermark = 50
    log.advance_log_start(3)
    digest = log.digest()
    manager.close(broker_epoch=77)
    assert json.loads((broker.dirs[1] / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 77}
    with pytest.raises(LogClosed):
        log.read(3, 1)
    manager = broker.start(replica(broker, 1))
    assert manager.previous_broker_epoch == 77
    log = manager.get(TOPIC, 0)
    assert (log.digest(), log.high_watermark, log.log_start_offset, log.recovery.scanned_bytes) == (digest, 50, 3, 0)
    assert not (broker.dirs[1] / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("what", ["half a batch", "a whole batch", "a segment", "a directory"])
def test_a_broker_that_lost_records_after_a_clean_stop_does_not_claim_one(broker: Broker, what: str) -> None:
    """The others have them, and it must not lead before them (KIP-966)."""
    manager = broker.start()
    manager.get_or_create("u", OTHER, 0, broker.ids[0]).append_as_leader(batch(), 1)
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[1])
    for _ in range(30):
        log.append_as_leader(batch(2, value_bytes=100), 1)
    last = log.read(58, 10_000)
    manager.close(broker_epoch=77)
    assert broker.open().previous_broker_epoch == 77
    manager = broker.start(replica(broker, 1))
    manager.close(broker_epoch=78)
    segment = max(log.directory.glob("*.log"))
    if what == "a directory":
        shutil.rmtree(log.directory)
    elif what == "a segment":
        segment.unlink()
    else:
        os.truncate(segment, segment.stat().st_size - len(last) // (1 if what == "a whole batch" else 2))
    assert broker.open().previous_broker_epoch == -1


def test_after_a_crash_logs_are_scanned_and_checkpoints_hold(broker: Broker) -> None:
    manager, log = broker.with_log()
    for _ in range(30):
        log.append_as_leader(batch(2, value_bytes=100), 1)
    log.high_watermark = 40
    manager.write_checkpoints()
    log.append_as_leader(batch(2), 1)
    assert 0 < log.recovery_point < log.log_end_offset
    manager = broker.start(replica(broker, 0))
    assert manager.previous_broker_epoch == -1
    again = manager.get(TOPIC, 0)
    assert (again.log_end_offset, again.high_watermark) == (62, 40)
    assert 0 < again.recovery.scanned_bytes < again.size_bytes


def test_lost_checkpoints_cost_a_scan_only(broker: Broker) -> None:
    manager, log = broker.with_log(batch(9))
    log.high_watermark = 9
    manager.write_checkpoints()
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
        (broker.dirs[0] / name).write_text("garbage")
    again = broker.start(replica(broker, 0)).get(TOPIC, 0)
    assert (again.log_end_offset, again.high_watermark, again.recovery.scanned_bytes) == (9, 0, again.size_bytes)


def test_a_deleted_replica_can_come_again_at_once_without_the_old_ones_offsets(broker: Broker) -> None:
    manager, log = broker.with_log(batch(50))
    log.high_watermark = 50
    log.advance_log_start(40)
    log.flush()
    manager.write_checkpoints()
    manager.create_future(TOPIC, 0, broker.dirs[1])
    assert manager.delete(TOPIC, 0, now_ms=0)
    assert not manager.delete(TOPIC, 0, now_ms=0)
    again = manager.get_or_create("t", OTHER, 0, broker.ids[0])
    assert (again.log_end_offset, again.topic_id) == (0, OTHER)
    again.append_as_leader(batch(3), 1)
    assert broker.names(0) == ["t-0", "t-0-delete"]
    manager = broker.start(replica(broker, 0, topic_id=OTHER))
    restarted = manager.get(OTHER, 0)
    assert (restarted.log_start_offset, restarted.log_end_offset) == (0, 3)
    assert manager.remove_expired(10**6) == 2
    assert (broker.names(0), broker.names(1)) == (["t-0"], [])


def test_a_new_leader_without_records_writes_nothing_into_its_directory(broker: Broker) -> None:
    manager, log = broker.with_log()
    log.start_epoch(3)
    manager.write_checkpoints()
    log.flush()
    assert not (log.directory / leader_epochs.FILE_NAME).exists()
    log.append_as_leader(batch(), 3)
    log.flush()
    found = leader_epochs.read(log.directory)
    assert found.entries == ((3, 0),)


def test_a_full_disk_does_not_take_its_directory_offline_when_checkpoints_are_due(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = broker.with_log()
    for _ in range(40):
        log.append_as_leader(batch(5), 1)
    assert len(list(log.directory.glob("*.log"))) > 1
    log.high_watermark = 150
    manager.write_checkpoints()
    for _ in range(40):
        log.append_as_leader(batch(5), 2)
    with full_disk(monkeypatch, broker.dirs[0]):
        with pytest.raises(NoSpace):
            log.append_as_leader(batch(5), 2)
        manager.write_checkpoints()
        assert log.truncate_to(50) == 50
    assert not manager.offline_dirs
    assert log.append_as_leader(batch(5), 3)[:2] == (50, 55)
    manager = broker.open()
    manager.start([AssignedReplica("t", TOPIC, 0, broker.ids[0])], now_ms=0)
    again = manager.get(TOPIC, 0)
    assert again.log_end_offset == 55
    assert again.end_offset_for(1) == (1, 50)
    assert again.high_watermark == 0, "its checkpoint was given up, so it waits for the leader"


def test_a_cut_whose_checkpoint_cannot_be_written_cuts_nothing_and_can_be_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = broker.with_log(batch(5), batch(5))
    log.flush()
    manager.write_checkpoints()
    with monkeypatch.context() as patch:
        patch.setattr("kraftlab.broker.log.checkpoints.write_offsets", failing(errno.EMFILE))
        with pytest.raises(TooManyOpenFiles):
            log.truncate_to(5)
        assert (log.log_end_offset, log.recovery_point) == (10, 10)
        manager.write_checkpoints()
    assert not manager.offline_dirs
    log.truncate_to(5)
    assert (broker.dirs[0] / checkpoints.RECOVERY_POINTS).read_text() == "0\n1\nt 0 5\n"


def test_offsets_of_a_replica_that_is_gone_are_not_a_new_ones_though_no_checkpoint_was_written_at_the_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", OTHER, 0, broker.ids[0])
    log.append_as_leader(batch(9), 1)
    log.high_watermark = 9
    manager.close(broker_epoch=5)
    shutil.rmtree(log.directory)
    with monkeypatch.context() as patch:
        patch.setattr("kraftlab.broker.log.checkpoints.write_offsets", failing(errno.EMFILE))
        manager = broker.start(replica(broker, 0))
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(9), 1)
    again = broker.start(replica(broker, 0)).get(TOPIC, 0)
    assert (again.log_end_offset, again.high_watermark, again.recovery.scanned_bytes) == (9, 0, again.size_bytes)


def test_the_checkpoints_of_a_move_are_not_those_of_a_deleted_topic_of_that_name(broker: Broker) -> None:
    """The replica of the deleted topic lies in the target under the plain name, and nobody has claimed it yet."""
    manager = broker.start()
    given_up = manager.get_or_create("t", OTHER, 0, broker.ids[1])
    given_up.append_as_leader(batch(9), 1)
    given_up.high_watermark = 9
    manager.close()
    manager = broker.start(AssignedReplica("t", TOPIC, 0, broker.ids[0]))
    current = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    current.append_as_leader(batch(20), 1)
    copy_all(current, manager.create_future(TOPIC, 0, broker.dirs[1]))
    manager.write_checkpoints()
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
        assert (broker.dirs[1] / name).read_text() == "0\n1\nt 0 0\n"


def test_a_checkpoint_that_waits_for_another_does_not_bring_back_what_a_cut_has_lowered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Truncated offsets may be written again, and must not count as durable then."""
    waiting: list[Callable[[], object]] = []

    class CutsFirst:
        """A lock that is held by the cut until the cut is done."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if waiting:
                waiting.pop()()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(log_dir, "Lock", CutsFirst)
    manager, log = broker.with_log(batch(5), batch(5))
    log.flush()
    waiting += [lambda: log.truncate_to(5), lambda: None]  # The lock of all checkpoints comes first, then that of one.
    manager.write_checkpoints()
    assert not waiting
    assert (broker.dirs[0] / checkpoints.RECOVERY_POINTS).read_text() == "0\n1\nt 0 5\n"


def test_a_checkpoint_that_is_being_written_does_not_keep_the_offsets_of_a_replica_that_goes_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its name that comes at once must not find them after a crash."""
    manager, log = broker.with_log(batch(50))
    log.flush()
    write_offsets, followed = checkpoints.write_offsets, threading.Event()

    def come_again() -> None:
        manager.delete(TOPIC, 0, now_ms=0)
        manager.get_or_create("t", OTHER, 0, broker.ids[0])
        followed.set()

    thread = threading.Thread(target=come_again)

    def write_late(path: Path, offsets: dict[tuple[str, int], int]) -> None:
        if thread.ident is None:
            thread.start()
            followed.wait(0.2)
        write_offsets(path, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", write_late)
    manager.write_checkpoints()
    thread.join()
    assert (broker.dirs[0] / checkpoints.RECOVERY_POINTS).read_text() == "0\n0\n"


def test_a_start_that_is_refused_leaves_a_clean_shutdown_clean(broker: Broker) -> None:
    """The next one needs no scan, and the replicas keep their claim to lead."""
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1)
    manager.close(broker_epoch=5)
    there = broker.dirs[1] / "meta.properties"
    kept = there.read_bytes()
    there.write_bytes((broker.dirs[0] / "meta.properties").read_bytes())
    with pytest.raises(StartupRefused, match="one is a copy"):
        broker.open()
    there.write_bytes(kept)
    assert broker.open().previous_broker_epoch == 5


def test_threads_that_want_all_checkpoints_written_meanwhile_share_one_write(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Semaphore(0)

    class Lock:
        """Counts the threads that have to wait."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if not self.lock.acquire(blocking=False):
                waiting.release()
                self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(log_dir, "Lock", Lock)
    manager, log = broker.with_log(batch(9))
    write, begun, goes_on = checkpoints.write_offsets, threading.Event(), threading.Event()
    written: list[int] = []

    def slow(path: Path, offsets: dict[tuple[str, int], int]) -> None:
        begun.set()
        assert goes_on.wait(10)
        if path.name == checkpoints.HIGH_WATERMARKS:
            written.append(offsets["t", 0])
        write(path, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", slow)
    threads = [threading.Thread(target=manager.write_checkpoints, args=(broker.dirs[0],)) for _ in range(6)]
    threads[0].start()
    assert begun.wait(10)
    for thread in threads[1:]:
        thread.start()
        assert waiting.acquire(timeout=10)
    log.high_watermark = 5
    goes_on.set()
    for thread in threads:
        thread.join(10)
    assert written == [5, 5], "the write that had begun, and one for all the others"
