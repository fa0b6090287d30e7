"""Brokers in one process: real logs under tmp_path, an in-memory network, a controller that is a few lines of metadata,
virtual time.

Disk work runs inline, so that with `autojump_clock` a test is deterministic and takes no longer than its work.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.broker.api.data_plane import DataPlane
from kraftlab.broker.api.log_dirs import LogDirsApi
from kraftlab.broker.control.alter_partition import AlterPartitionManager
from kraftlab.broker.control.directory_assignments import DirectoryAssignments
from kraftlab.broker.control.dynamic_configs import DynamicConfigs
from kraftlab.broker.control.metadata_publisher import MetadataPublisher, Publication
from kraftlab.broker.crash_images.other_brokers import on_the_loop
from kraftlab.broker.log.disks import Disks
from kraftlab.broker.log.errors import LogDirFailed
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.record_batch import Record, build_batch
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.broker.moves.mover import Mover
from kraftlab.broker.replica_manager import ReplicaManager
from kraftlab.broker.replication.fetch_service import FetchService
from kraftlab.broker.replication.fetcher import Fetchers, FetchLimits
from kraftlab.broker.replication.partition import Partition
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import BrokerConfig, build
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, PartitionImage, Provenance
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Api,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResult,
    IsrChangeResult,
    ProduceRequest,
    ProduceResponse,
)
from kraftlab.metadata.records import (
    AnyRecord,
    BrokerRegistrationChange,
    Config,
    Listener,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from kraftlab.metadata.records import Partition as PartitionRecord
from kraftlab.metadata.uuids import UNASSIGNED, Uuid, random_uuid
from kraftlab.quorum.core.types import Endpoint, ReplicaKey
from kraftlab.wire.transport import PeerRequest, PeerUnreachable

CLUSTER_ID = "broker-tests-00000001"


class World:
    """The metadata, and everything that talks to the controller or to other brokers."""

    def __init__(self, tmp_path: Path, nursery: trio.Nursery) -> None:
        self.tmp_path = tmp_path
        self.nursery = nursery
        self.image: MetadataImage = EMPTY
        self.brokers: dict[int, Broker] = {}
        self.made: list[Broker] = []
        """All there ever were: what they hold open is given back in the end."""
        self.unreachable: set[int] = set()
        self.controller_answers = trio.Event()
        self.controller_answers.set()
        self.isr_requests: list[AlterPartitionRequest] = []
        self.directory_requests: list[AssignReplicasToDirsRequest] = []
        self.refuse_isr_with = 0
        self._publishing = trio.StrictFIFOLock()
        self._unpublished: deque[Publication] = deque()

    async def commit(self, *records: AnyRecord) -> None:
        """Appends records to the metadata and publishes them to every broker."""
        self._append(records)
        await self._publish()

    def _append(self, records: Sequence[AnyRecord]) -> None:
        offset = self.image.provenance.offset
        delta = MetadataDelta(self.image)
        delta.replay_all(records, offset)
        before, self.image = self.image, delta.apply(Provenance(offset + len(records), 1, 0))
        self._unpublished.append(Publication(before, self.image, delta.changes(), False))

    @asynccontextmanager
    async def hold_publications(self) -> AsyncIterator[None]:
        """What is appended inside is published when it ends."""
        async with self._publishing:
            yield
        await self._publish()

    def append_config(self, resource_type: int, resource: str, name: str, value: str) -> None:
        self._append([Config(0, resource_type, resource, name, value)])

    async def _publish(self) -> None:
        """In order, one after the other; whoever waits here for one's own may find that it is done."""
        async with self._publishing:
            while self._unpublished:
                publication = self._unpublished.popleft()
                for broker in list(self.brokers.values()):
                    await broker.publish(publication)

    async def add_broker(self, broker_id: int, log_dirs: int = 2, **settings: str) -> Broker:
        broker = Broker(self, broker_id, log_dirs, settings)
        self.made.append(broker)
        await self.register(broker)
        await broker.start()
        return broker

    async def register(self, broker: Broker) -> None:
        """A registration record; its offset is the broker's epoch."""
        broker.epoch = self.image.provenance.offset
        await self.commit(
            RegisterBroker(
                0,
                broker.broker_id,
                random_uuid(),
                broker.epoch,
                (Listener("PEER", "memory", broker.broker_id + 1),),
                fenced=False,
                log_dirs=tuple(sorted(broker.logs.directory_ids().values())),
            )
        )

    async def create_topic(self, name: str, *assignments: list[int]) -> Uuid:
        topic_id = random_uuid()
        partitions = [
            PartitionRecord(
                0,
                number,
                topic_id,
                tuple(replicas),
                tuple(replicas),
                leader=replicas[0],
                directories=(UNASSIGNED,) * len(replicas),
            )
            for number, replicas in enumerate(assignments)
        ]
        await self.commit(Topic(0, name, topic_id), *partitions)
        return topic_id

    async def change(self, topic: str, number: int, **fields: Any) -> None:
        await self.commit(PartitionChange(0, number, self.image.topics.by_name[topic], **fields))

    async def add_replica(self, number: int, broker_id: int) -> None:
        """Begin a move that adds a replica to a partition of topic t."""
        state = self.state("t", number)
        await self.change(
            "t",
            number,
            replicas=(*state.replicas, broker_id),
            adding_replicas=(broker_id,),
            removing_replicas=(),
            original_replicas=state.replicas,
            target_replicas=(*state.replicas, broker_id),
            directories=(*state.directories, UNASSIGNED),
        )

    async def delete_topic(self, name: str) -> None:
        await self.commit(RemoveTopic(0, self.image.topics.by_name[name]))

    async def configure(self, resource_type: int, resource: str, **values: str | None) -> None:
        await self.commit(*(Config(0, resource_type, resource, name.replace("_", "."), value) for name, value in values.items()))

    async def fence(self, broker_id: int, fenced: bool) -> None:
        await self.commit(BrokerRegistrationChange(0, broker_id, self.brokers[broker_id].epoch, fenced=fenced))

    def state(self, topic: str, number: int) -> PartitionImage:
        state = self.image.topics.partition(self.image.topics.by_name[topic], number)
        assert state is not None
        return state

    # --- network ---------------------------------------------------------------------------------------------------------

    async def request(self, endpoint: Endpoint, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        """Broker to broker; half a millisecond there and back."""
        await trio.sleep(0.0005)
        broker_id = endpoint.port - 1
        if broker_id in self.unreachable or broker_id not in self.brokers:
            raise PeerUnreachable(f"broker {broker_id} is cut off")
        handler = self.brokers[broker_id].data_plane.handlers()[api]
        return await handler(PeerRequest(api, 0, ReplicaKey(-1), body, "User:ANONYMOUS", "memory"))

    # --- controller ------------------------------------------------------------------------------------------------------

    async def controller(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        await trio.sleep(0.001)
        await self.controller_answers.wait()
        if api == Api.ALTER_PARTITION:
            return msgspec.msgpack.encode(await self._alter_partition(msgspec.msgpack.decode(body, type=AlterPartitionRequest)))
        assert api == Api.ASSIGN_REPLICAS_TO_DIRS
        return msgspec.msgpack.encode(await self._assign(msgspec.msgpack.decode(body, type=AssignReplicasToDirsRequest)))

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.isr_requests.append(request)
        results, records = [], []
        for change in request.changes:
            state = self.image.topics.partition(change.topic_id, change.partition)
            if self.refuse_isr_with or state is None:
                results.append(IsrChangeResult(change.topic_id, change.partition, self.refuse_isr_with or 3))
                continue
            if (change.partition_epoch, change.leader_epoch) != (state.partition_epoch, state.leader_epoch):
                results.append(IsrChangeResult(change.topic_id, change.partition, 95))
                continue
            isr = tuple(member for member, _ in change.isr)
            records.append(PartitionChange(0, change.partition, change.topic_id, isr=isr))
            results.append(
                IsrChangeResult(
                    change.topic_id, change.partition, 0, state.leader, state.leader_epoch, isr, 0, state.partition_epoch + 1
                )
            )
        if records:
            self._append(records)
            self.nursery.start_soon(self._publish)
        return AlterPartitionResponse(0, None, tuple(results))

    async def _assign(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        self.directory_requests.append(request)
        results, records = [], []
        for wish in request.assignments:
            state = self.image.topics.partition(wish.topic_id, wish.partition)
            if state is None or request.broker_id not in state.replicas:
                results.append(DirectoryAssignmentResult(wish.topic_id, wish.partition, 3 if state is None else 6))
                continue
            directories = tuple(
                wish.directory_id if replica == request.broker_id else directory
                for replica, directory in zip(state.replicas, state.directories, strict=True)
            )
            if directories != state.directories:
                records.append(PartitionChange(0, wish.partition, wish.topic_id, directories=directories))
            results.append(DirectoryAssignmentResult(wish.topic_id, wish.partition, 0))
        if records:
            self._append(records)
            self.nursery.start_soon(self._publish)
        return AssignReplicasToDirsResponse(0, None, tuple(results))


class ControllerChannel:
    """The broker's end of the way to the controller."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        return await self._world.controller(api, body, timeout_ms=timeout_ms)


class Broker:
    """A broker without lifecycle and metadata log."""

    def __init__(self, world: World, broker_id: int, log_dirs: int, settings: dict[str, str]) -> None:
        self.world = world
        self.broker_id = broker_id
        self.epoch = -1
        root = world.tmp_path / f"broker-{broker_id}"
        self.dirs = tuple(root / f"d{index}" for index in range(log_dirs))
        for path in self.dirs:
            if not path.exists():
                meta_properties.write(path, MetaProperties(CLUSTER_ID, broker_id, random_uuid()))
        values = {
            "process.roles": "broker",
            "node.id": str(broker_id),
            "controller.quorum.voters": "3000@127.0.0.1:1",
            "listeners": "PEER://127.0.0.1:2,GRPC://127.0.0.1:3",
            "log.dirs": ",".join(map(str, self.dirs)),
            "replica.lag.time.max.ms": "3000",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.config = build(values, "test", "broker", BrokerConfig)
        self.scope = trio.CancelScope()
        self.failed: list[LogDirFailed] = []
        self._open()

    def _open(self) -> None:
        world, config = self.world, self.config
        self.logs = LogManager.open(config.log_dirs, node_id=self.broker_id, cluster_id=CLUSTER_ID, delete_delay_ms=0)
        self.disks = Disks(self.failed.append, on_the_loop)
        self.configs = DynamicConfigs(config)
        channel = ControllerChannel(world)
        self.isr_changes = AlterPartitionManager(channel, self.broker_id, lambda: self.epoch)
        self.assignments = DirectoryAssignments(channel, self.broker_id, lambda: self.epoch, lambda: self.replicas.image)
        self.replicas = ReplicaManager(
            self.broker_id,
            lambda: self.epoch,
            self.logs,
            self.disks,
            self.configs,
            self.isr_changes,
            self.assignments,
            config.replica_lag_time_max_ms / 1000,
        )
        self.fetchers = Fetchers(self.replicas, world, FetchLimits())
        self.mover = Mover(self.disks, self.logs, self.configs.move_gate, self.assignments.assign, 2)
        self.replicas.attach(self.fetchers, self.mover)
        self.fetches = FetchService(self.replicas, self.configs.leader_gate)
        self.data_plane = DataPlane(self.replicas, self.fetches)
        self.log_dirs_api = LogDirsApi(self.replicas, MetadataPublisher((), lambda: None))

    async def start(self) -> None:
        await self.world.nursery.start(self._run)
        image = self.world.image
        assigned = [
            AssignedReplica(topic.name, topic_id, number, state.directory_of(self.broker_id) or UNASSIGNED)
            for topic_id, topic in image.topics.by_id.items()
            for number, state in topic.partitions.items()
            if self.broker_id in state.replicas
        ]
        self.logs.start(assigned, 0)
        await self.publish(Publication(EMPTY, image, changes_between(EMPTY, image), True))
        self.world.brokers[self.broker_id] = self

    async def _run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.fetchers.run)
                await nursery.start(self.mover.run)
                nursery.start_soon(self.isr_changes.run)
                nursery.start_soon(self.assignments.run)
                nursery.start_soon(self.replicas.run_lag_checks)
                task_status.started()

    async def publish(self, publication: Publication) -> None:
        self.configs.update(publication)
        await self.replicas.apply(publication)

    def crash(self) -> None:
        """The process is gone: nothing is flushed."""
        self.world.brokers.pop(self.broker_id, None)
        self.scope.cancel()
        self.logs.abandon()

    async def restart(self, *, registers: bool = True) -> None:
        """After `crash`: opens the same directories and registers anew, or is refused as long as its old session lives."""
        self.scope = trio.CancelScope()
        self._open()
        self.epoch = -1
        if registers:
            await self.world.register(self)
        await self.start()

    async def lose(self, log_dir: Path) -> None:
        """The disk of a log directory fails."""
        error = LogDirFailed(log_dir, OSError(errno.EIO, "bad disk"))
        self.logs.mark_offline(log_dir, error)
        await self.replicas.directory_failed(log_dir)

    def partition(self, topic: str, number: int) -> Partition:
        return self.replicas.partitions[self.world.image.topics.by_name[topic], number]

    def log(self, topic: str, number: int) -> Any:
        return self.partition(topic, number).online_log()

    async def produce(self, topic: str, number: int, records: bytes, acks: int = -1, **fields: Any) -> ProduceResponse:
        topic_id = self.world.image.topics.by_name[topic]
        return await self.data_plane.produce(ProduceRequest(topic_id, number, acks, 5000, records, **fields))

    def directories(self) -> set[str]:
        """Names of the replicas' directories, with the log directory in front."""
        return {f"{path.parent.name}/{path.name}" for log_dir in self.dirs for path in log_dir.iterdir() if path.is_dir()}


@pytest.fixture
async def world(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[World]:
    """Tests that use it ask for `autojump_clock` themselves, or else time is real."""
    world = World(tmp_path, nursery)
    yield world
    for broker in world.made:
        broker.crash()


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """Makes a batch of incompressible records."""

    def make(records: int = 1, size_bytes: int = 100) -> bytes:
        return build_batch([Record(timestamp_ms=1, key=b"k", value=os.urandom(size_bytes)) for _ in range(records)])

    return make


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails with its name after a deadline of virtual time."""

    async def wait(condition: Callable[[], bool], what: str, within_s: float = 10.0) -> None:
        with trio.move_on_after(within_s) as scope:
            while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
                await trio.sleep(0.002)
        assert not scope.cancelled_caught, f"not within {within_s} s: {what}"

    return wait


@pytest.fixture
def same_data() -> Callable[[str, int, Iterable[Broker]], bool]:
    """Whether all brokers hold the same batches of a partition."""

    def compare(topic: str, number: int, brokers: Iterable[Broker]) -> bool:
        digests = {broker.log(topic, number).digest() for broker in brokers}
        return len({(digest.sha256, digest.end_offset) for digest in digests}) == 1

    return compare
