"""The log manager places new replicas, and makes them whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from functools import partial
from pathlib import Path

import pytest

from kraftlab.broker.log import checkpoints, files
from kraftlab.broker.log import creating as creating_module
from kraftlab.broker.log import log_manager as log_manager_module
from kraftlab.broker.log.creating import NewReplica
from kraftlab.broker.log.dir_names import CREATING_PREFIX
from kraftlab.broker.log.errors import LogDirFailed, NoSpace, ReplicaOffline, TooManyOpenFiles
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.log_dir import LogDir
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.records.errors import LogError

from .conftest import OTHER, TOPIC, Broker, SimulatedCrash, batch, crash_at, crashed, failing, replica

TOGETHER = 2 * files.SYNCED_TOGETHER_MIN


def test_a_replica_is_placed_where_it_was_destined_then_assigned_then_where_most_room_is(broker: Broker) -> None:
    manager = broker.start()
    manager.destinations.remember("t", 0, broker.ids[1])
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0]).log_dir == broker.dirs[1]
    assert manager.get_or_create("t", TOPIC, 1, broker.ids[1]).log_dir == broker.dirs[1]
    assert manager.get_or_create("t", TOPIC, 2).log_dir == broker.dirs[0]
    assert manager.get_or_create("t", TOPIC, 3, UNASSIGNED).log_dir == broker.dirs[0]
    assert manager.get_or_create("t", TOPIC, 1) is manager.get(TOPIC, 1)
    assert broker.names(1) == ["t-0", "t-1"]


def test_the_directory_with_more_free_bytes_is_taken_although_it_has_more_replicas(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    on_two_volumes(monkeypatch, {broker.dirs[0]: 10, broker.dirs[1]: 20})
    for number in range(2):
        manager.get_or_create("t", TOPIC, number, broker.ids[1])
    monkeypatch.setattr("kraftlab.broker.log.placement.ASKED_EVERY_S", 0)
    assert [manager.get_or_create("t", TOPIC, number).log_dir for number in (2, 3)] == [broker.dirs[1]] * 2


def test_a_burst_of_new_replicas_is_spread_although_the_file_systems_are_asked_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    segment = manager.config.segment_bytes
    asked = on_two_volumes(monkeypatch, {broker.dirs[0]: 4 * segment, broker.dirs[1]: 10 * segment})
    wanted = [NewReplica("t", TOPIC, number, UNASSIGNED, True, manager.config) for number in range(16)]
    assert manager.create_together(wanted) == []
    placed = [manager.get(TOPIC, number).log_dir for number in range(16)]
    assert placed[:6] == [broker.dirs[1]] * 6, "until both have as many free bytes"
    assert [placed.count(path) for path in broker.dirs] == [5, 11]
    assert sorted(asked) == broker.dirs


def on_two_volumes(monkeypatch: pytest.MonkeyPatch, room: dict[Path, int]) -> list[Path]:
    """Let the directories lie on volumes with that many free bytes; return the list of those that are asked for them."""
    asked: list[Path] = []

    def free_bytes(path: Path) -> int:
        asked.append(path)
        return room[path]

    monkeypatch.setattr(LogDir, "volume", property(lambda self: list(room).index(self.path)))
    monkeypatch.setattr("kraftlab.broker.log.log_dir.free_bytes", free_bytes)
    return asked


def test_replicas_made_together_are_spread_and_one_that_cannot_be_made_holds_up_no_other(broker: Broker) -> None:
    manager, known = broker.with_log()
    (broker.dirs[1] / "t-3").mkdir()
    wanted = [NewReplica("t", TOPIC, number, broker.ids[1], False, manager.config) for number in range(4)]
    wanted += [NewReplica("t", TOPIC, number, UNASSIGNED, True, manager.config) for number in (4, 5, 6)]
    [refused] = manager.create_together(wanted)
    assert "t-3 exists already" in str(refused)
    assert manager.get(TOPIC, 0) is known
    assert manager.get(TOPIC, 3) is None
    logs = [manager.get(TOPIC, number) for number in (1, 2, 4, 5, 6)]
    assert [log is not None and broker.dirs.index(log.log_dir) for log in logs] == [1, 1, 0, 0, 0]
    assert not [path for path in broker.dirs[1].iterdir() if path.name.startswith(CREATING_PREFIX)]


def test_a_crash_while_a_replica_is_created_leaves_nothing_or_all(tmp_path: Path) -> None:
    for step in range(1, 20):
        broker = Broker(tmp_path / str(step))
        manager = broker.start()
        is_over = crashed(step, partial(manager.get_or_create, "t" * 249, TOPIC, 0, broker.ids[0]))
        manager = broker.start(replica(broker, 0, topic="t" * 249))
        assert manager.get_or_create("t" * 249, TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1)[:2] == (0, 1)
        assert broker.names(0) == ["t" * 249 + "-0"]
        manager.abandon()
        if is_over:
            return
    raise AssertionError("creating has no end")


def made_together(broker: Broker, manager: LogManager) -> list[LogError]:
    """Half in each directory."""
    wanted = [NewReplica("t", TOPIC, number, broker.ids[number % 2], True, manager.config) for number in range(TOGETHER)]
    return manager.create_together(wanted)


@pytest.mark.parametrize("loses_unsynced_bytes", [True, False])
def test_a_crash_while_replicas_are_created_together_leaves_each_of_them_whole_or_not_at_all(
    tmp_path: Path, loses_unsynced_bytes: bool
) -> None:
    for step in range(1, 10 * TOGETHER):
        broker = Broker(tmp_path / str(step))
        manager = broker.start()
        synced: set[Path] = set()
        with pytest.MonkeyPatch.context() as patch:
            real_sync = creating_module.sync_new_directories

            def sync(directories: list[Path], real_sync=real_sync, synced=synced) -> None:
                files.fsync_directory(directories[0].parent)  # counted, so that a crash comes before and after it
                real_sync(directories)
                synced.update(directories)

            patch.setattr(creating_module, "sync_new_directories", sync)
            seen = crash_at(patch, step)
            patch.setattr(log_manager_module, "fsync_directory", files.fsync_directory)
            with contextlib.suppress(SimulatedCrash):
                made_together(broker, manager)
        for path in [path for directory in broker.dirs for path in directory.iterdir() if path.is_dir()]:
            if loses_unsynced_bytes and path.name.startswith(CREATING_PREFIX) and path not in synced:
                (path / "partition.metadata").write_bytes(b"")
        assigned = [AssignedReplica("t", TOPIC, number, broker.ids[number % 2]) for number in range(TOGETHER)]
        manager = broker.start(*assigned)
        assert not made_together(broker, manager)
        for number in range(TOGETHER):
            assert manager.get_or_create("t", TOPIC, number).append_as_leader(batch(), 1)[:2] == (0, 1)
        assert {name for index in (0, 1) for name in broker.names(index)} == {f"t-{number}" for number in range(TOGETHER)}
        manager.abandon()
        if seen[0] < step:
            assert step > TOGETHER
            return
    raise AssertionError("creating has no end")


def test_replicas_that_cannot_be_made_durable_together_are_not_there(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()

    monkeypatch.setattr(files, "syncfs", lambda: failing(errno.EIO))
    refused = made_together(broker, manager)
    assert [type(error) for error in refused] == [LogDirFailed, LogDirFailed]
    assert broker.names(0) == broker.names(1) == []
    assert manager.currents() == []


def test_without_a_sync_of_the_file_system_each_new_directory_is_fsynced(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    synced: list[Path] = []
    real = files.fsync_directory
    monkeypatch.setattr(files, "syncfs", lambda: None)
    monkeypatch.setattr(files, "fsync_directory", lambda path: (synced.append(path), real(path)))
    assert not made_together(broker, manager)
    assert len(synced) == TOGETHER
    assert len(manager.currents()) == TOGETHER


def test_a_full_disk_refuses_a_new_replica_and_leaves_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(NoSpace):
            manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    assert broker.names(0) == []
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0]).log_end_offset == 0


@pytest.mark.parametrize("home", ["the copy's", "another", "none"])
def test_a_replica_with_only_an_unfinished_copy_is_not_created_again_while_a_directory_is_offline(
    tmp_path: Path, home: str
) -> None:
    """Its log is in that directory: a copy of it had begun."""
    broker = Broker(tmp_path, 3)
    manager, current = broker.with_log(batch(9))
    manager.create_future(TOPIC, 0, broker.dirs[1]).append_as_follower(current.read(0, 1000))
    manager.abandon()
    (broker.dirs[0] / "meta.properties").write_text("garbage")
    directory = {"the copy's": broker.ids[1], "another": broker.ids[2], "none": UNASSIGNED}[home]
    manager = broker.start(replica(broker, directory))
    with pytest.raises(ReplicaOffline, match="is not created: its current directory may be on the offline log directory"):
        manager.get_or_create("t", TOPIC, 0, directory)
    assert [broker.names(index) for index in (1, 2)] == [["t-0-future"], []]
    # Taken away and given again, it is another replica, and checkpoints beside the copy are its own.
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[1], is_new=True)
    log.append_as_leader(batch(3), 1)
    log.flush()
    manager.write_checkpoints()
    assert checkpoints.read_offsets(broker.dirs[1] / checkpoints.RECOVERY_POINTS) == {("t", 0): 3}
    manager.abandon()


def test_a_replica_that_others_count_on_is_not_created_again_while_a_disk_is_missing(broker: Broker) -> None:
    """A move that was dropped after the controller had been told: the metadata names a directory that has nothing."""
    manager = broker.start(replica(broker, 0))
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1)
    manager.abandon()
    broker.dirs[0].rename(broker.dirs[0].with_name("away"))
    broker.dirs[0].touch()
    manager = broker.start(AssignedReplica("t", TOPIC, 0, broker.ids[1], is_counted_on=True))
    with pytest.raises(ReplicaOffline):
        manager.get_or_create("t", TOPIC, 0, broker.ids[1], is_counted_on=True)
    assert manager.get_or_create("other", OTHER, 0, broker.ids[1]).log_dir == broker.dirs[1]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC], ids=["no-files", "no-space"])
@pytest.mark.parametrize("is_move", [False, True], ids=["new", "move"])
def test_a_log_that_cannot_be_opened_in_its_new_directory_leaves_no_directory_and_can_be_made_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, number: int, is_move: bool
) -> None:
    """A directory that was left under the plain name would be taken for a disk's fault the next time."""
    manager = broker.start()
    if is_move:
        manager.get_or_create("t", TOPIC, 0, broker.ids[1])

    def make() -> PartitionLog:
        if is_move:
            return manager.create_future(TOPIC, 0, broker.dirs[0])
        return manager.get_or_create("t", TOPIC, 0, broker.ids[0])

    with monkeypatch.context() as patch:
        patch.setattr("kraftlab.broker.log.recovery.Segment.create", failing(number))
        with pytest.raises((TooManyOpenFiles, NoSpace)):
            make()
    assert broker.names(0) == []
    assert make().log_end_offset == 0
    assert not manager.offline_dirs


def test_a_directory_that_fails_leaves_the_names_of_new_replicas_in_the_others_durable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    synced: list[Path] = []

    def fails_first(path: Path) -> None:
        synced.append(path)
        if len(synced) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log_manager_module, "fsync_directory", fails_first)
    wanted = [NewReplica("t", TOPIC, number, broker.ids[number], False, LogConfig()) for number in range(2)]
    refused = manager.create_together(wanted)
    assert [type(error) for error in refused] == [LogDirFailed]
    assert {*synced} == {*broker.dirs}
