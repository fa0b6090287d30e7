"""A log directory that failed comes back while the broker runs: its replicas follow with what their logs still hold, and nothing
that happened meanwhile is undone.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.broker.log.errors import LogDirUnusable, ReplicaConflict
from kraftlab.broker.upkeep.directory_returns import DirectoryReturns
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import random_uuid
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.metadata.records import BrokerRegistrationChange
from kraftlab.simulation.crash_images.world import on_the_loop

from ...helpers.waiting import eventually
from ..conftest import Broker, batch, same_data
from ..log.conftest import failing


async def lost(world: Any, broker: Broker, number: int = 0, *, leader: int = 1) -> Path:
    """The directory of a replica of topic t fails, and the controller takes the broker out."""
    log_dir: Path = broker.log("t", number).log_dir
    await broker.lose(log_dir)
    state = world.state("t", number)
    isr = tuple(member for member in state.isr if member != broker.broker_id)
    await world.change("t", number, isr=isr or state.isr, leader=leader)
    return log_dir


async def test_a_replica_follows_with_its_log_and_catches_up(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(3, 100)
    bad_dir = await lost(world, brokers[0])
    assert (await brokers[1].produce("t", 0, batch(), acks=1)).error == ErrorCode.NONE
    assert await brokers[0].bring_back(bad_dir) == ["serve t-0"]
    assert brokers[0].log("t", 0).log_dir == bad_dir and bad_dir not in brokers[0].logs.offline_dirs
    await eventually(lambda: world.state("t", 0).isr == (1, 0), "it is in sync again")
    assert same_data("t", 0, brokers)
    await world.change("t", 0, leader=0)
    assert (await brokers[0].produce("t", 0, batch())).error == ErrorCode.NONE


async def test_records_that_only_the_lost_log_has_are_truncated_by_epoch(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(2, 100)
    world.unreachable.add(0)
    for _ in range(3):
        assert (await brokers[0].produce("t", 0, batch(), acks=1)).error == ErrorCode.NONE
    bad_dir = await lost(world, brokers[0])
    world.unreachable.clear()
    await world.fill(1, 100, acks=1)
    await brokers[0].bring_back(bad_dir)
    await eventually(lambda: world.state("t", 0).isr == (1, 0), "it is in sync again")
    assert same_data("t", 0, brokers)
    assert brokers[0].log("t", 0).log_end_offset == 3


async def test_nothing_comes_back_while_the_controller_counts_on_the_lost_log(autojump_clock: Any, world: Any) -> None:
    """It may have lost records that it had acknowledged, and would make all others truncate theirs."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(3, 100)
    bad_dir = brokers[0].log("t", 0).log_dir
    await brokers[0].lose(bad_dir)
    with pytest.raises(LogDirUnusable, match="try again"):
        await brokers[0].bring_back(bad_dir)
    assert brokers[0].partition("t", 0).log is None
    await world.change("t", 0, leader=1)
    assert brokers[0].replicas.counted_on() == ["t-0"]
    await world.change("t", 0, isr=(1,))
    assert await brokers[0].bring_back(bad_dir) == ["serve t-0"]


async def test_a_follower_that_fetched_once_more_while_its_directory_failed_holds_nobody_up(
    autojump_clock: Any, world: Any
) -> None:
    """The leader of the next epoch must not wait for it, nor propose it: it will not fetch again."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(1, 100)
    dead, alive = (brokers[0].logs.directory_id_of(path) for path in (brokers[0].log("t", 0).log_dir, brokers[0].other_dir()))
    await eventually(lambda: world.state("t", 0).directory_of(0) == dead, "the directory is known")
    await world.change("t", 0, isr=(1,), leader=1)
    await world.commit(BrokerRegistrationChange(0, 0, brokers[0].epoch, log_dirs=(alive,)))
    await trio.sleep(1)
    assert brokers[1].partition("t", 0).role.progress[0].log_end_offset == 1, "it has fetched in the new epoch"
    await brokers[0].lose(brokers[0].log("t", 0).log_dir)
    begun = trio.current_time()
    assert (await brokers[1].produce("t", 0, batch())).error == ErrorCode.NONE
    assert trio.current_time() - begun < 1
    assert world.state("t", 0).isr == (1,)


async def test_the_only_replica_comes_back_with_its_records(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(3, 100, acks=1)
    bad_dir = await lost(world, broker, leader=-1)
    await broker.bring_back(bad_dir)
    assert (await broker.produce("t", 0, batch(), acks=1)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await world.change("t", 0, leader=0)
    assert (await broker.produce("t", 0, batch(), acks=1)).error == ErrorCode.NONE
    assert broker.log("t", 0).log_end_offset == 4


async def test_what_was_reassigned_or_deleted_meanwhile_does_not_come_back(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", *[[0, 1]] * 4)
    for number in range(4):
        await world.fill(1, 100, number)
    bad_dir = brokers[0].log("t", 0).log_dir
    there = [number for number in range(4) if brokers[0].log("t", number).log_dir == bad_dir]
    await brokers[0].lose(bad_dir)
    for number in there:
        directories = world.state("t", number).directories[1:]
        await world.change("t", number, replicas=(1,), isr=(1,), leader=1, directories=directories)
    assert set(await brokers[0].bring_back(bad_dir)) == {f"set aside t-{number}" for number in there}
    assert all(brokers[0].logs.get(world.image.topics.by_name["t"], number) is None for number in there)
    brokers[0].logs.remove_expired(10**15)
    assert len(brokers[0].logs.describe()[brokers[0].dirs.index(bad_dir)].strays) == len(there)


async def test_a_replica_that_was_created_in_another_directory_meanwhile_stays_there(autojump_clock: Any, world: Any) -> None:
    """It was taken away and given back, as a new replica."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [1, 0])
    await world.fill(3, 100)
    bad_dir = await lost(world, brokers[0])
    directory = world.state("t", 0).directories[0]
    await world.change("t", 0, replicas=(1,), isr=(1,), directories=(directory,))
    await world.add_replica(0, 0)
    await eventually(lambda: brokers[0].partition("t", 0).log is not None, "it is created again")
    await eventually(lambda: brokers[0].log("t", 0).log_end_offset == 3, "it is filled")
    running = brokers[0].log("t", 0)
    assert running.log_dir != bad_dir
    assert await brokers[0].bring_back(bad_dir) == ["set aside t-0"]
    assert brokers[0].log("t", 0) is running
    [stray] = brokers[0].logs.describe()[brokers[0].dirs.index(bad_dir)].strays
    assert (stray.topic, stray.partition) == ("t", 0)
    await world.fill(1, 100)
    assert same_data("t", 0, brokers)


async def moved_away_from(world: Any, broker: Broker) -> tuple[Path, Path]:
    """Half a move of t-0 is made when its source fails: (source, target)."""
    await world.configure(4, "", replica_alter_log_dirs_io_max_bytes_per_second="1")
    source, target = broker.log("t", 0).log_dir, broker.other_dir()
    await broker.alter(target)
    await trio.sleep(1)
    assert await lost(world, broker, leader=-1) == source
    return source, target


async def test_the_copy_of_a_move_whose_source_fails_is_kept_and_the_move_goes_on_when_the_source_is_back(
    autojump_clock: Any, world: Any
) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(3, 500_000, acks=1)
    source, target = await moved_away_from(world, broker)
    [kept] = broker.logs.describe()[broker.dirs.index(target)].kept
    assert (kept.topic, kept.partition, kept.path.parent) == ("t", 0, target)
    assert await broker.bring_back(source) == ["resume the move t-0"]
    assert not broker.logs.describe()[broker.dirs.index(target)].kept
    await world.configure(4, "", replica_alter_log_dirs_io_max_bytes_per_second=None)
    await eventually(lambda: broker.log("t", 0).log_dir == target, "the move ends", within_s=60)
    assert broker.log("t", 0).log_end_offset == 3


async def test_a_kept_copy_can_be_promoted_and_what_comes_back_is_set_aside(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(3, 500_000, acks=1)
    source, target = await moved_away_from(world, broker)
    [kept] = broker.logs.describe()[broker.dirs.index(target)].kept
    assert kept.log_end_offset < 3
    promoted = await broker.replicas.promote_copy(kept.path)
    assert broker.log("t", 0) is promoted and promoted.directory == target / "t-0"
    await eventually(lambda: world.state("t", 0).directory_of(0) == broker.logs.directory_id_of(target), "it is reported")
    assert await broker.bring_back(source) == ["set aside t-0"]
    assert broker.log("t", 0) is promoted
    [stray] = broker.logs.describe()[broker.dirs.index(source)].strays
    with pytest.raises(ReplicaConflict, match="has a working log"):
        await broker.replicas.promote_copy(stray.path)


async def test_a_kept_copy_can_be_dropped(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(3, 500_000, acks=1)
    source, target = await moved_away_from(world, broker)
    [kept] = broker.logs.describe()[broker.dirs.index(target)].kept
    broker.logs.drop_copy(kept.path, 0)
    assert not broker.logs.describe()[broker.dirs.index(target)].kept
    broker.logs.remove_expired(10**15)
    assert not list(target.glob("t-0*"))
    with pytest.raises(ReplicaConflict, match="there is no kept copy"):
        broker.logs.drop_copy(kept.path, 0)
    assert await broker.bring_back(source) == ["serve t-0"]


async def test_a_stray_can_be_promoted_to_the_log_of_a_replica_that_lost_its_own(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(3, 100, acks=1)
    log = broker.log("t", 0)
    log.flush()
    stray = broker.other_dir() / "t-0.00000000000000000000000000000000-stray"
    shutil.copytree(log.directory, stray)
    broker.crash()
    await broker.restart()
    await lost(world, broker, leader=-1)
    assert (await broker.replicas.promote_copy(stray)).log_end_offset == 3
    await world.change("t", 0, leader=0)
    assert (await broker.produce("t", 0, batch(), acks=1)).error == ErrorCode.NONE


async def test_a_copy_goes_with_its_topic(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.fill(3, 500_000, acks=1)
    _, target = await moved_away_from(world, broker)
    await world.delete_topic("t")
    assert not broker.logs.describe()[broker.dirs.index(target)].kept
    broker.logs.remove_expired(10**15)
    assert not list(target.glob("t-0*"))


async def test_another_disk_in_its_place_does_not_come_back(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [1, 0])
    bad_dir = await lost(world, brokers[0])
    cluster_id = meta_properties.read(bad_dir).cluster_id
    aside = bad_dir.with_name("aside")
    bad_dir.rename(aside)
    with pytest.raises(LogDirUnusable, match="is its disk mounted"):
        await brokers[0].bring_back(bad_dir)
    bad_dir.mkdir()
    with pytest.raises(LogDirUnusable, match="is not formatted"):
        await brokers[0].bring_back(bad_dir)
    meta_properties.write(bad_dir, MetaProperties(cluster_id, 0, random_uuid()))
    (bad_dir / "u-0").mkdir()
    with pytest.raises(LogDirUnusable, match="is another disk with replicas"):
        await brokers[0].bring_back(bad_dir)
    (bad_dir / "u-0").rmdir()
    other = next(path for path in brokers[0].dirs if path != bad_dir)
    shutil.copy(other / "meta.properties", bad_dir / "meta.properties")
    with pytest.raises(LogDirUnusable, match="one is a copy"):
        await brokers[0].bring_back(bad_dir)
    shutil.rmtree(bad_dir)
    aside.rename(bad_dir)
    assert await brokers[0].bring_back(bad_dir) == ["serve t-0"]
    with pytest.raises(LogDirUnusable, match="is not offline"):
        brokers[0].logs.open_again(bad_dir)


async def test_a_disk_that_still_fails_stays_offline_and_names_the_next_step(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [1, 0])
    bad_dir = await lost(world, brokers[0])
    with monkeypatch.context() as patched:
        patched.setattr(meta_properties, "check_formatted", failing(errno.EIO))
        with pytest.raises(
            LogDirUnusable, match=r"failed: .*Input/output error; it stays offline until its disk is repaired and"
        ):
            await brokers[0].bring_back(bad_dir)
    assert bad_dir in brokers[0].logs.offline_dirs
    assert await brokers[0].bring_back(bad_dir) == ["serve t-0"]


async def test_a_directory_may_fail_and_come_back_again_and_again(autojump_clock: Any, world: Any) -> None:
    """Errors of its old logs do not take the directory offline again."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    for _ in range(3):
        await world.fill(1, 100)
        old = brokers[0].log("t", 0)
        bad_dir = await lost(world, brokers[0])
        await brokers[0].bring_back(bad_dir)
        with pytest.raises(Exception, match="bad disk") as raised:
            old.flush()
        assert brokers[0].logs.is_over(raised.value)
        await eventually(lambda: len(world.state("t", 0).isr) == 2, "it is in sync again")
        await world.change("t", 0, leader=0)
    assert same_data("t", 0, brokers)


async def test_a_new_disk_that_was_formatted_takes_the_place_of_a_dead_one(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [1, 0])
    await world.fill(3, 100)
    bad_dir = await lost(world, brokers[0])
    before = brokers[0].logs.directory_id_of(bad_dir)
    cluster_id = meta_properties.read(bad_dir).cluster_id
    shutil.rmtree(bad_dir)
    meta_properties.write(bad_dir, MetaProperties(cluster_id, 0, random_uuid()))
    await brokers[0].bring_back(bad_dir)
    assert brokers[0].logs.directory_id_of(bad_dir) not in (before, None)
    await eventually(lambda: world.state("t", 0).isr == (1, 0), "the replica is filled again")
    assert same_data("t", 0, brokers)
    place = brokers[0].log("t", 0).directory_id
    await eventually(lambda: world.state("t", 0).directory_of(0) == place, "its directory is reported")


class Published:
    """The metadata that the broker has published."""

    def __init__(self, world: Any) -> None:
        self._world = world

    @property
    def image(self) -> Any:
        return self._world.image

    @property
    def offset(self) -> int:
        offset: int = self.image.provenance.offset
        return offset

    async def wait_for(self, offset: int) -> None:
        while self.offset < offset:  # noqa: ASYNC110 - the world has no event for it
            await trio.sleep(0.01)


class Registered:
    """Registers the directory that comes back."""

    def __init__(self, world: Any, broker: Broker) -> None:
        self._world, self._broker = world, broker
        self.returned: list[Any] = []

    def is_reported(self, directory_id: bytes) -> bool:
        return True

    def directory_returned(self, directory_id: bytes) -> None:
        assert self._broker.partition("t", 0).log is not None, "the registration comes last"
        self.returned.append(directory_id)
        self._world.nursery.start_soon(self._world.commit, self._world.registration(self._broker))


def returns_of(world: Any, broker: Broker) -> tuple[DirectoryReturns, Registered, list[str]]:
    lifecycle, steps = Registered(world, broker), list[str]()

    async def given_up(path: Path) -> None:
        steps.append("given up")

    returns = DirectoryReturns(
        *(broker.logs, broker.replicas, lifecycle, Published(world), on_the_loop, given_up),  # type: ignore[arg-type]
        lambda path: steps.append("returned"),
    )
    return returns, lifecycle, steps


async def test_the_return_waits_for_the_controller_and_registers_last(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.fill(3, 100)
    bad_dir = brokers[0].log("t", 0).log_dir
    await brokers[0].lose(bad_dir)
    returns, lifecycle, steps = returns_of(world, brokers[0])
    done = trio.Event()

    async def bring_back() -> None:
        assert [repr(action) for action in await returns.bring_online(bad_dir)] == ["serve t-0"]
        done.set()

    world.nursery.start_soon(bring_back)
    await trio.sleep(1)
    assert (steps, lifecycle.returned) == (["given up"], [])
    await world.change("t", 0, isr=(1,), leader=1)
    await done.wait()
    assert (steps, lifecycle.returned) == (["given up", "returned"], [brokers[0].logs.directory_id_of(bad_dir)])
    assert await returns.bring_online(bad_dir) == [], "there is nothing to do any more"


@pytest.mark.parametrize("ends", ["by its time", "by its caller"])
async def test_a_return_that_ends_early_changes_nothing_and_can_be_repeated(autojump_clock: Any, world: Any, ends: str) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    bad_dir = brokers[0].log("t", 0).log_dir
    await brokers[0].lose(bad_dir)
    returns, lifecycle, _ = returns_of(world, brokers[0])
    if ends == "by its time":
        with pytest.raises(LogDirUnusable, match=r"still counts on what was lost with it \(t-0\)"):
            await returns.bring_online(bad_dir)
    else:
        with trio.move_on_after(1):
            await returns.bring_online(bad_dir)
    assert bad_dir in brokers[0].logs.offline_dirs and not lifecycle.returned
    await world.change("t", 0, isr=(1,), leader=1)
    await returns.bring_online(bad_dir)
    assert bad_dir not in brokers[0].logs.offline_dirs
