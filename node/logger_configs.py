"""The loggers of this node as configs: IncrementalAlterConfigs and DescribeConfigs of BROKER_LOGGER (KIP-412).

The node itself answers them, broker or controller, and never forwards them. Other resources of such a request take the usual way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from kraftlab.access.calls import Admission
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config import loggers
from kraftlab.config.resources import ConfigOperation, ResourceType

_LOGGER_SOURCE = admin_pb2.CONFIG_SOURCE_DYNAMIC_BROKER_LOGGER_CONFIG


Request = TypeVar("Request", admin_pb2.IncrementalAlterConfigsRequest, admin_pb2.DescribeConfigsRequest)
Result = TypeVar("Result")


def concerns(request: object) -> bool:
    """Return True if a request changes or describes loggers, among other things."""
    about_configs = admin_pb2.IncrementalAlterConfigsRequest | admin_pb2.DescribeConfigsRequest
    return isinstance(request, about_configs) and any(map(_is_logger, request.resources))


def _is_logger(resource: admin_pb2.AlterConfigsResource | admin_pb2.DescribeConfigsResource) -> bool:
    return resource.resource_type == ResourceType.BROKER_LOGGER


async def answer(
    api: str, request: Any, node_id: int, admit: Callable[[Any], Admission], others: Callable[[Any], Awaitable[Any]]
) -> Any:
    """Return the response to a call that concerns loggers; it has a header if `others`, which answers for the rest, was called.

    `admit` returns the part of a request that its caller may have, or raises ApiError.
    """
    is_change = api == "IncrementalAlterConfigs"
    answers = "responses" if is_change else "results"
    of_loggers, of_others = split(request)
    admission = admit(of_loggers)
    own: Any = admin_pb2.IncrementalAlterConfigsResponse() if is_change else admin_pb2.DescribeConfigsResponse()
    if not admission.is_void:
        own = alter(node_id, admission.request) if is_change else describe(node_id, admission.request)
    own = admission.completed(own)
    if not of_others.resources:
        return own
    response = await others(of_others)
    if len(getattr(response, answers)) != len(of_others.resources):
        return response
    merged_response = type(own)(header=response.header)
    getattr(merged_response, answers).extend(merged(request.resources, getattr(own, answers), getattr(response, answers)))
    return merged_response


def split(request: Request) -> tuple[Request, Request]:
    """Return a request as two: about loggers, and about everything else."""
    halves = type(request)(), type(request)()
    for half, is_logger in zip(halves, (True, False), strict=True):
        half.CopyFrom(request)
        del half.resources[:]
        half.resources.extend(resource for resource in request.resources if _is_logger(resource) == is_logger)
    return halves


def merged(
    resources: Iterable[admin_pb2.AlterConfigsResource] | Iterable[admin_pb2.DescribeConfigsResource],
    of_loggers: Iterable[Result],
    of_others: Iterable[Result],
) -> list[Result]:
    """Return the results of both halves in the order of the request's resources."""
    own, others = iter(of_loggers), iter(of_others)
    return [next(own if _is_logger(resource) else others) for resource in resources]


def alter(node_id: int, request: admin_pb2.IncrementalAlterConfigsRequest) -> admin_pb2.IncrementalAlterConfigsResponse:
    """Set levels of this process's loggers; each resource is all or nothing."""
    response = admin_pb2.IncrementalAlterConfigsResponse()
    for resource in request.resources:
        answer = response.responses.add(resource_type=ResourceType.BROKER_LOGGER, resource_name=resource.resource_name)
        try:
            name = resource.resource_name
            if _node_id_of(name, "Node id") != node_id:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")
            for change in resource.configs:
                _check(change)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message or ""
            continue
        for change in resource.configs if not request.validate_only else ():
            loggers.set_level(change.name, change.value if change.config_operation == ConfigOperation.SET else None)
    return response


def _check(change: admin_pb2.AlterableConfig) -> None:
    operation = change.config_operation
    if operation not in set(ConfigOperation):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation} for key {change.name}.")
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        name = ConfigOperation(operation).name
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} operation is not allowed for the BROKER_LOGGER resource")
    if operation == ConfigOperation.SET and not change.HasField("value"):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if operation == ConfigOperation.DELETE and change.name == loggers.ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    fault = loggers.fault(change.name, change.value if operation == ConfigOperation.SET else None)
    if fault is not None:
        raise ApiError(ErrorCode.INVALID_CONFIG, fault)


def describe(node_id: int, request: admin_pb2.DescribeConfigsRequest) -> admin_pb2.DescribeConfigsResponse:
    """Return the level in force of each logger."""
    response = admin_pb2.DescribeConfigsResponse()
    for resource in request.resources:
        name = resource.resource_name
        result = response.results.add(resource_type=ResourceType.BROKER_LOGGER, resource_name=name, error_message="")
        try:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            if _node_id_of(name, "Broker id") != node_id:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {name}")
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message or ""
            continue
        wanted = set(resource.configuration_keys.values)
        for name, level in loggers.levels().items():
            if not wanted or name in wanted:
                result.configs.add(name=name, value=level, config_source=_LOGGER_SOURCE)
    return response


def _node_id_of(name: str, what: str) -> int:
    """Return the node id in a resource's name. ApiError INVALID_REQUEST for another text."""
    try:
        return int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}") from None
