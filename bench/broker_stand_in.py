"""A broker that only exists in the metadata: it registers, is unfenced by one heartbeat, and hosts nothing.

Topics need a broker for their replicas, and a measurement of the quorum must not pay for a broker's disks. The cluster's
`broker.session.timeout.ms` must be longer than the measurement (`SESSION_OVERRIDE`), since there is no second heartbeat. It has
no PEER listener: a port that refuses would show that it is dead.
"""

from __future__ import annotations

import msgspec
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import random_uuid
from kraftlab.lab import LocalCluster
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import (
    Api,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftlab.metadata.records import Listener
from kraftlab.wire.transport import PeerIdentity, PeerPool

from .measure import NoResult

BROKER_ID = 0
SESSION_OVERRIDE = {"broker.session.timeout.ms": "3600000"}
TIMEOUT_MS = 5000


def register(cluster: LocalCluster, leader_id: int) -> None:
    """Register broker 0 with the active controller and unfence it. NoResult if the controller refuses."""
    trio.run(_register, cluster, cluster.node(leader_id).peer)


async def _register(cluster: LocalCluster, controller: Endpoint) -> None:
    directory_id = random_uuid()
    registration = BrokerRegistrationRequest(
        BROKER_ID,
        cluster.cluster_id,
        random_uuid(),
        (Listener("GRPC", "127.0.0.1", 1),),
        supported_features(),
        None,
        (directory_id,),
    )
    async with trio.open_nursery() as nursery:
        pool = PeerPool(nursery, PeerIdentity(cluster.cluster_id, 0, ReplicaKey(BROKER_ID, directory_id)))
        registered = await _until_active(pool, controller, msgspec.msgpack.encode(registration))
        heartbeat = BrokerHeartbeatRequest(BROKER_ID, registered.broker_epoch, registered.broker_epoch + 1, False, False)
        body = await pool.request(controller, Api.BROKER_HEARTBEAT, msgspec.msgpack.encode(heartbeat), timeout_ms=TIMEOUT_MS)
        beaten = msgspec.msgpack.decode(body, type=BrokerHeartbeatResponse)
        if beaten.error or beaten.is_fenced:
            raise NoResult(f"the stand-in broker was not unfenced: {beaten.message}")
        pool.close()


async def _until_active(pool: PeerPool, controller: Endpoint, registration: bytes) -> BrokerRegistrationResponse:
    """Send the registration until the leader of the quorum is active: after the start of a cluster, activation takes a moment."""
    with trio.move_on_after(TIMEOUT_MS / 1000):
        while True:
            body = await pool.request(controller, Api.BROKER_REGISTRATION, registration, timeout_ms=TIMEOUT_MS)
            response = msgspec.msgpack.decode(body, type=BrokerRegistrationResponse)
            if response.error == ErrorCode.NONE:
                return response
            await trio.sleep(0.02)
    raise NoResult(f"the stand-in broker was not registered: {response.message}")
