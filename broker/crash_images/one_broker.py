"""A broker with the partition that moves, on virtual time: the real logs, mover, partition and replica manager; the metadata and
its controller are a few lines.

The broker is alone, unless a script gives it leaders to follow: what it acknowledges it holds alone, so nobody can make up for
what it loses. Disk work is done on the event loop, one piece after the other; what is in between (the controller's answer, the
next chunk) takes virtual time, in which clients append.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import trio
from trio.testing import MockClock

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import BrokerConfig, build
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, PartitionImage, Provenance
from kraftlab.metadata.peer_rpc import (
    Api,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResult,
)
from kraftlab.metadata.records import AnyRecord, Config, Listener, PartitionChange, RegisterBroker, Topic
from kraftlab.metadata.records import Partition as PartitionRecord
from kraftlab.metadata.uuids import UNASSIGNED, Uuid
from kraftlab.quorum.driver.errors import first_cause

from ..api.log_dirs import LogDirsApi
from ..control.alter_partition import AlterPartitionManager
from ..control.directory_assignments import DirectoryAssignments
from ..control.dynamic_configs import DynamicConfigs
from ..control.metadata_publisher import MetadataPublisher, Publication
from ..log.disks import Disks
from ..log.errors import LogDirFailed
from ..log.log_manager import LogManager
from ..log.partition_log import LogConfig, PartitionLog
from ..log.record_batch import Record, build_batch
from ..log.startup import AssignedReplica
from ..moves.mover import Mover
from ..replica_manager import ReplicaManager
from ..replication.fetcher import Fetchers, FetchLimits
from ..replication.partition import Partition
from .other_brokers import STEP_S, THIRD, OtherBroker, OtherBrokers, on_the_loop

BROKER_ID = 0
CLUSTER_ID = "crash-images-0000000001"
TOPIC, TOPIC_ID, NUMBER = "t", b"crash-images-t-0", 0
PLAIN_NAME = f"{TOPIC}-{NUMBER}"
SEGMENT_BYTES = 300
_MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_RESOURCE_TOPIC, _RESOURCE_BROKER = 2, 4
_SETTLED_WITHIN_S = 60.0
_PATIENT_AFTER_S, _PATIENT_STEP_S = 2.0, 0.1
"""What takes that long is not looked at as often."""


class NotSettled(Exception):
    """A move or a directory assignment did not end in a long time; the text says which."""


def directory_id(disk: Path) -> Uuid:
    """Of a disk, by its name."""
    return disk.name.encode().rjust(16, b"-")


def format_disks(disks: Sequence[Path]) -> None:
    """Log directories that hold nothing yet."""
    for disk in disks:
        disk.mkdir(parents=True)
        meta_properties.write(disk, MetaProperties(CLUSTER_ID, BROKER_ID, directory_id(disk)))


def open_logs(disks: Sequence[Path]) -> LogManager:
    """LogError."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    return LogManager.open(disks, node_id=BROKER_ID, cluster_id=CLUSTER_ID, config=config, delete_delay_ms=0)


def start_logs(logs: LogManager, assigned: Uuid) -> None:
    """The start-up plan, as of metadata that place the replica so. LogError."""
    logs.start([AssignedReplica(TOPIC, TOPIC_ID, NUMBER, assigned, is_counted_on=True)], 0)


@functools.cache
def _config() -> BrokerConfig:
    values = {
        "process.roles": "broker",
        "node.id": str(BROKER_ID),
        "controller.quorum.voters": "3000@127.0.0.1:1",
        "listeners": "PEER://127.0.0.1:2,GRPC://127.0.0.1:3",
        "log.dirs": "/nowhere",
    }
    return build(values, "crash images", "broker", BrokerConfig)


class OneBroker:
    """`run` is how. `note` hears what the controller is told and has committed: "asked" and "committed", with the directory."""

    def __init__(self, disks: Sequence[Path], assigned: Uuid, leader_epoch: int, note: Callable[[str, object], None]) -> None:
        self.disks_by_id = {directory_id(disk): disk for disk in disks}
        self.image: MetadataImage = EMPTY
        self._note = note
        self._failures: list[LogDirFailed] = []
        self._publishing = trio.StrictFIFOLock()
        self._nursery: trio.Nursery
        self.logs = open_logs(disks)
        try:
            self._build()
            self._append(
                RegisterBroker(
                    0,
                    BROKER_ID,
                    b"incarnation-0000",
                    0,
                    (Listener("PEER", "memory", 1),),
                    fenced=False,
                    log_dirs=tuple(sorted(self.logs.directory_ids().values())),
                ),
                Topic(0, TOPIC, TOPIC_ID),
                Config(0, _RESOURCE_TOPIC, TOPIC, "segment.bytes", str(SEGMENT_BYTES)),
                PartitionRecord(
                    *(0, NUMBER, TOPIC_ID, (BROKER_ID,), (BROKER_ID,)),
                    leader=BROKER_ID,
                    leader_epoch=leader_epoch,
                    partition_epoch=leader_epoch,
                    directories=(assigned,),
                ),
            )
            start_logs(self.logs, assigned)
        except BaseException:
            self.logs.abandon()
            raise

    def _build(self) -> None:
        disks = Disks(self._failures.append, on_the_loop)
        self.configs = configs = DynamicConfigs(_config())
        changes = AlterPartitionManager(self, BROKER_ID, lambda: 0)
        self.assignments = DirectoryAssignments(self, BROKER_ID, lambda: 0, lambda: self.replicas.image)
        self.replicas = ReplicaManager(BROKER_ID, lambda: 0, self.logs, disks, configs, changes, self.assignments, 30.0)
        self.mover = Mover(disks, self.logs, configs.move_gate, self.assignments.assign, 1)
        self.others = OtherBrokers()
        self._fetchers = Fetchers(self.replicas, self.others, FetchLimits())
        self.replicas.attach(self._fetchers, self.mover)
        self._api = LogDirsApi(self.replicas, MetadataPublisher((), lambda: None))

    async def start(self, nursery: trio.Nursery) -> None:
        """The replicas take their parts, and moves that were found go on."""
        self._nursery = nursery
        await nursery.start(self._fetchers.run)
        await nursery.start(self.mover.run)
        nursery.start_soon(self.assignments.run)
        image = self.image
        await self._publish(Publication(EMPTY, image, changes_between(EMPTY, image), True))

    # -- the metadata ---------------------------------------------------------------------------------------------------------

    def _append(self, *records: AnyRecord) -> Publication:
        offset = self.image.provenance.offset
        delta = MetadataDelta(self.image)
        delta.replay_all(records, offset)
        before, self.image = self.image, delta.apply(Provenance(offset + len(records), 1, 0))
        return Publication(before, self.image, delta.changes(), False)

    async def _publish(self, publication: Publication) -> None:
        async with self._publishing:
            self.configs.update(publication)
            await self.replicas.apply(publication)

    async def commit(self, *records: AnyRecord) -> None:
        await self._publish(self._append(*records))

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        """The controller: it takes every assignment, and the broker hears of that a little later."""
        assert api == Api.ASSIGN_REPLICAS_TO_DIRS, f"nobody else is asked anything, but API {api} was"
        [wish] = msgspec.msgpack.decode(body, type=AssignReplicasToDirsRequest).assignments
        self._note("asked", wish.directory_id)
        await trio.sleep(2 * STEP_S)
        directories = (wish.directory_id, *self.state.directories[1:])
        publication = self._append(PartitionChange(0, NUMBER, TOPIC_ID, directories=directories))
        self._note("committed", wish.directory_id)
        await trio.sleep(2 * STEP_S)
        self._nursery.start_soon(self._publish, publication)
        result = DirectoryAssignmentResult(TOPIC_ID, NUMBER, 0)
        return msgspec.msgpack.encode(AssignReplicasToDirsResponse(0, None, (result,)))

    @property
    def state(self) -> PartitionImage:
        """What the metadata says of the partition."""
        state = self.image.topics.partition(TOPIC_ID, NUMBER)
        assert state is not None
        return state

    @property
    def assigned(self) -> Uuid:
        """Where the metadata has the replica."""
        return self.state.directories[0]

    # -- what clients and operators do ------------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        return self.replicas.partitions[TOPIC_ID, NUMBER]

    @property
    def log(self) -> PartitionLog | None:
        """What is served, None while the replica is offline."""
        return self.partition.log

    async def produce(self, value: str) -> tuple[int, bytes]:
        """Appends one record: (end offset, the batch as it lies in the log). LogError, ReplicaError."""
        batch = build_batch([Record(b"key", value.encode(), 1000)])
        base, end, _ = await self.partition.append_as_leader(batch, keep_offsets=False)
        return end, self.partition.online_log().read(base, len(batch))

    async def alter(self, path: str) -> int:
        """AlterReplicaLogDirs: the error code."""
        topic = pb.AlterReplicaLogDirTopic(name=TOPIC, partitions=[NUMBER])
        response = await self._api.alter(pb.AlterReplicaLogDirsRequest(dirs=[pb.AlterReplicaLogDir(path=path, topics=[topic])]))
        assert isinstance(response, pb.AlterReplicaLogDirsResponse)
        return response.results[0].partitions[0].error_code

    async def new_leader_epoch(self) -> None:
        await self.commit(PartitionChange(0, NUMBER, TOPIC_ID, leader=BROKER_ID))

    async def follow(
        self, leader_id: int, directory: Path, batches: Sequence[bytes], heard: Callable[[int], None]
    ) -> OtherBroker:
        """That broker leads from now on. It has these batches, and keeps its log in a new directory; `heard` as in `OtherBroker`.
        Nobody reaches who led before.
        """
        replicas = (BROKER_ID, leader_id, THIRD)
        other = OtherBroker(leader_id, directory, (TOPIC, TOPIC_ID, NUMBER), self.state, heard)
        for port in range(leader_id):
            self.others.remove(port)
        self.others.add(leader_id, other)
        publication = self._append(
            RegisterBroker(
                0, leader_id, b"incarnation-%04d" % leader_id, 0, (Listener("PEER", "memory", leader_id),), fenced=False
            ),
            PartitionChange(
                *(0, NUMBER, TOPIC_ID, replicas, leader_id, replicas), directories=(self.assigned, UNASSIGNED, UNASSIGNED)
            ),
        )
        await other.lead(self.state, batches)
        await self._publish(publication)
        return other

    async def limit_moves(self, bytes_per_second: int) -> None:
        await self.commit(Config(0, _RESOURCE_BROKER, "", _MOVE_RATE, str(bytes_per_second)))

    async def disk_failed(self) -> None:
        """What a broker does when it has met a failed disk."""
        while self._failures:
            failure = self._failures.pop()
            self.logs.mark_offline(failure.log_dir, failure)
            await self.replicas.directory_failed(failure.log_dir)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """NotSettled if it does not become true."""
        patient_from = trio.current_time() + _PATIENT_AFTER_S
        with trio.move_on_after(_SETTLED_WITHIN_S) as scope:
            while not holds():  # noqa: ASYNC110 - virtual time, and no event for what is waited for
                await trio.sleep(STEP_S if trio.current_time() < patient_from else _PATIENT_STEP_S)
        if scope.cancelled_caught:
            raise NotSettled(f"{what}: not within {_SETTLED_WITHIN_S:g} s")

    async def settle(self) -> None:
        """Moves have ended, and the metadata names the directory where the replica is. NotSettled."""
        await self.until(self._is_settled, f"moves {list(self.mover.moves.values())}, {self.assignments.pending} assignments")

    def _is_settled(self) -> bool:
        log = self.log
        is_named = log is None or self.assigned == log.directory_id
        return not self.mover.moves and not self.assignments.pending and is_named


def run(make: Callable[[], OneBroker], work: Callable[[OneBroker], Awaitable[None]]) -> OneBroker:
    """Runs a broker on virtual time while the work goes on; then it is gone as by kill -9. What either raises is raised."""

    async def with_broker() -> OneBroker:
        broker = make()
        try:
            async with trio.open_nursery() as nursery:
                await broker.start(nursery)
                await work(broker)
                nursery.cancel_scope.cancel()
        finally:
            broker.logs.abandon()
        return broker

    try:
        return trio.run(with_broker, clock=MockClock(autojump_threshold=0))
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
