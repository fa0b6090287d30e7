"""AssignReplicasToDirs: brokers report the directory of a replica (KIP-858)."""

from __future__ import annotations

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.eligible_leaders import min_isr_if_on
from kraftlab.metadata.image import BrokerImage, PartitionImage
from kraftlab.metadata.peer_rpc import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignment,
    DirectoryAssignmentResult,
)
from kraftlab.metadata.records import PartitionChange

from ..configs.description import unclean_election_enabled
from ..engine.feature_levels import DIRECTORIES, metadata_version, shrink_raises_epoch
from ..engine.state import Context, ControllerState, Outcome
from ..partitions.election import Election
from ..partitions.partition_change import build_change
from ..partitions.partitions import Eligibility, check_broker_epoch, default_directory

MAX_ASSIGNMENTS = 2250


def assign(
    state: ControllerState, request: AssignReplicasToDirsRequest, context: Context
) -> Outcome[AssignReplicasToDirsResponse]:
    """Write the directories of replicas. A replica in a directory that is not online also leaves ISR and leadership.

    ApiError for the whole request: UNSUPPORTED_VERSION, STALE_BROKER_EPOCH, INVALID_REQUEST (too many at once). Per partition:
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the broker has no replica of it). If a partition is
    named twice, the last entry counts.
    """
    if metadata_version(state.image) < DIRECTORIES:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {metadata_version(state.image)} has no directories of replicas; {DIRECTORIES} or newer is needed.",
        )
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    if len(request.assignments) > MAX_ASSIGNMENTS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.assignments)} assignments are more than the {MAX_ASSIGNMENTS} allowed per request; split it.",
        )
    newest = {(entry.topic_id, entry.partition): entry for entry in request.assignments}
    codes = {key: _problem(state, broker.broker_id, entry) for key, entry in newest.items()}
    records: list[PartitionChange] = []
    for key, entry in newest.items():
        if codes[key] is ErrorCode.NONE:
            record = _change(state, broker, entry, context)
            if record is not None:
                records.append(record)
    results = tuple(
        DirectoryAssignmentResult(entry.topic_id, entry.partition, codes[entry.topic_id, entry.partition])
        for entry in request.assignments
    )
    return Outcome(records, AssignReplicasToDirsResponse(ErrorCode.NONE, None, results), atomic=False)


def _problem(state: ControllerState, broker_id: int, entry: DirectoryAssignment) -> ErrorCode:
    topic = state.image.topics.by_id.get(entry.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(entry.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _change(state: ControllerState, broker: BrokerImage, entry: DirectoryAssignment, context: Context) -> PartitionChange | None:
    image = state.image
    partition = image.topics.by_id[entry.topic_id].partitions[entry.partition]
    online = broker.has_online(entry.directory_id)
    eligibility = Eligibility(image.cluster.brokers)

    def accepts(partition: PartitionImage, broker_id: int) -> bool:
        """As `Eligibility.accepts`, with the directory that this request names."""
        if broker_id != broker.broker_id:
            return eligibility.accepts(partition, broker_id)
        return online and broker.is_active

    name = image.topics.by_id[entry.topic_id].name
    unclean = not online and unclean_election_enabled(image, name, context.settings)
    isr = partition.isr if online else tuple(member for member in partition.isr if member != broker.broker_id)
    return build_change(
        partition,
        entry.partition,
        entry.topic_id,
        accepts=accepts,
        default_directory=default_directory(image.cluster.brokers),
        min_isr=min_isr_if_on(image, name),
        target_isr=isr,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
        uncleanly_stopped=() if online else (broker.broker_id,),
        directories={broker.broker_id: entry.directory_id},
        shrink_raises_epoch=shrink_raises_epoch(image),
    )
