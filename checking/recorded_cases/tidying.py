"""Cleanup after a scenario: recordings started on a clean cluster, and each has to run alone."""

from __future__ import annotations

from kraftlab.admin.v1 import admin_pb2 as pb

from .documents import Document
from .lab import BROKER, TOPIC, Lab
from .paths import Value

_DYNAMIC = (
    pb.CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG,
    pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG,
    pb.CONFIG_SOURCE_DYNAMIC_BROKER_LOGGER_CONFIG,
    pb.CONFIG_SOURCE_DYNAMIC_CLIENT_METRICS_CONFIG,
    pb.CONFIG_SOURCE_DYNAMIC_GROUP_CONFIG,
)
_ANY = 1
_BROKER_LOGGER = 8


def tidy(lab: Lab, document: Document) -> None:
    """Start stopped nodes, and remove topics and all other traces of the scenario's calls."""
    lab.start_what_is_stopped()
    names = [name for name in lab.admin.describe_topics() if name not in lab.own_topics]
    if names:
        request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=name) for name in names])
        lab.call("controller", "DeleteTopics", request)
    apis = {step.get("api") for step in document.steps}
    for kind, name in sorted(altered_resources(document)):
        _reset_configs(lab, kind, name)
    if "AlterClientQuotas" in apis:
        _remove_quotas(lab)
    if "AlterUserScramCredentials" in apis:
        _remove_credentials(lab)
    if "CreateAcls" in apis and lab.with_users:
        everything = pb.DeleteAclsFilter(
            resource_type_filter=_ANY, pattern_type_filter=_ANY, operation=_ANY, permission_type=_ANY
        )
        lab.call("controller", "DeleteAcls", pb.DeleteAclsRequest(filters=[everything]))


def altered_resources(document: Document) -> set[tuple[int, str]]:
    """Return (type, name) of the resources besides topics whose configs the steps may alter."""
    return {
        (resource["resource_type"], resource["resource_name"])
        for step in document.steps
        if step.get("api") in ("IncrementalAlterConfigs", "AlterConfigs") and not step["request"].get("validate_only")
        for resource in step["request"].get("resources") or ()
        if resource["resource_type"] != TOPIC
    }


def _reset_configs(lab: Lab, kind: int, name: str) -> None:
    """Restore the configs of the setup. Missing resources have no configs."""
    is_brokers_own = kind in (BROKER, _BROKER_LOGGER) and name.isdecimal() and int(name) in lab.cluster.broker_ids
    to: int | str = int(name) if is_brokers_own else "controller"
    resource = pb.DescribeConfigsResource(resource_type=kind, resource_name=name)
    (result,) = lab.call(to, "DescribeConfigs", pb.DescribeConfigsRequest(resources=[resource])).results
    wanted: dict[str, str] = lab.set_up_configs.get((kind, name), {})
    found = {entry.name: entry.value for entry in result.configs if entry.config_source in _DYNAMIC and _is_own(entry, name)}
    changes: dict[str, Value] = {key: None for key in found if key not in wanted}
    changes |= {key: value for key, value in wanted.items() if found.get(key) != value}
    if changes and not result.error_code:
        lab.alter_configs(kind, name, changes, to=to)


def _is_own(entry: Value, resource_name: str) -> bool:
    """Return whether a config is set at the resource itself, not at the default of all brokers."""
    is_default: bool = entry.config_source == pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG
    return is_default == (resource_name == "")


def _remove_quotas(lab: Lab) -> None:
    response = lab.call("controller", "DescribeClientQuotas", pb.DescribeClientQuotasRequest())
    entries = [
        pb.ClientQuotaAlteration(
            entity=entry.entity, ops=[pb.ClientQuotaOperation(key=quota.key, remove=True) for quota in entry.values]
        )
        for entry in response.entries.values
    ]
    if entries:
        lab.call("controller", "AlterClientQuotas", pb.AlterClientQuotasRequest(entries=entries))


def _remove_credentials(lab: Lab) -> None:
    response = lab.call("controller", "DescribeUserScramCredentials", pb.DescribeUserScramCredentialsRequest())
    deletions = [
        pb.ScramCredentialDeletion(name=result.user, mechanism=info.mechanism)
        for result in response.results
        for info in result.credential_infos
    ]
    if deletions:
        lab.call("controller", "AlterUserScramCredentials", pb.AlterUserScramCredentialsRequest(deletions=deletions))
