"""Values of Kafka's MetadataResponse."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class MetadataResponseBroker(msgspec.Struct):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataResponsePartition(msgspec.Struct):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()


class MetadataResponseTopic(msgspec.Struct):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = bytes(16)
    is_internal: bool = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: int = -2147483648


class MetadataResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0
