"""Table of all calls: one row per request of the Kafka protocol, and per call of the Admin service that Kafka does not have.

Theory of operation. A row says everything about a call that more than one room needs: its name, key and versions, the node that
answers the call, the caller's rights, the form of a refusal, and the effect of a repetition. Servers, both doors (gRPC and the
Kafka protocol) and clients read this table. A room adds only its handlers, by name; `check_handlers` refuses to start a node
that lacks one.

Keys, versions and roles are those of Apache Kafka 4.3, broker and controller, so that a client of ours chooses the same version
of a request as one of Kafka's, and an answer that depends on the version is the same. They name whole protocols: a row without
a place is a request that travels between nodes (voting, registrations), or that is not served here (transactions).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kraftlab.access import NOT_ASKED, refusals
from kraftlab.access.refusals import BROKERS, Refuse, each, no_entries, set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError

from .methods import METHODS, Method

BROKER, CONTROLLER, BOTH = "broker", "controller", "both"
"""Roles of the nodes that offer a request."""
OWN = -1
"""Key of a call that Kafka does not have."""


class Place(enum.Enum):
    """Node that answers a call, and the state that it sees. The value of a place on brokers is the refusal of a controller."""

    WRITE = "the active controller, when the change is committed"
    READ = "any controller, from committed state"
    QUORUM = "the leader of the quorum"
    NODE = "any node, about itself"
    LISTENER = "the Kafka listener of a broker; not a call of the Admin service"
    CONNECTION = "any Kafka listener, by the state of the connection"
    LOG_DIRS = "Log directories belong to brokers; send this to the broker that has them"
    RECORDS = "Records are on brokers; send this to the broker that leads the partition"
    PRODUCER_IDS = "Producers are served by brokers; send this to any broker"


WRITE, READ, QUORUM, NODE, LISTENER, CONNECTION, LOG_DIRS, RECORDS, PRODUCER_IDS = Place


class Row(NamedTuple):
    """One call."""

    name: str
    """Kafka's name, and the method's in the Admin service."""
    key: int
    """Kafka's API key, or OWN."""
    lowest: int
    highest: int
    """Versions that are offered."""
    role: str
    """Kind of nodes that offer the call to Kafka's clients."""
    place: Place | None = None
    """None: not served to clients."""
    rights: str = ""
    """Rule of `access/admission.py`. A name, since clients read this table too and do not load the rules. Handlers of a Kafka
    listener themselves ask for the rights on groups and topics."""
    refuse: Refuse = no_entries
    """Repeats an error of the whole request in the entries of the response, where Kafka does."""
    refused: Mapping[str, int] = {}
    """Fields of a refusal that differ from the field's zero."""
    check: Callable[[Any, int], None] = lambda request, endpoint_type: None
    """Raises ApiError for a request that this type of endpoint does not answer."""
    once: bool = False
    """A repetition without an id answers wrongly: the topic, voter or broker exists already, or is gone. Brokers forward such a
    request once."""
    changes: bool = False
    """The node itself changes something: a call that does not end in time may have been carried out in part."""
    per_broker: bool = False
    """The answer depends on the broker that forwards the call."""
    instead: str = ""
    """Advice for a cluster that speaks only the Kafka protocol."""

    @property
    def keeps_id(self) -> bool:
        """True if an id on the request counts."""
        return self.place is WRITE

    @property
    def is_replicated(self) -> bool:
        """True if the call is about replicated state, which controllers have: it can be linearizable."""
        return self.place in (WRITE, READ, QUORUM)

    @property
    def is_brokers(self) -> bool:
        """True if a broker answers the call itself, or refuses it, and does not forward it."""
        return self.name in METHODS and (not self.is_replicated or self.role == CONTROLLER)


def _own(name: str, place: Place, rights: str, refuse: Refuse = no_entries, **flags: Any) -> Row:
    return Row(name, OWN, 0, 0, BOTH, place, rights, refuse, **flags)


_each_config = each("resources", "responses", "resource_type", "resource_name")
_NO_CONTROLLER = {"controller_id": -1, "cluster_authorized_operations": NOT_ASKED}
_NO_CLUSTER = {**_NO_CONTROLLER, "endpoint_type": BROKERS}
_PLAN = "write a plan (`kraftlab pipeline plan propose --rf TOPIC=N`) and start it with `kraftlab reassign-partitions --execute`"
_SAVED = "save what `kraftlab reassign-partitions --execute` prints, the placement before, and execute that file to go back"
_RATES = "set leader.replication.throttled.rate and follower.replication.throttled.rate with `kraftlab configs`"
_BY_THEMSELVES = "Kafka's controllers take snapshots by themselves (metadata.log.max.record.bytes.between.snapshots)"
_INGEST = "turn the files of a node's metadata log into tables with `kraftlab pipeline ingest`"

_TABLE = (
    Row("Produce", 0, 0, 13, BROKER, LISTENER),
    Row("Fetch", 1, 4, 18, BOTH, LISTENER),
    Row("ListOffsets", 2, 1, 11, BROKER, LISTENER),
    Row("Metadata", 3, 0, 13, BROKER, LISTENER),
    Row("OffsetCommit", 8, 2, 10, BROKER, LISTENER),
    Row("OffsetFetch", 9, 1, 10, BROKER, LISTENER),
    Row("FindCoordinator", 10, 0, 6, BROKER, LISTENER),
    Row("JoinGroup", 11, 0, 9, BROKER, LISTENER),
    Row("Heartbeat", 12, 0, 4, BROKER, LISTENER),
    Row("LeaveGroup", 13, 0, 5, BROKER, LISTENER),
    Row("SyncGroup", 14, 0, 5, BROKER, LISTENER),
    Row("DescribeGroups", 15, 0, 6, BROKER, LISTENER),
    Row("ListGroups", 16, 0, 5, BROKER, LISTENER),
    Row("SaslHandshake", 17, 0, 1, BOTH, CONNECTION),
    Row("ApiVersions", 18, 0, 4, BOTH, NODE, "anybody", refused={"finalized_features_epoch": -1}),
    Row("CreateTopics", 19, 2, 7, BOTH, WRITE, "create_topics", refusals.create_topics, once=True),
    Row("DeleteTopics", 20, 1, 6, BOTH, WRITE, "delete_topics", refusals.delete_topics, once=True),
    Row("DeleteRecords", 21, 0, 2, BROKER, RECORDS, "delete_records", refusals.delete_records, changes=True),
    Row("InitProducerId", 22, 0, 5, BROKER, PRODUCER_IDS, "init_producer_id", refused={"producer_id": -1, "producer_epoch": -1}),
    Row("OffsetForLeaderEpoch", 23, 2, 4, BROKER, LISTENER),
    Row("AddPartitionsToTxn", 24, 0, 5, BROKER),
    Row("AddOffsetsToTxn", 25, 0, 4, BROKER),
    Row("EndTxn", 26, 0, 5, BROKER),
    Row("WriteTxnMarkers", 27, 1, 2, BROKER),
    Row("TxnOffsetCommit", 28, 0, 5, BROKER),
    Row("DescribeAcls", 29, 1, 3, BOTH, READ, "DESCRIBE CLUSTER"),
    Row("CreateAcls", 30, 1, 3, BOTH, WRITE, "ALTER CLUSTER", each("creations", "results")),
    Row("DeleteAcls", 31, 1, 3, BOTH, WRITE, "ALTER CLUSTER", each("filters", "filter_results"), once=True),
    Row("DescribeConfigs", 32, 1, 4, BOTH, READ, "DESCRIBE_CONFIGS", per_broker=True),
    Row("AlterConfigs", 33, 0, 2, BOTH, WRITE, "ALTER_CONFIGS", _each_config, per_broker=True),
    Row("AlterReplicaLogDirs", 34, 1, 2, BROKER, LOG_DIRS, "ALTER CLUSTER", refusals.alter_replica_log_dirs, changes=True),
    Row("DescribeLogDirs", 35, 1, 5, BROKER, LOG_DIRS, "DESCRIBE CLUSTER"),
    Row("SaslAuthenticate", 36, 0, 2, BOTH, CONNECTION),
    Row("CreatePartitions", 37, 0, 3, BOTH, WRITE, "create_partitions", each("topics", "results", "name"), once=True),
    Row("CreateDelegationToken", 38, 1, 3, BOTH),
    Row("RenewDelegationToken", 39, 1, 2, BOTH),
    Row("ExpireDelegationToken", 40, 1, 2, BOTH),
    Row("DescribeDelegationToken", 41, 1, 3, BOTH),
    Row("DeleteGroups", 42, 0, 2, BROKER, LISTENER),
    Row("ElectLeaders", 43, 0, 2, BOTH, WRITE, "ALTER CLUSTER", refusals.elect_leaders),
    Row("IncrementalAlterConfigs", 44, 0, 1, BOTH, WRITE, "ALTER_CONFIGS", _each_config, per_broker=True),
    Row("AlterPartitionReassignments", 45, 0, 1, BOTH, WRITE, "ALTER CLUSTER", refusals.alter_partition_reassignments, once=True),
    Row("ListPartitionReassignments", 46, 0, 0, BOTH, READ, "DESCRIBE CLUSTER", refusals.list_partition_reassignments),
    Row("OffsetDelete", 47, 0, 0, BROKER, LISTENER),
    Row("DescribeClientQuotas", 48, 0, 1, BROKER, READ, "DESCRIBE_CONFIGS CLUSTER, no text"),
    Row("AlterClientQuotas", 49, 0, 1, BOTH, WRITE, "ALTER_CONFIGS CLUSTER, Kafka's text", each("entries", "entries", "entity")),
    Row("DescribeUserScramCredentials", 50, 0, 0, BOTH, READ, "DESCRIBE CLUSTER, no text", refusals.describe_scram_credentials),
    Row("AlterUserScramCredentials", 51, 0, 0, BOTH, WRITE, "ALTER CLUSTER", refusals.alter_user_scram_credentials, once=True),
    Row("Vote", 52, 0, 2, CONTROLLER),
    Row("BeginQuorumEpoch", 53, 0, 1, CONTROLLER),
    Row("EndQuorumEpoch", 54, 0, 1, CONTROLLER),
    Row("DescribeQuorum", 55, 0, 2, BOTH, QUORUM, "DESCRIBE CLUSTER, Kafka's text"),
    Row("AlterPartition", 56, 2, 3, CONTROLLER),
    Row("UpdateFeatures", 57, 0, 2, BOTH, WRITE, "ALTER CLUSTER"),
    Row("Envelope", 58, 0, 0, CONTROLLER),
    Row("FetchSnapshot", 59, 0, 1, CONTROLLER),
    Row("DescribeCluster", 60, 0, 2, BOTH, READ, "describe_cluster", refused=_NO_CLUSTER, check=refusals.check_endpoint_type),
    Row("DescribeProducers", 61, 0, 0, BROKER, LISTENER),
    Row("BrokerRegistration", 62, 0, 4, CONTROLLER),
    Row("BrokerHeartbeat", 63, 0, 2, CONTROLLER),
    Row("UnregisterBroker", 64, 0, 0, BOTH, WRITE, "ALTER CLUSTER", once=True),
    Row("DescribeTransactions", 65, 0, 0, BROKER),
    Row("ListTransactions", 66, 0, 2, BROKER, LISTENER),
    Row("AllocateProducerIds", 67, 0, 0, CONTROLLER, WRITE, "CLUSTER_ACTION CLUSTER"),
    Row("ConsumerGroupHeartbeat", 68, 0, 1, BROKER),
    Row("ConsumerGroupDescribe", 69, 0, 1, BROKER),
    Row("ControllerRegistration", 70, 0, 0, CONTROLLER),
    Row("AssignReplicasToDirs", 73, 0, 0, CONTROLLER),
    Row("ListConfigResources", 74, 0, 1, BROKER, READ, "DESCRIBE_CONFIGS CLUSTER"),
    Row("DescribeTopicPartitions", 75, 0, 0, BROKER, READ, "describe_topic_partitions", refusals.describe_topic_partitions),
    Row("ShareGroupHeartbeat", 76, 1, 1, BROKER),
    Row("ShareGroupDescribe", 77, 1, 1, BROKER),
    Row("ShareFetch", 78, 1, 2, BROKER),
    Row("ShareAcknowledge", 79, 1, 2, BROKER),
    Row("AddRaftVoter", 80, 0, 1, BOTH, QUORUM, "ALTER CLUSTER, Kafka's text", once=True),
    Row("RemoveRaftVoter", 81, 0, 0, BOTH, QUORUM, "ALTER CLUSTER, Kafka's text", once=True),
    Row("UpdateRaftVoter", 82, 0, 0, CONTROLLER),
    Row("InitializeShareGroupState", 83, 0, 0, BROKER),
    Row("ReadShareGroupState", 84, 0, 0, BROKER),
    Row("WriteShareGroupState", 85, 0, 1, BROKER),
    Row("DeleteShareGroupState", 86, 0, 0, BROKER),
    Row("ReadShareGroupStateSummary", 87, 0, 1, BROKER),
    Row("StreamsGroupHeartbeat", 88, 0, 0, BROKER),
    Row("StreamsGroupDescribe", 89, 0, 0, BROKER),
    Row("DescribeShareGroupOffsets", 90, 0, 1, BROKER),
    Row("AlterShareGroupOffsets", 91, 0, 0, BROKER),
    Row("DeleteShareGroupOffsets", 92, 0, 0, BROKER),
    _own("CancelReassignments", WRITE, "ALTER CLUSTER", once=True),
    _own("RollbackPlan", WRITE, "ALTER CLUSTER", once=True, instead=_SAVED),
    _own("ForgetPlans", WRITE, "ALTER CLUSTER", once=True, instead=_SAVED),
    _own("AlterReplicationFactors", WRITE, "ALTER CLUSTER", each("topics", "topics", "name"), instead=_PLAN),
    _own("AlterPartitionCounts", WRITE, "ALTER CLUSTER", each("topics", "topics", "name")),
    _own("AlterInterBrokerThrottle", WRITE, "ALTER_CONFIGS CLUSTER", instead=_RATES),
    _own("TransferLeadership", QUORUM, "ALTER CLUSTER", instead="restart the active controller"),
    _own("OnlineLogDir", LOG_DIRS, "ALTER CLUSTER", changes=True, instead="repair the disk and restart the broker"),
    _own("ResolveReplicaCopy", LOG_DIRS, "ALTER CLUSTER", changes=True, instead="restart the broker once its disk is repaired"),
    _own("CreateSnapshot", NODE, "ALTER CLUSTER", changes=True, instead=_BY_THEMSELVES),
    _own("ListSnapshots", NODE, "DESCRIBE CLUSTER", instead="list the files in the metadata log directory of a node"),
    _own("DescribeMetadata", NODE, "DESCRIBE CLUSTER"),
    _own("DescribeImage", NODE, "DESCRIBE CLUSTER", instead=_INGEST),
    _own("ListMetadataRecords", NODE, "DESCRIBE CLUSTER", instead=_INGEST),
)

CALLS: dict[str, Row] = {row.name: row for row in _TABLE}
"""Every row by name."""
OFFERS: Mapping[str, Row] = {row.name: row for row in _TABLE if row.key != OWN}
"""Rows of the Kafka protocol by name."""
BROKER_OFFERS = tuple(row for row in OFFERS.values() if row.role != CONTROLLER)
CONTROLLER_OFFERS = tuple(row for row in OFFERS.values() if row.role != BROKER)


def check_handlers(node: str, handlers: Iterable[str], wanted: Callable[[Row], bool]) -> None:
    """Raise LookupError, which names the call, if a wanted row has no handler, or a handler no row."""
    handled = frozenset(handlers)
    for name in sorted(METHODS.keys() | handled):
        if name not in CALLS or CALLS[name].place is None:
            raise LookupError(f"{name} has no row in rpc/calls.py, or one without a place; add the row")
    for row in CALLS.values():
        if wanted(row) and row.name not in handled:
            raise LookupError(f"{node} has no handler of {row.name}; add it, or change the row's place in rpc/calls.py")


def fault(method: Method, message: str, code: int = -1) -> Message:
    """Return a response that only says that the whole call failed."""
    header = admin_pb2.ResponseHeader(error_code=code, error_message=message, leader_id=-1)
    return method.response(header=header, **CALLS[method.api].refused)


def refused(api: str, request: Message, error: ApiError) -> Message:
    """Return a response that refuses the whole request, in the header and in the entries."""
    row = CALLS[api]
    response: Any = METHODS[api].response(header=admin_pb2.ResponseHeader(leader_id=-1), **row.refused)
    set_error(response.header, error)
    row.refuse(request, response, error)
    return response  # type: ignore[no-any-return]
