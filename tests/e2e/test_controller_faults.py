"""Controllers that die, hang and come back: the quorum goes on, and nothing that was acknowledged is lost."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.demo.lab import wait_until


def test_a_killed_active_controller_is_replaced_and_nothing_acknowledged_is_lost(lab: Any, topic_maker: Any) -> None:
    maker = topic_maker(lab, "made")
    try:
        wait_until("topics are made", lambda: len(maker.acknowledged) >= 3)
        killed = lab.active
        lab.cluster.kill_node(killed)
        killed_at = time.monotonic()
        wait_until("writes commit again", lambda: any(at > killed_at for at in maker.acknowledged.values()))
    finally:
        maker.stop()
    assert lab.active != killed

    lab.cluster.start_node(killed)
    offset = lab.admin.describe_cluster().metadata_offset
    lab.cluster.wait_ready()
    endpoint = lab.cluster.node(killed).grpc
    wait_until("the killed one serves", lambda: answers(lab, endpoint))
    wait_until("the killed one catches up", lambda: lab.metadata_of(endpoint).offset >= offset)
    assert lab.metadata_is_equal_everywhere()
    names = {*lab.admin.describe_topics()}
    assert set(maker.acknowledged) <= names
    lab.admin.delete_topics(sorted(maker.acknowledged))


def test_a_paused_active_controller_is_replaced_and_follows_when_it_goes_on(lab: Any) -> None:
    lab.create_topic("paused", [0])
    paused = lab.active
    lab.cluster.pause_node(paused)
    lab.small_write("paused", 1_000_000)
    successor = lab.active
    assert successor != paused

    offset = lab.small_write("paused", 2_000_000)
    lab.cluster.resume_node(paused)
    endpoint = lab.cluster.node(paused).grpc
    wait_until("the resumed one catches up", lambda: lab.metadata_of(endpoint).offset >= offset)
    assert lab.admin.call_at(endpoint, pb.DescribeClusterResponse, pb.DescribeClusterRequest()).controller_id == successor
    assert lab.topic_configs("paused")["retention.ms"] == "2000000"
    assert lab.metadata_is_equal_everywhere()


def test_nothing_commits_without_a_majority_and_writes_go_on_when_it_is_back(lab: Any) -> None:
    lab.create_topic("alone", [0])
    lab.small_write("alone", 1_000_000)
    others = lab.cluster.controller_ids[1:]
    for node_id in others:
        lab.cluster.kill_node(node_id)
    with pytest.raises((ClusterUnreachable, ApiError)):
        lab.small_write("alone", 2_000_000, timeout_ms=1500)

    lab.cluster.start_node(others[0])
    offset = lab.small_write("alone", 3_000_000)
    assert lab.topic_configs("alone")["retention.ms"] == "3000000"
    lab.cluster.start_node(others[1])
    endpoint = lab.cluster.node(others[1]).grpc
    wait_until("the last one serves", lambda: answers(lab, endpoint))
    wait_until("the last one catches up", lambda: lab.metadata_of(endpoint).offset >= offset)


def test_a_controller_that_is_not_active_names_the_one_that_is(lab: Any) -> None:
    active = lab.active
    other = next(node_id for node_id in lab.cluster.controller_ids if node_id != active)
    request = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name="nothing")])
    with pytest.raises(ApiError) as refused:
        lab.admin.call_at(lab.cluster.node(other).grpc, pb.DeleteTopicsResponse, request)
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    assert lab.admin.leader == lab.cluster.node(active).grpc


def answers(lab: Any, endpoint: Any) -> bool:
    try:
        lab.metadata_of(endpoint)
    except (ApiError, ClusterUnreachable):
        return False
    return True
