"""Brokers, their epochs and their fencing.

Keys are positions in the list of brokers. `brokers` (linearizable) and `glance` (of any node) return the registered brokers with
their epochs, and the fenced ones. `allocate` requests producer ids for a broker with an epoch that this client has seen at some
time: an epoch that is over must be refused (STALE_BROKER_EPOCH) without an effect. `unregister` removes a registration with the
newest known epoch; a live broker returns as a new incarnation. Requests of the brokers themselves are judged by the log: pauses
and restarts make zombies of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.fold import Change
from ..checkers.replayed_image import ReplayedImage
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Invocation, Source, mix, repeat
from ..history import FAIL, Op
from ..workload import CallFailed, Checker, Completion, Options, Port, Workload
from .broker_lives import BrokerLives
from .callers import Caller, SeenBrokers, create_topics, ended, repeated_until_ok
from .partition_lives import PartitionLives
from .tables import Tables

STALE, UNREGISTERED = "STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED"
OLD_EPOCH_RATE = 0.4
PREFIX = "brokers-"
_TOPICS = 6
_FACTOR_MAX = 3


def workload() -> Workload:
    return Workload(
        "brokers",
        BrokersClient,
        _generator,
        _final,
        _checkers,
        _setup,
        summary="registrations, epochs and fencing of brokers: no request of an earlier epoch takes effect",
    )


def _generator(options: Options) -> Source:
    def of_some(f: str) -> Source:
        return lambda context: Invocation(f, str(context.random.randrange(options.brokers)))

    reads = (repeat(Invocation("brokers")), repeat(Invocation("glance")))
    return mix(*reads, of_some("allocate"), of_some("unregister"), weights=(5, 3, 8, 0.3))


def _final(options: Options) -> Source:
    every = (Invocation("brokers"), Invocation("glance"), Invocation("unregister", "0"), Invocation("allocate", "1"))
    return [*(repeated_until_ok(invocation) for invocation in every), Invocation("brokers")]


async def _setup(options: Options, port: Port) -> None:
    """Create partitions that can lose their leaders."""
    factor = min(_FACTOR_MAX, options.brokers)
    topics = [
        pb.CreatableTopic(name=f"{PREFIX}{number}", num_partitions=2, replication_factor=factor) for number in range(_TOPICS)
    ]
    await create_topics(options, port, topics)


class BrokersClient:
    """The client of one process. It remembers all epochs that it has seen."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)
        self._epochs: dict[int, list[int]] = {}
        self._must_see: set[int] = set()
        """Brokers whose newest known epoch is over."""

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        if invocation.f in ("brokers", "glance"):
            seen = await self._see_brokers(port, local=invocation.f == "glance")
            return ended(seen.reply, [sorted(map(list, seen.epochs.items())), list(seen.fenced)])
        broker = sorted(port.brokers)[int(invocation.key) % len(port.brokers)]
        if broker not in self._epochs or broker in self._must_see:
            try:
                await self._see_brokers(port)
            except CallFailed as failed:
                return Completion(FAIL, error=f"not sent, the broker is unknown: {failed.error}", node=failed.node)
        return await self._write(invocation.f, broker, port)

    async def _see_brokers(self, port: Port, *, local: bool = False) -> SeenBrokers:
        seen = await self._caller.see_brokers(port, local=local)
        self._must_see -= seen.epochs.keys()
        for broker, epoch in seen.epochs.items():
            known = self._epochs.setdefault(broker, [])
            if epoch not in known:
                known.append(epoch)
                known.sort()
        return seen

    async def _write(self, f: str, broker: int, port: Port) -> Completion:
        known = self._epochs.get(broker, [-1])
        chance = self._caller.random
        epoch = chance.choice(known) if f == "allocate" and chance.random() < OLD_EPOCH_RATE else known[-1]
        named: list[Any] = [broker, epoch]
        api, request = _REQUESTS[f](broker, epoch)
        try:
            sent = await self._caller.write(port, api, request)
        except CallFailed as failed:
            name = f"{self._caller.client_id.hex()}:{self._caller.sequence}"
            if failed.error in (STALE, UNREGISTERED):
                self._must_see.add(broker)
            return Completion(failed.outcome, named, failed.error, failed.node, failed.offset, failed.epoch, name)
        start = getattr(sent.reply.response, "producer_id_start", -1)
        return ended(sent.reply, [*named, start], request_id=sent.request_id)


_REQUESTS: dict[str, Any] = {
    "allocate": lambda broker, epoch: (
        "AllocateProducerIds",
        pb.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch),
    ),
    "unregister": lambda broker, epoch: (
        "UnregisterBroker",
        pb.UnregisterBrokerRequest(broker_id=broker, expected_broker_epoch=epoch),
    ),
}


class BrokersFold:
    """Registrations, from the log."""

    writes = frozenset({"allocate", "unregister"})
    refusals = frozenset({STALE, UNREGISTERED})

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._fenced: dict[int, bool] = {}
        self._tables = Tables()

    def apply(self, change: Change) -> Iterable[str]:
        self._tables.apply(change)
        touched = False
        for entry in change.entries:
            record = entry.record
            match entry.kind:
                case "RegisterBroker":
                    self._epochs[record["broker_id"]] = record["broker_epoch"]
                    self._fenced[record["broker_id"]] = record["fenced"]
                case "BrokerRegistrationChange":
                    if record["fenced"] is not None:
                        self._fenced[record["broker_id"]] = record["fenced"]
                case "UnregisterBroker":
                    self._epochs.pop(record["broker_id"], None)
                    self._fenced.pop(record["broker_id"], None)
                case _:
                    continue
            touched = True
        return _ALL_KEYS if touched else ()

    def wrote(self, op: Op, change: Change) -> str:
        wanted = "ProducerIds" if op.f == "allocate" else "UnregisterBroker"
        named = [entry.record for entry in change.entries if entry.kind == wanted]
        if op.result and [[record["broker_id"], record["broker_epoch"]] for record in named] != [op.result[:2]]:
            return f"it has {wanted} of {named}"
        return ""

    def permits(self, op: Op) -> str:
        if not op.result:
            return ""
        broker, epoch, *_ = op.result
        now = self._epochs.get(broker)
        return "" if now == epoch else f"the epoch of broker {broker} was {now}, not {epoch}"

    def answers(self, op: Op) -> str:
        if op.f == "unregister":
            return "" if op.result[0] not in self._epochs else "the broker is registered"
        if op.f == "allocate":
            return "" if op.result[2] == self._tables.block[0] else f"the block begins at {self._tables.block[0]}"
        shown = [sorted(map(list, self._epochs.items())), sorted(broker for broker, fenced in self._fenced.items() if fenced)]
        return "" if shown == op.result else f"the brokers are {shown}"

    def refuses(self, op: Op) -> str:
        if not op.result:
            return ""
        broker, epoch, *_ = op.result
        now = self._epochs.get(broker)
        return "" if now != epoch else f"the epoch of broker {broker} was {epoch}"


_ALL_KEYS = tuple(map(str, range(100)))
"""A change of one broker may justify the refusal of a request about any other."""


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats(),
        Witness(BrokersFold, local_reads=frozenset({"glance"})),
        BrokerLives(),
        PartitionLives(),
        ReplayedImage(),
    )
