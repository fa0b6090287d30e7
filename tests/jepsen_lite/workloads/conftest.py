"""A tiny in-memory cluster for workloads, correct unless a test makes it lie.

The cluster answers with the controller's own pure operations, on one state that is never lost. So every finding is a mistake of
the workload or the planted lie. Some answers are lost. Runs are in virtual time.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from jepsen_lite.committed_log import CommittedLog, LogBatch, decoded
from jepsen_lite.history import History
from jepsen_lite.scheduler import Interpreter
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import CallFailed, Options, Reply, Run
from jepsen_lite.workloads import workload_named
from jepsen_lite.worlds.trio_drive import TrioDrive
from kraftlab.admin.v1 import admin_pb2
from kraftlab.checking.facts import Observation
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.api.apis import HANDLERS
from kraftlab.controller.engine import exactly_once
from kraftlab.controller.engine.exactly_once import identity_of
from kraftlab.controller.engine.state import EMPTY_STATE, Context, ControllerState, Outcome, QuorumFacts, Settings
from kraftlab.controller.partitions.partitions import alter_partition
from kraftlab.metadata import codec
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.partitions import partition_record
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, IsrChange
from kraftlab.metadata.records import (
    RESOURCE_TOPIC,
    AnyRecord,
    BrokerRegistrationChange,
    Config,
    NoOp,
    ProducerIds,
    RegisterBroker,
    RemoveTopic,
    RequestOutcome,
    Topic,
)
from kraftlab.metadata.snapshot import image_digest, image_records
from kraftlab.quorum.core.batch import LeaderChange, encode_control
from kraftlab.rpc.calls import CALLS, WRITE
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call

CONTROLLERS = (3000, 3001, 3002)
BROKERS = (1, 2, 3, 4)
EPOCH = 1
START_MS = 1_700_000_000_000


class ReferenceCluster:
    """One state, all earlier states, and the log that made them. `lies` is called wherever a lie is possible."""

    def __init__(self, seed: str, lie: str = "", rate: float = 0.1, lost_answers: float = 0.04) -> None:
        self.random = random.Random(f"{seed}/cluster")
        self.lie, self.rate, self.lost_answers = lie, rate, lost_answers
        self.lies_told = 0
        self.settings = Settings("reference", CONTROLLERS[0], default_replication_factor=3)
        self.state: ControllerState = EMPTY_STATE
        self.states: list[ControllerState] = [EMPTY_STATE]
        self.batches: list[LogBatch] = []
        self.now_ns = lambda: 0
        self.loses_answers = False
        self._after: list[AnyRecord] = []
        self.lag = dict.fromkeys((*CONTROLLERS, *BROKERS), 0)
        self._append_control()
        self.append(self.settings.first_records())
        for broker in BROKERS:
            self._register(broker)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def now_ms(self) -> int:
        return START_MS + self.now_ns() // 1_000_000

    def lies(self, *names: str) -> bool:
        """Return True if this lie is due now."""
        if self.lie in names and self.random.random() < self.rate:
            self.lies_told += 1
            return True
        return False

    def append(self, records: Sequence[AnyRecord]) -> int:
        if records:
            body, count = codec.encode(list(records))
            base = self.end_offset
            self.batches.append(LogBatch(base, base + count, EPOCH, self.now_ms(), False, body))
            taken = [record for record in records if not (isinstance(record, RequestOutcome) and self._knows(record))]
            self.state = self.state.replay(taken, base, Provenance(base + count, EPOCH, self.now_ms()))
            self.states.append(self.state)
        return self.end_offset

    def _register(self, broker: int) -> None:
        """Register a new incarnation, which is unfenced at once."""
        at, directory = self.end_offset, (1000 + broker).to_bytes(16, "big")
        self.append([RegisterBroker(0, broker, (10_000 + at).to_bytes(16, "big"), at, log_dirs=(directory,))])
        self.append([BrokerRegistrationChange(0, broker, at, fenced=False)])

    def brokers_go_on(self) -> None:
        """Let removed brokers come back and added replicas get in sync, now and then."""
        image = self.state.image
        for broker in BROKERS:
            if broker not in image.cluster.brokers:
                self._register(broker)
        for topic_id, numbers in image.topics.reassigning.items():
            if self.random.random() < 0.2:
                self._get_in_sync(topic_id, numbers[0])

    def _get_in_sync(self, topic_id: bytes, number: int) -> None:
        image = self.state.image
        partition = image.topics.partition(topic_id, number)
        assert partition is not None
        leader = image.cluster.brokers.get(partition.leader)
        if leader is None:
            return
        everybody = tuple((replica, image.cluster.brokers[replica].epoch) for replica in partition.replicas)
        change = IsrChange(topic_id, number, partition.leader_epoch, everybody, 0, partition.partition_epoch)
        request = AlterPartitionRequest(leader.broker_id, leader.epoch, (change,))
        context = Context(self.now_ms(), self.random, self.settings, self.end_offset)
        self.append(list(alter_partition(self.state, request, context).records))

    def _knows(self, outcome: RequestOutcome) -> bool:
        """Return True if the image already has the result of this request. An image refuses a second result, so a lie has to
        leave it out.
        """
        client = self.state.image.requests.get(outcome.client_id)
        return client is not None and (client.get(outcome.sequence) is not None or client.is_too_old(outcome.sequence))

    def _append_control(self) -> None:
        body = encode_control([LeaderChange(0, CONTROLLERS[0], CONTROLLERS, CONTROLLERS)])
        self.batches.append(LogBatch(0, 1, EPOCH, self.now_ms(), True, body))
        self.state = self.state.at(Provenance(1, EPOCH, self.now_ms()))
        self.states.append(self.state)

    def log(self) -> CommittedLog:
        return decoded(self.batches)

    # -- answering -----------------------------------------------------------------------------------------------------

    def answer(self, api: str, request: Any, node: int | None) -> Reply:
        """Return the answer. CallFailed for an error of the whole request."""
        handler, is_write = HANDLERS.get(api), CALLS[api].place is WRITE
        node = CONTROLLERS[0] if node is None else node
        if handler is not None:
            handler.prepare(request, "User:ANONYMOUS")
        if not is_write:
            self.brokers_go_on()
        try:
            if is_write:
                if node in CONTROLLERS[1:]:
                    raise ApiError(ErrorCode.NOT_CONTROLLER)
                response, offset = self._write(api, handler, request)
            else:
                response, offset = self._read(api, handler, request, node)
        except ApiError as error:
            raise CallFailed("fail", error.code.name, node=node, offset=self.end_offset, epoch=EPOCH) from error
        response.header.metadata_offset = offset
        response.header.epoch = EPOCH
        response.header.leader_id = CONTROLLERS[0]
        return Reply(response, node, offset, EPOCH)

    def _write(self, api: str, handler: Any, request: Any) -> tuple[Any, int]:
        response = METHODS[api].response()
        call = Call(api, request, "User:test", "here")
        identity = identity_of(call.api, call.principal, call.request)
        now_ms = self.now_ms()
        if identity is not None and not self.lies("forgotten request"):
            answered = exactly_once.find(self.state.image.requests, identity, now_ms)
            if answered is not None:
                outcome = exactly_once.repeated(answered, response)
                if self.lies("other answer to a retry"):
                    return outcome.response, self.end_offset
                return outcome.response, outcome.reflects or self.end_offset
        quorum = QuorumFacts(CONTROLLERS, 1)
        context = Context(now_ms, self.random, self.settings, self.end_offset, quorum=lambda: quorum)
        if self.lies("ignored expectation"):
            _drop_expectations(request)
        if getattr(request, "broker_epoch", 0) and self.lies("epoch not asked for"):
            return self._give_block(request)
        outcome: Outcome[Any] = handler.run(self.state, request, context)
        if identity is not None:
            outcome = exactly_once.recorded(api, identity, outcome, self.state, now_ms)
        records = list(outcome.records)
        if api == "AllocateProducerIds" and outcome.response.producer_id_start and self.lies("block again"):
            outcome.response.producer_id_start -= outcome.response.producer_id_len
        if self.lies("lost write"):
            return outcome.response, self.end_offset + len(records)
        records = _spoiled(self, records)
        self._resurrect(records)
        if self.lies("answer before the end"):
            return outcome.response, self.append(records) - 1
        end = self.append(records)
        self.append(self._after)
        self._after = []
        return outcome.response, end

    def _give_block(self, request: Any) -> tuple[Any, int]:
        """Assign producer ids to an epoch of a broker that never existed."""
        start, name = self.state.image.next_producer_id, request.header.request_id
        block = ProducerIds(0, request.broker_id, request.broker_epoch + 1, start + 1000)
        answer = RequestOutcome(0, name.client_id, name.sequence, b"", self.now_ms(), b"\0")
        response = admin_pb2.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=1000)
        return response, self.append([block, answer])

    def _resurrect(self, records: Sequence[AnyRecord]) -> None:
        """Bring back a topic that this write removes, as if an old snapshot had been loaded."""
        for record in records:
            if isinstance(record, RemoveTopic) and self.lies("resurrected topic"):
                image = self.state.image
                topic = image.topics.by_id[record.topic_id]
                again: list[AnyRecord] = [Topic(0, topic.name, topic.topic_id)]
                again += [partition_record(topic.topic_id, number, each) for number, each in topic.partitions.items()]
                values = image.configs.get((RESOURCE_TOPIC, topic.name), {})
                again += [Config(0, RESOURCE_TOPIC, topic.name, name, value) for name, value in values.items()]
                self._after = again

    def _read(self, api: str, handler: Any, request: Any, node: int) -> tuple[Any, int]:
        header = request.header
        offset = header.min_offset
        place = len(self.states) - 1
        if header.read_mode != admin_pb2.READ_MODE_LINEARIZABLE:
            self.lag[node] = max(0, min(6, self.lag[node] + self.random.choice((-2, -1, 0, 1, 1))))
            place = max(0, place - self.lag[node])
            if offset > self.end_offset and self.lie != "lost write":
                self.append([NoOp(0)])
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
            while place + 1 < len(self.states) and self.states[place].image.provenance.offset < offset:
                place += 1
            if self.lies("goes back"):
                place = max(0, place - 8)
        claimed = self.states[place].image.provenance.offset
        if self.lies("stale read"):
            place = max(0, place - 6)
            claimed = self.states[place].image.provenance.offset
        if self.lies("false offset"):
            place = max(0, place - 6)
        response = self._run_read(api, handler, request, self.states[place])
        if self.lies("torn read"):
            _tear(response, self._run_read(api, handler, request, self.states[max(0, place - 8)]))
        return response, claimed

    def _run_read(self, api: str, handler: Any, request: Any, state: ControllerState) -> Any:
        if api in ("AddRaftVoter", "RemoveRaftVoter"):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if api in ("DescribeMetadata", "DescribeImage", "DescribeQuorum", "TransferLeadership"):
            return getattr(self, f"_{api}")(request, state)
        controller = SimpleNamespace(
            committed=state,
            settings=self.settings,
            active_controller=SimpleNamespace(leader_id=CONTROLLERS[0]),
            is_active=False,
            silences_ms=dict,
        )
        served = SimpleNamespace(controller=controller, now_ms=self.now_ms, broker=None)
        return handler.run(served, request)

    def _DescribeMetadata(self, request: Any, state: ControllerState) -> Any:
        if request.at_offset:
            state = next(each for each in reversed(self.states) if each.image.provenance.offset <= request.at_offset)
        digest = image_digest(state.image)
        offset = state.image.provenance.offset
        if self.lies("other image"):
            digest = image_digest(self.states[max(0, self.states.index(state) - 3)].image)
        reread_offset, reread = offset, digest
        if request.reread_log and self.lies("disk behind"):
            image = self.states[max(0, self.states.index(state) - 3)].image
            reread_offset, reread = image.provenance.offset, image_digest(image)
        return admin_pb2.DescribeMetadataResponse(
            offset=offset, epoch=EPOCH, image_digest=digest, reread_offset=reread_offset, reread_digest=reread
        )

    def _DescribeImage(self, request: Any, state: ControllerState) -> Any:
        if request.HasField("offset"):
            if request.offset > state.image.provenance.offset:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
            state = next(each for each in reversed(self.states) if each.image.provenance.offset <= request.offset)
        if self.lies("another past"):
            state = self.states[max(0, self.states.index(state) - 6)]
        image = state.image
        if self.lies("false past"):
            image = self.states[max(0, self.states.index(state) - 6)].image
        body = codec.encode(list(image_records(image)))[0]
        return admin_pb2.DescribeImageResponse(offset=state.image.provenance.offset, epoch=EPOCH, bodies=[body])

    def _DescribeQuorum(self, request: Any, state: ControllerState) -> Any:
        leader = CONTROLLERS[1] if self.lies("other leader") else CONTROLLERS[0]
        voters = [admin_pb2.QuorumReplica(replica_id=node, log_end_offset=self.end_offset) for node in CONTROLLERS]
        partition = admin_pb2.DescribedQuorumPartition(leader_id=leader, leader_epoch=EPOCH, high_watermark=self.end_offset)
        return admin_pb2.DescribeQuorumResponse(
            leader_id=leader,
            leader_epoch=EPOCH,
            high_watermark=self.end_offset,
            current_voters=voters,
            topics=[admin_pb2.DescribedQuorumTopic(topic_name="__cluster_metadata", partitions=[partition])],
        )

    def _TransferLeadership(self, request: Any, state: ControllerState) -> Any:
        if request.voter_id != CONTROLLERS[0]:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return admin_pb2.TransferLeadershipResponse()


def _drop_expectations(request: Any) -> None:
    for topic in getattr(request, "topics", ()):
        for partition in getattr(topic, "partitions", ()):
            partition.ClearField("expected_replicas")
            partition.ClearField("expected_partition_epoch")


def _spoiled(cluster: ReferenceCluster, records: list[AnyRecord]) -> list[AnyRecord]:
    """Return the records of a write, as changed by a lie."""
    kinds = [type(record).__name__ for record in records]
    if "Config" in kinds and len(records) > 2 and cluster.lies("half a write"):
        del records[kinds.index("Config")]
    if kinds.count("Partition") > 1 and cluster.lies("half a topic"):
        records.reverse()
        del records[[type(record).__name__ for record in records].index("Partition")]
        records.reverse()
    return records


def _tear(response: Any, older: Any) -> None:
    """Replace the first entry of an answer by one of another time."""
    for name in ("topics", "results"):
        entries, others = getattr(response, name, None), getattr(older, name, None)
        if entries and others and len(entries) > 1:
            entries[0].CopyFrom(others[0])


# -- driving --------------------------------------------------------------------------------------------------------------


class _Port:
    controllers = CONTROLLERS
    brokers = BROKERS

    def __init__(self, cluster: ReferenceCluster, seed: str, process: int) -> None:
        self._cluster = cluster
        self._random = random.Random(f"{seed}/port/{process}")
        self.now_ns, self.sleep = cluster.now_ns, trio.sleep

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        cluster, chance = self._cluster, self._random
        sent = type(request).FromString(request.SerializeToString())
        await trio.sleep(chance.expovariate(500))
        lost = chance.random() if cluster.loses_answers else 1.0
        if lost < cluster.lost_answers / 2:
            raise CallFailed("info", "lost on the way there")
        try:
            reply = cluster.answer(api, sent, node)
        except CallFailed:
            await trio.sleep(chance.expovariate(500))
            raise
        await trio.sleep(chance.expovariate(500))
        if lost < cluster.lost_answers:
            raise CallFailed("info", "lost on the way back")
        return reply


async def _play(name: str, cluster: ReferenceCluster, options: Options) -> Run:
    workload = workload_named(name)
    drive = TrioDrive(lambda process: _Port(cluster, options.seed, process), options.concurrency)
    cluster.now_ns = drive.now_ns
    interpreter = Interpreter(workload, options, drive)
    lie, cluster.lie = cluster.lie, ""
    await interpreter.setup()
    cluster.loses_answers, cluster.lie = True, lie
    await interpreter.clients()
    cluster.loses_answers = False
    healed_ns = drive.now_ns()
    await interpreter.final()
    data = await interpreter.collect()
    observations = tuple(
        Observation(
            at_ns=at, node=node, is_up=True, epoch=EPOCH, leader=CONTROLLERS[0], high_watermark=1, log_end=cluster.end_offset
        )
        for at in range(0, drive.now_ns(), 100_000_000)
        for node in CONTROLLERS
    )
    return Run(
        options=options,
        history=History(interpreter.ops),
        log=cluster.log(),
        observations=observations,
        healed_ns=healed_ns,
        ended_ns=drive.now_ns(),
        started_at_ms=START_MS,
        data=data,
    )


Played = Callable[..., tuple[ReferenceCluster, Run, dict[str, Verdict]]]


@pytest.fixture(scope="session")
def played() -> Played:
    """Play a workload against a reference cluster; return the cluster, the run and the verdicts by checker. The same arguments
    give the same run, which is played once.
    """

    @functools.cache
    def play(name: str, lie: str = "", *, rate: float = 0.1, seed: str = "1", **others: Any) -> Any:
        given = {"seed": seed, "time_s": 2.5, "rate": 150.0, "brokers": len(BROKERS), "ops_per_key": 40, **others}
        options = Options(**given)
        cluster = ReferenceCluster(seed, lie, rate)
        clock = trio.testing.MockClock(autojump_threshold=0)
        # Which of the tasks that can go on goes first is drawn, too; pytest-trio lets it be drawn from a seed.
        trio._core._run._r.seed(seed)
        run: Run = trio.run(_play, name, cluster, options, clock=clock)
        return cluster, run, {checker.name: checker.check(run) for checker in workload_named(name).checkers(options)}

    return play
