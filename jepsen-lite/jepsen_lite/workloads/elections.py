"""One leader per epoch, while clients write and read, ask every node for the leader, and let leaders resign."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.linearizable import Linearizable
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Context, Invocation, Source, mix
from ..history import OK
from ..workload import Checker, Completion, Options, Port, Workload
from . import registers
from .callers import Caller, ended, nodes, repeated_until_ok
from .quorum_lives import QuorumLives

METADATA_TOPIC = "__cluster_metadata"


def workload() -> Workload:
    return Workload(
        "elections",
        ElectionsClient,
        _generator,
        _final,
        _checkers,
        registers.setup,
        summary="one leader per epoch, elected by a majority, also after resignations",
    )


def _generator(options: Options) -> Source:
    def transfer(context: Context) -> Invocation:
        return Invocation("transfer", value=context.random.randrange(options.controllers))

    return mix(registers.values(options), lambda _: Invocation("who"), transfer, weights=(20, 10, 1))


def _final(options: Options) -> Source:
    return [repeated_until_ok(Invocation("who")), [Invocation("who")] * 10, registers.final_of_values(options)]


class ElectionsClient:
    """The client of one process. It uses the client of `registers` for registers."""

    def __init__(self, options: Options, process: int) -> None:
        self._options = options
        self._caller = Caller(options, process, "elections")
        self._registers = registers.RegisterClient(options, process)

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        if invocation.f == "who":
            return await who_leads(self._caller, port)
        if invocation.f == "transfer":
            voter = sorted(port.controllers)[int(str(invocation.value)) % len(port.controllers)]
            request = pb.TransferLeadershipRequest(voter_id=voter)
            request.header.timeout_ms = self._options.timeout_ms
            reply = await port.call("TransferLeadership", request, timeout_ms=self._options.timeout_ms)
            return Completion(OK, voter, "", reply.node, -1, reply.epoch)
        return await self._registers.invoke(invocation, port)


async def who_leads(caller: Caller, port: Port) -> Completion:
    """Return [leader, epoch, high watermark] as a random node knows them. CallFailed."""
    partition = pb.DescribeQuorumPartition(partition_index=0)
    request = pb.DescribeQuorumRequest(topics=[pb.DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])])
    request.header.timeout_ms = caller.options.timeout_ms
    node = caller.random.choice(nodes(port))
    reply = await port.call("DescribeQuorum", request, node=node, timeout_ms=caller.options.timeout_ms)
    found = reply.response.topics[0].partitions[0]
    ending = ended(reply, [found.leader_id, found.leader_epoch, found.high_watermark], code=found.error_code)
    return ending._replace(offset=-1)


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats("transfer"),
        Witness(registers.RegistersFold, local_reads=frozenset({"peek"})),
        Linearizable(lambda key: registers.model_of(key, registers.factor(options))),
        QuorumLives("who"),
    )
