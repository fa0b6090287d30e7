"""The requests that a node understands, and their versions: listed by ApiVersions, others refused.

The lists are those of Apache Kafka 4.3, broker and controller, so that a client of ours chooses the same version of a request as
one of Kafka's, and an answer that depends on the version is the same. They name whole protocols. Requests that are not calls of
the Admin service travel between nodes (fetching, voting), belong to clients of data (producing, transactions), or are not served
here.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2

from .methods import Method, fault

UNSUPPORTED_VERSION = 35
API_VERSIONS = "ApiVersions"
BROKER, CONTROLLER, BOTH = "broker", "controller", "both"
"""Roles of nodes that make an offer."""


class Offer(NamedTuple):
    """One kind of request. `name` is Kafka's, and the method's in the Admin service if it is a call there."""

    name: str
    key: int
    lowest: int
    highest: int
    role: str = BOTH


_TABLE = (
    Offer("Produce", 0, 0, 13, BROKER),
    Offer("Fetch", 1, 4, 18, BOTH),
    Offer("ListOffsets", 2, 1, 11, BROKER),
    Offer("Metadata", 3, 0, 13, BROKER),
    Offer("OffsetCommit", 8, 2, 10, BROKER),
    Offer("OffsetFetch", 9, 1, 10, BROKER),
    Offer("FindCoordinator", 10, 0, 6, BROKER),
    Offer("JoinGroup", 11, 0, 9, BROKER),
    Offer("Heartbeat", 12, 0, 4, BROKER),
    Offer("LeaveGroup", 13, 0, 5, BROKER),
    Offer("SyncGroup", 14, 0, 5, BROKER),
    Offer("DescribeGroups", 15, 0, 6, BROKER),
    Offer("ListGroups", 16, 0, 5, BROKER),
    Offer("SaslHandshake", 17, 0, 1, BOTH),
    Offer("ApiVersions", 18, 0, 4, BOTH),
    Offer("CreateTopics", 19, 2, 7, BOTH),
    Offer("DeleteTopics", 20, 1, 6, BOTH),
    Offer("DeleteRecords", 21, 0, 2, BROKER),
    Offer("InitProducerId", 22, 0, 5, BROKER),
    Offer("OffsetForLeaderEpoch", 23, 2, 4, BROKER),
    Offer("AddPartitionsToTxn", 24, 0, 5, BROKER),
    Offer("AddOffsetsToTxn", 25, 0, 4, BROKER),
    Offer("EndTxn", 26, 0, 5, BROKER),
    Offer("WriteTxnMarkers", 27, 1, 2, BROKER),
    Offer("TxnOffsetCommit", 28, 0, 5, BROKER),
    Offer("DescribeAcls", 29, 1, 3, BOTH),
    Offer("CreateAcls", 30, 1, 3, BOTH),
    Offer("DeleteAcls", 31, 1, 3, BOTH),
    Offer("DescribeConfigs", 32, 1, 4, BOTH),
    Offer("AlterConfigs", 33, 0, 2, BOTH),
    Offer("AlterReplicaLogDirs", 34, 1, 2, BROKER),
    Offer("DescribeLogDirs", 35, 1, 5, BROKER),
    Offer("SaslAuthenticate", 36, 0, 2, BOTH),
    Offer("CreatePartitions", 37, 0, 3, BOTH),
    Offer("CreateDelegationToken", 38, 1, 3, BOTH),
    Offer("RenewDelegationToken", 39, 1, 2, BOTH),
    Offer("ExpireDelegationToken", 40, 1, 2, BOTH),
    Offer("DescribeDelegationToken", 41, 1, 3, BOTH),
    Offer("DeleteGroups", 42, 0, 2, BROKER),
    Offer("ElectLeaders", 43, 0, 2, BOTH),
    Offer("IncrementalAlterConfigs", 44, 0, 1, BOTH),
    Offer("AlterPartitionReassignments", 45, 0, 1, BOTH),
    Offer("ListPartitionReassignments", 46, 0, 0, BOTH),
    Offer("OffsetDelete", 47, 0, 0, BROKER),
    Offer("DescribeClientQuotas", 48, 0, 1, BROKER),
    Offer("AlterClientQuotas", 49, 0, 1, BOTH),
    Offer("DescribeUserScramCredentials", 50, 0, 0, BOTH),
    Offer("AlterUserScramCredentials", 51, 0, 0, BOTH),
    Offer("Vote", 52, 0, 2, CONTROLLER),
    Offer("BeginQuorumEpoch", 53, 0, 1, CONTROLLER),
    Offer("EndQuorumEpoch", 54, 0, 1, CONTROLLER),
    Offer("DescribeQuorum", 55, 0, 2, BOTH),
    Offer("AlterPartition", 56, 2, 3, CONTROLLER),
    Offer("UpdateFeatures", 57, 0, 2, BOTH),
    Offer("Envelope", 58, 0, 0, CONTROLLER),
    Offer("FetchSnapshot", 59, 0, 1, CONTROLLER),
    Offer("DescribeCluster", 60, 0, 2, BOTH),
    Offer("DescribeProducers", 61, 0, 0, BROKER),
    Offer("BrokerRegistration", 62, 0, 4, CONTROLLER),
    Offer("BrokerHeartbeat", 63, 0, 2, CONTROLLER),
    Offer("UnregisterBroker", 64, 0, 0, BOTH),
    Offer("DescribeTransactions", 65, 0, 0, BROKER),
    Offer("ListTransactions", 66, 0, 2, BROKER),
    Offer("AllocateProducerIds", 67, 0, 0, CONTROLLER),
    Offer("ConsumerGroupHeartbeat", 68, 0, 1, BROKER),
    Offer("ConsumerGroupDescribe", 69, 0, 1, BROKER),
    Offer("ControllerRegistration", 70, 0, 0, CONTROLLER),
    Offer("AssignReplicasToDirs", 73, 0, 0, CONTROLLER),
    Offer("ListConfigResources", 74, 0, 1, BROKER),
    Offer("DescribeTopicPartitions", 75, 0, 0, BROKER),
    Offer("ShareGroupHeartbeat", 76, 1, 1, BROKER),
    Offer("ShareGroupDescribe", 77, 1, 1, BROKER),
    Offer("ShareFetch", 78, 1, 2, BROKER),
    Offer("ShareAcknowledge", 79, 1, 2, BROKER),
    Offer("AddRaftVoter", 80, 0, 1, BOTH),
    Offer("RemoveRaftVoter", 81, 0, 0, BOTH),
    Offer("UpdateRaftVoter", 82, 0, 0, CONTROLLER),
    Offer("InitializeShareGroupState", 83, 0, 0, BROKER),
    Offer("ReadShareGroupState", 84, 0, 0, BROKER),
    Offer("WriteShareGroupState", 85, 0, 1, BROKER),
    Offer("DeleteShareGroupState", 86, 0, 0, BROKER),
    Offer("ReadShareGroupStateSummary", 87, 0, 1, BROKER),
    Offer("StreamsGroupHeartbeat", 88, 0, 0, BROKER),
    Offer("StreamsGroupDescribe", 89, 0, 0, BROKER),
    Offer("DescribeShareGroupOffsets", 90, 0, 1, BROKER),
    Offer("AlterShareGroupOffsets", 91, 0, 0, BROKER),
    Offer("DeleteShareGroupOffsets", 92, 0, 0, BROKER),
)

OFFERS: dict[str, Offer] = {offer.name: offer for offer in _TABLE}
"""Every offer by name."""
BROKER_OFFERS = tuple(offer for offer in _TABLE if offer.role != CONTROLLER)
CONTROLLER_OFFERS = tuple(offer for offer in _TABLE if offer.role != BROKER)


def version_of(request: Message) -> int:
    """Return Kafka's version of a request; by default the newest that is offered. Calls that Kafka does not have: 0."""
    header: admin_pb2.RequestHeader = getattr(request, "header")  # noqa: B009 - every request has one
    if header.HasField("api_version"):
        return header.api_version
    offer = OFFERS.get(type(request).__name__.removesuffix("Request"))
    return offer.highest if offer is not None else 0


def refusal(method: Method, request: Message) -> Message | None:
    """Return the answer to a request in an unsupported version, None if it is supported.

    ApiVersions answers for itself, because any client must understand its oldest answer.
    """
    header: admin_pb2.RequestHeader = getattr(request, "header")  # noqa: B009 - every request has one
    if not header.HasField("api_version") or method.api == API_VERSIONS:
        return None
    offer = OFFERS.get(method.api, Offer(method.api, -1, 0, 0))
    if offer.lowest <= header.api_version <= offer.highest:
        return None
    offered = f"{offer.lowest} to {offer.highest}" if offer.lowest < offer.highest else str(offer.highest)
    return fault(
        method,
        f"{method.api} version {header.api_version} is not offered; use version {offered}, or none for the newest.",
        UNSUPPORTED_VERSION,
    )
