"""A finished snapshot that rots on the disk of a running leader: noticed when somebody asks for it, and replaced by a new one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.quorum.driver import snapshot_copies
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.snapshot_file import snapshot_name
from kraftlab.quorum.storage.snapshot_store import SnapshotStore

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]

OPTIONS = {"snapshot_max_new_bytes": 1 << 40, "snapshot_max_interval_ms": 0, "raft": {"snapshots_kept": 1}}


async def commit(c: Any, count: int) -> int:
    leader = await c.leader()
    for number in range(count):
        end_offset = c.propose(leader, f"record {number}")
    await c.committed(end_offset, leader)
    return end_offset  # type: ignore[no-any-return]


def rot(node: Any, taken: Any) -> Path:
    path = Path(partition_directory(node.directory)) / snapshot_name(taken)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    return path


def wipe(node: Any) -> None:
    for path in Path(partition_directory(node.directory)).iterdir():
        path.unlink()


async def test_a_rotten_snapshot_is_not_served_and_a_new_one_takes_its_place(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(observers=1, **OPTIONS) as c:
        await commit(c, 200)
        leader, observer = await c.leader(), c.nodes[3]
        taken = await leader.driver.take_snapshot()
        path = rot(leader, taken)
        caplog.set_level(logging.INFO)
        await observer.start()
        await eventually(lambda: "has rotted" in caplog.text, "the leader looks at what it is asked for")
        [line] = [record.getMessage() for record in caplog.records if "has rotted" in record.getMessage()]
        assert str(path) in line
        assert "check the disk" in line
        await trio.sleep(0.5)
        assert observer.driver.applied_offset == 0
        assert len([r for r in caplog.records if "is given up" in r.getMessage()]) < 10, "no hot loop"
        end_offset = await commit(c, 1)
        await c.committed(end_offset, observer)
        assert leader.driver.snapshots()[-1].id.offset == end_offset
        assert observer.journal.records == leader.journal.records
        assert [info.id.offset for info in leader.driver.snapshots()] == [end_offset]
        assert leader.failure is None
        assert (await c.leader()) is leader


async def test_a_snapshot_that_takes_long_to_check_is_served_meanwhile(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []
    check = SnapshotStore.check

    def slow(self: SnapshotStore, position: Any, pause: Callable[[], None]) -> None:
        checks.append(position)
        trio.from_thread.run(trio.sleep, 1.0)
        check(self, position, pause)

    monkeypatch.setattr(SnapshotStore, "check", slow)
    async with cluster(observers=1, **OPTIONS) as c:
        await commit(c, 200)
        leader, observer = await c.leader(), c.nodes[3]
        taken = await leader.driver.take_snapshot()
        await observer.start()
        await c.committed(taken.offset, observer)
        assert checks == [taken]


async def test_a_sound_snapshot_is_checked_once_for_all_who_come_at_the_same_time(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []
    check = SnapshotStore.check
    monkeypatch.setattr(
        SnapshotStore, "check", lambda self, position, pause: (checks.append(position), check(self, position, pause))[1]
    )
    async with cluster(observers=3, **OPTIONS) as c:
        await commit(c, 200)
        taken = await (await c.leader()).driver.take_snapshot()
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
