"""Log directories that fail, fill up, or hold files that somebody else has changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftlab.broker.log import checkpoints
from kraftlab.broker.log import segment as segment_module
from kraftlab.broker.log import unserved as unserved_module
from kraftlab.broker.log.errors import (
    LogDirFailed,
    ReplicaOffline,
    StartupRefused,
)
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.common.uuids import UNASSIGNED, random_uuid

from .conftest import STRAY, TOPIC, Broker, batch, failing, full_disk, replica


def test_a_start_on_a_full_disk_gives_the_locks_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch, broker.dirs[0].parent), pytest.raises(StartupRefused, match="No space left"):
        broker.open()
    broker.start()


def test_a_directory_that_cannot_be_read_is_offline_and_the_others_go_on(broker: Broker, tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    dead.write_text("not a directory")
    broker.dirs.append(dead)
    manager = broker.start()
    assert list(manager.offline_dirs) == [dead]
    assert list(manager.directory_ids().values()) == broker.ids
    with pytest.raises(ReplicaOffline, match="may be on the offline log directory"):
        manager.get_or_create("t", TOPIC, 0, random_uuid())
    assert manager.get_or_create("t", TOPIC, 0, random_uuid(), is_new=True).log_end_offset == 0
    assert manager.get_or_create("t", TOPIC, 1, UNASSIGNED).append_as_leader(batch(), 1)[:2] == (0, 1)
    assert manager.get_or_create("t", TOPIC, 2, broker.ids[1]).log_dir == broker.dirs[1]
    manager.create_future(TOPIC, 2, broker.dirs[0])
    assert [described.error is None for described in manager.describe()] == [True, True, False]
    with pytest.raises(StartupRefused, match="none of the log directories works"):
        LogManager.open([dead], node_id=1, cluster_id="cluster")


def test_a_directory_that_fails_takes_its_replicas_and_moves_out(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = broker.start()
    here, there = (manager.get_or_create("t", TOPIC, i, broker.ids[i]) for i in (0, 1))
    there.append_as_leader(batch(), 1)
    future = manager.create_future(TOPIC, 0, broker.dirs[1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(LogDirFailed) as raised:
            there.flush()
    assert raised.value.log_dir == broker.dirs[1]
    for _ in range(2):
        manager.mark_offline(raised.value.log_dir, raised.value)
    assert (manager.get(TOPIC, 1), manager.future(TOPIC, 0), manager.get(TOPIC, 0)) == (None, None, here)
    with pytest.raises(LogDirFailed):
        future.append_as_follower(batch())
    assert here.append_as_leader(batch(), 1)[:2] == (0, 1)
    with pytest.raises(ReplicaOffline):
        manager.get_or_create("t", TOPIC, 1, broker.ids[1])
    assert manager.directory_id_of(broker.dirs[1]) == broker.ids[1]
    manager.write_checkpoints()
    manager.close(broker_epoch=5)
    assert (broker.dirs[0] / ".kafka_cleanshutdown").exists()
    assert not (broker.dirs[1] / ".kafka_cleanshutdown").exists()


def test_files_to_delete_that_somebody_else_removes_meanwhile_are_no_fault_of_the_disk(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
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
    stray = broker.dirs[0] / STRAY
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"12345")
    (stray / "00000000000000000009.log").symlink_to("gone")
    manager = broker.start()
    assert (manager.offline_dirs, [found.size_bytes for found in manager.describe()[0].strays]) == ({}, [5])


def test_a_disk_that_fails_under_what_was_set_aside_takes_its_directory_offline_and_the_others_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    for number in range(2):
        manager.get_or_create("t", TOPIC, number, broker.ids[number])
    manager.close()
    (broker.dirs[0] / STRAY).mkdir()

    monkeypatch.setattr(unserved_module, "log_bytes_in", failing(errno.EIO))
    manager = broker.start(*(AssignedReplica("t", TOPIC, number, broker.ids[number]) for number in range(2)))
    assert [*manager.offline_dirs] == [broker.dirs[0]]
    assert [log.name for log in manager.currents()] == ["t-1"]


def test_too_many_files_under_what_was_set_aside_refuse_the_start(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the broker would come up and host nothing."""
    broker.open()
    (broker.dirs[0] / STRAY).mkdir()

    monkeypatch.setattr(unserved_module, "log_bytes_in", failing(errno.EMFILE))
    with pytest.raises(StartupRefused, match="ulimit -n"):
        broker.start()


def recovery_fails(monkeypatch: pytest.MonkeyPatch, directory: Path, number: int) -> None:
    """Let the rebuild of indexes of logs below `directory` fail."""
    real = segment_module.Segment.flush_index

    def fails(segment: segment_module.Segment) -> None:
        if directory in segment.directory.parents:
            raise OSError(number, os.strerror(number))
        real(segment)

    monkeypatch.setattr(segment_module.Segment, "flush_index", fails)


def test_a_full_disk_whose_logs_have_to_be_recovered_is_offline_and_the_others_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    for index in range(2):
        manager.get_or_create("t", TOPIC, index, broker.ids[index]).append_as_leader(batch(), 1)
    recovery_fails(monkeypatch, broker.dirs[0], errno.ENOSPC)
    manager = broker.start(*(AssignedReplica("t", TOPIC, index, broker.ids[index]) for index in range(2)))
    assert [*manager.offline_dirs] == [broker.dirs[0]]
    assert [log.name for log in manager.currents()] == ["t-1"]


def test_too_many_files_refuse_the_start_in_one_line(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.start().get_or_create("t", TOPIC, 0, broker.ids[0]).append_as_leader(batch(), 1)
    recovery_fails(monkeypatch, broker.dirs[0], errno.EMFILE)
    with pytest.raises(StartupRefused, match="raise the limit of open files"):
        broker.open()


def test_small_files_that_have_rotted_do_not_keep_a_broker_from_starting(broker: Broker) -> None:
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


def test_a_directory_may_fail_while_the_ids_of_those_that_work_are_read(broker: Broker) -> None:
    first = broker.dirs[0]

    class Fails(type(first)):
        """The path of a directory that fails right after it was looked up, from the start on."""

        lookups = -1000

        def __hash__(self) -> int:
            if self.lookups == 1:
                manager.mark_offline(first, OSError(errno.EIO, "Input/output error"))
            self.lookups += 1
            return hash(first)

    failing = broker.dirs[0] = Fails(first)
    manager = broker.start()
    failing.lookups = 0
    assert manager.directory_ids().keys() >= {broker.dirs[1]}
    assert [*manager.offline_dirs] == [first]
