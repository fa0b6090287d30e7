"""Admission to a broker's PEER port: what callers and other brokers may do with records there.

Without an authorizer everybody may produce and fetch. With one, a caller needs the rights that it would need at the KAFKA port.
Other brokers fetch as followers and ask who leads: the sender has to be a registered broker, and speaks only for itself. A
request is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftlab.access.authorizer import Authorizer, Rights
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.metadata.acls import Operation, ResourceType
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_senders import PEER_SENDERS
from kraftlab.wire.senders import check_sender
from kraftlab.wire.transport import PeerError, PeerRequest


class PeerAdmission:
    """Checks requests by the ACLs of the published `image`."""

    def __init__(self, authorizer: Authorizer, image: Callable[[], MetadataImage]) -> None:
        self._authorizer = authorizer
        self._image = image

    def check_sender(self, peer_request: PeerRequest, request: object) -> None:
        """PeerError if the request speaks for another node than its sender."""
        check_sender(PEER_SENDERS, peer_request, request)

    def check_topics(self, peer_request: PeerRequest, operation: Operation, topic_ids: Iterable[Uuid]) -> None:
        """PeerError TOPIC_AUTHORIZATION_FAILED unless the caller may do that to all these topics, as far as they exist."""
        rights = self._rights(peer_request)
        if rights.are_unlimited:
            return
        topics = self._image().topics.by_id
        for topic in (topics[topic_id] for topic_id in topic_ids if topic_id in topics):
            if not rights.allow(operation, ResourceType.TOPIC, topic.name):
                raise PeerError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    f"{peer_request.principal} has no right to {operation.name} on topic {topic.name}; use a listener where you "
                    "log in, or add an ACL",
                )

    def check_cluster(self, peer_request: PeerRequest, operation: Operation) -> None:
        """PeerError CLUSTER_AUTHORIZATION_FAILED unless the caller may do that to the cluster."""
        if not self._rights(peer_request).allow_on_cluster(operation):
            text = f"{peer_request.principal} has no right to {operation.name} on the cluster; add an ACL"
            raise PeerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)

    def is_broker(self, peer_request: PeerRequest) -> bool:
        """Return True if the sender is a registered broker."""
        return peer_request.sender.node_id in self._image().cluster.brokers

    def check_broker(self, peer_request: PeerRequest) -> None:
        """PeerError CLUSTER_AUTHORIZATION_FAILED unless the sender is a registered broker, if there is an authorizer."""
        if self._authorizer.settings.is_enabled and not self.is_broker(peer_request):
            text = f"node {peer_request.sender.node_id} is not a broker that this broker knows; try again once it is registered"
            raise PeerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)

    def _rights(self, peer_request: PeerRequest) -> Rights:
        image = self._image()
        acls = image.acls if image.provenance.offset > 0 else None
        try:
            return self._authorizer.rights(acls, peer_request.principal, peer_request.host)
        except ApiError as error:
            raise PeerError(error.code, error.message or "") from None
