"""Reads of one moment: all parts of an answer have one offset, no session goes back, and the past does not change.

A key is a pool of topics; every `set` gives all of them one new value in one request. So an answer about all of them with two
values is torn. `get` is linearizable. `peek` asks a random node each time for at least the offset that this client has seen, and
`wait` for a little more: it is answered later, or refused. `past` asks a node for its image at an offset that this client has
seen (DescribeImage), and must return the state at that offset, whichever offset the image has. Nodes take snapshots all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.models import Register
from kraftlab.metadata import codec
from kraftlab.metadata.records import Config

from ..checkers.fold import Change
from ..checkers.linearizable import Linearizable
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Invocation, Source, independent, limit, mix
from ..history import Op
from ..workload import Checker, Completion, Options, Port, Reply, Workload
from .callers import (
    RESOURCE_TOPIC,
    SET,
    Caller,
    create_single_topics,
    ended,
    in_turn,
    length_of,
    nodes,
    repeated_until_ok,
    topics_wanted,
)
from .scoped_checkers import ScopedChecker
from .tables import TableFold

PREFIX = "snapshots-"
POOL = 4
GROUP = 5
CONFIG = "retention.ms"
VALUE_MAX = 1 << 50
AHEAD = (1, 3, 10)
"""Records beyond the newest seen offset, for `wait`."""
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20000"}
"""Snapshots are taken, and read by returning nodes, all the time."""
_SEEN_MAX = 50


def workload() -> Workload:
    return Workload(
        "snapshot-reads",
        ReadingClient,
        _generator,
        _final,
        _checkers,
        _setup,
        properties=SNAPSHOTS,
        summary="reads of one moment, sessions that never go back on any node, and images of the past",
    )


def _pools(options: Options) -> list[str]:
    return [str(number) for number in range(max(1, topics_wanted(options, 1 / POOL) // POOL))]


def _topics(pool: str) -> list[str]:
    return [f"{PREFIX}{pool}-{number}" for number in range(POOL)]


def _generator(options: Options) -> Source:
    def of_pool(pool: str) -> Source:
        parts: tuple[Source, ...] = (
            lambda context: Invocation("set", pool, context.random.randrange(1, VALUE_MAX)),
            lambda _: Invocation("get", pool),
            lambda _: Invocation("peek", pool),
            lambda context: Invocation("wait", pool, context.random.choice(AHEAD)),
            lambda _: Invocation("past", pool),
        )
        return limit(length_of(options, pool), mix(*parts, weights=(4, 2, 5, 1, 2)))

    return independent(in_turn(_pools(options)), of_pool, group=GROUP)


def _final(options: Options) -> Source:
    first, *others = _pools(options)
    values = {"set": 1, "wait": 1}
    every = [repeated_until_ok(Invocation(f, first, values.get(f))) for f in ("set", "get", "peek", "wait", "past")]
    return [*every, [Invocation("get", pool) for pool in others]]


async def _setup(options: Options, port: Port) -> None:
    names = [name for pool in _pools(options) for name in _topics(pool)]
    await create_single_topics(options, port, names)


class ReadingClient:
    """The client of one process. It remembers offsets that it has seen."""

    def __init__(self, options: Options, process: int) -> None:
        self._options = options
        self._caller = Caller(options, process)
        self._offsets: list[int] = []

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        pool = invocation.key
        match invocation.f:
            case "set":
                return await self._set(pool, invocation.value, port)
            case "past":
                return await self._past(pool, port)
            case "wait":
                ahead: Any = invocation.value
                return await self._describe(pool, port, ahead)
            case "peek":
                return await self._describe(pool, port, 0)
        reply, values, _ = await self._caller.read_configs(port, {topic: [CONFIG] for topic in _topics(pool)})
        return self._seen(reply, shown(pool, {topic: found[CONFIG] for topic, found in values.items() if CONFIG in found}))

    async def _set(self, pool: str, value: Any, port: Port) -> Completion:
        sent, codes = await self._caller.change_configs(port, {topic: {CONFIG: str(value)} for topic in _topics(pool)}, SET)
        return ended(sent.reply, code=max(codes), request_id=sent.request_id)

    async def _describe(self, pool: str, port: Port, ahead: int) -> Completion:
        wanted = self._caller.newest + ahead
        request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=_topics(pool)))
        self._caller.newest, before = wanted, self._caller.newest
        try:
            reply = await self._caller.read(port, "DescribeTopicPartitions", request, local=True)
        finally:
            self._caller.newest = before
        self._caller.newest = max(before, reply.offset)
        if reply.offset < wanted:
            return ended(reply, {"behind": reply.offset, "wanted": wanted})
        values = {
            topic.name: config.value
            for topic in reply.response.topics
            if not topic.error_code
            for config in topic.configs
            if config.name == CONFIG
        }
        return self._seen(reply, shown(pool, values))

    async def _past(self, pool: str, port: Port) -> Completion:
        chance = self._caller.random
        request = pb.DescribeImageRequest()
        wanted = chance.choice(self._offsets) if self._offsets else None
        if wanted is not None:
            request.offset = wanted
        request.header.timeout_ms = self._options.timeout_ms
        node = chance.choice(nodes(port))
        values: dict[str, str] = {}
        while True:
            reply = await port.call("DescribeImage", request, node=node, timeout_ms=self._options.timeout_ms)
            image = reply.response
            for body in image.bodies:
                for record in codec.decode(body):
                    if isinstance(record, Config) and record.resource_type == RESOURCE_TOPIC and record.name == CONFIG:
                        values[record.resource_name] = record.value or ""
            if not image.next_record:
                offset = image.offset if wanted is None else wanted
                return Completion("ok", shown(pool, values), "", node, offset, image.epoch)
            request = pb.DescribeImageRequest(offset=image.offset, first_record=image.next_record)
            request.header.timeout_ms = self._options.timeout_ms

    def _seen(self, reply: Reply, result: Any) -> Completion:
        self._offsets = [*self._offsets[-_SEEN_MAX:], reply.offset]
        return ended(reply, result)


def shown(pool: str, values: dict[str, str]) -> object:
    """Return the value that all topics of a pool have, None if they have none; a text if they differ."""
    found = [values.get(topic) for topic in _topics(pool)]
    if len(set(found)) > 1:
        return "torn: " + ", ".join(map(str, found))
    return None if found[0] is None else int(found[0])


class PoolsFold(TableFold):
    """All pools, from the log."""

    writes = frozenset({"set"})

    def wrote(self, op: Op, change: Change) -> str:
        """Accept all topics of the pool, or none if they had the value before; `answers` compares the value."""
        written = {entry.record["resource_name"] for entry in change.entries if entry.kind == "Config"}
        return "" if not written or written == set(_topics(op.key)) else f"it changes {sorted(written)}"

    def answers(self, op: Op) -> str:
        configs = self._tables.configs
        values = {topic: configs[topic][CONFIG] for topic in _topics(op.key) if CONFIG in configs.get(topic, {})}
        value = shown(op.key, values)
        return "" if value == (op.value if op.f == "set" else op.result) else f"the value is {value}"


def _checkers(options: Options) -> Sequence[Checker]:
    local = frozenset({"peek", "wait"})
    return (
        Stats(),
        ScopedChecker(Witness(PoolsFold, local_reads=local), lambda op: op if op.f != "past" else None, "witness"),
        ScopedChecker(
            Witness(PoolsFold, local_reads=frozenset({"past"}), sessions=False),
            lambda op: op if op.f == "past" else None,
            "time travel",
        ),
        Linearizable(lambda _: Register()),
    )
