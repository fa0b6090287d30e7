"""Files of a local cluster: `cluster.json`, and per node a directory with its `server.properties` and its formatted directories.

    DIR/cluster.json            ids, racks, ports: chosen once, kept for every later start
    DIR/controller-3000/        server.properties, metadata/
    DIR/broker-0/               server.properties, metadata/, d0/, d1/
    DIR/logs/NODE.log           log of the process

The voters of a new cluster live in its log (KIP-853): its controllers are formatted together, with directory ids that are in
`cluster.json` until all of them are formatted. A controller whose directory is missing later has lost its disk, or is new: it is
formatted as an observer, with a new directory id, and can be made a voter. Clusters with static voters keep them.

Links can be broken on purpose if each node listens on a second port while a proxy has the port that other nodes know. The same
cluster starts with or without proxies, since the known ports stay the same.

Ports are a block of free ones below the range that systems use for outgoing connections, so that they are still free later. The
ports of another running cluster are not free, even while no process listens on them (`ports.py`).
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from kraftlab.config import initial_voters, properties, storage
from kraftlab.config.json_files import BadJson, read_json
from kraftlab.config.models import load_any
from kraftlab.metadata.uuids import random_uuid, to_text
from kraftlab.quorum.core.types import Endpoint

from .ports import PortClaims, claims_directory, is_claimed, owner_of

HOST = "127.0.0.1"
FIRST_CONTROLLER_ID = 3000
RACKS = ("rack-0", "rack-1")
_FILE_NAME = "cluster.json"
_PORTS = range(21_000, 32_000)
_PORT_ATTEMPTS = 200
_CLAIM_ATTEMPTS = 5


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
    path = directory / _FILE_NAME
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


def plan(
    directory: Path,
    controllers: int | None,
    brokers: int | None,
    log_dirs: int | None,
    *,
    voters_in_log: bool = True,
    cluster_id: str | None = None,
) -> ClusterPlan:
    """Return the plan of `directory`, or a new one.

    The numbers have to match an existing plan. A new plan has 3 controllers, 4 brokers and 2 log directories by default; static
    voters if not `voters_in_log`; a random cluster id if none is given.
    """
    held = load(directory)
    if held is not None:
        for wanted, has, what in zip(
            (controllers, brokers, log_dirs), held.shape(), ("controllers", "brokers", "log dirs per broker"), strict=True
        ):
            if wanted not in (None, has):
                raise ClusterError(
                    f"{directory} holds a cluster with {has} {what}, not {wanted}; start it with {has}, or use another directory"
                )
        return held
    numbers = tuple(
        default if given is None else given for given, default in zip((controllers, brokers, log_dirs), (3, 4, 2), strict=True)
    )
    for number, least, what in zip(numbers, (1, 0, 1), ("controllers", "brokers", "log dirs"), strict=True):
        if number < least:
            raise ClusterError(f"{number} {what} are too few; give at least {least}")
    return _new_plan(*numbers, voters_in_log=voters_in_log, cluster_id=cluster_id or storage.random_cluster_id())


def _new_plan(controllers: int, brokers: int, log_dirs: int, *, voters_in_log: bool, cluster_id: str) -> ClusterPlan:
    ports = free_ports(2 * (controllers + brokers))
    nodes = [NodePlan(FIRST_CONTROLLER_ID + index, "controller", next(ports), next(ports)) for index in range(controllers)]
    nodes += [
        NodePlan(index, "broker", next(ports), next(ports), log_dirs, RACKS[index % len(RACKS)]) for index in range(brokers)
    ]
    unformatted = {node.node_id: to_text(random_uuid()) for node in nodes if node.role == "controller"} if voters_in_log else {}
    return ClusterPlan(cluster_id, tuple(nodes), voters_in_log=voters_in_log, unformatted=unformatted)


def free_ports(count: int, reserved: Collection[int] = ()) -> Iterator[int]:
    """Return `count` ports in a row that are not in use, claimed or reserved. ClusterError if there is no such row."""
    for _ in range(_PORT_ATTEMPTS):
        first = random.choice(_PORTS[: len(_PORTS) - count])
        if all(port not in reserved and _is_free(port) for port in range(first, first + count)):
            return iter(range(first, first + count))
    raise ClusterError(f"no {count} free ports in a row between {_PORTS.start} and {_PORTS.stop}; stop other clusters first")


def claimed(claims: PortClaims, make: Callable[[], ClusterPlan]) -> ClusterPlan:
    """Make a plan and claim its ports. If another cluster has one of them the plan is made again: a new plan then has other
    ports. ClusterError for an old plan, whose ports stay the same.
    """
    try:
        plan, attempts = make(), 1
        while (lost := claims.take(port for node in plan.nodes for port in node.ports)) is not None:
            if attempts == _CLAIM_ATTEMPTS:
                name = next(node.name for node in plan.nodes if lost in node.ports)
                raise ClusterError(
                    f"port {lost} of {name} belongs to the cluster that runs on {owner_of(lost)}; "
                    "stop that one, or use another directory"
                )
            plan, attempts = make(), attempts + 1
    except OSError as error:
        where = claims_directory()
        raise ClusterError(f"cannot lock ports in {where}: {error.strerror}; make that directory writable") from error
    return plan


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


def node_properties(directory: Path, plan: ClusterPlan, node: NodePlan, overrides: Mapping[str, str]) -> dict[str, str]:
    """The server.properties of a node; `overrides` replace or add keys."""
    home = directory / node.name
    own = "CONTROLLER" if node.role == "controller" else "PEER"
    values = {
        "process.roles": node.role,
        "node.id": str(node.node_id),
        **_where_the_controllers_are(plan),
        "listeners": f"{own}://{node.listens},GRPC://{node.grpc}",
        "metadata.log.dir": str(home / "metadata"),
    }
    if node.listen_port is not None:
        values["advertised.listeners"] = f"{own}://{node.peer},GRPC://{node.grpc}"
    if node.log_dirs:
        values["log.dirs"] = ",".join(str(home / f"d{index}") for index in range(node.log_dirs))
    if node.rack is not None:
        values["broker.rack"] = node.rack
    return values | dict(overrides)


def _where_the_controllers_are(plan: ClusterPlan) -> dict[str, str]:
    if plan.voters_in_log:
        return {"controller.quorum.bootstrap.servers": ",".join(str(node.peer) for node in plan.controllers)}
    return {"controller.quorum.voters": ",".join(f"{node.node_id}@{node.peer}" for node in plan.controllers)}


def write(directory: Path, plan: ClusterPlan, overrides: Mapping[str, str]) -> ClusterPlan:
    """Write missing parts: cluster.json, each node's server.properties, formatted directories. ClusterError, ConfigError.

    Return the plan as written in cluster.json.
    """
    try:
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        if not plan.voters_in_log and _was_forced(directory, plan):
            plan = msgspec.structs.replace(plan, voters_in_log=True)
        for node in plan.nodes:
            (directory / node.name).mkdir(exist_ok=True)
            text = properties.dumps(node_properties(directory, plan, node, overrides))
            properties_path(directory, node).write_text(text, encoding="utf-8")
        if load(directory) != plan:
            _save(directory, plan)
    except OSError as error:
        raise ClusterError(
            f"cannot write {error.filename or directory}: {error.strerror}; check the path and its permissions"
        ) from error
    for node in plan.nodes:
        format_node(directory, plan, node)
    if plan.unformatted:
        plan = msgspec.structs.replace(plan, unformatted={})
        _save(directory, plan)
    return plan


def _was_forced(directory: Path, plan: ClusterPlan) -> bool:
    """Return True if a lost majority of static voters was given up: since then the voters live in the log."""
    files = (properties_path(directory, node) for node in plan.controllers)
    return any(storage.generation(load_any(path)) > 0 for path in files if path.exists())


def _save(directory: Path, plan: ClusterPlan) -> None:
    temporary = directory / (_FILE_NAME + ".tmp")
    with open(temporary, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(plan)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, directory / _FILE_NAME)


def format_node(directory: Path, plan: ClusterPlan, node: NodePlan) -> None:
    """Format the unformatted directories of a node. ConfigError."""
    config = load_any(properties_path(directory, node))
    first_voters = ",".join(
        f"{other.node_id}@{other.peer}:{plan.unformatted[other.node_id]}"
        for other in plan.controllers
        if other.node_id in plan.unformatted
    )
    is_first = node.node_id in plan.unformatted
    initial = initial_voters.choose(
        config, initial_controllers=first_voters if is_first else None, no_initial_controllers=not is_first
    )
    storage.format(config, plan.cluster_id, ignore_formatted=True, initial=initial)


def properties_path(directory: Path, node: NodePlan) -> Path:
    return directory / node.name / "server.properties"


def log_path(directory: Path, node: NodePlan) -> Path:
    return directory / "logs" / f"{node.name}.log"
