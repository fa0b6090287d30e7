"""Registers: values of topic configs, ordered replica lists and lists, each key a separate object.

Three kinds of keys, by prefix:

- `values/TOPIC/N`: two configs of a topic; every `set` gives both the same value in one request. `get` returns the value; two
  different values are a torn read. Kafka's configs have no compare-and-set.
- `replicas/TOPIC`: the order of a partition's replicas. `set` and `cas` reassign to a permutation of the same brokers, which
  takes effect at once; `cas` expects the current order (INVALID_UPDATE_VERSION otherwise). A value names the brokers by rank:
  "012" is the initial value of every topic.
- `lists/TOPIC`: a list config. `append` and `remove` change it by one item.

`get` is linearizable. `peek` is the same read from any node: its result must be a past state, not older than what this client has
seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.calls import NamedModel
from kraftlab.checking.models import AppendList, Register

from ..checkers.fold import Change
from ..checkers.linearizable import Linearizable
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Context, Invocation, Source, independent, limit, mix
from ..history import Op
from ..workload import Checker, Completion, Options, Port, Workload
from .callers import (
    APPEND,
    SET,
    SUBTRACT,
    Caller,
    create_topics,
    ended,
    in_turn,
    length_of,
    placed_on,
    repeated_until_ok,
    topic_on,
    topics_wanted,
)
from .tables import TableFold

FACTOR_MAX = 3
GROUP = 5
PAIRS = (
    ("retention.ms", "delete.retention.ms"),
    ("retention.bytes", "file.delete.delay.ms"),
    ("flush.messages", "flush.ms"),
    ("segment.jitter.ms", "min.compaction.lag.ms"),
)
"""Integer configs that are set together."""
LIST = "follower.replication.throttled.replicas"
VALUE_MAX = 1 << 50
MISMATCH = "INVALID_UPDATE_VERSION"
_KEYS_PER_TOPIC = len(PAIRS) + 2
_ITEMS = 8


def workload() -> Workload:
    return Workload(
        "registers",
        RegisterClient,
        mixed,
        final_of_mixed,
        _checkers,
        setup,
        summary="topic configs, replica orders and lists as registers: set, get, compare-and-set, append, remove",
    )


def topic_name(number: int) -> str:
    return f"registers-{number}"


def factor(options: Options) -> int:
    """Return the replication factor of the topics."""
    return min(FACTOR_MAX, options.brokers)


def keys(options: Options) -> list[str]:
    """Return all keys, the kinds mixed."""
    found: list[str] = []
    for topic in map(topic_name, range(topics_wanted(options, _KEYS_PER_TOPIC))):
        found += [f"values/{topic}/0", f"replicas/{topic}", f"values/{topic}/1", f"lists/{topic}"]
        found += [f"values/{topic}/{number}" for number in range(2, len(PAIRS))]
    return found if factor(options) > 1 else [key for key in found if not key.startswith("replicas/")]


# -- generators --------------------------------------------------------------------------------------------------------------


def mixed(options: Options) -> Source:
    """Operations on all kinds of keys."""
    return independent(in_turn(keys(options)), lambda key: _of_key(options, key), group=GROUP)


def values(options: Options) -> Source:
    """Operations on values alone, for workloads with another subject."""
    return independent(in_turn(_value_keys(options)), lambda key: _of_key(options, key), group=GROUP)


def final_of_values(options: Options) -> Source:
    """The final phase of `values`."""
    first, *others = _value_keys(options)
    return [repeated_until_ok(Invocation(f, first, 1 if f == "set" else None)) for f in ("set", "get", "peek")] + [
        [Invocation("get", key) for key in others]
    ]


def _value_keys(options: Options) -> list[str]:
    return [key for key in keys(options) if key.startswith("values/")]


def _of_key(options: Options, key: str) -> Source:
    get, peek = Invocation("get", key), Invocation("peek", key)
    kind = key.partition("/")[0]
    changes: tuple[Source, ...]
    if kind == "values":
        changes = (lambda context: Invocation("set", key, context.random.randrange(1, VALUE_MAX)),)
    elif kind == "replicas":
        changes = (_with("set", _few_orders(options)), _exchange(_few_orders(options)))
    else:
        items = [f"{partition}:{broker}" for partition in range(_ITEMS) for broker in range(_ITEMS)]
        changes = (_with("append", items), _with("remove", items[: len(items) // 2]))
    reads: tuple[Source, ...] = (lambda _: get, lambda _: peek)
    weights = (3, 1, *(4 / len(changes) for _ in changes))
    return limit(length_of(options, key), mix(*reads, *changes, weights=weights))


def _with(f: str, values: Sequence[str]) -> Callable[[Context], Invocation]:
    """Return invocations with a random one of the values."""
    return lambda context: Invocation(f, value=context.random.choice(values))


def _exchange(orders: Sequence[str]) -> Callable[[Context], Invocation]:
    return lambda context: Invocation("cas", value=[context.random.choice(orders), context.random.choice(orders)])


def _orders(count: int) -> list[str]:
    """Return all orders of so many ranks."""
    if count == 1:
        return ["0"]
    last = str(count - 1)
    return sorted(each[:at] + last + each[at:] for each in _orders(count - 1) for at in range(count))


def _few_orders(options: Options) -> list[str]:
    """Return few orders, so that now and then an exchange finds the expected one."""
    return _orders(factor(options))[:3]


def final_of_mixed(options: Options) -> Source:
    """One exchange that finds the expected value, one change of a list, and a read of every key."""
    first, *others = (Invocation("get", key) for key in keys(options))
    replicas = next((key for key in keys(options) if key.startswith("replicas/")), None)
    last = next(key for key in keys(options) if key.startswith("lists/"))
    order = _few_orders(options)[0]
    exchanges = [] if replicas is None else [Invocation("set", replicas, order), Invocation("cas", replicas, [order, order])]
    changes = [Invocation(f, last, "0:0") for f in ("append", "remove")]
    every = [repeated_until_ok(each) for each in (first, *exchanges, *changes, Invocation("peek", first.key))]
    return [*every, others]


async def setup(options: Options, port: Port) -> None:
    replicas = placed_on(port, factor(options))
    names = map(topic_name, range(topics_wanted(options, _KEYS_PER_TOPIC)))
    await create_topics(options, port, (topic_on(name, replicas) for name in names))


# -- requests ---------------------------------------------------------------------------------------------------------------


class RegisterClient:
    """The client of one process."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)
        self._factor = factor(options)

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        kind, _, rest = invocation.key.partition("/")
        topic, _, number = rest.partition("/")
        if invocation.f in ("get", "peek"):
            return await self._read(kind, topic, number, port, invocation.f == "peek")
        if kind == "replicas":
            return await self._arrange(topic, invocation, port)
        operation = {"set": SET, "append": APPEND, "remove": SUBTRACT}[invocation.f]
        names = (LIST,) if kind == "lists" else PAIRS[int(number)]
        changes = {topic: dict.fromkeys(names, str(invocation.value))}
        sent, (code,) = await self._caller.change_configs(port, changes, operation)
        return ended(sent.reply, code=code, request_id=sent.request_id)

    async def _arrange(self, topic: str, invocation: Invocation, port: Port) -> Completion:
        value: Any = invocation.value
        expected, order = value if invocation.f == "cas" else ("", value)
        brokers = placed_on(port, self._factor)
        partition = pb.ReassignablePartition(
            replicas=pb.Int32List(values=[brokers[int(rank)] for rank in order]),
            expected_replicas=pb.Int32List(values=[brokers[int(rank)] for rank in expected]) if expected else None,
        )
        request = pb.AlterPartitionReassignmentsRequest(topics=[pb.ReassignableTopic(name=topic, partitions=[partition])])
        sent = await self._caller.write(port, "AlterPartitionReassignments", request)
        code = sent.reply.response.responses[0].partitions[0].error_code
        return ended(sent.reply, code=code, request_id=sent.request_id)

    async def _read(self, kind: str, topic: str, number: str, port: Port, is_local: bool) -> Completion:
        if kind == "replicas":
            request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[topic]))
            reply = await self._caller.read(port, "DescribeTopicPartitions", request, local=is_local)
            found = reply.response.topics[0]
            shown = ranks(found.partitions[0].replica_nodes) if found.partitions else None
            return ended(reply, shown, code=found.error_code)
        names = (LIST,) if kind == "lists" else PAIRS[int(number)]
        reply, values, code = await self._caller.read_configs(port, {topic: names}, local=is_local)
        return ended(reply, _shown(kind, values[topic]), code=code)


def _shown(kind: str, values: dict[str, str]) -> Any:
    """Return the value of the register that these configs hold."""
    if kind == "lists":
        return values[LIST].split(",") if values.get(LIST) else []
    if len(set(values.values())) > 1 or len(values) == 1:
        return {"torn": values}
    return int(next(iter(values.values()))) if values else None


def ranks(replicas: Sequence[int]) -> str:
    """Return the order of brokers among themselves: "102" for 8, 5, 9."""
    ordered = sorted(replicas)
    return "".join(str(ordered.index(broker)) for broker in replicas)


# -- checkers ---------------------------------------------------------------------------------------------------------------


def model_of(key: str, replicas: int) -> NamedModel[Any]:
    """Return the model of a key."""
    if key.startswith("lists/"):
        return AppendList()
    if key.startswith("replicas/"):
        return Register(frozenset({MISMATCH}), _orders(replicas)[0])
    return Register()


class RegistersFold(TableFold):
    """All registers, from the log."""

    writes = frozenset({"set", "cas", "append", "remove"})
    refusals = frozenset({MISMATCH})

    def apply(self, change: Change) -> Iterable[str]:
        return [f"{kind}/{topic}" for topic in super().apply(change) for kind in ("replicas", "lists")]

    def wrote(self, op: Op, change: Change) -> str:
        others = [entry.kind for entry in change.entries if not _belongs(op.key, entry.kind, entry.record)]
        return f"it has {', '.join(others)}, which does not concern {op.key}" if others else ""

    def permits(self, op: Op) -> str:
        if op.f != "cas":
            return ""
        state = self._state(op.key)
        return "" if state == op.value[0] else f"the value was {state!r}"

    def answers(self, op: Op) -> str:
        state = self._state(op.key)
        if op.f in ("get", "peek"):
            return "" if op.result == state else f"the value is {state!r}"
        if op.f in ("append", "remove"):
            return "" if (op.value in state) == (op.f == "append") else f"the list is {state!r}"
        value = op.value[1] if op.f == "cas" else op.value
        return "" if state == value else f"the value is {state!r}"

    def refuses(self, op: Op) -> str:
        if op.f != "cas":
            return f"{op.f} expects nothing"
        state = self._state(op.key)
        return "" if state != op.value[0] else f"the value was {state!r}"

    def _state(self, key: str) -> Any:
        kind, _, rest = key.partition("/")
        topic, _, number = rest.partition("/")
        if kind == "replicas":
            found = self._tables.topics.get(topic)
            return None if found is None else ranks(found.partitions[0].replicas)
        values = self._tables.configs.get(topic, {})
        names = (LIST,) if kind == "lists" else PAIRS[int(number)]
        return _shown(kind, {name: values[name] for name in names if name in values})


def _belongs(key: str, kind: str, record: dict[str, Any]) -> bool:
    """Return True if a request about that key can have written the record."""
    if kind == "RequestOutcome":
        return True
    what, _, rest = key.partition("/")
    topic, _, number = rest.partition("/")
    if what == "replicas":
        return kind == "PartitionChange"
    names = (LIST,) if what == "lists" else PAIRS[int(number)]
    return kind == "Config" and record["resource_name"] == topic and record["name"] in names


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats(),
        Witness(RegistersFold, local_reads=frozenset({"peek"})),
        Linearizable(lambda key: model_of(key, factor(options))),
    )
