"""UpdateFeatures: all levels of a request are finalized, or none (KIP-584, KIP-778).

Theory of operation. Each update is compared with the finalized level, with the levels that this controller and every
registered node support, and with the loss that a downgrade would cause. The first error refuses the request. The level of a
feature that another level needs may come in the same request, in any order. A voter that has not registered is taken to
support nothing, and a broker that is gone counts until it is unregistered: a level that a node cannot read stops that node.
Finalizing the current level again writes it again. `kraft.version` belongs to the quorum, which knows it from its voters'
records; here it can only be confirmed.

Eligible leader replicas need one min.insync.replicas that all nodes read from the log. So switching them on writes the
cluster's default if there is none, and removes the values of single brokers. Switching them off clears the eligible replicas.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata import features
from kraftlab.metadata.features import (
    DEPENDS_ON_METADATA_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MIN_INSYNC_REPLICAS,
    SUPPORTED,
)
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RESOURCE_BROKER, AnyRecord, ClearElr, Config, FeatureLevel
from kraftlab.rpc.versions import version_of

from ..engine.state import Context, ControllerState, Outcome, QuorumFacts

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_FAILED = "The update failed for all features since the following feature had an error: "
_WITHOUT_RESULTS = 2
"""First version whose response names no features."""


def update(
    state: ControllerState, request: admin_pb2.UpdateFeaturesRequest, context: Context
) -> Outcome[admin_pb2.UpdateFeaturesResponse]:
    """Finalize levels. ApiError INVALID_UPDATE_VERSION for the first level that cannot be finalized."""
    version = version_of(request)
    levels = dict(state.image.features)
    records: list[AnyRecord] = []
    quorum = context.quorum()
    for change in request.feature_updates:
        upgrade_type = _upgrade_type(change, version)
        _check(state.image, levels, change.feature, change.max_version_level, upgrade_type, context, quorum)
        if change.feature == KRAFT_VERSION:
            continue
        records.append(FeatureLevel(0, change.feature, change.max_version_level))
        if change.feature == ELIGIBLE_LEADER_REPLICAS_VERSION:
            records += _eligible_leaders_switched(state.image, levels, change.max_version_level, context)
        levels[change.feature] = change.max_version_level
    _check_dependencies(levels)
    response = admin_pb2.UpdateFeaturesResponse()
    if version < _WITHOUT_RESULTS:
        for change in request.feature_updates:
            response.results.add(feature=change.feature, error_code=ErrorCode.NONE, error_message="NONE")
    return Outcome([] if request.validate_only else records, response)


def _upgrade_type(change: admin_pb2.FeatureUpdate, version: int) -> int:
    if version == 0:
        return SAFE_DOWNGRADE if change.allow_downgrade else UPGRADE
    return change.upgrade_type if change.HasField("upgrade_type") else UPGRADE


def _check(
    image: MetadataImage,
    levels: Mapping[str, int],
    name: str,
    level: int,
    upgrade_type: int,
    context: Context,
    quorum: QuorumFacts,
) -> None:
    """ApiError INVALID_UPDATE_VERSION if the feature cannot have that level now."""
    current = quorum.kraft_version if name == KRAFT_VERSION else levels.get(name, 0)
    reason: str | None
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        reason = _not_supported(image, name, level, context, quorum) or _wrong_direction(name, level, current, upgrade_type)
    if reason is not None:
        raise _refused(f"Invalid update version {level} for feature {name}. {reason}")
    if name == METADATA_VERSION and level < current:
        beginning = f"Unsupported metadata.version downgrade from {current} to {level}. "
        if upgrade_type == UNSAFE_DOWNGRADE:
            raise _refused(beginning + "Unsafe metadata downgrade is not supported in this version.")
        if features.loses_metadata(current, level):
            raise _refused(
                beginning + "Refusing to perform the requested downgrade because it might delete metadata information."
            )


def _refused(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, _FAILED + text)


def _not_supported(image: MetadataImage, name: str, level: int, context: Context, quorum: QuorumFacts) -> str | None:
    """Text that names the node without support for that level; None if all nodes support it."""
    node_id = context.settings.node_id
    lowest, highest = SUPPORTED.get(name, (0, 0))
    if not lowest <= level <= highest:
        if name not in SUPPORTED:
            return f"Local controller {node_id} does not support this feature."
        return f"Local controller {node_id} only supports versions {lowest}-{highest}"
    if name not in SUPPORTED:
        return f"Feature {name} not found."
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        lowest, highest = features.range_of(broker.features, name)
        if level and not lowest <= level <= highest:
            return _unable(f"Broker {broker_id}", lowest, highest)
    for controller_id in sorted({*quorum.voters, *image.cluster.controllers} - {node_id}):
        controller = image.cluster.controllers.get(controller_id)
        if controller is None:
            return f"controllerRegistrations is missing {controller_id}; start that controller, or remove it from the quorum."
        lowest, highest = features.range_of(controller.features, name)
        if level and not lowest <= level <= highest:
            return _unable(f"Controller {controller_id}", lowest, highest)
    return None


def _unable(subject: str, lowest: int, highest: int) -> str:
    if (lowest, highest) == (0, 0):
        return f"{subject} does not support this feature."
    return f"{subject} only supports versions {lowest}-{highest}"


def _wrong_direction(name: str, level: int, current: int, upgrade_type: int) -> str | None:
    if level > current and upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current and upgrade_type == UPGRADE:
        return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
    if name == KRAFT_VERSION and level < current:
        return "Can't downgrade the version of this feature."
    if name == KRAFT_VERSION and level > current:
        return "Its voters are static; format a new cluster with the voters in its log, or force one (kraftlab storage)."
    return None


def _check_dependencies(levels: Mapping[str, int]) -> None:
    for name, needed in DEPENDS_ON_METADATA_VERSION.items():
        if levels.get(name, 0) > 0 and levels.get(METADATA_VERSION, 0) < needed:
            raise _refused(f"{name} could not be set to {levels[name]} because it depends on {METADATA_VERSION} level {needed}")


def _eligible_leaders_switched(image: MetadataImage, levels: Mapping[str, int], level: int, context: Context) -> list[AnyRecord]:
    """Further records of a switch of eligible leader replicas, on or off."""
    was_on = levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    if was_on == (level > 0):
        return []
    if was_on:
        return [ClearElr(0, "")]
    records: list[AnyRecord] = []
    if image.config(RESOURCE_BROKER, "", MIN_INSYNC_REPLICAS) is None:
        value = context.settings.static.get(MIN_INSYNC_REPLICAS, "1")
        records.append(Config(0, RESOURCE_BROKER, "", MIN_INSYNC_REPLICAS, value))
    for (resource_type, name), values in sorted(image.configs.items()):
        if resource_type == RESOURCE_BROKER and name and MIN_INSYNC_REPLICAS in values:
            records.append(Config(0, RESOURCE_BROKER, name, MIN_INSYNC_REPLICAS, None))
    return records
