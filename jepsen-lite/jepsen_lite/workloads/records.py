"""Everything that happens to records at once: idempotent producers, moves between directories and brokers, and compaction.

A key is a topic of one partition with two replicas. The last topic is compacted. The last but one has records that are older than
retention keeps; the others keep all. Some records of the first have the latest timestamp that there is. `append` produces a new
record with acks=all under a producer id and a sequence, and sends the same batch again until its outcome is known: a broker must
store it once. `move` lets one replica move to another directory, `reassign` puts the partition on other brokers, `get` reads it
from its beginning to the high watermark. At the end `agree` compares the digests of all replicas. Replicas of a compacted topic
are cleaned by each broker at its own time, so only their ends are compared.

A record's value is KEY:UNIQUE. In the compacted topic a record may be missing once a later record of its key is there; in the
topic of old records, if it lies below all that is still there.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.peer_rpc import Api, LogDigestRequest, LogDigestResponse, ProduceRequest, ProduceResponse, ReplicaDigest
from kraftlab.records.record_batch import Record, build_batch
from kraftlab.wire.frames import FrameError

from ..checkers.findings import Findings
from ..checkers.stats import Stats
from ..generators import Context, Invocation, Source, mix
from ..history import FAIL, INFO, OK, Op
from ..outcomes import error_name
from ..verdicts import Verdict
from ..workload import CallFailed, Completion, DataPort, Options, Port, Run, Workload
from .callers import create_topics, ended, placed_on, repeated_until_ok, topic_on
from .log_dirs import ROTTEN, MovingClient

TOPICS = 4
FUTURE = "records-0"
COMPACTED = f"records-{TOPICS - 1}"
EXPIRING = f"records-{TOPICS - 2}"
OLD_MS = 8 * 24 * 3600 * 1000
LATEST_MS = 2**63 - 1
REPLICAS = 2
RECORD_KEYS = 12
SENT_PAUSE_S = 0.1
SENT_MAX = 40
"""Attempts at one batch. Afterwards its outcome stays unknown and its producer id is not used again."""
_FATAL = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Answers that a correct broker never gives to these producers."""


def workload() -> Workload:
    return Workload(
        "records",
        ProducingClient,
        _generator,
        lambda _: [repeated_until_ok(Invocation("get", topic), Invocation("agree", topic)) for topic in _topics()],
        lambda _: (Stats(), KeptRecords()),
        setup=_setup,
        log=False,
        not_in={"simulated": "simulated brokers keep no records"},
        properties={"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "1000"},
        summary="idempotent producers, moves, compaction, old and future records: each record is there once, in order",
    )


def _topics() -> list[str]:
    return [f"records-{number}" for number in range(TOPICS)]


async def _setup(options: Options, port: Port) -> None:
    topics = [topic_on(topic, placed_on(port, REPLICAS)) for topic in _topics()]
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.1",
    }
    keeping = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(LATEST_MS)}
    for topic in topics:
        configs = {EXPIRING: {}, COMPACTED: compacted}.get(topic.name, keeping)
        topic.configs.extend(pb.CreatableTopicConfig(name=name, value=value) for name, value in configs.items())
    await create_topics(options, port, topics)


def _generator(options: Options) -> Source:
    def append(context: Context) -> Invocation:
        value = f"{context.random.randrange(RECORD_KEYS)}:{context.process}-{context.random.getrandbits(64):x}"
        return Invocation("append", context.random.choice(_topics()), value)

    def move(context: Context) -> Invocation:
        return Invocation("move", context.random.choice(_topics()))

    def reassign(context: Context) -> Invocation:
        return Invocation("reassign", context.random.choice(_topics()))

    def get(context: Context) -> Invocation:
        return Invocation("get", context.random.choice(_topics()))

    return mix(append, move, reassign, get, weights=(60, 2, 1, 1))


def timestamp_of(topic: str, value: str, now_ms: int) -> int:
    """Timestamp of a record: old ones in the topic of old records, some of the far future in the first topic."""
    choice = zlib.crc32(value.encode()) % 4
    if topic == EXPIRING:
        return max(now_ms - OLD_MS, 0) if choice else 0
    return LATEST_MS if topic == FUTURE and not choice else now_ms


class ProducingClient(MovingClient):
    """The client of one process: one idempotent producer."""

    def __init__(self, options: Options, process: int) -> None:
        super().__init__(options, process)
        self._producer_id: int | None = None
        self._sequences: dict[str, int] = {}

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        match invocation.f:
            case "append":
                return await self._append_once(cast(DataPort, port), invocation.key, str(invocation.value))
            case "move":
                brokers = await self._replicas_of(port, invocation.key)
                return await self._move(port, invocation.key, self._caller.random.choice(brokers))
            case "reassign":
                return await self._reassign(port, invocation.key)
            case "agree":
                return await self._agree(cast(DataPort, port), invocation.key)
            case _:
                return await super().invoke(invocation, port)

    # --- appending -----------------------------------------------------------------------------------------------------------

    async def _append_once(self, port: DataPort, topic: str, value: str) -> Completion:
        """Send one batch until its outcome is known."""
        if self._producer_id is None:
            try:
                broker = self._caller.random.choice(port.brokers)
                reply = await port.call(
                    "InitProducerId", pb.InitProducerIdRequest(), node=broker, timeout_ms=self._options.timeout_ms
                )
            except CallFailed as failed:
                return Completion(FAIL, error=f"not sent, no producer id: {failed.error}", node=failed.node)
            self._producer_id, self._sequences = reply.response.producer_id, {}
        sequence = self._sequences.get(topic, 0)
        timestamp_ms = timestamp_of(topic, value, port.now_ns() // 1_000_000)
        record = Record(value.partition(":")[0].encode(), value.encode(), timestamp_ms)
        batch = build_batch([record], producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        error = ""
        for _ in range(SENT_MAX):
            response, error = await self._send(port, topic, batch)
            if response is not None and response.error == ErrorCode.NONE:
                self._sequences[topic] = sequence + 1
                return Completion(OK, response.base_offset)
            if response is not None and response.error in _FATAL:
                break
            await port.sleep(SENT_PAUSE_S)
        self._producer_id = None
        return Completion(INFO, error=error)

    async def _send(self, port: DataPort, topic: str, batch: bytes) -> tuple[ProduceResponse | None, str]:
        """Send a batch once: the answer, None without one, and the error."""
        try:
            place = await self._place(port, topic)
            request = ProduceRequest(place.topic_id, 0, -1, self._options.timeout_ms, memoryview(batch))
            answer = await self.ask(port, place, Api.PRODUCE, request)
        except (CallFailed, OSError, FrameError, ApiError) as error:
            self.places.pop(topic, None)
            return None, error.error if isinstance(error, CallFailed) else type(error).__name__
        response = msgspec.msgpack.decode(answer, type=ProduceResponse)
        if response.error:
            self.places.pop(topic, None)
        return response, error_name(response.error) if response.error else ""

    # --- moving --------------------------------------------------------------------------------------------------------------

    async def _described(self, port: Port, topic: str) -> Any:
        request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[topic]))
        [found] = (await self._caller.read(port, "DescribeTopicPartitions", request)).response.topics
        return found

    async def _replicas_of(self, port: Port, topic: str) -> list[int]:
        found = await self._described(port, topic)
        return list(found.partitions[0].replica_nodes)

    async def _reassign(self, port: Port, topic: str) -> Completion:
        """Put the partition on random brokers. The answer means that the reassignment has begun."""
        brokers = self._caller.random.sample(sorted(port.brokers), min(REPLICAS, len(port.brokers)))
        partition = pb.ReassignablePartition(partition_index=0, replicas=pb.Int32List(values=brokers))
        request = pb.AlterPartitionReassignmentsRequest(topics=[pb.ReassignableTopic(name=topic, partitions=[partition])])
        sent = await self._caller.write(port, "AlterPartitionReassignments", request)
        return ended(sent.reply, brokers, code=sent.reply.response.responses[0].partitions[0].error_code)

    # --- comparing -----------------------------------------------------------------------------------------------------------

    async def _agree(self, port: DataPort, topic: str) -> Completion:
        """Compare the replicas once all are in sync and nothing moves."""
        try:
            found = await self._described(port, topic)
            state = found.partitions[0]
            replicas = sorted(state.replica_nodes)
            if state.adding_replicas or state.removing_replicas or sorted(state.isr_nodes) != replicas:
                return Completion(FAIL, error="not all replicas are in sync, or they still move")
            cluster = (await self._caller.read(port, "DescribeCluster", pb.DescribeClusterRequest())).response
            place = await self._place(port, topic)
            peers = {broker.broker_id: Endpoint(broker.peer_host, broker.peer_port) for broker in cluster.brokers}
            wanted = msgspec.msgpack.encode(LogDigestRequest(((place.topic_id, 0),)))
            digests: dict[int, ReplicaDigest] = {}
            for broker in replicas:
                answer = await port.ask_peer(peers[broker], Api.LOG_DIGEST, wanted, self._options.timeout_ms)
                digests[broker] = msgspec.msgpack.decode(answer, type=LogDigestResponse).replicas[0]
        except (CallFailed, OSError, FrameError, ApiError, KeyError) as error:
            return Completion(FAIL, error=error.error if isinstance(error, CallFailed) else type(error).__name__)
        if any(digest.error for digest in digests.values()):
            return Completion(FAIL, error=f"no digest: {[error_name(digest.error) for digest in digests.values()]}")
        seen = {(digest.log_end_offset, b"" if topic == COMPACTED else digest.sha256) for digest in digests.values()}
        if len(seen) > 1:
            return Completion(FAIL, error=f"replicas differ: {sorted((b, d.log_end_offset) for b, d in digests.items())}")
        return Completion(OK, {"replicas": replicas, "end": digests[replicas[0]].log_end_offset})


class KeptRecords:
    """Acknowledged records are at their offsets, once, in the order of their producer; in the compacted topic they may have given
    way to a later record of their key; in the topic of old records the first may be gone. Records that certainly failed are
    absent. All replicas hold the same. "unknown" if a topic could not be read, or its replicas not compared, in the final phase.

    `compares_replicas` False is for tests of users (docs/test-your-tool.md), which record only `append` and `get`.
    """

    name = "kept-records"

    def __init__(self, *, compares_replicas: bool = True) -> None:
        self._compares_replicas = compares_replicas

    def check(self, run: Run) -> Verdict:
        findings, checked, lost, unsure = Findings(), 0, 0, []
        for op in run.history.of("get"):
            if op.error.startswith(ROTTEN):
                findings.add("rotten", f"a read of {op.key}: {op.error}", [op.index])
        for topic, history in run.history.of("append", "get", "agree").by_key().items():
            reads = [op for op in history if op.f == "get" and op.outcome == OK]
            comparisons = [op for op in history if op.f == "agree" and op.invoked_ns >= run.healed_ns]
            if not reads or reads[-1].invoked_ns < run.healed_ns:
                unsure.append(f"{topic} could not be read at the end")
                continue
            ends = [op.result["end"] for op in comparisons if op.outcome == OK and "end" in op.result]
            lost += _judge(topic, [op for op in history if op.f == "append"], reads, findings, max(ends, default=0))
            checked += 1
            if self._compares_replicas and not any(op.outcome == OK for op in comparisons):
                last = comparisons[-1] if comparisons else None
                if last is not None and last.error.startswith("replicas differ"):
                    findings.add("differ", f"{topic}: {last.error}", [last.index])
                unsure.append(f"the replicas of {topic} could not be compared: {last.error if last else 'never asked'}")
        return findings.verdict(
            self.name, checked=checked, nothing="no topic could be read at the end", unsure="; ".join(unsure), lost=lost
        )


def _judge(topic: str, appends: Sequence[Op], reads: Sequence[Op], findings: Findings, end: int) -> int:
    """Return the number of acknowledged records that are gone. `end`: that of the log after the last read."""
    last = reads[-1].index
    final = [(offset, value) for offset, value in reads[-1].result]
    at = dict(final)
    newest = {_key_of(value): offset for offset, value in final}
    start = final[0][0] if final else end

    def gave_way(offset: int, value: str) -> bool:
        if topic == EXPIRING:
            return offset < start
        return topic == COMPACTED and offset not in at and newest.get(_key_of(value), -1) > offset

    seen: dict[str, int] = {}
    for offset, value in final:
        if value in seen:
            findings.add("doubled", f"{value} is in {topic} at {seen[value]} and at {offset}", [last])
        seen[value] = offset
    lost, ends = 0, dict[int, int]()
    for op in appends:
        value = str(op.value)
        if op.outcome == FAIL and value in seen:
            findings.add("failed", f"{value} certainly failed but is in {topic} at {seen[value]}", [op.index])
        if op.outcome == INFO and op.error in {error_name(code) for code in _FATAL}:
            findings.add("refused", f"{value} was refused with {op.error}, though its producer made no error", [op.index])
        if op.outcome != OK:
            continue
        offset = cast(int, op.result)
        if at.get(offset) != value and not gave_way(offset, value):
            is_gone = value not in seen
            lost += is_gone
            what = "is missing" if is_gone else f"is at {seen[value]}"
            findings.add("lost" if is_gone else "moved", f"{value}, acknowledged at {offset} of {topic}, {what}", [op.index])
        if offset <= ends.get(op.process, -1):
            findings.add("reordered", f"{value} of {topic} is at {offset}, not after the record before it", [op.index])
        ends[op.process] = offset
    for value in seen.keys() - {str(op.value) for op in appends}:
        findings.add(
            "unexpected", f"{value!r} is in {topic} at {seen[value]}, but no operation appended it there", [reads[-1].index]
        )
    for read in reads:
        changed = [(offset, value) for offset, value in read.result if at.get(offset) != value and not gave_way(offset, value)]
        if changed:
            findings.add("changed", f"a read of {topic} returned {changed[0]}, which is not there at the end", [read.index])
    return lost


def _key_of(value: str) -> str:
    return value.partition(":")[0]
