"""A replica's directory whose `partition.metadata` is damaged: its records are never replaced by an empty log that may lead. An
in-sync replica heals it, or a person promotes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.broker.api.log_dir_repairs import LogDirRepairs
from kraftlab.broker.log import checkpoints
from kraftlab.broker.log.errors import ReplicaConflict
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import LOST, ZERO, random_uuid

from ...helpers.waiting import eventually
from ..conftest import Broker, batch, same_data


def is_emptied(file: Path) -> None:
    file.write_bytes(b"")


def is_zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def is_deleted(file: Path) -> None:
    file.unlink()


def is_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


def is_garbage(file: Path) -> None:
    file.write_bytes(b"\xff\x00not a file of ours\n")


def is_of_another_topic(file: Path) -> None:
    checkpoints.replace_partition_metadata(file.parent, random_uuid())


def has_a_reserved_id(file: Path) -> None:
    checkpoints.replace_partition_metadata(file.parent, ZERO)


DAMAGES = (is_emptied, is_zeroed, is_deleted, is_cut, is_garbage, is_of_another_topic, has_a_reserved_id)


async def crash_and_damage(world: Any, broker: Broker, damage: Callable[[Path], None], **change: Any) -> Path:
    """Crash a broker, damage the topic id of t-0, commit what the controller does meanwhile, restart. Return the directory."""
    directory: Path = broker.log("t", 0).directory
    broker.log("t", 0).flush()
    broker.crash()
    damage(directory / checkpoints.PARTITION_METADATA)
    await world.change("t", 0, **change)
    await broker.restart()
    return directory


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_only_replica_is_offline_and_a_promotion_brings_its_records_back(
    autojump_clock: Any, world: Any, damage: Callable[[Path], None]
) -> None:
    broker = await world.add_broker(0)
    topic_id = await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    directory = await crash_and_damage(world, broker, damage, leader=-1)
    await eventually(lambda: world.state("t", 0).directory_of(0) == LOST, "the controller knows that the replica is offline")
    await world.change("t", 0, leader=0)
    assert (await broker.produce("t", 0, batch(), acks=1)).error == ErrorCode.KAFKA_STORAGE_ERROR
    [kept] = broker.logs.describe()[broker.dirs.index(directory.parent)].kept
    assert (kept.path, kept.log_end_offset) == (directory, 5) and kept.doubt
    await world.change("t", 0, leader=-1)
    await broker.replicas.promote_copy(directory)
    assert checkpoints.read_partition_metadata(directory) == topic_id
    await world.change("t", 0, leader=0)
    assert (await broker.produce("t", 0, batch(), acks=1)).base_offset == 5
    broker.crash()
    await broker.restart()
    assert broker.log("t", 0).log_end_offset == 6


@pytest.mark.parametrize("damage", [is_emptied, is_of_another_topic])
async def test_a_follower_is_filled_again_once_it_is_out_of_sync_and_its_old_directory_is_set_aside(
    autojump_clock: Any, world: Any, damage: Callable[[Path], None]
) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(5, 100)
    directory = await crash_and_damage(world, brokers[1], damage)
    assert brokers[1].partition("t", 0).log is None, "it counts as in sync"
    await eventually(lambda: world.state("t", 0).directory_of(1) == LOST, "the controller knows that the replica is offline")
    await world.change("t", 0, isr=(0,))
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "it is in sync again")
    assert same_data("t", 0, brokers)
    assert brokers[1].log("t", 0).directory == directory
    [stray] = brokers[1].logs.describe()[brokers[1].dirs.index(directory.parent)].strays
    assert stray.size_bytes == brokers[0].log("t", 0).size_bytes
    with pytest.raises(ReplicaConflict, match="has a working log"):
        await brokers[1].replicas.promote_copy(stray.path)


async def test_a_replica_that_was_out_of_sync_waits_for_a_leader(autojump_clock: Any, world: Any) -> None:
    """An unclean election would choose it. It has its records, and an empty log would not."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(5, 100)
    await crash_and_damage(world, brokers[1], is_emptied, isr=(0,), leader=-1)
    assert brokers[1].partition("t", 0).log is None
    await eventually(lambda: world.state("t", 0).directory_of(1) == LOST, "the controller knows that the replica is offline")
    await world.change("t", 0, leader=0)
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "it is in sync again")
    assert same_data("t", 0, brokers)


@pytest.mark.parametrize("leader", ["is dead", "has restarted"])
async def test_a_leader_that_only_the_metadata_names_is_not_waited_for_with_an_empty_log(
    autojump_clock: Any, world: Any, leader: str
) -> None:
    """It died, and the controller does not know yet. An unclean election would choose the empty log."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(5, 100)
    await world.change("t", 0, isr=(1,), leader=1)
    brokers[1].crash()
    if leader == "has restarted":
        await brokers[1].restart(registers=False)
    directory = await crash_and_damage(world, brokers[0], is_emptied)
    await trio.sleep(60)
    assert brokers[0].partition("t", 0).log is None
    await world.change("t", 0, leader=-1)
    await trio.sleep(60)
    [kept] = brokers[0].logs.describe()[brokers[0].dirs.index(directory.parent)].kept
    assert (kept.path, kept.log_end_offset) == (directory, 5) and kept.doubt
    await brokers[0].replicas.promote_copy(directory)
    await world.change("t", 0, isr=(0,), leader=0)
    assert brokers[0].log("t", 0).log_end_offset == 5


async def test_nothing_is_set_aside_before_the_broker_is_registered(autojump_clock: Any, world: Any) -> None:
    """Until then its image may be old."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(5, 100)
    await world.change("t", 0, isr=(0,))
    directory = brokers[1].log("t", 0).directory
    brokers[1].crash()
    is_emptied(directory / checkpoints.PARTITION_METADATA)
    await brokers[1].restart(registers=False)
    await trio.sleep(60)
    assert brokers[1].partition("t", 0).log is None
    await world.register(brokers[1])
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "it is in sync again")
    assert same_data("t", 0, brokers)


async def test_a_copy_takes_the_place_of_a_working_log_by_the_steps_of_the_refusal(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    directory = await crash_and_damage(world, broker, is_emptied, leader=-1)
    stray = directory.with_name("t-0.00000000000000000000000000000000-stray")
    broker.crash()
    shutil.move(directory, stray)
    await broker.restart()
    await world.change("t", 0, leader=0)
    assert broker.log("t", 0).log_end_offset == 0
    with pytest.raises(ReplicaConflict, match=r"copy its partition\.metadata into the copy"):
        await broker.replicas.promote_copy(stray)
    empty, away = broker.log("t", 0).directory, directory.parent.parent / "away"
    broker.crash()
    shutil.move(empty, away)
    shutil.copy(away / checkpoints.PARTITION_METADATA, stray / checkpoints.PARTITION_METADATA)
    shutil.move(stray, directory)
    await broker.restart()
    await world.change("t", 0, leader=0)
    assert broker.log("t", 0).log_end_offset == 5


async def test_a_copy_that_was_set_aside_can_be_promoted_though_its_topic_id_is_damaged(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    topic_id = await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    log = broker.log("t", 0)
    log.flush()
    stray = broker.other_dir() / "t-0.00000000000000000000000000000000-stray"
    shutil.copytree(log.directory, stray)
    is_emptied(stray / checkpoints.PARTITION_METADATA)
    broker.crash()
    await broker.restart()
    with pytest.raises(ReplicaConflict, match=r"stop this broker, move .*/t-0 away, copy its partition.metadata"):
        await broker.replicas.promote_copy(stray)
    await broker.lose(log.log_dir)
    await world.change("t", 0, leader=-1)
    promoted = await broker.replicas.promote_copy(stray)
    assert promoted.log_end_offset == 5
    assert checkpoints.read_partition_metadata(promoted.directory) == topic_id


async def test_records_of_a_later_epoch_than_the_partitions_are_of_another_topic(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    for _ in range(3):
        await world.change("t", 0, leader=0)
        await world.fill(1, 100, acks=1)
    directory = broker.log("t", 0).directory
    await world.delete_topic("t")
    await world.create_topic("t", [0])
    broker.crash()
    shutil.rmtree(directory)
    [given_up] = directory.parent.glob("t-0.*-delete")
    shutil.move(given_up, directory)
    is_emptied(directory / checkpoints.PARTITION_METADATA)
    await world.change("t", 0, leader=-1)
    await broker.restart()
    with pytest.raises(ReplicaConflict, match="they are of another topic"):
        await broker.replicas.promote_copy(directory)
    assert (directory / checkpoints.PARTITION_METADATA).read_bytes() == b""


async def test_dropping_what_is_in_doubt_begins_with_an_empty_log(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    directory = await crash_and_damage(world, broker, is_emptied, leader=-1)
    await broker.replicas.drop_copy(directory)
    assert broker.log("t", 0).log_end_offset == 0
    broker.logs.remove_expired(10**15)
    assert broker.directories() == {f"{directory.parent.name}/t-0"}


async def test_what_is_in_doubt_is_set_aside_when_its_topic_is_deleted(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    directory = await crash_and_damage(world, broker, is_emptied, leader=-1)
    await world.delete_topic("t")
    broker.logs.remove_expired(10**15)
    [stray] = broker.logs.describe()[broker.dirs.index(directory.parent)].strays
    assert stray.topic == "t" and not directory.exists()


async def test_a_topic_that_was_created_again_is_not_in_doubt(autojump_clock: Any, world: Any) -> None:
    """Its partition has not changed yet: the directory is that of the deleted topic."""
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    broker.crash()
    await world.delete_topic("t")
    await world.create_topic("t", [0])
    await broker.restart()
    assert broker.log("t", 0).log_end_offset == 0


async def test_a_missing_directory_is_not_replaced_by_an_empty_one_that_leads(autojump_clock: Any, world: Any) -> None:
    """Not at the second start either: the checkpoint goes on to name the replica."""
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    directory: Path = broker.log("t", 0).directory
    broker.log("t", 0).flush()
    broker.logs.write_checkpoints()
    broker.crash()
    shutil.move(directory, directory.parent.parent / "aside")
    for _ in range(2):
        await broker.restart()
        assert broker.partition("t", 0).log is None
        broker.crash()
    shutil.move(directory.parent.parent / "aside", directory)
    await broker.restart()
    assert broker.log("t", 0).log_end_offset == 5


async def test_a_missing_directory_is_made_again_where_another_replica_leads(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(5, 100)
    directory: Path = brokers[1].log("t", 0).directory
    brokers[1].log("t", 0).flush()
    brokers[1].logs.write_checkpoints()
    brokers[1].crash()
    shutil.rmtree(directory)
    await brokers[1].restart()
    assert brokers[1].partition("t", 0).log is None, "it counts as in sync"
    await eventually(lambda: world.state("t", 0).directory_of(1) == LOST, "the controller knows that the replica is offline")
    await world.change("t", 0, isr=(0,))
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "it is in sync again")
    assert same_data("t", 0, brokers)


async def test_the_api_drops_and_promotes_what_is_in_doubt(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(5, 100, acks=1)
    directory = await crash_and_damage(world, broker, is_zeroed, leader=-1)
    described = await broker.log_dirs_api.describe(pb.DescribeLogDirsRequest())
    [copy] = [copy for found in described.results for copy in found.kept_copies]
    assert (copy.path, copy.log_end_offset, copy.is_stray) == (str(directory), 5, False)
    assert "partition.metadata" in copy.doubt
    repairs = LogDirRepairs(broker.replicas, None)  # type: ignore[arg-type]
    await repairs.resolve(pb.ResolveReplicaCopyRequest(path=str(directory), promote=True))
    assert broker.log("t", 0).log_end_offset == 5
