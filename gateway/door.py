"""Requests of the Kafka protocol: ApiVersions, and admin calls for the `dispatch` that gRPC calls too.

Only what is served is offered. Metadata and DescribeCluster name the KAFKA listeners of the brokers; a broker without one is not
named. Any broker takes any admin call, so the answering broker names itself as the controller, as in Kafka (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio.static.protocol import ResponsePayload

from kraftlab.admin.v1 import admin_pb2
from kraftlab.config.models import KAFKA_LISTENER
from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call, Dispatch
from kraftlab.rpc.versions import BROKER_OFFERS, Offer

from .codec import API_VERSIONS, KafkaRequest, response_schema
from .translation import says_error, to_entity, to_message

OFFERS: dict[int, Offer] = {
    offer.key: offer for offer in BROKER_OFFERS if offer.name in METHODS and offer.name != "InitProducerId"
}
"""The served requests by API key. A producer id is of no use without Produce."""
UNSERVED_FEATURES = frozenset({"group.version", "share.version", "streams.version", "transaction.version"})
"""A client that sees one of them uses requests that are not served."""


class Unanswerable(Exception):
    """The request failed as a whole, and its response has no field for that. The text gives the request and the reason."""


class Door:
    """Answers requests of one broker. `image` returns the metadata that the broker has published."""

    def __init__(self, dispatch: Dispatch, node_id: int, image: Callable[[], MetadataImage]) -> None:
        self._dispatch = dispatch
        self._node_id = node_id
        self._image = image

    async def answer(self, request: KafkaRequest, principal: str, host: str) -> ResponsePayload:
        """Return the response entity of a request that is offered. Unanswerable: close the connection, and the client tries
        again.
        """
        key, version, _ = request.header
        method = METHODS[OFFERS[key].name]
        message: Any = method.request()
        to_message(request.body, version, message)
        response: Any = await self._dispatch(Call(method.api, message, principal, host, request.client_id))
        if key == API_VERSIONS:
            return self._api_versions(response, version)
        if method.api in ("Metadata", "DescribeCluster"):
            self._name_kafka_listeners(response)
        kind = response_schema(key, version)
        if response.header.error_code and not says_error(response, kind):
            raise Unanswerable(f"{method.api} failed: {response.header.error_message}")
        return to_entity(response, kind)

    def unsupported(self) -> ResponsePayload:
        """Return the answer to an ApiVersions request in an unknown version: version 0, which any client reads (KIP-511)."""
        response = admin_pb2.ApiVersionsResponse()
        response.header.error_code = ErrorCode.UNSUPPORTED_VERSION
        return self._api_versions(response, 0)

    def _api_versions(self, response: Any, version: int) -> ResponsePayload:
        kind = response_schema(API_VERSIONS, version)
        del response.api_keys[:]
        is_answered = response.header.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
        for offer in OFFERS.values() if is_answered else ():
            response.api_keys.add(api_key=offer.key, min_version=offer.lowest, max_version=offer.highest)
        for features in (response.supported_features, response.finalized_features):
            kept = [feature for feature in features if feature.name not in UNSERVED_FEATURES]
            del features[:]
            features.extend(kept)
        return to_entity(response, kind)

    def _name_kafka_listeners(self, response: Any) -> None:
        known = self._image().cluster.brokers
        id_field = "node_id" if isinstance(response, admin_pb2.MetadataResponse) else "broker_id"
        for index in reversed(range(len(response.brokers))):
            described = response.brokers[index]
            broker = known.get(getattr(described, id_field))
            listener = broker.listener(KAFKA_LISTENER) if broker is not None else None
            if listener is None:
                del response.brokers[index]
            else:
                described.host, described.port = listener.host, listener.port
        named = [getattr(described, id_field) for described in response.brokers]
        # A client takes the controller's address from the list of brokers.
        response.controller_id = self._node_id if self._node_id in named else next(iter(named), -1)
