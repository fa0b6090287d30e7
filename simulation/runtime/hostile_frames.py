"""Frames of a stranger who knows the cluster id and the nodes' ids, but is not a node.

The bytes are for the ports of controllers and brokers. Each frame is meant for a connection of its own. None of them may end a
node, change an epoch, make a caller of an envelope, or show the metadata log of a cluster with an authorizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.gateway.client_codec import encode_request
from kraftlab.messages.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from kraftlab.metadata.peer_rpc import (
    Api,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    EnvelopeRequest,
    LogDigestRequest,
    ReplicaFetchRequest,
)
from kraftlab.quorum.core.messages import (
    API_OF,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    VoteRequest,
)
from kraftlab.quorum.core.types import EPOCH_JUMP_MAX, EPOCH_LAST, EPOCH_MAX, OffsetAndEpoch
from kraftlab.wire.frames import GENERATION_MAX, REQUEST, Frame, encode_frame

STRANGER = 77
STRANGE_DISK = b"hostile stranger"
ADMIN = "User:admin"
VICTIM = "made-by-a-stranger"
"""A topic that no stranger may create."""


class Target(NamedTuple):
    """A cluster: ids of its controllers and brokers, and an epoch that it is in."""

    cluster_id: str
    controllers: Sequence[int]
    brokers: Sequence[int]
    epoch: int


def _encoded(cluster_id: str, generation: int, sender: int, api: int, body: object) -> bytes:
    key = ReplicaKey(sender, STRANGE_DISK)
    head = Frame(REQUEST, api, 0, 1, cluster_id, generation, key, memoryview(msgspec.msgpack.encode(body)))
    return bytes(encode_frame(head))


def frames_for_controller(target: Target, controller_id: int) -> Iterator[bytes]:
    """Yield frames for the port of a controller."""
    fetch = FetchRequest(target.epoch, ReplicaKey(-1), 0, 0, -1, 0, 1_000_000)
    for generation in (1, 2, GENERATION_MAX):
        for sender in (-1, STRANGER, *target.controllers, *target.brokers):
            yield _encoded(target.cluster_id, generation, sender, API_OF[FetchRequest], fetch)
    yield _encoded("some other cluster", 0, STRANGER, API_OF[FetchRequest], fetch)
    me, other = ReplicaKey(controller_id), next(node for node in target.controllers if node != controller_id)
    near = (target.epoch, target.epoch + 1, target.epoch + EPOCH_JUMP_MAX)
    far = (target.epoch + EPOCH_JUMP_MAX + 2, EPOCH_LAST, EPOCH_MAX)
    for sender, epoch in ((STRANGER, epoch) for epoch in (*near, *far)):
        for request in _of_quorum(ReplicaKey(sender, STRANGE_DISK), me, epoch):
            yield _encoded(target.cluster_id, 0, sender, API_OF[type(request)], request)
    for epoch in far:
        for request in _of_quorum(ReplicaKey(other, STRANGE_DISK), me, epoch):
            yield _encoded(target.cluster_id, 0, other, API_OF[type(request)], request)
    for request in _of_quorum(ReplicaKey(other), me, near[-1]):
        yield _encoded(target.cluster_id, 0, STRANGER, API_OF[type(request)], request)
    yield from _of_brokers(target)


def _of_quorum(sender: ReplicaKey, me: ReplicaKey, epoch: int) -> tuple[Request, ...]:
    return (
        VoteRequest(epoch, sender, me, epoch - 1, 1 << 40, False),
        VoteRequest(epoch, sender, me, epoch - 1, 1 << 40, True),
        BeginQuorumEpochRequest(epoch, sender.node_id, me, {}),
        EndQuorumEpochRequest(epoch, sender.node_id, (me,)),
        FetchRequest(epoch, sender, 1 << 40, 1, -1, 0, 1000),
        FetchSnapshotRequest(epoch, sender, OffsetAndEpoch(1 << 40, 1), 0, 1000),
    )


def _of_brokers(target: Target) -> Iterator[bytes]:
    """Yield requests in brokers' names on connections of somebody else, and calls in the administrator's name."""
    creation = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=VICTIM, num_partitions=1, replication_factor=1)])
    envelope = EnvelopeRequest("CreateTopics", ADMIN, creation.SerializeToString())
    topic = CreatableTopic(VICTIM, 1, 1)
    frame = encode_request(1, "", CreateTopicsRequest([topic]), CreateTopicsRequest.NEWEST)[4:]
    for broker in target.brokers:
        for api, body in (
            (Api.BROKER_REGISTRATION, BrokerRegistrationRequest(broker, target.cluster_id, bytes(16), (), (), None, ())),
            (Api.BROKER_HEARTBEAT, BrokerHeartbeatRequest(broker, 0, 0, True, True)),
            (Api.CONTROLLER_REGISTRATION, ControllerRegistrationRequest(broker, bytes(16), ())),
            (Api.ENVELOPE, envelope),
            (Api.ENVELOPE, EnvelopeRequest("CreateTopics", ADMIN, frame, is_frame=True)),
        ):
            yield _encoded(target.cluster_id, 0, STRANGER, api, body)
            yield _encoded(target.cluster_id, 0, -1, api, body)


def frames_for_broker(target: Target, broker_id: int) -> Iterator[bytes]:
    """Yield frames for the PEER port of a broker."""
    digest = LogDigestRequest()
    for generation in (1, 2, GENERATION_MAX):
        for sender in (-1, STRANGER, *target.controllers, *target.brokers):
            yield _encoded(target.cluster_id, generation, sender, Api.LOG_DIGEST, digest)
    yield _encoded("some other cluster", 0, STRANGER, Api.LOG_DIGEST, digest)
    for replica in target.brokers:
        fetch = ReplicaFetchRequest(replica, 0, 0, 0, 1000, ())
        yield _encoded(target.cluster_id, 0, STRANGER, Api.REPLICA_FETCH, fetch)
