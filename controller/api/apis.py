"""Handlers of the controller's admin calls: writes, and reads of committed state.

A *write* runs on the active controller only and is answered when it is committed. A *read* sees committed state on any
controller. `rpc/calls.py` has the calls themselves; the service walks both tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.peer_rpc import ForwardingBroker
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

LARGE_BYTES = 64 * 1024
"""Size of a request that may have very many entries."""


class HandlerContext(NamedTuple):
    """The answering controller and its clock. `broker`: the broker that forwarded the call, if the answer depends on it."""

    controller: QuorumController
    now_ms: Callable[[], int]
    broker: ForwardingBroker | None = None


class Handler(NamedTuple):
    """The controller's part of one call."""

    run: Callable[..., Any]
    """An operation for a write, a function of (served, request) for a read."""
    entries: str | Callable[[Any], bool] | None = None
    """The repeated field of the request, or a predicate that is true for an empty request."""
    prepare: Callable[[Any, str], None] = lambda request, principal: None
    """Converts older forms of the request to the newest one, and fills in the initiator. Gets each request first."""
    answer_empty_request: Callable[[Any, Any], None] = lambda request, response: None
    """Adds the fields of Kafka's response to an empty write, which any controller answers at once."""
    strict_from: int | None = None
    """The call counts against the client's mutation quota, strictly from this version on."""
    is_long: Callable[[ControllerState, Any], bool] = lambda state, request: False
    """True for an answer that takes long. It is computed on a thread, so its handler sees nothing that is changed in place."""
    sees_changes: bool = False
    """True for a handler that reads what is changed in place: no thread may run it."""

    def takes_long(self, state: ControllerState, request: Message) -> bool:
        """Return True for a call that a thread has to compute: one with a long answer, or with very many entries."""
        return not self.sees_changes and (request.ByteSize() > LARGE_BYTES or self.is_long(state, request))

    def is_empty_request(self, request: object) -> bool:
        """Return True if there is nothing to do and nothing to refuse."""
        if isinstance(self.entries, str):
            return not getattr(request, self.entries)
        return self.entries is not None and self.entries(request)


# --- calls that are not writes ------------------------------------------------------------------------------------------


def _of_committed(describe: Callable[[ControllerState, Any], Message]) -> Callable[[HandlerContext, Any], Message]:
    """A read that needs the committed state and nothing else."""
    return lambda served, request: describe(served.controller.committed, request)


def _describe_configs(served: HandlerContext, request: admin_pb2.DescribeConfigsRequest) -> Message:
    controller = served.controller
    return config_description.describe(controller.committed, request, controller.settings, served.broker)


def _list_config_resources(served: HandlerContext, request: admin_pb2.ListConfigResourcesRequest) -> Message:
    return config_description.list_resources(served.controller.committed.image, request, version_of(request))


def _list_reassignments(served: HandlerContext, request: admin_pb2.ListPartitionReassignmentsRequest) -> Message:
    controller = served.controller
    progress = controller.moves.progress if controller.is_active else None
    return listing(controller.committed, request, Observer(progress, served.now_ms(), controller.settings))


def _describe_cluster(served: HandlerContext, request: admin_pb2.DescribeClusterRequest) -> Message:
    controller = served.controller
    return cluster.describe(
        controller.committed, request, controller.settings, controller.active_controller.leader_id, controller.silences_ms()
    )


def _describe_acls(served: HandlerContext, request: admin_pb2.DescribeAclsRequest) -> Message:
    return acls.describe(served.controller.committed, request, served.controller.settings)


HANDLERS: dict[str, Handler] = {
    "CreateTopics": Handler(topics.create, "topics", strict_from=6, is_long=topics.is_long),
    "DeleteTopics": Handler(
        topics.delete,
        "topics",
        lambda request, principal: topics.merge_topic_names(request),
        strict_from=5,
        is_long=topics.is_long_deletion,
    ),
    "CreatePartitions": Handler(partition_counts.create_partitions, "topics", strict_from=3, is_long=partition_counts.is_long),
    "ElectLeaders": Handler(
        leader_elections.elect_leaders, leader_elections.names_no_partition, is_long=leader_elections.is_long
    ),
    "DescribeTopicPartitions": Handler(
        _of_committed(description.describe),
        prepare=lambda request, principal: description.empty_means_all(request),
        is_long=description.is_long_description,
    ),
    "IncrementalAlterConfigs": Handler(configs.alter, "resources"),
    "AlterConfigs": Handler(configs.replace, "resources"),
    "AlterClientQuotas": Handler(client_quotas.alter, "entries"),
    "DescribeClientQuotas": Handler(_of_committed(client_quotas.describe)),
    "UpdateFeatures": Handler(features.update),
    "ListConfigResources": Handler(_list_config_resources),
    "DescribeConfigs": Handler(_describe_configs, is_long=config_description.is_long),
    "AlterPartitionReassignments": Handler(
        reassignments.alter,
        "topics",
        reassignments.name_initiator,
        reassignments.answer_empty_request,
        is_long=reassignments.is_long,
    ),
    "CancelReassignments": Handler(reassignments.cancel, is_long=reassignments.is_long_cancel),
    "RollbackPlan": Handler(reassignments.roll_back, prepare=reassignments.name_initiator, is_long=lambda state, request: True),
    "ForgetPlans": Handler(reassignments.forget_plans, "plan_ids"),
    "ListPartitionReassignments": Handler(_list_reassignments, is_long=is_long_listing),
    "AlterReplicationFactors": Handler(
        kip_179.alter_replication_factors, "topics", reassignments.name_initiator, is_long=kip_179.are_long_factors
    ),
    "AlterPartitionCounts": Handler(kip_179.alter_partition_counts, "topics", strict_from=0, is_long=partition_counts.is_long),
    "AlterInterBrokerThrottle": Handler(kip_179.alter_inter_broker_throttle),
    "DescribeCluster": Handler(_describe_cluster, sees_changes=True),
    "UnregisterBroker": Handler(brokers.unregister, is_long=lambda state, request: brokers.is_long(state, request.broker_id)),
    "AllocateProducerIds": Handler(producer_ids.allocate),
    "CreateAcls": Handler(acls.create, "creations"),
    "DeleteAcls": Handler(acls.delete, "filters"),
    "DescribeAcls": Handler(_describe_acls),
    "AlterUserScramCredentials": Handler(scram.alter),
    "DescribeUserScramCredentials": Handler(_of_committed(scram.describe)),
}
"""Call → handler of a controller."""
