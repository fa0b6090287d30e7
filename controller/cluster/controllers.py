"""ControllerRegistration: controllers register their endpoints, and brokers and clients find the active one by them (KIP-919)."""

from __future__ import annotations

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.peer_rpc import ControllerRegistrationRequest, ControllerRegistrationResponse
from kraftlab.metadata.records import RegisterController

from ..engine.feature_levels import CONTROLLER_REGISTRATION, metadata_version
from ..engine.state import Context, ControllerState, Outcome
from .brokers import check_features, check_node


def register(
    state: ControllerState, request: ControllerRegistrationRequest, context: Context
) -> Outcome[ControllerRegistrationResponse]:
    """Register a controller. A registration that is known already writes nothing. ApiError UNSUPPORTED_VERSION,
    INVALID_REGISTRATION.
    """
    level = metadata_version(state.image)
    if level < CONTROLLER_REGISTRATION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level} has no registrations of controllers; {CONTROLLER_REGISTRATION} or newer is needed.",
        )
    check_node(request.controller_id, request.listeners, request.features)
    check_features(state, request.controller_id, request.features, context)
    record = RegisterController(
        0, request.controller_id, request.incarnation_id, request.listeners, tuple(sorted(request.features))
    )
    known = state.image.cluster.controllers.get(request.controller_id)
    is_known = known is not None and (known.incarnation_id, known.listeners, known.features) == (
        record.incarnation_id,
        record.listeners,
        record.features,
    )
    return Outcome([] if is_known else [record], ControllerRegistrationResponse(ErrorCode.NONE))
