"""A controller on an in-memory log: the test decides when batches commit, when leadership is lost and which node leads next."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest
import trio
import trio.testing

from kraftlab.access.authorizer import AccessSettings
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.controller.api import forwarded_frames  # noqa: F401 (loaded before its first frame)
from kraftlab.controller.api.service import ControllerService
from kraftlab.controller.cluster import brokers
from kraftlab.controller.configs import configs
from kraftlab.controller.engine.lost_connections import Probe
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.controller.engine.state import Settings
from kraftlab.controller.partitions.partitions import alter_partition
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.reassignment.listing import Observer, listing
from kraftlab.controller.topics import topics
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.image import EMPTY, BrokerImage, PartitionImage
from kraftlab.metadata.index import index_of
from kraftlab.metadata.invariants import check_image
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    IsrChange,
)
from kraftlab.metadata.peer_senders import PEER_SENDERS
from kraftlab.metadata.records import Listener
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.driver.errors import NotLeader, Overloaded
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.rpc.methods import LocalCall
from kraftlab.rpc.server import Call
from kraftlab.wire.senders import named_node
from kraftlab.wire.transport import Connection, DirectHandler, PeerError, PeerRequest

from ..helpers.partitions import directory_of, partition  # noqa: F401 (fixtures)

T = TypeVar("T")
Targets = Mapping[int, tuple[int, ...] | None]
"""Partition → target of its move, None: cancel it."""

CLUSTER_ID = "test-cluster"
FEATURES = supported_features()


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class FakeQuorum:
    """The log of one node. `propose` appends; nothing is committed before `commit`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.batches: list[CommittedBatch] = []
        self.committed_batches = 0
        self.epoch = 0
        self.leads = False
        self.overloaded = False
        self.resignations: list[tuple[int, str]] = []
        self.confirms: bool | None = True
        """True if a majority confirms the leadership to readers; None: no majority answers."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def propose(self, epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        if not self.leads or epoch != self.epoch:
            raise NotLeader(-1, self.epoch)
        if self.overloaded:
            raise Overloaded("the test says so")
        base_offset = self.end_offset
        self.batches.append(CommittedBatch(base_offset, base_offset + record_count, epoch, self.clock(), body))
        return base_offset, base_offset + record_count

    def resign(self, epoch: int, reason: str) -> None:
        self.resignations.append((epoch, reason))
        self.leads = False

    async def read_index(self) -> int:
        await trio.lowlevel.checkpoint()
        if self.confirms is None:
            await trio.sleep_forever()
        if not self.leads or not self.confirms:
            raise NotLeader(-1, self.epoch)
        if self.overloaded:
            raise Overloaded("the test says so")
        return self.batches[self.committed_batches - 1].end_offset if self.committed_batches else 0

    def control_batch(self) -> None:
        self.batches.append(CommittedBatch(self.end_offset, self.end_offset + 1, self.epoch, self.clock(), b""))


class Cluster:
    """One controller under test, with shorthands for requests of brokers and clients."""

    def __init__(self, settings: Settings | None = None, probe: Probe | None = None) -> None:
        self.clock = Clock()
        self.quorum = FakeQuorum(self.clock)
        self.settings = settings or Settings(CLUSTER_ID, 3000, max_idle_interval_ms=0)
        self.controller = QuorumController(self.settings, self.clock, random.Random(7), lambda: None, probe=probe)
        self.controller.attach(self.quorum)

    # --- the quorum ---

    async def lead(self) -> None:
        """This node wins an election. The first batch of its epoch is committed, and then the activation's records."""
        self.quorum.epoch += 1
        self.quorum.leads = True
        self.quorum.control_batch()
        await self.commit()
        await self.controller.became_leader(self.quorum.epoch)
        await self.commit()

    async def commit(self, batches: int | None = None) -> None:
        """Commit that many batches (None: all)."""
        start = self.quorum.committed_batches
        end = len(self.quorum.batches) if batches is None else start + batches
        if end > start:
            self.quorum.committed_batches = end
            await self.controller.apply(self.quorum.batches[start:end], self.quorum.batches[end - 1].end_offset)
            self.check()

    async def lose_leadership(self, *, survives: bool, leader_id: int = 3001) -> None:
        """Another node takes over. Uncommitted batches survive in the log or are truncated."""
        self.quorum.leads = False
        await self.controller.resigned(self.quorum.epoch, "another node was elected")
        if not survives:
            del self.quorum.batches[self.quorum.committed_batches :]
        self.quorum.epoch += 1
        await self.controller.leader_changed(self.quorum.epoch, leader_id, {})
        self.quorum.control_batch()
        await self.commit()

    async def done(self, answer: Answer[T]) -> T:
        """Commit everything and return the answer's value."""
        await self.commit()
        assert answer.done, "the answer waits although everything is committed"
        if answer.error is not None:
            raise answer.error
        assert answer.value is not None
        return answer.value

    async def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.controller.queue.run_due()
        await self.commit()

    def check(self) -> None:
        """The image keeps its invariants."""
        assert check_image(self.controller.committed.image) == ()
        assert check_image(self.controller.newest.image) == ()

    def check_images(self) -> None:
        """After every test: the whole log, each of its batches, or a snapshot gives the same image, and the image this index."""
        delta, committed = MetadataDelta(EMPTY), self.controller.committed.image
        for batch in self.quorum.batches[: self.quorum.committed_batches]:
            if batch.body:
                delta.replay_all(codec.decode(batch.body), batch.base_offset)
        by_log = delta.apply(committed.provenance)
        assert by_log == committed
        assert self.controller.committed.index == index_of(committed)
        if committed.transaction is None:
            by_snapshot = image_from(body for body, _ in ImageSnapshot(committed).batches())
            assert msgspec.structs.replace(by_snapshot, provenance=committed.provenance) == committed

    # --- brokers ---

    def registration(self, broker_id: int, incarnation: int = 1, **changes: object) -> BrokerRegistrationRequest:
        fields: dict[str, object] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid(broker_id * 100 + incarnation, 1),
            "listeners": (Listener("PEER", "h", 9000 + broker_id), Listener("GRPC", "h", 8000 + broker_id)),
            "features": FEATURES,
            "rack": None,
            "log_dirs": (directory(broker_id, 0),),
        }
        return BrokerRegistrationRequest(**(fields | changes))  # type: ignore[arg-type]

    async def register(self, broker_id: int, incarnation: int = 1, **changes: object) -> int:
        request = self.registration(broker_id, incarnation, **changes)
        table = self.controller.heartbeats
        answer = self.controller.write("register", lambda state, context: brokers.register(state, table, request, context))
        return (await self.done(answer)).broker_epoch

    async def heartbeat(self, broker_id: int, **changes: object) -> BrokerHeartbeatResponse:
        return await self.done(self.controller.heartbeat(self.beat(broker_id, **changes)))

    def beat(self, broker_id: int, **changes: object) -> BrokerHeartbeatRequest:
        fields: dict[str, object] = {
            "broker_id": broker_id,
            "broker_epoch": self.broker(broker_id).epoch,
            "current_metadata_offset": self.controller.applied_offset,
            "want_fence": False,
            "want_shutdown": False,
        }
        return BrokerHeartbeatRequest(**(fields | changes))  # type: ignore[arg-type]

    async def start_brokers(self, *broker_ids: int, **changes: object) -> None:
        for broker_id in broker_ids:
            await self.register(broker_id, **changes)
            response = await self.heartbeat(broker_id)
            assert not response.is_fenced

    async def stop_broker(self, broker_id: int) -> None:
        """The broker requests its fence: it leaves ISRs and leaderships at once."""
        assert (await self.heartbeat(broker_id, want_fence=True)).is_fenced

    def broker(self, broker_id: int) -> BrokerImage:
        return self.controller.newest.image.cluster.brokers[broker_id]

    # --- topics ---

    async def create(self, name: str, *replica_lists: tuple[int, ...], **values: str) -> None:
        request = admin_pb2.CreateTopicsRequest()
        topic = request.topics.add(name=name, num_partitions=-1, replication_factor=-1)
        for index, replicas in enumerate(replica_lists):
            topic.assignments.add(partition_index=index, broker_ids=replicas)
        for key, value in values.items():
            topic.configs.add(name=key.replace("_", "."), value=value)
        response = await self.write(topics.create, request)
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        topic = self.controller.newest.image.topics.get(name)
        assert topic is not None
        return topic.partitions[index]

    def state(self, name: str, index: int = 0) -> tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]:
        """(R, ISR, L, AR, RR) of a partition, as in the tables of KIP-455."""
        p = self.partition(name, index)
        return p.replicas, p.isr, p.leader, p.adding, p.removing

    async def write(self, operation: Callable[..., object], request: object) -> object:
        """Run a manager's operation through the controller and commit it."""
        return await self.done(self.controller.write("test", lambda state, context: operation(state, request, context)))

    async def set_isr(self, name: str, members: tuple[int, ...], index: int = 0, **changes: object) -> int:
        """The leader requests an ISR. Return the partition's error code."""
        topic = self.controller.newest.image.topics.get(name)
        assert topic is not None
        now = topic.partitions[index]
        sender = changes.pop("sender", now.leader)
        fields: dict[str, object] = {
            "topic_id": topic.topic_id,
            "partition": index,
            "leader_epoch": now.leader_epoch,
            "isr": tuple((broker_id, -1) for broker_id in members),
            "leader_recovery_state": now.leader_recovery_state,
            "partition_epoch": now.partition_epoch,
        }
        change = IsrChange(**(fields | changes))  # type: ignore[arg-type]
        request = AlterPartitionRequest(sender, self.broker(sender).epoch, (change,))  # type: ignore[arg-type, index]
        response = await self.write(alter_partition, request)
        assert isinstance(response, AlterPartitionResponse)
        return response.results[0].error

    @staticmethod
    def move_request(*entries: tuple[str, Targets], **options: Any) -> admin_pb2.AlterPartitionReassignmentsRequest:
        request = admin_pb2.AlterPartitionReassignmentsRequest(**options)
        for name, targets in entries:
            topic = request.topics.add(name=name)
            for index, target in targets.items():
                entry = topic.partitions.add(partition_index=index)
                if target is not None:
                    entry.replicas.SetInParent()
                    entry.replicas.values.extend(target)
        return request

    async def move(self, name: str, targets: Targets, **options: Any) -> Any:
        """Answers to the entries of one topic; target None cancels."""
        return (await self.write(reassignments.alter, self.move_request((name, targets), **options))).responses[0].partitions

    async def reassign(
        self, name: str, target: tuple[int, ...] | None, index: int = 0, *, allow_size_change: bool | None = None
    ) -> tuple[int, str]:
        """(code, text) of one entry."""
        (entry,) = await self.move(name, {index: target}, allow_replication_factor_change=allow_size_change)
        return entry.error_code, entry.error_message

    def moves(self, request: admin_pb2.ListPartitionReassignmentsRequest | None = None) -> Any:
        """The listing of moves and plans."""
        observer = Observer(self.controller.moves.progress, self.clock.now_ms, self.settings)
        return listing(self.controller.committed, request or admin_pb2.ListPartitionReassignmentsRequest(), observer)

    def listed(self, *names: str) -> list[tuple[str, int]]:
        request = admin_pb2.ListPartitionReassignmentsRequest()
        for name in names:
            request.topics.topics.add(name=name, partition_indexes=range(16))
        return [(topic.name, entry.partition_index) for topic in self.moves(request).topics for entry in topic.partitions]

    async def configure(
        self, resource_type: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
    ) -> tuple[int, str]:
        """(code, text) of one resource's change; each change is (key, operation, value)."""
        request = admin_pb2.IncrementalAlterConfigsRequest(validate_only=validate_only)
        resource = request.resources.add(resource_type=resource_type, resource_name=name)
        for key, operation, value in changes:
            resource.configs.add(name=key, config_operation=operation, value=value)
        response = await self.write(configs.alter, request)
        return response.responses[0].error_code, response.responses[0].error_message


class _Responder:
    """Keeps the reply to a peer's request: its body, or (code, text) of a refusal."""

    def __init__(self) -> None:
        self.answer: bytes | tuple[int, str] | None = None
        self.connection = Connection()
        self.on_abandoned: Callable[[], None] | None = None

    def reply(self, body: bytes) -> None:
        self.answer = body

    def refuse(self, code: int, message: str) -> None:
        self.answer = (code, message)


class ServedController:
    """The API of a controller, whose log commits once all tasks wait. `accepts`: `accept` gets a call first, as over gRPC."""

    def __init__(
        self,
        cluster: Cluster,
        accepts: bool = False,
        local: Mapping[str, LocalCall] | None = None,
        access: AccessSettings | None = None,
    ) -> None:
        self.cluster = cluster
        self.accepts = accepts
        self.accepted = 0
        """Calls that needed no task."""
        self.service = ControllerService(cluster.controller, cluster.clock, local or {}, access)

    async def send(self, call: Call, answers: list[Any]) -> None:
        """Send a call and commit nothing."""
        later = self.service.accept(call, answers.append) if self.accepts else partial(self.service.dispatch, call)
        if later is None:
            self.accepted += 1
        else:
            answers.append(await later())

    async def ask(self, call: Call) -> Any:
        """Send a call, commit, and return the answer."""
        return await self._committed(partial(self.send, call))

    async def peer(self, api: int, request: object, response_type: type[Any], sender: int | None = None) -> Any:
        """Send a request of a peer, by default the one that it names; the decoded response, or (code, text) of a refusal."""
        if sender is None:
            named = -1 if isinstance(request, bytes) else named_node(PEER_SENDERS[api], request)
            sender = 1 if named == -1 else named
        handler = self.service.peer_handlers()[api]
        body = request if isinstance(request, bytes) else msgspec.msgpack.encode(request)
        peer_request = PeerRequest(api, 0, ReplicaKey(sender), body, "User:ANONYMOUS", "test")
        responder = _Responder()

        async def send(answers: list[Any]) -> None:
            if isinstance(handler, DirectHandler):
                handler.accept(peer_request, responder)  # type: ignore[arg-type]
            else:
                try:
                    answers.append(await handler(peer_request))
                except PeerError as error:
                    answers.append((error.code, error.message))

        answer = await self._committed(send, responder)
        return answer if isinstance(answer, tuple) else msgspec.msgpack.decode(answer, type=response_type)

    async def _committed(self, send: Callable[[list[Any]], Awaitable[None]], responder: _Responder | None = None) -> Any:
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, answers)
            await trio.testing.wait_all_tasks_blocked()
            await self.cluster.commit()
        if responder is not None and responder.answer is not None:
            answers.append(responder.answer)
        [answer] = answers
        return answer


def uuid(number: int, kind: int) -> bytes:
    return bytes([kind]) + number.to_bytes(15, "big")


def directory(broker_id: int, index: int) -> bytes:
    """The id of a broker's log directory."""
    return uuid(broker_id * 10 + index, 2)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """An active controller, nothing registered."""
    made = Cluster()
    await made.lead()
    yield made
    made.check_images()


@pytest.fixture
async def small_batches() -> AsyncIterator[Cluster]:
    """As `cluster`, but a batch holds two records, except for a change that needs a batch of its own."""
    made = Cluster(Settings(CLUSTER_ID, 3000, max_idle_interval_ms=0, batch_records_max=2))
    await made.lead()
    yield made
    made.check_images()


@pytest.fixture
async def five(cluster: Cluster) -> Cluster:
    """An active controller with brokers 0 to 4, unfenced."""
    await cluster.start_brokers(0, 1, 2, 3, 4)
    return cluster


@pytest.fixture
def tools() -> type[Tools]:
    return Tools


class Tools:
    """Classes and functions for tests, since helper modules cannot be imported."""

    Cluster = Cluster
    ServedController = ServedController
    Settings = Settings
    ApiError = ApiError
    ErrorCode = ErrorCode
    cluster_id = CLUSTER_ID
    directory = staticmethod(directory)
