"""Metadata over the Kafka protocol, from the metadata that the broker has published.

Theory of operation. A broker answers from its own image, as in Kafka, so clients find the cluster also while no controller leads.
It names the brokers by their KAFKA listeners; a broker without one is not named. Any broker takes any admin call, so the
answering broker names itself as the controller (KIP-590). The encoded form of a topic is kept until its partitions, or the state
of a broker, change: a client that asks again for many partitions gets the same bytes.

A topic that does not exist is created if the client and `auto.create.topics.enable` want it: with the rights of the client,
through the active controller, and the answer waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import immutables
import msgspec
import trio

from kraftlab.access import NOT_ASKED
from kraftlab.access.authorizer import Rights
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import ZERO, Uuid
from kraftlab.config.models import KAFKA_LISTENER
from kraftlab.messages.generated.describe_cluster_request import DescribeClusterRequest
from kraftlab.messages.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from kraftlab.messages.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlab.messages.writing import write_element
from kraftlab.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from kraftlab.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from kraftlab.metadata.topic_names import INTERNAL_TOPICS, name_problem
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.turns import Turns

from .codec import KafkaRequest

PARTITIONS_AT_ONCE = 1000
"""Partitions that are described before other tasks get the event loop."""
ENCODED_TOPICS_MAX = 50_000
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Errors of named topics that the caller may see, and that do not exist."""

CreateTopic = Callable[[str, Caller], Awaitable[ErrorCode]]
"""Creates a topic with the defaults of the cluster, for a caller; returns once this broker has published it."""


class Brokers:
    """The brokers of an image: the rows that name them, and facts for the description of partitions."""

    def __init__(self, source: immutables.Map[int, BrokerImage]) -> None:
        self.source = source
        self._online = {broker_id: broker for broker_id, broker in sorted(source.items()) if not broker.fenced}
        self.rows = [
            MetadataResponseBroker(node_id=broker_id, host=listener.host, port=listener.port, rack=broker.rack)
            for broker_id, broker in self._online.items()
            if (listener := broker.listener(KAFKA_LISTENER)) is not None
        ]
        self.listed = frozenset(row.node_id for row in self.rows)
        self._offline: dict[tuple[tuple[int, ...], tuple[Uuid, ...]], tuple[int, ...]] = {}
        """Offline replicas, by replicas and their directories: many partitions have the same."""

    def describe(self, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        leader, error = partition.leader, ErrorCode.NONE
        if leader not in self.listed:
            error = ErrorCode.LISTENER_NOT_FOUND if leader in self._online else ErrorCode.LEADER_NOT_AVAILABLE
            leader = -1
        places = partition.replicas, partition.directories
        offline = self._offline.get(places)
        if offline is None:
            offline = self._offline[places] = tuple(
                broker_id
                for broker_id, directory in zip(*places, strict=True)
                if broker_id not in self._online or not self._online[broker_id].has_online(directory)
            )
        return MetadataResponsePartition(error, index, leader, partition.leader_epoch, partition.replicas, partition.isr, offline)


class MetadataCalls:
    """Answers Metadata. `rights` returns a caller's rights; `create` is None where topics are not created automatically."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        image: Callable[[], MetadataImage],
        rights: Callable[[str, str], Rights],
        create: Callable[[], CreateTopic | None],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._image = image
        self._rights = rights
        self._create = create
        self._brokers = Brokers(immutables.Map())
        self._encoded: dict[tuple[bytes, int, int], tuple[TopicImage, bytes]] = {}
        """Encoded topics by id, version of the answer, and operations, as described with `_brokers`."""
        self._partitions_until_pause = PARTITIONS_AT_ONCE

    async def metadata(self, request: KafkaRequest, caller: Caller) -> MetadataResponse:
        """Describe brokers that are not fenced, and topics in the order of the request, each once, those that the caller may not
        see last; all topics, sorted, if none is named.
        """
        body: MetadataRequest = request.body
        version = request.header.version
        if body.topics and any(_is_nameless(entry) for entry in body.topics):
            return _refused(body.topics)
        rights = self._rights(caller.principal, caller.host)
        with_operations = body.include_topic_authorized_operations
        turns = Turns()
        rows = sorted(await self._rows(request, caller, rights, turns), key=_is_refused)
        brokers = self._brokers_of(self._image())
        topics: list[MetadataResponseTopic | bytes] = []
        for row in rows:
            await turns.step()
            if isinstance(row, TopicImage):
                operations = _operations(rights, row.name) if with_operations else NOT_ASKED
                topics.append(await self._encode(row, version, operations, brokers))
            elif with_operations and row.error_code in _MISSING:
                topics.append(msgspec.structs.replace(row, topic_authorized_operations=_operations(rights, row.name)))
            else:
                topics.append(row)
        # A client takes the controller's address from the list of brokers.
        controller = self._node_id if self._node_id in brokers.listed else min(brokers.listed, default=-1)
        return MetadataResponse(
            brokers=brokers.rows,
            cluster_id=self._cluster_id,
            controller_id=controller,
            topics=topics,
            cluster_authorized_operations=cluster_operations(body, rights),
        )

    def _brokers_of(self, image: MetadataImage) -> Brokers:
        """Return the brokers of an image. Topics that were encoded with other brokers are forgotten."""
        if self._brokers.source is not image.cluster.brokers:
            self._brokers = Brokers(image.cluster.brokers)
            self._encoded.clear()
        return self._brokers

    async def _encode(self, topic: TopicImage, version: int, operations: int, brokers: Brokers) -> bytes:
        """Return the description of a topic as bytes, from the last answer if the topic is still the same."""
        key = topic.topic_id, version, operations
        kept = self._encoded.get(key)
        if kept is not None and kept[0] is topic and brokers is self._brokers:
            return kept[1]
        partitions = []
        for index, partition in sorted(topic.partitions.items()):
            partitions.append(brokers.describe(index, partition))
            self._partitions_until_pause -= 1
            if not self._partitions_until_pause:
                self._partitions_until_pause = PARTITIONS_AT_ONCE
                await trio.lowlevel.checkpoint()
        value = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=operations,
        )
        data = write_element(MetadataResponse, value, version)
        if brokers is self._brokers:
            if len(self._encoded) >= ENCODED_TOPICS_MAX:
                self._encoded.clear()
            self._encoded[key] = topic, data
        return data

    async def _rows(
        self, request: KafkaRequest, caller: Caller, rights: Rights, turns: Turns
    ) -> list[TopicImage | MetadataResponseTopic]:
        """Return the topics that the answer describes, and finished rows about topics that it refuses."""
        body: MetadataRequest = request.body
        topics = self._image().topics
        rows: list[TopicImage | MetadataResponseTopic] = []
        if body.topics is None or (not body.topics and request.header.version == 0):
            names = sorted(topics.by_name.keys())
            return [
                topics.by_id[topics.by_name[name]] for name in names if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
            ]
        by_id = dict.fromkeys(entry.topic_id for entry in body.topics if entry.topic_id != ZERO)
        if by_id:
            for topic_id in by_id:
                await turns.step()
                rows.append(self._row_of_id(topic_id, rights))
            return rows
        for name in dict.fromkeys(entry.name or "" for entry in body.topics):
            await turns.step()
            rows.append(await self._row_of_name(name, body.allow_auto_topic_creation, caller, rights))
        return rows

    def _row_of_id(self, topic_id: bytes, rights: Rights) -> TopicImage | MetadataResponseTopic:
        topic = self._image().topics.by_id.get(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
        return topic

    async def _row_of_name(
        self, name: str, may_create: bool, caller: Caller, rights: Rights
    ) -> TopicImage | MetadataResponseTopic:
        if not rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self._image().topics.get(name)
        if topic is not None:
            return topic
        is_internal = name in INTERNAL_TOPICS
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        create = self._create()
        if may_create and create is not None and not is_internal and error is not ErrorCode.INVALID_TOPIC_EXCEPTION:
            error = await create(name, caller)
            topic = self._image().topics.get(name)
            if topic is not None:
                return topic
        return MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal)


def _is_refused(row: TopicImage | MetadataResponseTopic) -> bool:
    return isinstance(row, MetadataResponseTopic) and row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _operations(rights: Rights, name: str | None) -> int:
    """Return the operations that the caller may do on a topic, which need not exist."""
    return NOT_ASKED if name is None else rights.operations(ResourceType.TOPIC, name)


def _is_nameless(entry: MetadataRequestTopic) -> bool:
    return entry.name is None and entry.topic_id == ZERO


def _refused(topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """Return the answer to a request with an entry that has neither a name nor an id: all entries are refused, as in Kafka."""
    rows = [
        MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=entry.name or "", topic_id=entry.topic_id)
        for entry in topics
    ]
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=rows)


def cluster_operations(body: MetadataRequest | DescribeClusterRequest, rights: Rights) -> int:
    """Return the caller's operations on the cluster, if the request asks for them."""
    if not body.include_cluster_authorized_operations:
        return NOT_ASKED
    if not rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)
