"""Linearizable reads on real processes: an isolated controller does not answer, and answers have the newest write."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError, ErrorCode


def linearizable_describe(timeout_ms: int) -> pb.DescribeTopicPartitionsRequest:
    header = pb.RequestHeader(read_mode=pb.READ_MODE_LINEARIZABLE, timeout_ms=timeout_ms)
    return pb.DescribeTopicPartitionsRequest(header=header)


def test_every_node_answers_through_the_active_controller_with_the_newest_write(
    lab: Any, kraftlab_here: Callable[..., Any]
) -> None:
    lab.create_topic("read", [0])
    written = lab.small_write("read", 1_000_000)
    active = lab.active
    for node in lab.cluster.plan.brokers:
        response = lab.admin.call_at(node.grpc, pb.DescribeTopicPartitionsResponse, linearizable_describe(5000))
        assert response.header.metadata_offset >= written
        assert response.header.leader_id == active
    standby = next(node for node in lab.cluster.plan.controllers if node.node_id != active)
    with pytest.raises(ApiError) as refused:
        lab.admin.call_at(standby.grpc, pb.DescribeTopicPartitionsResponse, linearizable_describe(5000))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert lab.admin.describe_cluster(linearizable=True).metadata_offset >= written
    assert lab.admin.list_partition_reassignments(linearizable=True).metadata_offset >= written
    assert lab.admin.describe_quorum(linearizable=True).high_watermark >= written
    [topic] = lab.admin.describe_topics(["read"], linearizable=True).values()
    assert {entry.name: entry.value for entry in topic.configs}["retention.ms"] == "1000000"
    code, said = kraftlab_here("topics", *lab.at, "--list", "--topic", "read", "--linearizable", "--json")
    assert (code, json.loads(said)) == (0, {"topics": ["read"]})


def test_a_leader_that_is_cut_off_answers_committed_reads_only(lab: Any) -> None:
    lab.create_topic("cut-off", [0])
    active = lab.active
    endpoint = lab.cluster.node(active).grpc
    for node_id in lab.cluster.controller_ids:
        if node_id != active:
            lab.cluster.pause_node(node_id)
    with pytest.raises((ApiError, ClusterUnreachable)):
        lab.admin.call_at(endpoint, pb.DescribeTopicPartitionsResponse, linearizable_describe(400))
    assert lab.admin.call_at(endpoint, pb.DescribeTopicPartitionsResponse, pb.DescribeTopicPartitionsRequest()).topics


def test_a_deposed_leader_that_wakes_up_serves_no_stale_read(lab: Any) -> None:
    lab.create_topic("deposed", [0])
    lab.small_write("deposed", 1_000_000)
    deposed = lab.active
    endpoint = lab.cluster.node(deposed).grpc
    lab.cluster.pause_node(deposed)
    written = lab.small_write("deposed", 2_000_000)
    outcomes: list[Any] = []

    def ask() -> None:
        try:
            outcomes.append(lab.admin.call_at(endpoint, pb.DescribeTopicPartitionsResponse, linearizable_describe(5000)))
        except (ApiError, ClusterUnreachable) as error:
            outcomes.append(error)

    readers = [threading.Thread(target=ask) for _ in range(4)]
    for reader in readers:
        reader.start()
    lab.cluster.resume_node(deposed)
    for reader in readers:
        reader.join(timeout=15)
    assert len(outcomes) == len(readers)
    for outcome in outcomes:
        assert isinstance(outcome, Exception) or outcome.header.metadata_offset >= written
    topic = lab.admin.describe_topics(["deposed"], linearizable=True)["deposed"]
    assert {entry.name: entry.value for entry in topic.configs}["retention.ms"] == "2000000"
