"""examples/deploy/compose.yaml, its Prometheus, and the probes in docs/deploy.md fit the nodes that they describe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraftlab.config import environment
from kraftlab.config.models import NodeConfig

ROOT = Path(__file__).parents[2]
HOME = ROOT / "examples" / "deploy"
COMPOSE = yaml.safe_load((HOME / "compose.yaml").read_text())
NODES: dict[str, Any] = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "kraftlab"}
IMAGE = dict(re.findall(r"(KAFKA_\w+)=(\S+)", (HOME / "Containerfile").read_text()))
"""Variables that the image sets."""


def config(name: str) -> NodeConfig:
    variables = {key: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value) for key, value in (IMAGE | NODES[name]["environment"]).items()}
    read = environment.read(variables, None)
    assert read.warnings == []
    return environment.load(variables, None)


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_valid_variables_and_listens_at_its_own_name(name: str) -> None:
    service, found = NODES[name], config(name)
    role, _, number = name.partition("-")
    assert (found.process_roles, found.node_id % 3000) == ((role,), int(number))
    assert service["hostname"] == name
    assert {found.advertised_listeners[listener].host for listener in found.advertised_listeners if listener != "KAFKA"} == {name}
    assert {voter.key.node_id for voter in found.voters.voters} == {3001, 3002, 3003}
    assert all(str(path).startswith("/var/lib/kraftlab/") for path in found.all_directories())
    assert service["volumes"] == [f"{name}:/var/lib/kraftlab"] and name in COMPOSE["volumes"]
    assert service["stop_grace_period"] == "330s"


def test_brokers_wait_for_controllers_and_clients_of_the_host_reach_each() -> None:
    ports = set()
    for name in ("broker-1", "broker-2", "broker-3"):
        assert set(NODES[name]["depends_on"]) == {"controller-1", "controller-2", "controller-3"}
        kafka = config(name).advertised_listeners["KAFKA"]
        assert NODES[name]["ports"] == [f"{kafka.port}:{kafka.port}"] and kafka.host == "localhost"
        ports.add(kafka.port)
    assert len(ports) == 3


def test_health_checks_and_prometheus_ask_where_nodes_listen() -> None:
    (probe,) = re.findall(r"http://127\.0\.0\.1:(\d+)/readyz", (HOME / "Containerfile").read_text())
    assert {str(config(name).metrics) for name in NODES} == {f"0.0.0.0:{probe}"}
    (job,) = yaml.safe_load((HOME / "prometheus.yml").read_text())["scrape_configs"]
    assert set(job["static_configs"][0]["targets"]) == {f"{name}:{probe}" for name in NODES}
    labels = yaml.safe_load(
        re.findall(r"```yaml\n(scrape_configs.*?)```", (ROOT / "docs/monitoring.md").read_text(), re.DOTALL)[0]
    )
    of_page = labels["scrape_configs"][0]["static_configs"][0]["labels"]
    assert job["static_configs"][0]["labels"] == {name: of_page[name] for name in of_page if name != "kubernetes_pod_name"}
    (rule,) = job["relabel_configs"]
    named = re.sub(rule["regex"], rule["replacement"].replace("$1", r"\1"), f"controller-1:{probe}")
    assert (rule["target_label"], named) == ("kubernetes_pod_name", "kafka-controller-1")


def test_probes_of_kubernetes_ask_pages_of_the_node() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    asked = {probe: found["httpGet"]["path"] for probe, found in yaml.safe_load(block).items()}
    assert asked == {"startupProbe": "/readyz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
