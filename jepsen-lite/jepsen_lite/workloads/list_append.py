"""Transactions over several lists: one request appends to list configs of several topics, one answer reads several.

A pool is two topics with two list configs each, and gets as many transactions as the options say; its name is the key of an
operation. A transaction appends to one to four of the lists in one IncrementalAlterConfigs, or reads one to four of them in one
DescribeConfigs. No request of the API does both. Every item is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checkers.fold import Change
from ..checkers.list_append import ListAppend
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Context, Invocation, Source, independent, limit
from ..history import FAIL, INFO, OK, Op
from ..workload import Checker, Completion, Options, Port, Workload
from .callers import (
    APPEND,
    Caller,
    create_single_topics,
    ended,
    in_turn,
    length_of,
    repeated_until_ok,
    topics_wanted,
)
from .tables import TableFold

PREFIX = "appends-"
TOPICS_PER_POOL = 2
GROUP = 5
CONFIGS = {"leader": "leader.replication.throttled.replicas", "follower": "follower.replication.throttled.replicas"}
ITEM_MAX = 1 << 31
READ_RATE = 0.5
_LISTS_MAX = 4


def workload() -> Workload:
    return Workload(
        "list-append",
        TransactionClient,
        _generator,
        _final,
        _checkers,
        _setup,
        summary="appends to lists of several topics in one request, read in one request: strictly serializable",
    )


def _pools(options: Options) -> list[str]:
    return [str(number) for number in range(topics_wanted(options, 1 / TOPICS_PER_POOL) // TOPICS_PER_POOL)]


def _lists(pool: str) -> list[str]:
    topics = [f"{PREFIX}{pool}-{number}" for number in range(TOPICS_PER_POOL)]
    return [f"{topic}/{name}" for topic in topics for name in CONFIGS]


def _generator(options: Options) -> Source:
    def of_pool(pool: str) -> Source:
        lists = _lists(pool)

        def transaction(context: Context) -> Invocation:
            chance = context.random
            chosen = chance.sample(lists, chance.randint(1, min(_LISTS_MAX, len(lists))))
            if chance.random() < READ_RATE:
                return Invocation("txn", pool, [["r", key, None] for key in chosen])
            steps = [["append", key, _item(context)] for key in chosen for _ in range(chance.choice((1, 1, 2)))]
            return Invocation("txn", pool, steps)

        return limit(length_of(options, pool), transaction)

    return independent(in_turn(_pools(options)), of_pool, group=GROUP)


def _item(context: Context) -> str:
    return f"{context.random.randrange(ITEM_MAX)}:{context.process}"


def _final(options: Options) -> Source:
    reads = [Invocation("txn", pool, [["r", key, None] for key in _lists(pool)]) for pool in _pools(options)]
    return [repeated_until_ok(reads[0]), reads]


async def _setup(options: Options, port: Port) -> None:
    names = [key.partition("/")[0] for pool in _pools(options) for key in _lists(pool)[:: len(CONFIGS)]]
    await create_single_topics(options, port, names)


class TransactionClient:
    """The client of one process."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        steps: Any = invocation.value
        return await (self._read(steps, port) if steps[0][0] == "r" else self._append(steps, port))

    async def _append(self, steps: Any, port: Port) -> Completion:
        items: dict[str, dict[str, list[str]]] = {}
        for _, key, item in steps:
            topic, _, name = key.partition("/")
            items.setdefault(topic, {}).setdefault(CONFIGS[name], []).append(item)
        changes = {topic: {name: ",".join(added) for name, added in configs.items()} for topic, configs in items.items()}
        sent, codes = await self._caller.change_configs(port, changes, APPEND)
        endings = [ended(sent.reply, steps, code=code) for code in codes]
        worst = min(endings, key=lambda ending: (INFO, FAIL, OK).index(ending.outcome))
        outcome = INFO if len({ending.outcome for ending in endings}) > 1 else worst.outcome
        return worst._replace(outcome=outcome, request_id=sent.request_id)

    async def _read(self, steps: Any, port: Port) -> Completion:
        wanted: dict[str, list[str]] = {}
        for _, key, _ in steps:
            topic, _, name = key.partition("/")
            wanted.setdefault(topic, []).append(CONFIGS[name])
        reply, values, code = await self._caller.read_configs(port, wanted)
        if code:
            return ended(reply, code=code)
        places = {key: _place(key) for _, key, _ in steps}
        return ended(reply, [["r", key, _items(values[topic].get(name))] for key, (topic, name) in places.items()])


def _place(key: str) -> tuple[str, str]:
    """Return topic and config of a list."""
    topic, _, name = key.partition("/")
    return topic, CONFIGS[name]


def _items(value: str | None) -> list[str]:
    return value.split(",") if value else []


class ListsFold(TableFold):
    """All lists, from the log."""

    writes = frozenset({"txn"})

    def wrote(self, op: Op, change: Change) -> str:
        written = {(entry.record["resource_name"], entry.record["name"]) for entry in change.entries if entry.kind == "Config"}
        wanted = {_place(key) for _, key, _ in op.value}
        return "" if written == wanted else f"it changes {sorted(written)}"

    def answers(self, op: Op) -> str:
        for f, key, shown in op.result:
            topic, name = _place(key)
            items = _items(self._tables.configs.get(topic, {}).get(name))
            if (shown not in items) if f == "append" else (shown != items):
                return f"{key} is {items[-5:]!r} at its end, {len(items)} long"
        return ""


def _checkers(options: Options) -> Sequence[Checker]:
    return (Stats(), Witness(ListsFold), ListAppend("txn"))
