"""What topics and brokers are configured to, as the metadata and this broker's file say: throttles, min.insync.replicas, log
limits.

A broker's value comes from its own dynamic config, else the cluster's dynamic default, else its file, else the default. A
topic's comes from its dynamic config, else the broker's synonym in that order, else the default. Rates at or over 2^63 - 1
mean no limit, as Kafka's default says.
"""

from __future__ import annotations

from kraftlab.config.models import BrokerConfig
from kraftlab.config.topic_configs import TOPIC_KEYS
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC

from .byte_gate import ByteGate
from .log.partition_log import LogConfig
from .metadata_publisher import Publication
from .throttle import NOTHING_THROTTLED, ThrottledReplicas

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
NO_LIMIT = (1 << 63) - 1


class DynamicConfigs:
    """The configs as of the newest image, and the three throttles that follow them."""

    def __init__(self, config: BrokerConfig) -> None:
        self.leader_gate = ByteGate()
        self.follower_gate = ByteGate()
        self.move_gate = ByteGate()
        self._config = config
        self._image = MetadataImage()
        self._throttled: dict[str, ThrottledReplicas] = {"": NOTHING_THROTTLED}
        self._set_rates()

    def update(self, publication: Publication) -> None:
        self._image = publication.after
        if publication.changes.configs:
            self._throttled = {"": NOTHING_THROTTLED}
            self._set_rates()

    def broker(self, name: str) -> str | None:
        """The broker's value of a key, None if nothing sets it."""
        own = self._image.config(RESOURCE_BROKER, str(self._config.node_id), name)
        if own is not None:
            return own
        default = self._image.config(RESOURCE_BROKER, "", name)
        return default if default is not None else self._config.static(name)

    def topic(self, topic: str, name: str) -> str:
        """The topic's value of a topic key, at last the default."""
        value = self._image.config(RESOURCE_TOPIC, topic, name)
        if value is not None:
            return value
        key = TOPIC_KEYS[name]
        inherited = self.broker(key.synonym) if key.synonym is not None else None
        return inherited if inherited is not None else key.default or ""

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.topic(topic, "min.insync.replicas"))

    def log_config(self, topic: str) -> LogConfig:
        return LogConfig(
            segment_bytes=int(self.topic(topic, "segment.bytes")),
            retention_bytes=int(self.topic(topic, "retention.bytes")),
            retention_ms=int(self.topic(topic, "retention.ms")),
        )

    def leader_throttled(self, topic: str) -> ThrottledReplicas:
        return self._replicas(self.topic(topic, LEADER_REPLICAS))

    def follower_throttled(self, topic: str) -> ThrottledReplicas:
        return self._replicas(self.topic(topic, FOLLOWER_REPLICAS))

    def _replicas(self, text: str) -> ThrottledReplicas:
        parsed = self._throttled.get(text)
        if parsed is None:
            parsed = self._throttled[text] = ThrottledReplicas.parse(text)
        return parsed

    def _set_rates(self) -> None:
        for name, gate in ((LEADER_RATE, self.leader_gate), (FOLLOWER_RATE, self.follower_gate), (MOVE_RATE, self.move_gate)):
            value = self.broker(name)
            rate = int(value) if value is not None else NO_LIMIT
            gate.set_rate(float(rate) if rate < NO_LIMIT else None)
