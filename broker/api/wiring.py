"""Wiring of a broker's calls: its handlers by name, the admin API, and the entrances for gRPC and Kafka clients.

A new call of the broker is one line in `handlers`, beside its row in `rpc/calls.py`. Importing protobuf and its generated code
takes longer than the rest of a start: `broker/main.py` loads this module in a worker thread.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from google.protobuf.message import Message

from kraftlab.access.refusals import BROKERS
from kraftlab.access.users import ANONYMOUS
from kraftlab.config.models import KAFKA_LISTENER, BrokerConfig
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.node.doors import Doors
from kraftlab.node.health import NodeHealth
from kraftlab.node.metadata_digests import MetadataDigests
from kraftlab.node.snapshots import SnapshotCalls
from kraftlab.node.time_travel import TimeTravel
from kraftlab.quorum.driver.environment import Environment
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.storage.file_system import FileSystem
from kraftlab.rpc import api_versions
from kraftlab.rpc.calls import BROKER_OFFERS, LISTENER, check_handlers
from kraftlab.rpc.methods import LocalCall

from ..control.controller_channel import ControllerChannel
from ..control.dynamic_configs import DynamicConfigs
from ..control.metadata_publisher import MetadataPublisher
from ..control.producer_ids import ProducerIds
from ..groups.coordinator import Coordinator, CreateTopic
from ..log.disks import InThread
from ..replica_manager import ReplicaManager
from ..upkeep.directory_returns import DirectoryReturns
from .admin_service import AdminService
from .data_plane import DataPlane
from .delete_records import DeleteRecordsApi
from .init_producer_id import InitProducerId, allocate
from .log_dir_repairs import LogDirRepairs
from .log_dirs import LogDirsApi
from .topic_creation import TopicCreation, offsets_topic_creator

if TYPE_CHECKING:
    from kraftlab.gateway.door import Door


KAFKA_MODULES = (
    "kraftlab.gateway.listener",
    "kraftlab.gateway.cluster",
    "kraftlab.broker.api.group_offsets",
    "kraftlab.broker.api.producers",
)
"""Modules of the KAFKA listener, which a worker thread loads."""


class Parts(NamedTuple):
    """The parts of a broker that its calls use."""

    config: BrokerConfig
    cluster_id: str
    environment: Environment
    file_system: FileSystem | None
    channel: ControllerChannel
    publisher: MetadataPublisher
    driver: RaftDriver
    replicas: ReplicaManager
    configs: DynamicConfigs
    groups: Coordinator
    producer_ids: ProducerIds
    returns: DirectoryReturns
    data_plane: DataPlane
    doors: Doors
    health: NodeHealth


def handlers(parts: Parts) -> Mapping[str, LocalCall]:
    """Return the handlers of the broker's own calls of the Admin service, by name."""
    node_id, metadata_dir = parts.config.node_id, str(parts.config.metadata_log_dir)
    publisher, threads, files = parts.publisher, parts.environment.threads, parts.file_system
    log_dirs = LogDirsApi(parts.replicas, publisher)
    repairs = LogDirRepairs(parts.replicas, parts.returns)

    def offset() -> int:
        return publisher.offset

    async def versions(request: Any) -> Message:
        image, kraft_version = publisher.image, parts.driver.describe().kraft_version
        return api_versions.describe(request, BROKER_OFFERS, image.features, kraft_version, image.provenance.offset)

    return {
        "AlterReplicaLogDirs": log_dirs.alter,
        "DescribeLogDirs": log_dirs.describe,
        "OnlineLogDir": repairs.bring_online,
        "ResolveReplicaCopy": repairs.resolve,
        "DeleteRecords": DeleteRecordsApi(parts.replicas, parts.configs).delete,
        "DescribeMetadata": MetadataDigests(node_id, metadata_dir, offset, publisher.image_at, threads, files).describe,
        "ApiVersions": versions,
        "InitProducerId": InitProducerId(parts.producer_ids).init,
        "AllocateProducerIds": allocate,
        **SnapshotCalls(node_id, parts.driver).calls(),
        **TimeTravel(node_id, metadata_dir, offset, threads, files).calls(),
    }


def admin_service(parts: Parts) -> AdminService:
    """Make the admin API. LookupError if a call has no handler."""
    local = handlers(parts)
    check_handlers("the broker", local, lambda row: row.is_brokers)
    # `config.values` has no passwords.
    identity = ForwardingBroker(parts.config.node_id, parts.config.values)
    access, voters = parts.config.access, lambda: parts.driver.describe().voters
    return AdminService(parts.cluster_id, parts.channel, parts.publisher, local, access, identity, voters)


def offsets_topic(parts: Parts, service: AdminService) -> CreateTopic:
    """Return a function by which the active controller creates the topic of offsets."""
    # The controller trusts the broker as it trusts a super user; only such a name gets past its rules.
    principal = min(parts.config.access.super_users, default=ANONYMOUS)
    return offsets_topic_creator(service.dispatch, principal, parts.config.offsets_topic_segment_bytes)


async def serve(nursery: trio.Nursery, parts: Parts, service: AdminService, in_thread: InThread) -> None:
    """Serve gRPC, and Kafka clients if the broker has a listener for them. ListenError."""
    kafka = parts.config.kafka
    await nursery.start(parts.doors.admin_server(service.dispatch, parts.health.present).serve)
    if kafka is not None:
        for name in KAFKA_MODULES:
            await in_thread(None, importlib.import_module, name)
        from kraftlab.gateway.listener import KafkaListener

        entrance = parts.doors.kafka_entrance()
        entry = door(parts, service)
        listener = KafkaListener(entry, kafka.host, kafka.port, parts.configs.broker, entrance)
        await nursery.start(listener.serve)
        parts.doors.connections[KAFKA_LISTENER] = listener.statistics
        parts.doors.sources.append(entry.figures.snapshot)


def door(parts: Parts, service: AdminService) -> Door:
    """Make the entrance for Kafka clients: data, groups and the cluster are answered here, other calls by the admin API
    or the active controller.
    """
    from kraftlab.gateway.cluster import ClusterCalls
    from kraftlab.gateway.data import DataCalls
    from kraftlab.gateway.door import Door
    from kraftlab.gateway.metadata import MetadataCalls

    from . import consumer_groups
    from .group_offsets import GroupOffsets
    from .producers import DescribeProducers, list_transactions

    def image() -> MetadataImage:
        return parts.publisher.image

    node_id, published = parts.config.node_id, parts.publisher.wait_for
    data = DataCalls(parts.data_plane, image, service.rights)
    creation = TopicCreation(service.dispatch, published, parts.configs)
    local = {
        "Produce": data.produce,
        "Fetch": data.fetch,
        "ListOffsets": data.list_offsets,
        "OffsetForLeaderEpoch": data.epoch_ends,
        "DescribeCluster": ClusterCalls(
            node_id, parts.cluster_id, BROKERS, lambda: image().cluster, service.rights, lambda: parts.channel.controller_id
        ).describe,
        "Metadata": MetadataCalls(node_id, parts.cluster_id, image, service.rights, creation.creator).metadata,
        "DescribeProducers": DescribeProducers(parts.replicas, service.rights).describe,
        "ListTransactions": list_transactions,
        **consumer_groups.calls(parts.groups, service.rights),
        **GroupOffsets(parts.groups, service.rights, parts.config.offset_metadata_max_bytes).calls(),
    }
    check_handlers("the broker's Kafka listener", local, lambda row: row.place is LISTENER)
    return Door(service.dispatch, published, local, forwarding=service)
