"""Typed records of the metadata log: MessagePack arrays `[type, version, fields…]`.

Ids, names and fields are those of Kafka's metadata records; kraftlab's own begin at 1000. In change records None means
*unchanged*. New fields go last, with a default. A version rises only when earlier fields change their meaning. `codec.py`
turns lists of records into batch bodies, and refuses types and versions that this node does not know.

The repr of a record is one readable line without fields that have their default.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from kraftlab.common.uuids import Uuid, to_text

from .moves import PlannedPartition

NO_LEADER = -1

RECOVERED = 0
RECOVERING = 1

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all records. The wire form is `[TYPE, version, fields…]`; `version` is always the first field.

    Records and images cannot form cycles, so the garbage collector need not walk them; there can be hundreds of thousands.
    """

    TYPE: ClassVar[int]
    version: int

    def __repr__(self) -> str:
        parts = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.name == "version" or value == field.default:
                continue
            parts.append(f"{field.name}={_show(value)}")
        return f"{type(self).__name__}({' '.join(parts)})"


def _show(value: Any) -> str:
    if isinstance(value, bytes) and len(value) == 16:
        return to_text(value)
    if isinstance(value, tuple):
        return "[" + ",".join(_show(item) for item in value) + "]"
    return str(value)


class Listener(msgspec.Struct, frozen=True, array_like=True):
    """An endpoint in a node's registration: listener name (PEER, GRPC, …), host, port."""

    name: str
    host: str
    port: int

    def __repr__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


class RegisterBroker(Record, frozen=True, array_like=True, tag=0):
    """A broker incarnation registers. Its epoch is the offset of the first record of the registering batch."""

    TYPE: ClassVar[int] = 0
    broker_id: int
    incarnation_id: Uuid
    broker_epoch: int
    listeners: tuple[Listener, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    """Sorted ids of the broker's online directories."""
    registration_offset: int | None = None
    """Offset of the registration. None in the log (this record's own offset), set when an image is written as records."""
    cordoned_log_dirs: tuple[Uuid, ...] = ()
    """Sorted ids of directories that take no new replicas (KIP-1066). A new incarnation reports them by heartbeat."""


class UnregisterBroker(Record, frozen=True, array_like=True, tag=1):
    TYPE: ClassVar[int] = 1
    broker_id: int
    broker_epoch: int


class Topic(Record, frozen=True, array_like=True, tag=2):
    TYPE: ClassVar[int] = 2
    name: str
    topic_id: Uuid


class Partition(Record, frozen=True, array_like=True, tag=3):
    """A partition from scratch. `directories` is parallel to `replicas`.

    Without a reassignment `original_replicas` and `target_replicas` stay None.
    """

    TYPE: ClassVar[int] = 3
    partition_id: int
    topic_id: Uuid
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    original_replicas: tuple[int, ...] | None = None
    target_replicas: tuple[int, ...] | None = None


class Config(Record, frozen=True, array_like=True, tag=4):
    """Sets one dynamic config key; value None deletes it. Resource name "" of a BROKER is the cluster default."""

    TYPE: ClassVar[int] = 4
    resource_type: int
    resource_name: str
    name: str
    value: str | None


class PartitionChange(Record, frozen=True, array_like=True, tag=5):
    """Changes fields of a partition; None = unchanged. Every change raises the partition epoch by one, a present `leader`
    (even the same) also the leader epoch. AR and RR are always written with the sets they were computed from:
    `original_replicas`/`target_replicas` are present exactly when `adding_replicas`/`removing_replicas` are (empty tuples:
    no reassignment runs).
    """

    TYPE: ClassVar[int] = 5
    partition_id: int
    topic_id: Uuid
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    directories: tuple[Uuid, ...] | None = None
    original_replicas: tuple[int, ...] | None = None
    target_replicas: tuple[int, ...] | None = None


class RemoveTopic(Record, frozen=True, array_like=True, tag=9):
    """Removes the topic, its partitions and its configs."""

    TYPE: ClassVar[int] = 9
    topic_id: Uuid


class UserScramCredential(Record, frozen=True, array_like=True, tag=11):
    """Sets a user's SCRAM credential of one mechanism."""

    TYPE: ClassVar[int] = 11
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"UserScramCredential(name={self.name} mechanism={self.mechanism} iterations={self.iterations})"


class FeatureLevel(Record, frozen=True, array_like=True, tag=12):
    """Finalizes a feature's level; 0 removes it. Its version stays 0 forever: it is read before versions are known."""

    TYPE: ClassVar[int] = 12
    name: str
    feature_level: int


class ClientQuota(Record, frozen=True, array_like=True, tag=14):
    """Sets one quota of an entity, or removes it. `entity`: (type, name) sorted by type; name None is the default of the type."""

    TYPE: ClassVar[int] = 14
    entity: tuple[tuple[str, str | None], ...]
    key: str
    value: float
    remove: bool = False


class ProducerIds(Record, frozen=True, array_like=True, tag=15):
    """A broker got a block of producer ids; the next block begins at `next_producer_id`. In a snapshot the broker is -1."""

    TYPE: ClassVar[int] = 15
    broker_id: int
    broker_epoch: int
    next_producer_id: int


class BrokerRegistrationChange(Record, frozen=True, array_like=True, tag=17):
    """Changes a registration of exactly this epoch; None = unchanged. `log_dirs` (): no directory is online.
    `cordoned_log_dirs` (): no directory is cordoned.
    """

    TYPE: ClassVar[int] = 17
    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[Uuid, ...] | None = None
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


class AccessControlEntry(Record, frozen=True, array_like=True, tag=18):
    """An ACL, with the protocol's numbers (`acls.py`)."""

    TYPE: ClassVar[int] = 18
    acl_id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class RemoveAccessControlEntry(Record, frozen=True, array_like=True, tag=19):
    TYPE: ClassVar[int] = 19
    acl_id: Uuid


class NoOp(Record, frozen=True, array_like=True, tag=20):
    """Moves an idle log, which distinguishes an idle log from a lagging reader."""

    TYPE: ClassVar[int] = 20


class RemoveUserScramCredential(Record, frozen=True, array_like=True, tag=22):
    TYPE: ClassVar[int] = 22
    name: str
    mechanism: int


class BeginTransaction(Record, frozen=True, array_like=True, tag=23):
    """Later records become visible only with the EndTransaction (changes larger than one batch)."""

    TYPE: ClassVar[int] = 23
    name: str | None = None


class EndTransaction(Record, frozen=True, array_like=True, tag=24):
    TYPE: ClassVar[int] = 24


class AbortTransaction(Record, frozen=True, array_like=True, tag=25):
    TYPE: ClassVar[int] = 25
    reason: str | None = None


class RegisterController(Record, frozen=True, array_like=True, tag=27):
    """A controller registers its endpoints; brokers and clients find it by them."""

    TYPE: ClassVar[int] = 27
    controller_id: int
    incarnation_id: Uuid
    listeners: tuple[Listener, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()


class ClearElr(Record, frozen=True, array_like=True, tag=28):
    """The effective min ISR of a topic (of all topics: name "") has changed, so its eligible leader replicas are no longer
    eligible. Partitions with an empty in-sync set keep theirs: nothing can be committed there.
    """

    TYPE: ClassVar[int] = 28
    topic_name: str = ""


class RequestOutcome(Record, frozen=True, array_like=True, tag=1000):
    """Answer to a client's request. It is the last record of the request's batch, or of its transaction."""

    TYPE: ClassVar[int] = 1000
    client_id: Uuid
    sequence: int
    digest: bytes
    """Distinguishes the request from another one with the same id."""
    written_ms: int
    answer: bytes
    """The response, as `requests.packed` stores it."""
    end_offset: int | None = None
    """End offset that the answer reflects. None in the log (the end of the request's records), set when an image is written as
    records.
    """

    def __repr__(self) -> str:
        return f"RequestOutcome(client_id={to_text(self.client_id)} sequence={self.sequence} answer={len(self.answer)}B)"


class ForgottenRequests(Record, frozen=True, array_like=True, tag=1001):
    """Only in snapshots: the client's answers up to this sequence are forgotten, except those in later records."""

    TYPE: ClassVar[int] = 1001
    client_id: Uuid
    up_to: int


class StartMoves(Record, frozen=True, array_like=True, tag=1010):
    """Identity of the reassignments that begin in this batch: (topic id, partition, index in the request) each.

    Replaces the running move of a partition, and takes it off the queue. The move ends with its reassignment, without a
    record.
    """

    TYPE: ClassVar[int] = 1010
    request_offset: int
    initiator: str
    reason: str
    started_ms: int
    moves: tuple[tuple[Uuid, int, int], ...]
    plan_id: str | None = None
    throttle: int | None = None
    """Bytes per second that each broker takes in for these moves; None: no limit of their own."""
    throttle_until_ms: int | None = None


class QueueMoves(Record, frozen=True, array_like=True, tag=1011):
    """Targets that wait for a free slot: (topic id, partition, index in the request, replicas, directories) each. Directories
    are parallel to the replicas and apply to replicas that are new when the move starts; () leaves them to the brokers.
    """

    TYPE: ClassVar[int] = 1011
    request_offset: int
    initiator: str
    reason: str
    queued_ms: int
    moves: tuple[tuple[Uuid, int, int, tuple[int, ...], tuple[Uuid, ...]], ...]
    plan_id: str | None = None
    throttle: int | None = None
    throttle_for_ms: int | None = None
    priority: int = 0


class DequeueMoves(Record, frozen=True, array_like=True, tag=1012):
    """The queued targets of these partitions are dropped: they were cancelled, or have nothing left to do."""

    TYPE: ClassVar[int] = 1012
    partitions: tuple[tuple[Uuid, int], ...]


class ChangeMoveThrottles(Record, frozen=True, array_like=True, tag=1013):
    """New throttle of these running moves; None: none."""

    TYPE: ClassVar[int] = 1013
    partitions: tuple[tuple[Uuid, int], ...]
    throttle: int | None = None
    throttle_until_ms: int | None = None


class MovePlan(Record, frozen=True, array_like=True, tag=1014):
    """A plan with the previous state of its partitions, or more partitions of a known plan."""

    TYPE: ClassVar[int] = 1014
    plan_id: str
    created_offset: int
    created_ms: int
    initiator: str
    reason: str
    partitions: tuple[PlannedPartition, ...]


class RemovePlan(Record, frozen=True, array_like=True, tag=1015):
    """The plan can no longer be rolled back."""

    TYPE: ClassVar[int] = 1015
    plan_id: str


AnyRecord = (
    RegisterBroker
    | UnregisterBroker
    | Topic
    | Partition
    | Config
    | PartitionChange
    | RemoveTopic
    | FeatureLevel
    | ClientQuota
    | ProducerIds
    | BrokerRegistrationChange
    | NoOp
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
    | RegisterController
    | AccessControlEntry
    | RemoveAccessControlEntry
    | UserScramCredential
    | RemoveUserScramCredential
    | ClearElr
    | RequestOutcome
    | ForgottenRequests
    | StartMoves
    | QueueMoves
    | DequeueMoves
    | ChangeMoveThrottles
    | MovePlan
    | RemovePlan
)
