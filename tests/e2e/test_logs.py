"""Logs of real processes: JSON lines, a log file that is moved away, clusters whose nodes log as JSON."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kraftlab.lab import LocalCluster, layout
from kraftlab.lab.cluster_plan import ClusterError
from tests.helpers.waiting import wait_until


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_log_file_that_is_moved_away_is_written_anew(node_files: Any, tmp_path: Path) -> None:
    path, moved = tmp_path / "controller.log", tmp_path / "controller.log.1"
    node_files.change("controller", log_format="json", log_file=str(path))
    process = node_files.start("controller")
    wait_until(lambda: path.exists() and b" ready: " in path.read_bytes(), "the node is ready")
    path.rename(moved)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=15)
    assert lines_of(path)[0]["message"] == "stopping on SIGTERM"
    ready = next(line for line in lines_of(moved) if " ready: " in line["message"])
    assert (ready["level"], ready["logger"], ready["node"], ready["role"]) == ("INFO", "kraftlab.controller", 3000, "controller")
    assert said == "", "nothing else is written"


def test_a_log_file_that_cannot_be_opened_ends_the_start(node_files: Any, tmp_path: Path) -> None:
    node_files.change("broker", log_file=str(tmp_path / "absent" / "broker.log"))
    code, said = node_files.run("broker")
    assert code == 1
    assert f"log.file={tmp_path}/absent/broker.log: it cannot be opened: No such file or directory; check the path" in said


def test_the_error_that_ends_a_node_is_json_too(node_files: Any) -> None:
    node_files.change("broker", log_format="json")
    (node_files.home("broker") / "metadata" / "meta.properties").unlink()
    code, said = node_files.run("broker")
    assert code == 1
    assert "kraftlab storage format" in json.loads(said)["message"]


@pytest.mark.cluster
def test_a_cluster_with_logs_in_json_is_found_ready_and_its_errors_are_readable(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "lab", 1, 1, 1, overrides={"log.format": "json"}) as cluster:
        broker = cluster.broker_ids[0]
        lines = lines_of(cluster.log_path(broker))
        ready = next(line for line in lines if line["message"].startswith("broker 0 ready: "))
        assert ready["epoch"] >= 1 and ready["offset"] > 0
        cluster.log_path(broker).rename(tmp_path / "moved.log")
        assert cluster.serves(broker), "it was seen to serve before its log was moved"
        cluster.stop_node(broker)
        (cluster.metadata_dir(broker) / "meta.properties").unlink()
        cluster.start_node(broker)
        with pytest.raises(ClusterError, match=r"broker-0 ended with code 1: /"):
            cluster.wait_ready()
    config = layout.properties_path(cluster.directory, cluster.node(broker))
    config.write_text(f"{config.read_text()}log.file=/tmp/broker.log\n")
    with pytest.raises(ClusterError, match=r"log\.file=/tmp/broker\.log was edited by hand, and this .* needs no line log\.file"):
        LocalCluster(cluster.directory)
