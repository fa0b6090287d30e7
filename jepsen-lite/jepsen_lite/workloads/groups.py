"""Consumer groups: records are appended and polled by members of one group, who commit what they polled.

A key is a topic of one partition. A third of the workers are members of the group. `append` produces a record; `poll` returns the
records that a member got from one poll, and if the commit of their ends was confirmed; `leave` ends a membership. Only
kafka-python plays this: members, rebalances and commits are those of its consumer. In the final phase the group must deliver
records again; then `get` reads each topic from its beginning, and `committed` the offsets of the group.

A group delivers at least once. Kafka allows a member that lost its place to poll once more, and a commit that was under way
during a rebalance to be confirmed after the next member has begun. Everything else is judged: see `GroupProgress`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from ..checkers.findings import Findings
from ..checkers.stats import Stats
from ..generators import Answer, Context, Generator, Invocation, Pending, Source, delay, generator, time_limit, until_ok
from ..history import FAIL, INFO, OK, Op
from ..verdicts import Verdict
from ..workload import Completion, KafkaPort, Options, Port, Run, Workload
from .callers import create_topics, placed_on, repeated_until_ok, topic_on
from .log_dirs import judge

GROUP = "members"
TOPICS = 4
REPLICAS = 2
LEAVE_RATE = 0.05
"""Share of a member's operations that end its membership. Its next poll makes it a new member."""
LAST_S = 10.0
"""Time for the last append to a topic."""
EMPTY = "nothing was polled"


def workload() -> Workload:
    why_not = "members of groups are clients of kafka-python, which need sockets"
    return Workload(
        "groups",
        GroupClient,
        _generator,
        _final,
        lambda _: (Stats(), GroupProgress()),
        setup=_setup,
        log=False,
        not_in={"shell": why_not, "simulated": why_not},
        properties={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"},
        summary="records polled and committed by members of a consumer group: none is skipped, no confirmed commit is lost",
    )


def _topics() -> list[str]:
    return [f"groups-{number}" for number in range(TOPICS)]


async def _setup(options: Options, port: Port) -> None:
    await create_topics(options, port, [topic_on(topic, placed_on(port, REPLICAS)) for topic in _topics()])


def _append(context: Context, topics: Sequence[str]) -> Invocation:
    return Invocation("append", context.random.choice(topics), f"{context.process}-{context.random.getrandbits(64):x}")


def _is_member(context: Context) -> bool:
    return context.worker % 3 == 0


class _ByMembers(msgspec.Struct, frozen=True):
    """The invocations of `inner`, for members alone: another worker would join the group, and the others would have to agree."""

    inner: Generator

    def next(self, context: Context) -> Answer:
        if not _is_member(context):
            return Pending(), self
        answer = self.inner.next(context)
        return None if answer is None else (answer[0], _ByMembers(answer[1]))


def _generator(options: Options) -> Source:
    def of_worker(context: Context) -> Invocation:
        if not _is_member(context):
            return _append(context, _topics())
        return Invocation("poll" if context.random.random() > LEAVE_RATE else "leave")

    return of_worker


def _final(options: Options) -> Source:
    appends = [time_limit(LAST_S, until_ok(delay(1.0, partial(_append, topics=[topic])))) for topic in _topics()]
    reads = [Invocation("get", topic) for topic in _topics()]
    polled = _ByMembers(generator(repeated_until_ok(Invocation("poll"))))
    return [*appends, polled, *(repeated_until_ok(each) for each in (*reads, Invocation("committed")))]


class GroupClient:
    """The client of one process: a producer, or a member of the group."""

    def __init__(self, options: Options, process: int) -> None: ...

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        topic, kafka = invocation.key, cast(KafkaPort, port)
        match invocation.f:
            case "append":
                value = str(invocation.value).encode()
                return Completion(OK, await kafka.in_kafka(lambda clients: clients.append(topic, b"", value)))
            case "get":
                return Completion(OK, [list(row) for row in await kafka.in_kafka(lambda clients: clients.read(topic))])
            case "committed":
                return Completion(OK, await kafka.in_kafka(lambda clients: clients.committed(GROUP, _topics())))
            case "leave":
                return Completion(OK, await kafka.in_kafka(lambda clients: clients.leave()))
        polled = await kafka.in_kafka(lambda clients: clients.poll(GROUP, _topics()))
        result = [polled.generation, [list(row) for row in polled.records], polled.is_committed]
        return Completion(OK, result) if polled.records else Completion(FAIL, result, polled.error or EMPTY)


class Poll(NamedTuple):
    """A poll of a member. `records` are (topic, offset, value)."""

    op: Op
    generation: int
    records: list[tuple[str, int, str]]
    is_committed: bool
    ends: dict[str, int]
    """Topic → the offset that was to be committed."""


class GroupProgress:
    """Records are in the log as for `moved-data`. A polled record is in the log at its offset. Every record below the offset that
    the group committed at the end was polled. A member does not get records below a commit that was confirmed before its first
    poll of that generation, if its own commit is confirmed. The last confirmed commit is not lost. "unknown" if a topic or the
    commits could not be read at the end.
    """

    name = "group-progress"

    def check(self, run: Run) -> Verdict:
        findings, unsure, lost, checked = Findings(), [], 0, 0
        logs: dict[str, dict[int, str]] = {}
        for topic, history in run.history.of("append", "get").by_key().items():
            reads = [op for op in history if op.f == "get" and op.outcome == OK]
            if not reads:
                unsure.append(f"{topic} could not be read at the end")
                continue
            lost += judge(topic, [op for op in history if op.f == "append"], reads, findings)
            logs[topic] = dict(cast(Any, reads[-1].result))
        ops = sorted(run.history.of("poll"), key=lambda op: op.invoked_ns)
        polls = [_poll_of(op) for op in ops if op.result is not None]
        for poll in polls:
            checked += len(poll.records)
            for topic, offset, value in poll.records:
                if topic in logs and logs[topic].get(offset) != value:
                    text = f"a poll of {topic} returned {value} at {offset}, where {logs[topic].get(offset)} is at the end"
                    findings.add("strange", text, [poll.op.index])
        _judge_floors(polls, findings)
        final = [op for op in run.history.of("committed") if op.outcome == OK]
        if final:
            unsure += _judge_end(final[-1], logs, polls, [op for op in ops if op.result is None and op.outcome == INFO], findings)
        else:
            unsure.append("the commits of the group could not be read at the end")
        confirmed = sum(poll.is_committed for poll in polls)
        return findings.verdict(
            self.name,
            checked=checked if confirmed else 0,
            nothing="no poll was committed",
            unsure="; ".join(unsure),
            lost=lost,
            details={"polls": len(polls), "committed": confirmed},
        )


def _poll_of(op: Op) -> Poll:
    generation, records, is_committed = cast(Any, op.result)
    ends = {topic: offset + 1 for topic, offset, _ in records}
    return Poll(op, generation, [(topic, offset, value) for topic, offset, value in records], is_committed, ends)


def _judge_floors(polls: Sequence[Poll], findings: Findings) -> None:
    """Find members that began below a confirmed commit. Polls are in the order of their invocations."""
    begun: dict[tuple[int, int], int] = {}
    for poll in polls:
        begun.setdefault((poll.op.process, poll.generation), poll.op.invoked_ns)
    for poll in polls:
        if not poll.is_committed:
            continue
        began_ns = begun[poll.op.process, poll.generation]
        before = [other for other in polls if other.is_committed and other.op.ended_ns < began_ns]
        lowest: dict[str, int] = {}
        for topic, offset, _ in poll.records:
            lowest[topic] = min(offset, lowest.get(topic, offset))
        for topic, offset in lowest.items():
            # A later commit may be lower, for a commit can be confirmed after the next member has begun.
            last = max((other.op.invoked_ns for other in before if topic in other.ends), default=-1)
            floor = min((other.ends[topic] for other in before if topic in other.ends and other.op.ended_ns >= last), default=0)
            if offset < floor:
                text = f"a member got {topic} from {offset} on, though {floor} had been committed before it began"
                findings.add("back", text, [poll.op.index])


def _judge_end(
    final: Op, logs: dict[str, dict[int, str]], polls: Sequence[Poll], lost_answers: Sequence[Op], findings: Findings
) -> list[str]:
    """Compare the last commits of the group with what was polled; return the reasons why something is unknown."""
    unsure: list[str] = []
    delivered = {(topic, offset) for poll in polls for topic, offset, _ in poll.records}
    committed: dict[str, int] = cast(Any, final.result)
    for topic, log in logs.items():
        end = committed.get(topic, 0)
        skipped = [offset for offset in sorted(log) if offset < end and (topic, offset) not in delivered]
        if skipped and lost_answers:
            unsure.append(
                f"{topic} has {len(skipped)} records that no known poll returned, but the results of some polls are lost"
            )
        elif skipped:
            text = f"{len(skipped)} records of {topic}, from {skipped[0]} on, were not polled, though {end} is committed"
            findings.add("skipped", text, [final.index])
        of_topic = [poll for poll in polls if topic in poll.ends]
        last = max((poll.op.invoked_ns for poll in of_topic if poll.is_committed), default=-1)
        least = min((poll.ends[topic] for poll in of_topic if poll.op.ended_ns >= last), default=0) if last >= 0 else 0
        if end < least:
            text = f"the group has {end} of {topic} at the end, though {least} was committed"
            findings.add("commit lost", text, [final.index])
    return unsure
