"""Changes of dynamic configuration: IncrementalAlterConfigs and AlterConfigs (KIP-339, KIP-226, KIP-133).

Theory of operation. A dynamic value is one Config record per key; None deletes it. Each resource of a request is all or
nothing, resources are independent of each other, and everything that is accepted is one atomic batch.
`kraftlab.config.topic_configs` has the keys, their types and valid values, `resources` the types of resources, and
`broker_rules` the checks that depend on a broker. This module has the order of the checks: the request alone, the resource's
name, each value, all values together, the resource's existence, the server's policy. The old AlterConfigs replaces all values
of a resource, so it is converted into the changes that do so.

A value that does not change makes no record, except for brokers: setting it again makes the broker read it again. A changed
min.insync.replicas clears the eligible leader replicas that were eligible under the old one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config import topic_configs
from kraftlab.config.config_key import ConfigKey, split_list
from kraftlab.config.effective import inherited
from kraftlab.config.resources import ConfigOperation, ResourceType
from kraftlab.metadata import eligible_leaders
from kraftlab.metadata.features import MIN_INSYNC_REPLICAS
from kraftlab.metadata.records import AnyRecord, ClearElr, Config

from ..engine.state import Context, ControllerState, Outcome, check_record_count
from . import broker_rules, policies
from .resources import (
    RESOURCE_TYPES,
    broker_values,
    check_exists,
    check_topic_name,
    dynamic_values,
)

_WITH_LISTS = (ResourceType.TOPIC, ResourceType.BROKER)
"""Resources whose lists take APPEND and SUBTRACT. Kafka does not know the types of the others' keys there."""


def alter(
    state: ControllerState, request: admin_pb2.IncrementalAlterConfigsRequest, context: Context
) -> Outcome[admin_pb2.IncrementalAlterConfigsResponse]:
    """Set, delete, append to and subtract from dynamic values. ApiError POLICY_VIOLATION for more records than a batch holds."""
    response = admin_pb2.IncrementalAlterConfigsResponse()
    records: list[AnyRecord] = []
    repeated = _named_repeatedly(request.resources)
    for resource in request.resources:
        answer = response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if (resource.resource_type, resource.resource_name) in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += _alter_resource(state, resource, context)
        except ApiError as error:
            set_error(answer, error)
    check_record_count(records)
    return Outcome([] if request.validate_only else records, response)


def replace(
    state: ControllerState, request: admin_pb2.AlterConfigsRequest, context: Context
) -> Outcome[admin_pb2.AlterConfigsResponse]:
    """Give resources exactly the named dynamic values; delete all others. ApiError as `alter`."""
    changes = admin_pb2.IncrementalAlterConfigsRequest(validate_only=request.validate_only)
    for resource in request.resources:
        changed = changes.resources.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        for config in resource.configs:
            change = changed.configs.add(name=config.name, config_operation=ConfigOperation.SET)
            if config.HasField("value"):
                change.value = config.value
        named = {config.name for config in resource.configs}
        for name in sorted(dynamic_values(state.image, resource.resource_type, resource.resource_name)):
            if name not in named:
                changed.configs.add(name=name, config_operation=ConfigOperation.DELETE)
    outcome = alter(state, changes, context)
    return Outcome(outcome.records, admin_pb2.AlterConfigsResponse(responses=outcome.response.responses))


def _named_repeatedly(resources: Sequence[admin_pb2.AlterConfigsResource]) -> set[tuple[int, str]]:
    if len(resources) < 2:
        return set()
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {key for key, count in counts.items() if count > 1}


def _alter_resource(state: ControllerState, resource: admin_pb2.AlterConfigsResource, context: Context) -> list[AnyRecord]:
    kind, name = resource.resource_type, resource.resource_name
    _check_request(resource.configs)
    if kind == ResourceType.BROKER and broker_rules.is_down(name, state.image):
        # It cannot be asked itself, and its file is not known here. A plan that moves replicas off it needs its throttle.
        context = context._replace(broker=None)
    _check_name(kind, name, context)
    current = dynamic_values(state.image, kind, name)
    changes = {change.name: _new_value(state, kind, name, change, current, context) for change in resource.configs}
    after = {key: value for key, value in {**current, **changes}.items() if value is not None}
    _check_together(state, kind, name, changes, after, context)
    check_exists(state.image, kind, name)
    policies.check_configs(context.settings.static, kind, name, after)
    records: list[AnyRecord] = []
    for key, value in changes.items():
        is_unchanged = value == current.get(key)
        if is_unchanged and (kind != ResourceType.BROKER or value is None):
            continue
        records.append(Config(0, kind, name, key, value))
        if key == MIN_INSYNC_REPLICAS and not is_unchanged and eligible_leaders.are_on(state.image):
            records.append(ClearElr(0, name if kind == ResourceType.TOPIC else ""))
    return records


def _check_request(changes: Sequence[admin_pb2.AlterableConfig]) -> None:
    """Errors that the request alone shows."""
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for change in changes:
        if change.config_operation not in set(ConfigOperation):
            known = ", ".join(f"{operation} {operation.name}" for operation in ConfigOperation)
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown config operation {change.config_operation} for key {change.name}; it is one of {known}.",
            )
    missing = [c.name for c in changes if c.config_operation != ConfigOperation.DELETE and not c.HasField("value")]
    if missing:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")


def _check_name(kind: int, name: str, context: Context) -> None:
    """Check that the resource's type has configs here, and that its name is valid."""
    resource_type = RESOURCE_TYPES.get(kind)
    if resource_type is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == ResourceType.BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Loggers belong to a node; send this to the broker that has them.")
    if not name and resource_type.empty_name is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, resource_type.empty_name)
    if kind == ResourceType.BROKER:
        broker_rules.check_named(name, context.broker)
    elif kind == ResourceType.TOPIC:
        check_topic_name(name)


def _new_value(
    state: ControllerState,
    kind: int,
    name: str,
    change: admin_pb2.AlterableConfig,
    current: Mapping[str, str],
    context: Context,
) -> str | None:
    """New value of the key, valid by itself; None deletes it."""
    if change.config_operation == ConfigOperation.DELETE:
        return None
    value: str = change.value
    if change.config_operation != ConfigOperation.SET:
        value = _changed_list(state, kind, change, current.get(change.name), context)
    if kind == ResourceType.BROKER:
        values = broker_values(state.image, context.settings, context.broker)
        is_for_all = not name or int(name) not in state.image.cluster.brokers
        broker_rules.check_value(change.name, value, values, is_known=context.broker is not None, is_for_all=is_for_all)
    else:
        _check_value(kind, change.name, value)
    return value


def _changed_list(
    state: ControllerState, kind: int, change: admin_pb2.AlterableConfig, current: str | None, context: Context
) -> str:
    key = topic_configs.known_key(kind, change.name) if kind in _WITH_LISTS else None
    if key is None or not key.is_list:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {ConfigOperation(change.config_operation).name} to key {change.name} because its type is not LIST.",
        )
    items = list(split_list(key.normal(_list_default(state, kind, key, context) if current is None else current)))
    named = split_list(change.value)
    if change.config_operation == ConfigOperation.APPEND:
        items += [item for item in dict.fromkeys(named) if item not in items]
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)


def _list_default(state: ControllerState, kind: int, key: ConfigKey, context: Context) -> str:
    values = broker_values(state.image, context.settings, context.broker)
    return (values.value(key.name) if kind == ResourceType.BROKER else inherited(key, values)) or ""


def _check_value(kind: int, name: str, value: str) -> None:
    if kind == ResourceType.TOPIC:
        _refuse(ErrorCode.INVALID_CONFIG, topic_configs.validate_topic_value(name, value))
    elif kind == ResourceType.CLIENT_METRICS:
        if name not in topic_configs.CLIENT_METRICS_KEYS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        is_interval = name == "interval.ms" and topic_configs.CLIENT_METRICS_KEYS[name].fault(value) is None
        code = ErrorCode.INVALID_REQUEST if is_interval else ErrorCode.INVALID_CONFIG
        _refuse(code, topic_configs.validate_client_metrics(name, value))


def _refuse(code: ErrorCode, refusal: str | None) -> None:
    if refusal is not None:
        raise ApiError(code, refusal)


def _check_together(
    state: ControllerState,
    kind: int,
    name: str,
    changes: Mapping[str, str | None],
    after: Mapping[str, str],
    context: Context,
) -> None:
    """Errors that depend on other values, or on the cluster."""
    if kind == ResourceType.BROKER:
        if not name:
            own = [key for key, value in changes.items() if value is not None and _is_per_broker(key)]
            if own:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"Cannot update these configs at default cluster level: [{', '.join(own)}]"
                )
        if eligible_leaders.are_on(state.image):
            broker_rules.check_eligible_leaders(name, changes)
    elif kind == ResourceType.GROUP:
        static = context.settings.static if context.broker is None else context.broker.static
        _refuse(ErrorCode.INVALID_CONFIG, topic_configs.validate_group_values(after, static))


def _is_per_broker(name: str) -> bool:
    key = topic_configs.broker_key(name)
    return key is not None and (key.per_broker or key.needs_listener)


def new_topic_values(configs: Iterable[admin_pb2.CreatableTopicConfig]) -> dict[str, str]:
    """Checked values of a new topic. If a key comes twice, the last value counts. ApiError INVALID_CONFIG."""
    configs = list(configs)
    missing = [config.name for config in configs if not config.HasField("value")]
    if missing:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    values = {config.name: config.value for config in configs}
    for name, value in values.items():
        _refuse(ErrorCode.INVALID_CONFIG, topic_configs.validate_topic_value(name, value))
    return values
