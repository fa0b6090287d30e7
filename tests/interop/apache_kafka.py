"""A cluster of Apache Kafka in KRaft mode on loopback: one controller and brokers, with small heaps.

Brokers have a listener without security, and one with TLS and SASL, whose certificate they share.
"""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from kraftlab.lab.cluster_plan import free_ports

from .conftest import JARS, JAVA_OPTIONS

CONTROLLER_ID = 3000
CLUSTER_ID = "kraftlab-interop-00001"
PASSWORD = "alice-secret"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
_STORE_PASSWORD = "of-the-store"
_HEAP = ("-Xmx200m", "-Xms64m", "-Xss512k")


class ApacheKafka:
    """The processes of one cluster. Use as a context manager."""

    def __init__(self, root: Path, brokers: int, log_dirs: int) -> None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(1 + 2 * brokers)]
        self.controller, self.servers, self.secure_servers = addresses[0], addresses[1 : 1 + brokers], addresses[1 + brokers :]
        self.certificate = root / "certificate.pem"
        self._root = root
        self._log_dirs = log_dirs
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.servers)

    def log_dir(self, broker_id: int, number: int) -> str:
        return str(self._root / str(broker_id) / f"d{number}")

    def __enter__(self) -> Self:
        ids = [CONTROLLER_ID, *range(len(self.servers))]
        self._make_certificate()
        for node_id in ids:
            self._configure(node_id)
        with ThreadPoolExecutor() as threads:
            list(threads.map(self._format, ids))
        try:
            for node_id in ids:
                self._start(node_id)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _make_certificate(self) -> None:
        store = ["-alias", "broker", "-keystore", str(self._root / "broker.p12"), "-storepass", _STORE_PASSWORD]
        names = ["-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1"]
        for arguments in (["-genkeypair", "-keyalg", "RSA", *names], ["-exportcert", "-rfc", "-file", str(self.certificate)]):
            subprocess.run(["keytool", *arguments, *store], capture_output=True, timeout=60, check=True)

    def _secure_listener(self, node_id: int) -> dict[str, object]:
        logins = {
            "plain": f'plain.PlainLoginModule required user_alice="{PASSWORD}"',
            "scram-sha-512": "scram.ScramLoginModule required",
        }
        return {
            "listeners": f"PLAINTEXT://{self.servers[node_id]},SASL_SSL://{self.secure_servers[node_id]}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": self._root / "broker.p12",
            "ssl.keystore.password": _STORE_PASSWORD,
        } | {
            f"listener.name.sasl_ssl.{mechanism}.sasl.jaas.config": f"org.apache.kafka.common.security.{login};"
            for mechanism, login in logins.items()
        }

    def _configure(self, node_id: int) -> None:
        home = self._root / str(node_id)
        home.mkdir(parents=True)
        values: dict[str, object] = {
            "node.id": node_id,
            "controller.quorum.bootstrap.servers": self.controller,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            "log.cleaner.dedupe.buffer.size": 2 << 20,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
        }
        if node_id == CONTROLLER_ID:
            values |= {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{self.controller}",
                "log.dirs": home / "metadata",
            }
        else:
            values |= {
                "process.roles": "broker",
                **self._secure_listener(node_id),
                "log.dirs": ",".join(self.log_dir(node_id, number) for number in range(self._log_dirs)),
            }
        lines = [f"{key}={value}\n" for key, value in values.items()]
        (home / "server.properties").write_text("".join(lines))

    def _format(self, node_id: int) -> None:
        role = "--standalone" if node_id == CONTROLLER_ID else "--no-initial-controllers"
        arguments = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._properties(node_id), role]
        done = subprocess.run(self._java(*arguments), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _start(self, node_id: int) -> None:
        with (self._root / str(node_id) / "out.log").open("wb") as log:
            command = self._java("kafka.Kafka", self._properties(node_id))
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _wait(self) -> None:
        """Wait until all brokers are unfenced."""
        from kraftlab.client import AdminClient, ClusterUnreachable
        from kraftlab.common.errors import ApiError

        deadline = time.monotonic() + START_TIMEOUT_S
        with AdminClient(f"kafka://{self.bootstrap_servers}", timeout_ms=5000) as client:
            while True:
                try:
                    if len(client.describe_cluster().brokers) == len(self.servers):
                        return
                except (ApiError, ClusterUnreachable):
                    pass
                assert time.monotonic() < deadline, f"Apache Kafka was not ready within {START_TIMEOUT_S:g} s; see {self._root}"
                time.sleep(0.2)

    def _properties(self, node_id: int) -> str:
        return str(self._root / str(node_id) / "server.properties")

    def _java(self, *arguments: str) -> list[str]:
        return ["java", *JAVA_OPTIONS, *_HEAP, "-cp", f"{JARS}/*", *arguments]
