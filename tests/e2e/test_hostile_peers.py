"""A stranger's frames at the ports of real nodes, again and again, while an authorizer is on.

All nodes live, no epoch rises, no key is shown, and nothing is done in the administrator's name.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.credentials import scram_credential
from kraftlab.client.metadata_log import MetadataLog
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import from_text
from kraftlab.demo.lab import wait_until
from kraftlab.lab import LocalCluster
from kraftlab.metadata.peer_rpc import (
    Api,
    FetchPartition,
    ListOffsetsRequest,
    LogDigestRequest,
    ProduceRequest,
    ReplicaFetchRequest,
    WantedOffset,
)
from kraftlab.metadata.scram import ScramMechanism
from kraftlab.quorum.core.messages import API_OF, RESPONSE_OF, FetchRequest, FetchSnapshotRequest
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.simulation.runtime.hostile_frames import VICTIM, Target, frames_for_broker, frames_for_controller
from kraftlab.wire.frames import ERROR, REQUEST, Frame, encode_frame

pytestmark = pytest.mark.cluster

OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "listener.name.grpc.users": "admin:admin-secret",
    "controller.quorum.fetch.timeout.ms": "10000",
}
"""The long timeout keeps honest elections away on a busy machine."""
ROUNDS = 2
TOPIC = "guarded"


class Guarded(NamedTuple):
    """A cluster with an authorizer, and its administrator."""

    cluster: LocalCluster
    admin: AdminClient


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    with (
        LocalCluster(directory, 3, 2, 1, overrides=OVERRIDES) as cluster,
        AdminClient(str(cluster.node(0).grpc), user="admin", password="admin-secret", timeout_ms=30_000) as admin,
    ):
        created = admin.create_topics([pb.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=2)])
        assert [topic.error_code for topic in created.topics] == [0]
        credential = scram_credential("alice", ScramMechanism.SCRAM_SHA_256, "secret")
        admin.call(pb.AlterUserScramCredentialsResponse, pb.AlterUserScramCredentialsRequest(upsertions=[credential]))
        yield Guarded(cluster, admin)


def exchanged(at: Endpoint, data: bytes) -> bytes:
    """Send bytes over a new connection; return what comes back within a moment, or before the connection ends."""
    with socket.create_connection((at.host, at.port), 5) as connected:
        connected.settimeout(0.5)
        connected.sendall(data)
        try:
            return connected.recv(1 << 20)
        except (TimeoutError, ConnectionResetError):
            return b""


def asked(guarded: Guarded, at: Endpoint, api: int, body: object, sender: int = -1) -> Frame:
    """Send a request of a client; return the answer's frame."""
    frame = Frame(REQUEST, api, 0, 1, guarded.cluster.cluster_id, 0, ReplicaKey(sender), memoryview(msgspec.msgpack.encode(body)))
    return msgspec.msgpack.decode(exchanged(at, bytes(encode_frame(frame)))[4:], type=Frame)


def test_a_strangers_frames_end_no_node_and_raise_no_epoch(guarded: Guarded) -> None:
    cluster, admin = guarded
    before = admin.describe_quorum()
    pids = {node.node_id: cluster.pid(node.node_id) for node in cluster.plan.nodes}
    target = Target(cluster.cluster_id, cluster.controller_ids, cluster.broker_ids, before.leader_epoch)
    for _ in range(ROUNDS):
        for node in cluster.plan.nodes:
            frames = frames_for_controller if node.node_id in cluster.controller_ids else frames_for_broker
            for data in frames(target, node.node_id):
                exchanged(node.peer, data)
    assert {node.node_id: cluster.pid(node.node_id) for node in cluster.plan.nodes} == pids
    assert not cluster.exited()
    after = admin.describe_quorum()
    assert (after.leader_id, after.leader_epoch, after.generation) == (before.leader_id, before.leader_epoch, 0)
    assert VICTIM not in admin.describe_topics()


def test_the_metadata_log_with_its_keys_is_not_for_strangers(guarded: Guarded) -> None:
    cluster, admin = guarded
    quorum = admin.describe_quorum()
    leader = cluster.node(quorum.leader_id).peer
    for sender in (-1, 77):
        for request in (
            FetchRequest(quorum.leader_epoch, ReplicaKey(sender), 0, 0, -1, 0, 1 << 20),
            FetchSnapshotRequest(quorum.leader_epoch, ReplicaKey(sender), OffsetAndEpoch(0, 0), 0, 1 << 20),
        ):
            api = API_OF[type(request)]
            answer: Any = msgspec.msgpack.decode(asked(guarded, leader, api, request, sender).body, type=RESPONSE_OF[api])
            assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert b"SCRAM" not in msgspec.msgpack.encode(answer)


def test_records_are_not_for_strangers_either(guarded: Guarded) -> None:
    cluster, admin = guarded
    topic_id = from_text(admin.describe_topics([TOPIC])[TOPIC].topic_id)
    requests: tuple[tuple[int, object, int], ...] = (
        (Api.PRODUCE, ProduceRequest(topic_id, 0, 1, 1000, memoryview(b"")), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Api.LIST_OFFSETS, ListOffsetsRequest((WantedOffset(topic_id, 0, -1, -1),)), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (
            Api.REPLICA_FETCH,
            ReplicaFetchRequest(-1, -1, 0, 0, 1000, (FetchPartition(topic_id, 0, -1, 0, -1, 0, 1000),)),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
        (Api.LOG_DIGEST, LogDigestRequest(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    )
    for broker in cluster.broker_ids:
        for api, request, code in requests:
            answer = asked(guarded, cluster.node(broker).peer, api, request)
            assert (answer.kind, msgspec.msgpack.decode(answer.body)[0]) == (ERROR, code), request


def test_a_broker_that_nobody_knows_registers_and_then_reads_the_log(guarded: Guarded) -> None:
    """The log is refused to it at first; the refusal names the leader."""
    cluster, admin = guarded
    broker = cluster.broker_ids[-1]
    cluster.kill_node(broker)
    admin.unregister_broker(broker)
    assert broker not in {known.broker_id for known in admin.describe_cluster().brokers}
    shutil.rmtree(cluster.metadata_dir(broker) / "__cluster_metadata-0")
    cluster.start_node(broker)

    def serves() -> bool:
        return any(known.broker_id == broker and not known.is_fenced for known in admin.describe_cluster().brokers)

    wait_until("the broker is registered and unfenced", serves)


def test_a_reader_of_the_log_learns_what_to_do(guarded: Guarded) -> None:
    with (
        MetadataLog(str(guarded.cluster.node(0).grpc), timeout_ms=5_000) as log,
        pytest.raises(ApiError) as refused,
    ):
        log.fetch(OffsetAndEpoch(0, 0))
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
