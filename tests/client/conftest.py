"""A cluster of fakes: real gRPC and peer servers on real ports, answering from the test's tables."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest
import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import to_text
from kraftlab.metadata.peer_rpc import Api
from kraftlab.quorum.core.messages import API_OF, FetchRequest, FetchSnapshotRequest
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import AdminServer, Call
from kraftlab.wire.network import TCP
from kraftlab.wire.transport import PeerIdentity, PeerRequest, PeerServer

from .secured_servers import Certificates

CLUSTER_ID = "fake-cluster"
TOPIC_ID = bytes(15) + b"\xff"

Answer = Callable[[Message], Message]


class FakeNode:
    """One node. `answers` maps an api to a function of the request; `leader` is the node that its headers name; after
    `last_words` calls it answers nothing. `is_reader`: it answers reads although it does not lead.
    """

    def __init__(self, tls: Certificates | None = None) -> None:
        self._tls = tls
        self.answers: dict[str, Answer] = {}
        self.peer_answers: dict[int, Callable[[bytes], msgspec.Struct]] = {}
        self.calls: list[Call] = []
        self.leader: FakeNode | None = None
        self.is_reader = False
        self.last_words: int | None = None
        self.port = 0
        self.peer_port = 0
        self.scope = trio.CancelScope()
        self.stopped = threading.Event()

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def dispatch(self, call: Call) -> Message:
        self.calls.append(call)
        if self.last_words is not None and len(self.calls) > self.last_words:
            await trio.sleep_forever()
        response = METHODS[call.api].response()
        if self.leader is not self and not self.is_reader:
            response.header.error_code = 41
            response.header.error_message = "not the controller"
        elif call.api in self.answers:
            response = self.answers[call.api](call.request)
        if self.leader is not None:
            response.header.leader.CopyFrom(pb.Endpoint(host="127.0.0.1", port=self.leader.port))
        return response

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        identity = PeerIdentity(CLUSTER_ID, 0, ReplicaKey(1))
        network = TCP if self._tls is None else self._tls.network()
        self.peer_server = PeerServer(identity, self._peer_handlers(), network)
        grpc_tls = None if self._tls is None else self._tls.grpc()
        with self.scope:
            async with trio.open_nursery() as nursery:
                self.port = await nursery.start(AdminServer(self.dispatch, "127.0.0.1", 0, tls=grpc_tls).serve)
                self.peer_port = await nursery.start(self.peer_server.serve, "127.0.0.1", 0)
                task_status.started()
        self.stopped.set()

    def _peer_handlers(self) -> dict[int, Callable[[PeerRequest], Awaitable[bytes]]]:
        own = (Api.PRODUCE, Api.REPLICA_FETCH, Api.LOG_DIGEST, API_OF[FetchRequest], API_OF[FetchSnapshotRequest])
        return {api: self._peer_handler(api) for api in own}

    def _peer_handler(self, api: int) -> Callable[[PeerRequest], Awaitable[bytes]]:
        async def handle(request: PeerRequest) -> bytes:
            return msgspec.msgpack.encode(self.peer_answers[api](request.body))

        return handle


class FakeCluster:
    """Nodes in a thread of their own; the first one is the active controller and a broker with id 0. `tls`: of all ports."""

    def __init__(self, tls: Certificates | None = None) -> None:
        self.nodes = [FakeNode(tls) for _ in range(3)]
        for node in self.nodes:
            node.leader = self.nodes[0]
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._main,))
        self._thread.start()
        assert self._ready.wait(10)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            for node in self.nodes:
                await nursery.start(node.run)
            self._ready.set()

    def stop_node(self, node: FakeNode) -> None:
        assert self._token is not None
        trio.from_thread.run_sync(node.scope.cancel, trio_token=self._token)
        assert node.stopped.wait(10)

    def lead(self, node: FakeNode) -> None:
        for other in self.nodes:
            other.leader = node

    def describe(self, leader_id: int = 0) -> None:
        """Let the nodes describe brokers 0 and 1, and topic t with leader `leader_id` of partition 0."""
        brokers = [
            pb.DescribedBroker(broker_id=i, host="127.0.0.1", port=node.port, peer_host="127.0.0.1", peer_port=node.peer_port)
            for i, node in enumerate(self.nodes[:2])
        ]
        cluster = pb.DescribeClusterResponse(cluster_id=CLUSTER_ID, brokers=brokers)
        partition = pb.DescribedPartition(partition_index=0, leader_id=leader_id, replica_nodes=[0, 1])
        topic = pb.DescribedTopic(name="t", topic_id=to_text(TOPIC_ID), partitions=[partition])
        for node in self.nodes:
            node.answers["DescribeCluster"] = lambda _: cluster
            node.answers["DescribeTopicPartitions"] = lambda _: pb.DescribeTopicPartitionsResponse(topics=[topic])

    def close(self) -> None:
        assert self._token is not None
        for node in self.nodes:
            self.stop_node(node)
        self._thread.join(10)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fake = FakeCluster()
    yield fake
    fake.close()
