"""Resources that have configs: their types, and the checks of their names.

Topics, nodes and their loggers have to exist. A group, or a subscription to client metrics, exists as long as it has a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.effective import BrokerValues, Source
from kraftlab.config.resources import ResourceType
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.metadata.topic_names import name_problem

from ..engine.state import Settings


class ConfiguredType(NamedTuple):
    """`source`: source of the resource's dynamic values. `empty_name`: refusal of a change without a resource name."""

    source: Source
    empty_name: str | None


RESOURCE_TYPES: Mapping[int, ConfiguredType] = {
    ResourceType.TOPIC: ConfiguredType(Source.DYNAMIC_TOPIC, "Default topic resources are not allowed."),
    ResourceType.BROKER: ConfiguredType(Source.DYNAMIC_BROKER, None),
    ResourceType.BROKER_LOGGER: ConfiguredType(Source.DYNAMIC_BROKER_LOGGER, "Broker id must not be empty"),
    ResourceType.CLIENT_METRICS: ConfiguredType(Source.DYNAMIC_CLIENT_METRICS, "Subscription name can't be empty"),
    ResourceType.GROUP: ConfiguredType(Source.DYNAMIC_GROUP, "Default group resources are not allowed."),
}
_NOTHING: Mapping[str, str] = {}


def dynamic_values(image: MetadataImage, resource_type: int, name: str) -> Mapping[str, str]:
    """Dynamic values of a resource, as they were written."""
    return image.configs.get((resource_type, name), _NOTHING)


def broker_values(image: MetadataImage, settings: Settings, broker: ForwardingBroker | None = None) -> BrokerValues:
    """Values that topics and groups inherit: from the broker that forwarded the call, otherwise from this controller."""
    node_id, static = (settings.node_id, settings.static) if broker is None else (broker.node_id, broker.static)
    return BrokerValues(
        dynamic_values(image, ResourceType.BROKER, str(node_id)), dynamic_values(image, ResourceType.BROKER, ""), static
    )


def check_exists(image: MetadataImage, resource_type: int, name: str) -> None:
    """Require a legal name of an existing topic, or a registered broker or controller. A controller's own values apply to its
    decisions as a broker's do. ApiError 17, 3, 102.
    """
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if image.topics.get(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == ResourceType.BROKER and name:
        node_id = node_id_of(name, "Node id")
        if node_id not in image.cluster.brokers and node_id not in image.cluster.controllers:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered.")


def check_topic_name(name: str) -> None:
    """ApiError INVALID_TOPIC_EXCEPTION."""
    problem = name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def node_id_of(name: str, what: str) -> int:
    """Parse the node id in a resource's name. `what`: the word for the name in the text of ApiError INVALID_REQUEST.

    An id has one spelling: configs under "01" would never reach broker 1.
    """
    try:
        node_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}") from None
    if str(node_id) != name:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} must be written as {node_id}, but it is: {name}")
    return node_id
