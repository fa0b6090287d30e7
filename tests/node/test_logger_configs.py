"""Loggers of a node as configs: answers, forwarded resources, refusals."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.config import loggers
from kraftlab.node import logger_configs

NAME = "kraftlab.test.logger_configs"
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger(NAME)
    made.setLevel(logging.INFO)
    yield made
    made.setLevel(logging.NOTSET)


def alter(node: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> tuple[int, str]:
    resource = pb.AlterConfigsResource(
        resource_type=8,
        resource_name=node,
        configs=[pb.AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes],
    )
    response = logger_configs.alter(3, pb.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only))
    return response.responses[0].error_code, response.responses[0].error_message


def described(node: str, *names: str) -> tuple[int, dict[str, str]]:
    resource = pb.DescribeConfigsResource(resource_type=8, resource_name=node)
    resource.configuration_keys.values.extend(names)
    (result,) = logger_configs.describe(3, pb.DescribeConfigsRequest(resources=[resource])).results
    return result.error_code, {entry.name: entry.value for entry in result.configs}


def test_a_level_is_set_and_taken_back(logger: logging.Logger) -> None:
    assert alter("3", (NAME, SET, "DEBUG")) == (0, "")
    assert logger.level == logging.DEBUG
    assert described("3", NAME) == (0, {NAME: "DEBUG"})
    assert alter("3", (NAME, DELETE, None)) == (0, "")
    assert logger.level == logging.NOTSET


def test_all_loggers_of_this_program_are_described() -> None:
    code, found = described("3")
    assert code == 0
    assert found[NAME] == "INFO"
    assert described("3", "root") == (0, {"root": found["root"]})
    assert all(level in loggers.LEVELS for level in found.values())


@pytest.mark.parametrize(
    ("node", "change", "code", "text"),
    [
        ("4", (NAME, SET, "DEBUG"), 42, "Unexpected node id. Expected 3, but received 4"),
        ("", (NAME, SET, "DEBUG"), 42, "Node id must be an integer, but it is: "),
        ("x", (NAME, SET, "DEBUG"), 42, "Node id must be an integer, but it is: x"),
        ("3", ("no.such", SET, "DEBUG"), 40, "Logger no.such does not exist!"),
        (
            "3",
            (NAME, SET, "LOUD"),
            40,
            f"Cannot set the log level of {NAME} to LOUD as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ("3", (NAME, SET, None), 42, f"Null value not supported for : {NAME}"),
        ("3", (NAME, APPEND, "DEBUG"), 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("3", (NAME, 3, "DEBUG"), 42, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ("3", (NAME, 7, "DEBUG"), 42, f"Unknown config operation 7 for key {NAME}."),
        ("3", ("root", APPEND, "DEBUG"), 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("3", ("root", DELETE, None), 42, "Removing the log level of the root logger is not allowed"),
    ],
)
def test_refusals(logger: logging.Logger, node: str, change: tuple[str, int, str | None], code: int, text: str) -> None:
    assert alter(node, (NAME, SET, "TRACE"), change)[0] == code
    assert alter(node, change) == (code, text)
    assert logger.level == logging.INFO, "a resource is all or nothing"


def test_validation_alone_changes_nothing(logger: logging.Logger) -> None:
    assert alter("3", (NAME, SET, "DEBUG"), validate_only=True) == (0, "")
    assert logger.level == logging.INFO


def test_a_request_is_split_and_its_answers_come_in_its_order() -> None:
    request = pb.DescribeConfigsRequest(include_synonyms=True)
    for kind, name in ((2, "t"), (8, "3"), (4, "3"), (8, "4")):
        request.resources.add(resource_type=kind, resource_name=name)
    own, others = logger_configs.split(request)
    assert [r.resource_name for r in own.resources] == ["3", "4"]
    assert [r.resource_name for r in others.resources] == ["t", "3"]
    assert others.include_synonyms
    assert logger_configs.merged(request.resources, ["logger 3", "logger 4"], ["topic", "broker"]) == [
        "topic",
        "logger 3",
        "broker",
        "logger 4",
    ]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("4", "Unexpected broker id, expected 3 but received 4"),
        ("", "Broker id must not be empty"),
        ("x", "Broker id must be an integer, but it is: x"),
    ],
)
def test_the_loggers_of_another_node_are_not_described(node: str, text: str) -> None:
    resource = pb.DescribeConfigsResource(resource_type=8, resource_name=node)
    (result,) = logger_configs.describe(3, pb.DescribeConfigsRequest(resources=[resource])).results
    assert (result.error_code, result.error_message) == (42, text)
