"""The log manager: placing, moving, deleting, starting after a crash at any point, and disks that fail."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftlab.broker.log import checkpoints, files, leader_epochs
from kraftlab.broker.log import log_manager as log_manager_module
from kraftlab.broker.log import partition_log as partition_log_module
from kraftlab.broker.log import segment as segment_module
from kraftlab.broker.log.dir_names import CREATING_PREFIX
from kraftlab.broker.log.errors import (
    LogClosed,
    LogDirFailed,
    LogDirInUse,
    LogError,
    NoSpace,
    ReplicaConflict,
    ReplicaOffline,
    StartupRefused,
    TooManyOpenFiles,
)
from kraftlab.broker.log.log_manager import LogManager, NewReplica
from kraftlab.broker.log.partition_log import LogConfig, PartitionLog
from kraftlab.broker.log.startup import Action, AssignedReplica, Verb
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.metadata.uuids import UNASSIGNED, random_uuid

TOPIC, OTHER = random_uuid(), random_uuid()


class Broker:
    """A broker's log directories, formatted, and managers opened on them one after another."""

    def __init__(self, root: Path, count: int = 2) -> None:
        self.dirs = [root / f"d{i}" for i in range(count)]
        self.ids = [random_uuid() for _ in self.dirs]
        for path, directory_id in zip(self.dirs, self.ids, strict=True):
            meta_properties.write(path, MetaProperties("cluster", 1, directory_id))
        self.manager: LogManager | None = None

    def open(self) -> LogManager:
        """A new manager; the one before, if it was not closed, loses its locks as in a crash."""
        if self.manager is not None:
            self.manager.abandon()
        self.manager = LogManager.open(self.dirs, node_id=1, cluster_id="cluster", config=LogConfig(segment_bytes=2000))
        return self.manager

    def start(self, *replicas: AssignedReplica) -> LogManager:
        manager = self.open()
        manager.start(replicas, now_ms=0)
        return manager

    def names(self, index: int) -> list[str]:
        """Replicas' directories in a log directory, the unique part left out."""
        found = sorted(path.name for path in self.dirs[index].iterdir() if path.is_dir())
        return [f"{name.split('.')[0]}{name[name.rindex('-') :]}" if name.count(".") else name for name in found]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    if broker.manager is not None:
        broker.manager.abandon()


def replica(broker: Broker, directory: int | bytes, topic: str = "t", topic_id: bytes = TOPIC) -> AssignedReplica:
    return AssignedReplica(topic, topic_id, 0, directory if isinstance(directory, bytes) else broker.ids[directory])


def copy_all(source: PartitionLog, target: PartitionLog) -> None:
    while target.log_end_offset < source.log_end_offset:
        target.append_as_follower(source.read(target.log_end_offset, 1000))


def test_a_replica_is_placed_where_it_was_destined_then_assigned_then_where_fewest_are(broker: Broker) -> None:
    manager = broker.start()
    manager.remember_destination("t", 0, broker.dirs[1])
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0]).log_dir == broker.dirs[1]
    assert manager.get_or_create("t", TOPIC, 1, broker.ids[1]).log_dir == broker.dirs[1]
    assert manager.get_or_create("t", TOPIC, 2).log_dir == broker.dirs[0]
    assert manager.get_or_create("t", TOPIC, 3, UNASSIGNED).log_dir == broker.dirs[0]
    assert manager.get_or_create("t", TOPIC, 1) is manager.get(TOPIC, 1)
    assert broker.names(1) == ["t-0", "t-1"]


def test_destinations_of_replicas_that_never_come_are_forgotten_oldest_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlab.broker.log.log_manager.REMEMBERED_DESTINATIONS_MAX", 2)
    manager = broker.start()
    for number in (0, 1, 0, 2):
        manager.remember_destination("t", number, broker.dirs[1])
    placed = [manager.get_or_create("t", TOPIC, number, broker.ids[0]).log_dir for number in (0, 1, 2)]
    assert placed == [broker.dirs[1], broker.dirs[0], broker.dirs[1]]


def test_among_directories_with_as_many_replicas_the_one_with_more_room_is_taken(broker: Broker, monkeypatch) -> None:
    manager = broker.start()
    room = {broker.dirs[0]: 10, broker.dirs[1]: 20}
    monkeypatch.setattr("kraftlab.broker.log.log_dir.free_bytes", room.__getitem__)
    assert manager.get_or_create("t", TOPIC, 0).log_dir == broker.dirs[1]


def test_replicas_made_together_are_spread_and_one_that_cannot_be_made_holds_up_no_other(broker: Broker) -> None:
    manager = broker.start()
    known = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
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


def test_everything_is_found_again_after_a_clean_stop_without_a_scan(broker: Broker, batch) -> None:
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
    assert log is not None
    assert (log.digest(), log.high_watermark, log.log_start_offset, log.recovery.scanned_bytes) == (digest, 50, 3, 0)
    assert not (broker.dirs[1] / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("what", ["half a batch", "a whole batch", "a segment", "a directory"])
def test_who_has_lost_records_since_a_clean_stop_does_not_claim_one(broker: Broker, batch, what: str) -> None:
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


def test_after_a_crash_logs_are_scanned_and_checkpoints_hold(broker: Broker, batch) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    for _ in range(30):
        log.append_as_leader(batch(2, value_bytes=100), 1)
    log.high_watermark = 40
    manager.write_checkpoints()
    log.append_as_leader(batch(2), 1)
    assert 0 < log.recovery_point < log.log_end_offset
    manager = broker.start(replica(broker, 0))
    assert manager.previous_broker_epoch == -1
    again = manager.get(TOPIC, 0)
    assert again is not None
    assert (again.log_end_offset, again.high_watermark) == (62, 40)
    assert 0 < again.recovery.scanned_bytes < again.size_bytes


def test_lost_checkpoints_cost_a_scan_only(broker: Broker, batch) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(9), 1)
    log.high_watermark = 9
    manager.write_checkpoints()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (broker.dirs[0] / name).write_text("garbage")
    again = broker.start(replica(broker, 0)).get(TOPIC, 0)
    assert again is not None
    assert (again.log_end_offset, again.high_watermark, again.recovery.scanned_bytes) == (9, 0, again.size_bytes)


def test_a_move_copies_swaps_and_the_old_files_go_after_the_delay(broker: Broker, batch) -> None:
    manager = broker.start()
    old = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
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
    assert new.append_as_leader(batch(1), 20) == (41, 42)
    assert (broker.names(0), broker.names(1)) == (["t-0-delete"], ["t-0"])
    assert manager.next_expiry_ms() == 61_000
    assert manager.remove_expired(60_999) == 0
    assert manager.remove_expired(61_000) == 1
    assert broker.names(0) == []
    assert (broker.dirs[0] / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"


def test_a_cancelled_move_leaves_the_current_log(broker: Broker, batch) -> None:
    manager = broker.start()
    old = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    manager.create_future(TOPIC, 0, broker.dirs[1])
    for bad in (broker.dirs[0], broker.dirs[1], Path("/nowhere")):
        with pytest.raises(ReplicaConflict):
            manager.create_future(TOPIC, 0, bad)
    assert manager.drop_future(TOPIC, 0, now_ms=0)
    assert not manager.drop_future(TOPIC, 0, now_ms=0)
    assert manager.get(TOPIC, 0) is old
    assert broker.names(1) == ["t-0-delete"]


def test_a_deleted_replica_can_come_again_at_once_without_the_old_ones_offsets(broker: Broker, batch) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(50), 1)
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
    assert restarted is not None
    assert (restarted.log_start_offset, restarted.log_end_offset) == (0, 3)
    assert manager.remove_expired(10**6) == 2
    assert (broker.names(0), broker.names(1)) == (["t-0"], [])


class SimulatedCrash(BaseException):
    """Not an Exception: nothing in the product handles it."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Crash before the `step`-th rename, fsync of a directory or durable write from now on; returns the count of steps seen."""
    seen = [0]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            seen[0] += 1
            if seen[0] == step:
                raise SimulatedCrash(step)
            return real(*arguments)

        return call

    monkeypatch.setattr(files.os, "rename", counted(os.rename))
    monkeypatch.setattr(files.os, "replace", counted(os.replace))
    monkeypatch.setattr(files, "fsync_directory", counted(files.fsync_directory))
    monkeypatch.setattr(partition_log_module, "fsync_directory", counted(partition_log_module.fsync_directory))
    return seen


@pytest.mark.parametrize("target_is_in_metadata", [True, False])
def test_a_crash_at_any_step_of_a_swap_is_healed_by_the_next_start(tmp_path: Path, batch, target_is_in_metadata: bool) -> None:
    for step in range(1, 100):
        broker = Broker(tmp_path / str(step))
        manager = broker.start()
        old = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
        for epoch in range(20):
            old.append_as_leader(batch(2, value_bytes=100), epoch)
        copy_all(old, manager.create_future(TOPIC, 0, broker.dirs[1]))
        digest = old.digest()
        with pytest.MonkeyPatch.context() as patch:
            seen = crash_at(patch, step)
            with contextlib.suppress(SimulatedCrash):
                manager.swap(TOPIC, 0, now_ms=0)
        manager = broker.start(replica(broker, 1 if target_is_in_metadata else 0))
        log = manager.get(TOPIC, 0)
        assert log is not None, step
        assert log.digest() == digest, step
        if target_is_in_metadata:
            assert (log.log_dir, manager.futures()) == (broker.dirs[1], []), step
        manager.remove_expired(10**6)
        assert broker.names(0 if log.log_dir == broker.dirs[1] else 1) in ([], ["t-0-future"]), step
        manager.abandon()
        if seen[0] < step:
            assert step > 10
            return
    raise AssertionError("the swap has no end")


def test_a_crash_while_a_replica_is_created_leaves_nothing_or_all(tmp_path: Path, batch) -> None:
    for step in range(1, 20):
        broker = Broker(tmp_path / str(step))
        manager = broker.start()
        with pytest.MonkeyPatch.context() as patch:
            seen = crash_at(patch, step)
            with contextlib.suppress(SimulatedCrash):
                manager.get_or_create("t" * 249, TOPIC, 0, broker.ids[0])
        manager = broker.start(replica(broker, 0, topic="t" * 249))
        assert manager.get_or_create("t" * 249, TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1) == (0, 1)
        assert broker.names(0) == ["t" * 249 + "-0"]
        manager.abandon()
        if seen[0] < step:
            return
    raise AssertionError("creating has no end")


TOGETHER = 2 * files.SYNCED_TOGETHER_MIN


def made_together(broker: Broker, manager: LogManager) -> list[LogError]:
    """Half in each directory."""
    wanted = [NewReplica("t", TOPIC, number, broker.ids[number % 2], True, manager.config) for number in range(TOGETHER)]
    return manager.create_together(wanted)


@pytest.mark.parametrize("loses_unsynced_bytes", [True, False])
def test_a_crash_while_replicas_are_created_together_leaves_each_of_them_whole_or_not_at_all(
    tmp_path: Path, batch, loses_unsynced_bytes: bool
) -> None:
    for step in range(1, 10 * TOGETHER):
        broker = Broker(tmp_path / str(step))
        manager = broker.start()
        synced: set[Path] = set()
        with pytest.MonkeyPatch.context() as patch:
            real_sync = log_manager_module.sync_new_directories

            def sync(directories: list[Path], real_sync=real_sync, synced=synced) -> None:
                files.fsync_directory(directories[0].parent)  # counted, so that a crash comes before and after it
                real_sync(directories)
                synced.update(directories)

            patch.setattr(log_manager_module, "sync_new_directories", sync)
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
            assert manager.get_or_create("t", TOPIC, number).append_as_leader(batch(), 1) == (0, 1)
        assert {name for index in (0, 1) for name in broker.names(index)} == {f"t-{number}" for number in range(TOGETHER)}
        manager.abandon()
        if seen[0] < step:
            assert step > TOGETHER
            return
    raise AssertionError("creating has no end")


def test_replicas_that_cannot_be_made_durable_together_are_not_there(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()

    def failing_sync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "_syncfs", lambda: failing_sync)
    refused = made_together(broker, manager)
    assert [type(error) for error in refused] == [LogDirFailed, LogDirFailed]
    assert broker.names(0) == broker.names(1) == []
    assert manager.currents() == []


def test_without_a_sync_of_the_file_system_each_new_directory_is_fsynced(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    synced: list[Path] = []
    real = files.fsync_directory
    monkeypatch.setattr(files, "_syncfs", lambda: None)
    monkeypatch.setattr(files, "fsync_directory", lambda path: (synced.append(path), real(path)))
    assert not made_together(broker, manager)
    assert len(synced) == TOGETHER
    assert len(manager.currents()) == TOGETHER


def test_a_new_leader_without_records_writes_nothing_into_its_directory(broker: Broker, batch) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.start_epoch(3)
    manager.write_checkpoints()
    log.flush()
    assert not (log.directory / leader_epochs.FILE_NAME).exists()
    log.append_as_leader(batch(), 3)
    log.flush()
    found = leader_epochs.read(log.directory)
    assert found is not None
    assert found.entries == ((3, 0),)


def test_a_topic_of_249_characters_moves_and_survives_restarts(broker: Broker, batch) -> None:
    topic = "long." + "t" * 244
    manager = broker.start()
    old = manager.get_or_create(topic, TOPIC, 12, broker.ids[0])
    old.append_as_leader(batch(5), 1)
    copy_all(old, manager.create_future(TOPIC, 12, broker.dirs[1]))
    assigned = AssignedReplica(topic, TOPIC, 12, broker.ids[0])
    manager = broker.start(assigned)
    future = manager.future(TOPIC, 12)
    assert future is not None
    assert (future.topic, future.log_end_offset) == (topic, 5)
    new = manager.swap(TOPIC, 12, now_ms=0)
    assert new.directory == broker.dirs[1] / f"{topic}-12"
    manager.close()
    manager = broker.start()
    manager.remove_expired(10**6)
    [stray] = [stray for described in manager.describe() for stray in described.strays]
    assert (stray.topic, stray.partition, stray.size_bytes) == (topic, 12, new.size_bytes)


def test_an_unfinished_move_goes_on_after_a_restart(broker: Broker, batch) -> None:
    manager = broker.start()
    old = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    old.append_as_leader(batch(5), 1)
    manager.create_future(TOPIC, 0, broker.dirs[1])
    manager = broker.open()
    [action] = manager.start([replica(broker, 0)], now_ms=0)
    assert action.verb is Verb.RESUME_MOVE
    current, future = manager.get(TOPIC, 0), manager.future(TOPIC, 0)
    assert current is not None
    assert future is not None
    copy_all(current, future)
    assert manager.swap(TOPIC, 0, now_ms=0) is future


def test_a_replica_the_metadata_does_not_know_is_set_aside_after_a_grace_period_unless_it_is_claimed(
    broker: Broker, batch
) -> None:
    manager = broker.start()
    for name, topic_id in (("t", TOPIC), ("u", OTHER)):
        manager.get_or_create(name, topic_id, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager = broker.start()
    assert manager.get(TOPIC, 0) is None
    assert manager.get_or_create("u", OTHER, 0).log_end_offset == 5
    assert manager.remove_expired(29_999) == 0
    assert manager.remove_expired(30_000) == 1
    assert broker.names(0) == ["t-0-stray", "u-0"]
    [described, _] = manager.describe()
    assert [(stray.topic, stray.partition) for stray in described.strays] == [("t", 0)]
    [described, _] = broker.start(replica(broker, 0, "u", OTHER)).describe()
    assert [stray.topic for stray in described.strays] == ["t"]
    assert described.strays[0].size_bytes > 0


def test_a_recreated_topic_pushes_the_old_replica_aside_at_once(broker: Broker, batch) -> None:
    broker.start().get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager = broker.start(replica(broker, 0, topic_id=OTHER))
    assert manager.get_or_create("t", OTHER, 0, broker.ids[0]).log_end_offset == 0
    assert broker.names(0) == ["t-0", "t-0-stray"]


def test_directories_that_contradict_each_other_refuse_the_start_and_change_nothing(broker: Broker, batch) -> None:
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager.close()
    shutil.copytree(broker.dirs[0] / "t-0", broker.dirs[1] / "t-0")
    twin = PartitionLog.open(broker.dirs[1] / "t-0", topic="t", partition=0, topic_id=TOPIC, directory_id=broker.ids[1])
    twin.append_as_leader(batch(9), 2)
    twin.close()
    manager = broker.open()
    with pytest.raises(StartupRefused, match="move one of the two away"):
        manager.start([replica(broker, 0)], now_ms=0)
    assert (broker.names(0), broker.names(1)) == (["t-0"], ["t-0"])


def test_a_second_process_is_refused(broker: Broker) -> None:
    broker.start()
    code = (
        "import sys; from pathlib import Path\n"
        "from kraftlab.broker.log.errors import LogDirInUse; from kraftlab.broker.log.log_manager import LogManager\n"
        "try: LogManager.open([Path(sys.argv[1])], node_id=1, cluster_id='cluster')\n"
        "except LogDirInUse as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(broker.dirs[1])], capture_output=True, text=True, timeout=20, check=True
    )
    assert f"{broker.dirs[1]} is in use by process {os.getpid()}" in done.stdout
    with pytest.raises(LogDirInUse):
        LogManager.open([broker.dirs[0]], node_id=1, cluster_id="cluster")


def test_a_start_on_a_full_disk_gives_the_locks_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch, broker.dirs[0].parent), pytest.raises(StartupRefused, match="No space left"):
        broker.open()
    broker.start()


@pytest.mark.parametrize(("node_id", "cluster_id"), [(2, "cluster"), (1, "another")])
def test_directories_of_another_node_or_cluster_refuse_the_start(broker: Broker, node_id: int, cluster_id: str) -> None:
    with pytest.raises(StartupRefused, match="belongs to node 1 of cluster cluster"):
        LogManager.open(broker.dirs, node_id=node_id, cluster_id=cluster_id)
    broker.start()


def test_an_unformatted_directory_and_a_copied_one_refuse_the_start(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(StartupRefused, match="not formatted"):
        LogManager.open([*broker.dirs, tmp_path / "new"], node_id=1, cluster_id="cluster")
    meta_properties.write(tmp_path / "copy", MetaProperties("cluster", 1, broker.ids[0]))
    with pytest.raises(StartupRefused, match=r"same directory\.id"):
        LogManager.open([*broker.dirs, tmp_path / "copy"], node_id=1, cluster_id="cluster")
    broker.start()


def test_a_directory_that_cannot_be_read_is_offline_and_the_others_go_on(broker: Broker, tmp_path: Path, batch) -> None:
    dead = tmp_path / "dead"
    dead.write_text("not a directory")
    broker.dirs.append(dead)
    manager = broker.start()
    assert list(manager.offline_dirs) == [dead]
    assert list(manager.directory_ids().values()) == broker.ids
    with pytest.raises(ReplicaOffline, match="may be on the log directory that is offline"):
        manager.get_or_create("t", TOPIC, 0, random_uuid())
    assert manager.get_or_create("t", TOPIC, 0, random_uuid(), is_new=True).log_end_offset == 0
    assert manager.get_or_create("t", TOPIC, 1, UNASSIGNED).append_as_leader(batch(), 1) == (0, 1)
    assert manager.get_or_create("t", TOPIC, 2, broker.ids[1]).log_dir == broker.dirs[1]
    manager.create_future(TOPIC, 2, broker.dirs[0])
    assert [described.error is None for described in manager.describe()] == [True, True, False]
    with pytest.raises(StartupRefused, match="none of the log directories works"):
        LogManager.open([dead], node_id=1, cluster_id="cluster")


def test_a_directory_that_fails_takes_its_replicas_and_moves_out(broker: Broker, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    here, there = (manager.get_or_create("t", TOPIC, i, broker.ids[i]) for i in (0, 1))
    there.append_as_leader(batch(), 1)
    future = manager.create_future(TOPIC, 0, broker.dirs[1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(LogDirFailed) as raised:
            there.flush()
    assert raised.value.log_dir == broker.dirs[1]
    gone = manager.mark_offline(raised.value.log_dir, raised.value)
    assert (gone.currents, gone.futures) == ((there,), (future,))
    assert manager.mark_offline(raised.value.log_dir, raised.value).currents == ()
    assert (manager.get(TOPIC, 1), manager.future(TOPIC, 0), manager.get(TOPIC, 0)) == (None, None, here)
    with pytest.raises(LogDirFailed):
        future.append_as_follower(batch())
    assert here.append_as_leader(batch(), 1) == (0, 1)
    with pytest.raises(ReplicaOffline):
        manager.get_or_create("t", TOPIC, 1, broker.ids[1])
    assert manager.directory_id_of(broker.dirs[1]) == broker.ids[1]
    manager.write_checkpoints()
    manager.close(broker_epoch=5)
    assert (broker.dirs[0] / ".kafka_cleanshutdown").exists()
    assert not (broker.dirs[1] / ".kafka_cleanshutdown").exists()


def test_a_target_that_fails_during_the_swap_leaves_the_old_log_in_charge(broker: Broker, batch, monkeypatch) -> None:
    manager = broker.start()
    old = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    old.append_as_leader(batch(5), 1)
    copy_all(old, manager.create_future(TOPIC, 0, broker.dirs[1]))
    real = os.rename

    def broken(source: Path, target: Path) -> None:
        if Path(target).parent == broker.dirs[1]:
            raise OSError(errno.EROFS, "Read-only file system")
        real(source, target)

    monkeypatch.setattr(files.os, "rename", broken)
    with pytest.raises(LogDirFailed) as raised:
        manager.swap(TOPIC, 0, now_ms=0)
    manager.mark_offline(raised.value.log_dir, raised.value)
    assert raised.value.log_dir == broker.dirs[1]
    assert manager.get(TOPIC, 0) is old
    assert old.append_as_leader(batch(1), 1) == (5, 6)
    assert broker.names(0) == ["t-0"]


def test_a_full_disk_refuses_a_new_replica_and_leaves_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(NoSpace):
            manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    assert broker.names(0) == []
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0]).log_end_offset == 0


def test_description_has_sizes_and_lags(broker: Broker, batch) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(5), 1)
    manager.create_future(TOPIC, 0, broker.dirs[1])
    first, second = manager.describe()
    assert (first.path, first.directory_id, first.error) == (broker.dirs[0], broker.ids[0], None)
    assert 0 < first.usable_bytes <= first.total_bytes
    [current], [future] = first.replicas, second.replicas
    assert (current.topic, current.partition, current.size_bytes, current.offset_lag, current.is_future) == (
        "t",
        0,
        log.size_bytes,
        0,
        False,
    )
    assert (future.size_bytes, future.offset_lag, future.is_future) == (0, 5, True)


def test_foreign_directories_are_left_alone_and_half_created_ones_removed(broker: Broker) -> None:
    for name in ("lost+found", "__cluster_metadata-0", ".creating-abc"):
        (broker.dirs[0] / name).mkdir()
    broker.start()
    assert broker.names(0) == ["__cluster_metadata-0", "lost+found"]


@contextlib.contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Iterator[None]:
    """Nothing more can be written below `directory`, as the kernel says it: files can be made, bytes not."""
    real_fsync, real_pwrite = os.fsync, os.pwrite

    def is_inside(descriptor: int) -> bool:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return directory in path.parents and not path.is_dir()

    def fsync(descriptor: int) -> None:
        if is_inside(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        if is_inside(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_pwrite(descriptor, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "pwrite", pwrite)
        yield


def test_a_full_disk_does_not_take_its_directory_offline_when_checkpoints_are_due(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
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
    assert log.append_as_leader(batch(5), 3) == (50, 55)
    manager = broker.open()
    manager.start([AssignedReplica("t", TOPIC, 0, broker.ids[0])], now_ms=0)
    again = manager.get(TOPIC, 0)
    assert again is not None
    assert again.log_end_offset == 55
    assert again.end_offset_for(1) == (1, 50)
    assert again.high_watermark == 0, "its checkpoint was given up, so it waits for the leader"


def test_a_cut_whose_checkpoint_cannot_be_written_cuts_nothing_and_can_be_tried_again(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(5), 1)
    log.append_as_leader(batch(5), 1)
    log.flush()
    manager.write_checkpoints()

    def no_files(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kraftlab.broker.log.checkpoints.write_offsets", no_files)
        with pytest.raises(TooManyOpenFiles):
            log.truncate_to(5)
        assert (log.log_end_offset, log.recovery_point) == (10, 10)
        manager.write_checkpoints()
    assert not manager.offline_dirs
    log.truncate_to(5)
    assert (broker.dirs[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"


@pytest.mark.parametrize("home", ["the copy's", "another", "none"])
def test_a_replica_of_which_only_an_unfinished_copy_is_there_does_not_begin_anew_while_a_directory_is_offline(
    tmp_path: Path, batch, home: str
) -> None:
    """Its log is in that directory: a copy of it had begun."""
    broker = Broker(tmp_path, 3)
    manager = broker.start()
    current = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    current.append_as_leader(batch(9), 1)
    manager.create_future(TOPIC, 0, broker.dirs[1]).append_as_follower(current.read(0, 1000))
    manager.abandon()
    (broker.dirs[0] / "meta.properties").write_text("garbage")
    directory = {"the copy's": broker.ids[1], "another": broker.ids[2], "none": UNASSIGNED}[home]
    manager = broker.start(replica(broker, directory))
    with pytest.raises(ReplicaOffline, match="is not created: its current directory may be on the log directory that is offline"):
        manager.get_or_create("t", TOPIC, 0, directory)
    assert [broker.names(index) for index in (1, 2)] == [["t-0-future"], []]
    # Taken away and given again, it is another replica, and checkpoints beside the copy are its own.
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[1], is_new=True)
    log.append_as_leader(batch(3), 1)
    log.flush()
    manager.write_checkpoints()
    assert checkpoints.read_offsets(broker.dirs[1] / checkpoints.RECOVERY_POINTS) == {("t", 0): 3}
    manager.abandon()


def test_a_move_does_not_end_where_somebody_has_made_a_directory_and_ends_once_that_is_gone(broker: Broker, batch) -> None:
    manager = broker.start()
    current = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    current.append_as_leader(batch(5), 1)
    copy_all(current, manager.create_future(TOPIC, 0, broker.dirs[1]))
    (broker.dirs[1] / "t-0").mkdir()
    with pytest.raises(ReplicaConflict, match="exists already"):
        manager.swap(TOPIC, 0, now_ms=0)
    assert (broker.names(0), broker.names(1), manager.get(TOPIC, 0)) == (["t-0"], ["t-0", "t-0-future"], current)
    current.append_as_leader(batch(1), 1)
    (broker.dirs[1] / "t-0").rmdir()
    copy_all(current, manager.future(TOPIC, 0))
    assert manager.swap(TOPIC, 0, now_ms=0).log_dir == broker.dirs[1]


def test_files_to_delete_that_somebody_else_removes_meanwhile_are_no_fault_of_the_disk(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(5), 1)
    manager.delete(TOPIC, 0, now_ms=0)
    unlink = os.unlink

    def is_quicker(name: str, *, dir_fd: int | None = None) -> None:
        unlink(name, dir_fd=dir_fd)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", is_quicker)
        assert manager.remove_expired(10**6) == 1
    assert (broker.names(0), manager.next_expiry_ms()) == ([], None)


def test_a_file_that_goes_while_what_was_set_aside_is_looked_at_is_no_fault_of_the_disk(broker: Broker) -> None:
    broker.start()
    stray = broker.dirs[0] / "s-0.00000000000000000000000000000000-stray"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"12345")
    (stray / "00000000000000000009.log").symlink_to("gone")
    manager = broker.start()
    assert (manager.offline_dirs, [found.size_bytes for found in manager.describe()[0].strays]) == ({}, [5])


def test_offsets_of_a_replica_that_is_gone_are_not_a_new_ones_though_no_checkpoint_was_written_at_the_start(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    log = manager.get_or_create("t", OTHER, 0, broker.ids[0])
    log.append_as_leader(batch(9), 1)
    log.high_watermark = 9
    manager.close(broker_epoch=5)
    shutil.rmtree(log.directory)

    def no_files(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kraftlab.broker.log.checkpoints.write_offsets", no_files)
        manager = broker.start(replica(broker, 0))
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(9), 1)
    again = broker.start(replica(broker, 0)).get(TOPIC, 0)
    assert again is not None
    assert (again.log_end_offset, again.high_watermark, again.recovery.scanned_bytes) == (9, 0, again.size_bytes)


@pytest.mark.parametrize("crash", [False, True], ids=["running", "restarted"])
def test_a_move_ends_where_a_replica_of_a_deleted_topic_of_that_name_still_lies(broker: Broker, batch, crash: bool) -> None:
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
    assert moved is not None
    assert (moved.log_dir, moved.log_end_offset) == (broker.dirs[1], 5)
    assert [name.rsplit("-", 1)[1] for name in broker.names(1)] == ["0", "stray"]


def test_a_move_that_a_start_ends_brings_the_log_start_and_the_high_watermark_along(broker: Broker, batch) -> None:
    manager = broker.start(replica(broker, 0))
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    for _ in range(6):
        log.append_as_leader(batch(), 1)
    future = manager.create_future(TOPIC, 0, broker.dirs[1])
    copy_all(log, future)
    log.high_watermark = 5
    log.advance_log_start(4)
    manager.write_checkpoints()
    promoted = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert promoted is not None
    assert promoted.log_dir == broker.dirs[1]
    assert (promoted.log_start_offset, promoted.high_watermark, promoted.log_end_offset) == (4, 5, 6)
    found_again = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert (found_again.log_start_offset, found_again.high_watermark) == (4, 5)


def test_a_move_that_a_start_cannot_end_for_want_of_space_goes_on(broker: Broker, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the copy is to take over has to be durable first; the replica stays where it is until that is so."""
    manager = broker.start(replica(broker, 0))
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(), 1)
    copy_all(log, manager.create_future(TOPIC, 0, broker.dirs[1]))
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "flush", lambda self: (_ for _ in ()).throw(NoSpace(self.log_dir, 0)))
        manager = broker.start(replica(broker, 1))
    served, future = manager.get(TOPIC, 0), manager.future(TOPIC, 0)
    assert served is not None and served.log_dir == broker.dirs[0]
    assert future is not None and future.log_dir == broker.dirs[1]
    assert manager.swap(TOPIC, 0, now_ms=0).log_dir == broker.dirs[1]


def test_a_target_that_fails_while_a_start_ends_a_move_leaves_the_old_log_in_charge(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start(replica(broker, 0))
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(5), 1)
    copy_all(log, manager.create_future(TOPIC, 0, broker.dirs[1]))
    real = os.rename

    def broken(source: Path, target: Path) -> None:
        if Path(target).parent == broker.dirs[1]:
            raise OSError(errno.EROFS, "Read-only file system")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "rename", broken)
        manager = broker.start(replica(broker, 1))
    assert list(manager.offline_dirs) == [broker.dirs[1]]
    served = manager.get(TOPIC, 0)
    assert served is not None
    assert (served.log_dir, served.append_as_leader(batch(1), 1)) == (broker.dirs[0], (5, 6))


def test_a_crash_right_behind_a_swap_does_not_bring_deleted_records_back(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start(replica(broker, 0))
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    for _ in range(6):
        log.append_as_leader(batch(), 1)
    future = manager.create_future(TOPIC, 0, broker.dirs[1])
    copy_all(log, future)
    log.high_watermark = 6
    log.advance_log_start(4)
    manager.swap(TOPIC, 0, 0)
    for checkpoint in broker.dirs[0].glob("*-checkpoint"):
        checkpoint.unlink()
    found_again = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert (found_again.log_start_offset, found_again.high_watermark) == (4, 6)


def test_a_copy_is_not_served_while_its_source_may_be_on_a_disk_that_is_missing(broker: Broker, batch) -> None:
    """The metadata names the target before the last records are there."""
    manager = broker.start(replica(broker, 0))
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(), 1)
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
    assert (broker.dirs[1] / "replication-offset-checkpoint").read_text().splitlines()[2:] == ["t 0 1"]
    manager.abandon()
    broker.dirs[0].unlink()
    broker.dirs[0].with_name("away").rename(broker.dirs[0])
    served = broker.start(replica(broker, 1)).get(TOPIC, 0)
    assert (served.log_dir, served.log_end_offset) == (broker.dirs[0], 2)


def test_a_replica_that_others_count_on_does_not_begin_anew_while_a_disk_is_missing(broker: Broker, batch) -> None:
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

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("kraftlab.broker.log.partition_log.Segment.create", fails)
        with pytest.raises((TooManyOpenFiles, NoSpace)):
            make()
    assert broker.names(0) == []
    assert make().log_end_offset == 0
    assert not manager.offline_dirs


def test_a_move_whose_name_could_not_be_made_durable_has_not_begun(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0])

    def no_files(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(log_manager_module, "fsync_directory", no_files)
        with pytest.raises(TooManyOpenFiles):
            manager.create_future(TOPIC, 0, broker.dirs[1])
    assert manager.futures() == []
    assert manager.create_future(TOPIC, 0, broker.dirs[1]).log_end_offset == 0


def test_the_checkpoints_of_a_move_are_not_those_of_a_deleted_topic_of_that_name(broker: Broker, batch) -> None:
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
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (broker.dirs[1] / name).read_text() == "0\n1\nt 0 0\n"


def test_a_checkpoint_that_waits_for_another_does_not_bring_back_what_a_cut_has_lowered(broker: Broker, batch) -> None:
    """What is cut meanwhile may be written again, and must not count as durable then."""
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(5), 1)
    log.append_as_leader(batch(5), 1)
    log.flush()
    log_dir = manager._online[broker.dirs[0]]
    lock = log_dir._checkpoint_lock
    waiting = [lambda: log.truncate_to(5)]

    class CutsFirst:
        """The lock, as held by the cut until it is done."""

        def __enter__(self) -> None:
            if waiting:
                waiting.pop()()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    log_dir._checkpoint_lock = CutsFirst()
    manager.write_checkpoints()
    assert not waiting
    assert (broker.dirs[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"


def test_replicas_can_be_claimed_while_another_thread_looks_at_all_logs(broker: Broker) -> None:
    """As who writes checkpoints does, without the manager's lock."""
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    faults: list[Exception] = []
    is_over = threading.Event()

    def look() -> None:
        try:
            while not is_over.is_set():
                manager._logs()
        except RuntimeError as error:
            faults.append(error)
            is_over.set()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(100):
            manager._unclaimed.update({(OTHER, number): (0, log) for number in range(500)})
            for number in range(500):
                manager._claim((OTHER, number))
            manager._currents = {}
            if is_over.is_set():
                break
    finally:
        sys.setswitchinterval(interval_s)
        is_over.set()
        thread.join()
        log.abandon(LogClosed("the test is over"))
    assert not faults


@pytest.mark.parametrize("failing", [0, 1])
def test_a_swap_whose_rename_cannot_be_made_durable_leaves_each_directory_under_its_name(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Else the source would be taken for one that was given up, and its copy, which is dropped with the move, be gone as well."""
    manager = broker.start()
    old = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    old.append_as_leader(batch(5), 1)
    copy_all(old, manager.create_future(TOPIC, 0, broker.dirs[1]))
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


def test_a_checkpoint_that_is_being_written_does_not_keep_the_offsets_of_a_replica_that_goes_meanwhile(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its name that comes at once must not find them after a crash."""
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(50), 1)
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
    manager._online[broker.dirs[0]].write_recovery_points(lambda: manager._logs_in(broker.dirs[0]))
    thread.join()
    assert (broker.dirs[0] / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_directory_that_fails_while_the_logs_are_started_is_not_used_for_a_move(
    tmp_path: Path, batch, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    broker = Broker(tmp_path / "three", 3)
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    manager.get_or_create("t", TOPIC, 1, broker.ids[failing])
    copy_all(manager.currents()[0], manager.create_future(TOPIC, 0, broker.dirs[1]))
    real = LogManager._carry_out

    def fails(self: LogManager, action: Action, *more: object) -> None:
        if action.partition == 1:
            raise LogDirFailed(broker.dirs[failing], OSError(errno.EIO, "Input/output error"))
        real(self, action, *more)

    monkeypatch.setattr(LogManager, "_carry_out", fails)
    named = broker.ids[1 - failing]
    manager = broker.start(*(AssignedReplica("t", TOPIC, number, named) for number in (1, 0)))
    assert [*manager.offline_dirs] == [broker.dirs[failing]]
    assert manager.futures() == []
    if failing:
        assert manager.create_future(TOPIC, 0, broker.dirs[2]).log_dir == broker.dirs[2], "the move can be asked for again"
    else:
        assert manager.get(TOPIC, 0) is None
        assert (broker.names(0), broker.names(1)) == (["t-0", "t-1"], ["t-0-future"])
    manager.abandon()


def test_a_start_that_is_refused_leaves_a_clean_shutdown_clean(broker: Broker, batch) -> None:
    """The next one needs no scan, and the replicas keep their claim to lead."""
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1)
    manager.close(broker_epoch=5)
    there = broker.dirs[1] / "meta.properties"
    kept = there.read_bytes()
    there.unlink()
    with pytest.raises(StartupRefused, match="is its disk mounted"):
        broker.open()
    there.write_bytes(kept)
    assert broker.open().previous_broker_epoch == 5


def test_a_disk_that_fails_under_what_was_set_aside_takes_its_directory_offline_and_the_others_start(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    for number in range(2):
        manager.get_or_create("t", TOPIC, number, broker.ids[number])
    manager.close()
    (broker.dirs[0] / "s-0.00000000000000000000000000000000-stray").mkdir()

    def fails(path: Path) -> int:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(log_manager_module, "log_bytes_in", fails)
    manager = broker.start(*(AssignedReplica("t", TOPIC, number, broker.ids[number]) for number in range(2)))
    assert [*manager.offline_dirs] == [broker.dirs[0]]
    assert [log.name for log in manager.currents()] == ["t-1"]


def test_too_many_files_under_what_was_set_aside_refuse_the_start(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the broker would come up and host nothing."""
    broker.open()
    (broker.dirs[0] / "s-0.00000000000000000000000000000000-stray").mkdir()

    def no_files(path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(log_manager_module, "log_bytes_in", no_files)
    with pytest.raises(StartupRefused, match="ulimit -n"):
        broker.start()


def recovery_fails(monkeypatch: pytest.MonkeyPatch, directory: Path, number: int) -> None:
    """The indexes of logs below `directory` cannot be made anew."""
    real = segment_module.Segment.flush_index

    def fails(segment: segment_module.Segment) -> None:
        if directory in segment.directory.parents:
            raise OSError(number, os.strerror(number))
        real(segment)

    monkeypatch.setattr(segment_module.Segment, "flush_index", fails)


def test_a_full_disk_whose_logs_have_to_be_recovered_is_offline_and_the_others_start(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    for index in range(2):
        manager.get_or_create("t", TOPIC, index, broker.ids[index]).append_as_leader(batch(), 1)
    recovery_fails(monkeypatch, broker.dirs[0], errno.ENOSPC)
    manager = broker.start(*(AssignedReplica("t", TOPIC, index, broker.ids[index]) for index in range(2)))
    assert [*manager.offline_dirs] == [broker.dirs[0]]
    assert [log.name for log in manager.currents()] == ["t-1"]


def test_too_many_files_refuse_the_start_in_one_line(broker: Broker, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.start().get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1)
    recovery_fails(monkeypatch, broker.dirs[0], errno.EMFILE)
    with pytest.raises(StartupRefused, match="raise the limit of open files"):
        broker.open()


def test_a_disk_that_is_slow_to_take_in_a_moved_log_holds_up_nobody_else(
    broker: Broker, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop, which says what is cordoned, least of all."""
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(5), 1)
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


def test_a_directory_that_fails_just_when_somebody_asks_which_work_is_left_out(broker: Broker) -> None:
    class Vanishing(dict):
        def __contains__(self, key: object) -> bool:
            is_there = super().__contains__(key)
            self.pop(broker.dirs[0], None)
            return is_there

    manager = broker.start()
    manager._online = Vanishing(manager._online)
    assert manager.directory_ids().keys() >= {broker.dirs[1]}


def test_small_files_that_have_rotted_do_not_keep_a_broker_from_starting(broker: Broker, batch) -> None:
    long_name = "x" * 240
    log = broker.start().get_or_create(long_name, TOPIC, 0, broker.ids[0])
    log.append_as_leader(batch(5), 1)
    broker.manager.close(broker_epoch=7)
    (log.directory / checkpoints.TOPIC_NAME).write_bytes(bytes(20) + b"/../x")
    (broker.dirs[0] / ".kafka_cleanshutdown").write_bytes(b"\xbd")
    manager = broker.start(replica(broker, 0, long_name))
    assert (manager.get(TOPIC, 0).name, manager.get(TOPIC, 0).log_end_offset) == (f"{long_name}-0", 5)
    assert manager.previous_broker_epoch == -1
    broker.start()
    broker.manager.remove_expired(10**15)
    assert [name.strip("x") for name in broker.names(0)] == ["-0-stray"]
