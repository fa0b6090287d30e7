"""Metadata over the Kafka protocol, from the metadata that the broker has published.

Theory of operation. A broker answers from its own image, as in Kafka, so clients find the cluster also while no controller leads.
It names the brokers by their KAFKA listeners; a broker without one is not named. Any broker takes any admin call, so the
answering broker names itself as the controller (KIP-590). The encoded form of a topic is kept until its partitions, or the state
of a broker, change: a client that asks again for many partitions gets the same bytes.

A topic that does not exist is created if the client and `auto.create.topics.enable` want it: with the rights of the client,
through the active controller, and the answer waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from kraftlab.access.authorizer import NOT_ASKED, Rights
from kraftlab.config.models import KAFKA_LISTENER
from kraftlab.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from kraftlab.metadata.topic_names import INTERNAL_TOPICS, name_problem
from kraftlab.metadata.uuids import ZERO
from kraftlab.rpc.caller import Caller

from .codec import Entity, KafkaRequest
from .generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PARTITIONS_AT_ONCE = 1000
"""Partitions that are described before other tasks get the event loop."""

CreateTopic = Callable[[str, Caller], Awaitable[ErrorCode]]
"""Creates a topic with the defaults of the cluster, for a caller; returns once this broker has published it."""


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

    async def metadata(self, request: KafkaRequest, caller: Caller) -> MetadataResponse:
        """Describe brokers that are not fenced, and topics in the order of the request, each once; all topics, sorted, if none is
        named.
        """
        body = request.body
        if any(_is_nameless(entry) for entry in body.topics or ()):
            return _refused(body)
        rights = self._rights(caller.principal, caller.host)
        rows = await self._rows(request, caller, rights)
        image = self._image()
        brokers = self._brokers(image)
        listed = {broker.node_id for broker in brokers}
        topics = []
        described = 0
        for row in rows:
            topic = row if isinstance(row, MetadataResponseTopic) else _describe(image, row, listed)
            if not topic.error_code and getattr(body, "include_topic_authorized_operations", False):
                operations = rights.operations(ResourceType.TOPIC, topic.name or "")
                topic = msgspec.structs.replace(topic, topic_authorized_operations=operations)
            topics.append(topic)
            described += len(topic.partitions)
            if described >= PARTITIONS_AT_ONCE:
                described = 0
                await trio.lowlevel.checkpoint()
        # A client takes the controller's address from the list of brokers.
        controller = self._node_id if self._node_id in listed else next(iter(sorted(listed)), -1)
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self._cluster_id,
            controller_id=controller,
            topics=topics,
            cluster_authorized_operations=_cluster_operations(body, rights),
        )

    def _brokers(self, image: MetadataImage) -> list[MetadataResponseBroker]:
        found = []
        for broker_id, broker in sorted(image.cluster.brokers.items()):
            listener = None if broker.fenced else broker.listener(KAFKA_LISTENER)
            if listener is not None:
                found.append(MetadataResponseBroker(node_id=broker_id, host=listener.host, port=listener.port, rack=broker.rack))
        return found

    async def _rows(self, request: KafkaRequest, caller: Caller, rights: Rights) -> list[TopicImage | MetadataResponseTopic]:
        """Return the topics that the answer describes, and finished rows about topics that it refuses."""
        body = request.body
        topics = self._image().topics
        if body.topics is None or (not body.topics and request.header.version == 0):
            names = sorted(topics.by_name.keys())
            return [
                topics.by_id[topics.by_name[name]] for name in names if rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, name)
            ]
        by_id = dict.fromkeys(entry.topic_id.bytes for entry in body.topics if getattr(entry, "topic_id", None) is not None)
        if by_id:
            return [self._row_of_id(topic_id, rights) for topic_id in by_id]
        may_create = getattr(body, "allow_auto_topic_creation", True)
        return [
            await self._row_of_name(name, may_create, caller, rights)
            for name in dict.fromkeys(entry.name for entry in body.topics)
        ]

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


def _is_nameless(entry: Entity) -> bool:
    return entry.name is None and getattr(entry, "topic_id", None) is None


def _refused(body: Entity) -> MetadataResponse:
    """Return the answer to a request with an entry that has neither a name nor an id: all entries are refused, as in Kafka."""
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST,
            name=entry.name or "",
            topic_id=ZERO if entry.topic_id is None else entry.topic_id.bytes,
        )
        for entry in body.topics
    ]
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics)


def _cluster_operations(body: Entity, rights: Rights) -> int:
    if not getattr(body, "include_cluster_authorized_operations", False):
        return NOT_ASKED
    if not rights.allow(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _describe(image: MetadataImage, topic: TopicImage, listed: set[int]) -> MetadataResponseTopic:
    online = {broker_id: broker for broker_id, broker in image.cluster.brokers.items() if not broker.fenced}
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(index, topic.partitions[index], listed, online) for index in sorted(topic.partitions)],
    )


def _partition(
    index: int, partition: PartitionImage, listed: set[int], online: dict[int, BrokerImage]
) -> MetadataResponsePartition:
    leader = partition.leader
    error = ErrorCode.NONE
    if leader not in listed:
        error = ErrorCode.LISTENER_NOT_FOUND if leader in online else ErrorCode.LEADER_NOT_AVAILABLE
        leader = -1
    offline = [
        broker_id
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
        if broker_id not in online or not online[broker_id].has_online(directory)
    ]
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(offline),
    )
