"""Brokers in one process, on virtual time: real logs, movers, partitions and replica managers. The network between the brokers,
the metadata and the controller are a few lines.

Disk work runs on the event loop, one piece after the other: a run is deterministic, and a recorder sees every operation in order.
A request to the controller and the publication of its result take virtual time, in which clients append.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.broker.api.data_plane import DataPlane
from kraftlab.broker.api.log_dirs import LogDirsApi
from kraftlab.broker.control.alter_partition import AlterPartitionManager
from kraftlab.broker.control.directory_assignments import DirectoryAssignments
from kraftlab.broker.control.dynamic_configs import DynamicConfigs
from kraftlab.broker.control.metadata_publisher import MetadataPublisher, Publication
from kraftlab.broker.groups.coordinator import Coordinator
from kraftlab.broker.log.disks import Arguments, Disks, Result
from kraftlab.broker.log.ending import LogEnded
from kraftlab.broker.log.errors import LogDirFailed
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.moves.mover import Mover
from kraftlab.broker.replica_manager import ReplicaManager, assigned_replicas
from kraftlab.broker.replication.fetch_service import FetchService
from kraftlab.broker.replication.fetcher import Fetchers
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import Uuid, random_uuid
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import BrokerConfig, build
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.peer_rpc import (
    Api,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResult,
    ReplicaFetchRequest,
)
from kraftlab.metadata.records import AnyRecord, Listener, PartitionChange, RegisterBroker
from kraftlab.wire.parts import InMemory, in_memory
from kraftlab.wire.transport import ANY_NODE, PeerRequest, PeerUnreachable

CLUSTER_ID = "crash-images-0000000001"
STEP_S = 0.001
"""Time that a piece of disk work takes."""
MOVE_THREADS = 2


async def on_the_loop(
    limiter: trio.CapacityLimiter | None,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Do disk work in virtual time, one piece after the other, on the thread that is recorded."""
    await trio.sleep(STEP_S)
    return work(*args, **kwargs)


def directory_id(disk: Path, broker_id: int = 0) -> Uuid:
    """The id of a broker's log directory, which follows from its name."""
    return f"{broker_id}-{disk.name}".encode().rjust(16, b"-")


def format_disks(disks: Sequence[Path], broker_id: int = 0) -> None:
    """Make empty log directories; those that are there stay as they are."""
    for disk in disks:
        if not disk.exists():
            meta_properties.write(disk, MetaProperties(CLUSTER_ID, broker_id, directory_id(disk, broker_id)))


def open_logs(disks: Sequence[Path], broker_id: int = 0, config: LogConfig | None = None) -> LogManager:
    """LogError."""
    return LogManager.open(disks, node_id=broker_id, cluster_id=CLUSTER_ID, config=config, delete_delay_ms=0)


@functools.cache
def broker_config(broker_id: int, disks: Sequence[Path], **settings: str) -> BrokerConfig:
    """A broker's configuration; a setting's name has underscores in the place of dots."""
    values = {
        "process.roles": "broker",
        "node.id": str(broker_id),
        "controller.quorum.voters": "3000@127.0.0.1:1",
        "listeners": "PEER://127.0.0.1:2,GRPC://127.0.0.1:3",
        "log.dirs": ",".join(map(str, disks)),
        "replica.lag.time.max.ms": "3000",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return build(values, "in one process", "broker", BrokerConfig)


class World:
    """Metadata, controller and network of some brokers. `note` gets the directory of each assignment when it is "asked" for, and
    again when it is "committed".
    """

    def __init__(self, nursery: trio.Nursery, note: Callable[[str, object], None] = lambda what, value: None) -> None:
        self.nursery = nursery
        self.image: MetadataImage = EMPTY
        self.brokers: dict[int, Broker] = {}
        """Running brokers, by id."""
        self.made: list[Broker] = []
        self.unreachable: set[int] = set()
        self.controller_answers = trio.Event()
        self.controller_answers.set()
        self.note = note
        self._publishing = trio.StrictFIFOLock()
        self._unpublished: deque[Publication] = deque()

    # -- metadata ---------------------------------------------------------------------------------------------------------------

    async def commit(self, *records: AnyRecord) -> None:
        """Append records to the metadata and publish them to every broker."""
        self.append(*records)
        await self.publish()

    def append(self, *records: AnyRecord) -> None:
        offset = self.image.provenance.offset
        delta = MetadataDelta(self.image)
        delta.replay_all(records, offset)
        before, self.image = self.image, delta.apply(Provenance(offset + len(records), 1, 0))
        self._unpublished.append(Publication(before, self.image, delta.changes(), False))

    @asynccontextmanager
    async def hold_publications(self) -> AsyncIterator[None]:
        """Publish records that are appended inside the block when it ends."""
        async with self._publishing:
            yield
        await self.publish()

    async def publish(self) -> None:
        """Publish appended records, in order."""
        async with self._publishing:
            while self._unpublished:
                publication = self._unpublished.popleft()
                for broker in list(self.brokers.values()):
                    await broker.publish(publication)

    def registration(self, broker: Broker) -> RegisterBroker:
        """Make the next record, which registers a broker; its offset is the broker's epoch."""
        broker.epoch = self.image.provenance.offset
        directories = tuple(sorted(broker.logs.directory_ids().values()))
        listeners = (Listener("PEER", "memory", broker.broker_id + 1), Listener("KAFKA", "memory", broker.broker_id + 9001))
        return RegisterBroker(0, broker.broker_id, random_uuid(), broker.epoch, listeners, fenced=False, log_dirs=directories)

    async def create_offsets_topic(self, partitions: int, replicas: int) -> str | None:
        """Create the topic of committed offsets; return the reason if that is not done."""
        return "the controller creates no topics here"

    def close(self) -> None:
        """End all brokers, and give back everything that they hold open."""
        for broker in self.made:
            broker.crash()

    # -- network ----------------------------------------------------------------------------------------------------------------

    async def request(
        self, endpoint: Endpoint, api: int, body: bytes, *, timeout_ms: int, channel: int = 0, node_id: int = ANY_NODE
    ) -> InMemory:
        """Carry a request from one broker to another."""
        await trio.sleep(STEP_S / 2)
        broker_id = endpoint.port - 1
        if broker_id in self.unreachable or broker_id not in self.brokers:
            raise PeerUnreachable(f"broker {broker_id} is cut off")
        handler = self.brokers[broker_id].data_plane.handlers()[api]
        is_fetch = api == Api.REPLICA_FETCH
        sender = ReplicaKey(msgspec.msgpack.decode(body, type=ReplicaFetchRequest).replica_id if is_fetch else ANY_NODE)
        return await in_memory(await handler(PeerRequest(api, 0, sender, memoryview(body), "User:ANONYMOUS", "memory")))

    async def controller(self, api: int, body: bytes, *, timeout_ms: int) -> InMemory:
        """Answer a broker's request as the controller, which takes every assignment of a directory."""
        assert api == Api.ASSIGN_REPLICAS_TO_DIRS, f"the controller takes no requests of API {api} here"
        request = msgspec.msgpack.decode(body, type=AssignReplicasToDirsRequest)
        for wanted in request.assignments:
            self.note("asked", wanted.directory_id)
        await trio.sleep(2 * STEP_S)
        await self.controller_answers.wait()
        results, records = [], []
        for wanted in request.assignments:
            state = self.image.topics.partition(wanted.topic_id, wanted.partition)
            error = ErrorCode.NONE
            if state is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif request.broker_id not in state.replicas:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                places = dict(zip(state.replicas, state.directories, strict=True)) | {request.broker_id: wanted.directory_id}
                directories = tuple(places[replica] for replica in state.replicas)
                if directories != state.directories:
                    records.append(PartitionChange(0, wanted.partition, wanted.topic_id, directories=directories))
            results.append(DirectoryAssignmentResult(wanted.topic_id, wanted.partition, error))
        if records:
            self.append(*records)
            for wanted in request.assignments:
                self.note("committed", wanted.directory_id)
            await trio.sleep(2 * STEP_S)
            self.nursery.start_soon(self.publish)
        return msgspec.msgpack.encode(AssignReplicasToDirsResponse(0, None, tuple(results)))


class Broker:
    """A broker without lifecycle and metadata log."""

    def __init__(self, world: World, config: BrokerConfig, log_config: LogConfig | None = None) -> None:
        self.world = world
        self.config = config
        self.broker_id = config.node_id
        self.dirs = config.log_dirs
        self.epoch = -1
        self.scope = trio.CancelScope()
        self.failed: list[LogDirFailed | LogEnded] = []
        """Failures that the disks reported and `give_up_failed` has not handled."""
        self._log_config = log_config
        self.open()
        world.made.append(self)

    def open(self) -> None:
        """Open the log directories and make the parts of the broker. LogError."""
        self.logs = open_logs(self.dirs, self.broker_id, self._log_config)
        self.disks = Disks(self.failed.append, on_the_loop)
        self.configs = DynamicConfigs(self.config)
        self.isr_changes = AlterPartitionManager(self, self.broker_id, lambda: self.epoch)
        self.assignments = DirectoryAssignments(self, self.broker_id, lambda: self.epoch, lambda: self.replicas.image)
        self.replicas = ReplicaManager(
            self.broker_id,
            lambda: self.epoch,
            self.logs,
            self.disks,
            self.configs,
            self.isr_changes,
            self.assignments,
            self.config.replica_lag_time_max_ms / 1000,
        )
        self.fetchers = Fetchers(self.replicas, self.world, self.config)
        threads = self.config.num_replica_alter_log_dirs_threads or MOVE_THREADS
        self.mover = Mover(self.disks, self.logs, self.configs.move_gate, self.assignments.assign, threads)
        self.replicas.attach(self.fetchers, self.mover)
        self.fetches = FetchService(self.replicas, self.configs.leader_gate)
        self.data_plane = DataPlane(self.replicas, self.fetches)
        self.groups = Coordinator(self.replicas, self.config, self.world.create_offsets_topic)
        self.log_dirs_api = LogDirsApi(self.replicas, MetadataPublisher((), lambda: None))

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> InMemory:
        """Send a request to the controller."""
        return await self.world.controller(api, body, timeout_ms=timeout_ms)

    async def start(self) -> None:
        """Take up the replicas of the image; moves that were found are resumed."""
        await self.world.nursery.start(self._run)
        image = self.world.image
        self.logs.start(assigned_replicas(image, self.broker_id), 0)
        await self.publish(Publication(EMPTY, image, changes_between(EMPTY, image), True))
        self.world.brokers[self.broker_id] = self

    async def _run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.fetchers.run)
                await nursery.start(self.mover.run)
                await nursery.start(self.groups.run)
                nursery.start_soon(self.isr_changes.run)
                nursery.start_soon(self.assignments.run)
                nursery.start_soon(self.replicas.run_lag_checks)
                nursery.start_soon(self.replicas.run_placing)
                task_status.started()

    async def publish(self, publication: Publication) -> None:
        self.configs.update(publication)
        await self.replicas.apply(publication)
        await self.groups.publish(publication)

    def crash(self) -> None:
        """End the process, with nothing flushed."""
        self.world.brokers.pop(self.broker_id, None)
        self.scope.cancel()
        self.logs.abandon()

    async def alter(self, path: object, topic: str = "t", number: int = 0) -> tuple[int, str]:
        """AlterReplicaLogDirs of one replica: its error code and message."""
        topics = [pb.AlterReplicaLogDirTopic(name=topic, partitions=[number])]
        request = pb.AlterReplicaLogDirsRequest(dirs=[pb.AlterReplicaLogDir(path=str(path), topics=topics)])
        response = await self.log_dirs_api.alter(request)
        assert isinstance(response, pb.AlterReplicaLogDirsResponse)
        [answer] = response.results[0].partitions
        return answer.error_code, answer.error_message

    async def give_up(self, failure: LogDirFailed | LogEnded) -> None:
        """Take a failed log directory, or an ended log, offline."""
        if isinstance(failure, LogEnded):
            await self.replicas.log_ended(failure)
            return
        self.logs.mark_offline(failure.log_dir, failure)
        await self.replicas.directory_failed(failure.log_dir)
