"""A finished snapshot that is damaged on the disk of a running leader: noticed at the next request, and written again."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.quorum.driver import snapshot_copies, snapshot_taker
from kraftlab.quorum.driver.errors import NoSnapshot
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.snapshot_file import snapshot_name
from kraftlab.quorum.storage.snapshot_store import SnapshotStore, verify_file

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]

OPTIONS = {"snapshot_max_new_bytes": 1 << 40, "snapshot_max_interval_ms": 0, "raft": {"snapshots_kept": 1}}


def damage(node: Any, taken: Any) -> Path:
    path = Path(partition_directory(node.directory)) / snapshot_name(taken)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    return path


@contextlib.asynccontextmanager
async def served(cluster: Clusters, observers: int = 1) -> AsyncIterator[tuple[Any, Any, Any, Any]]:
    """A cluster, its leader, an observer that does not run, and the leader's only snapshot."""
    async with cluster(observers=observers, **OPTIONS) as c:
        await c.fill(200)
        leader = await c.leader()
        yield c, leader, c.nodes[3], await leader.driver.take_snapshot()


def wipe(node: Any) -> None:
    for path in Path(partition_directory(node.directory)).iterdir():
        path.unlink()


def said(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if what in record.getMessage()]


async def test_a_damaged_snapshot_is_not_served_but_written_again_at_its_position(
    cluster: Clusters, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(cluster) as (c, leader, observer, taken):
        path = damage(leader, taken)
        damaged = path.read_bytes()
        caplog.set_level(logging.INFO)
        await observer.start()
        await c.committed(taken.offset, observer)
        [line] = said(caplog, "is damaged on its disk")
        assert str(path) in line
        assert "check the disk" in line
        assert len(said(caplog, "takes the place of")) == 1
        assert observer.journal.loaded == [taken]
        assert observer.journal.records == leader.journal.records
        assert [info.id for info in leader.driver.snapshots()] == [taken]
        assert path.read_bytes() != damaged
        assert verify_file(RealFileSystem(), str(path)).id == taken
        assert len(said(caplog, "is given up")) < 10, "no hot loop"
        assert leader.failure is None
        assert (await c.leader()) is leader


async def test_repeated_damage_to_a_snapshot_is_found_and_repaired_each_time(
    cluster: Clusters, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_copies, "CHECK_AGAIN_S", 0.0)
    async with served(cluster) as (c, leader, observer, taken):
        for times in (1, 2):
            damage(leader, taken)
            await observer.start()
            await c.committed(taken.offset, observer)
            assert len(said(caplog, "is damaged on its disk")) == times
            await observer.crash()
            wipe(observer)


async def test_a_leader_without_space_to_replace_a_damaged_snapshot_resigns(
    cluster: Clusters, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(cluster) as (c, leader, observer, taken):
        await c.committed(taken.offset)
        damage(leader, taken)
        leader.disk.full_for = ".checkpoint"
        await observer.start()
        await c.committed(taken.offset, observer)
        assert "resigned" in [what for what, _ in leader.journal.heard]
        assert leader.failure is None
        assert len(said(caplog, "cannot be written, trying again")) == 1


async def test_a_newer_snapshot_replaces_a_damaged_one_if_more_was_applied(cluster: Clusters) -> None:
    async with served(cluster) as (c, leader, observer, taken):
        damage(leader, taken)
        end_offset = await c.fill(10)
        await observer.start()
        await c.committed(end_offset, observer)
        assert [info.id.offset for info in leader.driver.snapshots()] == [end_offset]
        assert observer.journal.records == leader.journal.records


async def test_a_wiped_voter_that_every_commit_needs_starts_although_the_only_snapshot_is_damaged(cluster: Clusters) -> None:
    async with cluster(**OPTIONS) as c:
        await c.committed(await c.fill(200))
        node, wiped, _ = c.nodes
        taken = await node.driver.take_snapshot()
        for other in c.nodes:
            await other.crash()
        wipe(wiped)
        await node.start()
        await c.committed(taken.offset, node)
        damage(node, taken)
        await wiped.start()
        leader = await c.leader()
        assert leader is node
        await c.committed(await c.fill(3), node, wiped)
        assert wiped.journal.records == node.journal.records
        assert len(wiped.journal.records) == 203


async def test_the_obstacle_to_replacing_a_damaged_snapshot_is_logged_once(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(cluster) as (c, leader, observer, taken):
        damage(leader, taken)
        leader.journal.may_freeze = False
        await observer.start()
        await eventually(lambda: said(caplog, "none can be written in its place"), "the open transaction is told of")
        with pytest.raises(NoSnapshot, match="transaction"):
            await leader.driver.take_snapshot()
        assert observer.driver.applied_offset == 0
        [line] = said(caplog, "none can be written in its place")
        assert "transaction" in line
        leader.journal.may_freeze = True
        await c.committed(taken.offset, observer)


async def test_a_damaged_snapshot_is_written_again_when_a_full_disk_has_space(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_taker, "FULL_DISK_RETRY_S", 0.05)
    async with served(cluster) as (c, leader, observer, taken):
        damage(leader, taken)
        leader.disk.full_for = ".checkpoint"
        await observer.start()
        await eventually(lambda: said(caplog, "cannot be written, trying again"), "the full disk is told of")
        leader.disk.full_for = ""
        await c.committed(taken.offset, observer)
        await eventually(lambda: said(caplog, f"takes the place of {taken}"), "it is written again, by whoever leads now or not")
        await eventually(lambda: len(leader.driver.snapshots()) == 1, "the damaged one is removed")
        (written,) = (info.id for info in leader.driver.snapshots())
        assert written >= taken
        path = Path(partition_directory(leader.directory)) / snapshot_name(written)
        assert verify_file(RealFileSystem(), str(path)).id == written


async def test_a_snapshot_that_takes_long_to_check_is_served_meanwhile(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []
    is_copied = threading.Event()
    check = SnapshotStore.check

    def slow(self: SnapshotStore, position: Any, pause: Callable[[], None]) -> None:
        checks.append(position)
        is_copied.wait(20)
        check(self, position, pause)

    monkeypatch.setattr(SnapshotStore, "check", slow)
    async with served(cluster) as (c, _, observer, taken):
        await observer.start()
        await c.committed(taken.offset, observer)
        is_copied.set()
        assert checks == [taken]


async def test_a_sound_snapshot_is_checked_once_for_simultaneous_followers(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []
    check = SnapshotStore.check
    monkeypatch.setattr(
        SnapshotStore, "check", lambda self, position, pause: (checks.append(position), check(self, position, pause))[1]
    )
    async with served(cluster, observers=3) as (c, _, _, taken):
        async with trio.open_nursery() as nursery:
            for observer in c.nodes[3:]:
                nursery.start_soon(observer.start)
        await c.committed(taken.offset)
        assert checks == [taken]
        monkeypatch.setattr(snapshot_copies, "CHECK_AGAIN_S", 0.0)
        await c.nodes[3].crash()
        wipe(c.nodes[3])
        await c.nodes[3].start()
        await c.committed(taken.offset)
        assert checks == [taken, taken], "what was sound long ago need not be sound now"
