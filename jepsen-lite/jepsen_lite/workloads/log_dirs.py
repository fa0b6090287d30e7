"""Replicas that move between the log directories of their brokers under load, on real processes.

A key is a topic of one partition. `append` produces a new record once and waits for all in-sync replicas; `move` lets one broker
move its replica to another directory; `get` reads the partition from its beginning to the high watermark. Records go over the
brokers' peer protocol, which simulated brokers do not speak. `crash_images` tests every crash of the mover itself in memory, with
every possible loss of power; this workload tests the whole cluster under kills.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import Uuid, from_text
from kraftlab.metadata.peer_rpc import (
    Api,
    FetchPartition,
    ProduceRequest,
    ProduceResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import Record, build_batch, decode_records, iterate
from kraftlab.wire.frames import FrameError

from ..checkers.findings import Findings
from ..checkers.stats import Stats
from ..generators import Context, Invocation, Source, mix
from ..history import FAIL, INFO, OK, Op
from ..outcomes import error_name
from ..verdicts import Verdict
from ..workload import CallFailed, Completion, DataPort, Options, Port, Run, Workload
from .callers import Caller, create_topics, ended, placed_on, repeated_until_ok, topic_on

KEYS = 4
REPLICAS = 2
ROTTEN = "the checksum of the read data is wrong"
_FETCH_BYTES = 1 << 20
_FETCHES_MAX = 100
"""Per read."""


def workload() -> Workload:
    return Workload(
        "log-dirs",
        MovingClient,
        _generator,
        lambda _: [repeated_until_ok(Invocation("get", key)) for key in _keys()],
        lambda _: (Stats(), MovedData()),
        setup=_setup,
        collect=_collect,
        log=False,
        not_in={"simulated": "simulated brokers keep no records"},
        summary="replicas move between log directories under writes: no record is lost, duplicated or reordered",
    )


def _keys() -> list[str]:
    return [f"log-dirs-{number}" for number in range(KEYS)]


async def _setup(options: Options, port: Port) -> None:
    await create_topics(options, port, [topic_on(key, placed_on(port, REPLICAS)) for key in _keys()])


def _generator(options: Options) -> Source:
    def append(context: Context) -> Invocation:
        return Invocation("append", context.random.choice(_keys()), f"{context.process}-{context.random.getrandbits(64):x}")

    def move(context: Context) -> Invocation:
        return Invocation("move", context.random.choice(_keys()), context.random.randrange(REPLICAS))

    def get(context: Context) -> Invocation:
        return Invocation("get", context.random.choice(_keys()))

    return mix(append, move, get, weights=(20, 1, 1))


class Place(NamedTuple):
    topic_id: Uuid
    leader: Endpoint
    cluster_id: str


class MovingClient:
    """The client of one process."""

    def __init__(self, options: Options, process: int) -> None:
        self._options = options
        self._caller = Caller(options, process)
        self.places: dict[str, Place] = {}

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        if invocation.f == "move":
            return await self._move(port, invocation.key, placed_on(port, REPLICAS)[int(str(invocation.value))])
        try:
            place = await self._place(port, invocation.key)
        except CallFailed as failed:
            return Completion(FAIL, error=f"not sent, the leader is unknown: {failed.error}", node=failed.node)
        data = cast(DataPort, port)
        append = invocation.f == "append"
        ended = await (self._append(data, place, str(invocation.value)) if append else self._get(data, place))
        if ended.outcome != OK:
            self.places.pop(invocation.key, None)
        return ended

    async def _place(self, port: Port, key: str) -> Place:
        """Return the leader of the key's partition, from the metadata. CallFailed."""
        if key not in self.places:
            cluster = (await self._caller.read(port, "DescribeCluster", pb.DescribeClusterRequest())).response
            request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[key]))
            [topic] = (await self._caller.read(port, "DescribeTopicPartitions", request)).response.topics
            peers = {broker.broker_id: Endpoint(broker.peer_host, broker.peer_port) for broker in cluster.brokers}
            leader = peers.get(topic.partitions[0].leader_id) if topic.partitions else None
            if leader is None:
                raise CallFailed(FAIL, "no running broker leads it")
            self.places[key] = Place(from_text(topic.topic_id), leader, cluster.cluster_id)
        return self.places[key]

    async def _append(self, port: DataPort, place: Place, value: str) -> Completion:
        timeout_ms = self._options.timeout_ms
        batch = build_batch([Record(None, value.encode(), 1)])
        request = ProduceRequest(place.topic_id, 0, -1, timeout_ms, memoryview(batch))
        try:
            answer = await self.ask(port, place, Api.PRODUCE, request)
        except ConnectionRefusedError:
            return Completion(FAIL, error="never sent, the connection was refused")
        except (OSError, FrameError, ApiError) as error:
            return Completion(INFO, error=f"{type(error).__name__}")
        response = msgspec.msgpack.decode(answer, type=ProduceResponse)
        if response.error:
            return Completion(INFO, error=error_name(response.error))
        return Completion(OK, response.base_offset)

    async def _get(self, port: DataPort, place: Place) -> Completion:
        """Return [offset, value] of all records. An answer may be empty although there are more records, for example during a
        swap of the log.
        """
        records: list[tuple[int, str]] = []
        offset = 0
        for _ in range(_FETCHES_MAX):
            wanted = FetchPartition(place.topic_id, 0, -1, offset, -1, -1, _FETCH_BYTES)
            try:
                request = ReplicaFetchRequest(-1, -1, 0, 0, _FETCH_BYTES, (wanted,))
                answer = await self.ask(port, place, Api.REPLICA_FETCH, request)
            except (OSError, FrameError, ApiError) as error:
                return Completion(FAIL, error=f"{type(error).__name__}")
            response = msgspec.msgpack.decode(answer, type=ReplicaFetchResponse)
            code = response.error or (response.partitions[0].error if response.partitions else 0)
            if code or not response.partitions:
                return Completion(FAIL, error=error_name(code))
            found = response.partitions[0]
            try:
                fetched = [record for record in decode_records(found.records) if offset <= record.offset < found.high_watermark]
            except CorruptBatch as error:
                return Completion(FAIL, error=f"{ROTTEN}: {error}")
            records += [(record.offset, (record.value or b"").decode()) for record in fetched]
            # Compaction may have left a batch without records.
            ends = [header.end_offset for _, header in iterate(found.records)]
            offset = min(ends[-1], found.high_watermark) if ends else offset
            if offset >= found.high_watermark:
                return Completion(OK, [list(record) for record in records])
        return Completion(FAIL, error=f"{_FETCHES_MAX} fetches did not return all records")

    async def ask(self, port: DataPort, place: Place, api: int, request: msgspec.Struct) -> memoryview:
        """Send a peer request once. OSError, FrameError, ApiError."""
        return await port.ask_peer(place.leader, api, msgspec.msgpack.encode(request), self._options.timeout_ms)

    async def _move(self, port: Port, key: str, broker: int) -> Completion:
        """Move the replica to another working directory of that broker. The answer means that the move has begun."""
        described = await _described(self._caller, port, broker)
        here = {path for path, topic, is_future in described if topic == key and not is_future}
        others = sorted({path for path, _, _ in described} - here)
        if not here or not others:
            return Completion(FAIL, error="not sent, the broker has no replica or no other directory", node=broker)
        path = self._caller.random.choice(others)
        replica = pb.AlterReplicaLogDirTopic(name=key, partitions=[0])
        request = pb.AlterReplicaLogDirsRequest(dirs=[pb.AlterReplicaLogDir(path=path, topics=[replica])])
        reply = await port.call("AlterReplicaLogDirs", request, node=broker, timeout_ms=self._options.timeout_ms)
        return ended(reply, path, code=reply.response.results[0].partitions[0].error_code)


async def _described(caller: Caller, port: Port, broker: int) -> list[tuple[str, str, bool]]:
    """Return (directory, topic, is a copy being made) for one broker; an empty directory has the topic "". CallFailed."""
    request = pb.DescribeLogDirsRequest()
    reply = await port.call("DescribeLogDirs", request, node=broker, timeout_ms=caller.options.timeout_ms)
    found = [(result.log_dir, "", False) for result in reply.response.results if not result.error_code]
    for result in reply.response.results:
        for topic in result.topics:
            found += [(result.log_dir, topic.name, partition.is_future_key) for partition in topic.partitions]
    return found


async def _collect(options: Options, port: Port) -> dict[str, Any]:
    """Return the final directories of replicas: broker → [directory, topic, is a copy being made], or the error of the broker."""
    caller = Caller(options, 0, "collect")
    places: dict[str, Any] = {}
    for broker in placed_on(port, REPLICAS):
        try:
            places[str(broker)] = [list(item) for item in await _described(caller, port, broker) if item[1]]
        except CallFailed as failed:
            places[str(broker)] = failed.error
    return {"places": places}


class MovedData:
    """Acknowledged records are at their offsets, once; records that failed or were never appended are absent; records that a read
    returned stay; each broker has one current copy of each replica. Records of followers beyond those of leaders are not checked.
    "unknown" if a partition could not be read, or a broker not asked, in the final phase.
    """

    name = "moved-data"

    def check(self, run: Run) -> Verdict:
        findings, checked, lost, missing, unsure = Findings(), 0, 0, [], []
        for op in run.history.of("get"):
            if op.error.startswith(ROTTEN):
                findings.add("rotten", f"a read of {op.key}: {op.error}", [op.index])
        for key, history in run.history.of("append", "get").by_key().items():
            reads = [op for op in history if op.f == "get" and op.outcome == OK]
            if not reads or reads[-1].invoked_ns < run.healed_ns:
                missing.append(key)
                continue
            lost += judge(key, [op for op in history if op.f == "append"], reads, findings)
            checked += 1
        if missing:
            unsure.append(f"{', '.join(missing)} could not be read at the end")
        for broker, places in run.data.get("places", {}).items():
            if isinstance(places, str):
                unsure.append(f"the log directories of broker {broker} could not be described at the end: {places}")
                continue
            for key in _keys():
                count = sum(topic == key and not is_future for _, topic, is_future in places)
                if count != 1:
                    findings.add("copies", f"broker {broker} has {count} current copies of {key}")
        return findings.verdict(
            self.name, checked=checked, nothing="no partition could be read at the end", unsure="; ".join(unsure), lost=lost
        )


def judge(key: str, appends: Sequence[Op], reads: Sequence[Op], findings: Findings) -> int:
    """Return the number of acknowledged records that are gone."""
    last = reads[-1]
    final = [(offset, value) for offset, value in last.result]
    at = dict(final)
    seen: dict[str, int] = {}
    for offset, value in final:
        if value in seen:
            findings.add("doubled", f"{value} is in {key} at {seen[value]} and at {offset}", [last.index])
        seen[value] = offset
    lost = 0
    for op in appends:
        if op.outcome == OK and at.get(op.result) != op.value:
            is_gone = op.value not in seen
            lost += is_gone
            what = "is missing" if is_gone else f"is at {seen[op.value]}"
            findings.add("lost" if is_gone else "moved", f"{op.value}, acknowledged at {op.result} of {key}, {what}", [op.index])
        if op.outcome == FAIL and op.value in seen:
            findings.add("failed", f"{op.value} certainly failed but is in {key} at {seen[op.value]}", [op.index])
    for value in seen.keys() - {op.value for op in appends}:
        findings.add("unexpected", f"{value!r} is in {key} at {seen[value]}, but no operation appended it there", [last.index])
    for read in reads:
        if [tuple(record) for record in read.result] != final[: len(read.result)]:
            findings.add("changed", f"a read of {key} returned records that are not there at the end", [read.index, last.index])
    return lost
