"""Files for a Prometheus that scrapes a local cluster, and the metric of the faults in force."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from kraftlab.lab import LocalCluster, layout, prometheus
from kraftlab.lab.faults.breaker import Breaker
from kraftlab.lab.faults.metrics import serve_faults
from kraftlab.lab.faults.orders import Order

pytestmark = pytest.mark.cluster


def test_every_node_is_a_target_with_the_labels_of_strimzis_dashboards(tmp_path: Path) -> None:
    plan = layout.write(tmp_path, layout.plan(tmp_path, 1, 2, 1), {})
    found = json.loads((tmp_path / "prometheus" / "targets.json").read_text())
    assert {each["targets"][0]: each["labels"]["kubernetes_pod_name"] for each in found} == {
        str(node.metrics): f"kraftlab-{node.name}" for node in plan.nodes
    }
    assert {"namespace", "strimzi_io_cluster", "strimzi_io_name", "kubernetes_pod_name", "container"} == {*found[0]["labels"]}
    text = (tmp_path / "prometheus" / "prometheus.yml").read_text()
    assert "https" not in text
    assert json.loads((tmp_path / "prometheus" / "faults.json").read_text()) == []


def test_a_secure_clusters_configuration_has_the_login_and_no_password(tmp_path: Path) -> None:
    layout.write(tmp_path, layout.plan(tmp_path, 1, 1, 1, secure=True), {})
    text = (tmp_path / "prometheus" / "prometheus.yml").read_text()
    password = (tmp_path / "secrets" / "admin.password").read_text()
    assert "scheme: https" in text and str(tmp_path / "secrets" / "admin.password") in text
    assert password not in text


def test_a_path_with_odd_characters_stays_one_string(tmp_path: Path) -> None:
    directory = tmp_path / 'a "quoted": #path\\'
    plan = layout.write(directory, layout.plan(directory, 1, 0, 1), {})
    [line] = [each for each in prometheus.configuration(directory, plan).splitlines() if "targets.json" in each]
    assert json.loads(line.partition("files: [")[2].partition("]}]")[0]) == str(directory / "prometheus" / "targets.json")


def test_faults_in_force_are_counted_by_kind(starts_clusters: None, tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, 2, 1, allow_chaos=True) as cluster:
        breaker = Breaker(cluster, lambda line: None)
        at, server = serve_faults(breaker)

        def counts() -> dict[str, float]:
            with urllib.request.urlopen(f"http://{at}/metrics", timeout=20) as response:
                [family] = read(response.read().decode())
            return {sample.labels["kind"]: sample.value for sample in family.samples if sample.value}

        try:
            assert counts() == {}
            breaker.carry_out(Order("cut", names=(("broker-0",), ("all",))))
            assert counts() == {"cut": 4}
            breaker.carry_out(Order("kill", names=(("broker-1",),), for_ms=200))
            assert counts() == {"cut": 4, "down": 1}
            deadline = time.monotonic() + 30
            while "down" in counts():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            breaker.carry_out(Order("heal", names=()))
            assert counts() == {}
        finally:
            breaker.close()
            server.stop()
