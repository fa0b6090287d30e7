"""Requests about configs, split by their nodes: a broker has its own configs and loggers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Protocol, TypeVar

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.config.resources import ConfigOperation, ResourceType
from kraftlab.rpc.methods import Response

ANYBODY = None


class ConfigResource(Protocol):
    """A resource with configs in a request or a response."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


Resource = TypeVar("Resource", bound=ConfigResource)
Result = TypeVar("Result", bound=ConfigResource)


def node_of(resource: ConfigResource) -> int | None:
    """Return the broker that has a resource's configs, ANYBODY if every node has them or the name is not a broker id."""
    if resource.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.resource_name.isdecimal():
        return int(resource.resource_name)
    return ANYBODY


def in_parts(
    resources: Sequence[Resource],
    ask: Callable[[int | None, Sequence[Resource]], Response],
    results: Callable[[Response], MutableSequence[Result]],
) -> Response:
    """Ask every node about its own resources; return one response with the results in the order of the resources.

    `ask` takes a node and its resources; nodes may answer in any order. `results` is the response's repeated field. The header is
    from the last response.
    """
    parts: dict[int | None, list[int]] = {}
    for index, resource in enumerate(resources):
        parts.setdefault(node_of(resource), []).append(index)
    if len(parts) < 2:
        return ask(next(iter(parts), ANYBODY), resources)
    places: dict[tuple[int, str], list[int]] = {}
    for index, resource in enumerate(resources):
        places.setdefault((resource.resource_type, resource.resource_name), []).append(index)
    found: dict[int, Result] = {}
    for node, indexes in parts.items():
        response = ask(node, [resources[index] for index in indexes])
        for result in results(response):
            found[places[result.resource_type, result.resource_name].pop(0)] = result
    merged = type(response)()
    merged.header.CopyFrom(response.header)
    results(merged).extend(found[index] for index in sorted(found))
    return merged


def config_changes(kind: int, name: str, values: Mapping[str, str | None]) -> pb.AlterConfigsResource:
    """Return the part of a request that sets configs of a resource, and deletes configs with the value None."""
    resource = pb.AlterConfigsResource(resource_type=kind, resource_name=name)
    for key, value in values.items():
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        resource.configs.add(name=key, config_operation=operation, value=value)
    return resource
