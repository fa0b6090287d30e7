"""A client's port and the answers of nodes: calls are sent once, and a call with an unknown outcome is not called a failure."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from threading import Event
from types import SimpleNamespace
from typing import NamedTuple

import grpc
import pytest
import trio

from jepsen_lite.faults.errors import CannotStrike
from jepsen_lite.workload import CallFailed, Options
from jepsen_lite.worlds.grpc_port import GrpcPort, Nodes
from kraftlab.admin.v1 import admin_pb2
from kraftlab.client.security import NO_SECURITY
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.rpc.methods import METHODS, SERVICE


class Node(NamedTuple):
    grpc: Endpoint


class Cluster:
    """Controllers 1 and 2 and broker 10, some of them listening."""

    cluster_id = "the-one-that-is-meant"
    controller_ids, broker_ids = (1, 2), (10,)
    security = NO_SECURITY

    def __init__(self, endpoints):
        self._endpoints = endpoints

    def node(self, node_id):
        return Node(self._endpoints[node_id])


RESPONSES = {
    admin_pb2.DescribeClusterRequest: admin_pb2.DescribeClusterResponse,
    admin_pb2.AddRaftVoterRequest: admin_pb2.AddRaftVoterResponse,
    admin_pb2.RemoveRaftVoterRequest: admin_pb2.RemoveRaftVoterResponse,
}


class Served:
    """A node that answers a few calls as configured, and counts them."""

    def __init__(self):
        self.header, self.calls, self.hold = admin_pb2.ResponseHeader(leader_id=-1), [], None

    def answer(self, request, context):
        self.calls.append(request)
        if self.hold is not None:
            self.hold.wait(30)
        return RESPONSES[type(request)](header=self.header)


@contextmanager
def listening(served):
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(served.answer, method.request.FromString, method.response.SerializeToString)
        for name, method in METHODS.items()
        if method.request in RESPONSES
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield Endpoint("127.0.0.1", port)
    finally:
        if served.hold is not None:
            served.hold.set()
        server.stop(None).wait()


@pytest.fixture
def first():
    return Served()


@pytest.fixture
def second():
    return Served()


@pytest.fixture
def nodes(first, second, new_port):
    with listening(first) as one, listening(second) as two:
        made = Nodes(Cluster({1: one, 2: two, 10: Endpoint("127.0.0.1", new_port())}))
        yield made
        made.close()


class Guard:
    """A guard that allows changes of the voters, or refuses with a reason."""

    def __init__(self):
        self.refusal, self.under_way = "", []

    @asynccontextmanager
    async def changing(self, node, *, leaves):
        if self.refusal:
            raise CannotStrike(self.refusal)
        self.under_way.append((node, leaves))
        try:
            yield
        finally:
            self.under_way.remove((node, leaves))


@pytest.fixture
def guard():
    return Guard()


@pytest.fixture
def port(nodes, guard):
    return GrpcPort(nodes, Options(timeout_ms=2_000), 0, lambda: 0, guard)


def request():
    return admin_pb2.DescribeClusterRequest()


async def test_an_answer_has_its_node_offset_and_epoch(port, first):
    first.header = admin_pb2.ResponseHeader(metadata_offset=42, epoch=7, leader_id=1)
    reply = await port.call("DescribeCluster", request(), node=1)
    assert (reply.node, reply.offset, reply.epoch) == (1, 42, 7)
    assert [call.header.timeout_ms for call in first.calls] == [2_000]


async def test_a_call_says_for_which_cluster_it_is(port, first):
    """While a node is down, another cluster can listen on its port."""
    await port.call("DescribeCluster", request(), node=1)
    assert [call.header.cluster_id for call in first.calls] == [Cluster.cluster_id]


@pytest.mark.parametrize(
    ("code", "is_unknown", "outcome"),
    [
        (ErrorCode.NOT_CONTROLLER, False, "fail"),
        (ErrorCode.REQUEST_TIMED_OUT, True, "info"),
        (ErrorCode.NETWORK_EXCEPTION, False, "info"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, "info"),
    ],
)
async def test_an_error_fails_only_if_it_is_certain_that_nothing_happened(port, first, code, is_unknown, outcome):
    first.header = admin_pb2.ResponseHeader(error_code=code, outcome_unknown=is_unknown, metadata_offset=5, epoch=2, leader_id=2)
    with pytest.raises(CallFailed) as raised:
        await port.call("DescribeCluster", request(), node=1)
    failed = raised.value
    assert (failed.outcome, failed.error, failed.node, failed.offset, failed.epoch) == (outcome, code.name, 1, 5, 2)
    assert len(first.calls) == 1


async def test_a_node_that_does_not_listen_was_sent_nothing(port):
    with pytest.raises(CallFailed) as raised:
        await port.call("DescribeCluster", request(), node=10)
    assert (raised.value.outcome, raised.value.error) == ("fail", "UNAVAILABLE, never sent")


async def test_a_node_that_does_not_answer_in_time_may_have_done_it(port, first):
    first.hold = Event()
    with pytest.raises(CallFailed) as raised:
        await port.call("DescribeCluster", request(), node=1, timeout_ms=100)
    assert (raised.value.outcome, raised.value.error) == ("info", "DEADLINE_EXCEEDED, no answer")
    assert len(first.calls) == 1


async def test_a_call_is_given_up_with_the_task_that_waits_for_it(port, first):
    first.hold = Event()
    with trio.move_on_after(0.1) as scope:
        await port.call("DescribeCluster", request(), node=1)
    assert scope.cancelled_caught


async def test_who_is_said_to_lead_is_asked_mostly_and_others_now_and_then(port, first, second):
    for served in (first, second):
        served.header = admin_pb2.ResponseHeader(leader_id=2, epoch=1)
    asked = Counter([(await port.call("DescribeCluster", request())).node for _ in range(80)])
    assert asked[2] > asked[1] > 0
    assert asked[10] == 0


@pytest.mark.parametrize(
    ("api", "request_type", "leaves"),
    [("RemoveRaftVoter", admin_pb2.RemoveRaftVoterRequest, True), ("AddRaftVoter", admin_pb2.AddRaftVoterRequest, False)],
)
async def test_a_change_of_the_voters_is_announced_while_it_is_under_way_and_not_sent_if_it_must_not_be(
    port, first, guard, api, request_type, leaves
):
    seen = []
    first.hold = SimpleNamespace(wait=lambda _: seen.extend(guard.under_way), set=lambda: None)
    first.header.error_code = ErrorCode.NOT_CONTROLLER
    with pytest.raises(CallFailed, match="NOT_CONTROLLER"):
        await port.call(api, request_type(voter_id=2), node=1)
    assert (seen, guard.under_way) == ([(2, leaves)], [])
    guard.refusal = "no majority of the voters 1,2 would be undamaged"
    with pytest.raises(CallFailed, match="not sent: no majority of the voters 1,2 would be undamaged") as failed:
        await port.call(api, request_type(voter_id=2), node=1)
    assert (failed.value.outcome, len(first.calls)) == ("fail", 1)
