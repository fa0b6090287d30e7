"""Files of a local cluster: `cluster.json`, and per node a directory with its `server.properties` and its formatted directories.

    DIR/cluster.json            ids, racks, ports, --property: chosen once, kept for every later start
    DIR/secrets/                of a secure cluster: certificates and a password (credentials.py)
    DIR/client.properties       of a secure cluster: what clients need
    DIR/controller-3000/        server.properties (node_files.py), metadata/
    DIR/broker-0/               server.properties, metadata/, d0/, d1/
    DIR/logs/NODE.log           log of the process

The voters of a new cluster live in its log (KIP-853): its controllers are formatted together, with directory ids that are in
`cluster.json` until all of them are formatted. A controller that is added later is formatted as an observer, with a new directory
id, and can be made a voter. Clusters with static voters keep them. A node's directories are formatted once; `cluster.json` has a
note of it.

Links can be broken on purpose if each node listens on a second port while a proxy has the port that other nodes know. The same
cluster starts with or without proxies, since the known ports stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import random_uuid, to_text
from kraftlab.config import initial_voters, meta_properties, properties, storage
from kraftlab.config.access import access_settings, listener_users
from kraftlab.config.errors import ConfigError
from kraftlab.config.meta_properties import write_durably
from kraftlab.config.models import KAFKA_LISTENER, METRICS_LISTENER, load_any
from kraftlab.config.private_files import PRIVATE_DIRECTORY

from . import credentials, node_files, prometheus
from .cluster_plan import FILE_NAME, FIRST_CONTROLLER_ID, HOST, ClusterError, ClusterPlan, NodePlan, free_ports, load
from .ports import PortClaims, claims_directory, owner_of

PROPERTIES_NAME = "server.properties"
_CLAIM_ATTEMPTS = 5


def plan(
    directory: Path,
    controllers: int | None,
    brokers: int | None,
    log_dirs: int | None,
    *,
    voters_in_log: bool = True,
    cluster_id: str | None = None,
    kafka_port: int | None = None,
    racks: int | None = None,
    secure: bool = False,
) -> ClusterPlan:
    """Return the plan of `directory`, or a new one.

    The numbers have to match an existing plan. A new plan has 3 controllers, 4 brokers and 2 log directories by default; static
    voters if not `voters_in_log`; a random cluster id if none is given. The first broker serves Kafka clients at `kafka_port`, if
    given. Each broker has a rack of its own, or one of `racks` in turn. With two racks for four brokers Kafka's placement of a
    small topic leaves two brokers without a leader. A cluster stays `secure`, or open, as it began.
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
        if secure and not held.secure:
            raise ClusterError(
                f"{directory} holds a cluster without TLS and logins, and it stays so; start it without --secure, or use another "
                "directory"
            )
        return held.with_kafka_ports(kafka_port).with_metrics_ports()
    _check_no_other_cluster(directory)
    numbers = tuple(
        default if given is None else given for given, default in zip((controllers, brokers, log_dirs), (3, 4, 2), strict=True)
    )
    for number, least, what in zip(numbers, (1, 0, 1), ("controllers", "brokers", "log dirs"), strict=True):
        if number < least:
            raise ClusterError(f"{number} {what} are too few; give at least {least}")
    id_ = cluster_id or storage.random_cluster_id()
    new = _new_plan(*numbers, racks=racks or max(numbers[1], 1), voters_in_log=voters_in_log, cluster_id=id_)
    return msgspec.structs.replace(new, secure=secure).with_kafka_ports(kafka_port)


def _check_no_other_cluster(directory: Path) -> None:
    """ClusterError if a directory without a plan holds nodes. The disks of a node with only a server.properties may be absent."""
    names = (f"*/{meta_properties.FILE_NAME}", PROPERTIES_NAME)
    found = [path for name in names for role in ("broker", "controller") for path in directory.glob(f"{role}-*/{name}")]
    if found:
        raise ClusterError(
            f"{directory} holds nodes of {_cluster_of(found[0])} but {FILE_NAME} is missing; restore it from a backup, or give "
            "another --data directory. Nothing was changed."
        )


def _cluster_of(path: Path) -> str:
    try:
        found = meta_properties.read(path.parent)
    except (ConfigError, OSError):
        found = None
    return "a cluster" if found is None else f"cluster {found.cluster_id}"


def _new_plan(controllers: int, brokers: int, log_dirs: int, *, racks: int, voters_in_log: bool, cluster_id: str) -> ClusterPlan:
    ports = free_ports(4 * (controllers + brokers))
    nodes = [NodePlan(FIRST_CONTROLLER_ID + index, "controller", next(ports), next(ports)) for index in range(controllers)]
    nodes += [NodePlan(index, "broker", next(ports), next(ports), log_dirs, f"rack-{index % racks}") for index in range(brokers)]
    nodes = [msgspec.structs.replace(node, kafka_port=next(ports), metrics_port=next(ports)) for node in nodes]
    unformatted = {node.node_id: to_text(random_uuid()) for node in nodes if node.role == "controller"} if voters_in_log else {}
    return ClusterPlan(cluster_id, tuple(nodes), voters_in_log=voters_in_log, unformatted=unformatted, formatted=())


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


def managed_properties(directory: Path, plan: ClusterPlan, node: NodePlan) -> dict[str, str]:
    """The keys of a node's server.properties that make the cluster."""
    home = directory / node.name
    own = "CONTROLLER" if node.role == "controller" else "PEER"
    listeners = {own: node.listens, "GRPC": node.grpc}
    advertised = {own: node.peer} if node.listen_port is not None else {}
    if node.kafka is not None:
        # Some systems take localhost for ::1. The node listens on both addresses, and clients are given one of them.
        listeners[KAFKA_LISTENER] = Endpoint("localhost", node.kafka.port) if node.host == HOST else node.kafka
        advertised[KAFKA_LISTENER] = node.kafka
    if node.metrics is not None:
        listeners[METRICS_LISTENER] = node.metrics
    values = {
        "process.roles": node.role,
        "node.id": str(node.node_id),
        **_where_the_controllers_are(plan),
        "listeners": _text_of(listeners),
        "metadata.log.dir": str(home / "metadata"),
    }
    if advertised:
        values["advertised.listeners"] = _text_of(advertised)
    if node.log_dirs:
        values["log.dirs"] = ",".join(str(home / f"d{index}") for index in range(node.log_dirs))
    if node.rack is not None:
        values["broker.rack"] = node.rack
    return values | credentials.node_properties(directory, node) if plan.secure else values


def _text_of(listeners: Mapping[str, Endpoint]) -> str:
    return ",".join(f"{name}://{endpoint}" for name, endpoint in listeners.items())


def _where_the_controllers_are(plan: ClusterPlan) -> dict[str, str]:
    if plan.voters_in_log:
        return {"controller.quorum.bootstrap.servers": ",".join(str(node.peer) for node in plan.controllers)}
    return {"controller.quorum.voters": ",".join(f"{node.node_id}@{node.peer}" for node in plan.controllers)}


def write(
    directory: Path,
    plan: ClusterPlan,
    given: Mapping[str, str] | None = None,
    *,
    unset: Collection[str] = (),
    say: Callable[[str], None] = lambda remark: None,
) -> ClusterPlan:
    """Write missing parts: cluster.json, each node's server.properties, formatted directories. ClusterError, ConfigError.

    Directories are formatted once: an empty one of a node that was formatted before is the place of a disk that is missing.

    `given` properties are kept with the plan, those of `unset` no longer; `say` gets a line for each change, and for edits
    by hand. Return the plan as written in cluster.json.
    """
    given = given or {}
    try:
        if not plan.voters_in_log and _was_forced(directory, plan):
            plan = msgspec.structs.replace(plan, voters_in_log=True)
        held, remarks = node_files.kept(plan.properties, given, unset)
        if plan.secure:
            credentials.check_given(directory, held, plan.properties)
            credentials.prepare(directory, plan)
        prometheus.write(directory, plan)
        plan = _write_properties(directory, msgspec.structs.replace(plan, properties=held), {*given, *unset}, remarks)
    except OSError as error:
        raise ClusterError(
            f"cannot write {error.filename or directory}: {error.strerror}; check the path and its permissions"
        ) from error
    for remark in remarks:
        say(remark)
    for node in plan.nodes:
        if not plan.is_formatted(node.node_id):
            format_node(directory, plan, node)
    formatted = plan.with_all_formatted()
    if formatted != plan:
        _save(directory, formatted)
    return formatted


def _write_properties(directory: Path, plan: ClusterPlan, given: Collection[str], remarks: list[str]) -> ClusterPlan:
    """Write the plan and each node's server.properties, nothing if one of them cannot be written. ClusterError, ConfigError,
    OSError.
    """
    texts: dict[Path, str] = {}
    now: dict[str, tuple[dict[str, str], ...]] = {}
    for node in plan.nodes:
        managed = managed_properties(directory, plan, node)
        wanted = node_files.WantedValues(managed | plan.properties, managed.keys() | {"log.file"}, given)
        path = properties_path(directory, node)
        text, found = node_files.prepare(path, node.name, plan.written.get(node.name, ()), wanted)
        now[node.name] = (dict(wanted.values),)
        remarks.extend(found)
        if text is not None:
            texts[path] = text
    both = {name: (*plan.written.get(name, ()), *values) for name, values in now.items()}
    for name in ("logs", *now):
        (directory / name).mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    if texts:
        _save(directory, msgspec.structs.replace(plan, written=both))
    for path, text in texts.items():
        write_durably(path, text)
    plan = msgspec.structs.replace(plan, written=now)
    if load(directory) != plan:
        _save(directory, plan)
    return plan


def _was_forced(directory: Path, plan: ClusterPlan) -> bool:
    """Return True if a lost majority of static voters was given up: since then the voters live in the log."""
    files = (properties_path(directory, node) for node in plan.controllers)
    return any(storage.generation(load_any(path)) > 0 for path in files if path.exists())


def _save(directory: Path, plan: ClusterPlan) -> None:
    write_durably(directory / FILE_NAME, msgspec.json.format(msgspec.json.encode(plan)).decode())


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
    users = credentials.first_credentials(directory) if plan.secure and node.role == "controller" else ()
    storage.format(config, plan.cluster_id, ignore_formatted=True, initial=initial, credentials=users)


def properties_path(directory: Path, node: NodePlan) -> Path:
    return directory / node.name / PROPERTIES_NAME


def unusable(directory: Path, plan: ClusterPlan, node: NodePlan) -> storage.Unusable:
    """Directories that a stopped node cannot use. A wrong server.properties is left to the node, which names the fault."""
    try:
        config = load_any(properties_path(directory, node))
    except ConfigError:
        return storage.Unusable({}, False)
    return storage.unusable(config, plan.cluster_id)


def log_path(directory: Path, node: NodePlan) -> Path:
    return directory / "logs" / f"{node.name}.log"


def super_user(directory: Path, node: NodePlan) -> tuple[str, str] | None:
    """Return the name and password of a super user in a node's properties, None if there is none or no authorizer.

    Properties that cannot be read have none: the node refuses them by name when it starts.
    """
    path = properties_path(directory, node)
    try:
        values = properties.load(path)
        settings = access_settings(values, str(path))
        return listener_users(values, str(path)).login_of(settings.super_users) if settings.is_enabled else None
    except ConfigError:
        return None
