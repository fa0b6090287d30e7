"""Dynamic configuration of topics and brokers: IncrementalAlterConfigs, DescribeConfigs (KIP-339, KIP-226).

Theory of operation. A dynamic value is one Config record per key; None deletes it. Each resource of a request is all or
nothing, resources are independent of each other, and everything accepted lands in one atomic batch. Which keys exist,
their types and what is valid stand in `kraftlab.config.topic_configs`; this module knows the order of the checks and
where a value comes from: topic, broker, cluster default of brokers, server.properties, default.

Values that do not change make no record, except for brokers: setting one again lets the broker read it again.

The controller knows the server.properties of its own node only: of another broker it describes what is dynamic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kraftlab.admin.v1 import admin_pb2
from kraftlab.config import topic_configs
from kraftlab.config.topic_configs import BROKER_KEYS, TOPIC_KEYS, ConfigKey, split_list
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC, Config

from ..engine.state import Context, ControllerState, Outcome, Settings, check_record_count, set_error
from ..topics.topic_names import name_problem

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
OTHER_RESOURCE_TYPES = {8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}

DYNAMIC_TOPIC = admin_pb2.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
DYNAMIC_BROKER = admin_pb2.CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG
DYNAMIC_DEFAULT_BROKER = admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC_BROKER = admin_pb2.CONFIG_SOURCE_STATIC_BROKER_CONFIG
DEFAULT = admin_pb2.CONFIG_SOURCE_DEFAULT_CONFIG


def alter(
    state: ControllerState, request: admin_pb2.IncrementalAlterConfigsRequest, context: Context
) -> Outcome[admin_pb2.IncrementalAlterConfigsResponse]:
    """Sets, deletes, appends to and subtracts from dynamic values. ApiError POLICY_VIOLATION if that makes more than a
    batch.
    """
    response = admin_pb2.IncrementalAlterConfigsResponse()
    records: list[Config] = []
    repeated = _named_repeatedly(request.resources)
    for resource in request.resources:
        answer = response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if (resource.resource_type, resource.resource_name) in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += _alter_resource(state, resource, context.settings)
        except ApiError as error:
            set_error(answer, error)
    check_record_count(records)
    return Outcome([] if request.validate_only else records, response)


def _named_repeatedly(resources: Sequence[admin_pb2.AlterConfigsResource]) -> set[tuple[int, str]]:
    if len(resources) < 2:
        return set()
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {key for key, count in counts.items() if count > 1}


def _alter_resource(state: ControllerState, resource: admin_pb2.AlterConfigsResource, settings: Settings) -> list[Config]:
    _check_request(resource.configs)
    _check_resource(state.image, resource.resource_type, resource.resource_name)
    is_topic = resource.resource_type == RESOURCE_TOPIC
    current = _values(state.image, resource.resource_type, resource.resource_name)
    records: list[Config] = []
    for change in resource.configs:
        value = _new_value(resource.resource_type, change, current.get(change.name), settings)
        if value is not None:
            _check_value(resource.resource_type, change.name, value)
        unchanged = value == current.get(change.name)
        if unchanged and (is_topic or value is None):
            continue
        records.append(Config(0, resource.resource_type, resource.resource_name, change.name, value))
    return records


def _values(image: MetadataImage, resource_type: int, name: str) -> Mapping[str, str]:
    return image.configs.get((resource_type, name)) or {}


def _check_request(changes: Sequence[admin_pb2.AlterableConfig]) -> None:
    """What can be told from the request alone."""
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for change in changes:
        if change.config_operation not in OPERATION_NAMES:
            known = ", ".join(f"{number} {name}" for number, name in OPERATION_NAMES.items())
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown config operation {change.config_operation} for key {change.name}; it is one of {known}.",
            )
    missing = [c.name for c in changes if c.config_operation != DELETE and not c.HasField("value")]
    if missing:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")


def _check_resource(image: MetadataImage, resource_type: int, name: str) -> None:
    """The resource is of a type kept here, has a legal name, and exists."""
    if resource_type == RESOURCE_TOPIC:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        problem = name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if image.topics.get(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == RESOURCE_BROKER:
        if name and _broker_id(name) not in image.cluster.brokers:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered.")
    elif resource_type in OTHER_RESOURCE_TYPES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Resource type {OTHER_RESOURCE_TYPES[resource_type]} is not kept here; it is 2 (TOPIC) or 4 (BROKER).",
        )
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _broker_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None


def _new_value(resource_type: int, change: admin_pb2.AlterableConfig, current: str | None, settings: Settings) -> str | None:
    operation = change.config_operation
    if operation == DELETE:
        return None
    if operation == SET:
        return change.value
    if not topic_configs.is_list_key(resource_type, change.name):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {OPERATION_NAMES[operation]} to key {change.name} because its type is not LIST.",
        )
    if current is None:
        current = _list_default(resource_type, change.name, settings)
    items = list(split_list(current))
    named = split_list(change.value)
    if operation == APPEND:
        items += [item for item in dict.fromkeys(named) if item not in items]
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)


def _list_default(resource_type: int, name: str, settings: Settings) -> str:
    if resource_type == RESOURCE_TOPIC:
        value, _ = topic_configs.topic_default(name, settings.static)
        return value or ""
    return BROKER_KEYS[name].default or ""


def _check_value(resource_type: int, name: str, value: str) -> None:
    if resource_type == RESOURCE_TOPIC:
        refusal = topic_configs.validate_topic_value(name, value)
        code = ErrorCode.INVALID_CONFIG
    else:
        refusal = topic_configs.validate_broker_value(name, value)
        code = ErrorCode.INVALID_REQUEST
    if refusal is not None:
        raise ApiError(code, refusal)


def new_topic_values(configs: Iterable[admin_pb2.CreatableTopicConfig]) -> dict[str, str]:
    """The checked values of a topic that is created; the last one wins where a key comes twice. ApiError INVALID_CONFIG."""
    configs = list(configs)
    missing = [config.name for config in configs if not config.HasField("value")]
    if missing:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    values = {config.name: config.value for config in configs}
    for name, value in values.items():
        _check_value(RESOURCE_TOPIC, name, value)
    return values


def describe(
    state: ControllerState, request: admin_pb2.DescribeConfigsRequest, settings: Settings
) -> admin_pb2.DescribeConfigsResponse:
    """Values with their sources, sorted by key. A list of keys that is empty counts as all of them, unknown keys are left
    out.
    """
    response = admin_pb2.DescribeConfigsResponse()
    for resource in request.resources:
        result = response.results.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        wanted = set(resource.configuration_keys.values)
        try:
            entries = _describe_resource(state.image, resource.resource_type, resource.resource_name, settings)
        except ApiError as error:
            set_error(result, error)
            continue
        result.configs.extend(entry for entry in entries if not wanted or entry.name in wanted)
    return response


def _describe_resource(image: MetadataImage, resource_type: int, name: str, settings: Settings) -> list[admin_pb2.ConfigEntry]:
    if resource_type == RESOURCE_TOPIC:
        problem = name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    _check_resource(image, resource_type, name)
    if resource_type == RESOURCE_TOPIC:
        return topic_entries(image, _values(image, RESOURCE_TOPIC, name), settings)
    return _broker_entries(image, name, settings)


def topic_entries(image: MetadataImage, dynamic: Mapping[str, str], settings: Settings) -> list[admin_pb2.ConfigEntry]:
    """Every key of a topic with these dynamic values, sorted by name."""
    cluster = _values(image, RESOURCE_BROKER, "")
    return [
        admin_pb2.ConfigEntry(name=name, value=value, config_source=source)
        for name, key in TOPIC_KEYS.items()
        for value, source in [_topic_value(key, dynamic.get(name), cluster.get, settings)]
    ]


def _topic_value(
    key: ConfigKey, dynamic: str | None, cluster: Callable[[str], str | None], settings: Settings
) -> tuple[str | None, admin_pb2.ConfigSource]:
    if dynamic is not None:
        return dynamic, DYNAMIC_TOPIC
    default = None if key.synonym is None else cluster(key.synonym)
    if default is not None:
        return default, DYNAMIC_DEFAULT_BROKER
    value, is_static = topic_configs.topic_default(key.name, settings.static)
    return value, STATIC_BROKER if is_static else DEFAULT


def topic_value(image: MetadataImage, topic_name: str, name: str, settings: Settings) -> str | None:
    """The value in force for one key of a topic."""
    cluster = _values(image, RESOURCE_BROKER, "")
    return _topic_value(TOPIC_KEYS[name], image.config(RESOURCE_TOPIC, topic_name, name), cluster.get, settings)[0]


def unclean_election_enabled(image: MetadataImage, topic_name: str, settings: Settings) -> bool:
    """Whether a leader may be elected outside the ISR of this topic (`unclean.leader.election.enable`)."""
    return (topic_value(image, topic_name, "unclean.leader.election.enable", settings) or "").strip().lower() == "true"


def _broker_entries(image: MetadataImage, name: str, settings: Settings) -> list[admin_pb2.ConfigEntry]:
    sources: dict[str, tuple[str | None, admin_pb2.ConfigSource]] = {}
    if name == str(settings.node_id):
        sources |= {key.name: (key.default, DEFAULT) for key in BROKER_KEYS.values()}
        sources |= {key: (value, STATIC_BROKER) for key, value in settings.static.items() if key in BROKER_KEYS}
    cluster = _values(image, RESOURCE_BROKER, "")
    sources |= {key: (value, DYNAMIC_DEFAULT_BROKER) for key, value in cluster.items()}
    if name:
        own = _values(image, RESOURCE_BROKER, name)
        sources |= {key: (value, DYNAMIC_BROKER) for key, value in own.items()}
    return [_broker_entry(key, value, source) for key, (value, source) in sorted(sources.items())]


def _broker_entry(name: str, value: str | None, source: admin_pb2.ConfigSource) -> admin_pb2.ConfigEntry:
    """Of a key that is not known nobody can say whether its value may be shown."""
    key = BROKER_KEYS.get(name)
    return admin_pb2.ConfigEntry(
        name=name,
        value=None if key is None else value,
        read_only=key is None or not key.dynamic,
        config_source=source,
        is_sensitive=key is None,
    )
