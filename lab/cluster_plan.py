"""Nodes of a local cluster with their ids, racks and ports: `cluster.json`.

Ports are a block of free ones below the range that systems use for outgoing connections, so that they are still free later. The
ports of another running cluster are not free, even while no process listens on them (`ports.py`).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from kraftlab.config.json_files import BadJson, read_json
from kraftlab.quorum.core.types import Endpoint

from .ports import is_claimed

HOST = "127.0.0.1"
FIRST_CONTROLLER_ID = 3000
FILE_NAME = "cluster.json"
_PORTS = range(21_000, 32_000)
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
    def ports(self) -> tuple[int, ...]:
        """All ports of the node."""
        return (self.peer_port, self.grpc_port, *(() if self.listen_port is None else (self.listen_port,)))

    @property
    def listens(self) -> Endpoint:
        """The node's own listener for other nodes."""
        return Endpoint(self.host, self.listen_port or self.peer_port)


class ClusterPlan(msgspec.Struct, frozen=True):
    """All nodes of a cluster, controllers first.

    `voters_in_log`: the voters are not static. `unformatted`: the directory ids of the first voters, by node id, until all of
    them have been formatted.
    """

    cluster_id: str
    nodes: tuple[NodePlan, ...]
    version: int = 1
    voters_in_log: bool = False
    unformatted: dict[int, str] = {}

    @property
    def controllers(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.role == "controller")

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.role == "broker")

    def with_controller(self) -> ClusterPlan:
        """Add a controller with the next id and new ports."""
        ports = free_ports(2)
        node = NodePlan(self.controllers[-1].node_id + 1, "controller", next(ports), next(ports))
        plan = msgspec.structs.replace(self, nodes=(*self.controllers, node, *self.brokers))
        return plan.behind_proxies() if self.nodes[0].listen_port is not None else plan

    def behind_proxies(self) -> ClusterPlan:
        """Add a port for every node on which it listens itself, so that a proxy can take the known one."""
        ports = free_ports(len(self.nodes), {port for node in self.nodes for port in (node.peer_port, node.grpc_port)})
        return self._with_nodes(lambda node: node.listen_port or next(ports))

    def without_proxies(self) -> ClusterPlan:
        """Let nodes listen on their known ports."""
        return self._with_nodes(lambda node: None)

    def _with_nodes(self, listen_port: Callable[[NodePlan], int | None]) -> ClusterPlan:
        nodes = tuple(msgspec.structs.replace(node, listen_port=listen_port(node)) for node in self.nodes)
        return msgspec.structs.replace(self, nodes=nodes)

    def at(self, host: Callable[[int], str]) -> ClusterPlan:
        """Set the address of each node."""
        nodes = tuple(msgspec.structs.replace(node, host=host(node.node_id)) for node in self.nodes)
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
        raise ClusterError(f"cannot read {path}: {error}; use another --data directory, or remove this one") from error
    if plan.version != 1:
        raise ClusterError(f"{path} has version {plan.version}, expected 1; use another --data directory")
    if not plan.controllers:
        raise ClusterError(f"{path} names no controller; use another --data directory, or remove this one")
    return plan


def free_ports(count: int, reserved: Collection[int] = ()) -> Iterator[int]:
    """Return `count` ports in a row that are not in use, claimed or reserved. ClusterError if there is no such row."""
    for _ in range(_PORT_ATTEMPTS):
        first = random.choice(_PORTS[: len(_PORTS) - count])
        if all(port not in reserved and _is_free(port) for port in range(first, first + count)):
            return iter(range(first, first + count))
    raise ClusterError(f"no {count} free ports in a row between {_PORTS.start} and {_PORTS.stop}; stop other clusters first")


def _is_free(port: int) -> bool:
    if is_claimed(port):
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
    return True
