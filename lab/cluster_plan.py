"""Nodes of a local cluster with their ids, racks and ports: `cluster.json`.

Ports are a block of free ones below the range that systems use for outgoing connections, so that they are still free later. The
ports of another running cluster are not free, even while no process listens on them (`ports.py`).
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.config.json_files import BadJson, read_json

from .ports import is_claimed, owner_of

HOST = "127.0.0.1"
FIRST_CONTROLLER_ID = 3000
FILE_NAME = "cluster.json"
CLIENT_PROPERTIES = "client.properties"
"""The security of clients of the cluster, in its directory, if its listeners ask for any."""
PORTS_VARIABLE = "KRAFTLAB_PORTS"
"""Environment variable with the first and the last port for nodes."""
_PORTS = "21000-31999"
_PORT_ATTEMPTS = 200


class ClusterError(RuntimeError):
    """The cluster cannot be laid out, started or reached; the text gives the reason and the next step."""


class NodePlan(msgspec.Struct, frozen=True):
    """One node. `role` is "controller" or "broker"; `log_dirs` the number of its log directories.

    Other nodes reach it at `peer_port`. It listens there itself, or at `listen_port` behind a proxy (`links`). `host` is its
    address.
    """

    node_id: int
    role: str
    peer_port: int
    grpc_port: int
    log_dirs: int = 0
    rack: str | None = None
    listen_port: int | None = None
    host: str = HOST
    kafka_port: int | None = None
    metrics_port: int | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{self.node_id}"

    @property
    def grpc(self) -> Endpoint:
        return Endpoint(self.host, self.grpc_port)

    @property
    def peer(self) -> Endpoint:
        return Endpoint(self.host, self.peer_port)

    @property
    def kafka(self) -> Endpoint | None:
        """The listener for Kafka clients; a controller's is for tools with `--bootstrap-controller`. None in a plan of before."""
        return None if self.kafka_port is None else Endpoint(self.host, self.kafka_port)

    @property
    def metrics(self) -> Endpoint | None:
        """The listener of metrics and health. None in a plan of before."""
        return None if self.metrics_port is None else Endpoint(self.host, self.metrics_port)

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of the node."""
        optional = (self.listen_port, self.kafka_port, self.metrics_port)
        return (self.peer_port, self.grpc_port, *(port for port in optional if port is not None))

    @property
    def listens(self) -> Endpoint:
        """The node's own listener for other nodes."""
        return Endpoint(self.host, self.listen_port or self.peer_port)


class ClusterPlan(msgspec.Struct, frozen=True):
    """All nodes of a cluster, controllers first.

    `voters_in_log`: the voters are not static. `unformatted`: the directory ids of the first voters, by node id, until all of
    them have been formatted. `properties`: keys of server.properties for every node, kept for later starts. `written`: the values
    of each node's server.properties as they were written last, by the node's name; old and new ones while they are being written.
    `formatted`: ids of nodes whose directories have been formatted, None in a plan of before. `secure`: all listeners speak TLS,
    and clients log in (`credentials.py`).
    """

    cluster_id: str
    nodes: tuple[NodePlan, ...]
    version: int = 1
    voters_in_log: bool = False
    unformatted: dict[int, str] = {}
    properties: dict[str, str] = {}
    written: dict[str, tuple[dict[str, str], ...]] = {}
    formatted: tuple[int, ...] | None = None
    secure: bool = False

    @property
    def controllers(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.role == "controller")

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.role == "broker")

    def is_formatted(self, node_id: int) -> bool:
        """Return True if the node's directories have been formatted. An empty one is then the place of a disk that is missing.

        The nodes of a plan of before are formatted, unless that was interrupted.
        """
        return not self.unformatted if self.formatted is None else node_id in self.formatted

    def with_all_formatted(self) -> ClusterPlan:
        return msgspec.structs.replace(self, unformatted={}, formatted=tuple(node.node_id for node in self.nodes))

    def with_controller(self) -> ClusterPlan:
        """Add a controller with the next id and new ports."""
        ports = free_ports(4)
        node_id = self.controllers[-1].node_id + 1
        node = NodePlan(node_id, "controller", next(ports), next(ports), kafka_port=next(ports), metrics_port=next(ports))
        formatted = tuple(other.node_id for other in self.nodes if self.is_formatted(other.node_id))
        plan = msgspec.structs.replace(self, nodes=(*self.controllers, node, *self.brokers), formatted=formatted)
        return plan.behind_proxies() if self.nodes[0].listen_port is not None else plan

    def behind_proxies(self) -> ClusterPlan:
        """Add a port for every node on which it listens itself, so that a proxy can take the known one."""
        ports = free_ports(len(self.nodes), self._ports())
        return self._with_each(lambda node: {"listen_port": node.listen_port or next(ports)})

    def without_proxies(self) -> ClusterPlan:
        """Let nodes listen on their known ports."""
        return self._with_each(lambda node: {"listen_port": None})

    def with_kafka_ports(self, first: int | None = None) -> ClusterPlan:
        """Add a port for Kafka clients to each node that has none. The first broker gets the port `first`, if given.

        ClusterError if `first` is not free, or there is no broker.
        """
        if first is not None:
            self._check_kafka_port(first)
        wanted = {node.node_id: node.kafka_port for node in self.nodes}
        if first is not None:
            wanted[self.brokers[0].node_id] = first
        without = [node_id for node_id, port in wanted.items() if port is None]
        wanted |= dict(zip(without, free_ports(len(without), {*self._ports(), first}), strict=True))
        return self._with_each(lambda node: {"kafka_port": wanted[node.node_id]})

    def with_metrics_ports(self) -> ClusterPlan:
        """Add a port for metrics to each node that has none."""
        without = [node.node_id for node in self.nodes if node.metrics_port is None]
        new = dict(zip(without, free_ports(len(without), self._ports()), strict=True)) if without else {}
        return self._with_each(lambda node: {"metrics_port": new.get(node.node_id, node.metrics_port)})

    def _check_kafka_port(self, port: int) -> None:
        if not self.brokers:
            raise ClusterError(f"port {port} is for Kafka clients, and this cluster has no broker; leave --kafka-port out")
        for node in self.nodes:
            if port in node.ports and (node is not self.brokers[0] or port != node.kafka_port):
                raise ClusterError(f"port {port} is one of {node.name} already; give another --kafka-port")
        if is_claimed(port):
            raise ClusterError(
                f"port {port} belongs to the cluster that runs on {owner_of(port)}; stop that one, or give another --kafka-port"
            )
        error = _bind_error(port)
        if error is not None:
            raise ClusterError(f"cannot listen on {HOST}:{port}: {error.strerror}; give another --kafka-port")

    def _ports(self) -> set[int]:
        return {port for node in self.nodes for port in node.ports}

    def at(self, host: Callable[[int], str]) -> ClusterPlan:
        """Set the address of each node."""
        return self._with_each(lambda node: {"host": host(node.node_id)})

    def _with_each(self, changes: Callable[[NodePlan], Mapping[str, Any]]) -> ClusterPlan:
        nodes = tuple(msgspec.structs.replace(node, **changes(node)) for node in self.nodes)
        return msgspec.structs.replace(self, nodes=nodes)

    def shape(self) -> tuple[int, int, int]:
        """(controllers, brokers, log directories per broker)."""
        return len(self.controllers), len(self.brokers), self.brokers[0].log_dirs if self.brokers else 0


def load(directory: Path) -> ClusterPlan | None:
    """Load the plan of `directory`, None if there is none. ClusterError if `cluster.json` is not a valid plan."""
    path = directory / FILE_NAME
    try:
        plan = read_json(path, ClusterPlan)
    except FileNotFoundError:
        return None
    except (OSError, BadJson) as error:
        raise ClusterError(f"cannot read {path}: {error}; restore it from a backup, or give another --data directory") from error
    if plan.version != 1:
        raise ClusterError(f"{path} has version {plan.version}, expected 1; use another --data directory")
    if not plan.controllers:
        raise ClusterError(f"{path} names no controller; restore it from a backup, or give another --data directory")
    return plan


def client_properties(directory: Path) -> Path | None:
    """Return the file with the security of the cluster's clients, None without one."""
    path = directory / CLIENT_PROPERTIES
    return path if path.exists() else None


def free_ports(count: int, reserved: Collection[int | None] = ()) -> Iterator[int]:
    """Return `count` ports in a row that are not in use, claimed or reserved. ClusterError if there is no such row."""
    ports = _ports()
    starts = ports[: max(len(ports) - count + 1, 0)]
    for _ in range(_PORT_ATTEMPTS if starts else 0):
        first = random.choice(starts)
        if all(port not in reserved and _is_free(port) for port in range(first, first + count)):
            return iter(range(first, first + count))
    raise ClusterError(
        f"no {count} free ports in a row from {ports.start} to {ports.stop - 1}; stop other clusters, or set {PORTS_VARIABLE} to "
        "more ports"
    )


def _ports() -> range:
    """Return the ports for nodes. ClusterError if the variable has no first and last port."""
    text = os.environ.get(PORTS_VARIABLE, _PORTS)
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if found is None:
        raise ClusterError(f"{PORTS_VARIABLE} is {text!r}, expected the first and the last port, such as {_PORTS}")
    return range(int(found[1]), int(found[2]) + 1)


def _is_free(port: int) -> bool:
    return not is_claimed(port) and _bind_error(port) is None


def _bind_error(port: int) -> OSError | None:
    """Return the reason that no process can listen on the port now, None if one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError as error:
            return error
    return None
