"""Configuration keys of topics, brokers, groups and client metrics, as in Kafka: name, type, default, valid values.

A topic key has a broker-wide synonym (`retention.ms` ↔ `log.retention.ms`) with the default of all topics. Broker keys are
`dynamic` or need a restart. An unknown key is refused. Texts of
refusals are Kafka's. Check a value before storing it, with `validate_topic_value`, `validate_broker_value`,
`validate_group_values` or `validate_client_metrics`: they return None or the refusal's text. `unused_keys` has the keys that
nothing acts on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from .config_key import ConfigKey, ConfigType, split_list
from .resources import ResourceType
from .security_keys import MECHANISMS, OF_MECHANISMS, PEER_KEYS, SASL_KEYS, TLS_KEYS
from .unused_keys import dynamic_fault, unused_fault

_B, _I, _SHORT, _L, _D, _S, _LIST, _CLASS, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
)
_MAX_LONG = str((1 << 63) - 1)
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


TOPIC_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("cleanup.policy", _LIST, "delete", "log.cleanup.policy", choices=("compact", "delete")),
        ConfigKey("compression.gzip.level", _I, "-1", "compression.gzip.level", minimum=-1, maximum=9),
        ConfigKey("compression.lz4.level", _I, "9", "compression.lz4.level", minimum=1, maximum=17),
        ConfigKey("compression.type", _S, "producer", "compression.type", choices=_CODECS),
        ConfigKey("compression.zstd.level", _I, "3", "compression.zstd.level", minimum=-131072, maximum=22),
        ConfigKey("delete.retention.ms", _L, "86400000", "log.cleaner.delete.retention.ms", minimum=0),
        ConfigKey("file.delete.delay.ms", _L, "60000", "log.segment.delete.delay.ms", minimum=0),
        ConfigKey("flush.messages", _L, _MAX_LONG, "log.flush.interval.messages", minimum=1),
        ConfigKey("flush.ms", _L, _MAX_LONG, "log.flush.interval.ms", minimum=0),
        ConfigKey("follower.replication.throttled.replicas", _LIST, "", replica_list=True),
        ConfigKey("index.interval.bytes", _I, "4096", "log.index.interval.bytes", minimum=0),
        ConfigKey("leader.replication.throttled.replicas", _LIST, "", replica_list=True),
        ConfigKey("local.retention.bytes", _L, "-2", "log.local.retention.bytes", minimum=-2),
        ConfigKey("local.retention.ms", _L, "-2", "log.local.retention.ms", minimum=-2),
        ConfigKey("max.compaction.lag.ms", _L, _MAX_LONG, "log.cleaner.max.compaction.lag.ms", minimum=1),
        ConfigKey("max.message.bytes", _I, "1048588", "message.max.bytes", minimum=0),
        ConfigKey("message.timestamp.after.max.ms", _L, "3600000", "log.message.timestamp.after.max.ms", minimum=0),
        ConfigKey("message.timestamp.before.max.ms", _L, _MAX_LONG, "log.message.timestamp.before.max.ms", minimum=0),
        ConfigKey(
            "message.timestamp.type", _S, "CreateTime", "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime")
        ),
        ConfigKey("min.cleanable.dirty.ratio", _D, "0.5", "log.cleaner.min.cleanable.ratio", minimum=0, maximum=1),
        ConfigKey("min.compaction.lag.ms", _L, "0", "log.cleaner.min.compaction.lag.ms", minimum=0),
        ConfigKey("min.insync.replicas", _I, "1", "min.insync.replicas", minimum=1),
        ConfigKey("preallocate", _B, "false", "log.preallocate"),
        ConfigKey("remote.log.copy.disable", _B, "false"),
        ConfigKey("remote.log.delete.on.disable", _B, "false"),
        ConfigKey("remote.storage.enable", _B, "false"),
        ConfigKey("retention.bytes", _L, "-1", "log.retention.bytes"),
        ConfigKey("retention.ms", _L, "604800000", "log.retention.ms", minimum=-1),
        ConfigKey("segment.bytes", _I, "1073741824", "log.segment.bytes", minimum=1048576),
        ConfigKey("segment.index.bytes", _I, "10485760", "log.index.size.max.bytes", minimum=4),
        ConfigKey("segment.jitter.ms", _L, "0", "log.roll.jitter.ms", minimum=0),
        ConfigKey("segment.ms", _L, "604800000", "log.roll.ms", minimum=1),
        ConfigKey("unclean.leader.election.enable", _B, "false", "unclean.leader.election.enable"),
    )
}


_broker = partial(ConfigKey, dynamic=False)
_NO_LIMIT = _MAX_LONG

# Keys without a topic key; `_all_broker_keys` adds the broker-wide synonyms of topic keys.
_OWN_BROKER_KEYS = (
    _broker("advertised.listeners", _LIST, None),
    _broker("allow.everyone.if.no.acl.found", _B, "false"),
    _broker("alter.config.policy.class.name", _CLASS, None),
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
    _broker("controller.quota.window.num", _I, "11", minimum=1),
    _broker("controller.quota.window.size.seconds", _I, "1", minimum=1),
    _broker("cordoned.log.dirs", _LIST, "", dynamic=True, per_broker=True),
    _broker("create.topic.policy.class.name", _CLASS, None),
    _broker("default.replication.factor", _I, "1", minimum=1),
    _broker("delete.topic.enable", _B, "true"),
    _broker("follower.replication.throttled.rate", _L, _NO_LIMIT, minimum=0, dynamic=True, hidden=True),
    _broker("group.consumer.heartbeat.interval.ms", _I, "5000", minimum=1),
    _broker("group.consumer.max.heartbeat.interval.ms", _I, "15000", minimum=1),
    _broker("group.consumer.max.session.timeout.ms", _I, "60000", minimum=1),
    _broker("group.consumer.min.heartbeat.interval.ms", _I, "5000", minimum=1),
    _broker("group.consumer.min.session.timeout.ms", _I, "45000", minimum=1),
    _broker("group.consumer.session.timeout.ms", _I, "45000", minimum=1),
    _broker("group.initial.rebalance.delay.ms", _I, "3000", minimum=0),
    _broker("group.max.session.timeout.ms", _I, "1800000", minimum=1),
    _broker("group.max.size", _I, "2147483647", minimum=1),
    _broker("group.min.session.timeout.ms", _I, "6000", minimum=1),
    _broker("group.share.heartbeat.interval.ms", _I, "5000", minimum=1),
    _broker("group.share.max.heartbeat.interval.ms", _I, "15000", minimum=1),
    _broker("group.share.max.record.lock.duration.ms", _I, "60000", minimum=30000, maximum=3600000),
    _broker("group.share.max.session.timeout.ms", _I, "60000", minimum=1),
    _broker("group.share.min.heartbeat.interval.ms", _I, "5000", minimum=1),
    _broker("group.share.min.record.lock.duration.ms", _I, "15000", minimum=1000, maximum=30000),
    _broker("group.share.min.session.timeout.ms", _I, "45000", minimum=1),
    _broker("group.share.record.lock.duration.ms", _I, "30000", minimum=1000, maximum=3600000),
    _broker("group.share.session.timeout.ms", _I, "45000", minimum=1),
    _broker("group.streams.heartbeat.interval.ms", _I, "5000", minimum=1),
    _broker("group.streams.initial.rebalance.delay.ms", _I, "3000", minimum=0),
    _broker("group.streams.max.heartbeat.interval.ms", _I, "15000", minimum=1),
    _broker("group.streams.max.session.timeout.ms", _I, "60000", minimum=1),
    _broker("group.streams.max.standby.replicas", _I, "2", minimum=0),
    _broker("group.streams.min.heartbeat.interval.ms", _I, "5000", minimum=1),
    _broker("group.streams.min.session.timeout.ms", _I, "45000", minimum=1),
    _broker("group.streams.num.standby.replicas", _I, "0", minimum=0),
    _broker("group.streams.session.timeout.ms", _I, "45000", minimum=1),
    _broker("initial.broker.registration.timeout.ms", _I, "60000", minimum=1),
    _broker("inter.broker.listener.name", _S, None),
    _broker("intra.broker.throttled.rate", _L, None, minimum=0, dynamic=True, hidden=True),
    _broker("kraftlab.trace.file", _S, None),
    _broker("leader.imbalance.check.interval.seconds", _L, "300", minimum=1),
    _broker("leader.replication.throttled.rate", _L, _NO_LIMIT, minimum=0, dynamic=True, hidden=True),
    _broker("listener.name.grpc.users", _PASSWORD, None),
    _broker("listener.security.protocol.map", _S, None, dynamic=True, per_broker=True),
    _broker("listeners", _LIST, "PLAINTEXT://:9092", dynamic=True, per_broker=True),
    _broker("log.cleaner.backoff.ms", _L, "15000", minimum=0, dynamic=True),
    _broker("log.cleaner.dedupe.buffer.size", _L, "134217728", dynamic=True),
    _broker("log.cleaner.enable", _B, "true"),
    _broker("log.cleaner.io.buffer.load.factor", _D, "0.9", dynamic=True),
    _broker("log.cleaner.io.buffer.size", _I, "524288", minimum=0, dynamic=True),
    _broker("log.cleaner.io.max.bytes.per.second", _D, "1.7976931348623157E308", dynamic=True),
    _broker("log.cleaner.threads", _I, "1", minimum=0, dynamic=True),
    _broker("log.dir", _S, "/tmp/kafka-logs"),
    _broker("log.dir.failure.timeout.ms", _L, "30000", minimum=1),
    _broker("log.dirs", _LIST, None),
    _broker("log.file", _S, None),
    _broker("log.flush.interval.ms", _L, None, minimum=0, dynamic=True),
    _broker("log.flush.offset.checkpoint.interval.ms", _I, "60000", minimum=0),
    _broker("log.flush.scheduler.interval.ms", _L, _MAX_LONG),
    _broker("log.flush.start.offset.checkpoint.interval.ms", _I, "60000", minimum=0),
    _broker("log.format", _S, "text", choices=("text", "json")),
    _broker("log.retention.check.interval.ms", _L, "300000", minimum=1),
    _broker("log.retention.hours", _I, "168"),
    _broker("log.retention.minutes", _I, None),
    _broker("log.retention.ms", _L, None, minimum=-1, dynamic=True),
    _broker("log.roll.hours", _I, "168", minimum=1),
    _broker("log.roll.jitter.hours", _I, "0", minimum=0),
    _broker("log.roll.jitter.ms", _L, None, minimum=0, dynamic=True),
    _broker("log.roll.ms", _L, None, minimum=1, dynamic=True),
    _broker("max.connection.creation.rate", _I, "2147483647", minimum=0, dynamic=True),
    _broker("max.connections", _I, "2147483647", minimum=0, dynamic=True),
    _broker("max.connections.per.ip", _I, "2147483647", minimum=0, dynamic=True),
    _broker("max.connections.per.ip.overrides", _S, "", dynamic=True, host_limits=True),
    _broker("metadata.log.dir", _S, None),
    _broker("metadata.log.max.record.bytes.between.snapshots", _L, "20971520", minimum=1),
    _broker("metadata.log.max.snapshot.interval.ms", _L, "3600000", minimum=0),
    _broker("metadata.log.segment.bytes", _I, "1073741824", minimum=12),
    _broker("metadata.max.idle.interval.ms", _I, "500", minimum=0),
    _broker("metric.reporters", _LIST, "org.apache.kafka.common.metrics.JmxReporter", dynamic=True),
    _broker("metrics.partitions", _S, "full", choices=("full", "topics", "off")),
    _broker("node.id", _I, None, minimum=0),
    _broker("num.io.threads", _I, "8", minimum=1, dynamic=True),
    _broker("num.network.threads", _I, "3", minimum=1, dynamic=True),
    _broker("num.partitions", _I, "1", minimum=1),
    _broker("num.recovery.threads.per.data.dir", _I, "2", minimum=1, dynamic=True),
    _broker("num.replica.alter.log.dirs.threads", _I, None, minimum=1),
    _broker("num.replica.fetchers", _I, "1", minimum=1, dynamic=True),
    _broker("offset.metadata.max.bytes", _I, "4096", minimum=0),
    _broker("offsets.retention.check.interval.ms", _L, "600000", minimum=1),
    _broker("offsets.retention.minutes", _I, "10080", minimum=1),
    _broker("offsets.topic.num.partitions", _I, "50", minimum=1),
    _broker("offsets.topic.replication.factor", _SHORT, "3", minimum=1),
    _broker("offsets.topic.segment.bytes", _I, "104857600", minimum=1048576),
    _broker("process.roles", _LIST, ""),
    _broker("producer.id.expiration.ms", _I, "86400000", minimum=1, dynamic=True),
    _broker("queued.max.requests", _I, "500", minimum=1),
    _broker("quota.window.num", _I, "11", minimum=1),
    _broker("quota.window.size.seconds", _I, "1", minimum=1),
    _broker("reassignment.max.moves.per.broker", _I, "10", minimum=0, dynamic=True),
    _broker("reassignment.max.moves.per.cluster", _I, "1250", minimum=0, dynamic=True),
    _broker("reassignment.plans.kept", _I, "20", minimum=0, maximum=1000, dynamic=True),
    ConfigKey("reassignment.queue.order", _S, "fifo", choices=("fifo", "smallest-first", "largest-first")),
    _broker("reassignment.replication.factor.change.enable", _B, "true", dynamic=True),
    _broker("replica.alter.log.dirs.io.max.bytes.per.second", _L, _NO_LIMIT, minimum=0, dynamic=True, hidden=True),
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
    _broker("transaction.partition.verification.enable", _B, "true", dynamic=True),
    _broker("transaction.state.log.min.isr", _I, "2", minimum=1),
    _broker("transaction.state.log.num.partitions", _I, "50", minimum=1),
    _broker("transaction.state.log.replication.factor", _SHORT, "3", minimum=1),
    _broker("unclean.leader.election.interval.ms", _L, "300000", minimum=1),
    *PEER_KEYS,
    *TLS_KEYS,
    *SASL_KEYS,
)


def _all_broker_keys() -> dict[str, ConfigKey]:
    keys = {key.name: key for key in _OWN_BROKER_KEYS}
    for key in TOPIC_KEYS.values():
        if key.synonym is not None and key.synonym not in keys:
            keys[key.synonym] = msgspec.structs.replace(key, name=key.synonym, synonym=None)
    return keys


BROKER_KEYS: dict[str, ConfigKey] = _all_broker_keys()


def validate_topic_value(name: str, value: str) -> str | None:
    """Refusal of a dynamic topic value (INVALID_CONFIG), or None."""
    key = TOPIC_KEYS.get(name)
    return f"Unknown topic config name: {name}" if key is None else key.fault(value) or unused_fault(key, value)


def validate_broker_value(name: str, value: str) -> str | None:
    """Refusal of a dynamic broker value as in Kafka (INVALID_REQUEST), or None."""
    key = broker_key(name)
    if key is None:
        return None
    if not key.dynamic:
        return f"Cannot update these configs dynamically: [{name}]"
    if key.needs_listener and name == key.name:
        return f"These security configs can be dynamically updated only per-listener using the listener prefix: [{name}]"
    return key.fault(value)


def ineffective_broker_value(name: str, value: str, *, is_for_all: bool) -> str | None:
    """Refusal of a valid dynamic broker value that nothing would act on (INVALID_CONFIG), or None. `is_for_all`: the value is not
    that of a single broker.
    """
    key = broker_key(name)
    if key is None:
        near = difflib.get_close_matches(name, BROKER_KEYS, n=1)
        return f"Unknown broker config name: {name}" + (f"; did you mean {near[0]}?" if near else "")
    return unused_fault(key, value) or dynamic_fault(key, name, is_for_all=is_for_all)


_MECHANISM = "|".join(map(str.lower, MECHANISMS))
_LISTENER_KEY = re.compile(rf"listener\.name\.(?P<listener>[^.]+)\.((?P<mechanism>{_MECHANISM})\.)?(?P<key>.+)")


class ListenerKey(NamedTuple):
    """A key of one listener, and perhaps of one mechanism, in lower case."""

    listener: str
    mechanism: str | None
    key: ConfigKey


def listener_key(name: str) -> ListenerKey | None:
    """Parse `listener.name.NAME.KEY` or `listener.name.NAME.MECHANISM.KEY`. None for any other name. `unused_keys` refuses keys
    that all listeners share.
    """
    match = _LISTENER_KEY.fullmatch(name)
    key = None if match is None else BROKER_KEYS.get(match["key"])
    if match is None or key is None or (match["mechanism"] is not None and key.name not in OF_MECHANISMS):
        return None
    return ListenerKey(match["listener"], match["mechanism"], key)


def broker_key(name: str) -> ConfigKey | None:
    """Definition of a broker key, also of one listener's. None if it is unknown."""
    found = BROKER_KEYS.get(name)
    of_listener = listener_key(name) if found is None else None
    return found if of_listener is None else of_listener.key


def known_key(resource_type: int, name: str) -> ConfigKey | None:
    """Definition of a key of that resource type. None if it is unknown."""
    if resource_type == ResourceType.BROKER:
        return broker_key(name)
    return _KEYS_OF.get(resource_type, {}).get(name)


# --- groups ------------------------------------------------------------------------------------------------------------------


GROUP_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("consumer.heartbeat.interval.ms", _I, "5000", "group.consumer.heartbeat.interval.ms", minimum=1),
        ConfigKey("consumer.session.timeout.ms", _I, "45000", "group.consumer.session.timeout.ms", minimum=1),
        ConfigKey("share.auto.offset.reset", _S, "latest"),
        ConfigKey("share.heartbeat.interval.ms", _I, "5000", "group.share.heartbeat.interval.ms", minimum=1),
        ConfigKey("share.isolation.level", _S, "read_uncommitted", choices=("read_committed", "read_uncommitted")),
        ConfigKey("share.record.lock.duration.ms", _I, "30000", "group.share.record.lock.duration.ms", minimum=1000),
        ConfigKey("share.session.timeout.ms", _I, "45000", "group.share.session.timeout.ms", minimum=1),
        ConfigKey("streams.heartbeat.interval.ms", _I, "5000", "group.streams.heartbeat.interval.ms", minimum=1),
        ConfigKey("streams.initial.rebalance.delay.ms", _I, "3000", "group.streams.initial.rebalance.delay.ms", minimum=0),
        ConfigKey("streams.num.standby.replicas", _I, "0", "group.streams.num.standby.replicas", minimum=0),
        ConfigKey("streams.session.timeout.ms", _I, "45000", "group.streams.session.timeout.ms", minimum=1),
    )
}
_GROUP_BOUNDS: dict[str, tuple[str | None, str]] = {
    f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    for kind in ("consumer", "share", "streams")
    for what in ("session.timeout.ms", "heartbeat.interval.ms")
} | {
    "share.record.lock.duration.ms": ("group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}
"""Group key → broker keys that bound it from below and above."""


def validate_group_values(values: Mapping[str, str], static: Mapping[str, str]) -> str | None:
    """Refusal of a group's dynamic values, or None. `static`: the server.properties that bound them."""
    for name, value in values.items():
        key = GROUP_KEYS.get(name)
        fault = f"Unknown group config name: {name}" if key is None else key.fault(value)
        if fault is not None:
            return fault
    for name, (lowest, highest) in _GROUP_BOUNDS.items():
        if name not in values:
            continue
        if lowest is not None and int(values[name]) < _static_number(lowest, static):
            return f"{name} must be greater than or equal to {lowest}"
        if int(values[name]) > _static_number(highest, static):
            return f"{name} must be less than or equal to {highest}"
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if not _group_number(heartbeat, values, static) < _group_number(session, values, static):
            return f"{heartbeat} must be less than {session}"
    return None


def _static_number(name: str, static: Mapping[str, str]) -> int:
    return int(static.get(name) or BROKER_KEYS[name].default or 0)


def _group_number(name: str, values: Mapping[str, str], static: Mapping[str, str]) -> int:
    return int(values[name]) if name in values else _static_number(f"group.{name}", static)


# --- client metrics (KIP-714) ------------------------------------------------------------------------------------------------

CLIENT_METRICS_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("interval.ms", _I, "300000"),
        ConfigKey("match", _LIST, ""),
        ConfigKey("metrics", _LIST, ""),
    )
}
_KEYS_OF: Mapping[int, Mapping[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}

_MATCH_PARAMETERS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_INTERVALS_MS = range(100, 3_600_001)


def validate_client_metrics(name: str, value: str) -> str | None:
    """Refusal of one value of a client metrics subscription, or None. The key is known."""
    fault = CLIENT_METRICS_KEYS[name].fault(value)
    if fault is not None:
        return fault
    if name == "interval.ms" and int(value) not in _INTERVALS_MS:
        return f"Invalid value {int(value)} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
    for pattern in split_list(value) if name == "match" else ():
        parameter, _, expression = pattern.partition("=")
        if parameter.strip() not in _MATCH_PARAMETERS or not expression or not _is_expression(expression.strip()):
            return f"Illegal client matching pattern: {pattern}"
    return None


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True
