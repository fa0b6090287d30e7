"""Voters that leave and join (KIP-853), while clients write and read.

`remove` makes a controller an observer, which keeps running with its data; `add` makes it a voter again. Both first read the
voters from the leader (`voters`, linearizable). A majority of the controllers stays. There are five controllers: with three,
hardly any disk could be damaged and no voter removed while clients change the voters too. In the final phase all controllers
become voters again. A cluster with static voters refuses all changes (UNSUPPORTED_VERSION), and only its elections are judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.linearizable import Linearizable
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Invocation, Source, any_of, delay, limit, mix, repeat, stagger, until_ok
from ..history import FAIL, OK
from ..workload import CallFailed, Checker, Completion, Options, Port, Workload
from . import registers
from .callers import Caller, ended, repeated_until_ok
from .elections import who_leads
from .quorum_lives import QuorumLives

CONTROLLERS = 5
CHANGE_EVERY_S = 0.5
"""Average time between attempts to change the voters; usually one of them is removed."""
CHANGE_TIMEOUT_MS = 3_000
CONTROLLER = "CONTROLLER"
NOT_ALL = "NOT_ALL_ARE_VOTERS"
_REMOVALS = 12
_RESTORES = 60


def workload() -> Workload:
    return Workload(
        "voters",
        VotersClient,
        _generator,
        _final,
        _checkers,
        registers.setup,
        controllers=CONTROLLERS,
        summary="voters leave and join one at a time, and any two majorities have a member in common",
    )


def _generator(options: Options) -> Source:
    def change(f: str) -> Source:
        return lambda context: Invocation(f, value=context.random.randrange(options.controllers))

    changes = mix(change("remove"), change("add"), weights=(1, 5))
    reads = (repeat(Invocation("voters")), repeat(Invocation("who")))
    questions = mix(registers.values(options), *reads, weights=(30, 4, 4))
    return any_of(stagger(CHANGE_EVERY_S, changes), questions)


def _final(options: Options) -> Source:
    """At least one voter leaves and joins, unless none can."""
    leaving = until_ok(limit(_REMOVALS, delay(0.25, repeat(Invocation("remove", value=0)))))
    restoring = until_ok(limit(_RESTORES, delay(0.25, repeat(Invocation("restore")))))
    asked = [repeated_until_ok(Invocation(f)) for f in ("voters", "who")]
    return [*asked, leaving, restoring, registers.final_of_values(options), Invocation("voters")]


class VotersClient:
    """The client of one process."""

    def __init__(self, options: Options, process: int) -> None:
        self._options = options
        self._caller = Caller(options, process, "voters")
        self._registers = registers.RegisterClient(options, process)

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        match invocation.f:
            case "voters":
                quorum = await self._caller.read(port, "DescribeQuorum", pb.DescribeQuorumRequest())
                voters = [[each.replica_id, each.replica_directory_id] for each in quorum.response.current_voters]
                return ended(quorum, sorted(voters))._replace(offset=-1)
            case "who":
                return await who_leads(self._caller, port)
            case "restore":
                return await self._restore(port)
            case "add" | "remove":
                place = int(str(invocation.value))
                return await self._change(invocation.f, sorted(port.controllers)[place % len(port.controllers)], port)
        return await self._registers.invoke(invocation, port)

    async def _change(self, f: str, node: int, port: Port) -> Completion:
        try:
            quorum = (await self._caller.read(port, "DescribeQuorum", pb.DescribeQuorumRequest())).response
        except CallFailed as failed:
            return Completion(FAIL, error=f"not sent, the voters are unknown: {failed.error}", node=failed.node)
        voters = {each.replica_id: each for each in quorum.current_voters}
        observers = {each.replica_id: each for each in quorum.observers}
        request: Any
        if f == "remove":
            if node not in voters or len(voters) <= self._options.controllers // 2 + 1:
                return Completion(FAIL, error="not sent, the node is not a voter, or there are too few voters")
            request = pb.RemoveRaftVoterRequest(voter_id=node, voter_directory_id=voters[node].replica_directory_id)
        else:
            if node not in observers or not any(each.name == CONTROLLER for each in observers[node].endpoints):
                return Completion(FAIL, error="not sent, the node is not an observer with known endpoints")
            found = observers[node]
            request = pb.AddRaftVoterRequest(
                voter_id=node, voter_directory_id=found.replica_directory_id, listeners=found.endpoints
            )
        request.header.timeout_ms = CHANGE_TIMEOUT_MS
        api = "RemoveRaftVoter" if f == "remove" else "AddRaftVoter"
        reply = await port.call(api, request, timeout_ms=self._options.timeout_ms)
        return Completion(OK, node, "", reply.node, -1, reply.epoch)

    async def _restore(self, port: Port) -> Completion:
        """End as ok if all controllers are voters or the voters cannot change; otherwise add a missing one."""
        reply = await self._caller.read(port, "DescribeQuorum", pb.DescribeQuorumRequest())
        voters = {each.replica_id for each in reply.response.current_voters}
        missing = [node for node in port.controllers if node not in voters]
        if not missing or not reply.response.kraft_version:
            return ended(reply, sorted(voters))._replace(offset=-1)
        await self._change("add", missing[0], port)
        return ended(reply)._replace(outcome=FAIL, error=NOT_ALL, offset=-1)


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats("add", "remove", "restore"),
        Witness(registers.RegistersFold, local_reads=frozenset({"peek"})),
        Linearizable(lambda key: registers.model_of(key, registers.factor(options))),
        QuorumLives("who", changes=True),
    )
