"""Limits on the copying of running moves, and the time that a copy takes within them.

A replica that is being added is limited by the throttle of its move, and by the dynamic throttles of brokers for replicas that
their topic lists (KIP-73): the follower's rate of its broker, and the leader's rate of the partition's leader. The lowest rate
holds. Rates in a broker's own server.properties are not known here. Replicas under one limit share it, so the time to go is
the time of all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

from kraftlab.config.throttled_replicas import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    NO_LIMIT,
    ThrottledReplicas,
)
from kraftlab.metadata.image import MetadataImage, PartitionImage
from kraftlab.metadata.moves import TopicPartition
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC

from .progress import MoveProgressTable, ReplicaReport


class Limit(NamedTuple):
    """Bytes per second for all copies that have the same `shared_by`."""

    bytes_per_second: int
    shared_by: Hashable


class Limits:
    """Limits of one image, with the bytes that the newest reports still have to copy within each."""

    def __init__(self, image: MetadataImage, table: MoveProgressTable | None, now_ms: int) -> None:
        self._image = image
        self._lists: dict[str, ThrottledReplicas] = {}
        self._bytes_to_go: Counter[Hashable] = Counter()
        if table is not None:
            for key, broker_id, report in table.replicas(now_ms):
                partition = image.topics.partition(*key)
                limit = None if partition is None else self.into(key, partition, broker_id)
                if limit is not None:
                    self._bytes_to_go[limit.shared_by] += max(report.bytes_left, 0)

    def into(self, key: TopicPartition, partition: PartitionImage, broker_id: int) -> Limit | None:
        """Return the limit of copying a partition to a broker, None if there is none."""
        limits: list[Limit] = []
        move = self._image.moves.move(*key)
        if move is not None and move.throttle is not None and broker_id in partition.adding:
            limits.append(Limit(move.throttle, ("move", broker_id, move.request_offset)))
        for replica, list_name, rate_name in (
            (broker_id, FOLLOWER_REPLICAS, FOLLOWER_RATE),
            (partition.leader, LEADER_REPLICAS, LEADER_RATE),
        ):
            rate = self._rate(replica, rate_name)
            if rate < NO_LIMIT and self._list(key, list_name).covers(key[1], replica):
                limits.append(Limit(rate, (rate_name, replica)))
        return min(limits, key=lambda limit: limit.bytes_per_second, default=None)

    def eta_ms(self, report: ReplicaReport, limit: Limit | None) -> int:
        """Return the time until a replica has the rest, -1 if unknown. It is never less than the limit allows."""
        if limit is None or report.bytes_left <= 0:
            return report.eta_ms
        if not limit.bytes_per_second:
            return -1
        return self._bytes_to_go[limit.shared_by] * 1000 // limit.bytes_per_second

    def _rate(self, broker_id: int, name: str) -> int:
        for resource in (str(broker_id), ""):
            value = self._image.config(RESOURCE_BROKER, resource, name)
            if value is not None:
                return int(value)
        return NO_LIMIT

    def _list(self, key: TopicPartition, name: str) -> ThrottledReplicas:
        text = self._image.config(RESOURCE_TOPIC, self._image.topics.by_id[key[0]].name, name) or ""
        parsed = self._lists.get(text)
        if parsed is None:
            parsed = self._lists[text] = ThrottledReplicas.parse(text)
        return parsed
