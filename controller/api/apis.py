"""Table of the controller's admin calls, one row per call.

A row has the kind of the call, its handler, and the form of a refusal. A *write* runs on the active controller only and is
answered when it is committed. A *read* sees committed state on any controller. A *local* call is about this node. A *quorum*
call is about the quorum and answered by its leader. The service walks this table and knows no call by name.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kraftlab.access.group_admission import GROUP_CALLS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.node import logger_configs
from kraftlab.rpc.methods import LocalCall
from kraftlab.rpc.versions import version_of

from ..cluster import brokers, producer_ids
from ..cluster import describe as cluster
from ..configs import client_quotas, configs, features
from ..configs import description as config_description
from ..engine.quorum_controller import QuorumController
from ..engine.state import ControllerState
from ..partitions import leader_elections
from ..reassignment import named_changes as kip_179
from ..reassignment import reassignments
from ..reassignment.listing import Observer, listing
from ..reassignment.listing import is_long as is_long_listing
from ..security import acls, scram
from ..topics import description, partition_counts, topics
from . import refusals

LARGE_BYTES = 64 * 1024
"""Size of a request that may have very many entries."""


class Served(NamedTuple):
    """The answering node: its controller, the handlers of local calls, and its clock.

    `broker`: the broker that forwarded the call, if the answer depends on it.
    """

    controller: QuorumController
    local: Mapping[str, LocalCall]
    now_ms: Callable[[], int]
    broker: ForwardingBroker | None = None


class Kind(enum.Enum):
    """Place where a call runs, and the state that it sees."""

    WRITE = "write"
    READ = "read"
    LOCAL = "local"
    QUORUM = "quorum"
    """As LOCAL, but can be linearizable, as reads can."""


class AdminApi(NamedTuple):
    """One row. `access.admission.CALLS` has the rights that a call needs."""

    kind: Kind
    run: Callable[..., Any]
    """An operation for a write, a function of (served, request) for any other call."""
    entries: str | Callable[[Any], bool] | None = None
    """The repeated field of the request, or a predicate that is true for an empty request."""
    refuse: refusals.Refuse = lambda request, response, error: None
    """Repeats an error of the whole request in the entries of the response, where Kafka does."""
    prepare: Callable[[Any, str], None] = lambda request, principal: None
    """Converts older forms of the request to the newest one, and fills in the initiator. Gets each request first."""
    answer_empty_request: Callable[[Any, Any], None] = lambda request, response: None
    """Adds the fields of Kafka's response to an empty write, which any controller answers at once."""
    strict_from: int | None = None
    """The call counts against the client's mutation quota, strictly from this version on."""
    is_long: Callable[[MetadataImage, Any], bool] = lambda image, request: False
    """True for an answer that takes long. It is computed on a thread, so its handler sees nothing that is changed in place."""
    sees_changes: bool = False
    """True for a handler that reads what is changed in place: no thread may run it."""
    names_loggers: Callable[[Any], bool] = lambda request: False
    """True for a request that is also about this node's own loggers."""

    def takes_long(self, image: MetadataImage, request: Message) -> bool:
        """Return True for a call that a thread has to compute: one with a long answer, or with very many entries."""
        return not self.sees_changes and (request.ByteSize() > LARGE_BYTES or self.is_long(image, request))

    def is_empty_request(self, request: object) -> bool:
        """Return True if there is nothing to do and nothing to refuse."""
        if isinstance(self.entries, str):
            return not getattr(request, self.entries)
        return self.entries is not None and self.entries(request)


# --- calls that are not writes ------------------------------------------------------------------------------------------


def _of_committed(describe: Callable[[ControllerState, Any], Message]) -> Callable[[Served, Any], Message]:
    """A read that needs the committed state and nothing else."""
    return lambda served, request: describe(served.controller.committed, request)


def _metadata(served: Served, request: admin_pb2.MetadataRequest) -> Message:
    controller = served.controller
    cluster_id, active = controller.settings.cluster_id, controller.active_controller.leader_id
    return description.metadata(controller.committed, request, cluster_id, active)


def _describe_configs(served: Served, request: admin_pb2.DescribeConfigsRequest) -> Message:
    controller = served.controller
    return config_description.describe(controller.committed, request, controller.settings, served.broker)


def _list_config_resources(served: Served, request: admin_pb2.ListConfigResourcesRequest) -> Message:
    return config_description.list_resources(served.controller.committed.image, request, version_of(request))


def _list_reassignments(served: Served, request: admin_pb2.ListPartitionReassignmentsRequest) -> Message:
    controller = served.controller
    progress = controller.moves.progress if controller.is_active else None
    return listing(controller.committed, request, Observer(progress, served.now_ms(), controller.settings))


def _describe_cluster(served: Served, request: admin_pb2.DescribeClusterRequest) -> Message:
    controller = served.controller
    return cluster.describe(
        controller.committed, request, controller.settings, controller.active_controller.leader_id, controller.silences_ms()
    )


def _describe_acls(served: Served, request: admin_pb2.DescribeAclsRequest) -> Message:
    return acls.describe(served.controller.committed, request, served.controller.settings)


def _local(api: str) -> Callable[[Served, Any], Awaitable[Message]]:
    async def run(served: Served, request: Any) -> Message:
        return await served.local[api](request)

    return run


def _of_quorum(api: str) -> AdminApi:
    """A call about the quorum, answered by its leader."""

    async def run(served: Served, request: Any) -> Message:
        if not served.controller.is_active:
            raise served.controller.not_controller()
        return await served.local[api](request)

    return AdminApi(Kind.QUORUM, run)


async def _describe_quorum(served: Served, request: admin_pb2.DescribeQuorumRequest) -> Message:
    """Answer requests for the metadata log's partition on any controller: the answer names the leader. Redirect all others to
    the leader.
    """
    if not request.topics and not served.controller.is_active:
        raise served.controller.not_controller()
    return await served.local["DescribeQuorum"](request)


def _on_brokers(text: str) -> Callable[[Served, Any], Awaitable[Message]]:
    """A call that only a broker answers. `text` names the broker to send it to."""

    async def run(served: Served, request: Any) -> Message:
        raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, f"{text}, this is a controller.")

    return run


_log_directories = _on_brokers("Log directories belong to brokers; send this to the broker that has them")
_CONFIGS = ("resource_type", "resource_name")

APIS: Mapping[str, AdminApi] = {
    "CreateTopics": AdminApi(Kind.WRITE, topics.create, "topics", refusals.create_topics, strict_from=6, is_long=topics.is_long),
    "DeleteTopics": AdminApi(
        Kind.WRITE,
        topics.delete,
        "topics",
        refusals.delete_topics,
        lambda request, principal: topics.merge_topic_names(request),
        strict_from=5,
        is_long=topics.is_long_deletion,
    ),
    "CreatePartitions": AdminApi(
        Kind.WRITE,
        partition_counts.create_partitions,
        "topics",
        refusals.each("topics", "results", "name"),
        strict_from=3,
        is_long=partition_counts.is_long,
    ),
    "ElectLeaders": AdminApi(
        Kind.WRITE,
        leader_elections.elect_leaders,
        leader_elections.names_no_partition,
        refusals.elect_leaders,
        is_long=leader_elections.is_long,
    ),
    "DeleteRecords": AdminApi(
        Kind.LOCAL, _on_brokers("Records are on brokers; send this to the broker that leads the partition")
    ),
    "DescribeTopicPartitions": AdminApi(
        Kind.READ,
        _of_committed(description.describe),
        refuse=refusals.describe_topic_partitions,
        prepare=lambda request, principal: description.empty_means_all(request),
        is_long=description.is_long_description,
    ),
    "IncrementalAlterConfigs": AdminApi(
        Kind.WRITE,
        configs.alter,
        "resources",
        refusals.each("resources", "responses", *_CONFIGS),
        names_loggers=logger_configs.concerns,
    ),
    "AlterConfigs": AdminApi(Kind.WRITE, configs.replace, "resources", refusals.each("resources", "responses", *_CONFIGS)),
    "AlterClientQuotas": AdminApi(Kind.WRITE, client_quotas.alter, "entries", refusals.each("entries", "entries", "entity")),
    "DescribeClientQuotas": AdminApi(Kind.READ, _of_committed(client_quotas.describe)),
    "UpdateFeatures": AdminApi(Kind.WRITE, features.update),
    "ListConfigResources": AdminApi(Kind.READ, _list_config_resources),
    "DescribeConfigs": AdminApi(
        Kind.READ, _describe_configs, is_long=config_description.is_long, names_loggers=logger_configs.concerns
    ),
    "AlterPartitionReassignments": AdminApi(
        Kind.WRITE,
        reassignments.alter,
        reassignments.is_empty_request,
        refusals.alter_partition_reassignments,
        reassignments.name_initiator,
        reassignments.answer_empty_request,
        is_long=reassignments.is_long,
    ),
    "ListPartitionReassignments": AdminApi(
        Kind.READ, _list_reassignments, refuse=refusals.list_partition_reassignments, is_long=is_long_listing
    ),
    "AlterReplicationFactors": AdminApi(
        Kind.WRITE,
        kip_179.alter_replication_factors,
        "topics",
        refusals.each("topics", "topics", "name"),
        reassignments.name_initiator,
        is_long=kip_179.are_long_factors,
    ),
    "AlterPartitionCounts": AdminApi(
        Kind.WRITE,
        kip_179.alter_partition_counts,
        "topics",
        refusals.each("topics", "topics", "name"),
        strict_from=0,
        is_long=partition_counts.is_long,
    ),
    "AlterInterBrokerThrottle": AdminApi(Kind.WRITE, kip_179.alter_inter_broker_throttle),
    "DescribeCluster": AdminApi(Kind.READ, _describe_cluster, refuse=refusals.describe_cluster, sees_changes=True),
    "Metadata": AdminApi(
        Kind.READ,
        _metadata,
        refuse=refusals.metadata,
        prepare=lambda request, principal: description.empty_means_all_in_version_0(request),
        is_long=description.is_long_metadata,
    ),
    "ApiVersions": AdminApi(Kind.LOCAL, _local("ApiVersions"), refuse=refusals.api_versions),
    "DescribeQuorum": AdminApi(Kind.QUORUM, _describe_quorum),
    "AddRaftVoter": _of_quorum("AddRaftVoter"),
    "RemoveRaftVoter": _of_quorum("RemoveRaftVoter"),
    "TransferLeadership": _of_quorum("TransferLeadership"),
    **{
        api: AdminApi(Kind.LOCAL, _local(api))
        for api in ("CreateSnapshot", "ListSnapshots", "DescribeMetadata", "DescribeImage", "ListMetadataRecords")
    },
    **{
        api: AdminApi(Kind.LOCAL, _log_directories)
        for api in ("AlterReplicaLogDirs", "DescribeLogDirs", "OnlineLogDir", "ResolveReplicaCopy")
    },
    "UnregisterBroker": AdminApi(Kind.WRITE, brokers.unregister),
    "AllocateProducerIds": AdminApi(Kind.WRITE, producer_ids.allocate),
    "InitProducerId": AdminApi(
        Kind.LOCAL, _on_brokers("Producers are served by brokers; send this to any broker"), refuse=refusals.init_producer_id
    ),
    "DescribeProducers": AdminApi(
        Kind.LOCAL, _on_brokers("Producers are served by brokers; send this to the broker that leads the partition")
    ),
    "ListTransactions": AdminApi(Kind.LOCAL, _on_brokers("Transactions are coordinated by brokers; send this to any broker")),
    **{
        api: AdminApi(Kind.LOCAL, _on_brokers("Groups are coordinated by brokers; send this to any broker"))
        for api in GROUP_CALLS
    },
    "CreateAcls": AdminApi(Kind.WRITE, acls.create, "creations", refusals.each("creations", "results")),
    "DeleteAcls": AdminApi(Kind.WRITE, acls.delete, "filters", refusals.each("filters", "filter_results")),
    "DescribeAcls": AdminApi(Kind.READ, _describe_acls),
    "AlterUserScramCredentials": AdminApi(Kind.WRITE, scram.alter, refuse=refusals.alter_user_scram_credentials),
    "DescribeUserScramCredentials": AdminApi(
        Kind.READ, _of_committed(scram.describe), refuse=refusals.describe_user_scram_credentials
    ),
}
"""Method of the Admin service → row of this controller."""
