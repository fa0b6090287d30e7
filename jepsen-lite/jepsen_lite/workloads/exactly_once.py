"""Writes that take effect once, however often they are sent.

A key is one request with one id. Several processes send it to nodes of their own choice: at the same time, one after the other,
and late, when there may be another leader. A second effect of the request would be visible: it allocates a block of producer ids,
or creates a topic with a new name. Each sending is an operation, all with one request id. Twelve requests share a client id, so a
late sending may come when newer requests have replaced its answer, and is refused then (DUPLICATE_SEQUENCE_NUMBER).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.blocks import Blocks
from ..checkers.exactly_once import ExactlyOnce
from ..checkers.fold import Change
from ..checkers.set_full import SetFull
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Invocation, Source, independent, limit, mix
from ..history import FAIL, Op
from ..workload import CallFailed, Checker, Completion, Options, Port, Workload
from .callers import Caller, ended, need_brokers, nodes, repeated_until_ok
from .tables import TableFold

PREFIX = "once-"
GROUP = 3
REQUESTS_PER_CLIENT = 12
SENDINGS = (1, 2, 3, 3, 4, 6)
_LATE_S = 2.0
_LAST = 10**9
"""Number of the first request of the final phase."""


def workload() -> Workload:
    return Workload(
        "exactly-once",
        SendingClient,
        _generator,
        _final,
        _checkers,
        need_brokers,
        summary="requests with an id, sent several times to several nodes, at once and late: one effect, one answer",
    )


# -- generators --------------------------------------------------------------------------------------------------------------


def _key(number: int) -> str:
    return f"{PREFIX}{number}"


def _generator(options: Options) -> Source:
    def of_key(key: str) -> Source:
        random = options.random(f"sendings/{key}")
        f = random.choice(("allocate", "allocate", "create"))
        late = random.choice((False, False, True))
        sendings: list[Source] = [limit(random.choice(SENDINGS), lambda _: Invocation(f, key, "now"))]
        return [*sendings, Invocation(f, key, "late")] if late else sendings

    return mix(independent(_key, of_key, group=GROUP), lambda _: Invocation("list"), weights=(20, 1))


def _final(options: Options) -> Source:
    """One request of each kind with a new id, and all topics."""
    requests = [Invocation(f, _key(number), "now") for number, f in enumerate(("create", "allocate"), _LAST)]
    return [repeated_until_ok(invocation) for invocation in (*requests, Invocation("list"))]


# -- requests ---------------------------------------------------------------------------------------------------------------


class SendingClient:
    """The client of one process. Its requests depend on the key alone, so all processes send the same."""

    def __init__(self, options: Options, process: int) -> None:
        self._options = options
        self._caller = Caller(options, process)

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        if invocation.f == "list":
            reply = await self._caller.read(port, "DescribeTopicPartitions", pb.DescribeTopicPartitionsRequest())
            return ended(reply, sorted(topic.name for topic in reply.response.topics if topic.name.startswith(PREFIX)))
        client, place = divmod(int(invocation.key.removeprefix(PREFIX)), REQUESTS_PER_CLIENT)
        sender = Caller(self._options, client, "once")
        sender.newest = self._caller.newest
        request: Any
        if invocation.f == "allocate":
            broker = port.brokers[client % len(port.brokers)]
            try:
                epoch = (await self._caller.see_brokers(port)).epochs.get(broker, -1)
            except CallFailed as failed:
                return Completion(FAIL, error=f"not sent, the broker is unknown: {failed.error}", node=failed.node)
            request = pb.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        else:
            topic = pb.CreatableTopic(name=invocation.key, num_partitions=1, replication_factor=1)
            request = pb.CreateTopicsRequest(topics=[topic])
        chance = self._caller.random
        if invocation.value == "late":
            await port.sleep(chance.uniform(0.1, _LATE_S))
        node = chance.choice((None, None, chance.choice(nodes(port))))
        api = "AllocateProducerIds" if invocation.f == "allocate" else "CreateTopics"
        sent = await sender.send_as(port, api, request, place + 1, node=node)
        self._caller.newest = max(self._caller.newest, sender.newest)
        response = sent.reply.response
        if invocation.f == "allocate":
            return ended(sent.reply, [response.producer_id_start, response.producer_id_len], request_id=sent.request_id)
        made = response.topics[0]
        return ended(sent.reply, made.topic_id, code=made.error_code, request_id=sent.request_id)


# -- checkers ---------------------------------------------------------------------------------------------------------------


class OnceFold(TableFold):
    """The last block of producer ids and the topics of this workload."""

    writes = frozenset({"allocate", "create"})

    def wrote(self, op: Op, change: Change) -> str:
        kinds = {entry.kind for entry in change.entries} - {"RequestOutcome"}
        wanted = {"ProducerIds"} if op.f == "allocate" else {"Topic", "Partition"}
        return "" if kinds == wanted else f"it has {sorted(kinds)}"

    def permits(self, op: Op) -> str:
        found = self._tables.topics.get(op.key) if op.f == "create" else None
        return "" if found is None else f"there was such a topic, {found.topic_id}"

    def answers(self, op: Op) -> str:
        if op.f == "allocate":
            return "" if tuple(op.result) == self._tables.block else f"the block is {self._tables.block}"
        if op.f == "create":
            found = self._tables.topics.get(op.key)
            return "" if found is not None and op.result == found.topic_id else f"the topic is {found}"
        wanted = {name for name in self._tables.topics if name.startswith(PREFIX)}
        return "" if wanted == set(op.result) else f"other topics are there: {sorted(wanted ^ set(op.result))[:3]}"


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats(),
        Witness(OnceFold, sessions=False),
        ExactlyOnce("allocate", "create"),
        Blocks(),
        SetFull("create", "list", added=lambda op: op.key),
    )
