"""Requests about configs, split by who has to be asked: a broker's own configs and loggers are that broker's business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

BROKER, BROKER_LOGGER = 4, 8
ANYBODY = None


def node_of(resource: Any) -> int | None:
    """The broker that has to be asked about a resource, ANYBODY if it matters not (or the name is no broker's)."""
    if resource.resource_type in (BROKER, BROKER_LOGGER) and resource.resource_name.isdecimal():
        return int(resource.resource_name)
    return ANYBODY


def in_parts(resources: Sequence[Any], ask: Callable[[int | None, Sequence[Any]], Any], answers: str) -> Any:
    """Asks everybody about their own resources; one response with the answers in the order of the resources, whatever order they
    are given in.

    `ask` takes a node and its resources; `answers` is the response's repeated field. The header is that of the last response.
    """
    parts: dict[int | None, list[int]] = {}
    for index, resource in enumerate(resources):
        parts.setdefault(node_of(resource), []).append(index)
    if len(parts) < 2:
        return ask(next(iter(parts), ANYBODY), resources)
    places: dict[tuple[int, str], list[int]] = {}
    for index, resource in enumerate(resources):
        places.setdefault((resource.resource_type, resource.resource_name), []).append(index)
    found: dict[int, Any] = {}
    response: Any = None
    for node, indexes in parts.items():
        response = ask(node, [resources[index] for index in indexes])
        for answer in getattr(response, answers):
            found[places[answer.resource_type, answer.resource_name].pop(0)] = answer
    merged = type(response)(header=response.header)
    getattr(merged, answers).extend(found[index] for index in sorted(found))
    return merged
