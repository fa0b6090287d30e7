"""The start of the image by testcontainers for Java and for Python, without a container: its files, and variables as theirs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.cluster
FILES = Path(__file__).resolve().parents[2] / "examples" / "deploy" / "docker"
PLACES = {"kafka/docker/run": "run", "confluent/docker/launch": "run", "confluent/docker/configure": "configure"}
"""File below /etc → the file that the image has there."""
JAVA = """#!/bin/bash
export KAFKA_ADVERTISED_LISTENERS={advertised}
{root}/etc/kafka/docker/run
"""
PYTHON = """#!/bin/bash
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' {root}/etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t X -c /etc/kafka/kafka.properties' >> {root}/etc/confluent/docker/configure
export KAFKA_ADVERTISED_LISTENERS={advertised}
. {root}/etc/confluent/docker/bash-config
{root}/etc/confluent/docker/configure
{root}/etc/confluent/docker/launch
"""
"""Their scripts, with a directory in the place of the container's root."""
LINES = {JAVA: "Transitioning from RECOVERY to RUNNING", PYTHON: "Kafka Server started"}
"""The line of the log that each waits for."""


class Container:
    """The processes of a container, its directory, and the ports that it publishes."""

    def __init__(self, root: Path, new_port: Callable[[], int]) -> None:
        self.root, self.log = root, root / "log"
        self.controller = row_of_ports(new_port)
        self.kafka, self.between, self.metrics = new_port(), new_port(), new_port()
        self.shell: subprocess.Popen[bytes] | None = None
        for place, source in PLACES.items():
            path = root / "etc" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(FILES / source, path)
        (root / "etc/confluent/docker/bash-config").touch()
        program = root / "bin" / "kraftlab"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kraftlab.cli.main "$@"\n')
        program.chmod(0o755)

    @property
    def server(self) -> str:
        return f"localhost:{self.kafka}"

    @contextmanager
    def running(self, script: str) -> Iterator[None]:
        """Start it with the script, wait for the line that testcontainers waits for, and stop it gracefully."""
        advertised = f"PLAINTEXT://{self.server},BROKER://0f3c2a:{self.between}"
        start = self.root / "testcontainers_start.sh"
        start.write_text(script.format(root=self.root, advertised=advertised))
        with self.log.open("wb") as output:
            shell = self.shell = subprocess.Popen(
                ["bash", start], stdout=output, stderr=output, env=os.environ | self._variables()
            )
        try:
            wait_until(lambda: LINES[script] in self.log.read_text() or shell.poll() is not None, LINES[script], 60)
            assert shell.poll() is None, self.log.read_text()
            yield
        finally:
            for pid in children(shell.pid):
                os.kill(pid, signal.SIGTERM)
            shell.wait(60)

    def _variables(self) -> dict[str, str]:
        listeners = {
            "PLAINTEXT": f"0.0.0.0:{self.kafka}",
            "BROKER": f"0.0.0.0:{self.between}",
            "CONTROLLER": f"0.0.0.0:{self.controller}",
            "METRICS": f"127.0.0.1:{self.metrics}",
        }
        return {
            "CLUSTER_ID": "3vvyhAc1Q0m+hpVQ/Yk1lw==",
            "KAFKA_LISTENERS": ",".join(f"{name}://{at}" for name, at in listeners.items()),
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@localhost:{self.controller}",
            "KAFKA_NODE_ID": "1",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": str(2**63 - 1),
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_METADATA_LOG_DIR": str(self.root / "data" / "metadata"),
            "KAFKA_LOG_DIRS": str(self.root / "data" / "d0"),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
        }


def row_of_ports(new_port: Callable[[], int]) -> int:
    """Return the first of four free ports in a row."""
    row = [new_port()]
    while len(row) < 4:
        port = new_port()
        row = [*row, port] if port == row[-1] + 1 else [port]
    return row[0]


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


@pytest.fixture
def container(tmp_path: Path, new_port: Callable[[], int]) -> Container:
    return Container(tmp_path, new_port)


@pytest.mark.parametrize("script", [pytest.param(JAVA, marks=pytest.mark.nightly), PYTHON], ids=["java", "python"])
def test_testcontainers_starts_it_and_clients_write_and_read(container: Container, script: str) -> None:
    with container.running(script):
        with KafkaProducer(bootstrap_servers=container.server) as producer:
            producer.send("t", b"one").get(20)
        with KafkaConsumer("t", bootstrap_servers=container.server, group_id="g", auto_offset_reset="earliest") as consumer:
            assert next(consumer).value == b"one"
        with urllib.request.urlopen(f"http://127.0.0.1:{container.metrics}/readyz", timeout=10) as answer:
            assert answer.status == 200
    assert container.shell is not None and container.shell.returncode == 0, container.log.read_text()


@pytest.mark.nightly
def test_a_node_that_ends_ends_the_container_and_the_next_start_finds_the_data(container: Container) -> None:
    with container.running(JAVA):
        with KafkaProducer(bootstrap_servers=container.server) as producer:
            producer.send("t", b"one").get(20)
        assert container.shell is not None
        (parent,) = children(container.shell.pid)
        os.kill(children(parent)[0], signal.SIGKILL)
        assert container.shell.wait(60) == 1
    with (
        container.running(JAVA),
        KafkaConsumer("t", bootstrap_servers=container.server, group_id=None, auto_offset_reset="earliest") as consumer,
    ):
        assert next(consumer).value == b"one"
