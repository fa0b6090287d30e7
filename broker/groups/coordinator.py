"""The coordinator of consumer groups on this broker.

Theory of operation. A group belongs to one partition of `__consumer_offsets`, by the hash of its id. The leader of that partition
is the group's coordinator. This module follows the broker's leaderships: each leader epoch of such a partition has one `Shard`,
which owns the groups. Requests for other groups are answered with NOT_COORDINATOR.

The topic is created when a client looks for its coordinator for the first time, by any broker. Several may ask at once: the
controller creates the topic once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.models import KAFKA_LISTENER, BrokerConfig
from kraftlab.metadata.image import MetadataImage, TopicImage

from ..control.metadata_publisher import Publication
from ..log.disks import one_turn
from ..log.ending import LogEnded
from ..replica_manager import ReplicaManager
from ..replication.partition import LeaderRole, Partition
from ..replication.replica_errors import ReplicaError
from . import offset_jobs
from .group import Limits
from .shard import Shard
from .store import Store

logger = logging.getLogger("kraftlab.broker.groups")

OFFSETS_TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000
GROUP_ID_BYTES_MAX = 32_767
"""The key of a record has two bytes for the length of the id."""

CreateTopic = Callable[[int, int], Awaitable[str | None]]
"""Creates the topic with that many partitions and replicas; returns the reason if that failed."""


def partition_of(group_id: str, partitions: int) -> int:
    """Partition of a group: the hash of Java's strings, made positive, by the number of partitions."""
    value = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    # The smallest number has no positive counterpart in Java; Kafka takes 0.
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


async def _run(shard: Shard, partition: Partition) -> None:
    """Run a shard. An unexpected error in its work, a bug, ends the log of its partition: then another broker coordinates."""
    with suppress(LogEnded), partition.ending_log():
        await shard.run()


class Coordinator:
    """`run` serves until cancelled; `publish` follows the metadata. `create_topic` asks the active controller."""

    def __init__(self, replicas: ReplicaManager, config: BrokerConfig, create_topic: CreateTopic) -> None:
        self._replicas = replicas
        self._config = config
        self._create_topic = create_topic
        self._limits = Limits(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_max_size,
            config.group_initial_rebalance_delay_ms,
        )
        self._shards: dict[int, Shard] = {}
        self._nursery: trio.Nursery | None = None
        self._is_creating = False

    @property
    def image(self) -> MetadataImage:
        return self._replicas.image

    @property
    def topic(self) -> TopicImage | None:
        """The topic of offsets, None before it is created."""
        topics = self.image.topics
        topic_id = topics.by_name.get(OFFSETS_TOPIC)
        return None if topic_id is None else topics.by_id[topic_id]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the shards, and let offsets expire."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
                retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
                await one_turn(self._expire, retention_ms)

    async def _expire(self, retention_ms: int) -> None:
        for shard in self.shards():
            shard.do(partial(offset_jobs.expire, shard, retention_ms))

    async def publish(self, publication: Publication) -> None:
        """Publisher: begin to coordinate where a leadership began, after the replicas have their roles."""
        topic = self.topic
        for number in topic.partitions if topic is not None else ():
            self._shard_at(number)
        names = [publication.before.topics.by_id[topic_id].name for topic_id in publication.changes.deleted_topics]
        if names:
            for shard in self.shards():
                shard.do(partial(offset_jobs.forget_topics, shard, names))

    # --- places --------------------------------------------------------------------------------------------------------------

    def shards(self) -> Iterator[Shard]:
        """The shards of the partitions that this broker leads."""
        for number in list(self._shards):
            shard = self._shard_at(number)
            if shard is not None:
                yield shard

    def shard_of(self, group_id: str) -> Shard:
        """The shard of a group that is coordinated here. ApiError NOT_COORDINATOR; INVALID_GROUP_ID if the id is too long."""
        size_bytes = len(group_id.encode())
        if size_bytes > GROUP_ID_BYTES_MAX:
            text = f"The group id has {size_bytes} bytes; records of groups have room for {GROUP_ID_BYTES_MAX}."
            raise ApiError(ErrorCode.INVALID_GROUP_ID, text)
        topic = self.topic
        shard = None if topic is None else self._shard_at(partition_of(group_id, len(topic.partitions)))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    def _shard_at(self, number: int) -> Shard | None:
        """The shard of a partition, begun here if the leadership is new; None if this broker does not lead the partition."""
        topic_id = self.image.topics.by_name.get(OFFSETS_TOPIC, b"")
        partition = self._replicas.partitions.get((topic_id, number))
        if partition is None or not isinstance(partition.role, LeaderRole) or self._nursery is None:
            self._shards.pop(number, None)
            return None
        shard = self._shards.get(number)
        if shard is None or shard.store.role is not partition.role:
            try:
                shard = self._shards[number] = Shard(Store(partition, self._replicas.disks), self._limits)
            except ReplicaError:
                return None
            self._nursery.start_soon(_run, shard, partition)
        return shard

    def find(self, group_id: str) -> tuple[int, Endpoint]:
        """Return the coordinator of a group and its KAFKA listener.

        ApiError COORDINATOR_NOT_AVAILABLE. If the topic is missing, its creation begins.
        """
        topic = self.topic
        if topic is None:
            self._begin_creating()
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet; it is being created, retry."
            )
        leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        broker = self.image.cluster.brokers.get(leader)
        listener = broker.listener(KAFKA_LISTENER) if broker is not None else None
        if listener is None:
            reason = f"broker {leader} has no KAFKA listener" if broker is not None else "its partition has no leader now"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The group has no coordinator: {reason}; retry.")
        return leader, Endpoint(listener.host, listener.port)

    # --- the topic -----------------------------------------------------------------------------------------------------------

    def _begin_creating(self) -> None:
        if not self._is_creating and self._nursery is not None:
            self._is_creating = True
            self._nursery.start_soon(self._create)

    async def _create(self) -> None:
        """Create the topic of offsets. A small cluster gets as many replicas as it has brokers."""
        try:
            brokers = sum(broker.is_active for broker in self.image.cluster.brokers.values())
            replicas = max(1, min(self._config.offsets_topic_replication_factor, brokers))
            reason = await self._create_topic(self._config.offsets_topic_num_partitions, replicas)
            if reason is not None:
                logger.warning("%s could not be created, the next client that needs it tries again: %s", OFFSETS_TOPIC, reason)
        finally:
            self._is_creating = False
