"""A disk that does not answer any more, at each kind of work in a thread: it can stop the work, never the end of the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.common.causes import only_cause
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.messages import API_OF, FetchSnapshotRequest
from kraftlab.quorum.driver import disk_threads, raft_driver, storage_tasks
from kraftlab.quorum.driver.errors import NoSnapshot
from kraftlab.quorum.storage.errors import FsyncFailed
from kraftlab.quorum.storage.snapshot_store import SnapshotStore
from kraftlab.wire.transport import PeerError, PeerIdentity, PeerPool, PeerTimeout, PeerUnreachable

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]

OPTIONS = {"snapshot_max_new_bytes": 1 << 40, "snapshot_max_interval_ms": 0, "raft": {"snapshots_kept": 1}}
STOPS_WITHIN_S = 8.0


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for the disk at a stop: these tests only check that a stop does not wait for ever."""
    for module in (disk_threads, storage_tasks):
        monkeypatch.setattr(module, "SETTLE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(raft_driver, "STOP_TIMEOUT_S", 0.2)


async def swallow(action: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(NoSnapshot):
        await action()


class Hanging:
    """A method of the store that a hung disk holds up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.began = threading.Event()
        self.returns = threading.Event()
        original = getattr(SnapshotStore, name)

        def hang(*arguments: Any, **options: Any) -> Any:
            self.began.set()
            self.returns.wait(25)
            return original(*arguments, **options)

        monkeypatch.setattr(SnapshotStore, name, hang)


async def stops(node: Any) -> None:
    with trio.move_on_after(STOPS_WITHIN_S) as scope:
        await node.stop()
    assert not scope.cancelled_caught, "the node does not stop"


async def test_a_node_stops_while_the_disk_hangs_under_its_snapshot(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(**OPTIONS) as c:
        await c.fill(10)
        node = next(node for node in c.nodes if node.journal.leads is None)
        node.disk.open_for_business.clear()
        c.nursery.start_soon(swallow, node.driver.take_snapshot)
        await trio.sleep(0.2)
        await stops(node)
        node.disk.open_for_business.set()


@pytest.mark.parametrize("name", ["check", "read"])
async def test_a_leader_stops_while_the_disk_hangs_under_a_snapshot_that_it_serves(
    cluster: Clusters, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with cluster(observers=1, **OPTIONS) as c:
        await c.fill(10)
        leader = await c.leader()
        await leader.driver.take_snapshot()
        hanging = Hanging(monkeypatch, name)
        try:
            await c.nodes[3].start()
            await eventually(hanging.began.is_set, "somebody asks for it")
            await stops(leader)
        finally:
            hanging.returns.set()


@pytest.mark.parametrize("name", ["open_part", "store_part", "verify_part"])
async def test_a_node_stops_while_the_disk_hangs_under_the_copy_of_a_snapshot(
    cluster: Clusters, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with cluster(observers=1, **OPTIONS) as c:
        await c.fill(10)
        await (await c.leader()).driver.take_snapshot()
        hanging = Hanging(monkeypatch, name)
        try:
            await c.nodes[3].start()
            await eventually(hanging.began.is_set, "the copy begins")
            await stops(c.nodes[3])
        finally:
            hanging.returns.set()


async def test_a_leader_that_ends_while_its_disk_hangs_names_the_cause_although_somebody_still_wants_its_snapshot(
    cluster: Clusters, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, identity: Callable[..., PeerIdentity]
) -> None:
    monkeypatch.setattr(disk_threads, "SETTLE_TIMEOUT_S", 0.3)
    async with cluster(**OPTIONS) as c, trio.open_nursery() as nursery:
        await c.fill(10)
        leader = await c.leader()
        taken = await leader.driver.take_snapshot()
        await c.fill(1)
        hanging = Hanging(monkeypatch, "writer")
        nursery.start_soon(swallow, leader.driver.take_snapshot)
        await eventually(hanging.began.is_set, "the disk hangs")
        epoch, pool = leader.journal.leads, PeerPool(nursery, identity(9))
        wanted = FetchSnapshotRequest(epoch, ReplicaKey(9, bytes([9]) * 16), taken, 0, 1000)
        leader.disk.broken = True
        c.propose(leader, "the last one")
        while leader.failure is None:
            with contextlib.suppress(PeerUnreachable, PeerError, PeerTimeout):
                await pool.request(
                    leader.voter.endpoints["CONTROLLER"],
                    API_OF[FetchSnapshotRequest],
                    msgspec.msgpack.encode(wanted),
                    timeout_ms=100,
                )
            await trio.sleep(0.01)
        hanging.returns.set()
        assert isinstance(only_cause(leader.failure), FsyncFailed), leader.failure
        nursery.cancel_scope.cancel()
