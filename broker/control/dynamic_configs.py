"""Effective configs of topics and of this broker: throttles, min.insync.replicas, log limits.

A broker's value comes from its own dynamic config, otherwise from the cluster's dynamic default, its file, or the default. A
topic's value comes from its dynamic config, otherwise from the broker's synonym in that order, or the default. A rate of 2^63 - 1
or more means no limit, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kraftlab.config.config_key import split_list
from kraftlab.config.effective import BrokerValues, topic_text
from kraftlab.config.models import BrokerConfig
from kraftlab.config.throttled_replicas import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    MOVE_RATE,
    NO_LIMIT,
    NOTHING_THROTTLED,
    ThrottledReplicas,
)
from kraftlab.metadata import eligible_leaders
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC

from ..log.log_config import LogConfig
from ..replication.byte_gate import ByteGate
from .metadata_publisher import Publication

_NOTHING: Mapping[str, str] = {}


class DynamicConfigs:
    """Configs as of the newest image, and the three throttles that follow them."""

    def __init__(self, config: BrokerConfig) -> None:
        self.leader_gate = ByteGate()
        self.follower_gate = ByteGate()
        self.move_gate = ByteGate()
        self._config = config
        self._image = MetadataImage()
        self._throttled: dict[str, ThrottledReplicas] = {"": NOTHING_THROTTLED}
        self._log_configs: dict[str, LogConfig] = {}
        """Settings of the logs of topics with their own configs; "" is those of all others."""
        self._set_rates()

    def update(self, publication: Publication) -> None:
        self._image = publication.after
        if publication.changes.configs:
            self._throttled = {"": NOTHING_THROTTLED}
            self._log_configs = {}
            self._set_rates()

    def broker(self, name: str) -> str | None:
        """The broker's value of a key, its default if not configured; None if it has no default."""
        return self._values().value(name)

    def topic(self, topic: str, name: str) -> str:
        """The topic's value of a topic key, its default if not configured."""
        return topic_text(name, self._image.config(RESOURCE_TOPIC, topic, name), self._values())

    def _values(self) -> BrokerValues:
        configs = self._image.configs
        return BrokerValues(
            configs.get((RESOURCE_BROKER, str(self._config.node_id)), _NOTHING),
            configs.get((RESOURCE_BROKER, ""), _NOTHING),
            self._config.values,
        )

    def min_insync_replicas(self, topic: str) -> int:
        """The topic's value. With eligible leader replicas, this broker's file does not count."""
        if eligible_leaders.are_on(self._image):
            return eligible_leaders.min_insync_replicas(self._image, topic)
        return int(self.topic(topic, "min.insync.replicas"))

    def deletes(self, topic: str) -> bool:
        """Return True if records of the topic are deleted, by retention or on request."""
        return "delete" in split_list(self.topic(topic, "cleanup.policy"))

    def log_config(self, topic: str) -> LogConfig:
        """Settings of the topic's logs. Topics without their own configs share one object."""
        name = topic if self._image.configs.get((RESOURCE_TOPIC, topic)) else ""
        found = self._log_configs.get(name)
        if found is None:
            found = self._log_configs[name] = LogConfig.of(partial(self.topic, topic))
        return found

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
