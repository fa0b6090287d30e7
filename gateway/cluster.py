"""DescribeCluster over the Kafka protocol: the nodes of one kind by their KAFKA listeners, from the node's own metadata.

A broker describes brokers, a controller controllers (KIP-919). A node without a KAFKA listener is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kraftlab.access.authorizer import Rights
from kraftlab.access.refusals import BROKERS, check_endpoint
from kraftlab.common.errors import ApiError
from kraftlab.config.models import KAFKA_LISTENER
from kraftlab.messages.generated.describe_cluster_request import DescribeClusterRequest
from kraftlab.messages.generated.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from kraftlab.metadata.image import ClusterImage
from kraftlab.rpc.caller import Caller

from .codec import KafkaRequest
from .metadata import cluster_operations


class ClusterCalls:
    """Answers DescribeCluster of one node. `active_controller` returns its id, -1 if there is none."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        endpoint_type: int,
        cluster: Callable[[], ClusterImage],
        rights: Callable[[str, str], Rights],
        active_controller: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._endpoint_type = endpoint_type
        self._cluster = cluster
        self._rights = rights
        self._active_controller = active_controller

    async def describe(self, request: KafkaRequest, caller: Caller) -> DescribeClusterResponse:
        """Describe the nodes of this node's kind; fenced brokers only on request."""
        body: DescribeClusterRequest = request.body
        try:
            check_endpoint(body.endpoint_type, self._endpoint_type, is_first_version=request.header.version == 0)
        except ApiError as error:
            return DescribeClusterResponse(error_code=error.code, error_message=error.message)
        named = list(self._nodes(body.include_fenced_brokers))
        ids = [node.broker_id for node in named]
        # A client takes the controller's address from the list of nodes, and any broker takes any call.
        controller = next((node_id for node_id in (self._active_controller(), self._node_id, *ids) if node_id in ids), -1)
        return DescribeClusterResponse(
            endpoint_type=self._endpoint_type,
            cluster_id=self._cluster_id,
            controller_id=controller,
            brokers=named,
            cluster_authorized_operations=cluster_operations(body, self._rights(caller.principal, caller.host)),
        )

    def _nodes(self, with_fenced: bool) -> Iterator[DescribeClusterBroker]:
        cluster = self._cluster()
        if self._endpoint_type == BROKERS:
            for broker_id, broker in sorted(cluster.brokers.items()):
                listener = broker.listener(KAFKA_LISTENER)
                if listener is not None and (with_fenced or not broker.fenced):
                    yield DescribeClusterBroker(broker_id, listener.host, listener.port, broker.rack, broker.fenced)
        else:
            for controller_id, controller in sorted(cluster.controllers.items()):
                listener = controller.listener(KAFKA_LISTENER)
                if listener is not None:
                    yield DescribeClusterBroker(controller_id, listener.host, listener.port)
