"""Requests that cannot be carried out: each refused with a code and a text that names the thing, and nothing is changed."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.metadata.errors import ApiError, ErrorCode

CommandLine = Callable[..., subprocess.CompletedProcess[str]]

REFUSED_TARGETS = {
    "unknown broker": ([0, 77], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "77"),
    "duplicate replica": ([0, 0], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "0"),
    "negative broker": ([-3], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "-3"),
    "no replicas": ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replica"),
    "nothing to cancel": (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "reassignment"),
}


@pytest.fixture
def topic(lab: Any) -> str:
    if not any(topic.name == "bystander" for topic in lab.admin.describe_topics().topics):
        lab.create_topic("bystander", [0, 1])
    return "bystander"


@pytest.mark.parametrize("name", REFUSED_TARGETS)
def test_a_reassignment_that_cannot_be_is_refused_by_code_and_text(lab: Any, topic: str, name: str) -> None:
    target, code, told = REFUSED_TARGETS[name]
    before = lab.state_of(topic)
    with pytest.raises(ApiError) as refused:
        lab.reassign({(topic, 0): target})
    assert refused.value.code == code
    assert told in str(refused.value.message)
    assert lab.state_of(topic) == before


def test_one_refused_entry_does_not_stop_the_others(lab: Any, topic: str) -> None:
    answer = lab.admin.alter_partition_reassignments({("nowhere", 0): [0], (topic, 9): [0], (topic, 0): [0, 1]})
    codes = {(entry.name, item.partition_index): item.error_code for entry in answer.responses for item in entry.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("nowhere", 0): unknown, (topic, 9): unknown, (topic, 0): ErrorCode.NONE}


def test_requests_for_another_cluster_are_refused_by_every_node(lab: Any) -> None:
    with AdminClient(lab.cluster.bootstrap_servers, cluster_id="another-cluster", timeout_ms=5000) as stranger:
        for node in lab.cluster.plan.nodes:
            with pytest.raises(ApiError) as refused:
                stranger.call_at(node.grpc, "DescribeCluster", pb.DescribeClusterRequest())
            assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
            assert "another-cluster" in str(refused.value.message)


PLAN = b'{"version":1,"partitions":[{"topic":"bystander","partition":0,"replicas":["a"]}]}'
PLANS = {
    "empty file": (b"", "JSON"),
    "cut JSON": (b'{"version": 1, "partitions": [', "JSON"),
    "another shape": (b'{"version": 1, "partitions": {"topic": "t"}}', "partitions"),
    "replica that is no number": (
        plan := b'{"version":1,"partitions":[{"topic":"bystander","partition":0,"replicas":["a"]}]}',
        "a",
    ),
    "duplicate replica": (PLAN.replace(b'"a"', b"1,1"), "1"),
    "unknown broker": (PLAN.replace(b'"a"', b"1,77"), "77"),
    "unknown topic": (PLAN.replace(b'"a"', b"1").replace(b"bystander", b"nowhere"), "nowhere"),
    "partition twice": (
        b'{"version":1,"partitions":[{"topic":"bystander","partition":0,"replicas":[1]},'
        b'{"topic":"bystander","partition":0,"replicas":[2]}]}',
        "bystander-0",
    ),
    "log dirs that do not match": (
        b'{"version":1,"partitions":[{"topic":"bystander","partition":0,"replicas":[1],"log_dirs":["any","any"]}]}',
        "log dirs",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_cannot_be_executed_ends_the_command_with_a_text_and_changes_nothing(
    lab: Any, topic: str, scratch: pathlib.Path, kraftlab: CommandLine, name: str
) -> None:
    content, told = PLANS[name]
    path = scratch / "plan.json"
    path.write_bytes(content)
    before = lab.state_of(topic)
    options = ("--bootstrap-server", lab.cluster.bootstrap_servers, "--reassignment-json-file", str(path))
    ended = kraftlab("reassign-partitions", "--execute", *options)
    assert ended.returncode == 1
    said = ended.stdout + ended.stderr
    assert told in said
    assert "Traceback" not in said
    assert lab.state_of(topic) == before


def test_a_plan_file_that_is_not_there_is_named(lab: Any, kraftlab: CommandLine) -> None:
    options = ("--bootstrap-server", lab.cluster.bootstrap_servers, "--reassignment-json-file", "/no/such/plan.json")
    ended = kraftlab("reassign-partitions", "--execute", *options, "--json")
    assert ended.returncode == 1
    assert "/no/such/plan.json" in json.loads(ended.stdout)["error"]["message"]


def test_a_command_without_a_cluster_says_whom_it_asked(kraftlab: CommandLine) -> None:
    ended = kraftlab("topics", "--bootstrap-server", "127.0.0.1:9", "--list")
    assert ended.returncode == 1
    assert "127.0.0.1:9" in ended.stderr
    assert "check --bootstrap-server" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--create", "--topic", "bystander"), "already exists"),
        (("--create", "--topic", "x" * 250), "249"),
        (("--create", "--topic", "odd", "--config", "no.such.key=1"), "no.such.key"),
        (("--delete", "--topic", "nowhere"), "nowhere"),
        (("--describe", "--topic", "nowhere"), "nowhere"),
    ],
)
def test_a_topic_command_that_cannot_be_names_what_is_wrong(
    lab: Any, topic: str, kraftlab: CommandLine, arguments: tuple[str, ...], told: str
) -> None:
    ended = kraftlab("topics", "--bootstrap-server", lab.cluster.bootstrap_servers, *arguments)
    assert ended.returncode == 1
    assert told in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
