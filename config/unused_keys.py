"""Keys of Kafka's that nothing in kraftlab acts on, and places in which a key has no effect.

Files and topic configs written for Kafka repeat many defaults, and such a line asks for nothing. So an unused key accepts its
default. Any other value would be accepted and ignored: it is refused by name, with the reason. Some keys act only in one place:
those of `ONLY_IN_FILES` cannot change while a node runs, those of `ONLY_FOR_ALL` not for a single node.

A test walks the tables: each key is refused here, or a test sees its effect.
"""

from __future__ import annotations

from .config_key import ConfigKey
from .security_keys import OF_LISTENERS

_NO_GROUPS = "kraftlab has classic consumer groups only, whose members choose their timeouts"
_NO_SHARE_GROUPS = "kraftlab has no share groups"
_NO_STREAMS = "kraftlab has no streams groups"
_NO_TRANSACTIONS = "kraftlab has no transactions yet"
_NO_TIERS = "kraftlab has no remote storage; all segments are local"
_TOGETHER = "all offsets of a directory are written every replica.high.watermark.checkpoint.interval.ms"
_ONE_LOOP = "a kraftlab node serves all connections on one event loop"
_NO_LIMIT = "kraftlab does not limit the rate of new connections"
_NO_WINDOWS = "kraftlab has no client quotas on bytes or requests; only controller.quota.window.* has an effect"
_QUORUM_FIXED = "this wait of the quorum is fixed"

_GROUP_KEYS = (
    "heartbeat.interval.ms",
    "max.heartbeat.interval.ms",
    "max.session.timeout.ms",
    "min.heartbeat.interval.ms",
    "min.session.timeout.ms",
    "session.timeout.ms",
)

UNUSED: dict[str, str] = {
    "background.threads": _ONE_LOOP,
    "compression.lz4.level": "the library that compresses blocks of lz4 has one level",
    **{f"group.consumer.{name}": _NO_GROUPS for name in _GROUP_KEYS},
    **{f"group.share.{name}": _NO_SHARE_GROUPS for name in _GROUP_KEYS},
    **{f"group.share.{bound}record.lock.duration.ms": _NO_SHARE_GROUPS for bound in ("", "min.", "max.")},
    **{f"group.streams.{name}": _NO_STREAMS for name in _GROUP_KEYS},
    "group.streams.initial.rebalance.delay.ms": _NO_STREAMS,
    "group.streams.max.standby.replicas": _NO_STREAMS,
    "group.streams.num.standby.replicas": _NO_STREAMS,
    "controller.quorum.append.linger.ms": "the controller flushes the metadata log as soon as the disk is free",
    "controller.quorum.election.backoff.max.ms": _QUORUM_FIXED,
    "controller.quorum.request.timeout.ms": _QUORUM_FIXED,
    "controller.quorum.retry.backoff.ms": _QUORUM_FIXED,
    "local.retention.bytes": _NO_TIERS,
    "local.retention.ms": _NO_TIERS,
    "log.flush.offset.checkpoint.interval.ms": _TOGETHER,
    "log.flush.start.offset.checkpoint.interval.ms": _TOGETHER,
    "log.local.retention.bytes": _NO_TIERS,
    "log.local.retention.ms": _NO_TIERS,
    "remote.log.copy.disable": _NO_TIERS,
    "remote.log.delete.on.disable": _NO_TIERS,
    "remote.storage.enable": _NO_TIERS,
    "log.preallocate": "kraftlab does not preallocate segments",
    "preallocate": "kraftlab does not preallocate segments",
    "max.connection.creation.rate": _NO_LIMIT,
    "metadata.log.segment.bytes": "segments of the metadata log have a fixed size",
    "metric.reporters": "kraftlab loads no metric reporters",
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "queued.max.requests": _ONE_LOOP,
    "quota.window.num": _NO_WINDOWS,
    "quota.window.size.seconds": _NO_WINDOWS,
    "socket.receive.buffer.bytes": "the operating system sizes the buffers of sockets",
    "socket.send.buffer.bytes": "the operating system sizes the buffers of sockets",
    "sasl.server.callback.handler.class": "tokens are checked with the keys of sasl.oauthbearer.jwks.endpoint.url",
    "transaction.partition.verification.enable": _NO_TRANSACTIONS,
    "transaction.state.log.min.isr": _NO_TRANSACTIONS,
    "transaction.state.log.num.partitions": _NO_TRANSACTIONS,
    "transaction.state.log.replication.factor": _NO_TRANSACTIONS,
}
"""Name of a topic or broker key → why no other value than the accepted one has an effect."""

READ_AT_START = "listeners read their settings when the node starts (changed certificate files are loaded without a restart)"
ONLY_IN_FILES: dict[str, str] = {
    "listener.security.protocol.map": "listeners open when the node starts",
    "listeners": "listeners open when the node starts",
    "num.recovery.threads.per.data.dir": "log directories are loaded when the broker starts",
}
"""Dynamic keys of Kafka's that a node reads when it starts → reason."""

_BY_CONTROLLER = "the active controller decides for the whole cluster"
ONLY_FOR_ALL: dict[str, str] = {
    "reassignment.max.moves.per.broker": _BY_CONTROLLER,
    "reassignment.max.moves.per.cluster": _BY_CONTROLLER,
    "reassignment.plans.kept": _BY_CONTROLLER,
    "reassignment.queue.order": _BY_CONTROLLER,
    "reassignment.replication.factor.change.enable": _BY_CONTROLLER,
    "unclean.leader.election.enable": _BY_CONTROLLER,
}
"""Keys whose dynamic value has no effect for a single broker → reason."""


def unused_fault(key: ConfigKey, value: str) -> str | None:
    """Refusal of a valid value because nothing acts on the key; None if the key is used, or the value asks for nothing."""
    reason = UNUSED.get(key.name)
    accepted = key.default
    if reason is None or key.normal(value) == (accepted or ""):
        return None
    written = "" if key.is_sensitive else f"={value}"
    advice = "remove it" if accepted is None else f"remove it or set {key.name}={accepted}"
    return f"{key.name}{written} has no effect: {reason}; {advice}"


def shared_by_listeners(name: str) -> str:
    """Reason why a key has no effect for a single listener."""
    return f"all listeners share {name}; set it without the prefix"


def dynamic_fault(key: ConfigKey, name: str, *, is_for_all: bool) -> str | None:
    """Refusal of a dynamic value of a broker key because it has no effect there. `name`: the key as written, perhaps with the
    prefix of a listener; `is_for_all`: the value is the default of all brokers, or of a controller.
    """
    if name != key.name:
        if key.name not in OF_LISTENERS:
            return f"{name} has no effect: {shared_by_listeners(key.name)}"
        return f"{name} cannot change dynamically: {READ_AT_START}; write it into server.properties and restart the node"
    if key.name in ONLY_IN_FILES:
        return f"{name} cannot change dynamically: {ONLY_IN_FILES[name]}; write it into server.properties and restart the node"
    if not is_for_all and key.name in ONLY_FOR_ALL:
        return f"{name} has no effect for one broker: {ONLY_FOR_ALL[name]}; set it as the default of all brokers"
    return None
