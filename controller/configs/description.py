"""Descriptions of configuration: DescribeConfigs and ListConfigResources (KIP-226, KIP-569, KIP-1142).

Topics and groups inherit from the broker that forwarded the call, which sends its server.properties along. If the call was
sent to a controller, they inherit from that controller. A broker describes itself and the cluster's defaults. A controller
describes any broker, and any node describes a broker that is down, but they know only its dynamic values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import cast

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.config_key import ConfigKey
from kraftlab.config.effective import BrokerValues, Effective, Source, Synonym, broker_value, own_value, topic_text, topic_value
from kraftlab.config.resources import ResourceType
from kraftlab.config.topic_configs import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, broker_key
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import ForwardingBroker

from ..engine.state import ControllerState, Settings
from .broker_rules import is_down
from .resources import (
    RESOURCE_TYPES,
    broker_values,
    check_exists,
    dynamic_values,
    node_id_of,
)

_UNCLEAN = "unclean.leader.election.enable"

LONG_FROM_RESOURCES = 200
"""Describing this many takes about a tenth of a second."""

Described = tuple[str, ConfigKey | None, Effective]
"""(name of the key, its definition if known, its value)."""


def is_long(state: ControllerState, request: admin_pb2.DescribeConfigsRequest) -> bool:
    """Return True for a description of very many resources."""
    return len(request.resources) >= LONG_FROM_RESOURCES


def describe(
    state: ControllerState,
    request: admin_pb2.DescribeConfigsRequest,
    settings: Settings,
    broker: ForwardingBroker | None = None,
) -> admin_pb2.DescribeConfigsResponse:
    """Values with their sources, sorted by key. An empty list of keys selects all keys; unknown keys are left out."""
    response = admin_pb2.DescribeConfigsResponse()
    for resource in request.resources:
        result = response.results.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        wanted = set(resource.configuration_keys.values)
        try:
            found = _describe_resource(state.image, resource.resource_type, resource.resource_name, settings, broker, wanted)
        except ApiError as error:
            result.error_message = ""
            set_error(result, error)
            continue
        result.error_message = ""
        result.configs.extend(
            _entry(name, key, value, request)
            for name, key, value in sorted(found, key=lambda described: described[0])
            if not wanted or name in wanted
        )
    return response


def _describe_resource(
    image: MetadataImage, kind: int, name: str, settings: Settings, broker: ForwardingBroker | None, wanted: Set[str]
) -> Iterable[Described]:
    """At least the wanted keys; all keys if `wanted` is empty."""
    values = broker_values(image, settings, broker)
    dynamic = dynamic_values(image, kind, name)
    if kind == ResourceType.TOPIC:
        _check_topic(image, name)
        return [
            (key, known, topic_value(key, dynamic.get(key), values))
            for key, known in TOPIC_KEYS.items()
            if not wanted or key in wanted
        ]
    if kind == ResourceType.BROKER:
        return _describe_broker(image, name, settings, broker)
    if kind == ResourceType.GROUP:
        _check_not_empty(name, "Group name must not be empty")
        return _described_group(dynamic, values)
    if kind == ResourceType.CLIENT_METRICS:
        _check_not_empty(name, "Client metrics subscription name must not be empty")
        source = Source.DYNAMIC_CLIENT_METRICS
        return [(key, known, own_value(known, dynamic.get(key), values, source)) for key, known in CLIENT_METRICS_KEYS.items()]
    if kind == ResourceType.BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Loggers belong to a node; ask the broker that has them.")
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _check_topic(image: MetadataImage, name: str) -> None:
    """As `check_exists` for a topic, but without a text for a missing topic, as in Kafka."""
    try:
        check_exists(image, ResourceType.TOPIC, name)
    except ApiError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiError(error.code, "") from error
        raise


def _check_not_empty(name: str, text: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, text)


def _described_group(dynamic: Mapping[str, str], values: BrokerValues) -> Iterable[Described]:
    """Values of a group. A key that inherits from no broker key has its default as the last synonym."""
    for name, key in GROUP_KEYS.items():
        value = own_value(key, dynamic.get(name), values, Source.DYNAMIC_GROUP)
        if key.synonym is None:
            value = value._replace(synonyms=(*value.synonyms, Synonym(name, key.default, Source.DEFAULT)))
        yield name, key, value


def _describe_broker(image: MetadataImage, name: str, settings: Settings, broker: ForwardingBroker | None) -> Iterable[Described]:
    cluster = dynamic_values(image, ResourceType.BROKER, "")
    if not name:
        values = BrokerValues({}, cluster, {})
        return [(key, broker_key(key), _dynamic_default(broker_value(key, values))) for key in cluster]
    node_id = node_id_of(name, "Broker id")
    own = dynamic_values(image, ResourceType.BROKER, name)
    if broker is not None and node_id != broker.node_id and is_down(name, image):
        broker = None  # it cannot be asked itself, and its file is not known here
    if broker is not None and node_id != broker.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )
    if broker is None and node_id != settings.node_id:
        check_exists(image, ResourceType.BROKER, name)
        return _described(BrokerValues(own, cluster, {}), {**own, **cluster})
    static = dict(settings.static if broker is None else broker.static)
    static.setdefault("broker.id", static.get("node.id", name))
    shown = [key for key, known in BROKER_KEYS.items() if not known.hidden]
    return _described(BrokerValues(own, cluster, static), {**dict.fromkeys(shown), **own, **cluster, **static})


def _described(values: BrokerValues, names: Iterable[str]) -> Iterable[Described]:
    return [(name, broker_key(name), broker_value(name, values)) for name in names]


def _dynamic_default(value: Effective) -> Effective:
    return value._replace(synonyms=tuple(s for s in value.synonyms if s.source == Source.DYNAMIC_DEFAULT_BROKER))


def _entry(
    name: str, key: ConfigKey | None, value: Effective, request: admin_pb2.DescribeConfigsRequest
) -> admin_pb2.ConfigEntry:
    """One entry. The value of an unknown key is not shown."""
    entry = _plain_entry(name, key, value)
    entry.config_type = 0 if key is None else key.type.number
    if request.include_synonyms:
        for synonym in value.synonyms:
            added = entry.synonyms.add(name=synonym.name, source=_source(synonym.source))
            if synonym.value is not None:
                added.value = synonym.value
    if request.include_documentation and key is not None and key.documentation is not None:
        entry.documentation = key.documentation
    return entry


def _plain_entry(name: str, key: ConfigKey | None, value: Effective) -> admin_pb2.ConfigEntry:
    return admin_pb2.ConfigEntry(
        name=name,
        value=value.value,
        read_only=key is None or not key.dynamic or name != key.name,
        config_source=_source(value.source),
        is_sensitive=key is None or key.is_sensitive,
    )


def _source(source: Source) -> admin_pb2.ConfigSource:
    return cast("admin_pb2.ConfigSource", int(source))


def topic_entries(image: MetadataImage, dynamic: Mapping[str, str], settings: Settings) -> list[admin_pb2.ConfigEntry]:
    """Every key of a topic with these dynamic values, sorted by name: the configs in the response to CreateTopics."""
    values = broker_values(image, settings)
    return [_plain_entry(name, key, topic_value(name, dynamic.get(name), values)) for name, key in sorted(TOPIC_KEYS.items())]


def unclean_election_enabled(image: MetadataImage, topic_name: str, settings: Settings) -> bool:
    """Return True if a leader may be elected outside the ISR of this topic (`unclean.leader.election.enable`)."""
    return topic_text(_UNCLEAN, image.config(ResourceType.TOPIC, topic_name, _UNCLEAN), broker_values(image, settings)) == "true"


def list_resources(
    image: MetadataImage, request: admin_pb2.ListConfigResourcesRequest, version: int
) -> admin_pb2.ListConfigResourcesResponse:
    """Resources of these types, of all types if none is named. Version 0 has client metrics only.

    ApiError UNSUPPORTED_VERSION for a type that has no configs.
    """
    types = list(dict.fromkeys(request.resource_types)) or list(RESOURCE_TYPES)
    if version == 0:
        types = [ResourceType.CLIENT_METRICS]
    unknown = [kind for kind in types if kind not in RESOURCE_TYPES]
    if unknown:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Resource type {unknown[0]} has no configs; the types with configs are {', '.join(map(str, RESOURCE_TYPES))}.",
        )
    response = admin_pb2.ListConfigResourcesResponse()
    for kind in types:
        for name in _resource_names(image, kind):
            response.config_resources.add(resource_name=name, resource_type=kind)
    return response


def _resource_names(image: MetadataImage, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(image.topics.by_name)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.cluster.brokers)]
    return sorted(name for resource_type, name in image.configs if resource_type == kind)
