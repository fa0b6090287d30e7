"""Snapshots in clusters of real drivers: taken during work, loaded at the start, and copied by followers that fell behind."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from kraftlab.quorum.driver import snapshot_taker
from kraftlab.quorum.driver.errors import NoSnapshot
from kraftlab.quorum.storage.errors import FsyncFailed, StorageFull
from kraftlab.quorum.storage.file_system import File, RealFileSystem, translate
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.snapshot_file import snapshot_name
from kraftlab.quorum.storage.snapshot_store import list_snapshots
from kraftlab.wire.transport import PeerUnreachable

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]

SOON = {"snapshot_max_new_bytes": 1_000, "snapshot_max_interval_ms": 0}
ON_DEMAND = {"snapshot_max_new_bytes": 1 << 40, "snapshot_max_interval_ms": 0}
KEEP_ONE = {"raft": {"snapshots_kept": 1}}


async def fill(c: Any, count: int, start: int = 0) -> int:
    """Commit that many batches on all nodes; return the end offset."""
    end_offset = await c.fill(count, start)
    await c.committed(end_offset)
    return end_offset  # type: ignore[no-any-return]


def newest(node: Any) -> int:
    """Return the end offset of the newest snapshot that the node knows; 0 if it has none."""
    return max((info.id.offset for info in node.driver.snapshots()), default=0)


def files(node: Any) -> list[int]:
    """Return the end offsets of the snapshots on its disk."""
    return [found.offset for found in list_snapshots(RealFileSystem(), partition_directory(node.directory))]


async def test_every_node_takes_snapshots_when_enough_bytes_were_applied_and_keeps_two(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(**SOON) as c:
        for round_number in range(6):
            await fill(c, 20, round_number * 20)
            await eventually(lambda: all(files(node) for node in c.nodes), "a snapshot on every disk")
        for node in c.nodes:

            def has_settled(node: Any = node) -> bool:
                kept = [info.id.offset for info in node.driver.snapshots()]
                return len(kept) == 2 and files(node) == kept and node.driver.describe().log_start_offset == kept[0]

            await eventually(has_settled, "two are kept, and the log begins at the older one")


async def test_a_restarted_node_goes_on_from_its_newest_snapshot(cluster: Clusters) -> None:
    async with cluster(**ON_DEMAND) as c:
        await fill(c, 30)
        node = c.nodes[0]
        taken = await node.driver.take_snapshot()
        end_offset = await fill(c, 5, 30)
        await node.crash()
        await node.start()
        await c.committed(end_offset, node)
        assert node.journal.loaded == [taken]
        assert node.journal.batches[0].base_offset == taken.offset
        assert node.journal.records == [f"record {number}" for number in range(35)]


async def test_a_follower_that_was_away_for_longer_than_the_log_gets_a_snapshot(cluster: Clusters) -> None:
    async with cluster(**ON_DEMAND, **KEEP_ONE) as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await fill(c, 5)
        await follower.crash()
        await fill(c, 300, 5)
        taken = await leader.driver.take_snapshot()
        end_offset = await fill(c, 5, 305)
        await follower.start()
        await c.committed(end_offset, follower)
        assert follower.journal.loaded == [taken]
        assert follower.journal.records == leader.journal.records
        assert follower.driver.describe().log_start_offset == taken.offset
        await follower.crash()
        await follower.start()
        await c.committed(end_offset, follower)
        assert follower.journal.loaded == [taken]
        assert follower.journal.records == leader.journal.records


async def test_an_observer_with_an_empty_disk_begins_with_a_snapshot_of_many_pieces(cluster: Clusters) -> None:
    async with cluster(
        observers=1, snapshot_max_new_bytes=1 << 40, raft={"snapshots_kept": 1, "snapshot_chunk_bytes": 1_000}
    ) as c:
        await fill(c, 1_000)
        taken = await (await c.leader()).driver.take_snapshot()
        await c.nodes[3].start()
        await c.committed(taken.offset, c.nodes[3])
        assert c.nodes[3].journal.loaded == [taken]
        assert c.nodes[3].journal.records == c.nodes[0].journal.records


async def test_a_running_follower_after_a_long_partition_loads_a_snapshot_between_its_batches(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(**ON_DEMAND, **KEEP_ONE) as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await fill(c, 5)

        def fetches() -> bool:
            now = follower.driver.statistics()
            return (now.held_messages, now.core.requests_in_flight) == (0, 1)

        await eventually(fetches, "a fetch of the follower is at the leader")
        answered = follower.driver.peers.answered
        follower.driver.peers.answered = lambda *answer: answered(*answer[:-1], PeerUnreachable("the test has cut the line"))
        others = [node for node in c.nodes if node is not follower]
        last = c.propose(leader, "the last answer that is heard")
        await eventually(lambda: follower.driver.end_offset == last, "the follower appends it")
        for number in range(100):
            end_offset = c.propose(leader, f"unheard {number}")
        await c.committed(end_offset, *others)
        for node in others:
            await node.driver.take_snapshot()
        follower.driver.peers.answered = answered
        await eventually(lambda: follower.journal.loaded, "the follower gets a snapshot")
        end_offset = c.propose(await c.leader(), "after")
        await c.committed(end_offset)
        assert follower.journal.loaded[0].offset > 90
        assert follower.journal.records == leader.journal.records


async def test_nothing_new_an_open_transaction_or_a_node_that_stops_give_no_snapshot(cluster: Clusters) -> None:
    async with cluster(**ON_DEMAND) as c:
        await fill(c, 3)
        node = await c.leader()
        taken = await node.driver.take_snapshot()
        assert [info.id for info in node.driver.snapshots()] == [taken]
        with pytest.raises(NoSnapshot, match="nothing new"):
            await node.driver.take_snapshot()
        await fill(c, 1, 3)
        node.journal.may_freeze = False
        with pytest.raises(NoSnapshot, match="transaction"):
            await node.driver.take_snapshot()
        await node.stop()
        with pytest.raises(NoSnapshot, match="stopping"):
            await node.driver.take_snapshot()


async def test_a_state_machine_that_cannot_be_frozen_now_is_asked_again(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(**SOON) as c:
        node = c.nodes[0]
        node.journal.may_freeze = False
        await fill(c, 30)
        assert not node.driver.snapshots()
        node.journal.may_freeze = True
        await eventually(node.driver.snapshots, "a snapshot without anything new to apply")


async def test_an_old_snapshot_is_replaced_although_little_is_new(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(snapshot_max_interval_ms=100) as c:
        end_offset = await fill(c, 1)
        await eventually(lambda: all(newest(node) >= end_offset for node in c.nodes), "snapshots of all there is, by age")
        before = {node.node_id: node.driver.snapshots()[-1].id for node in c.nodes}
        await trio.sleep(0.25)
        assert {node.node_id: node.driver.snapshots()[-1].id for node in c.nodes} == before, "nothing new, no snapshot"
        await fill(c, 1, 1)
        await eventually(
            lambda: all(node.driver.snapshots()[-1].id > before[node.node_id] for node in c.nodes), "newer snapshots by age"
        )


class SlowState:
    """A frozen state whose second batch waits."""

    def __init__(self, gate: threading.Event, frozen: Any) -> None:
        self._gate = gate
        self._frozen = frozen

    def batches(self) -> Iterator[tuple[bytes, int]]:
        for batch in self._frozen.batches():
            yield batch
            self._gate.wait(10)


async def test_commits_and_applying_go_on_while_a_snapshot_is_written_and_do_not_get_into_it(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(**ON_DEMAND) as c:
        end_offset = await fill(c, 10)
        node = await c.leader()
        gate = threading.Event()
        freeze = node.journal.freeze
        node.journal.freeze = lambda: SlowState(gate, freeze())
        async with trio.open_nursery() as nursery:
            taken: list[Any] = []

            async def take() -> None:
                taken.append(await node.driver.take_snapshot())

            nursery.start_soon(take)
            await trio.sleep(0.05)
            await fill(c, 50, 10)
            assert not taken
            gate.set()
        assert taken[0].offset == end_offset
        node.journal.freeze = freeze
        await node.crash()
        await node.start()
        await eventually(lambda: node.journal.loaded, "the snapshot is loaded")
        assert node.journal.records[:10] == [f"record {number}" for number in range(10)]


async def test_a_disk_without_room_for_a_snapshot_costs_a_line_in_the_log_and_it_is_tried_again(
    cluster: Clusters, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(snapshot_taker, "FULL_DISK_RETRY_S", 0.05)
    async with cluster(**ON_DEMAND) as c:
        await fill(c, 10)
        node = c.nodes[0]
        node.disk.full_for = ".checkpoint"
        with pytest.raises(StorageFull):
            await node.driver.take_snapshot()
        assert "cannot be written, trying again" in caplog.text
        await fill(c, 10, 10)
        assert not files(node)
        assert not [name for name in RealFileSystem().names(partition_directory(node.directory)) if "checkpoint" in name]
        node.disk.full_for = ""
        await eventually(node.driver.snapshots, "the snapshot, later")
        assert node.failure is None


async def test_a_copy_waits_for_room_on_the_disk(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(observers=1, **ON_DEMAND, **KEEP_ONE) as c:
        await fill(c, 100)
        taken = await (await c.leader()).driver.take_snapshot()
        observer = c.nodes[3]
        observer.disk.full_for = ".checkpoint"
        await observer.start()
        await eventually(lambda: "the copy of snapshot" in caplog.text, "the full disk is noticed")
        observer.disk.full_for = ""
        await c.committed(taken.offset, observer)
        assert observer.journal.loaded == [taken]


async def test_a_node_without_a_free_descriptor_loads_the_snapshot_that_it_has_installed_when_there_is_one(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections may have taken them all, and give them back."""
    async with cluster(observers=1, **ON_DEMAND, **KEEP_ONE) as c:
        await fill(c, 100)
        taken = await (await c.leader()).driver.take_snapshot()
        observer = c.nodes[3]
        really_open, is_short = observer.disk.open, True

        def open_if_any_is_free(path: str, *, create: bool = False) -> File:
            if is_short and path.endswith(snapshot_name(taken)):
                raise translate(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open", path)
            return really_open(path, create=create)

        observer.disk.open = open_if_any_is_free
        await observer.start()
        await eventually(lambda: "cannot be loaded, trying again" in caplog.text or observer.failure, "the lack is noticed")
        is_short = False
        await c.committed(taken.offset, observer)
        assert observer.journal.loaded == [taken]


async def test_an_fsync_that_fails_while_a_snapshot_is_written_ends_the_node(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(**ON_DEMAND) as c:
        await fill(c, 3)
        node = c.nodes[0]
        node.disk.broken = True
        with contextlib.suppress(NoSnapshot):
            await node.driver.take_snapshot()
        await eventually(lambda: node.failure is not None, "the node ends")
        assert node.failure.split(FsyncFailed)[0] is not None


async def test_a_node_can_stop_while_it_writes_a_snapshot_and_while_it_reads_one(cluster: Clusters) -> None:
    async with cluster(**ON_DEMAND) as c:
        await fill(c, 500)
        node = c.nodes[0]
        freeze = node.journal.freeze

        class Tedious:
            def batches(self) -> Iterator[tuple[bytes, int]]:
                for batch in list(freeze().batches()) * 1000:
                    time.sleep(0.01)
                    yield batch

        node.journal.freeze = Tedious
        c.nursery.start_soon(swallow, node.driver.take_snapshot)
        await trio.sleep(0.1)
        started = trio.current_time()
        await node.stop()
        assert trio.current_time() - started < 2
        assert not files(node)
        await node.start()
        await node.driver.take_snapshot()


async def swallow(action: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(NoSnapshot):
        await action()


async def test_a_leader_whose_disk_is_read_only_makes_way_when_somebody_needs_its_snapshot(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(observers=1, snapshot_max_new_bytes=1 << 40, snapshot_max_interval_ms=0, raft={"snapshots_kept": 1}) as c:
        leader, observer = await c.leader(), c.nodes[3]
        end_offset = [c.propose(leader, f"record {number}") for number in range(50)][-1]
        await c.committed(end_offset)
        await leader.driver.take_snapshot()
        await eventually(lambda: leader.driver.describe().log_start_offset > 0, "the log is cut")
        leader.disk.read_only = True
        await observer.start()
        await c.committed(end_offset, observer)
        assert leader.failure is None
        assert leader.journal.leads is None
        leader.disk.read_only = False
        await c.committed(c.propose(await c.leader(), "one more"))
