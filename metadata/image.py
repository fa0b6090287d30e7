"""The metadata image: all metadata at one offset, as immutable values that share their unchanged parts.

Controllers and brokers hold the same image, and only `delta.py` makes a new one, from records. An image never changes, so a
snapshot of uncommitted state is a reference, and reverting is picking an older reference. Maps are persistent (HAMT).
"""

from __future__ import annotations

import immutables
import msgspec

from kraftlab.common.uuids import LOST, MIGRATING, UNASSIGNED, Uuid

from .acls import AclsImage
from .moves import MovesImage
from .quotas import QuotasImage
from .records import NO_LEADER, RECOVERED, AnyRecord, Listener
from .requests import RequestsImage
from .scram import ScramImage


class Provenance(msgspec.Struct, frozen=True):
    """Position of an image: `offset` is exclusive (the end of the last applied batch); `epoch` and `append_time_ms` are that
    batch's.
    """

    offset: int = 0
    epoch: int = 0
    append_time_ms: int = 0

    def __repr__(self) -> str:
        return f"{self.offset}@{self.epoch}"


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """State of one partition (KIP-455 fields; `directories` is parallel to `replicas`, KIP-858).

    `original` and `target` are () unless a reassignment runs: the replica set before the first of a run of reassignments, and
    the set of the last request.
    """

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    original: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def directory_of(self, broker_id: int) -> Uuid | None:
        """Directory assigned to that replica, None if the broker has no replica."""
        try:
            return self.directories[self.replicas.index(broker_id)]
        except ValueError:
            return None


class TopicImage(msgspec.Struct, frozen=True, gc=False):
    """A topic and its partitions by number."""

    name: str
    topic_id: Uuid
    partitions: immutables.Map[int, PartitionImage]


class TopicsImage(msgspec.Struct, frozen=True):
    """All topics, by id and by name. `reassigning`: topic id → sorted numbers of the partitions being reassigned."""

    by_id: immutables.Map[Uuid, TopicImage] = immutables.Map()
    by_name: immutables.Map[str, Uuid] = immutables.Map()
    reassigning: immutables.Map[Uuid, tuple[int, ...]] = immutables.Map()

    def get(self, name: str) -> TopicImage | None:
        topic_id = self.by_name.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, topic_id: Uuid, partition: int) -> PartitionImage | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)


class BrokerImage(msgspec.Struct, frozen=True):
    """Registration of one broker. `registration_offset`: offset of its RegisterBroker record."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    listeners: tuple[Listener, ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    registration_offset: int
    cordoned_log_dirs: tuple[Uuid, ...] = ()

    @property
    def is_cordoned(self) -> bool:
        """True if every directory is cordoned: automatic placement leaves this broker out (KIP-1066)."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)

    @property
    def is_active(self) -> bool:
        """True if unfenced and not in controlled shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    def has_online(self, directory: Uuid) -> bool:
        """Return True if a replica in that directory can serve (KIP-858). An unknown directory counts as online, LOST never
        does.
        """
        if directory in (UNASSIGNED, MIGRATING):
            return True
        return directory != LOST and (not self.log_dirs or directory in self.log_dirs)


class ControllerImage(msgspec.Struct, frozen=True):
    controller_id: int
    incarnation_id: Uuid
    listeners: tuple[Listener, ...]
    features: tuple[tuple[str, int, int], ...]

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)


class ClusterImage(msgspec.Struct, frozen=True):
    brokers: immutables.Map[int, BrokerImage] = immutables.Map()
    controllers: immutables.Map[int, ControllerImage] = immutables.Map()


ConfigResource = tuple[int, str]
"""(resource type, resource name): (2, topic) or (4, "0") or (4, "") for the cluster default of brokers."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """A metadata transaction that has begun and not ended. Its records count only once it ends (KIP-868).

    `held` has one tuple of (offset, record) per delta that held records back. No snapshot may be taken while a transaction is
    open.
    """

    begin_offset: int
    name: str | None
    held: tuple[tuple[tuple[int, AnyRecord], ...], ...] = ()


class MetadataImage(msgspec.Struct, frozen=True):
    """All metadata at `provenance.offset`. Records of an open transaction are carried along, but do not count yet."""

    provenance: Provenance = Provenance()
    features: immutables.Map[str, int] = immutables.Map()
    cluster: ClusterImage = ClusterImage()
    topics: TopicsImage = TopicsImage()
    configs: immutables.Map[ConfigResource, immutables.Map[str, str]] = immutables.Map()
    next_producer_id: int = 0
    """Lowest producer id that was not given to a broker yet. 0: none was ever given."""
    moves: MovesImage = MovesImage()
    acls: AclsImage = AclsImage()
    scram: ScramImage = immutables.Map()
    quotas: QuotasImage = immutables.Map()
    requests: RequestsImage = RequestsImage()
    transaction: OpenTransaction | None = None

    @property
    def stable_offset(self) -> int:
        """End offset of the records that count: the image's offset or, while a transaction is open, the transaction's begin
        offset (KIP-868).
        """
        return self.provenance.offset if self.transaction is None else self.transaction.begin_offset

    def is_same_content(self, other: MetadataImage) -> bool:
        """Return True if both images have the same content. They must be successive images: the check compares identities
        only.
        """
        return all(
            getattr(self, name) is getattr(other, name) or name in ("provenance", "transaction")
            for name in self.__struct_fields__
        )

    def config(self, resource_type: int, resource_name: str, name: str) -> str | None:
        """One dynamic value, None if that resource does not set it."""
        values = self.configs.get((resource_type, resource_name))
        return None if values is None else values.get(name)


EMPTY = MetadataImage()
