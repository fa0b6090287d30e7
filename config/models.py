"""The configuration of a node: `server.properties`, typed.

Theory of operation. A file's strings are checked key by key. An unknown key is refused with the nearest known name. A key that
nothing here acts on takes only its default (`unused_keys`). Lists,
endpoints, voters and paths are parsed here; `msgspec.convert` converts and bounds the rest. Contradictions between keys come
last (`log.dir` beside `log.dirs`, a voter with another endpoint than this node's, a role other than the started one). Defaults
are Kafka's except for the quorum's timeouts. Every refusal names file, key, value and the expected form.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec

from kraftlab.access.authorizer import AccessSettings
from kraftlab.access.users import Users
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.types import Voter, VoterSet

from . import properties
from .access import access_settings, listener_users
from .config_key import split_list
from .directories import check_apart, parse_directories, parse_directory
from .endpoints import parse_endpoint
from .errors import ConfigError
from .listener_security import NodeSecurity, node_security
from .secrets import is_secret_property
from .security_keys import OF_LISTENERS
from .topic_configs import BROKER_KEYS, listener_key
from .unused_keys import shared_by_listeners, unused_fault

CONTROLLER_LISTENER = "CONTROLLER"
PEER_LISTENER = "PEER"
GRPC_LISTENER = "GRPC"
KAFKA_LISTENER = "KAFKA"
METRICS_LISTENER = "METRICS"

LOOPBACK = "127.0.0.1"
_LISTENERS_OF_ROLE = {"controller": (CONTROLLER_LISTENER, GRPC_LISTENER), "broker": (PEER_LISTENER, GRPC_LISTENER)}
_ALIASES = {"broker.id": "node.id", "file.delete.delay.ms": "log.segment.delete.delay.ms"}

NO_VOTERS = VoterSet(())

AtLeast0 = Annotated[int, msgspec.Meta(ge=0)]
AtLeast1 = Annotated[int, msgspec.Meta(ge=1)]
Detail = Literal["full", "topics", "off"]


def _key(name: str, default: Any = msgspec.NODEFAULT) -> Any:
    return msgspec.field(name=name, default=default)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration that controllers and brokers share. `listeners` and `advertised_listeners` are endpoints by listener name;
    METRICS is not advertised.
    """

    node_id: AtLeast0 = _key("node.id")
    process_roles: tuple[str, ...] = _key("process.roles")
    voters: VoterSet = _key("controller.quorum.voters", NO_VOTERS)
    """Static voters; empty if the voters are in the log."""
    bootstrap_servers: tuple[Endpoint, ...] = _key("controller.quorum.bootstrap.servers", ())
    """Peer listeners of controllers. One that runs is enough to find the quorum. Empty if the voters are static."""
    listeners: dict[str, Endpoint] = _key("listeners")
    advertised_listeners: dict[str, Endpoint] = _key("advertised.listeners")
    metadata_log_dir: Path = _key("metadata.log.dir")
    log_dirs: tuple[Path, ...] = _key("log.dirs", ())
    rack: str | None = _key("broker.rack", None)
    election_timeout_ms: Annotated[int, msgspec.Meta(ge=10)] = _key("controller.quorum.election.timeout.ms", 300)
    fetch_timeout_ms: Annotated[int, msgspec.Meta(ge=10)] = _key("controller.quorum.fetch.timeout.ms", 600)
    broker_session_timeout_ms: AtLeast1 = _key("broker.session.timeout.ms", 9000)
    broker_heartbeat_interval_ms: AtLeast1 = _key("broker.heartbeat.interval.ms", 2000)
    metadata_max_idle_interval_ms: AtLeast0 = _key("metadata.max.idle.interval.ms", 500)
    snapshot_max_new_bytes: AtLeast1 = _key("metadata.log.max.record.bytes.between.snapshots", 20_971_520)
    snapshot_max_interval_ms: AtLeast0 = _key("metadata.log.max.snapshot.interval.ms", 3_600_000)
    """0: only `snapshot_max_new_bytes` counts."""
    trace_file: Path | None = _key("kraftlab.trace.file", None)
    """File for a trace of this node's consensus, one JSON object per line. `{node}` stands for the node's id."""
    log_format: Literal["text", "json"] = _key("log.format", "text")
    log_file: Path | None = _key("log.file", None)
    """File of the log; None: standard error."""
    num_partitions: AtLeast1 = _key("num.partitions", 1)
    default_replication_factor: AtLeast1 = _key("default.replication.factor", 1)
    min_insync_replicas: AtLeast1 = _key("min.insync.replicas", 1)
    auto_leader_rebalance_enable: bool = _key("auto.leader.rebalance.enable", True)
    unclean_leader_election_interval_ms: AtLeast1 = _key("unclean.leader.election.interval.ms", 300_000)
    leader_imbalance_check_interval_seconds: AtLeast1 = _key("leader.imbalance.check.interval.seconds", 300)
    access: AccessSettings = _key("access", AccessSettings())
    """Access settings (with `super.users` and `allow.everyone.if.no.acl.found`)."""
    users: Users = _key("users", Users({}))
    """Users of the gRPC listener."""
    security: NodeSecurity = _key("security", NodeSecurity())
    """TLS and SASL of the listeners."""
    source: str = _key("source", "")
    """Path of the file, for messages."""
    values: dict[str, str] = _key("values", {})
    """Keys and values of the file as written, without secret ones."""

    def static(self, name: str) -> str | None:
        """Value of a key in the file (the STATIC source of DescribeConfigs), None without one."""
        return self.values.get(name)

    @property
    def grpc(self) -> Endpoint:
        """Listener of the admin API."""
        return self.listeners[GRPC_LISTENER]

    @property
    def kafka(self) -> Endpoint | None:
        """Listener of the Kafka protocol, None without one."""
        return self.listeners.get(KAFKA_LISTENER)

    @property
    def metrics(self) -> Endpoint | None:
        """Listener of metrics and health, None without one."""
        return self.listeners.get(METRICS_LISTENER)

    @property
    def is_dynamic(self) -> bool:
        """True if the voters are in the log (KIP-853) instead of in this file."""
        return not self.voters.voters

    @property
    def controllers(self) -> tuple[Endpoint, ...]:
        """Peer listeners of the controllers: bootstrap servers or static voters."""
        return self.bootstrap_servers or tuple(voter.endpoints[CONTROLLER_LISTENER] for voter in self.voters.voters)

    def all_directories(self) -> tuple[Path, ...]:
        """The metadata directory, then the other log directories."""
        return (self.metadata_log_dir, *(path for path in self.log_dirs if path != self.metadata_log_dir))


class ControllerConfig(NodeConfig, frozen=True, kw_only=True):
    """A controller: a voter of the metadata quorum, or an observer that can become one."""

    auto_join: bool = _key("controller.quorum.auto.join.enable", False)

    @property
    def peer(self) -> Endpoint:
        """Listener for other nodes."""
        return self.listeners[CONTROLLER_LISTENER]


class BrokerConfig(NodeConfig, frozen=True, kw_only=True):
    """A broker: observer of the metadata log, host of partition data."""

    initial_broker_registration_timeout_ms: AtLeast1 = _key("initial.broker.registration.timeout.ms", 60_000)
    controlled_shutdown_enable: bool = _key("controlled.shutdown.enable", True)
    replica_lag_time_max_ms: AtLeast1 = _key("replica.lag.time.max.ms", 30_000)
    replica_fetch_max_bytes: AtLeast1 = _key("replica.fetch.max.bytes", 1_048_576)
    replica_fetch_response_max_bytes: AtLeast1 = _key("replica.fetch.response.max.bytes", 10_485_760)
    replica_fetch_wait_max_ms: AtLeast0 = _key("replica.fetch.wait.max.ms", 500)
    replica_fetch_min_bytes: AtLeast0 = _key("replica.fetch.min.bytes", 1)
    replica_fetch_backoff_ms: AtLeast0 = _key("replica.fetch.backoff.ms", 1_000)
    replica_socket_timeout_ms: AtLeast1 = _key("replica.socket.timeout.ms", 30_000)
    num_replica_alter_log_dirs_threads: AtLeast1 | None = _key("num.replica.alter.log.dirs.threads", None)
    """None: one per log directory."""
    log_segment_bytes: Annotated[int, msgspec.Meta(ge=1_048_576, le=2_147_483_647)] = _key("log.segment.bytes", 1_073_741_824)
    log_retention_check_interval_ms: AtLeast1 = _key("log.retention.check.interval.ms", 300_000)
    log_flush_scheduler_interval_ms: AtLeast1 = _key("log.flush.scheduler.interval.ms", 2**63 - 1)
    num_recovery_threads_per_data_dir: AtLeast1 = _key("num.recovery.threads.per.data.dir", 2)
    log_segment_delete_delay_ms: AtLeast0 = _key("log.segment.delete.delay.ms", 60_000)
    log_dir_failure_timeout_ms: AtLeast1 = _key("log.dir.failure.timeout.ms", 30_000)
    replica_high_watermark_checkpoint_interval_ms: AtLeast1 = _key("replica.high.watermark.checkpoint.interval.ms", 5_000)
    group_min_session_timeout_ms: AtLeast1 = _key("group.min.session.timeout.ms", 6_000)
    group_max_session_timeout_ms: AtLeast1 = _key("group.max.session.timeout.ms", 1_800_000)
    group_max_size: AtLeast1 = _key("group.max.size", 2_147_483_647)
    group_initial_rebalance_delay_ms: AtLeast0 = _key("group.initial.rebalance.delay.ms", 3_000)
    offsets_topic_num_partitions: AtLeast1 = _key("offsets.topic.num.partitions", 50)
    offsets_topic_replication_factor: AtLeast1 = _key("offsets.topic.replication.factor", 3)
    offsets_topic_segment_bytes: Annotated[int, msgspec.Meta(ge=1_048_576)] = _key("offsets.topic.segment.bytes", 104_857_600)
    offsets_retention_minutes: AtLeast1 = _key("offsets.retention.minutes", 10_080)
    offsets_retention_check_interval_ms: AtLeast1 = _key("offsets.retention.check.interval.ms", 600_000)
    offset_metadata_max_bytes: AtLeast0 = _key("offset.metadata.max.bytes", 4_096)
    metrics_partitions: Detail = _key("metrics.partitions", "full")

    @property
    def peer(self) -> Endpoint:
        """Listener for other nodes."""
        return self.listeners[PEER_LISTENER]


Config = TypeVar("Config", bound=NodeConfig)
Parsed = TypeVar("Parsed")


class _Reader:
    """Keys of one file while they are converted into values."""

    def __init__(self, values: Mapping[str, str], source: str) -> None:
        self.values = dict(values)
        self.source = source

    def fail(self, key: str, expected: str) -> NoReturn:
        raise ConfigError(f"{self.source}: {key}={self.values.get(key, '')}: {expected}")

    def need(self, key: str, hint: str) -> str:
        value = self.values.get(key, "")
        if not value:
            raise ConfigError(f"{self.source} does not set {key}; add it, for example {key}={hint}")
        return value

    def check_keys(self) -> None:
        """Check every key's name and value, and replace aliases by their names."""
        for alias, name in _ALIASES.items():
            if alias in self.values:
                value = self.values.pop(alias)
                if self.values.setdefault(name, value) != value:
                    raise ConfigError(f"{self.source} sets {alias}={value} and {name}={self.values[name]}; keep one of them")
        for key, value in self.values.items():
            known = BROKER_KEYS.get(key)
            if known is None and (of_listener := listener_key(key)) is not None:
                known = of_listener.key
                if known.name not in OF_LISTENERS:
                    raise ConfigError(f"{self.source} sets {key}: {shared_by_listeners(known.name)}")
            if known is None:
                near = difflib.get_close_matches(key, BROKER_KEYS, n=1)
                advice = f"did you mean {near[0]}?" if near else "remove it"
                raise ConfigError(f"{self.source} sets {key}, an unknown key; {advice}")
            has_own_check = key == "log.dirs"  # The reader of its directories says more.
            fault = (None if has_own_check else known.fault(value)) or unused_fault(known, value)
            if fault is not None:
                raise ConfigError(f"{self.source}: {fault}")


_LISTENER = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)://(?P<endpoint>.+)")


_VOTERS = "controller.quorum.voters"
_BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
_AUTO_JOIN = "controller.quorum.auto.join.enable"


def _quorum(reader: _Reader, role: str) -> tuple[VoterSet, tuple[Endpoint, ...]]:
    """(static voters, bootstrap servers). Exactly one of them must be given."""
    values = reader.values
    if values.get(_VOTERS) and values.get(_BOOTSTRAP_SERVERS):
        raise ConfigError(
            f"{reader.source} sets both {_VOTERS}={values[_VOTERS]} (static voters) and "
            f"{_BOOTSTRAP_SERVERS}={values[_BOOTSTRAP_SERVERS]} (voters in the log); keep the one that the "
            "cluster was formatted for"
        )
    if not values.get(_VOTERS) and not values.get(_BOOTSTRAP_SERVERS):
        raise ConfigError(
            f"{reader.source} does not say where the controllers are; add {_BOOTSTRAP_SERVERS}=HOST:PORT,… if the voters live "
            f"in the log, or {_VOTERS}=3000@127.0.0.1:19093,… if they are static"
        )
    if values.get(_AUTO_JOIN, "").lower() == "true":
        if role != "controller":
            reader.fail(_AUTO_JOIN, "only a controller can become a voter; remove it")
        if values.get(_VOTERS):
            reader.fail(_AUTO_JOIN, f"voters are static here; remove it, or use {_BOOTSTRAP_SERVERS} instead of {_VOTERS}")
    if values.get(_VOTERS):
        return _voters(reader), ()
    return NO_VOTERS, _bootstrap_servers(reader)


def _voters(reader: _Reader) -> VoterSet:
    voters: dict[int, Voter] = {}
    for item in split_list(reader.values[_VOTERS]):
        node_id, at, address = item.partition("@")
        endpoint = parse_endpoint(address) if at else None
        if endpoint is None or not endpoint.host or not node_id.isdecimal():
            reader.fail(_VOTERS, f"{item!r} is not id@host:port")
        if int(node_id) in voters:
            reader.fail(_VOTERS, f"voter {node_id} is listed twice")
        voters[int(node_id)] = Voter(ReplicaKey(int(node_id)), {CONTROLLER_LISTENER: endpoint})
    return VoterSet.of(voters.values())


def _bootstrap_servers(reader: _Reader) -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    for item in split_list(reader.values[_BOOTSTRAP_SERVERS]):
        endpoint = parse_endpoint(item)
        if endpoint is None or not endpoint.host:
            reader.fail(_BOOTSTRAP_SERVERS, f"{item!r} is not host:port")
        found.append(endpoint)
    return tuple(dict.fromkeys(found))


def _listeners(reader: _Reader, key: str, names: tuple[str, ...]) -> dict[str, Endpoint]:
    example = ",".join(f"{name}://127.0.0.1:{9092 + index}" for index, name in enumerate(names))
    found: dict[str, Endpoint] = {}
    for item in split_list(reader.need(key, example)):
        match = _LISTENER.fullmatch(item)
        endpoint = parse_endpoint(match["endpoint"]) if match else None
        if match is None or endpoint is None:
            reader.fail(key, f"{item!r} is not NAME://host:port with a port from 1 to 65535")
        name = match["name"].upper()
        if name not in names:
            reader.fail(key, f"listener {name} is not one of this role; it serves {' and '.join(names)}")
        if name in found:
            reader.fail(key, f"listener {name} is listed twice")
        if endpoint in found.values():
            reader.fail(key, f"{endpoint} is listed twice; give every listener a port of its own")
        found[name] = endpoint
    return found


def _advertised(reader: _Reader, names: tuple[str, ...], listeners: dict[str, Endpoint]) -> dict[str, Endpoint]:
    key = "advertised.listeners"
    given = _listeners(reader, key, names) if reader.values.get(key) else {}
    advertised = {name: at for name, at in listeners.items() if name != METRICS_LISTENER} | given
    for name, endpoint in advertised.items():
        if endpoint.host in ("", "0.0.0.0", "::"):
            raise ConfigError(
                f"{reader.source} listens on every address for {name} ({endpoint}) and has no address for other nodes; "
                f"add advertised.listeners={name}://HOST:{endpoint.port}"
            )
    return advertised


def _directories(reader: _Reader, role: str) -> tuple[Path, tuple[Path, ...]]:
    values = reader.values
    if "log.dir" in values and "log.dirs" in values:
        raise ConfigError(
            f"{reader.source} sets both log.dir={values['log.dir']} and log.dirs={values['log.dirs']}; keep log.dirs only"
        )
    key = "log.dir" if "log.dir" in values else "log.dirs"
    log_dirs = _paths(reader, key, lambda: parse_directories(values.get(key, "")))
    if role == "broker" and not log_dirs:
        reader.need("log.dirs", "/var/lib/kraftlab/d0,/var/lib/kraftlab/d1")
    cordoned = split_list(values.get("cordoned.log.dirs", ""))
    if cordoned != ("*",) and (missing := {*cordoned} - {*map(str, log_dirs)}):
        reader.fail(
            "cordoned.log.dirs", f"{min(missing)} is not one of log.dirs; they are {', '.join(map(str, log_dirs))}, or * for all"
        )
    key = "metadata.log.dir"
    if not values.get(key):
        if not log_dirs:
            reader.need(key, "/var/lib/kraftlab/metadata")
        return log_dirs[0], log_dirs
    metadata = _paths(reader, key, lambda: parse_directory(values[key]))
    _paths(reader, key, lambda: check_apart({metadata: None} | dict.fromkeys(log_dirs)))
    return metadata, log_dirs


def _paths(reader: _Reader, key: str, parse: Callable[[], Parsed]) -> Parsed:
    """Parse the paths of a key. ConfigError names the key and its value."""
    try:
        return parse()
    except ConfigError as error:
        reader.fail(key, str(error))


def _check_fixed_names(reader: _Reader, role: str) -> None:
    for key, only in (("controller.listener.names", CONTROLLER_LISTENER), ("inter.broker.listener.name", PEER_LISTENER)):
        if reader.values.get(key, only).upper() != only:
            reader.fail(key, f"the listener is called {only} here; write {key}={only} or remove it")
    roles = split_list(reader.need("process.roles", role))
    if roles != (role,):
        reader.fail("process.roles", f"expected {role} alone, since a node has one role")


def _check_membership(reader: _Reader, role: str, node_id: int, voters: VoterSet, advertised: dict[str, Endpoint]) -> None:
    if not voters.voters:
        return
    own = voters.get(node_id)
    ids = ",".join(map(str, voters.ids()))
    if role == "broker":
        if own is not None:
            reader.fail("node.id", f"is a controller of {_VOTERS} ({ids}); give the broker another id")
        return
    if own is None:
        reader.fail("node.id", f"is not among the controllers of {_VOTERS} ({ids}); add it or correct the id")
    expected, actual = own.endpoints[CONTROLLER_LISTENER], advertised[CONTROLLER_LISTENER]
    if expected.port != actual.port:
        reader.fail(_VOTERS, f"voter {node_id} is {expected}, but listeners say {actual}; make them agree")


def build(values: Mapping[str, str], source: str, role: str, model: type[Config]) -> Config:
    """Make the typed configuration from a file's values. ConfigError names `source`, the key, its value and the expected form."""
    reader = _Reader(values, source)
    reader.check_keys()
    _check_fixed_names(reader, role)
    reader.need("node.id", "0")
    names = _LISTENERS_OF_ROLE[role]
    served = (*names, KAFKA_LISTENER)
    listeners = _listeners(reader, "listeners", (*served, METRICS_LISTENER))
    if METRICS_LISTENER in listeners and not listeners[METRICS_LISTENER].host:
        listeners[METRICS_LISTENER] = Endpoint(LOOPBACK, listeners[METRICS_LISTENER].port)
    missing = [name for name in names if name not in listeners]
    if missing:
        reader.fail("listeners", f"has no {missing[0]} listener; add {missing[0]}://HOST:PORT")
    metadata_log_dir, log_dirs = _directories(reader, role)
    voters, bootstrap_servers = _quorum(reader, role)
    raw: dict[str, Any] = {
        key: value
        for key, value in reader.values.items()
        if key in {field.encode_name for field in msgspec.structs.fields(model)} and value != ""
    }
    raw |= {
        "process.roles": (role,),
        _VOTERS: voters,
        _BOOTSTRAP_SERVERS: bootstrap_servers,
        "listeners": listeners,
        "advertised.listeners": _advertised(reader, served, listeners),
        "metadata.log.dir": metadata_log_dir,
        "log.dirs": log_dirs,
        "source": source,
        "values": {key: value for key, value in values.items() if key in _ALIASES or not is_secret_property(key)},
        "access": access_settings(reader.values, source),
        "users": listener_users(reader.values, source),
        "security": node_security(reader.values, source, listeners),
    }
    for key in ("kraftlab.trace.file", "log.file"):
        if reader.values.get(key):
            raw[key] = Path(os.path.abspath(reader.values[key]))
    config = _convert(reader, raw, model)
    _check_membership(reader, role, config.node_id, config.voters, config.advertised_listeners)
    return config


def _convert(reader: _Reader, raw: dict[str, Any], model: type[Config]) -> Config:
    try:
        return msgspec.convert(raw, model, strict=False)
    except msgspec.ValidationError as error:
        expected, _, path = str(error).partition(" - at `$.")
        reader.fail(path.rstrip("`") or "?", expected)


def load_controller(path: str | os.PathLike[str]) -> ControllerConfig:
    """Load the configuration of a controller from its server.properties. ConfigError."""
    return build(properties.load(path), str(path), "controller", ControllerConfig)


def load_broker(path: str | os.PathLike[str]) -> BrokerConfig:
    """Load the configuration of a broker from its server.properties. ConfigError."""
    return build(properties.load(path), str(path), "broker", BrokerConfig)


def load_any(path: str | os.PathLike[str]) -> NodeConfig:
    """Load the configuration of the role that the file names. ConfigError."""
    return build_any(properties.load(path), str(path))


def build_any(values: Mapping[str, str], source: str) -> NodeConfig:
    """Make the configuration of the role that a file's values name. ConfigError as `build`."""
    role = values.get("process.roles", "")
    if role == "controller":
        return build(values, source, role, ControllerConfig)
    if role == "broker":
        return build(values, source, role, BrokerConfig)
    raise ConfigError(f"{source}: process.roles={role}: expected controller or broker, since a node has one role")
