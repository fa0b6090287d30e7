"""Fixtures for the driver's tests: identities, waiting for a condition, disks that misbehave, and clusters in one process."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.core.types import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.driver import full_disk, storage_tasks
from kraftlab.quorum.driver.driver_config import DriverConfig
from kraftlab.quorum.driver.errors import NotLeader
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage.bootstrap import write_bootstrap
from kraftlab.quorum.storage.errors import FsyncFailed, StorageFull
from kraftlab.quorum.storage.file_system import File, RealFileSystem, translate
from kraftlab.wire.transport import PeerIdentity, PeerServer

from ...helpers.waiting import eventually as wait

CLUSTER_ID = "driver-test-cluster"
FIRST_ELECTION_TIMEOUT_MS = 25
"""Election timeout of one voter of each cluster: nearly every test waits for a leader first, without the others' longer timeouts.
"""


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is tried again after 50 ms."""
    for module in (full_disk, storage_tasks):
        monkeypatch.setattr(module, "FULL_DISK_RETRY_S", 0.05)


@pytest.fixture
def identity() -> Callable[..., PeerIdentity]:
    """Return a function that makes a node's identity, by default of the same cluster and generation."""

    def make(node_id: int, cluster_id: str = CLUSTER_ID, generation: int = 0) -> PeerIdentity:
        return PeerIdentity(cluster_id, generation, ReplicaKey(node_id, bytes([node_id]) * 16))

    return make


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Return a function that waits for a condition and fails with its name after a deadline."""
    return wait


class MoodyFile:
    """A real file on a disk that can be full, stuck or broken."""

    def __init__(self, file: File, disk: MoodyDisk) -> None:
        self._file = file
        self._disk = disk
        self.path = file.path

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._file.pread(size_bytes, position)

    def pwrite(self, data: bytes, position: int) -> None:
        if self._disk.full or self._disk.read_only or (self._disk.full_for and self._disk.full_for in self.path):
            raise StorageFull(f"cannot write {self.path}: no space")
        self._file.pwrite(data, position)

    def preallocate(self, size_bytes: int) -> None:
        self._file.preallocate(size_bytes)

    def fdatasync(self) -> None:
        self._disk.open_for_business.wait(30)
        if self._disk.broken:
            raise FsyncFailed(f"fdatasync of {self.path} failed")
        self._file.fdatasync()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class MoodyDisk(RealFileSystem):
    """Set `full`, `read_only` or `broken`, or clear `open_for_business` to let every fdatasync wait.

    `full_for`: there is no space for files whose name contains that.
    """

    def __init__(self) -> None:
        self.full = False
        self.read_only = False
        self.full_for = ""
        self.broken = False
        self.open_for_business = threading.Event()
        self.open_for_business.set()

    def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
        if self.read_only:
            raise translate(OSError(errno.EROFS, os.strerror(errno.EROFS)), "open", path)
        return MoodyFile(super().open(path, create=create), self)


class FrozenJournal:
    """A journal's records at one offset."""

    def __init__(self, records: list[str]) -> None:
        self._records = records

    def batches(self) -> Iterator[tuple[bytes, int]]:
        for start in range(0, len(self._records), 100):
            chunk = self._records[start : start + 100]
            yield msgspec.msgpack.encode(chunk), len(chunk)


class Journal:
    """A state machine that remembers its calls, in order, and the snapshots it has loaded."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.loaded: list[OffsetAndEpoch] = []
        self.may_freeze = True
        self._before: list[str] = []
        self._end_offset = 0
        self.heard: list[tuple[str, int]] = []
        self.leads: int | None = None

    @property
    def records(self) -> list[str]:
        bodies = (batch.body for batch in self.batches if batch.body)
        return self._before + [record for body in bodies for record in msgspec.msgpack.decode(body, type=list[str])]

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        assert batches[0].base_offset == self._end_offset, "no gap"
        assert batches[-1].end_offset <= high_watermark
        self.batches += batches
        self._end_offset = batches[-1].end_offset

    def freeze(self) -> FrozenJournal | None:
        return FrozenJournal(self.records) if self.may_freeze else None

    def read_snapshot(self, bodies: Iterable[bytes]) -> list[str]:
        return [record for body in bodies for record in msgspec.msgpack.decode(body, type=list[str])]

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: list[str]) -> None:
        assert position.offset > self._end_offset, "never back"
        self.loaded.append(position)
        self.batches, self._before, self._end_offset = [], state, position.offset

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        self.heard.append(("leader", leader_id))

    async def became_leader(self, epoch: int) -> None:
        self.heard.append(("lead", epoch))
        self.leads = epoch

    async def resigned(self, epoch: int, reason: str) -> None:
        self.heard.append(("resigned", epoch))
        self.leads = None


class Node:
    """One node of a test cluster; `start` and `stop` may be repeated, its files stay."""

    def __init__(self, cluster: Cluster, node_id: int, port: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = port
        self.disk = MoodyDisk()
        self.options: dict[str, Any] = dict(cluster.options)
        """Options of its DriverConfig; `raft` is a dict of RaftConfig's."""
        self.failure: BaseException | None = None
        self._scope: trio.CancelScope | None = None
        self.down = trio.Event()

    async def start(self) -> None:
        self._make_driver()
        await self.cluster.nursery.start(self._live)

    async def start_in_vain(self) -> None:
        """Run a node whose files do not let it start; `failure` is the reason."""
        self._make_driver()
        try:
            await self.driver.run()
        except Exception as error:
            self.failure = error
        self.down.set()

    def _make_driver(self) -> None:
        self.journal = Journal()
        self.failure = None
        self.down = trio.Event()
        options = dict(self.options)
        raft = RaftConfig(
            node_id=self.node_id,
            directory_id=self.voter.key.directory_id,
            voters=VoterSet(()) if self.cluster.is_dynamic else self.cluster.voters,
            endpoints=self.voter.endpoints,
            **(self.cluster.impatience_of(self) | options.pop("raft", {})),
        )
        if self.cluster.is_dynamic:
            options["bootstrap_endpoints"] = tuple(voter.endpoints["CONTROLLER"] for voter in self.cluster.voters.voters)
        config = DriverConfig(cluster_id=CLUSTER_ID, directory=self.directory, raft=raft, **options)
        self.driver = RaftDriver(config, self.journal, self.disk)

    @property
    def directory(self) -> str:
        """The node's metadata.log.dir."""
        return str(self.cluster.directory / str(self.node_id))

    @property
    def voter(self) -> Voter:
        """The node's entry in a voter set in the log."""
        return Voter(ReplicaKey(self.node_id, bytes([self.node_id + 1]) * 16), {"CONTROLLER": Endpoint("127.0.0.1", self.port)})

    def format(self) -> None:
        """Write the first voter set of a dynamic quorum."""
        write_bootstrap(RealFileSystem(), self.directory, CLUSTER_ID, self.cluster.voters)

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.driver.run)
                    server = PeerServer(self.driver.identity, self.driver.handlers())
                    await nursery.start(server.serve, "127.0.0.1", self.port)
                    task_status.started()
        except BaseExceptionGroup as group:
            self.failure = group
        finally:
            self.down.set()

    async def stop(self) -> None:
        """Stop gracefully."""
        await self.driver.stop()
        await self.crash()

    async def crash(self) -> None:
        """End without a word to other nodes."""
        assert self._scope is not None
        self._scope.cancel()
        await self.down.wait()


class Cluster:
    """Three voters (0 to 2) and any number of observers, all in this process, on loopback and on real files.

    The voters are static, or in the log if it `is_dynamic`. `options` apply to every node.
    """

    def __init__(
        self, nursery: trio.Nursery, directory: Path, ports: list[int], is_dynamic: bool, options: dict[str, Any]
    ) -> None:
        self.nursery = nursery
        self.directory = directory
        self.is_dynamic = is_dynamic
        self.options = options
        self.nodes = [Node(self, node_id, port) for node_id, port in enumerate(ports)]
        self._impatient = random.choice(self.nodes[:3])
        if is_dynamic:
            self.voters = VoterSet.of(node.voter for node in self.nodes[:3])
            for node in self.nodes[:3]:
                node.format()
        else:
            self.voters = VoterSet.of(Voter(ReplicaKey(node.node_id), node.voter.endpoints) for node in self.nodes[:3])

    async def leader(self, *, but: Node | None = None) -> Node:
        """Wait for a node that knows that it leads."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [n for n in self.running() if n is not but and n.journal.leads is not None]
            return bool(found)

        await wait(look, "a leader")
        return found[0]

    async def followed(self, leader: Node) -> None:
        """Wait until all voters have fetched from the end of the leader's log: their disks are idle, and their next Fetch waits
        at the leader.
        """

        def has_followers() -> bool:
            quorum = leader.driver.describe()
            return len(quorum.voters) > 1 and all(voter.log_end_offset == quorum.log_end_offset for voter in quorum.voters)

        await wait(has_followers, "a leader that all voters follow")

    def impatience_of(self, node: Node) -> dict[str, Any]:
        return {"election_timeout_ms": FIRST_ELECTION_TIMEOUT_MS} if node is self._impatient else {}

    def running(self) -> list[Node]:
        return [n for n in self.nodes if hasattr(n, "driver") and not n.down.is_set()]

    def propose(self, node: Node, *records: str) -> int:
        """Propose a batch; return its end offset."""
        if node.journal.leads is None:
            raise NotLeader(-1, 0)
        return node.driver.propose(node.journal.leads, msgspec.msgpack.encode(records), len(records))[1]

    async def fill(self, count: int, start: int = 0) -> int:
        """Commit `count` batches of one record on the leader; return the end offset of the last."""
        leader = await self.leader()
        for number in range(start, start + count):
            end_offset = self.propose(leader, f"record {number}")
        await self.committed(end_offset, leader)
        return end_offset

    async def committed(self, end_offset: int, *nodes: Node) -> None:
        """Wait until the nodes (by default all that run) have applied everything below `end_offset`."""
        for node in nodes or self.running():
            await wait(
                lambda node=node: node.driver.applied_offset >= end_offset or node.failure,  # type: ignore[misc]
                f"node {node.node_id} applies {end_offset}",
            )
            if node.failure:
                raise node.failure


@pytest.fixture
def cluster(tmp_path: Path, new_port: Callable[[], int]) -> Callable[..., contextlib.AbstractAsyncContextManager[Cluster]]:
    """Return a function for `async with cluster() as c`: three voters that run; `cluster(observers=1)` adds nodes from 3 on.

    `dynamic=True`: the voters are in the log. Further options go to every node's DriverConfig. Observers are not started.
    """

    @contextlib.asynccontextmanager
    async def run(observers: int = 0, dynamic: bool = False, **options: Any) -> AsyncIterator[Cluster]:
        ports = [new_port() for _ in range(3 + observers)]
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                made = Cluster(nursery, tmp_path, ports, dynamic, options)
                for node in made.nodes[:3]:
                    await node.start()
                try:
                    yield made
                finally:
                    for node in made.nodes:
                        node.disk.open_for_business.set()
                nursery.cancel_scope.cancel()

    return run
