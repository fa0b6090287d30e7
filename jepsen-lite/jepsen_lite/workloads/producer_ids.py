"""Blocks of producer ids: allocated once, in increasing order, with any leader and after any snapshot.

A key is the broker that a block is for. The request contains the broker's epoch as this client last saw it; an old epoch is
refused, and read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.blocks import Blocks
from ..checkers.fold import Change
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Invocation, Source
from ..history import FAIL, Op
from ..workload import CallFailed, Checker, Completion, Options, Port, Workload
from .callers import Caller, ended, need_brokers, repeated_until_ok
from .tables import TableFold

STALE = "STALE_BROKER_EPOCH"


def workload() -> Workload:
    return Workload(
        "producer-ids",
        AllocatingClient,
        _generator,
        lambda _: repeated_until_ok(Invocation("allocate", "0")),
        _checkers,
        need_brokers,
        summary="blocks of producer ids: disjoint, rising, never assigned twice",
    )


def _generator(options: Options) -> Source:
    """Keys are places in the list of brokers."""
    return lambda context: Invocation("allocate", str(context.random.randrange(options.brokers)))


class AllocatingClient:
    """The client of one process."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)
        self._epochs: dict[int, int] = {}

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        broker = sorted(port.brokers)[int(invocation.key) % len(port.brokers)]
        if broker not in self._epochs:
            try:
                self._epochs = (await self._caller.see_brokers(port)).epochs
            except CallFailed as failed:
                return Completion(FAIL, error=f"not sent, the broker is unknown: {failed.error}", node=failed.node)
        request = pb.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=self._epochs.get(broker, -1))
        try:
            sent = await self._caller.write(port, "AllocateProducerIds", request)
        except CallFailed:
            self._epochs = {}
            raise
        response = sent.reply.response
        return ended(sent.reply, [response.producer_id_start, response.producer_id_len], request_id=sent.request_id)


class BlocksFold(TableFold):
    """The last block of producer ids, whichever request allocated it."""

    writes = frozenset({"allocate"})

    def wrote(self, op: Op, change: Change) -> str:
        kinds = [entry.kind for entry in change.entries if entry.kind != "RequestOutcome"]
        return "" if kinds == ["ProducerIds"] else f"it has {kinds}"

    def answers(self, op: Op) -> str:
        return "" if tuple(op.result) == self._tables.block else f"the block is {self._tables.block}"


def _checkers(options: Options) -> Sequence[Checker]:
    return (Stats(), Witness(BlocksFold), Blocks())
