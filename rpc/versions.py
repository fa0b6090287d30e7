"""Which requests a node understands, and in which versions: what ApiVersions lists, and what is refused.

The lists are those of Apache Kafka 4.3, broker and controller, so that a client of ours chooses the same version of a request as
one of Kafka's would, and an answer that depends on the version is the same. They name whole protocols: what is no call of the
Admin service travels between nodes (fetching, voting), belongs to clients of data (groups, transactions), or is not served here.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2

from .methods import Method, fault

UNSUPPORTED_VERSION = 35
API_VERSIONS = "ApiVersions"


class Offer(NamedTuple):
    """One kind of request. `name` is Kafka's, and the method's in the Admin service if it is a call there."""

    name: str
    key: int
    lowest: int
    highest: int


BROKER_OFFERS: tuple[Offer, ...] = (
    Offer("Produce", 0, 0, 13),
    Offer("Fetch", 1, 4, 18),
    Offer("ListOffsets", 2, 1, 11),
    Offer("Metadata", 3, 0, 13),
    Offer("OffsetCommit", 8, 2, 10),
    Offer("OffsetFetch", 9, 1, 10),
    Offer("FindCoordinator", 10, 0, 6),
    Offer("JoinGroup", 11, 0, 9),
    Offer("Heartbeat", 12, 0, 4),
    Offer("LeaveGroup", 13, 0, 5),
    Offer("SyncGroup", 14, 0, 5),
    Offer("DescribeGroups", 15, 0, 6),
    Offer("ListGroups", 16, 0, 5),
    Offer("SaslHandshake", 17, 0, 1),
    Offer("ApiVersions", 18, 0, 4),
    Offer("CreateTopics", 19, 2, 7),
    Offer("DeleteTopics", 20, 1, 6),
    Offer("DeleteRecords", 21, 0, 2),
    Offer("InitProducerId", 22, 0, 5),
    Offer("OffsetForLeaderEpoch", 23, 2, 4),
    Offer("AddPartitionsToTxn", 24, 0, 5),
    Offer("AddOffsetsToTxn", 25, 0, 4),
    Offer("EndTxn", 26, 0, 5),
    Offer("WriteTxnMarkers", 27, 1, 2),
    Offer("TxnOffsetCommit", 28, 0, 5),
    Offer("DescribeAcls", 29, 1, 3),
    Offer("CreateAcls", 30, 1, 3),
    Offer("DeleteAcls", 31, 1, 3),
    Offer("DescribeConfigs", 32, 1, 4),
    Offer("AlterConfigs", 33, 0, 2),
    Offer("AlterReplicaLogDirs", 34, 1, 2),
    Offer("DescribeLogDirs", 35, 1, 5),
    Offer("SaslAuthenticate", 36, 0, 2),
    Offer("CreatePartitions", 37, 0, 3),
    Offer("CreateDelegationToken", 38, 1, 3),
    Offer("RenewDelegationToken", 39, 1, 2),
    Offer("ExpireDelegationToken", 40, 1, 2),
    Offer("DescribeDelegationToken", 41, 1, 3),
    Offer("DeleteGroups", 42, 0, 2),
    Offer("ElectLeaders", 43, 0, 2),
    Offer("IncrementalAlterConfigs", 44, 0, 1),
    Offer("AlterPartitionReassignments", 45, 0, 1),
    Offer("ListPartitionReassignments", 46, 0, 0),
    Offer("OffsetDelete", 47, 0, 0),
    Offer("DescribeClientQuotas", 48, 0, 1),
    Offer("AlterClientQuotas", 49, 0, 1),
    Offer("DescribeUserScramCredentials", 50, 0, 0),
    Offer("AlterUserScramCredentials", 51, 0, 0),
    Offer("DescribeQuorum", 55, 0, 2),
    Offer("UpdateFeatures", 57, 0, 2),
    Offer("DescribeCluster", 60, 0, 2),
    Offer("DescribeProducers", 61, 0, 0),
    Offer("UnregisterBroker", 64, 0, 0),
    Offer("DescribeTransactions", 65, 0, 0),
    Offer("ListTransactions", 66, 0, 2),
    Offer("ConsumerGroupHeartbeat", 68, 0, 1),
    Offer("ConsumerGroupDescribe", 69, 0, 1),
    Offer("ListConfigResources", 74, 0, 1),
    Offer("DescribeTopicPartitions", 75, 0, 0),
    Offer("ShareGroupHeartbeat", 76, 1, 1),
    Offer("ShareGroupDescribe", 77, 1, 1),
    Offer("ShareFetch", 78, 1, 2),
    Offer("ShareAcknowledge", 79, 1, 2),
    Offer("AddRaftVoter", 80, 0, 1),
    Offer("RemoveRaftVoter", 81, 0, 0),
    Offer("InitializeShareGroupState", 83, 0, 0),
    Offer("ReadShareGroupState", 84, 0, 0),
    Offer("WriteShareGroupState", 85, 0, 1),
    Offer("DeleteShareGroupState", 86, 0, 0),
    Offer("ReadShareGroupStateSummary", 87, 0, 1),
    Offer("StreamsGroupHeartbeat", 88, 0, 0),
    Offer("StreamsGroupDescribe", 89, 0, 0),
    Offer("DescribeShareGroupOffsets", 90, 0, 1),
    Offer("AlterShareGroupOffsets", 91, 0, 0),
    Offer("DeleteShareGroupOffsets", 92, 0, 0),
)

CONTROLLER_OFFERS: tuple[Offer, ...] = (
    Offer("Fetch", 1, 4, 18),
    Offer("SaslHandshake", 17, 0, 1),
    Offer("ApiVersions", 18, 0, 4),
    Offer("CreateTopics", 19, 2, 7),
    Offer("DeleteTopics", 20, 1, 6),
    Offer("DescribeAcls", 29, 1, 3),
    Offer("CreateAcls", 30, 1, 3),
    Offer("DeleteAcls", 31, 1, 3),
    Offer("DescribeConfigs", 32, 1, 4),
    Offer("AlterConfigs", 33, 0, 2),
    Offer("SaslAuthenticate", 36, 0, 2),
    Offer("CreatePartitions", 37, 0, 3),
    Offer("CreateDelegationToken", 38, 1, 3),
    Offer("RenewDelegationToken", 39, 1, 2),
    Offer("ExpireDelegationToken", 40, 1, 2),
    Offer("DescribeDelegationToken", 41, 1, 3),
    Offer("ElectLeaders", 43, 0, 2),
    Offer("IncrementalAlterConfigs", 44, 0, 1),
    Offer("AlterPartitionReassignments", 45, 0, 1),
    Offer("ListPartitionReassignments", 46, 0, 0),
    Offer("AlterClientQuotas", 49, 0, 1),
    Offer("DescribeUserScramCredentials", 50, 0, 0),
    Offer("AlterUserScramCredentials", 51, 0, 0),
    Offer("Vote", 52, 0, 2),
    Offer("BeginQuorumEpoch", 53, 0, 1),
    Offer("EndQuorumEpoch", 54, 0, 1),
    Offer("DescribeQuorum", 55, 0, 2),
    Offer("AlterPartition", 56, 2, 3),
    Offer("UpdateFeatures", 57, 0, 2),
    Offer("Envelope", 58, 0, 0),
    Offer("FetchSnapshot", 59, 0, 1),
    Offer("DescribeCluster", 60, 0, 2),
    Offer("BrokerRegistration", 62, 0, 4),
    Offer("BrokerHeartbeat", 63, 0, 2),
    Offer("UnregisterBroker", 64, 0, 0),
    Offer("AllocateProducerIds", 67, 0, 0),
    Offer("ControllerRegistration", 70, 0, 0),
    Offer("AssignReplicasToDirs", 73, 0, 0),
    Offer("AddRaftVoter", 80, 0, 1),
    Offer("RemoveRaftVoter", 81, 0, 0),
    Offer("UpdateRaftVoter", 82, 0, 0),
)

OFFERS: dict[str, Offer] = {offer.name: offer for offer in (*CONTROLLER_OFFERS, *BROKER_OFFERS)}
"""By name. The ranges of both roles are the same."""


def version_of(request: Message) -> int:
    """Kafka's version of a request, which is the newest that is offered if it does not say. Calls that Kafka has not: 0."""
    header: admin_pb2.RequestHeader = getattr(request, "header")  # noqa: B009 - every request has one
    if header.HasField("api_version"):
        return header.api_version
    offer = OFFERS.get(type(request).__name__.removesuffix("Request"))
    return offer.highest if offer is not None else 0


def refusal(method: Method, request: Message) -> Message | None:
    """The answer to a request in a version that is not offered, None if it is. ApiVersions answers for itself, as any client has
    to understand its oldest answer.
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
