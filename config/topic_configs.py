"""The configuration keys of topics and brokers that may change at run time, as Kafka knows them: name, type, default, what is
valid.

A key of a topic has a broker-wide synonym (`retention.ms` ↔ `log.retention.ms`) that gives the default of all topics. Broker
keys are `dynamic` or need a restart; an unknown broker key may be stored, an unknown topic key is refused. Texts of refusals
are Kafka's. Whoever stores a value calls `validate_topic_value` or `validate_broker_value` first; both return None or the
refusal's text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

import msgspec


class ConfigType(enum.Enum):
    """Kafka's types of a configuration value."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"


_INTEGER_BITS = {ConfigType.INT: 31, ConfigType.LONG: 63}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_THROTTLED_REPLICAS = re.compile(r"[0-9]+:[0-9]+")


class ConfigKey(msgspec.Struct, frozen=True):
    """One key. `minimum`, `maximum` bound numbers; `choices` bounds a string, or each item of a list; `synonym` is a topic
    key's name in server.properties; `dynamic` says whether a broker takes a new value without a restart."""

    name: str
    type: ConfigType
    default: str | None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    synonym: str | None = None
    dynamic: bool = True
    replica_list: bool = False

    @property
    def is_list(self) -> bool:
        return self.type is ConfigType.LIST

    def fault(self, value: str) -> str | None:
        """Why `value` is not valid, in Kafka's words; None if it is."""
        reason = self._fault_of_type(value)
        if reason is None:
            return None
        shown = "[" + ", ".join(split_list(value)) + "]" if self.replica_list else value
        return f"Invalid value {shown} for configuration {self.name}: {reason}"

    def _fault_of_type(self, value: str) -> str | None:
        match self.type:
            case ConfigType.BOOLEAN:
                return None if value.strip().lower() in ("true", "false") else "Expected value to be either true or false"
            case ConfigType.INT | ConfigType.LONG:
                text = value.strip()
                limit = 1 << _INTEGER_BITS[self.type]
                if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
                    return f"Not a number of type {self.type.value}"
                return self._fault_of_range(int(text))
            case ConfigType.DOUBLE:
                try:
                    return self._fault_of_range(float(value))
                except ValueError:
                    return "Not a number of type DOUBLE"
            case ConfigType.STRING:
                return self._fault_of_choice((value,))
            case ConfigType.LIST:
                return (
                    self._fault_of_replicas(split_list(value)) if self.replica_list else self._fault_of_choice(split_list(value))
                )

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
    """The items of a LIST value: separated by commas, blanks around them dropped; "" is the empty list."""
    return tuple(item.strip() for item in value.split(",")) if value.strip() else ()


_B, _I, _L, _D, _S, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.STRING,
    ConfigType.LIST,
)
_MAX_LONG = str((1 << 63) - 1)
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _topic(
    name: str,
    type: ConfigType,
    default: str,
    synonym: str | None = None,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    replica_list: bool = False,
) -> ConfigKey:
    return ConfigKey(name, type, default, minimum, maximum, choices, synonym, replica_list=replica_list)


TOPIC_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        _topic("cleanup.policy", _LIST, "delete", "log.cleanup.policy", choices=("compact", "delete")),
        _topic("compression.gzip.level", _I, "-1", "compression.gzip.level", minimum=-1, maximum=9),
        _topic("compression.lz4.level", _I, "9", "compression.lz4.level", minimum=1, maximum=17),
        _topic("compression.type", _S, "producer", "compression.type", choices=_CODECS),
        _topic("compression.zstd.level", _I, "3", "compression.zstd.level", minimum=-131072, maximum=22),
        _topic("delete.retention.ms", _L, "86400000", "log.cleaner.delete.retention.ms", minimum=0),
        _topic("file.delete.delay.ms", _L, "60000", "log.segment.delete.delay.ms", minimum=0),
        _topic("flush.messages", _L, _MAX_LONG, "log.flush.interval.messages", minimum=1),
        _topic("flush.ms", _L, _MAX_LONG, "log.flush.interval.ms", minimum=0),
        _topic("follower.replication.throttled.replicas", _LIST, "", replica_list=True),
        _topic("index.interval.bytes", _I, "4096", "log.index.interval.bytes", minimum=0),
        _topic("leader.replication.throttled.replicas", _LIST, "", replica_list=True),
        _topic("local.retention.bytes", _L, "-2", "log.local.retention.bytes", minimum=-2),
        _topic("local.retention.ms", _L, "-2", "log.local.retention.ms", minimum=-2),
        _topic("max.compaction.lag.ms", _L, _MAX_LONG, "log.cleaner.max.compaction.lag.ms", minimum=1),
        _topic("max.message.bytes", _I, "1048588", "message.max.bytes", minimum=0),
        _topic("message.timestamp.after.max.ms", _L, "3600000", "log.message.timestamp.after.max.ms", minimum=0),
        _topic("message.timestamp.before.max.ms", _L, _MAX_LONG, "log.message.timestamp.before.max.ms", minimum=0),
        _topic("message.timestamp.type", _S, "CreateTime", "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime")),
        _topic("min.cleanable.dirty.ratio", _D, "0.5", "log.cleaner.min.cleanable.ratio", minimum=0, maximum=1),
        _topic("min.compaction.lag.ms", _L, "0", "log.cleaner.min.compaction.lag.ms", minimum=0),
        _topic("min.insync.replicas", _I, "1", "min.insync.replicas", minimum=1),
        _topic("preallocate", _B, "false", "log.preallocate"),
        _topic("remote.log.copy.disable", _B, "false"),
        _topic("remote.log.delete.on.disable", _B, "false"),
        _topic("remote.storage.enable", _B, "false"),
        _topic("retention.bytes", _L, "-1", "log.retention.bytes"),
        _topic("retention.ms", _L, "604800000", "log.retention.ms", minimum=-1),
        _topic("segment.bytes", _I, "1073741824", "log.segment.bytes", minimum=1048576),
        _topic("segment.index.bytes", _I, "10485760", "log.index.size.max.bytes", minimum=4),
        _topic("segment.jitter.ms", _L, "0", "log.roll.jitter.ms", minimum=0),
        _topic("segment.ms", _L, "604800000", "log.roll.ms", minimum=1),
        _topic("unclean.leader.election.enable", _B, "false", "unclean.leader.election.enable"),
    )
}


def _broker(
    name: str,
    type: ConfigType,
    default: str | None,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    dynamic: bool = False,
) -> ConfigKey:
    return ConfigKey(name, type, default, minimum, maximum, dynamic=dynamic)


_NO_LIMIT = _MAX_LONG

# Broker-wide synonyms of topic keys are added below; what stands here has no topic key. Kafka keys that nothing here reads are
# known too, so that an operator's file carries over: their values are checked and kept for DescribeConfigs.
_OWN_BROKER_KEYS = (
    _broker("advertised.listeners", _LIST, None, dynamic=True),
    _broker("allow.everyone.if.no.acl.found", _B, "false"),
    _broker("authorizer.class.name", _S, ""),
    _broker("auto.create.topics.enable", _B, "true"),
    _broker("auto.leader.rebalance.enable", _B, "true"),
    _broker("background.threads", _I, "10", minimum=1, dynamic=True),
    _broker("broker.heartbeat.interval.ms", _I, "2000", minimum=1),
    _broker("broker.id", _I, "-1"),
    _broker("broker.rack", _S, None),
    _broker("broker.session.timeout.ms", _I, "9000", minimum=1),
    _broker("connections.max.idle.ms", _L, "600000"),
    _broker("controlled.shutdown.enable", _B, "true"),
    _broker("controller.listener.names", _LIST, None),
    _broker("controller.quorum.append.linger.ms", _I, "25", minimum=0),
    _broker("controller.quorum.auto.join.enable", _B, "false"),
    _broker("controller.quorum.bootstrap.servers", _LIST, ""),
    _broker("controller.quorum.election.backoff.max.ms", _I, "1000", minimum=0),
    _broker("controller.quorum.election.timeout.ms", _I, "300", minimum=10),
    _broker("controller.quorum.fetch.timeout.ms", _I, "600", minimum=10),
    _broker("controller.quorum.request.timeout.ms", _I, "2000", minimum=1),
    _broker("controller.quorum.retry.backoff.ms", _I, "20", minimum=0),
    _broker("controller.quorum.voters", _LIST, ""),
    _broker("default.replication.factor", _I, "1", minimum=1),
    _broker("delete.topic.enable", _B, "true"),
    _broker("follower.replication.throttled.rate", _L, _NO_LIMIT, minimum=0, dynamic=True),
    _broker("group.initial.rebalance.delay.ms", _I, "3000", minimum=0),
    _broker("initial.broker.registration.timeout.ms", _I, "60000", minimum=1),
    _broker("inter.broker.listener.name", _S, None),
    _broker("kraftlab.trace.file", _S, None),
    _broker("leader.imbalance.check.interval.seconds", _L, "300", minimum=1),
    _broker("leader.replication.throttled.rate", _L, _NO_LIMIT, minimum=0, dynamic=True),
    _broker("listener.name.grpc.users", _S, None),
    _broker("listener.security.protocol.map", _S, None, dynamic=True),
    _broker("listeners", _LIST, None, dynamic=True),
    _broker("log.cleaner.enable", _B, "true"),
    _broker("log.dir", _S, "/tmp/kafka-logs"),
    _broker("log.dir.failure.timeout.ms", _L, "30000", minimum=1),
    _broker("log.dirs", _LIST, None),
    _broker("log.flush.interval.ms", _L, None, minimum=0, dynamic=True),
    _broker("log.flush.offset.checkpoint.interval.ms", _I, "60000", minimum=0),
    _broker("log.flush.scheduler.interval.ms", _L, _MAX_LONG),
    _broker("log.flush.start.offset.checkpoint.interval.ms", _I, "60000", minimum=0),
    _broker("log.retention.check.interval.ms", _L, "300000", minimum=1),
    _broker("log.retention.hours", _I, "168"),
    _broker("log.retention.minutes", _I, None),
    _broker("log.retention.ms", _L, None, minimum=-1, dynamic=True),
    _broker("log.roll.hours", _I, "168", minimum=1),
    _broker("log.roll.jitter.hours", _I, "0", minimum=0),
    _broker("log.roll.jitter.ms", _L, None, minimum=0, dynamic=True),
    _broker("log.roll.ms", _L, None, minimum=1, dynamic=True),
    _broker("metadata.log.dir", _S, None),
    _broker("metadata.log.max.record.bytes.between.snapshots", _L, "20971520", minimum=1),
    _broker("metadata.log.max.snapshot.interval.ms", _L, "3600000", minimum=0),
    _broker("metadata.log.segment.bytes", _I, "1073741824", minimum=12),
    _broker("metadata.max.idle.interval.ms", _I, "500", minimum=0),
    _broker("node.id", _I, None, minimum=0),
    _broker("num.io.threads", _I, "8", minimum=1, dynamic=True),
    _broker("num.network.threads", _I, "3", minimum=1, dynamic=True),
    _broker("num.partitions", _I, "1", minimum=1),
    _broker("num.recovery.threads.per.data.dir", _I, "2", minimum=1, dynamic=True),
    _broker("num.replica.alter.log.dirs.threads", _I, None, minimum=1),
    _broker("num.replica.fetchers", _I, "1", minimum=1, dynamic=True),
    _broker("offsets.topic.num.partitions", _I, "50", minimum=1),
    _broker("offsets.topic.replication.factor", _I, "3", minimum=1),
    _broker("process.roles", _LIST, ""),
    _broker("queued.max.requests", _I, "500", minimum=1),
    _broker("reassignment.max.moves.per.broker", _I, "10", minimum=0, dynamic=True),
    _broker("reassignment.max.moves.per.cluster", _I, "1250", minimum=0, dynamic=True),
    _broker("reassignment.plans.kept", _I, "20", minimum=0, maximum=1000, dynamic=True),
    ConfigKey("reassignment.queue.order", _S, "fifo", choices=("fifo", "smallest-first", "largest-first")),
    _broker("reassignment.replication.factor.change.enable", _B, "true", dynamic=True),
    _broker("replica.alter.log.dirs.io.max.bytes.per.second", _L, _NO_LIMIT, minimum=0, dynamic=True),
    _broker("replica.fetch.backoff.ms", _I, "1000", minimum=0),
    _broker("replica.fetch.max.bytes", _I, "1048576", minimum=0),
    _broker("replica.fetch.min.bytes", _I, "1"),
    _broker("replica.fetch.response.max.bytes", _I, "10485760", minimum=0),
    _broker("replica.fetch.wait.max.ms", _I, "500"),
    _broker("replica.high.watermark.checkpoint.interval.ms", _L, "5000"),
    _broker("replica.lag.time.max.ms", _L, "30000"),
    _broker("replica.socket.timeout.ms", _I, "30000"),
    _broker("socket.receive.buffer.bytes", _I, "102400"),
    _broker("socket.request.max.bytes", _I, "104857600", minimum=1),
    _broker("socket.send.buffer.bytes", _I, "102400"),
    _broker("super.users", _S, ""),
    _broker("transaction.state.log.min.isr", _I, "2", minimum=1),
    _broker("transaction.state.log.num.partitions", _I, "50", minimum=1),
    _broker("transaction.state.log.replication.factor", _I, "3", minimum=1),
    _broker("unclean.leader.election.interval.ms", _L, "300000", minimum=1),
)


def _all_broker_keys() -> dict[str, ConfigKey]:
    keys = {key.name: key for key in _OWN_BROKER_KEYS}
    for key in TOPIC_KEYS.values():
        if key.synonym is not None and key.synonym not in keys:
            keys[key.synonym] = ConfigKey(key.synonym, key.type, key.default, key.minimum, key.maximum, key.choices)
    return keys


BROKER_KEYS: dict[str, ConfigKey] = _all_broker_keys()


def validate_topic_value(name: str, value: str) -> str | None:
    """The refusal for a dynamic topic value (INVALID_CONFIG), or None."""
    key = TOPIC_KEYS.get(name)
    return f"Unknown topic config name: {name}" if key is None else key.fault(value)


def validate_broker_value(name: str, value: str) -> str | None:
    """The refusal for a dynamic broker value (INVALID_REQUEST), or None. Unknown keys may be stored."""
    key = BROKER_KEYS.get(name)
    if key is None:
        return None
    if not key.dynamic:
        return f"Cannot update these configs dynamically: [{name}]"
    return key.fault(value)


def is_list_key(resource_type: int, name: str) -> bool:
    """Whether APPEND and SUBTRACT are allowed for a key of that resource (2 topic, 4 broker)."""
    key = (TOPIC_KEYS if resource_type == 2 else BROKER_KEYS).get(name)
    return key is not None and key.is_list


def topic_default(name: str, static: dict[str, str] | None = None) -> tuple[str | None, bool]:
    """(value, True if it comes from server.properties) of a topic key that no dynamic value sets."""
    key = TOPIC_KEYS[name]
    if static and key.synonym is not None and key.synonym in static:
        return static[key.synonym], True
    return key.default, False
