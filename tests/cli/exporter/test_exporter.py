"""Looks of the exporter: how often, by how many scrapers, and what is said when a cluster cannot be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.cli.exporter import exporter
from kraftlab.cli.exporter.exporter import Exporter
from kraftlab.client import ClusterUnreachable
from kraftlab.client.cluster_offsets import ClusterOffsets
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metrics.answers import Caller

BROKERS = {1: Endpoint("a", 1), 2: Endpoint("b", 2)}
SEEN = ClusterOffsets(BROKERS, {}, {}, {})


class Cluster:
    """A cluster that answers each look with the same offsets, or with an error. `looks` and `clients` count."""

    def __init__(self) -> None:
        self.says: ClusterOffsets | Exception = SEEN
        self.looks = self.clients = self.open = 0
        self.before: Callable[[], None] = lambda: None

    def connect(self) -> Any:
        self.clients += 1
        self.open += 1
        return self

    def group_calls(self, timeout_ms: int) -> None:
        return None

    def close(self) -> None:
        self.open -= 1

    def look(self, calls: object, is_topic: object, is_group: object) -> ClusterOffsets:
        self.looks += 1
        self.before()
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(exporter, "look", made.look)
    return made


def exporting(cluster: Cluster, interval_s: float, lines: list[str]) -> Exporter:
    return Exporter(cluster.connect, lambda name: True, lambda name: True, interval_s, lines.append)


def test_many_scrapers_share_one_look_an_interval(cluster: Cluster) -> None:
    """Scrapes that come during a look wait for it."""
    made = exporting(cluster, 3600, [])
    pages: list[str] = []
    goes_on = threading.Event()
    cluster.before = lambda: goes_on.wait() and None
    threads = [threading.Thread(target=lambda: pages.append(made.text())) for _ in range(8)]
    for thread in threads:
        thread.start()
    goes_on.set()
    for thread in threads:
        thread.join()
    assert (cluster.looks, len(pages), len({*pages})) == (1, 8, 1)
    assert "\nkafka_brokers 2\n" in pages[0]


def test_an_interval_later_there_is_a_new_look_by_the_same_client(cluster: Cluster) -> None:
    made = exporting(cluster, 0, [])
    made.text()
    made.text()
    assert (cluster.looks, cluster.clients) == (2, 1)
    made.close()
    assert cluster.open == 0


@pytest.mark.parametrize(
    "error", [ClusterUnreachable("check that the brokers run"), ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "log in")]
)
def test_a_cluster_that_cannot_be_read_is_down_and_said_once(cluster: Cluster, error: Exception) -> None:
    """Metrics of the cluster are missing then, not old; the next client may find it at another place."""
    lines: list[str] = []
    made = exporting(cluster, 0, lines)
    assert "kraftlab_exporter_up 1\n" in made.text()
    cluster.says = error
    for _ in range(3):
        answer = made.pages()["/metrics"](Caller("h"))
        assert (answer.status, "kraftlab_exporter_up 0\n" in answer.body) == (200, True)
        assert "kafka_" not in answer.body and "kraftlab_build_info" in answer.body
    assert lines == [f"the cluster cannot be read, and metrics lack it until it can: {error}"]
    assert (cluster.clients, cluster.open) == (3, 0)
    cluster.says = SEEN
    assert "kraftlab_exporter_up 1\n" in made.text()
    assert lines[1:] == ["the cluster can be read again"]


def test_a_broker_without_an_answer_is_named_once_and_counted(cluster: Cluster) -> None:
    lines: list[str] = []
    made = exporting(cluster, 0, lines)
    cluster.says = SEEN._replace(silent={2: "timed out"})
    assert ["kraftlab_exporter_silent_brokers 1\n" in made.text() for _ in range(2)] == [True] * 2
    assert lines == ["metrics lack groups and partitions of broker 2 at b:2: timed out"]
    cluster.says = SEEN
    assert "kraftlab_exporter_silent_brokers 0\n" in made.text()


def test_an_exporter_is_alive_whatever_the_cluster_does(cluster: Cluster) -> None:
    cluster.says = ClusterUnreachable("down")
    begun_s = time.monotonic()
    assert exporting(cluster, 0, []).pages()["/livez"](Caller("h")).status == 200
    assert (cluster.looks, time.monotonic() - begun_s < 5) == (0, True)
