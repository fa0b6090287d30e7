"""One configuration key: its type, its valid values, and their normal form (KIP-226).

A key checks a value (`fault`, with Kafka's text) and writes a valid one in its normal form (`normal`): numbers without blanks
and leading zeros, lists without blanks, booleans in lower case.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

import msgspec


class ConfigType(enum.Enum):
    """Kafka's types of a configuration value."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"

    @property
    def number(self) -> int:
        """Number in DescribeConfigs; 0 is an unknown type."""
        return _TYPE_NUMBERS[self]


_TYPE_NUMBERS = {kind: number for number, kind in enumerate(ConfigType, start=1)}
_INTEGER_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_THROTTLED_REPLICAS = re.compile(r"[0-9]+:[0-9]+")


_DOCUMENTATION = {
    "advertised.listeners": "Endpoints that other nodes and clients connect to; default: listeners.",
    "auto.leader.rebalance.enable": "Lets the controller elect the preferred leader again when it is back in sync.",
    "broker.heartbeat.interval.ms": "Time between two heartbeats of a broker to the active controller.",
    "broker.rack": "Rack of the broker; replicas of a partition are spread over racks.",
    "broker.session.timeout.ms": "Time without a heartbeat after which the controller fences a broker.",
    "cleanup.policy": "Treatment of old segments: delete them, compact them, or both.",
    "controlled.shutdown.enable": "Lets a broker hand over its leaderships before it stops.",
    "controller.quorum.auto.join.enable": "Lets a new controller add itself to the voters (KIP-853).",
    "controller.quorum.bootstrap.servers": "Peer endpoints of controllers, HOST:PORT[,…], if the voters are in the log.",
    "controller.quorum.election.timeout.ms": "Time without a leader, doubled at random, after which a voter calls an election.",
    "controller.quorum.fetch.timeout.ms": "Time without an answer to Fetch after which a follower gives up the leader.",
    "controller.quorum.voters": "Static voters, ID@HOST:PORT[,…]; leave it out if the voters are in the log.",
    "cordoned.log.dirs": "Log directories of this broker that take no new replicas; * for all of them.",
    "default.replication.factor": "Replicas per partition of a topic that is created without a factor.",
    "follower.replication.throttled.rate": "Bytes per second that this broker fetches for throttled replicas.",
    "follower.replication.throttled.replicas": "Replicas whose fetching is throttled, partition:broker, or * for all.",
    "initial.broker.registration.timeout.ms": "Time that a starting broker tries to register before it gives up.",
    "intra.broker.throttled.rate": "Second name of replica.alter.log.dirs.io.max.bytes.per.second, as in KIP-113.",
    "kraftlab.trace.file": "File that gets each step of this node's consensus, one JSON object per line.",
    "leader.imbalance.check.interval.seconds": "Time between two checks for partitions without their preferred leader.",
    "leader.replication.throttled.rate": "Bytes per second that this broker serves to throttled replicas.",
    "leader.replication.throttled.replicas": "Replicas that leaders throttle, partition:broker, or * for all.",
    "listeners": "Endpoints of this node: CONTROLLER (controllers) or PEER (brokers) for nodes, GRPC for clients.",
    "log.dir.failure.timeout.ms": "Time that a broker tries to report a failed log directory before it stops.",
    "log.dirs": "Directories for partition data, separated by commas.",
    "log.retention.check.interval.ms": "Time between two searches for segments to delete.",
    "log.segment.bytes": "Size at which a segment ends and the next begins.",
    "log.segment.delete.delay.ms": "Time between renaming deleted files and removing them.",
    "metadata.log.dir": "Directory of the metadata log and its snapshots.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes of new records after which a node writes a snapshot.",
    "metadata.log.max.snapshot.interval.ms": "Time after which a node with new records writes a snapshot; 0 for no limit.",
    "metadata.max.idle.interval.ms": "Time after which an idle leader appends a NoOp record; 0 for never.",
    "min.insync.replicas": "Replicas that must have a record before it counts as committed.",
    "node.id": "Id of this node, unique among controllers and brokers.",
    "num.partitions": "Partitions of a topic that is created without a number.",
    "num.replica.alter.log.dirs.threads": "Moves between log directories at a time; default: the number of log directories.",
    "process.roles": "Role of this process: controller or broker.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes per second that this broker copies between its own directories.",
    "replica.fetch.max.bytes": "Bytes per partition in an answer to a follower's Fetch.",
    "replica.fetch.min.bytes": "Bytes that a leader waits for before it answers a follower's Fetch.",
    "replica.fetch.response.max.bytes": "Bytes in an answer to a follower's Fetch, all partitions together.",
    "replica.fetch.wait.max.ms": "Time that a leader waits for replica.fetch.min.bytes.",
    "replica.high.watermark.checkpoint.interval.ms": "Time between two writes of the high watermarks to disk.",
    "replica.lag.time.max.ms": "Time after which a follower that has not caught up leaves the in-sync set.",
    "retention.bytes": "Size of a partition beyond which old segments are deleted; -1 for no limit.",
    "retention.ms": "Age beyond which segments are deleted; -1 for no limit.",
    "segment.bytes": "Size at which a segment ends and the next begins.",
    "unclean.leader.election.enable": "Lets a replica that is not in sync lead when no other is left. Loses data.",
    "unclean.leader.election.interval.ms": "Time between two searches for partitions that need an unclean election.",
}


class ConfigKey(msgspec.Struct, frozen=True):
    """One key. `minimum`, `maximum` bound numbers; `choices` bounds a string, or each item of a list; `synonym` is the name in
    server.properties of a topic's or group's key.

    Broker keys: `dynamic`: a broker takes a new value without a restart. `per_broker`: there is no default for the whole
    cluster. `needs_listener`: the key can change for one listener only (`listener.name.NAME.KEY`). `hidden`: the key is
    described only if it is set.
    """

    name: str
    type: ConfigType
    default: str | None
    synonym: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = True
    replica_list: bool = False
    per_broker: bool = False
    needs_listener: bool = False
    hidden: bool = False

    @property
    def documentation(self) -> str | None:
        return _DOCUMENTATION.get(self.name)

    @property
    def is_list(self) -> bool:
        return self.type is ConfigType.LIST

    @property
    def is_sensitive(self) -> bool:
        """True if its value is never shown."""
        return self.type is ConfigType.PASSWORD

    def fault(self, value: str) -> str | None:
        """Reason why `value` is not valid, with Kafka's text; None if it is."""
        reason = self._fault_of_type(value)
        return None if reason is None else f"Invalid value {self._shown(value)} for configuration {self.name}: {reason}"

    def _shown(self, value: str) -> str:
        """Part of an invalid value that a refusal quotes: of a list of choices the first invalid item."""
        if self.is_sensitive:
            return "[hidden]"
        if self.replica_list:
            return "[" + ", ".join(split_list(value)) + "]"
        if self.is_list:
            return next((item for item in split_list(value) if item not in self.choices), value)
        return value

    def normal(self, value: str) -> str:
        """Normal form of a valid value."""
        match self.type:
            case ConfigType.BOOLEAN:
                return value.strip().lower()
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return str(int(value))
            case ConfigType.DOUBLE:
                return str(float(value))
            case ConfigType.LIST:
                return ",".join(split_list(value))
            case _:
                return value

    def _fault_of_type(self, value: str) -> str | None:
        match self.type:
            case ConfigType.BOOLEAN:
                return None if value.strip().lower() in ("true", "false") else "Expected value to be either true or false"
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                text = value.strip()
                limit = 1 << _INTEGER_BITS[self.type]
                if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
                    return f"Not a number of type {self.type.value}"
                return self._fault_of_range(int(text))
            case ConfigType.DOUBLE:
                if not value.isascii() or "_" in value:  # Python alone takes these as numbers
                    return "Not a number of type DOUBLE"
                try:
                    return self._fault_of_range(float(value))
                except ValueError:
                    return "Not a number of type DOUBLE"
            case ConfigType.STRING:
                return self._fault_of_choice((value,))
            case ConfigType.LIST:
                items = split_list(value)
                return self._fault_of_replicas(items) if self.replica_list else self._fault_of_choice(items)
            case _:
                return None

    def _fault_of_range(self, number: float) -> str | None:
        if self.minimum is not None and not number >= self.minimum:
            return f"Value must be at least {_number(self.minimum)}"
        if self.maximum is not None and not number <= self.maximum:
            return f"Value must be no more than {_number(self.maximum)}"
        return None

    def _fault_of_choice(self, items: Iterable[str]) -> str | None:
        if self.choices and any(item not in self.choices for item in items):
            return "String must be one of: " + ", ".join(self.choices)
        return None

    def _fault_of_replicas(self, items: tuple[str, ...]) -> str | None:
        if items in ((), ("*",)) or all(_THROTTLED_REPLICAS.fullmatch(item) for item in items):
            return None
        return (
            f"{self.name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def split_list(value: str) -> tuple[str, ...]:
    """Items of a LIST value: separated by commas, without surrounding blanks; "" is the empty list."""
    return tuple(item.strip() for item in value.split(",")) if value.strip() else ()
