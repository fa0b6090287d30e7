"""A real Prometheus scrapes a cluster under load: it reads every line, and rules and dashboards find their data.

Debian's package is unpacked, not installed. Strimzi's dashboards and alerts select by the labels of `targets.json`; the names in
`strimzi-names.txt` are those that they use.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer

from kraftlab.client import MoveOptions
from kraftlab.lab import LocalCluster
from kraftlab.lab.cluster_plan import free_ports

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
NAMES = Path(__file__).with_name("strimzi-names.txt").read_text().split()
TOPIC = "orders"
DEADLINE_S = 90.0
WITHOUT_DATA = {
    "kafka_server_brokertopicmetrics_failedproducerequests_total": "no request of a topic has failed",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": "no request of a topic has failed",
}
"""Names with series by topic that a sound cluster does not have."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of prometheus and promtool."""
    found = shutil.which("promtool")
    if found is not None:
        return Path(found).parent
    home = tmp_path_factory.mktemp("debian")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["apt-get", "download", "prometheus"], cwd=home, check=True, capture_output=True, timeout=120)
        [package] = home.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, home], check=True, capture_output=True, timeout=60)
    if not (home / "usr" / "bin" / "promtool").exists():
        pytest.skip("there is no Prometheus here, and Debian's package cannot be had")
    return home / "usr" / "bin"


class Prometheus:
    """A Prometheus that scrapes what `configuration` says."""

    def __init__(self, tools: Path, configuration: Path, data: Path) -> None:
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        arguments = [f"--config.file={configuration}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}"]
        self._process = subprocess.Popen([tools / "prometheus", *arguments], stderr=subprocess.DEVNULL)

    def get(self, path: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def load(servers: str) -> Iterator[None]:
    """Let a producer and a consumer group work all the time."""
    ends = threading.Event()

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=servers)
        while not ends.wait(0.05):
            producer.send(TOPIC, b"x" * 1000).get(30)
        producer.close()

    def consume() -> None:
        consumer = KafkaConsumer(TOPIC, bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest")
        while not ends.is_set():
            consumer.poll(200)
        consumer.close()

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


@pytest.fixture(scope="module")
def scraped(tools: Path, starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped a cluster under load for three rounds; two replicas move slowly."""
    home = tmp_path_factory.mktemp("cluster")
    with LocalCluster(home, 3, 3, 2) as cluster:
        with cluster.admin() as admin:
            admin.create_topic(TOPIC, partitions=6, replication_factor=2)
        configuration = home / "prometheus" / "prometheus.yml"
        with load(cluster.kafka_bootstrap_servers):
            prometheus = Prometheus(tools, configuration, tmp_path_factory.mktemp("tsdb"))
            try:
                eventually(lambda: _rounds(prometheus) >= 3, "every node is scraped three times")
                with cluster.admin() as admin:
                    [topic] = admin.describe_topics([TOPIC]).values()
                    everywhere = {(TOPIC, partition.partition_index): [0, 1, 2] for partition in topic.partitions}
                    admin.alter_partition_reassignments(everywhere, options=MoveOptions(throttle=1))
                    eventually(lambda: prometheus.query("max(kraftlab_reassignments) > 0"), "the reassignment is seen")
                    yield prometheus
            finally:
                prometheus.close()


def _rounds(prometheus: Prometheus) -> int:
    with contextlib.suppress(OSError):
        counts = [int(sample["value"][1]) for sample in prometheus.query('sum_over_time(up{container="kafka"}[5m])')]
        return min(counts) if len(counts) == 6 else 0
    return 0


def test_every_node_is_scraped_without_an_error(scraped: Prometheus) -> None:
    targets = scraped.get("targets")["activeTargets"]
    assert {target["labels"]["kubernetes_pod_name"] for target in targets} == {
        *(f"kraftlab-controller-{node}" for node in (3000, 3001, 3002)),
        *(f"kraftlab-broker-{node}" for node in (0, 1, 2)),
    }
    assert {(target["health"], target["lastError"]) for target in targets} == {("up", "")}


@pytest.mark.parametrize("name", NAMES)
def test_what_strimzis_dashboards_draw_has_data(scraped: Prometheus, name: str) -> None:
    labels = 'namespace="kraftlab",strimzi_io_cluster="kraftlab",strimzi_io_name="kraftlab-kafka",container="kafka"'
    by_topic = ',topic!=""' if "brokertopicmetrics" in name and name not in WITHOUT_DATA else ""
    series = f'{name}{{{labels}{by_topic},kubernetes_pod_name=~"kraftlab-.*"}}'
    eventually(lambda: scraped.query(f"sum(rate({series}[5m]))" if name.endswith("_total") else f"sum({series})"), series)


def test_the_alert_rules_are_sound_and_silent_on_a_sound_cluster(scraped: Prometheus, tools: Path) -> None:
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [tools / "promtool", *arguments], cwd=EXAMPLES, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    [group] = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    expressions = [rule["expr"] for rule in group["rules"]]
    assert len(expressions) >= 10
    for name in {name for expression in expressions for name in re.findall(r"\b(?:kafka|kraftlab)_\w+", expression)}:
        if "certificate" not in name:
            eventually(lambda wanted=name: scraped.query(wanted), f"{name} has data")
    firing = [expression for expression in expressions if "move_blocked" not in expression and scraped.query(expression)]
    assert firing == []


def test_every_panel_of_our_dashboard_draws(scraped: Prometheus) -> None:
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) > 25
    for expression in expressions:
        filled = expression.replace("$cluster", "kraftlab")
        eventually(lambda wanted=filled: scraped.query(wanted), f"{filled} has data")


def test_promtool_finds_nothing_wrong_with_our_own_names(scraped: Prometheus, tools: Path) -> None:
    for target in scraped.get("targets")["activeTargets"]:
        with urllib.request.urlopen(target["scrapeUrl"], timeout=30) as response:
            page = response.read()
        done = subprocess.run([tools / "promtool", "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
        assert [line for line in done.stderr.decode().splitlines() if line.startswith("kraftlab_")] == []
