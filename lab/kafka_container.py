"""A broker for tests with the methods of testcontainers' `KafkaContainer`, without Docker.

A test suite changes one import::

    from kraftlab.lab import KafkaContainer  # instead of testcontainers.kafka

    with KafkaContainer() as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.get_bootstrap_server())

One controller and one broker start, as processes of this machine, in a directory of their own that goes when they stop. Methods
that mean something without a container are here; any other one is refused by name.
"""

from __future__ import annotations

import tempfile
import warnings
from types import TracebackType
from typing import NoReturn, Self

from kraftlab.common.endpoint import Endpoint
from kraftlab.config import environment

from .cluster_plan import ClusterError
from .local import LocalCluster

_DEFAULTS = {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
"""Variables that testcontainers sets too: a consumer group works at once."""


class KafkaContainer:
    """One broker, of Kafka's protocol. `image` is taken and not used; `port` is the port "inside" by which `get_exposed_port` and
    `with_bind_ports` name the one listener. ClusterError if it does not start.
    """

    def __init__(self, image: str = "kraftlab", port: int = 9093) -> None:
        self.image = image
        self.port = port
        self._host_port: int | None = None
        self._cluster_id: str | None = None
        self._variables = dict(_DEFAULTS)
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._cluster: LocalCluster | None = None

    def with_kraft(self) -> Self:
        """Change nothing: kraftlab has no ZooKeeper."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        self._cluster_id = cluster_id
        return self

    def with_env(self, key: str, value: object) -> Self:
        """Set a property of the broker and the controller: `KAFKA_NUM_PARTITIONS` is num.partitions (docs/running-nodes.md)."""
        if not key.startswith(environment.PREFIX):
            raise ValueError(f"with_env({key!r}, …): no process has that variable; give properties, such as KAFKA_NUM_PARTITIONS")
        self._variables[key] = str(value)
        return self

    def with_envs(self, **variables: object) -> Self:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_exposed_ports(self, *ports: int | str) -> Self:
        for port in ports:
            self._check_port(port)
        return self

    def with_bind_ports(self, container: int | str, host: int | None = None) -> Self:
        """Serve clients at the port `host` instead of a free one."""
        self._check_port(container)
        self._host_port = host
        return self

    def start(self, timeout: float = 30) -> Self:
        """Start the processes, and return when the broker serves clients."""
        if self._cluster is not None:
            raise RuntimeError("this KafkaContainer runs already; stop it first, or make another one")
        found = environment.read(self._variables, mounted=None)
        for warning in found.warnings:
            warnings.warn(warning, stacklevel=2)
        self._directory = tempfile.TemporaryDirectory(prefix="kraftlab-")
        try:
            self._cluster = LocalCluster(
                self._directory.name,
                *(1, 1, 1),
                overrides=found.values,
                cluster_id=self._cluster_id,
                kafka_port=self._host_port,
            )
            self._cluster.start()
            self._cluster.wait_ready(timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the processes and remove their files; gracefully if not `force`. No files stay, whatever `delete_volume`."""
        cluster, self._cluster = self._cluster, None
        directory, self._directory = self._directory, None
        try:
            if cluster is not None:
                if force:
                    cluster.kill()
                cluster.close()
        finally:
            if directory is not None:
                directory.cleanup()

    def get_bootstrap_server(self) -> str:
        """`host:port` for Kafka clients."""
        return str(self._listener())

    def get_container_host_ip(self) -> str:
        return self._listener().host

    def get_exposed_port(self, port: int | str) -> int:
        self._check_port(port)
        return self._listener().port

    def get_logs(self) -> tuple[bytes, bytes]:
        """The broker's log, as standard output, and nothing as standard error."""
        cluster = self._running()
        return cluster.log_path(cluster.broker_ids[0]).read_bytes(), b""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name} means nothing without Docker: this KafkaContainer starts processes; remove the call, or use testcontainers"
        )

    def _check_port(self, port: int | str) -> None:
        if int(port) != self.port:
            raise ValueError(f"port {port}: the one listener of this KafkaContainer is port {self.port}")

    def _listener(self) -> Endpoint:
        listener = self._running().plan.brokers[0].kafka
        assert listener is not None, "a new plan has one"
        return listener

    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise ClusterError("this KafkaContainer does not run; call start(), or use it in a with block")
        return self._cluster
