"""Readiness of controllers and brokers, by the facts of their parts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlab.broker.control.lifecycle import BrokerState
from kraftlab.broker.metrics import BrokerMetrics, PartsWithNumbers
from kraftlab.controller.metrics import ControllerMetrics
from kraftlab.node.health import BEHIND_MAX, DISK_SILENT_S, NodeHealth
from kraftlab.rpc.health import Health

FAULTS = (
    ({"is_running": False}, "the metadata log is being opened"),
    ({"state": "candidate"}, "no leader of the quorum answers; this node is candidate"),
    ({"state": "resigned"}, "no leader of the quorum answers; this node is resigned"),
    ({"is_repairing": True}, "the metadata log is being repaired"),
    ({"high_watermark": -1}, "0 committed records are not applied yet"),
    ({"high_watermark": 100 + BEHIND_MAX + 1}, "1001 committed records are not applied yet"),
    ({"disk_busy_s": DISK_SILENT_S + 1}, "the disk of the metadata log has not answered for 6 s"),
)
"""Faults of a node that should take part in the quorum, with its own words. The node has applied 100 records."""


def driver(**changes: Any) -> Any:
    """A driver of a follower that has everything, but for the changes."""
    facts = {"state": "follower", "epoch": 3, "leader_id": 3001, "high_watermark": 100, "is_repairing": False} | changes
    statistics = SimpleNamespace(core=SimpleNamespace(**facts), disk_busy_s=changes.get("disk_busy_s", 0.0))
    return SimpleNamespace(is_running=changes.get("is_running", True), statistics=lambda: statistics)


def controller(of: Any, **changes: Any) -> NodeHealth:
    facts = {"applied_offset": 100, "failure": None, "is_loaded": True} | changes
    made: Any = SimpleNamespace(**facts)
    return ControllerMetrics(made, of).health


def broker(of: Any, state: BrokerState = BrokerState.RUNNING, *, brokers: Any = None) -> NodeHealth:
    registered = {1: SimpleNamespace(fenced=False)} if brokers is None else brokers
    image = SimpleNamespace(cluster=SimpleNamespace(brokers=registered))
    publisher: Any = SimpleNamespace(offset=100, image=image)
    metrics = BrokerMetrics(1, of, publisher, "off")
    others: Any = None
    lifecycle: Any = SimpleNamespace(state=state)
    replicas: Any = SimpleNamespace(min_insync_replicas=lambda topic: 1)
    metrics.built(PartsWithNumbers(lifecycle, replicas, others, others, others))
    return metrics.health


def missing(health: NodeHealth) -> object:
    """Return what is missing; gRPC's readiness says the same as /readyz."""
    is_ready, facts = health.readiness()
    assert is_ready is (facts["missing"] == [])
    assert health.present() == Health(is_serving=True, is_ready=is_ready)
    return facts["missing"]


@pytest.mark.parametrize("made", [controller, broker])
def test_a_node_that_has_everything_is_ready_and_says_where_it_stands(made: Callable[[Any], NodeHealth]) -> None:
    facts = {"offset": 100, "missing": [], "state": "follower", "epoch": 3, "leader": 3001, "high_watermark": 100}
    assert made(driver()).readiness() == (True, facts)
    assert missing(made(driver(state="leader", high_watermark=100 + BEHIND_MAX))) == []


@pytest.mark.parametrize("made", [controller, broker])
@pytest.mark.parametrize(("changes", "fault"), FAULTS)
def test_a_node_that_takes_no_part_in_the_quorum_is_not_ready(
    made: Callable[[Any], NodeHealth], changes: Any, fault: str
) -> None:
    assert missing(made(driver(**changes))) == [fault]


def test_a_controller_without_its_state_is_not_ready() -> None:
    assert missing(controller(driver(), is_loaded=False)) == ["the committed state is being loaded"]
    assert missing(controller(driver(), failure="disk")) == ["the controller is stopping: disk"]


def test_a_broker_that_is_fenced_or_not_registered_is_not_ready() -> None:
    assert missing(broker(driver(), brokers={1: SimpleNamespace(fenced=True)})) == ["the controller has fenced this broker"]
    assert missing(broker(driver(), brokers={2: SimpleNamespace(fenced=False)})) == ["the broker is not registered"]


@pytest.mark.parametrize("state", [each for each in BrokerState if each is not BrokerState.RUNNING])
def test_a_broker_is_ready_only_while_it_runs(state: BrokerState) -> None:
    (fault,) = missing(broker(driver(), state))  # type: ignore[misc]
    assert state.value in fault


def test_a_broker_without_its_parts_is_starting() -> None:
    publisher: Any = SimpleNamespace(offset=100, image=SimpleNamespace(cluster=SimpleNamespace(brokers={})))
    assert missing(BrokerMetrics(1, driver(), publisher, "off").health) == [
        *("the broker is starting: not running", "the broker is not registered")
    ]


@pytest.mark.parametrize("made", [controller, broker])
def test_a_node_that_stops_is_neither_ready_nor_serving(made: Callable[[Any], NodeHealth]) -> None:
    health = made(driver())
    health.stop()
    is_ready, facts = health.readiness()
    assert (is_ready, facts["missing"]) == (False, ["the node is stopping"])
    assert health.present() == Health(is_serving=False, is_ready=False)
