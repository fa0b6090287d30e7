"""An Apache Kafka cluster on loopback, as the counterpart of measurements. Its jars lie where `make interop` keeps them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftlab.config import properties
from kraftlab.lab.cluster_plan import free_ports

from .measure import NoResult

JARS = Path.home() / ".cache" / "kraftlab" / "kafka-4.3.0"
MISSING = "Apache Kafka is left out: it needs a Java, and the jars that `make interop` downloads"
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
_FIRST_CONTROLLER = 3000
_CLUSTER_ID = "kraftlab-bench-0000001"


def is_available() -> bool:
    return shutil.which("java") is not None and JARS.exists()


@contextmanager
def running(controllers: int, brokers: int) -> Iterator[str]:
    """Start a cluster; yield the bootstrap servers of its brokers. NoResult if it does not come up."""
    ports = list(free_ports(controllers + brokers))
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-kafka-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        files = [_write(directory, ports, controllers, index) for index in range(controllers + brokers)]
        try:
            for index, file in enumerate(files):
                _format(file, ports, controllers, is_controller=index < controllers)
                processes.append(_java("kafka.Kafka", str(file), heap="512m", log=file.with_suffix(".log")))
            bootstrap = [f"127.0.0.1:{port}" for port in ports[controllers:]]
            _wait_for(ports[controllers:])
            yield ",".join(bootstrap)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _write(directory: Path, ports: list[int], controllers: int, index: int) -> Path:
    """Write the server.properties of a node; return its path."""
    is_controller = index < controllers
    node_id = _FIRST_CONTROLLER + index if is_controller else index - controllers
    listener = "CONTROLLER" if is_controller else "PLAINTEXT"
    home = directory / f"node-{node_id}"
    home.mkdir()
    values = {
        "node.id": str(node_id),
        "process.roles": "controller" if is_controller else "broker",
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports[:controllers]),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"{listener}://127.0.0.1:{ports[index]}",
        "log.dirs": str(home / "d0"),
        "offsets.topic.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
    }
    path = home / "server.properties"
    path.write_text(properties.dumps(values), encoding="utf-8")
    return path


def _format(file: Path, ports: list[int], controllers: int, *, is_controller: bool) -> None:
    voters = ",".join(
        f"{_FIRST_CONTROLLER + index}@127.0.0.1:{ports[index]}:{chr(ord('A') + index + 1) * 21}Q" for index in range(controllers)
    )
    role = ("--initial-controllers", voters) if is_controller else ("--no-initial-controllers",)
    arguments = ("format", "-t", _CLUSTER_ID, "-c", str(file), *role)
    process = _java("kafka.tools.StorageTool", *arguments, heap="128m", log=file.with_suffix(".format"))
    if process.wait() != 0:
        raise NoResult(f"Kafka's storage tool ended with {process.returncode}; see {file.with_suffix('.format')}")


def _java(main: str, *arguments: str, heap: str, log: Path) -> subprocess.Popen[bytes]:
    options = (f"-Xmx{heap}", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    with open(log, "wb") as output:
        return subprocess.Popen(["java", *options, "-cp", f"{JARS}/*", main, *arguments], stdout=output, stderr=output)


def _wait_for(ports: list[int]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise NoResult(f"Kafka's broker at port {port} does not listen: {error}") from error
                time.sleep(0.1)
