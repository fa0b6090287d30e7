"""Text of `kraftlab cluster status`, and arguments of faults."""

from __future__ import annotations

import pytest

from kraftlab.cli import main
from kraftlab.cli.lab.break_text import status_lines
from kraftlab.lab.faults.orders import LinkState, NodeState, OrderState, Status

NODES = (NodeState("controller-3000", 4711, "running", True), NodeState("broker-1", None, "down", False))


@pytest.mark.parametrize("rate", ["nan", "inf", "fast"])
def test_a_clock_has_a_rate_that_is_a_number(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["cluster", "clock", "leader", "--rate", rate, "--data", "nowhere"]) == 64
    assert f"invalid rate '{rate}': expected e.g. 3 or 0.5" in capsys.readouterr().err


def test_an_overlong_duration_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["cluster", "kill", "leader", "--for", f"{'9' * 400}h", "--data", "nowhere"]) == 64
    assert "expected e.g. 500ms, 5s, 2m or 1h" in capsys.readouterr().err


def test_status_of_a_cluster_without_faults_lists_its_nodes() -> None:
    assert status_lines(Status(NODES, (), ())) == [
        "controller-3000  running     4711  leader",
        "broker-1         down           -",
        "",
        "No faults injected.",
        "",
        "Healthy.",
    ]


def test_a_node_that_was_killed_from_outside_is_broken() -> None:
    killed = NodeState("broker-1", None, "down", False, "was killed by SIGKILL")
    assert status_lines(Status((NODES[0], killed), (), (), health=None))[3:] == [
        "Faults:",
        "  broker-1 was killed by SIGKILL, not by an order; start it again: kraftlab cluster restart broker-1",
        "",
        "The cluster does not answer.",
    ]


def test_status_names_partitions_in_doubt() -> None:
    assert status_lines(Status(NODES, (), (), ("t-0 has no leader",)))[-4:-2] == ["", "t-0 has no leader"]


def test_status_lists_faults_their_remaining_time_and_waiting_messages() -> None:
    orders = (OrderState(3, "broker-1: killed (kill -9)", None), OrderState(4, "cut a ↔ b: messages wait", 1250))
    links = (
        LinkState("broker-1", "controller-3000", "hold", 0, 0, 0, 0, 0, 512),
        LinkState("controller-3000", "broker-1", "hold", 0, 0, 0, 0, 0, 0),
    )
    assert status_lines(Status(NODES, orders, links))[3:] == [
        "Faults:",
        "  #3 broker-1: killed (kill -9); until it is healed",
        "  #4 cut a ↔ b: messages wait; for another 1.2 s",
        "",
        "Healthy.",
        "",
        "Waiting messages:",
        "  broker-1 → controller-3000: 512 B",
    ]
