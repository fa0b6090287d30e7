"""Finding of a client without an answer to its call: a majority of the voters may be down, or nobody leads.

Theory of operation. Every node that the client knows is asked for the voters, then every voter for a sign of life, each round in
parallel and within a second. A controller names the voters in its DescribeQuorum, a broker in its refusal when it cannot pass the
request on. A caller without the right to describe the quorum counts the registered controllers. A voter answers if anything comes
back, also a refusal. The client cannot reach a voter whose gRPC endpoint nobody knows: it counts as silent. The finding says what
this client sees; the voters may see each other all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import grpc
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint

ROUND_S = 1.0
NONE_LEADS = "but none of them leads"
_WAIT_MS = 500
"""Deadline of a broker that has to pass a question on."""
_GRPC = "GRPC"
_QUORUM, _CLUSTER = "DescribeQuorum", "DescribeCluster"

Ask = Callable[[Endpoint, str, Message], Message]
"""Ask(endpoint, api, request) returns the response, refusals included. grpc.RpcError."""


class Voter(NamedTuple):
    """A voter and its gRPC endpoint, None if nobody knows it."""

    node_id: int
    endpoint: Endpoint | None

    def __str__(self) -> str:
        return f"{self.node_id} at {self.endpoint or 'an unknown address'}"


def lost_quorum(ask: Ask, endpoints: Iterable[Endpoint]) -> str | None:
    """Return "1 of 3 voters answers: no majority" with the voters, or that a majority answers and knows no leader. None with a
    leader, or if no node names the voters.
    """
    known = list(dict.fromkeys(endpoints))
    header = pb.RequestHeader(timeout_ms=_WAIT_MS)
    quorum, cluster = pb.DescribeQuorumRequest(header=header), pb.DescribeClusterRequest(header=header)
    first = _answers(ask, [(each, api, request) for api, request in ((_QUORUM, quorum), (_CLUSTER, cluster)) for each in known])
    voters = _voters(
        [each for each in first if isinstance(each, pb.DescribeQuorumResponse)],
        [each for each in first if isinstance(each, pb.DescribeClusterResponse)],
    )
    places = [voter.endpoint for voter in voters if voter.endpoint is not None]
    second = _answers(ask, [(each, _CLUSTER, cluster) for each in places])
    answering = {place for place, answer in zip(places, second, strict=True) if answer is not None}
    given = [answer for answer in second if answer is not None]
    knows_leader = any(not isinstance(each, pb.DescribeClusterResponse) or each.header.leader_id >= 0 for each in given)
    return text_of(voters, [voter for voter in voters if voter.endpoint in answering], knows_leader=knows_leader)


def text_of(voters: Iterable[Voter], answering: Iterable[Voter], *, knows_leader: bool = True) -> str | None:
    """Return the finding about voters of which some answer, None if those are a majority and know a leader."""
    everybody, alive = (sorted(some, key=lambda voter: voter.node_id) for some in (voters, answering))
    if not everybody:
        return None
    if 2 * len(alive) > len(everybody):
        return None if knows_leader else f"{len(alive)} of {len(everybody)} voters answer, {NONE_LEADS}"
    silent = [voter for voter in everybody if voter not in alive]
    parts = [f"silent: {', '.join(map(str, silent))}"] + ([f"answering: {', '.join(map(str, alive))}"] if alive else [])
    return f"{len(alive)} of {len(everybody)} voters answer{'s' if len(alive) == 1 else ''}: no majority ({'; '.join(parts)})"


def _voters(quorums: list[pb.DescribeQuorumResponse], clusters: list[pb.DescribeClusterResponse]) -> list[Voter]:
    """Return the voters in the newest answer that names them, otherwise the registered controllers."""
    registered = {
        controller.controller_id: Endpoint(controller.host, controller.port)
        for answer in clusters
        for controller in answer.controllers
        if controller.port
    }
    newest = max((each for each in quorums if each.current_voters), key=lambda each: each.leader_epoch, default=None)
    if newest is None:
        return [Voter(node_id, endpoint) for node_id, endpoint in registered.items()]
    own = {
        voter.replica_id: Endpoint(endpoint.host, endpoint.port)
        for voter in newest.current_voters
        for endpoint in voter.endpoints
        if endpoint.name == _GRPC
    }
    return [Voter(voter.replica_id, (registered | own).get(voter.replica_id)) for voter in newest.current_voters]


def _answers(ask: Ask, questions: Sequence[tuple[Endpoint, str, Message]]) -> list[Message | None]:
    """Ask all questions at once and return their answers, None where none came. The threads do not keep a program from ending."""
    answers: list[Message | None] = [None] * len(questions)

    def put(place: int, question: tuple[Endpoint, str, Message]) -> None:
        with suppress(grpc.RpcError):
            answers[place] = ask(*question)

    threads = [threading.Thread(target=put, args=numbered, daemon=True) for numbered in enumerate(questions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
