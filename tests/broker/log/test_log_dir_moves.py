"""Moves between log directories: the copy, the swap, the start that ends a move, and crashes in between."""

from __future__ import annotations

import errno
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from kraftlab.broker.log import checkpoints, files
from kraftlab.broker.log import log_manager as log_manager_module
from kraftlab.broker.log import segment as segment_module
from kraftlab.broker.log import unserved as unserved_module
from kraftlab.broker.log.errors import (
    LogClosed,
    LogDirFailed,
    NoSpace,
    ReplicaConflict,
    TooManyOpenFiles,
)
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.startup import AssignedReplica, Verb

from .conftest import OTHER, STRAY, TOPIC, Broker, batch, copy_all, crashed, failing, replica


def test_a_move_copies_swaps_and_the_old_files_go_after_the_delay(broker: Broker) -> None:
    manager, old = broker.with_log()
    for epoch in range(20):
        old.append_as_leader(batch(2, value_bytes=100), epoch)
    old.high_watermark = 40
    old.advance_log_start(10)
    future = manager.create_future(TOPIC, 0, broker.dirs[1])
    assert future.log_start_offset == 10
    copy_all(old, future)
    old.append_as_leader(batch(1), 20)
    with pytest.raises(ReplicaConflict, match="not caught up"):
        manager.swap(TOPIC, 0, now_ms=1000)
    assert broker.names(1) == ["t-0-future"]
    copy_all(old, future)
    digest = old.digest()
    new = manager.swap(TOPIC, 0, now_ms=1000)
    assert new is manager.get(TOPIC, 0) is future
    assert manager.future(TOPIC, 0) is None
    assert (new.digest(), new.high_watermark, new.epochs) == (digest, 40, future.epochs)
    with pytest.raises(LogClosed, match="has moved"):
        old.append_as_leader(batch(1), 20)
    assert new.append_as_leader(batch(1), 20)[:2] == (41, 42)
    assert (broker.names(0), broker.names(1)) == (["t-0-delete"], ["t-0"])
    assert manager.next_expiry_ms() == 61_000
    assert manager.remove_expired(60_999) == 0
    assert manager.remove_expired(61_000) == 1
    assert broker.names(0) == []
    assert (broker.dirs[0] / checkpoints.RECOVERY_POINTS).read_text() == "0\n0\n"


def test_a_cancelled_move_leaves_the_current_log(broker: Broker) -> None:
    manager, old = broker.with_log()
    manager.create_future(TOPIC, 0, broker.dirs[1])
    for bad in (broker.dirs[0], broker.dirs[1], Path("/nowhere")):
        with pytest.raises(ReplicaConflict):
            manager.create_future(TOPIC, 0, bad)
    assert manager.drop_future(TOPIC, 0, now_ms=0)
    assert not manager.drop_future(TOPIC, 0, now_ms=0)
    assert manager.get(TOPIC, 0) is old
    assert broker.names(1) == ["t-0-delete"]


@pytest.mark.parametrize("target_is_in_metadata", [True, False])
def test_a_crash_at_any_step_of_a_swap_is_healed_by_the_next_start(tmp_path: Path, target_is_in_metadata: bool) -> None:
    for step in range(1, 100):
        broker = Broker(tmp_path / str(step))
        manager, old, _ = broker.moving(*[batch(2, value_bytes=100)] * 20)
        digest = old.digest()
        is_over = crashed(step, partial(manager.swap, TOPIC, 0, now_ms=0))
        manager = broker.start(replica(broker, 1 if target_is_in_metadata else 0))
        log = manager.get(TOPIC, 0)
        assert log is not None, step
        assert log.digest() == digest, step
        if target_is_in_metadata:
            assert (log.log_dir, manager.futures()) == (broker.dirs[1], []), step
        manager.remove_expired(10**6)
        assert broker.names(0 if log.log_dir == broker.dirs[1] else 1) in ([], ["t-0-future"]), step
        manager.abandon()
        if is_over:
            assert step > 10
            return
    raise AssertionError("the swap has no end")


@pytest.mark.parametrize("is_name_file_lost", [False, True])
def test_a_topic_of_249_characters_moves_and_survives_restarts(broker: Broker, is_name_file_lost: bool) -> None:
    topic = "long." + "t" * 244
    manager = broker.start()
    old = manager.get_or_create(topic, TOPIC, 12, broker.ids[0])
    old.append_as_leader(batch(5), 1)
    copy_all(old, manager.create_future(TOPIC, 12, broker.dirs[1]))
    assigned = AssignedReplica(topic, TOPIC, 12, broker.ids[0])
    if is_name_file_lost:
        [building] = broker.dirs[1].glob("*-future")
        (building / "topic-name").unlink()
    manager = broker.start(assigned)
    future = manager.future(TOPIC, 12)
    assert (future.topic, future.log_end_offset) == (topic, 5)
    new = manager.swap(TOPIC, 12, now_ms=0)
    assert new.directory == broker.dirs[1] / f"{topic}-12"
    manager.close()
    manager = broker.start()
    manager.remove_expired(10**6)
    [stray] = [stray for described in manager.describe() for stray in described.strays]
    assert (stray.topic, stray.partition, stray.size_bytes) == (topic, 12, new.size_bytes)


def test_an_unfinished_move_goes_on_after_a_restart(broker: Broker) -> None:
    manager, _ = broker.with_log(batch(5))
    manager.create_future(TOPIC, 0, broker.dirs[1])
    manager = broker.open()
    [action] = manager.start([replica(broker, 0)], now_ms=0)
    assert action.verb is Verb.RESUME_MOVE
    current, future = manager.get(TOPIC, 0), manager.future(TOPIC, 0)
    copy_all(current, future)
    assert manager.swap(TOPIC, 0, now_ms=0) is future


def test_a_move_does_not_end_where_somebody_has_made_a_directory_and_ends_once_that_is_gone(broker: Broker) -> None:
    manager, current, _ = broker.moving(batch(5))
    (broker.dirs[1] / "t-0").mkdir()
    with pytest.raises(ReplicaConflict, match="exists already"):
        manager.swap(TOPIC, 0, now_ms=0)
    assert (broker.names(0), broker.names(1), manager.get(TOPIC, 0)) == (["t-0"], ["t-0", "t-0-future"], current)
    current.append_as_leader(batch(1), 1)
    (broker.dirs[1] / "t-0").rmdir()
    copy_all(current, manager.future(TOPIC, 0))
    assert manager.swap(TOPIC, 0, now_ms=0).log_dir == broker.dirs[1]


@pytest.mark.parametrize("crash", [False, True], ids=["running", "restarted"])
def test_a_move_ends_where_a_replica_of_a_deleted_topic_of_that_name_still_lies(broker: Broker, crash: bool) -> None:
    """The topic was deleted and created again while the broker was down."""
    manager = broker.start()
    manager.get_or_create("t", OTHER, 0, broker.ids[1]).append_as_leader(batch(9), 1)
    manager = broker.start(AssignedReplica("t", TOPIC, 0, broker.ids[0]))
    current = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    current.append_as_leader(batch(5), 1)
    copy_all(current, manager.create_future(TOPIC, 0, broker.dirs[1]))
    if crash:
        manager = broker.start(AssignedReplica("t", TOPIC, 0, broker.ids[1]))
    else:
        manager.swap(TOPIC, 0, now_ms=0)
    assert not manager.offline_dirs
    moved = manager.get(TOPIC, 0)
    assert (moved.log_dir, moved.log_end_offset) == (broker.dirs[1], 5)
    assert [name.rsplit("-", 1)[1] for name in broker.names(1)] == ["0", "stray"]


def test_a_move_that_a_start_ends_brings_the_log_start_and_the_high_watermark_along(broker: Broker) -> None:
    manager, log, _ = broker.moving(*[batch()] * 6)
    log.high_watermark = 5
    log.advance_log_start(4)
    manager.write_checkpoints()
    promoted = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert promoted.log_dir == broker.dirs[1]
    assert (promoted.log_start_offset, promoted.high_watermark, promoted.log_end_offset) == (4, 5, 6)
    found_again = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert (found_again.log_start_offset, found_again.high_watermark) == (4, 5)


def test_a_move_that_a_start_cannot_end_for_want_of_space_goes_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy has to be durable before the swap; the replica stays in the source until then."""
    manager, _, _ = broker.moving(batch())
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "flush", lambda self: (_ for _ in ()).throw(NoSpace(self.log_dir, 0)))
        manager = broker.start(replica(broker, 1))
    served, future = manager.get(TOPIC, 0), manager.future(TOPIC, 0)
    assert served is not None and served.log_dir == broker.dirs[0]
    assert future is not None and future.log_dir == broker.dirs[1]
    assert manager.swap(TOPIC, 0, now_ms=0).log_dir == broker.dirs[1]


@pytest.mark.parametrize("is_start", [False, True], ids=["swap", "start"])
@pytest.mark.parametrize("full", [0, 1], ids=["source", "target"])
def test_a_directory_without_room_for_a_name_delays_the_end_of_a_move_and_stays_in_use(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, full: int, is_start: bool
) -> None:
    manager, _, _ = broker.moving(batch(5))
    names, rename = [broker.names(0), broker.names(1)], os.rename

    def without_room(source: Path, target: Path) -> None:
        is_back = target.name == "t-0" and target.parent == broker.dirs[0]
        if target.parent == broker.dirs[full] and not is_back:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(files.os, "rename", without_room)
        if is_start:
            manager = broker.start(replica(broker, 1))
        else:
            with pytest.raises(NoSpace):
                manager.swap(TOPIC, 0, now_ms=0)
    log = manager.get(TOPIC, 0)
    assert (log.log_dir, manager.offline_dirs) == (broker.dirs[0], {})
    assert [broker.names(0), broker.names(1)] == names
    assert log.append_as_leader(batch(), 1)[:2] == (5, 6)
    copy_all(log, manager.future(TOPIC, 0))
    assert manager.swap(TOPIC, 0, now_ms=0).log_dir == broker.dirs[1]


@pytest.mark.parametrize("is_start", [False, True], ids=["swap", "start"])
def test_a_target_that_fails_while_a_move_ends_leaves_the_old_log_in_charge(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_start: bool
) -> None:
    manager, old, _ = broker.moving(batch(5))
    real = os.rename

    def broken(source: Path, target: Path) -> None:
        if Path(target).parent == broker.dirs[1]:
            raise OSError(errno.EROFS, "Read-only file system")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "rename", broken)
        if is_start:
            manager = broker.start(replica(broker, 1))
        else:
            with pytest.raises(LogDirFailed) as raised:
                manager.swap(TOPIC, 0, now_ms=0)
            manager.mark_offline(raised.value.log_dir, raised.value)
            assert manager.get(TOPIC, 0) is old
    assert list(manager.offline_dirs) == [broker.dirs[1]]
    served = manager.get(TOPIC, 0)
    assert (served.log_dir, served.append_as_leader(batch(1), 1)[:2]) == (broker.dirs[0], (5, 6))
    assert broker.names(0) == ["t-0"]


def test_a_crash_right_behind_a_swap_does_not_bring_deleted_records_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, log, _ = broker.moving(*[batch()] * 6)
    log.high_watermark = 6
    log.advance_log_start(4)
    manager.swap(TOPIC, 0, 0)
    for checkpoint in broker.dirs[0].glob("*-checkpoint"):
        checkpoint.unlink()
    found_again = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert (found_again.log_start_offset, found_again.high_watermark) == (4, 6)


def test_a_copy_is_not_served_while_its_source_may_be_on_a_disk_that_is_missing(broker: Broker) -> None:
    """The metadata names the target before the last records are there."""
    manager, log = broker.with_log(batch())
    future = manager.create_future(TOPIC, 0, broker.dirs[1])
    copy_all(log, future)
    future.high_watermark = 1
    manager.write_checkpoints()
    log.append_as_leader(batch(), 1)
    manager.abandon()
    broker.dirs[0].rename(broker.dirs[0].with_name("away"))
    broker.dirs[0].touch()
    manager = broker.start(replica(broker, 1))
    assert manager.get(TOPIC, 0) is None
    assert (broker.dirs[1] / checkpoints.HIGH_WATERMARKS).read_text().splitlines()[2:] == ["t 0 1"]
    manager.abandon()
    broker.dirs[0].unlink()
    broker.dirs[0].with_name("away").rename(broker.dirs[0])
    served = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert (served.log_dir, served.log_end_offset) == (broker.dirs[0], 2)


def test_a_move_whose_name_could_not_be_made_durable_has_not_begun(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    with monkeypatch.context() as patch:
        patch.setattr(log_manager_module, "fsync_directory", failing(errno.EMFILE))
        with pytest.raises(TooManyOpenFiles):
            manager.create_future(TOPIC, 0, broker.dirs[1])
    assert manager.futures() == []
    assert manager.create_future(TOPIC, 0, broker.dirs[1]).log_end_offset == 0


@pytest.mark.parametrize("failing", [0, 1])
def test_a_swap_whose_rename_cannot_be_made_durable_leaves_each_directory_under_its_name(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Else the source would be taken for one that was given up, and its copy, which is dropped with the move, be gone as well."""
    manager, _, _ = broker.moving(batch(5))
    real, has_failed = files.fsync_directory, []

    def fails(path: Path) -> None:
        if path == broker.dirs[failing] and any(name.endswith("-delete") for name in broker.names(0)):
            has_failed.append(path)
            raise OSError(errno.EIO, "Input/output error")
        real(path)

    monkeypatch.setattr(files, "fsync_directory", fails)
    with pytest.raises(LogDirFailed) as raised:
        manager.swap(TOPIC, 0, now_ms=0)
    assert raised.value.log_dir == broker.dirs[failing] == has_failed[0]
    assert (broker.names(0), broker.names(1)) == (["t-0"], ["t-0-future"])


def test_a_disk_that_is_slow_to_take_in_a_moved_log_holds_up_nobody_else(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop, which says what is cordoned, least of all."""
    manager, log = broker.with_log(batch(5))
    manager.create_future(TOPIC, 0, broker.dirs[1]).append_as_follower(log.read(0, 1 << 20))
    works, may_end = threading.Event(), threading.Event()
    sync = segment_module.Segment.sync

    def slow_sync(segment: segment_module.Segment) -> None:
        works.set()
        may_end.wait(10)
        sync(segment)

    monkeypatch.setattr(segment_module.Segment, "sync", slow_sync)
    mover = threading.Thread(target=manager.swap, args=(TOPIC, 0, 0))
    mover.start()
    assert works.wait(10)
    others = [
        threading.Thread(target=manager.cordon, args=(frozenset({broker.dirs[1]}),)),
        threading.Thread(target=manager.get_or_create, args=("u", OTHER, 0, broker.ids[0])),
    ]
    for other in others:
        other.start()
    for other in others:
        other.join(3)
    held_up = [other for other in others if other.is_alive()]
    may_end.set()
    for thread in (mover, *others):
        thread.join()
    assert not held_up
    assert (manager.cordoned_dirs, manager.get(TOPIC, 0).log_dir) == (frozenset({broker.dirs[1]}), broker.dirs[1])


@pytest.mark.parametrize("failing_dir", [0, 1])
def test_a_directory_that_fails_while_the_logs_are_started_is_not_used_for_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_dir: int
) -> None:
    broker = Broker(tmp_path / "three", 3)
    broker.moving()
    (broker.dirs[failing_dir] / STRAY).mkdir()
    monkeypatch.setattr(unserved_module, "log_bytes_in", failing(errno.EIO))
    manager = broker.start(replica(broker, 1 - failing_dir))
    assert [*manager.offline_dirs] == [broker.dirs[failing_dir]]
    assert manager.futures() == []
    if failing_dir:
        assert manager.create_future(TOPIC, 0, broker.dirs[2]).log_dir == broker.dirs[2], "the move can be asked for again"
    else:
        assert manager.get(TOPIC, 0) is None
        assert (broker.names(0), broker.names(1)) == (["s-0-stray", "t-0"], ["t-0-future"])
    manager.abandon()
