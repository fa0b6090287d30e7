"""Log directories at the start: one that cannot be used is offline and says why, the others start, and nothing is created in an
empty place where a disk may have been mounted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.broker.log.errors import LogDirFailed, ReplicaOffline, StartupRefused
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.common.uuids import random_uuid
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties

from .conftest import TOPIC, Broker, batch


def is_missing(path: Path) -> None:
    shutil.rmtree(path)


def is_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def is_empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def is_unreadable(path: Path) -> None:
    (path / "meta.properties").unlink()
    (path / "meta.properties").mkdir()


def is_emptied(path: Path) -> None:
    (path / "meta.properties").write_bytes(b"")


def is_damaged(path: Path) -> None:
    (path / "meta.properties").write_bytes(bytes(20))


def is_of_another_node(path: Path) -> None:
    meta_properties.write(path, MetaProperties("cluster", 2, random_uuid()))


def is_of_another_cluster(path: Path) -> None:
    meta_properties.write(path, MetaProperties("another", 1, random_uuid()))


STATES: dict[Callable[[Path], None], str] = {
    is_missing: "is its disk mounted? Mount it, then run kraftlab log-dirs --online ",
    is_a_file: "is its disk mounted",
    is_empty: "first run: kraftlab storage format --cluster-id cluster --config FILE --ignore-formatted",
    is_emptied: "write these lines into it: version=1, cluster.id=cluster, node.id=1, directory.id=ID",
    is_unreadable: "it is a directory, not a regular file",
    is_damaged: "is not a properties file",
    is_of_another_node: "belongs to node 2 of this cluster, but this is node 1; mount the disk of this node there, or correct",
    is_of_another_cluster: "belongs to another cluster: to node 1 of cluster another",
}


@pytest.mark.parametrize("spoil", STATES, ids=lambda spoil: spoil.__name__)
def test_a_directory_that_cannot_be_used_is_offline_and_the_others_start(
    broker: Broker, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    manager = broker.start()
    for number in range(2):
        manager.get_or_create("t", TOPIC, number, broker.ids[number]).append_as_leader(batch(), 1)
    manager.abandon()
    spoil(broker.dirs[1])
    before = sorted(broker.dirs[1].iterdir()) if broker.dirs[1].is_dir() else []

    manager = broker.start(*(AssignedReplica("t", TOPIC, number, broker.ids[number], True) for number in range(2)))
    assert [log.name for log in manager.currents()] == ["t-0"]
    described = manager.describe()[1]
    assert described.error is not None and STATES[spoil] in described.error and str(broker.dirs[1]) in described.error
    assert described.error in caplog.text
    with pytest.raises(ReplicaOffline, match="may be on the offline log directory"):
        manager.get_or_create("t", TOPIC, 1, broker.ids[1], is_counted_on=True)
    manager.close()
    assert (sorted(broker.dirs[1].iterdir()) if broker.dirs[1].is_dir() else []) == before, "nothing is made there"


def test_a_broker_without_any_usable_directory_does_not_start(broker: Broker) -> None:
    for path in broker.dirs:
        is_empty(path)
    with pytest.raises(StartupRefused, match=r"none of the log directories works: .*d0 is not formatted.*d1 is not formatted"):
        broker.open()


def test_the_lines_that_an_emptied_identity_needs_bring_the_records_back(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 1, broker.ids[1]).append_as_leader(batch(), 1)
    manager.abandon()
    (broker.dirs[1] / meta_properties.FILE_NAME).write_text("version=1\ncluster.id=cluster\nnode.id=1\n")
    manager = broker.start(AssignedReplica("t", TOPIC, 1, broker.ids[1], True))
    assert [(log.name, log.log_end_offset) for log in manager.currents()] == [("t-1", 1)]


def test_a_missing_directory_id_is_made_once(broker: Broker) -> None:
    file = broker.dirs[1] / meta_properties.FILE_NAME
    file.write_text("version=1\ncluster.id=cluster\nnode.id=1\n")
    made = broker.start().directory_ids()[broker.dirs[1]]
    assert meta_properties.read(broker.dirs[1]) == MetaProperties("cluster", 1, made)
    assert broker.start().directory_ids()[broker.dirs[1]] == made


def test_directories_that_a_person_has_swapped_are_known_by_their_ids(broker: Broker) -> None:
    manager = broker.start()
    for number in range(2):
        manager.get_or_create("t", TOPIC, number, broker.ids[number]).append_as_leader(batch(number + 1), 1)
    manager.close()
    aside = broker.dirs[0].with_name("aside")
    broker.dirs[0].rename(aside)
    broker.dirs[1].rename(broker.dirs[0])
    aside.rename(broker.dirs[1])
    manager = broker.start(*(AssignedReplica("t", TOPIC, number, broker.ids[number]) for number in range(2)))
    found = {log.name: (log.log_dir, log.directory_id, log.log_end_offset) for log in manager.currents()}
    assert found == {"t-0": (broker.dirs[1], broker.ids[0], 1), "t-1": (broker.dirs[0], broker.ids[1], 2)}


def an_empty_directory(path: Path) -> None:
    path.rename(path.with_name("unmounted"))
    path.mkdir()


def another_disk(path: Path) -> None:
    an_empty_directory(path)
    meta_properties.write(path, MetaProperties("cluster", 1, random_uuid()))
    (path / ".lock").touch()


def nothing(path: Path) -> None:
    path.rename(path.with_name("unmounted"))


@pytest.mark.parametrize("left", [an_empty_directory, another_disk, nothing])
def test_a_mount_that_has_vanished_is_noticed_with_the_next_checkpoint(broker: Broker, left: Callable[[Path], None]) -> None:
    """Nothing else is written, and writes into an empty directory would succeed."""
    manager = broker.start()
    manager.get_or_create("t", TOPIC, 0, broker.ids[1])
    left(broker.dirs[1])
    before = sorted(broker.dirs[1].rglob("*")) if broker.dirs[1].exists() else []
    with pytest.raises(LogDirFailed, match=r"unmounted|another disk"):
        manager.write_checkpoints(broker.dirs[1])
    assert (sorted(broker.dirs[1].rglob("*")) if broker.dirs[1].exists() else []) == before


def test_no_replica_is_created_where_a_mount_has_vanished(broker: Broker) -> None:
    manager: LogManager = broker.start()
    an_empty_directory(broker.dirs[1])
    with pytest.raises(LogDirFailed, match="unmounted"):
        manager.get_or_create("t", TOPIC, 0, broker.ids[1])
    assert not list(broker.dirs[1].iterdir())
