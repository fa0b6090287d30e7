"""Topics as a set with identities: created, deleted by name or by id, described, listed.

A key is a topic's name. Everything else in a creation follows from its tag, a random number: the number of partitions, and two
configs with the tag as their value. So a description of a topic shows which creation made it, and whether something is missing.
The server assigns the ids, and never one twice. `describe` and `list` are linearizable; `peek` and `glance` are the same reads
from any node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.calls import Operation, RefusedOutput
from kraftlab.common.errors import ErrorCode

from ..checkers.fold import Change, changes
from ..checkers.linearizable import Linearizable
from ..checkers.logged_reads import LoggedReads
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Context, Invocation, Source, independent, limit, mix, repeat
from ..history import FAIL, Op
from ..verdicts import UNKNOWN, Verdict
from ..workload import OWN, CallFailed, Checker, Completion, Options, Port, Run, Workload
from .callers import Caller, ended, in_turn, keys_wanted, length_of, need_brokers, repeated_until_ok
from .tables import Tables

PREFIX = "topics-"
GROUP = 5
TAG_MAX = 1 << 50
TAGGED = ("retention.ms", "delete.retention.ms")
"""Configs that a creation sets to its tag."""
EXISTS, UNKNOWN_NAME, UNKNOWN_ID = "TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"
NO_ID = "the id is unknown"
FACTOR_MAX = 2


def workload() -> Workload:
    return Workload(
        "topics",
        TopicClient,
        _generator,
        _final,
        _checkers,
        need_brokers,
        summary="topics created, deleted by name or id, described and listed: atomically, never the same id twice",
    )


def partitions_of(tag: int) -> int:
    """Return the number of partitions in a creation with this tag."""
    return 1 + tag % 3


def _names(options: Options) -> list[str]:
    return [f"{PREFIX}{number}" for number in range(keys_wanted(options))]


# -- generators --------------------------------------------------------------------------------------------------------------


def _generator(options: Options) -> Source:
    def of_name(name: str) -> Source:
        others = (repeat(Invocation(f, name)) for f in ("delete", "delete-id", "describe", "peek"))
        return limit(length_of(options, name), mix(_creation(name), *others, weights=(4, 2, 2, 4, 2)))

    return mix(independent(in_turn(_names(options)), of_name, group=GROUP), _listing, weights=(12, 1))


def _creation(name: str) -> Source:
    return lambda context: Invocation("create", name, context.random.randrange(1, TAG_MAX))


def _listing(context: Context) -> Invocation:
    return Invocation(context.random.choice(("list", "glance")))


def _final(options: Options) -> Source:
    """A new topic lives and dies; all topics are described, and then listed."""
    last = f"{PREFIX}last"
    life = [Invocation("create", last, 1), Invocation("peek", last), Invocation("describe", last)]
    deaths = [Invocation("delete-id", last), Invocation("create", last, 2), Invocation("delete", last)]
    lives = [repeated_until_ok(invocation) for invocation in (*life, *deaths)]
    names = [Invocation("describe", name) for name in _names(options)]
    return [repeated_until_ok(Invocation("list")), *lives, names, Invocation("list"), repeated_until_ok(Invocation("glance"))]


# -- requests ---------------------------------------------------------------------------------------------------------------


class TopicClient:
    """The client of one process. It remembers the last id of each name that it saw, which may be gone."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)
        self._factor = min(FACTOR_MAX, options.brokers)
        self._seen: dict[str, str] = {}

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        name: str = invocation.key
        match invocation.f:
            case "create":
                return await self._create(name, invocation.value, port)
            case "delete" | "delete-id":
                return await self._delete(name, invocation.f == "delete-id", port)
            case "describe" | "peek":
                return await self._describe(name, invocation.f == "peek", port)
        request = pb.DescribeTopicPartitionsRequest()
        reply = await self._caller.read(port, "DescribeTopicPartitions", request, local=invocation.f == "glance")
        found = [[topic.name, topic.topic_id] for topic in reply.response.topics if topic.name.startswith(PREFIX)]
        return ended(reply, sorted(found))

    async def _create(self, name: str, tag: Any, port: Port) -> Completion:
        topic = pb.CreatableTopic(
            name=name,
            num_partitions=partitions_of(tag),
            replication_factor=self._factor,
            configs=[pb.CreatableTopicConfig(name=config, value=str(tag)) for config in TAGGED],
        )
        sent = await self._caller.write(port, "CreateTopics", pb.CreateTopicsRequest(topics=[topic]))
        answer = sent.reply.response.topics[0]
        if not answer.error_code:
            self._seen[name] = answer.topic_id
        return ended(sent.reply, answer.topic_id, code=answer.error_code, request_id=sent.request_id)

    async def _delete(self, name: str, by_id: bool, port: Port) -> Completion:
        state = pb.DeleteTopicState(name=name)
        if by_id:
            try:
                topic_id = self._seen.get(name) or await self._look_up(name, port)
            except CallFailed as failed:
                return Completion(FAIL, error=f"not sent, the id is unknown: {failed.error}", node=failed.node)
            if not topic_id:
                return Completion(FAIL, error=NO_ID)
            state = pb.DeleteTopicState(topic_id=topic_id)
        sent = await self._caller.write(port, "DeleteTopics", pb.DeleteTopicsRequest(topics=[state]))
        answer = sent.reply.response.responses[0]
        ending = ended(sent.reply, answer.topic_id, code=answer.error_code, request_id=sent.request_id)
        return ending._replace(result=state.topic_id) if by_id else ending

    async def _look_up(self, name: str, port: Port) -> str:
        request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[name]))
        reply = await self._caller.read(port, "DescribeTopicPartitions", request, local=True)
        found = reply.response.topics[0]
        return "" if found.error_code else str(found.topic_id)

    async def _describe(self, name: str, is_local: bool, port: Port) -> Completion:
        request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[name]))
        reply = await self._caller.read(port, "DescribeTopicPartitions", request, local=is_local)
        found = reply.response.topics[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ended(reply)
        self._seen[name] = found.topic_id
        configs = {config.name: config.value for config in found.configs}
        return ended(reply, [found.topic_id, tag_of(configs, len(found.partitions))], code=found.error_code)


def tag_of(configs: dict[str, str], partitions: int) -> object:
    """Return the tag of the creation that made a topic with these configs and partitions; a text if no creation could have."""
    tags = [configs.get(name, "") for name in TAGGED]
    tag = int(tags[0]) if tags[0].isdigit() else -1
    if tags == [str(tag)] * len(TAGGED) and partitions_of(tag) == partitions and len(configs) == len(TAGGED):
        return tag
    return f"{partitions} partitions and {', '.join(f'{name}={value}' for name, value in sorted(configs.items())) or 'nothing'}"


# -- checkers ---------------------------------------------------------------------------------------------------------------


class NamedTopic:
    """The object of one name: nothing, or a topic by id and tag; the id is "" until an answer contains it."""

    functions = frozenset({"create", "delete", "delete-id", "describe"})
    reads = frozenset({"describe"})
    refusals = frozenset({EXISTS, UNKNOWN_NAME})

    def initial(self) -> tuple[object, ...]:
        return ()

    def step(self, state: tuple[object, ...], operation: Operation) -> tuple[object, ...] | None:
        call: Any = operation.input
        f, tag = call
        output: Any = None if operation.is_unknown else operation.output
        if f == "create":
            if type(output) is RefusedOutput:
                return state if state else None
            return None if state else (output or "", tag)
        if f == "describe":
            if output is None or not state:
                return state if output is None and not state else None
            topic_id, shown = output
            return (topic_id, shown) if state[0] in ("", topic_id) and state[1] == shown else None
        if type(output) is RefusedOutput:
            return None if state else state
        return () if state and (output is None or state[0] in ("", output)) else None

    def describe(self, state: tuple[object, ...]) -> str:
        return f"{state[0] or '?'} by {state[1]}" if state else "nothing"


class ChangedTopic(NamedTopic):
    """The same object without its reads: those of Kafka clients may be old."""

    functions = NamedTopic.functions - NamedTopic.reads
    reads = frozenset[str]()


class TopicsFold:
    """All topics of this workload, from the log."""

    writes = frozenset({"create", "delete", "delete-id"})
    refusals = frozenset({EXISTS, UNKNOWN_NAME, UNKNOWN_ID})

    def __init__(self) -> None:
        self._tables = Tables()
        self._gone: dict[str, str] = {}
        """Name → the id that the last change removed."""

    def apply(self, change: Change) -> Iterable[str]:
        removed = {entry.record["topic_id"] for entry in change.entries if entry.kind == "RemoveTopic"}
        topics = [self._tables.by_id[topic_id] for topic_id in removed if topic_id in self._tables.by_id]
        self._gone = {topic.name: topic.topic_id for topic in topics}
        return self._tables.apply(change)

    def wrote(self, op: Op, change: Change) -> str:
        kinds = [entry.kind for entry in change.entries if entry.kind != "RequestOutcome"]
        if op.f != "create":
            return "" if kinds == ["RemoveTopic"] else f"it has {kinds}"
        wanted = ["Topic", *["Config"] * len(TAGGED), *["Partition"] * partitions_of(op.value)]
        return "" if sorted(kinds) == sorted(wanted) else f"it has {kinds}, not {wanted}"

    def permits(self, op: Op) -> str:
        found = self._tables.topics.get(op.key)
        if op.f == "create":
            return "" if found is None else f"there was a topic {found.topic_id}"
        if found is None:
            return "the topic did not exist"
        return "" if op.result in (None, found.topic_id) else f"the topic was {found.topic_id}"

    def answers(self, op: Op) -> str:
        if op.f in ("list", "glance"):
            return self._lists(op)
        found = self._tables.topics.get(op.key)
        if op.f.startswith("delete"):
            return "" if self._gone.get(op.key) == op.result else f"deleted was {self._gone.get(op.key)}"
        if op.f == "create":
            return "" if found is not None and found.topic_id == op.result else f"created was {found and found.topic_id}"
        shown = None
        if found is not None:
            shown = [found.topic_id, tag_of(self._tables.configs.get(op.key, {}), len(found.partitions))]
        return "" if shown == op.result else f"the topic is {shown}"

    def _lists(self, op: Op) -> str:
        wanted = {name: topic.topic_id for name, topic in self._tables.topics.items() if name.startswith(PREFIX)}
        given = dict(op.result)
        if wanted == given:
            return ""
        missing, extra = sorted(wanted.items() - given.items()), sorted(given.items() - wanted.items())
        return f"missing: {missing[:3]}, unexpected: {extra[:3]}"

    def refuses(self, op: Op) -> str:
        found = self._tables.topics.get(op.key)
        if op.error == EXISTS:
            return "" if found is not None else "the topic did not exist"
        if op.error == UNKNOWN_ID:
            return "" if op.result not in self._tables.by_id else f"there was {op.result}"
        return "" if found is None else f"there was a topic {found.topic_id}"


class TopicLives:
    """From the log alone: an id is created once, and every record of it is between its creation and its removal."""

    name = "lives of topics"

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        live: set[str] = set()
        gone: set[str] = set()
        for change in changes(run.log):
            for entry in change.entries:
                topic_id = entry.record.get("topic_id", "") if entry.kind in _OF_TOPICS else ""
                wrong = ""
                if entry.kind == "Topic":
                    wrong = "a second time" if topic_id in live | gone else ""
                    live.add(topic_id)
                elif topic_id and topic_id not in live:
                    wrong = "after its removal" if topic_id in gone else "before its creation"
                if entry.kind == "RemoveTopic":
                    live.discard(topic_id)
                    gone.add(topic_id)
                if wrong:
                    reason = f"the log has {entry.kind} of topic {topic_id} {wrong}, at offset {entry.offset}"
                    return Verdict(checker=self.name, valid=False, reason=reason, details={"offset": entry.offset})
        return Verdict(checker=self.name, valid=True, details={"checked": len(live) + len(gone)})


_OF_TOPICS = frozenset({"Topic", "Partition", "PartitionChange", "RemoveTopic"})


def _checkers(options: Options) -> Sequence[Checker]:
    if options.client != OWN:
        return (Stats(), Witness(TopicsFold), Linearizable(lambda _: ChangedTopic()), TopicLives(), LoggedReads())
    return (
        Stats(),
        Witness(TopicsFold, local_reads=frozenset({"peek", "glance"})),
        Linearizable(lambda _: NamedTopic()),
        TopicLives(),
    )
