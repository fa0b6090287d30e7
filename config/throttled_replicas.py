"""Names of the replication throttles (KIP-73, KIP-113), and lists of throttled replicas, the value of two topic configs."""

from __future__ import annotations

from collections.abc import Iterable

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
MOVE_RATES = (MOVE_RATE, "intra.broker.throttled.rate")
"""Names of the rate of moves between log directories: Kafka's, then KIP-113's."""
NO_LIMIT = (1 << 63) - 1
"""Rates from this value on mean no limit, as Kafka's default does."""
_EVERY = -1


class ThrottledReplicas:
    """The value of leader. or follower.replication.throttled.replicas of one topic: `*`, or `partition:broker,…`, or nothing."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._pairs = frozenset(pairs)

    @classmethod
    def parse(cls, text: str | None) -> ThrottledReplicas:
        """Parse the value. Malformed entries throttle nothing: the controller refuses them, and a copy must not stop because
        of one.
        """
        if not text:
            return cls()
        if text.strip() == "*":
            return cls([(_EVERY, _EVERY)])
        pairs = []
        for entry in text.split(","):
            partition, _, broker = entry.strip().partition(":")
            if partition.isdecimal() and broker.isdecimal():
                pairs.append((int(partition), int(broker)))
        return cls(pairs)

    def covers(self, partition: int, broker_id: int) -> bool:
        return (partition, broker_id) in self._pairs or (_EVERY, _EVERY) in self._pairs


NOTHING_THROTTLED = ThrottledReplicas()
