"""DescribeCluster: brokers and controllers with their endpoints.

Kafka's clients name the kind of endpoint they want: brokers from a broker, or the controllers in the place of brokers from a
controller. Without a kind, a node describes both. A broker checks the kind itself and forwards the request without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.access.refusals import BROKERS, CONTROLLERS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.uuids import to_text

from ..engine.state import CONTROLLER, GRPC, PEER, ControllerState, Settings

NOT_LISTENING: Mapping[int, int] = {}


def describe(
    state: ControllerState,
    request: admin_pb2.DescribeClusterRequest,
    settings: Settings,
    active_controller_id: int,
    silences_ms: Mapping[int, int] = NOT_LISTENING,
) -> admin_pb2.DescribeClusterResponse:
    """Brokers (fenced ones on request) and registered controllers, sorted by id. `silences_ms`: time since the last
    heartbeat of each broker, by id.
    """
    response = admin_pb2.DescribeClusterResponse(
        cluster_id=settings.cluster_id,
        controller_id=active_controller_id,
        node_id=settings.node_id,
        endpoint_type=CONTROLLERS if request.HasField("endpoint_type") else BROKERS,
    )
    if request.HasField("endpoint_type"):
        for controller_id, controller in sorted(state.image.cluster.controllers.items()):
            listener = controller.listener(GRPC)
            if listener is not None:
                response.brokers.add(broker_id=controller_id, host=listener.host, port=listener.port)
        return response
    _add_brokers(response, state, request.include_fenced_brokers, silences_ms)
    for controller_id, controller in sorted(state.image.cluster.controllers.items()):
        public, peer = controller.listener(GRPC), controller.listener(CONTROLLER)
        response.controllers.add(
            controller_id=controller_id,
            host=public.host if public else "",
            port=public.port if public else -1,
            peer_host=peer.host if peer else "",
            peer_port=peer.port if peer else -1,
        )
    return response


def _add_brokers(
    response: admin_pb2.DescribeClusterResponse, state: ControllerState, with_fenced: bool, silences_ms: Mapping[int, int]
) -> None:
    for broker_id, broker in sorted(state.image.cluster.brokers.items()):
        if broker.fenced and not with_fenced:
            continue
        public, peer = broker.listener(GRPC), broker.listener(PEER)
        response.brokers.add(
            broker_id=broker_id,
            host=public.host if public else "",
            port=public.port if public else -1,
            rack=broker.rack,
            is_fenced=broker.fenced,
            broker_epoch=broker.epoch,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            peer_host=peer.host if peer else "",
            peer_port=peer.port if peer else -1,
            log_dirs=[to_text(directory) for directory in broker.log_dirs],
            cordoned_log_dirs=[to_text(directory) for directory in broker.cordoned_log_dirs],
            silent_ms=silences_ms.get(broker_id),
        )
