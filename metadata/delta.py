"""The step from one image to the next: replays records, then makes the new image once.

A delta collects the changes of its records in plain dicts over the image it starts with (`image`), and never changes that
image. `apply` writes each changed part into a new persistent map and shares the rest. So the cost of a record does not depend
on the size of the cluster, and many batches can be collected and published as one. Afterwards the same dicts give the changes
(`changes`).

A delta trusts nothing. A record that does not fit the records before it raises ReplayError, which names offset and record and
means that this node must stop. After that error the delta is useless; the image it started with is intact.

Records between BeginTransaction and EndTransaction (KIP-868) are held back. If the delta ends before the transaction does, the
new image's `transaction` has them. They are replayed at the end of the transaction, or dropped at its abort. A caller that
replays a log batch by batch needs no special handling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import immutables
import msgspec

from kraftlab.common.uuids import Uuid, to_text

from . import features
from .acls import AclsDelta
from .changes import MetadataChanges
from .image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    MetadataImage,
    OpenTransaction,
    PartitionImage,
    Provenance,
    TopicImage,
    TopicsImage,
)
from .maps import newest, written
from .moves_delta import MovesDelta
from .partition_sets import PARTITIONS_PER_TOPIC_MAX
from .partitions import partition_after, partition_from
from .quotas import QuotasDelta
from .records import (
    RESOURCE_TOPIC,
    AbortTransaction,
    AccessControlEntry,
    AnyRecord,
    BeginTransaction,
    BrokerRegistrationChange,
    ChangeMoveThrottles,
    ClearElr,
    ClientQuota,
    Config,
    DequeueMoves,
    EndTransaction,
    FeatureLevel,
    ForgottenRequests,
    MovePlan,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    QueueMoves,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemovePlan,
    RemoveTopic,
    RemoveUserScramCredential,
    RequestOutcome,
    StartMoves,
    Topic,
    UnregisterBroker,
    UserScramCredential,
)
from .replay_error import ReplayError
from .requests import RequestsDelta
from .scram import ScramDelta


class _TopicDelta:
    """One topic while records are replayed. `before`: its partitions in the image, empty if the topic `is_new`. `changed`: its
    changed partitions. `replaced`: their states in the image, which saves looking them up again.
    """

    __slots__ = ("before", "changed", "is_new", "name", "replaced")

    def __init__(self, name: str, before: immutables.Map[int, PartitionImage], is_new: bool = False) -> None:
        self.name = name
        self.before = before
        self.is_new = is_new
        self.changed: dict[int, PartitionImage] = {}
        self.replaced: dict[int, PartitionImage] = {}

    def get(self, partition_id: int) -> PartitionImage | None:
        """Newest state of the partition."""
        changed = self.changed.get(partition_id)
        return self.before.get(partition_id) if changed is None else changed

    def put(self, partition_id: int, partition: PartitionImage) -> None:
        """Set the newest state of the partition."""
        if partition_id not in self.changed and (before := self.before.get(partition_id)) is not None:
            self.replaced[partition_id] = before
        self.changed[partition_id] = partition


PartitionStep = tuple[int, PartitionImage | None, PartitionImage | None]
"""Number of a partition, with its state before (None: it is new) and after (None: it is gone)."""


class MetadataDelta:
    """Records replayed on `image` and not yet applied. Not thread-safe; make one per batch or run of batches."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._topics: dict[Uuid, _TopicDelta | None] = {}
        self._names: dict[str, Uuid | None] = {}
        self._brokers: dict[int, BrokerImage | None] = {}
        self._controllers: dict[int, ControllerImage | None] = {}
        self._features: dict[str, int | None] = {}
        self._configs: dict[ConfigResource, immutables.Map[str, str] | None] = {}
        self._next_producer_id = image.next_producer_id
        self._acls = AclsDelta(image.acls)
        self._scram = ScramDelta(image.scram)
        self._quotas = QuotasDelta(image.quotas)
        self._moves = MovesDelta(image.moves)
        self._requests: RequestsDelta | None = None
        self._transaction = image.transaction
        self._transaction_end: int | None = None
        """End offset of the transaction whose records are being replayed, otherwise None."""
        self._held: list[tuple[int, AnyRecord]] = []

    def replay(self, record: AnyRecord, offset: int) -> None:
        """Replay one record at `offset`. ReplayError if it does not fit."""
        self.replay_all((record,), offset)

    def replay_all(self, records: Iterable[AnyRecord], base_offset: int) -> None:
        """Replay a batch's records, the first of which is at `base_offset`."""
        for offset, record in enumerate(records, base_offset):
            kind = type(record)
            try:
                if self._transaction is not None and kind not in TRANSACTION_MARKERS:
                    self._held.append((offset, record))
                else:
                    _HANDLERS[kind](self, record, offset)
            except ReplayError as error:
                raise ReplayError(
                    f"metadata record {record!r} at offset {offset} cannot be replayed: {error}; {error.next_step}",
                    error.next_step,
                ) from error

    def apply(self, provenance: Provenance) -> MetadataImage:
        """Return the image after the replayed records, at the position `provenance`. The delta can be used further."""
        image = self.image
        cluster = image.cluster
        if self._brokers or self._controllers:
            cluster = ClusterImage(written(cluster.brokers, self._brokers), written(cluster.controllers, self._controllers))
        transaction = self._transaction
        if transaction is not None and self._held:
            held = (*transaction.held, tuple(self._held))
            transaction = OpenTransaction(transaction.begin_offset, transaction.name, held)
        return MetadataImage(
            provenance,
            written(image.features, self._features),
            cluster,
            self._apply_topics() if self._topics else image.topics,
            written(image.configs, self._configs),
            next_producer_id=self._next_producer_id,
            acls=image.acls.after(self._acls.changed),
            scram=written(image.scram, self._scram.changed),
            quotas=written(image.quotas, self._quotas.changed),
            moves=self._moves.apply(),
            requests=image.requests if self._requests is None else self._requests.apply(),
            transaction=transaction,
        )

    def changes(self) -> MetadataChanges:
        """Changes of the replayed records, against `image`."""
        created: set[Uuid] = set()
        deleted: set[Uuid] = set()
        partitions: dict[Uuid, frozenset[int]] = {}
        for topic_id, topic in self._topics.items():
            old = self.image.topics.by_id.get(topic_id)
            numbers = set(topic.changed) if topic is not None else set()
            if topic is not None and old is None:
                created.add(topic_id)
            elif topic is None and old is not None:
                deleted.add(topic_id)
            if old is not None and (topic is None or topic.is_new):
                numbers.update(old.partitions)
            if numbers:
                partitions[topic_id] = frozenset(numbers)
        return MetadataChanges(
            frozenset(created),
            frozenset(deleted),
            partitions,
            frozenset(self._brokers),
            frozenset(self._controllers),
            frozenset(self._configs),
            frozenset(self._features),
            acls=frozenset(self._acls.changed),
            scram=frozenset(self._scram.changed),
            quotas=frozenset(self._quotas.changed),
        )

    def changed_partitions(self) -> Iterator[tuple[Uuid, list[PartitionStep]]]:
        """Changed partitions, topic by topic, with their states in `image` and now."""
        for topic_id, topic in self._topics.items():
            if topic is not None and not topic.is_new:
                replaced = topic.replaced.get
                yield topic_id, [(number, replaced(number), new) for number, new in topic.changed.items()]
                continue
            found = self.image.topics.by_id.get(topic_id)
            old = {} if found is None else found.partitions
            changed = {} if topic is None else topic.changed
            steps: list[PartitionStep] = [(number, old.get(number), new) for number, new in changed.items()]
            steps += [(number, partition, None) for number, partition in old.items() if number not in changed]
            yield topic_id, steps

    def _apply_topics(self) -> TopicsImage:
        """Topics with their changed partitions, and the listing of partitions that are being reassigned."""
        topics = self.image.topics
        by_id: dict[Uuid, TopicImage | None] = {}
        reassigning: dict[Uuid, tuple[int, ...] | None] = {}
        for topic_id, topic in self._topics.items():
            if topic is None:
                by_id[topic_id] = reassigning[topic_id] = None
                continue
            if not topic.changed and not topic.is_new:
                continue
            by_id[topic_id] = TopicImage(topic.name, topic_id, topic.before.update(topic.changed))
            listed = topics.reassigning.get(topic_id, ())
            moving = set() if topic.is_new else {number for number in listed if number not in topic.changed}
            moving.update(number for number, partition in topic.changed.items() if partition.adding or partition.removing)
            if moving or listed:
                reassigning[topic_id] = tuple(sorted(moving)) or None
        return TopicsImage(
            written(topics.by_id, by_id), written(topics.by_name, self._names), written(topics.reassigning, reassigning)
        )

    def _topic(self, topic_id: Uuid) -> _TopicDelta:
        """Newest state of the topic. ReplayError if it does not exist."""
        topic = self._topics.get(topic_id)
        if topic is None:
            found = None if topic_id in self._topics else self.image.topics.by_id.get(topic_id)
            if found is None:
                raise ReplayError(f"there is no topic with id {to_text(topic_id)}")
            topic = self._topics[topic_id] = _TopicDelta(found.name, found.partitions)
        return topic

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """Newest registration with exactly that epoch. ReplayError if it does not exist."""
        broker = newest(self.image.cluster.brokers, self._brokers, broker_id)
        if broker is None:
            raise ReplayError(f"broker {broker_id} is not registered")
        if broker.epoch != broker_epoch:
            raise ReplayError(f"broker {broker_id} is registered with epoch {broker.epoch}")
        return broker

    def _replay_topic(self, record: Topic, offset: int) -> None:
        topics = self.image.topics
        if newest(topics.by_name, self._names, record.name) is not None:
            raise ReplayError("a topic of this name exists")
        if (record.topic_id in topics.by_id and record.topic_id not in self._topics) or self._topics.get(record.topic_id):
            raise ReplayError("a topic of this id exists")
        self._topics[record.topic_id] = _TopicDelta(record.name, immutables.Map(), is_new=True)
        self._names[record.name] = record.topic_id

    def _replay_partition(self, record: Partition, offset: int) -> None:
        topic = self._topic(record.topic_id)
        if topic.get(record.partition_id) is not None:
            raise ReplayError("the partition exists")
        if not 0 <= record.partition_id < PARTITIONS_PER_TOPIC_MAX:
            raise ReplayError(f"partition numbers lie between 0 and {PARTITIONS_PER_TOPIC_MAX - 1}")
        topic.changed[record.partition_id] = partition_from(record)

    def _replay_partition_change(self, record: PartitionChange, offset: int) -> None:
        """The most frequent record of a large cluster."""
        topic = self._topics.get(record.topic_id) or self._topic(record.topic_id)
        number = record.partition_id
        before = topic.changed.get(number)
        if before is None:
            before = topic.before.get(number)
            if before is None:
                raise ReplayError(f"topic {topic.name} has no such partition")
            topic.replaced[number] = before
        topic.changed[number] = partition_after(before, record)
        if record.adding_replicas == () and record.removing_replicas == ():
            self._moves.ended(record.topic_id, number)

    def _replay_remove_topic(self, record: RemoveTopic, offset: int) -> None:
        name = self._topic(record.topic_id).name
        self._topics[record.topic_id] = None
        self._names[name] = None
        self._moves.topic_removed(record.topic_id)
        resource = (RESOURCE_TOPIC, name)
        if resource in self._configs or resource in self.image.configs:
            self._configs[resource] = None

    def _replay_config(self, record: Config, offset: int) -> None:
        resource = (record.resource_type, record.resource_name)
        values: immutables.Map[str, str] = newest(self.image.configs, self._configs, resource) or immutables.Map()
        self._configs[resource] = written(values, {record.name: record.value}) or None

    def _replay_register_broker(self, record: RegisterBroker, offset: int) -> None:
        self._brokers[record.broker_id] = BrokerImage(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            record.listeners,
            record.features,
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.log_dirs,
            offset if record.registration_offset is None else record.registration_offset,
            record.cordoned_log_dirs,
        )

    def _replay_unregister_broker(self, record: UnregisterBroker, offset: int) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self._brokers[record.broker_id] = None

    def _replay_registration_change(self, record: BrokerRegistrationChange, offset: int) -> None:
        """A directory that goes offline is no longer cordoned."""
        broker = self._broker(record.broker_id, record.broker_epoch)
        log_dirs = broker.log_dirs if record.log_dirs is None else record.log_dirs
        cordoned = broker.cordoned_log_dirs if record.cordoned_log_dirs is None else record.cordoned_log_dirs
        self._brokers[record.broker_id] = msgspec.structs.replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown if record.in_controlled_shutdown is None else record.in_controlled_shutdown
            ),
            log_dirs=log_dirs,
            cordoned_log_dirs=tuple(each for each in cordoned if each in log_dirs),
        )

    def _replay_register_controller(self, record: RegisterController, offset: int) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            record.controller_id, record.incarnation_id, record.listeners, record.features
        )

    def _replay_feature_level(self, record: FeatureLevel, offset: int) -> None:
        if not features.is_supported(record.name, record.feature_level):
            raise ReplayError(
                f"this software does not support that level (it supports {features.SUPPORTED})",
                "this node must stop; run the newer software version",
            )
        self._features[record.name] = record.feature_level or None

    def _replay_producer_ids(self, record: ProducerIds, offset: int) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise ReplayError(f"producer ids below {self._next_producer_id} have been given out already")
        self._next_producer_id = record.next_producer_id

    def _replay_clear_elr(self, record: ClearElr, offset: int) -> None:
        if record.topic_name:
            self._clear_elr(self._topic(self._topic_id(record.topic_name)))
            return
        deleted = [topic_id for topic_id, topic in self._topics.items() if topic is None]
        for topic_id in {*self.image.topics.by_id, *self._topics}.difference(deleted):
            self._clear_elr(self._topic(topic_id))

    def _clear_elr(self, topic: _TopicDelta) -> None:
        for partition_id in {*topic.before, *topic.changed}:
            partition = topic.get(partition_id)
            if partition is not None and partition.isr and (partition.elr or partition.last_known_elr):
                cleared = msgspec.structs.replace(
                    partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )
                topic.put(partition_id, cleared)

    def _topic_id(self, name: str) -> Uuid:
        """Newest id of the topic of that name. ReplayError if it does not exist."""
        topic_id = newest(self.image.topics.by_name, self._names, name)
        if topic_id is None:
            raise ReplayError(f"there is no topic named {name}")
        return topic_id

    def _replay_start_moves(self, record: StartMoves, offset: int) -> None:
        for topic_id, number, _ in record.moves:
            partition = self._topic(topic_id).get(number)
            if partition is None or not partition.is_reassigning:
                raise ReplayError(f"partition {number} of {self._topic(topic_id).name} is not being reassigned")
        self._moves.start(record)

    def _replay_queue_moves(self, record: QueueMoves, offset: int) -> None:
        for topic_id, number, *_ in record.moves:
            partition = self._topic(topic_id).get(number)
            if partition is None or partition.is_reassigning:
                what = "does not exist" if partition is None else "is being reassigned already"
                raise ReplayError(f"partition {number} of {self._topic(topic_id).name} {what}")
        self._moves.queue(record)

    def _replay_request_outcome(self, record: RequestOutcome, offset: int) -> None:
        self._answered().answer(record, self._transaction_end or offset + 1)

    def _answered(self) -> RequestsDelta:
        """Delta of the answers to requests. Made on demand, since most batches have none."""
        if self._requests is None:
            self._requests = RequestsDelta(self.image.requests)
        return self._requests

    def _replay_begin(self, record: BeginTransaction, offset: int) -> None:
        if self._transaction is not None:
            raise ReplayError(f"the transaction begun at offset {self._transaction.begin_offset} is still open")
        self._transaction = OpenTransaction(offset, record.name)

    def _replay_end(self, record: EndTransaction, offset: int) -> None:
        self._transaction_end = offset + 1
        for held_offset, held in self._close_transaction():
            self.replay(held, held_offset)
        self._transaction_end = None

    def _close_transaction(self) -> list[tuple[int, AnyRecord]]:
        """Close the open transaction and return the records that it held."""
        if self._transaction is None:
            raise ReplayError("no transaction is open")
        held = [entry for chunk in self._transaction.held for entry in chunk] + self._held
        self._transaction, self._held = None, []
        return held


TRANSACTION_MARKERS = (BeginTransaction, EndTransaction, AbortTransaction)

_HANDLERS: dict[type[Record], Callable[[MetadataDelta, Any, int], object]] = {
    PartitionChange: MetadataDelta._replay_partition_change,
    Partition: MetadataDelta._replay_partition,
    Topic: MetadataDelta._replay_topic,
    RemoveTopic: MetadataDelta._replay_remove_topic,
    Config: MetadataDelta._replay_config,
    RegisterBroker: MetadataDelta._replay_register_broker,
    UnregisterBroker: MetadataDelta._replay_unregister_broker,
    BrokerRegistrationChange: MetadataDelta._replay_registration_change,
    RegisterController: MetadataDelta._replay_register_controller,
    FeatureLevel: MetadataDelta._replay_feature_level,
    ProducerIds: MetadataDelta._replay_producer_ids,
    ClearElr: MetadataDelta._replay_clear_elr,
    RequestOutcome: MetadataDelta._replay_request_outcome,
    ForgottenRequests: lambda delta, record, offset: delta._answered().forgotten(record),
    StartMoves: MetadataDelta._replay_start_moves,
    QueueMoves: MetadataDelta._replay_queue_moves,
    DequeueMoves: lambda delta, record, offset: delta._moves.dequeue(record),
    ChangeMoveThrottles: lambda delta, record, offset: delta._moves.change_throttles(record),
    MovePlan: lambda delta, record, offset: delta._moves.plan(record),
    RemovePlan: lambda delta, record, offset: delta._moves.remove_plan(record),
    AccessControlEntry: lambda delta, record, offset: delta._acls.add(record),
    RemoveAccessControlEntry: lambda delta, record, offset: delta._acls.remove(record),
    ClientQuota: lambda delta, record, offset: delta._quotas.replay(record),
    UserScramCredential: lambda delta, record, offset: delta._scram.put(record),
    RemoveUserScramCredential: lambda delta, record, offset: delta._scram.remove(record),
    NoOp: lambda delta, record, offset: None,
    BeginTransaction: MetadataDelta._replay_begin,
    EndTransaction: MetadataDelta._replay_end,
    AbortTransaction: lambda delta, record, offset: delta._close_transaction(),
}
