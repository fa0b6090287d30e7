"""The table of peer requests: who may send each, and in whose name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.metadata.peer_rpc import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    Api,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    EnvelopeRequest,
    ForwardingBroker,
    LogDigestRequest,
    MoveProgressRequest,
    ReplicaFetchRequest,
)
from kraftlab.metadata.peer_senders import PEER_SENDERS
from kraftlab.quorum.core.messages import (
    REQUEST_OF,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    ProbeVoterRequest,
    RaftApi,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from kraftlab.quorum.core.types import OffsetAndEpoch, Voter
from kraftlab.quorum.driver.senders import QUORUM_SENDERS
from kraftlab.wire.senders import BROKER, CLIENT, CONTROLLER, NODE, check_sender
from kraftlab.wire.transport import PeerError, PeerRequest

RULES = {**QUORUM_SENDERS, **PEER_SENDERS}
ME = ReplicaKey(1)
ROWS: dict[int, tuple[str, Callable[[int], Any]]] = {
    RaftApi.FETCH: (NODE, lambda node: FetchRequest(1, ReplicaKey(node), 0, 0, -1, 0, 1)),
    RaftApi.FETCH_SNAPSHOT: (NODE, lambda node: FetchSnapshotRequest(1, ReplicaKey(node), OffsetAndEpoch(0, 0), 0, 1)),
    RaftApi.VOTE: (CONTROLLER, lambda node: VoteRequest(1, ReplicaKey(node), ME, 0, 0, False)),
    RaftApi.BEGIN_QUORUM_EPOCH: (CONTROLLER, lambda node: BeginQuorumEpochRequest(1, node, ME, {})),
    RaftApi.END_QUORUM_EPOCH: (CONTROLLER, lambda node: EndQuorumEpochRequest(1, node, ())),
    RaftApi.ADD_VOTER: (CONTROLLER, lambda node: AddVoterRequest(1, Voter(ReplicaKey(node), {}), 1)),
    RaftApi.UPDATE_VOTER: (CONTROLLER, lambda node: UpdateVoterRequest(1, Voter(ReplicaKey(node), {}))),
    RaftApi.REMOVE_VOTER: (CONTROLLER, lambda node: RemoveVoterRequest(1, ReplicaKey(node), 1)),
    Api.ALTER_PARTITION: (BROKER, lambda node: AlterPartitionRequest(node, 1, ())),
    Api.ENVELOPE: (BROKER, lambda node: EnvelopeRequest("Call", "User:a", b"", "", ForwardingBroker(node, {}))),
    Api.BROKER_REGISTRATION: (BROKER, lambda node: BrokerRegistrationRequest(node, "", bytes(16), (), (), None, ())),
    Api.BROKER_HEARTBEAT: (BROKER, lambda node: BrokerHeartbeatRequest(node, 1, 0, False, False)),
    Api.MOVE_PROGRESS: (BROKER, lambda node: MoveProgressRequest(node, 1)),
    Api.ASSIGN_REPLICAS_TO_DIRS: (BROKER, lambda node: AssignReplicasToDirsRequest(node, 1, ())),
    Api.ALLOCATE_PRODUCER_IDS: (BROKER, lambda node: AllocateProducerIdsRequest(node, 1)),
    Api.CONTROLLER_REGISTRATION: (CONTROLLER, lambda node: ControllerRegistrationRequest(node, bytes(16), ())),
    Api.REPLICA_FETCH: (CLIENT, lambda node: ReplicaFetchRequest(node, 1, 0, 0, 1, ())),
}
"""Requests that name a node: who may send them, and a request that names the given node."""


def checked(api: int, sender: int, request: object) -> None:
    check_sender(RULES, PeerRequest(api, 0, ReplicaKey(sender), memoryview(b""), "User:ANONYMOUS", "host:1"), request)


def test_every_request_of_a_peer_has_a_row() -> None:
    apis = {value for name, value in vars(Api).items() if not name.startswith("_")}
    assert RULES.keys() == apis | REQUEST_OF.keys()


@pytest.mark.parametrize("api", ROWS)
def test_a_request_names_its_sender_and_nobody_else(api: int) -> None:
    role, made = ROWS[api]
    assert RULES[api].role == role
    checked(api, 5, made(5))
    for sender in (6, -1):
        with pytest.raises(PeerError, match=r"names node 5|names no node"):
            checked(api, sender, made(5))


def test_requests_that_name_nobody_need_a_node_as_sender_unless_they_are_of_clients() -> None:
    checked(Api.LOG_DIGEST, -1, LogDigestRequest())
    checked(Api.REPLICA_FETCH, -1, ReplicaFetchRequest(-1, -1, 0, 0, 1, ()))
    checked(RaftApi.FETCH, -1, FetchRequest(1, ReplicaKey(-1), 0, 0, -1, 0, 1))
    checked(RaftApi.FETCH, 5, FetchRequest(1, ReplicaKey(-1), 0, 0, -1, 0, 1))
    for api, request in ((Api.ENVELOPE, EnvelopeRequest("Call", "User:a", b"")), (RaftApi.PROBE_VOTER, ProbeVoterRequest(1, ME))):
        checked(api, 5, request)
        with pytest.raises(PeerError, match="names no node"):
            checked(api, -1, request)


@pytest.mark.parametrize("api", ROWS)
def test_under_tls_only_the_role_of_the_row_sends_a_request(api: int) -> None:
    """A client is taken where a node is, as far as it names no node; the rights of its principal decide then."""
    role, made = ROWS[api]
    taken = {CONTROLLER: {"controller"}, BROKER: {"broker"}}.get(role, {"controller", "broker", ""})
    for proven in ("controller", "broker", ""):
        request = PeerRequest(api, 0, ReplicaKey(5), memoryview(b""), "User:x", "host:1", proven)
        if proven in taken:
            check_sender(RULES, request, made(5))
        else:
            with pytest.raises(PeerError, match=f"only a {role} sends") as caught:
                check_sender(RULES, request, made(5))
            assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_no_peer_hands_over_the_leadership() -> None:
    with pytest.raises(PeerError, match="use the admin API"):
        checked(RaftApi.TRANSFER_LEADERSHIP, 5, TransferLeadershipRequest(1, ME, 1))
