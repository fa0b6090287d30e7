"""A broker whose process died is fenced long before its session ends; one that is stopped or restarted is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlab.demo.lab import wait_until
from kraftlab.records.record_batch import Record, build_batch

SESSION_S = 60
FAST_S = 10.0
"""Bound for a busy machine, far below the session. It takes 0.2 s on a quiet one."""
FENCED = "fenced broker {}: "
RESTARTS = 3


@pytest.fixture(scope="module")
def calm(quorum_clusters: Callable[..., Any]) -> Iterator[Any]:
    """Three controllers and three brokers with long sessions, and a partition on all brokers."""
    with quorum_clusters(3, 3, broker_session_timeout_ms=str(SESSION_S * 1000), broker_heartbeat_interval_ms="500") as lab:
        lab.create_topic("held", [0, 1, 2], configs={"min.insync.replicas": "2"})
        yield lab


def write(lab: Any) -> None:
    lab.data.produce("held", 0, build_batch([Record(None, b"value", 1)]))


def restore(lab: Any) -> None:
    lab.heal()
    wait_until("all replicas are in sync", lambda: len(lab.partitions()["held", 0].isr_nodes) == 3)


def log_of(lab: Any, node_id: int) -> str:
    path = lab.cluster.directory / "logs" / f"{lab.cluster.node(node_id).name}.log"
    return str(path.read_text())


@pytest.mark.parametrize("with_the_active_controller", [False, True])
def test_a_write_succeeds_soon_after_the_leading_broker_was_killed(calm: Any, with_the_active_controller: bool) -> None:
    write(calm)
    leader, active = calm.partitions()["held", 0].leader_id, calm.active
    begun = time.monotonic()
    if with_the_active_controller:
        calm.cluster.kill_node(active)
    calm.cluster.kill_node(leader)
    write(calm)
    assert time.monotonic() - begun < FAST_S
    assert leader not in calm.partitions()["held", 0].isr_nodes
    restore(calm)


def test_a_stopped_broker_keeps_its_session_since_its_kernel_accepts_connections(calm: Any) -> None:
    stopped, active = calm.partitions()["held", 0].leader_id, calm.active
    calm.cluster.pause_node(stopped)
    calm.cluster.kill_node(active)
    wait_until(
        "another controller has tried its port",
        lambda: any(
            f"broker {stopped} has no connection here, but its port does not refuse" in log_of(calm, node)
            for node in calm.cluster.controller_ids
        ),
    )
    assert stopped in calm.brokers()
    calm.cluster.resume_node(stopped)
    restore(calm)


def test_a_restarted_broker_is_not_fenced_for_its_earlier_process(calm: Any) -> None:
    restarted = calm.partitions()["held", 0].leader_id
    for _ in range(RESTARTS):
        calm.cluster.kill_node(restarted)
        calm.cluster.start_node(restarted)
        restore(calm)
    since_its_return = log_of(calm, calm.active).rpartition(f"broker {restarted} registered with epoch")[2]
    assert FENCED.format(restarted) not in since_its_return
