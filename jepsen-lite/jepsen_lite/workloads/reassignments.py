"""Reassignments: begun, replaced and cancelled while brokers come and go.

A key is the only partition of a topic. `alter` sets a target, `cas` sets one if the partition epoch is the last epoch that this
client saw, `cancel` cancels the move. `describe` is linearizable; `peek` and `moving` (ListPartitionReassignments) are the view
of some node. In the final phase every move must end by itself (`settled`). Actions of the brokers are in the log, and every
record of them is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.fold import Change
from ..checkers.replayed_image import ReplayedImage
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Context, Invocation, Source, delay, independent, limit, mix, repeat, until_ok
from ..history import FAIL, Op
from ..workload import CallFailed, Checker, Completion, Options, Port, Workload
from .callers import Caller, create_topics, ended, in_turn, length_of, placed_on, repeated_until_ok, topic_on, topics_wanted
from .partition_lives import PartitionLives
from .tables import Partition, TableFold

PREFIX = "moves-"
GROUP = 3
FACTOR_MAX = 3
SETTLE_S = 30.0
STILL_MOVING = "STILL_MOVING"
NOTHING_MOVES, CHANGED = "NO_REASSIGNMENT_IN_PROGRESS", "INVALID_UPDATE_VERSION"
_SETTLE_PAUSE_S = 0.25


def workload() -> Workload:
    return Workload(
        "reassignments",
        ReassigningClient,
        _generator,
        _final,
        _checkers,
        _setup,
        summary="reassignments started, replaced, cancelled: no replica is removed too early, none is left over, all finish",
    )


def _topics(options: Options) -> list[str]:
    return [f"{PREFIX}{number}" for number in range(topics_wanted(options, 1))]


def _generator(options: Options) -> Source:
    def target(context: Context) -> list[int]:
        places = range(options.brokers)
        return context.random.sample(places, context.random.randint(1, min(FACTOR_MAX, options.brokers)))

    def of_topic(topic: str) -> Source:
        parts: tuple[Source, ...] = (
            lambda context: Invocation("alter", topic, target(context)),
            lambda context: Invocation("cas", topic, target(context)),
            lambda _: Invocation("cancel", topic),
            lambda _: Invocation("describe", topic),
            lambda _: Invocation("peek", topic),
        )
        return limit(length_of(options, topic), mix(*parts, weights=(4, 2, 2, 3, 3)))

    return mix(independent(in_turn(_topics(options)), of_topic, group=GROUP), lambda _: Invocation("moving"), weights=(15, 1))


def _final(options: Options) -> Source:
    topics = _topics(options)
    changes = [Invocation(f, topics[0], [0]) for f in ("describe", "alter", "peek", "moving")]
    settling = until_ok(limit(int(SETTLE_S / _SETTLE_PAUSE_S), delay(_SETTLE_PAUSE_S, repeat(Invocation("settled")))))
    reads = [Invocation("describe", topic) for topic in topics]
    return [*(repeated_until_ok(each) for each in changes), settling, reads]


async def _setup(options: Options, port: Port) -> None:
    replicas = placed_on(port, min(FACTOR_MAX, options.brokers))
    await create_topics(options, port, (topic_on(topic, replicas) for topic in _topics(options)))


class ReassigningClient:
    """The client of one process. It remembers the partition epochs that it has seen."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)
        self._epochs: dict[str, int] = {}

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        match invocation.f:
            case "describe" | "peek":
                return await self._describe(invocation.key, invocation.f == "peek", port)
            case "moving" | "settled":
                return await self._moving(invocation.f == "settled", port)
        return await self._alter(invocation, port)

    async def _alter(self, invocation: Invocation, port: Port) -> Completion:
        topic, places = invocation.key, invocation.value
        assert places is None or isinstance(places, list)
        brokers = sorted(port.brokers)
        partition = pb.ReassignablePartition(
            replicas=None if places is None else pb.Int32List(values=[brokers[place % len(brokers)] for place in places]),
            expected_partition_epoch=self._epochs.get(topic, 0) if invocation.f == "cas" else None,
        )
        request = pb.AlterPartitionReassignmentsRequest(topics=[pb.ReassignableTopic(name=topic, partitions=[partition])])
        expected = partition.expected_partition_epoch if invocation.f == "cas" else -1
        try:
            sent = await self._caller.write(port, "AlterPartitionReassignments", request)
        except CallFailed as failed:
            name = f"{self._caller.client_id.hex()}:{self._caller.sequence}"
            return Completion(failed.outcome, [expected], failed.error, failed.node, failed.offset, failed.epoch, name)
        answer = sent.reply.response.responses[0].partitions[0]
        result = [expected, answer.partition_epoch]
        self._epochs[topic] = answer.partition_epoch
        ending = ended(sent.reply, code=answer.error_code, request_id=sent.request_id)
        return ending._replace(
            result=[*result, [list(answer.replicas), list(answer.adding_replicas), list(answer.removing_replicas)]]
        )

    async def _describe(self, topic: str, is_local: bool, port: Port) -> Completion:
        request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[topic]))
        reply = await self._caller.read(port, "DescribeTopicPartitions", request, local=is_local)
        found = reply.response.topics[0]
        if found.error_code or not found.partitions:
            return ended(reply, code=found.error_code)
        partition = found.partitions[0]
        self._epochs[topic] = partition.partition_epoch
        result = [
            list(partition.replica_nodes),
            list(partition.adding_replicas),
            list(partition.removing_replicas),
            sorted(partition.isr_nodes),
            [partition.leader_id, partition.leader_epoch, partition.partition_epoch],
        ]
        return ended(reply, result)

    async def _moving(self, must_be_settled: bool, port: Port) -> Completion:
        request = pb.ListPartitionReassignmentsRequest()
        reply = await self._caller.read(port, "ListPartitionReassignments", request, local=not must_be_settled)
        found = {
            topic.name: [list(each.replicas), list(each.adding_replicas), list(each.removing_replicas)]
            for topic in reply.response.topics
            for each in topic.partitions
            if topic.name.startswith(PREFIX)
        }
        if must_be_settled and found:
            return ended(reply, len(found))._replace(outcome=FAIL, error=STILL_MOVING)
        return ended(reply, found)


class MovesFold(TableFold):
    """All partitions of this workload, from the log."""

    writes = frozenset({"alter", "cas", "cancel"})
    refusals = frozenset({NOTHING_MOVES, CHANGED})

    def wrote(self, op: Op, change: Change) -> str:
        return ""

    def permits(self, op: Op) -> str:
        partition = self._partition(op.key)
        if partition is None:
            return "the topic did not exist"
        if op.f == "cas" and op.result and op.result[0] != partition.epoch:
            return f"its partition epoch was {partition.epoch}, not {op.result[0]}"
        if op.f == "cancel" and not (partition.adding or partition.removing):
            return "no reassignment was in progress"
        return ""

    def answers(self, op: Op) -> str:
        if op.f in ("moving", "settled"):
            moving = {
                name: _sets(topic.partitions[0])
                for name, topic in self._tables.topics.items()
                if name.startswith(PREFIX) and (topic.partitions[0].adding or topic.partitions[0].removing)
            }
            return "" if moving == op.result else f"the reassignments are {moving}"
        partition = self._partition(op.key)
        if partition is None:
            return "the topic does not exist"
        if op.f in ("alter", "cas", "cancel"):
            shown = [*op.result[:1], partition.epoch, _sets(partition)]
        else:
            epochs = [partition.leader, partition.leader_epoch, partition.epoch]
            shown = [*_sets(partition), sorted(partition.isr), epochs]
        return "" if shown == op.result else f"the partition is {shown}"

    def refuses(self, op: Op) -> str:
        partition = self._partition(op.key)
        if partition is None:
            return "the topic did not exist"
        if op.error == CHANGED:
            return "" if op.result is None or op.result[0] != partition.epoch else f"its partition epoch was {partition.epoch}"
        return "" if not (partition.adding or partition.removing) else f"it moved: {_sets(partition)}"

    def _partition(self, topic: str) -> Partition | None:
        found = self._tables.topics.get(topic)
        return None if found is None else found.partitions[0]


def _sets(partition: Partition) -> list[list[int]]:
    return [partition.replicas, partition.adding, partition.removing]


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats("cancel", "cas"),
        Witness(MovesFold, local_reads=frozenset({"peek", "moving"})),
        PartitionLives(settles=True),
        ReplayedImage(),
    )
