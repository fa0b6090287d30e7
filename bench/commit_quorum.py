"""Door 1: `RaftDriver.propose` in the leader's process; three driver processes on loopback, each commit fsynced by a majority."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.config.listener_security import node_security
from kraftlab.node.listener_tls import NodeTls
from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.core.types import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.driver.driver_config import DriverConfig
from kraftlab.quorum.driver.environment import this_machine
from kraftlab.quorum.driver.errors import Overloaded
from kraftlab.quorum.driver.garbage_collection import tame_interpreter
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage.file_system import RealFile, RealFileSystem
from kraftlab.wire.network import TCP, Network
from kraftlab.wire.transport import PeerServer

from .certificates import tls_properties
from .measure import CommitParameters, CommitResult, Leadership, NodeArguments, run_nodes

SYSTEM = "kraftlab"
DOOR = "quorum.propose"
VOTERS = 3
SLOW_FSYNC_MS = 5.0


def measure(parameters: CommitParameters) -> CommitResult:
    return run_nodes(__spec__.name, parameters)


def measure_slow_disk(parameters: CommitParameters) -> CommitResult:
    """Measure on disks whose fdatasync takes SLOW_FSYNC_MS longer."""
    result = measure(msgspec.structs.replace(parameters, fsync_ms=SLOW_FSYNC_MS))
    return msgspec.structs.replace(result, door=f"{DOOR}, {SLOW_FSYNC_MS:.0f} ms fsync")


class SlowFile(RealFile):
    """A file on a slow disk."""

    def __init__(self, path: str, descriptor: int, fsync_ms: float) -> None:
        super().__init__(path, descriptor)
        self._fsync_s = fsync_ms / 1000

    def fdatasync(self) -> None:
        time.sleep(self._fsync_s)
        super().fdatasync()


class SlowFileSystem(RealFileSystem):
    """Real files, with `fsync_ms` more for each fdatasync."""

    def __init__(self, fsync_ms: float) -> None:
        self._fsync_ms = fsync_ms

    def open(self, path: str, *, create: bool = False) -> SlowFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SlowFile(path, os.open(path, flags, 0o644), self._fsync_ms)


class Commits(Leadership):
    """A state machine that keeps nothing and wakes the writers of committed batches."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, trio.Event] = {}

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        for batch in batches:
            waiter = self.waiting.pop(batch.end_offset, None)
            if waiter is not None:
                waiter.set()

    def freeze(self) -> None:
        """Return nothing: there is no state to keep."""

    def read_snapshot(self, bodies: Iterable[bytes]) -> None:
        pass

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: None) -> None:
        pass


class Workload:
    """The measurement itself, on the leader."""

    def __init__(self, driver: RaftDriver, commits: Commits, parameters: CommitParameters) -> None:
        self._driver = driver
        self._commits = commits
        self._parameters = parameters
        record = [1000, 0, bytes(parameters.record_bytes)]
        self._small = msgspec.msgpack.encode([record])
        self._bulk = msgspec.msgpack.encode([record] * parameters.bulk_records)

    async def commit(self, body: bytes, record_count: int) -> None:
        while True:
            try:
                _, end_offset = self._driver.propose(self._commits.epoch, body, record_count)
            except Overloaded:
                await trio.sleep(0.001)
                continue
            committed = self._commits.waiting[end_offset] = trio.Event()
            await committed.wait()
            return

    async def timed_ms(self, body: bytes, record_count: int) -> float:
        started = time.perf_counter()
        await self.commit(body, record_count)
        return (time.perf_counter() - started) * 1000

    async def commits_per_second(self, in_flight: int) -> float:
        deadline = time.perf_counter() + self._parameters.seconds
        done = 0

        async def keep_committing() -> None:
            nonlocal done
            while time.perf_counter() < deadline:
                await self.commit(self._small, 1)
                done += 1

        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(keep_committing)
        return done / (time.perf_counter() - started)

    async def run(self) -> CommitResult:
        for _ in range(self._parameters.warm_up_commits):
            await self.commit(self._small, 1)
        serial: list[float] = []
        deadline = time.perf_counter() + self._parameters.seconds
        while time.perf_counter() < deadline:
            serial.append(await self.timed_ms(self._small, 1))
        throughput = {count: await self.commits_per_second(count) for count in self._parameters.in_flight}
        bulk = [await self.timed_ms(self._bulk, self._parameters.bulk_records) for _ in range(self._parameters.bulk_runs)]
        return CommitResult.of(SYSTEM, DOOR, serial, throughput, bulk)


async def node(arguments: NodeArguments) -> None:
    index, parameters = arguments.index, arguments.parameters
    endpoints = [{"CONTROLLER": Endpoint("127.0.0.1", port)} for port in arguments.ports]
    voters = VoterSet(tuple(Voter(ReplicaKey(number), endpoints[number]) for number in range(VOTERS)))
    raft = RaftConfig(node_id=index, directory_id=bytes([index + 1]) * 16, voters=voters, endpoints=endpoints[index])
    commits = Commits()
    file_system = SlowFileSystem(parameters.fsync_ms) if parameters.fsync_ms else RealFileSystem()
    network = network_of(index, endpoints[index], parameters.certificates)
    config = DriverConfig(cluster_id="bench", directory=arguments.directory, raft=raft)
    driver = RaftDriver(config, commits, file_system, this_machine(network))
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.run)
        server = PeerServer(driver.identity, driver.handlers(), network)
        await nursery.start(server.serve, "127.0.0.1", arguments.ports[index])
        tame_interpreter()
        nursery.start_soon(lead, driver, commits, arguments.report, parameters)
        await trio.to_thread.run_sync(sys.stdin.buffer.read)
        await driver.stop()
        nursery.cancel_scope.cancel()


def network_of(index: int, at: dict[str, Endpoint], certificates: str) -> Network:
    """Return the network between controllers: under TLS if there are certificates."""
    if not certificates:
        return TCP
    values = tls_properties(Path(certificates), f"controller-{index}", "CONTROLLER:SSL")
    return NodeTls(node_security(values, "bench", at), at).network("CONTROLLER")


async def lead(driver: RaftDriver, commits: Commits, report: int, parameters: CommitParameters) -> None:
    """Measure if this node leads; the other nodes only follow."""
    await commits.leads.wait()
    result = await Workload(driver, commits, parameters).run()
    os.write(report, msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    trio.run(node, msgspec.json.decode(sys.argv[1], type=NodeArguments))
