"""Controllers of a cluster with any number of partitions, and brokers that exist in the metadata only.

Theory of operation. The metadata is written as a snapshot into the directory of each controller of a local cluster that has not
started yet. The controllers load it as after any restart. No broker process runs, since a million partitions do not fit on one
machine. Each broker of the metadata has a port that accepts connections, and sends heartbeats while a measurement needs them. So
controllers do all of their work, and brokers do none: not the fetch of metadata, and not a single partition's log.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import msgspec
import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.config_parts import config_changes
from kraftlab.common.errors import ApiError
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.config.resources import ResourceType
from kraftlab.lab import ClusterError, LocalCluster
from kraftlab.metadata import codec
from kraftlab.metadata.peer_rpc import Api, BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlab.metadata.records import AnyRecord, Listener, RegisterBroker
from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage.bootstrap import read_bootstrap
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity, partition_directory
from kraftlab.quorum.storage.snapshot_store import SnapshotStore
from kraftlab.wire.transport import PeerIdentity, PeerPool, PeerTimeout, PeerUnreachable

from .large_metadata import records

SETTINGS = {"broker.session.timeout.ms": "3600000"}
"""No session ends while no heartbeats are sent."""
WITHIN_S = 300.0
ANSWER_WITHIN_MS = 4000
"""Time that a broker waits for the answer to a heartbeat, with the default settings."""
PAUSE_S = 0.05
"""Pause of a broker between two heartbeats of its controlled shutdown."""
LOOK_S = 0.02
SEEN_ALL = 1 << 60
"""Metadata offset of a broker that has applied everything."""


class LargeQuorum:
    """A running cluster of three controllers. `offset`: end of the metadata that they have loaded."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, ports: list[socket.socket], offset: int) -> None:
        self.cluster = cluster
        self._admin = admin
        self._ports = ports
        self._offset = offset
        self._value = 0

    def write(self) -> None:
        """Make one small write that needs no broker, a default of the whole cluster, however long no controller is active."""
        self._value += 1
        values = {"leader.replication.throttled.rate": str(1 << 20 | self._value)}
        changes = [config_changes(ResourceType.BROKER, "", values)]
        self._wait(lambda: self._admin.incremental_alter_configs(changes) is not None)

    def wait_loaded(self, *node_ids: int) -> None:
        """Wait until these controllers have loaded the metadata."""
        for node_id in node_ids:
            self._wait(partial(self._is_loaded, node_id))

    def _is_loaded(self, node_id: int) -> bool:
        endpoint = self.cluster.node(node_id).grpc
        answer = self._admin.call_at(endpoint, pb.ApiVersionsResponse, pb.ApiVersionsRequest(), timeout_ms=2000)
        return bool(answer.header.metadata_offset >= self._offset)

    def active(self) -> int:
        """Return the id of the active controller."""
        self._wait(lambda: self._admin.describe_cluster().leader_id is not None)
        return self._admin.describe_cluster().leader_id or self.active()

    def end_offset(self) -> int:
        """Return the end of the committed log."""
        return int(self._admin.describe_quorum().high_watermark)

    def resident_mib(self, node_id: int) -> float:
        """Return the memory of a controller's process."""
        with open(f"/proc/{self.cluster.pid(node_id)}/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))

    def is_fenced(self, broker_id: int) -> bool:
        """Return True once the broker leads no partition: its fence is written after the changes of its partitions."""
        brokers = self._admin.describe_cluster(include_fenced_brokers=True).brokers
        return any(broker.broker_id == broker_id and broker.is_fenced for broker in brokers)

    def _wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            with suppress(ApiError, ClusterUnreachable):
                if holds():
                    return
            time.sleep(LOOK_S)
        raise ClusterError(f"nothing happened within {WITHIN_S:g} s; see {self.cluster.directory}/logs")

    def shut_down(self, broker_id: int) -> float:
        """Return the seconds from a broker's wish to stop until it may."""
        return trio.run(self._among_heartbeats, self._shut_down, broker_id)

    def kill(self, broker_id: int) -> float:
        """Return the seconds from a broker's death until its partitions have other leaders."""
        return trio.run(self._among_heartbeats, self._kill, broker_id)

    async def _among_heartbeats(self, end: Callable[[list[PeerPool], int], Awaitable[None]], broker_id: int) -> float:
        async with trio.open_nursery() as nursery:
            pools = [
                PeerPool(nursery, PeerIdentity(self.cluster.cluster_id, 0, ReplicaKey(each, bytes(16))))
                for each in range(len(self._ports))
            ]
            await self._beat_all(pools)
            started = time.perf_counter()
            await end(pools, broker_id)
            seconds = time.perf_counter() - started
            for pool in pools:
                pool.close()
            return seconds

    async def _beat_all(self, pools: list[PeerPool]) -> None:
        for broker_id in range(len(pools)):
            await self._beat(pools, broker_id)

    async def _beat(self, pools: list[PeerPool], broker_id: int, want_shutdown: bool = False) -> bool:
        """Send one heartbeat. Return True if the broker may stop."""
        body = msgspec.msgpack.encode(BrokerHeartbeatRequest(broker_id, broker_id, SEEN_ALL, False, want_shutdown))
        controller = self.cluster.node(await trio.to_thread.run_sync(self.active)).peer
        try:
            answer = await pools[broker_id].request(controller, Api.BROKER_HEARTBEAT, body, timeout_ms=ANSWER_WITHIN_MS)
        except (PeerTimeout, PeerUnreachable):
            return False
        response = msgspec.msgpack.decode(answer, type=BrokerHeartbeatResponse)
        return not response.error and response.should_shutdown

    async def _shut_down(self, pools: list[PeerPool], broker_id: int) -> None:
        """Repeat the wish as a broker does."""
        deadline = trio.current_time() + WITHIN_S
        while not await self._beat(pools, broker_id, want_shutdown=True):
            if trio.current_time() > deadline:
                raise ClusterError(f"broker {broker_id} may not stop; see {self.cluster.directory}/logs")
            await trio.sleep(PAUSE_S)

    async def _kill(self, pools: list[PeerPool], broker_id: int) -> None:
        self._ports[broker_id].close()
        pools[broker_id].close()
        await trio.to_thread.run_sync(self._wait, lambda: self.is_fenced(broker_id))


@contextmanager
def large_quorum(directory: str, partitions: int, brokers: int) -> Iterator[LargeQuorum]:
    """Yield a cluster of three controllers that have loaded the metadata of so many partitions, and take writes."""
    with ExitStack() as stack:
        cluster = LocalCluster(directory, 3, 0, 1, overrides=SETTINGS)
        stack.callback(cluster.close)
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(brokers)]
        numbers = [port.getsockname()[1] for port in ports]
        offset = write_snapshots(cluster, (_at_ports(batch, numbers) for batch in records(partitions, brokers=brokers)))
        cluster.start()
        admin = stack.enter_context(cluster.admin(timeout_ms=round(WITHIN_S * 1000)))
        quorum = LargeQuorum(cluster, admin, ports, offset)
        quorum.wait_loaded(*cluster.controller_ids)
        quorum.write()
        yield quorum


def write_snapshots(cluster: LocalCluster, batches: Iterator[list[AnyRecord]]) -> int:
    """Write the records as a snapshot for each controller of a cluster that has not started yet. Return its end offset."""
    encoded = [codec.encode(batch) for batch in batches]
    offset, files, cluster_id = sum(count for _, count in encoded), RealFileSystem(), cluster.cluster_id
    for node_id in cluster.controller_ids:
        directory = str(cluster.metadata_dir(node_id))
        store = SnapshotStore(files, partition_directory(directory), LogIdentity(cluster_id, bytes(16)))
        voters = read_bootstrap(files, directory, cluster_id)
        writer = store.writer(OffsetAndEpoch(offset, 1), [SnapshotHeader(0, cluster_id, 0, 0, 0), *voters])
        for body, count in encoded:
            writer.append(body, count)
        writer.finish()
    return offset


def _at_ports(batch: list[AnyRecord], ports: list[int]) -> list[AnyRecord]:
    """Add the listener of each broker that the batch registers."""
    return [
        msgspec.structs.replace(record, listeners=(Listener("PEER", "127.0.0.1", ports[record.broker_id]),))
        if isinstance(record, RegisterBroker)
        else record
        for record in batch
    ]
