"""Health of real nodes, by the client of grpcio-health-checking and by HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from kraftlab.lab import LocalCluster
from kraftlab.lab.cluster_plan import NodePlan
from kraftlab.rpc.methods import SERVICE

from ..helpers.waiting import wait_until

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
CLUSTER = (1, 2, 1)
OVERRIDES = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}


def by_grpc(node: NodePlan, name: str = SERVICE, timeout_s: float = 10) -> int | None:
    """Return the status of a name, None without an answer."""
    with grpc.insecure_channel(str(node.grpc)) as channel:
        try:
            return int(HealthStub(channel).Check(HealthCheckRequest(service=name), timeout=timeout_s).status)
        except grpc.RpcError:
            return None


def by_http(node: NodePlan) -> tuple[bool, Any]:
    """Return what /readyz says, and what is missing."""
    assert node.metrics is not None
    try:
        with urllib.request.urlopen(f"http://{node.metrics}/readyz", timeout=10) as page:
            text = page.read()
    except urllib.error.HTTPError as error:
        text = error.read()
    document = json.loads(text)
    return document["ready"], document["missing"]


def nodes(cluster: LocalCluster) -> Iterator[NodePlan]:
    return iter(cluster.plan.nodes)


def test_every_node_of_a_cluster_that_is_up_is_ready(cluster: LocalCluster) -> None:
    for node in nodes(cluster):
        assert (by_grpc(node), by_grpc(node, ""), by_http(node)) == (SERVING, SERVING, (True, [])), node.name


def test_nodes_without_a_controller_live_and_are_not_ready(cluster: LocalCluster) -> None:
    (controller,) = [node for node in nodes(cluster) if node.role == "controller"]
    broker = cluster.node(0)
    cluster.kill_node(controller.node_id)
    try:
        wait_until(lambda: by_grpc(broker) == NOT_SERVING, "the broker has noticed")
        assert by_grpc(broker, "") == SERVING
        is_ready, (missing, *_) = by_http(broker)
        assert (is_ready, "no leader of the quorum answers" in missing) == (False, True)
        assert by_grpc(controller, timeout_s=2) is None
    finally:
        cluster.start_node(controller.node_id)
    wait_until(lambda: all(by_grpc(node) == SERVING for node in nodes(cluster)), "all nodes are ready again")


def test_a_broker_that_stops_says_so_before_its_connections_end(cluster: LocalCluster) -> None:
    broker = cluster.node(1)
    with grpc.insecure_channel(str(broker.grpc)) as channel:
        watched = {name: HealthStub(channel).Watch(HealthCheckRequest(service=name), timeout=60) for name in ("", SERVICE)}
        assert {next(each).status for each in watched.values()} == {SERVING}
        stopping = threading.Thread(target=cluster.stop_node, args=(1,))
        stopping.start()
        for each in watched.values():
            assert [answer.status for answer in each] == [NOT_SERVING]
        stopping.join()
    cluster.start_node(1)
    wait_until(lambda: by_grpc(broker) == SERVING, "the broker is ready again")


def test_a_process_that_hangs_gives_no_answer(cluster: LocalCluster) -> None:
    controller = next(node for node in nodes(cluster) if node.role == "controller")
    cluster.pause_node(controller.node_id)
    try:
        assert by_grpc(controller, "", timeout_s=2) is None
    finally:
        cluster.resume_node(controller.node_id)
    wait_until(lambda: by_grpc(controller) == SERVING, "the controller is ready again")
