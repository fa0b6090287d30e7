"""Calls about the quorum: describe it, add and remove voters, transfer leadership.

The quorum itself decides and waits (KIP-853). This module converts requests into the quorum's messages, and its refusals into
the admin API's. A request that is not answered by its caller's deadline fails there; a record that was appended may still be
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import ZERO, from_text, to_text
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import Listener
from kraftlab.quorum.core.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from kraftlab.quorum.core.types import Voter
from kraftlab.quorum.driver.quorum_description import QuorumDescription, ReplicaDescription
from kraftlab.rpc.methods import LocalCall

CONTROLLER = "CONTROLLER"
METADATA_TOPIC = "__cluster_metadata"
DEFAULT_TIMEOUT_MS = 60_000
ANSWER_MAX_MS = 1000
"""Time that an answer may take on its way to the caller, through a broker or not."""
ANY_EPOCH = -1
_NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. For requests "
    "intended for any replica, this error indicates that the broker is not a replica of the topic partition."
)
"""Kafka's text of NOT_LEADER_OR_FOLLOWER, in the place that its clients show."""


class Quorum(Protocol):
    """This node's replica of the log (`RaftDriver`)."""

    async def ask(self, request: VoterChangeRequest) -> VoterChangeResponse: ...

    def describe(self) -> QuorumDescription: ...

    @property
    def generation(self) -> int: ...


class QuorumOperations:
    """Serves the leader of `quorum`. `image` returns the newest committed metadata."""

    def __init__(self, cluster_id: str, quorum: Quorum, image: Callable[[], MetadataImage]) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._image = image

    def calls(self) -> Mapping[str, LocalCall]:
        """Handlers by method of the Admin service."""
        return {
            "DescribeQuorum": self.describe,
            "AddRaftVoter": self.add_voter,
            "RemoveRaftVoter": self.remove_voter,
            "TransferLeadership": self.transfer_leadership,
        }

    async def add_voter(self, request: admin_pb2.AddRaftVoterRequest) -> admin_pb2.AddRaftVoterResponse:
        """ApiError with the quorum's code and text."""
        self._check_cluster(request)
        key = _replica_key(request.voter_id, request.voter_directory_id, "Add")
        endpoints = _endpoints(request)
        if CONTROLLER not in endpoints:
            shown = ", ".join(f"{name}={endpoint}" for name, endpoint in sorted(endpoints.items()))
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{shown}}})) for the default listener "
                f"ListenerName({CONTROLLER})",
            )
        await self._ask(AddVoterRequest(ANY_EPOCH, Voter(key, endpoints), _timeout_ms(request.header)))
        return admin_pb2.AddRaftVoterResponse()

    async def remove_voter(self, request: admin_pb2.RemoveRaftVoterRequest) -> admin_pb2.RemoveRaftVoterResponse:
        """ApiError with the quorum's code and text."""
        self._check_cluster(request)
        key = _replica_key(request.voter_id, request.voter_directory_id, "Remove")
        await self._ask(RemoveVoterRequest(ANY_EPOCH, key, _timeout_ms(request.header)))
        return admin_pb2.RemoveRaftVoterResponse()

    async def transfer_leadership(self, request: admin_pb2.TransferLeadershipRequest) -> admin_pb2.TransferLeadershipResponse:
        """ApiError with the quorum's code and text; VOTER_NOT_FOUND if no voter has that id."""
        if request.voter_directory_id:
            key = _replica_key(request.voter_id, request.voter_directory_id, "Transfer leadership")
        else:
            key = self._voter_with_id(request.voter_id)
        await self._ask(TransferLeadershipRequest(ANY_EPOCH, key, _timeout_ms(request.header)))
        return admin_pb2.TransferLeadershipResponse()

    def _voter_with_id(self, node_id: int) -> ReplicaKey:
        voters = self._quorum.describe().voters
        for voter in voters:
            if voter.node_id == node_id:
                return ReplicaKey(voter.node_id, voter.directory_id)
        ids = ",".join(str(voter.node_id) for voter in voters)
        raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"Controller {node_id} is not a voter; voters are {ids}.")

    def _check_cluster(self, request: admin_pb2.AddRaftVoterRequest | admin_pb2.RemoveRaftVoterRequest) -> None:
        if request.HasField("cluster_id") and request.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{self._cluster_id}"',
            )

    async def _ask(self, request: VoterChangeRequest) -> None:
        response = await self._quorum.ask(request)
        if response.error.value != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error.value), response.message or None)

    async def describe(self, request: admin_pb2.DescribeQuorumRequest) -> admin_pb2.DescribeQuorumResponse:
        """Describe the quorum. A request with topics gets Kafka's form as well: UNKNOWN_TOPIC_OR_PARTITION on every partition
        if it names any other than the metadata log's, NOT_LEADER_OR_FOLLOWER from a node that does not lead.
        """
        quorum = self._quorum.describe()
        if request.topics and not _is_about_the_metadata(request):
            return _refused(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        if request.topics and quorum.leader_id != quorum.node_id:
            return _refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_LEADER)
        response = self._described(quorum)
        response.header.error_message = ""
        if request.topics:
            partition = response.topics.add(topic_name=METADATA_TOPIC).partitions.add(
                leader_id=quorum.leader_id,
                leader_epoch=quorum.leader_epoch,
                high_watermark=quorum.high_watermark,
                current_voters=response.current_voters,
                observers=response.observers,
            )
            partition.error_message = ""
            for voter in response.current_voters:
                response.nodes.add(node_id=voter.replica_id, listeners=voter.endpoints)
        return response

    def _described(self, quorum: QuorumDescription) -> admin_pb2.DescribeQuorumResponse:
        registered = _registered_endpoints(self._image())
        return admin_pb2.DescribeQuorumResponse(
            cluster_id=self._cluster_id,
            leader_id=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            current_voters=[_replica(voter, voter.endpoints) for voter in quorum.voters],
            observers=[
                _replica(observer, observer.endpoints or registered.get(observer.node_id, {})) for observer in quorum.observers
            ],
            kraft_version=quorum.kraft_version,
            log_start_offset=quorum.log_start_offset,
            generation=self._quorum.generation,
            voters_offset=quorum.voters_offset,
        )


def _is_about_the_metadata(request: admin_pb2.DescribeQuorumRequest) -> bool:
    requested = [(topic.topic_name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
    return len(request.topics) == 1 and requested == [(METADATA_TOPIC, 0)]


def _refused(request: admin_pb2.DescribeQuorumRequest, code: ErrorCode, message: str) -> admin_pb2.DescribeQuorumResponse:
    response = admin_pb2.DescribeQuorumResponse()
    response.header.error_message = ""
    for topic in request.topics:
        answers = response.topics.add(topic_name=topic.topic_name).partitions
        for entry in topic.partitions:
            answers.add(partition_index=entry.partition_index, error_code=code, error_message=message)
    return response


def _timeout_ms(header: admin_pb2.RequestHeader) -> int:
    """Timeout for the quorum: a little less than the caller's, since only the quorum's answer names the obstacle."""
    timeout_ms = header.timeout_ms if header.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
    if timeout_ms <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "")
    return max(1, timeout_ms - min(timeout_ms // 5, ANSWER_MAX_MS))


def _replica_key(node_id: int, directory_id: str, what: str) -> ReplicaKey:
    """ApiError INVALID_REQUEST for a key that no voter can have."""
    try:
        directory = from_text(directory_id)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} voter request: {error}") from None
    if node_id < 0 or directory == ZERO:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} voter request didn't include a valid voter")
    return ReplicaKey(node_id, directory)


def _endpoints(request: admin_pb2.AddRaftVoterRequest) -> dict[str, Endpoint]:
    """Endpoints of the new voter, by listener. ApiError INVALID_REQUEST for an endpoint that cannot be connected to."""
    endpoints: dict[str, Endpoint] = {}
    for listener in request.listeners:
        if listener.name in endpoints:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Add voter request names the listener {listener.name} twice")
        if not listener.host or not 0 < listener.port < 65_536:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request has {listener.host!r}, port {listener.port}, for the listener {listener.name}; give it a "
                "host and a port from 1 to 65535",
            )
        endpoints[listener.name] = Endpoint(listener.host, listener.port)
    return endpoints


def _registered_endpoints(image: MetadataImage) -> dict[int, dict[str, Endpoint]]:
    """Registered endpoints of all nodes, by node id."""

    def by_name(listeners: Iterable[Listener]) -> dict[str, Endpoint]:
        return {listener.name: Endpoint(listener.host, listener.port) for listener in listeners}

    cluster = image.cluster
    return {node_id: by_name(node.listeners) for node_id, node in (*cluster.brokers.items(), *cluster.controllers.items())}


def _replica(replica: ReplicaDescription, endpoints: Mapping[str, Endpoint]) -> admin_pb2.QuorumReplica:
    return admin_pb2.QuorumReplica(
        replica_id=replica.node_id,
        replica_directory_id=to_text(replica.directory_id),
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_time_ms,
        last_caught_up_timestamp=replica.last_caught_up_time_ms,
        endpoints=[
            admin_pb2.QuorumEndpoint(name=name, host=endpoint.host, port=endpoint.port)
            for name, endpoint in sorted(endpoints.items())
        ],
    )
