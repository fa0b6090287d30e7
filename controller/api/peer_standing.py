"""Standing of peers at a controller's port: who may change the quorum, and who may read the metadata log.

A registered controller may stand for election. Without an authorizer everybody may read the log. With one, registered brokers and
controllers may, and callers with CLUSTER_ACTION on the cluster. A new node is refused at first, but the refusal names the leader,
where it registers. Cluster states without registrations of controllers let every node read, for a new controller could never
register.
"""

from __future__ import annotations

from kraftlab.access.authorizer import Authorizer
from kraftlab.common.errors import ApiError
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.image import MetadataImage
from kraftlab.quorum.core.types import Standing
from kraftlab.wire.transport import PeerRequest

from ..engine.feature_levels import CONTROLLER_REGISTRATION, metadata_version


def standing_of(request: PeerRequest, image: MetadataImage, is_loaded: bool, authorizer: Authorizer) -> Standing:
    """Return the standing of a request's sender. Voters need none."""
    node_id, cluster = request.sender.node_id, image.cluster
    if node_id in cluster.controllers:
        return Standing.CONTROLLER
    if not authorizer.settings.is_enabled or node_id in cluster.brokers:
        return Standing.OBSERVER
    if node_id >= 0 and metadata_version(image) < CONTROLLER_REGISTRATION:
        return Standing.OBSERVER
    try:
        rights = authorizer.rights(image.acls if is_loaded else None, request.principal, request.host)
    except ApiError:
        return Standing.STRANGER
    return Standing.OBSERVER if rights.may_on_cluster(Operation.CLUSTER_ACTION) else Standing.STRANGER
