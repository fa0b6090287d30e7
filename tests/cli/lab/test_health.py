"""`kraftlab cluster health` on a cluster that loses a broker and gets it back."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kraftlab.cli import main
from kraftlab.cli.lab import cluster_command
from kraftlab.client import ClusterUnreachable, health
from kraftlab.lab import LocalCluster

pytestmark = pytest.mark.cluster

QUICK = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}


def test_a_dead_broker_is_named_until_it_is_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster(tmp_path, 1, 3, 1, overrides=QUICK) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("orders", partitions=2, replication_factor=3, configs={"min.insync.replicas": "3"})

        def ask(*arguments: str) -> tuple[int, str]:
            code = main.run(["cluster", "health", *arguments, "--bootstrap-server", cluster.bootstrap_servers])
            return code, capsys.readouterr().out

        assert ask("--wait", "20") == (0, "Healthy.\n")
        assert json.loads(ask("--json")[1]) == {"healthy": True, "findings": []}
        cluster.kill_node(2)
        found: set[str] = set()
        while found != {"fenced-broker", "below-min-isr", "under-replicated"}:
            code, text = ask("--json", "--wait", "0.1")
            found = {finding["kind"] for finding in json.loads(text)["findings"]}
        assert code == 1
        code, text = ask()
        assert code == 1
        assert "broker 2 is fenced\n  → start it, or remove it: kraftlab cluster unregister --id 2\n" in text
        assert "orders: partitions 0, 1 have fewer in-sync replicas than min.insync.replicas=3" in text
        starting = threading.Timer(0.5, cluster.start_node, (2,))
        starting.start()
        assert ask("--wait") == (0, "Healthy.\n")
        starting.join()


@pytest.mark.parametrize("wait", ["soon", "nan", "inf", "1e300"])
def test_a_time_that_is_none_is_refused(wait: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["cluster", "health", f"--wait={wait}", "--bootstrap-server", "127.0.0.1:1"]) == 64
    assert "--wait" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["cluster", "health", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_wait_for_a_cluster_that_does_not_answer_ends_on_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look gets the time that is left, and a little more."""
    limits: list[int] = []

    def look(client: object, timeout_ms: int) -> None:
        limits.append(timeout_ms)
        raise ClusterUnreachable("nobody is there")

    monkeypatch.setattr(health, "look", look)
    code = main.run(["cluster", "health", "--wait", "0.3", "--json", "--bootstrap-server", "127.0.0.1:1"])
    assert (code, json.loads(capsys.readouterr().out)) == (1, {"error": {"message": "nobody is there"}})
    assert {*limits} == {cluster_command.LAST_LOOK_MS}
