"""A log directory fails at a bad moment: replicas in other directories go on, and no replica is created again with an
empty log.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kraftlab.broker.control.lifecycle import RegistrationFailed
from kraftlab.broker.control.metadata_publisher import Publication
from kraftlab.broker.log import checkpoints
from kraftlab.broker.log.disks import InThread, in_thread
from kraftlab.broker.log.errors import LogDirFailed
from kraftlab.broker.main import AllDirectoriesFailed, BrokerNode
from kraftlab.common.causes import only_cause
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import LOST, UNASSIGNED, random_uuid
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.records import FeatureLevel, PartitionChange, RegisterBroker
from kraftlab.simulation.crash_images.world import CLUSTER_ID, broker_config, directory_id, format_disks, on_the_loop, open_logs
from kraftlab.wire.transport import ListenError

from ..helpers.waiting import eventually
from .conftest import batch


def failure(log_dir: Any) -> LogDirFailed:
    return LogDirFailed(log_dir, OSError(errno.EIO, "bad disk"))


async def test_leaderships_that_come_while_a_directory_fails_are_taken_where_the_disks_work(
    autojump_clock: Any, world: Any
) -> None:
    brokers = await world.add_brokers(2)
    topic_id = await world.create_topic("t", *[[1, 0]] * 4)
    await trio.sleep(1)
    bad_dir = brokers[0].log("t", 0).log_dir
    on_bad = [number for number in range(4) if brokers[0].log("t", number).log_dir == bad_dir]
    on_good = [number for number in range(4) if number not in on_bad]
    assert on_bad and on_good
    for number in on_bad:
        brokers[0].log("t", number).abandon(failure(bad_dir))
    await world.commit(*(PartitionChange(0, number, topic_id, leader=0) for number in range(4)))
    for number in on_good:
        assert (await brokers[0].produce("t", number, batch(), acks=1)).error == ErrorCode.NONE
    for number in on_bad:
        assert (await brokers[0].produce("t", number, batch(), acks=1)).error != ErrorCode.NONE


async def test_a_replica_whose_directory_was_never_reported_is_not_created_again_when_that_directory_fails(
    autojump_clock: Any, world: Any
) -> None:
    brokers = await world.add_brokers(2)
    world.controller_answers = trio.Event()
    await world.create_topic("t", [0, 1])
    for _ in range(3):
        assert (await brokers[0].produce("t", 0, batch())).error == ErrorCode.NONE
    bad_dir = brokers[0].log("t", 0).log_dir
    await brokers[0].lose(bad_dir)
    assert world.state("t", 0).directory_of(0) == UNASSIGNED
    await world.change("t", 0, leader=0)
    assert (await brokers[0].produce("t", 0, batch(), acks=1)).error == ErrorCode.KAFKA_STORAGE_ERROR
    await trio.sleep(2)
    assert brokers[1].log("t", 0).log_end_offset == 3
    world.controller_answers.set()
    bad_id = brokers[0].logs.directory_id_of(bad_dir)
    await eventually(lambda: world.state("t", 0).directory_of(0) == bad_id, "the controller knows where the replica was")


async def test_a_replica_that_is_offline_from_the_start_is_reported_though_the_metadata_names_a_directory(
    autojump_clock: Any, world: Any
) -> None:
    """Otherwise it would become or stay leader, and the partition would be unavailable."""
    brokers = await world.add_brokers(2)
    world.controller_answers = trio.Event()
    await world.create_topic("t", [0, 1])
    assert (await brokers[0].produce("t", 0, batch())).error == ErrorCode.NONE
    await world.change("t", 0, isr=(0,))
    bad_dir = brokers[0].log("t", 0).log_dir
    brokers[0].crash()
    (bad_dir / "meta.properties").unlink()
    (bad_dir / "meta.properties").mkdir()
    await brokers[0].restart()
    assert brokers[0].partition("t", 0).log is None
    world.controller_answers.set()
    await eventually(lambda: world.state("t", 0).directory_of(0) == LOST, "the controller knows that the replica is offline")


def node_on(dirs: list[Path], in_thread: InThread = in_thread, **settings: str) -> BrokerNode:
    """A broker whose logs are opened in these directories, and that does not run."""
    format_disks(dirs, 1)
    node = BrokerNode(
        broker_config(1, tuple(dirs), **settings), MetaProperties(CLUSTER_ID, 1, random_uuid()), in_thread=in_thread
    )
    node.logs = open_logs(dirs, 1)
    return node


class Lifecycle:
    """Notes the directories that are reported to the controller."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

    def directory_failed(self, directory_id: Any) -> None:
        self.reported.append(directory_id)


class Replicas:
    """Their work hangs at a disk."""

    async def apply(self, publication: Publication) -> None:
        pass

    async def directory_failed(self, log_dir: Path) -> None:
        await trio.sleep_forever()


async def test_a_directory_that_fails_while_the_logs_are_started_is_reported(
    autojump_clock: Any, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is registered as a working one: otherwise its replicas would count as alive."""
    dirs = [tmp_path / name for name in ("d0", "d1")]
    node = node_on(dirs, on_the_loop)
    write_offsets = checkpoints.write_offsets

    def fails(path: Path, offsets: Any) -> None:
        if path.parent == dirs[1]:
            raise OSError(errno.EIO, "bad disk")
        write_offsets(path, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", fails)
    node.lifecycle, node.replicas = lifecycle, _ = Lifecycle(), Replicas()
    nursery.start_soon(node.handle_failed_directories)
    await node.publish_replicas(Publication(EMPTY, EMPTY, changes_between(EMPTY, EMPTY), True))
    await trio.sleep(1)
    assert lifecycle.reported == [node.logs.directory_id_of(dirs[1])]
    node.logs.abandon()


async def test_every_directory_that_fails_is_reported_though_a_disk_hangs(nursery: trio.Nursery, tmp_path: Path) -> None:
    """Work on the replicas waits for the disk. The last directory that fails ends the broker all the same."""
    dirs = [tmp_path / name for name in ("d0", "d1", "d2")]
    node = node_on(dirs)
    node.lifecycle, node.replicas = lifecycle, _ = Lifecycle(), Replicas()

    async def handle() -> None:
        with pytest.raises(BaseExceptionGroup) as raised:
            await node.handle_failed_directories()
        assert isinstance(only_cause(raised.value), AllDirectoriesFailed)
        ended.set()

    ended = trio.Event()
    nursery.start_soon(handle)
    with trio.fail_after(20):
        for path in dirs:
            node.directory_failed(failure(path))
        await ended.wait()
    assert lifecycle.reported == [node.logs.directory_id_of(path) for path in dirs]
    node.logs.abandon()


async def test_the_failure_of_the_metadata_directory_ends_the_broker(nursery: trio.Nursery, tmp_path: Path) -> None:
    """Though other log directories work."""
    dirs = [tmp_path / name for name in ("d0", "d1")]
    node = node_on(dirs, metadata_log_dir=str(dirs[0]))
    node.lifecycle, node.replicas = Lifecycle(), Replicas()
    node.directory_failed(failure(dirs[0]))
    with pytest.raises(BaseExceptionGroup) as raised, trio.fail_after(20):
        await node.handle_failed_directories()
    cause = only_cause(raised.value)
    assert isinstance(cause, AllDirectoriesFailed) and "the metadata directory failed" in str(cause)
    node.logs.abandon()


async def test_a_disk_that_hangs_keeps_no_other_from_its_checkpoints(
    autojump_clock: Any, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it take up one thread after the other."""
    dirs = [tmp_path / name for name in ("d0", "d1")]
    written, hanging = list[Path](), list[Path]()
    write_offsets = checkpoints.write_offsets

    class Hangs(Exception):
        pass

    async def in_thread(limiter: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except Hangs:
            await trio.sleep_forever()

    def write(path: Path, offsets: Any) -> None:
        if path.parent == dirs[0]:
            hanging.append(path)
            raise Hangs
        write_offsets(path, offsets)
        written.append(path)

    node = node_on(dirs, in_thread)
    node.logs.start([], 0)
    monkeypatch.setattr(checkpoints, "write_offsets", write)
    nursery.start_soon(node.checkpoint_high_watermarks)
    await trio.sleep(4 * 5)
    assert written.count(dirs[1] / checkpoints.HIGH_WATERMARKS) >= 3
    assert len(hanging) == 1
    node.logs.abandon()


async def test_high_watermarks_are_written_as_often_as_the_file_says(
    autojump_clock: Any, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[float] = []
    node = node_on([tmp_path / "d0"], on_the_loop, replica_high_watermark_checkpoint_interval_ms="700")
    monkeypatch.setattr(checkpoints, "write_offsets", lambda path, offsets: written.append(trio.current_time()))
    begun = trio.current_time()
    nursery.start_soon(node.checkpoint_high_watermarks)
    await trio.sleep(2)
    assert {round(at - begun, 1) for at in written} == {0.7, 1.4}
    node.logs.abandon()


@pytest.mark.parametrize("is_controlled", [True, False])
async def test_a_broker_asks_for_a_controlled_shutdown_unless_the_file_forbids_it(tmp_path: Path, is_controlled: bool) -> None:
    node = node_on([tmp_path / "d0"], on_the_loop, controlled_shutdown_enable=str(is_controlled).lower())

    class Stopping(Lifecycle):
        broker_epoch = 5
        asked = 0
        stopped = trio.Event()

        def begin_shutdown(self) -> None:
            self.asked += 1
            self.stopped.set()

    node.lifecycle, node.is_built = lifecycle, _ = Stopping(), True
    await node.leave()
    assert lifecycle.asked == is_controlled
    node.logs.abandon()


@pytest.mark.parametrize("reason", ["no controller answers", "its port is taken"])
async def test_a_broker_that_gets_no_place_in_the_cluster_leaves_a_clean_shutdown_clean(tmp_path: Path, reason: str) -> None:
    dirs = (tmp_path / "d0",)
    format_disks(dirs, 1)
    logs = open_logs(dirs, 1)
    logs.start([], 0)
    logs.close(broker_epoch=5)
    with socket.create_server(("127.0.0.1", 0)) as peer, socket.create_server(("127.0.0.1", 0)) as grpc:
        ports = [each.getsockname()[1] for each in (peer, grpc)]
        if reason == "no controller answers":
            peer.close()
            grpc.close()
        settings = {
            "listeners": "PEER://127.0.0.1:{},GRPC://127.0.0.1:{}".format(*ports),
            "initial_broker_registration_timeout_ms": "100",
            "broker_session_timeout_ms": "100",
            "broker_heartbeat_interval_ms": "50",
        }
        node = BrokerNode(broker_config(1, dirs, **settings), MetaProperties(CLUSTER_ID, 1, directory_id(dirs[0], 1)))
        with pytest.raises(BaseExceptionGroup) as raised, trio.fail_after(20):
            await node.run()
    assert isinstance(only_cause(raised.value), (RegistrationFailed, ListenError))
    node.logs.abandon()
    logs = open_logs(dirs, 1)
    assert logs.previous_broker_epoch == 5
    logs.abandon()


class Registered(Lifecycle):
    """Registers two directories."""

    broker_epoch = 0
    log_dirs = frozenset((b"a" * 16, b"b" * 16))

    def __init__(self) -> None:
        super().__init__()
        self.again = 0

    def directories_registered(self, log_dirs: tuple[bytes, ...]) -> None:
        pass

    def register_again(self) -> None:
        self.again += 1


@pytest.mark.parametrize(
    ("log_dirs", "level", "again"),
    [("ab", 30, 0), ("a", 30, 1), ("abc", 30, 1), ("", 30, 1), ("", 14, 0)],
    ids=["equal", "a return was overtaken", "a failure was overtaken", "written without directories", "no directories yet"],
)
async def test_a_registration_with_other_directories_is_repeated(tmp_path: Path, log_dirs: str, level: int, again: int) -> None:
    """A heartbeat that names a directory as offline may arrive after the registration with which it came back."""
    node = node_on([tmp_path / "d0"])
    node.lifecycle = lifecycle = Registered()
    delta = MetadataDelta(EMPTY)
    registered = RegisterBroker(0, 1, random_uuid(), 0, (), fenced=False, log_dirs=tuple(name.encode() * 16 for name in log_dirs))
    delta.replay_all((FeatureLevel(0, "metadata.version", level), registered), 0)
    image = delta.apply(Provenance(2, 1, 0))
    await node.publish_lifecycle(Publication(EMPTY, image, delta.changes(), True))
    await node.publish_lifecycle(Publication(image, image, changes_between(image, image), False))
    assert lifecycle.again == again
    node.logs.abandon()
