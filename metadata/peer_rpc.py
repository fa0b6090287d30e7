"""Requests of brokers to the active controller and to each other, over peer frames (Kafka's numbers, fields and meanings).

Admin calls are not here: they are the protobuf messages of `kraftlab.admin.v1` on every path.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kraftlab.common.uuids import Uuid

from .records import Listener

Number = Annotated[int, msgspec.Meta(le=2**63 - 1)]
"""Number of a message: an int64. MessagePack has greater ones, which no file and no answer holds: they are refused."""


class Api:
    """API numbers of peer frames, besides the quorum's. 1000 and above are kraftlab's own."""

    PRODUCE = 0
    LIST_OFFSETS = 2
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    ENVELOPE = 58
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    ALLOCATE_PRODUCER_IDS = 67
    ASSIGN_REPLICAS_TO_DIRS = 73
    CONTROLLER_REGISTRATION = 70
    REPLICA_FETCH = 1001
    LOG_DIGEST = 1002
    MOVE_PROGRESS = 1003


class BrokerRegistrationRequest(msgspec.Struct, frozen=True, array_like=True):
    broker_id: Number
    cluster_id: str
    incarnation_id: Uuid
    listeners: tuple[Listener, ...]
    features: tuple[tuple[str, Number, Number], ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    previous_broker_epoch: Number = -1
    """Epoch of the last clean shutdown, -1 if unknown or unclean."""


class BrokerRegistrationResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None
    broker_epoch: Number = -1


class BrokerHeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    broker_id: Number
    broker_epoch: Number
    current_metadata_offset: Number
    """End offset (exclusive) of the image that the broker has published."""
    want_fence: bool
    want_shutdown: bool
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    """Directories that take no new replicas (KIP-1066). None: not reported."""


class BrokerHeartbeatResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shutdown: bool = False


class MoveProgress(msgspec.Struct, frozen=True, array_like=True):
    """A replica of a running move that is out of sync. `bytes_left` -1: unknown yet. `error`: the obstacle, or ""."""

    topic_id: Uuid
    partition: Number
    bytes_done: Number
    bytes_left: Number
    bytes_per_second: float
    is_throttled: bool = False
    error: str = ""


class PartitionSize(msgspec.Struct, frozen=True, array_like=True):
    """Size of a partition that moves or is queued for a move, reported by its leader."""

    topic_id: Uuid
    partition: Number
    size_bytes: Number


class MoveProgressRequest(msgspec.Struct, frozen=True, array_like=True):
    """A broker's whole report about moves, sent to the active controller every second. It replaces the last report."""

    broker_id: Number
    broker_epoch: Number
    replicas: tuple[MoveProgress, ...] = ()
    sizes: tuple[PartitionSize, ...] = ()


class MoveProgressResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None


class ControllerRegistrationRequest(msgspec.Struct, frozen=True, array_like=True):
    controller_id: Number
    incarnation_id: Uuid
    listeners: tuple[Listener, ...]
    features: tuple[tuple[str, Number, Number], ...] = ()


class ControllerRegistrationResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None


class IsrChange(msgspec.Struct, frozen=True, array_like=True):
    """A leader's requested ISR of one partition. `isr` pairs broker id with the broker epoch that the leader knows (-1: not
    checked).
    """

    topic_id: Uuid
    partition: Number
    leader_epoch: Number
    isr: tuple[tuple[Number, Number], ...]
    leader_recovery_state: Number
    partition_epoch: Number


class AlterPartitionRequest(msgspec.Struct, frozen=True, array_like=True):
    broker_id: Number
    broker_epoch: Number
    changes: tuple[IsrChange, ...]


class IsrChangeResult(msgspec.Struct, frozen=True, array_like=True):
    topic_id: Uuid
    partition: Number
    error: Number
    leader: Number = -1
    leader_epoch: Number = -1
    isr: tuple[Number, ...] = ()
    leader_recovery_state: Number = 0
    partition_epoch: Number = -1


class AlterPartitionResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None
    results: tuple[IsrChangeResult, ...] = ()


class DirectoryAssignment(msgspec.Struct, frozen=True, array_like=True):
    directory_id: Uuid
    topic_id: Uuid
    partition: Number


class AssignReplicasToDirsRequest(msgspec.Struct, frozen=True, array_like=True):
    """At most 2250 assignments (KIP-858)."""

    broker_id: Number
    broker_epoch: Number
    assignments: tuple[DirectoryAssignment, ...]


class DirectoryAssignmentResult(msgspec.Struct, frozen=True, array_like=True):
    topic_id: Uuid
    partition: Number
    error: Number


class AssignReplicasToDirsResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None
    results: tuple[DirectoryAssignmentResult, ...] = ()


class AllocateProducerIdsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Requests a block of producer ids (KIP-730)."""

    broker_id: Number
    broker_epoch: Number


class AllocateProducerIdsResponse(msgspec.Struct, frozen=True, array_like=True):
    """`producer_id_len` ids from `producer_id_start` on belong to the requesting broker alone."""

    error: Number
    message: str | None = None
    producer_id_start: Number = 0
    producer_id_len: Number = 0


class ForwardingBroker(msgspec.Struct, frozen=True, array_like=True):
    """The broker that forwards a call, if the answer depends on it: its id and its server.properties."""

    node_id: Number
    static: dict[str, str] = {}


class EnvelopeRequest(msgspec.Struct, frozen=True, array_like=True):
    """A client's admin call that a broker forwards to the active controller.

    `request` is the serialized protobuf request of `api` (the method's name in the Admin service), or the client's frame of the
    Kafka protocol (KIP-590).
    """

    api: str
    principal: str
    request: bytes
    client_id: str = ""
    """The client's own name, for quotas."""
    broker: ForwardingBroker | None = None
    """Set for calls about configs."""
    host: str = ""
    """The client's address, for ACLs."""
    is_frame: bool = False
    """True if `request` is a frame, without its length. The response is a frame then, with its length."""
    timeout_ms: Number | None = None
    """Time that is left for a frame, which replaces the time in it. Other requests have theirs in the header."""


class EnvelopeResponse(msgspec.Struct, frozen=True, array_like=True):
    """`response` is the serialized protobuf response, or a frame.

    On NOT_CONTROLLER the broker looks for the active controller again and retries.
    """

    error: Number
    message: str | None = None
    response: bytes = b""
    metadata_offset: Number = -1
    """As in the header of the response."""
    outcome_unknown: bool = False
    """With NOT_CONTROLLER: the change may survive the lost leadership."""


class FetchPartition(msgspec.Struct, frozen=True, array_like=True):
    """One partition in a replica fetch. Offsets are the follower's; `last_fetched_epoch` is -1 for an empty log."""

    topic_id: Uuid
    partition: Number
    leader_epoch: Number
    fetch_offset: Number
    last_fetched_epoch: Number
    log_start_offset: Number
    max_bytes: Number
    high_watermark: Number = -1
    """The follower's high watermark. A leader with a newer one answers at once, with or without data (KIP-1166). -1: unknown."""


class ReplicaFetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Replica fetch, with sessions (KIP-227).

    `replica_id` -1: a consumer, which sees data below the high watermark only, and has sessions at the KAFKA listener only.
    `partitions` are all wanted partitions. In a session (`session_epoch` 1 and above) they are the new and the changed ones,
    and `forgotten` are the removed ones.
    """

    replica_id: Number
    broker_epoch: Number
    max_wait_ms: Number
    min_bytes: Number
    max_bytes: Number
    partitions: tuple[FetchPartition, ...]
    lane: Number = 0
    """A newer fetch of the same replica and lane ends a parked one."""
    session_id: Number = 0
    session_epoch: Number = -1
    """-1: no session, and the named one ends; 0: a full fetch that begins a session; otherwise the number of this fetch in its
    session.
    """
    forgotten: tuple[tuple[Uuid, Number], ...] = ()
    any_replica: bool = False
    """A consumer may read from a follower, up to the high watermark that it knows (KIP-392)."""


class FetchedPartition(msgspec.Struct, frozen=True, array_like=True):
    """`diverging` is (epoch, end offset) if the follower must truncate first. `records` holds whole batches."""

    topic_id: Uuid
    partition: Number
    error: Number
    high_watermark: Number = -1
    log_start_offset: Number = -1
    log_end_offset: Number = -1
    diverging: tuple[Number, Number] | None = None
    records: memoryview = memoryview(b"")
    bytes_left: Number = -1
    """For a replica that is out of sync: bytes in the leader's log after `records`. -1: not reported."""


class ReplicaFetchResponse(msgspec.Struct, frozen=True, array_like=True):
    """`error` FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH: no partition was read; send a full fetch."""

    error: Number
    message: str | None = None
    partitions: tuple[FetchedPartition, ...] = ()
    session_id: Number = 0
    """0: no session."""


class ProduceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Whole v2 batches for one partition; at most five of an idempotent producer, which follow each other.

    `acks` 0 (nobody reads the answer), 1 or -1 (all). `keep_offsets`: the batches already have their final offsets (import).
    """

    topic_id: Uuid
    partition: Number
    acks: Number
    timeout_ms: Number
    records: memoryview
    keep_offsets: bool = False
    may_be_stored: bool = True
    """False: an idempotent producer sends the batch for the first time; a stored one with its sequence is another producer's."""


class ProduceResponse(msgspec.Struct, frozen=True, array_like=True):
    """`log_append_time_ms`: the leader's timestamp on the batch (LogAppendTime), -1 if it keeps its own; for a duplicate, the
    largest timestamp of the stored batch. `record_errors`: (index in the batch, reason) of some records that are not accepted.
    """

    error: Number
    message: str | None = None
    base_offset: Number = -1
    log_end_offset: Number = -1
    log_append_time_ms: Number = -1
    log_start_offset: Number = -1
    record_errors: tuple[tuple[Number, str], ...] = ()


class WantedOffset(msgspec.Struct, frozen=True, array_like=True):
    """`timestamp_ms`: a time, or -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local, -5 latest tiered.
    `leader_epoch` -1: not checked.
    """

    topic_id: Uuid
    partition: Number
    timestamp_ms: Number
    leader_epoch: Number = -1


class ListOffsetsRequest(msgspec.Struct, frozen=True, array_like=True):
    partitions: tuple[WantedOffset, ...]


class ListedOffset(msgspec.Struct, frozen=True, array_like=True):
    """`offset` -1: there is no such record. `timestamp_ms`: that of the record, -1 for an end of the log."""

    topic_id: Uuid
    partition: Number
    error: Number
    message: str | None = None
    timestamp_ms: Number = -1
    offset: Number = -1
    leader_epoch: Number = -1


class ListOffsetsResponse(msgspec.Struct, frozen=True, array_like=True):
    partitions: tuple[ListedOffset, ...]


class WantedEpoch(msgspec.Struct, frozen=True, array_like=True):
    """Asks for the end of `leader_epoch`. `current_leader_epoch` -1: not checked."""

    topic_id: Uuid
    partition: Number
    leader_epoch: Number
    current_leader_epoch: Number = -1


class EpochEndsRequest(msgspec.Struct, frozen=True, array_like=True):
    partitions: tuple[WantedEpoch, ...]


class EpochEnd(msgspec.Struct, frozen=True, array_like=True):
    """The largest epoch of the leader's log at or below the wanted one, and the offset after its last record; -1: none."""

    topic_id: Uuid
    partition: Number
    error: Number
    message: str | None = None
    leader_epoch: Number = -1
    end_offset: Number = -1


class EpochEndsResponse(msgspec.Struct, frozen=True, array_like=True):
    partitions: tuple[EpochEnd, ...]


class LogDigestRequest(msgspec.Struct, frozen=True, array_like=True):
    """Requests digests of a broker's replicas (None: all that it hosts)."""

    replicas: tuple[tuple[Uuid, Number], ...] | None = None


class ReplicaDigest(msgspec.Struct, frozen=True, array_like=True):
    """Digest over a replica's batches in order, with the leader-epoch field zeroed. Segment boundaries and epochs do not
    matter.

    `crc32c` covers all these bytes. The counts are those of whole batches, and of records by the batch headers.
    """

    topic_id: Uuid
    partition: Number
    error: Number
    directory: str = ""
    log_start_offset: Number = -1
    log_end_offset: Number = -1
    high_watermark: Number = -1
    batches: Number = 0
    records: Number = 0
    control_records: Number = 0
    size_bytes: Number = 0
    crc32c: Number = 0
    sha256: bytes = b""


class LogDigestResponse(msgspec.Struct, frozen=True, array_like=True):
    error: Number
    message: str | None = None
    metadata_offset: Number = -1
    """End offset of the metadata image that this broker has published. `metadata_digest` is that image's digest."""
    metadata_digest: bytes = b""
    replicas: tuple[ReplicaDigest, ...] = ()
