"""Indexes derived from the image, persistent like the image itself: the partitions to change when a broker or a directory
goes.

The cost of fencing a broker must depend on its own partitions, not on the size of the cluster. So each image has an index of
the same offset. It has the partitions with a broker in their in-sync set, as their leader, or among their eligible leader
replicas; the partitions without a leader, or with another than the preferred one; the partitions in a directory; and the topic
names of one collision form. The index is never written to the log. `apply` updates it from one image to the next with the
changes of a delta, and older indexes remain valid.

Changes are applied topic by topic: first the joins and leaves of all sets are collected, then each set takes the topic's
partitions at once. The only question about a leader is whether it leads any partition, so leaderships are only counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

import immutables
import msgspec

from kraftlab.common.uuids import LOST, MIGRATING, UNASSIGNED, Uuid

from .changes import MetadataChanges
from .delta import MetadataDelta, PartitionStep
from .image import MetadataImage, PartitionImage
from .maps import written
from .moves import TopicPartition
from .partition_sets import EMPTY_SET, FamilyChanges, PartitionSet, SetChanges, members, size
from .records import NO_LEADER

K = TypeVar("K")

_NO_DIRECTORY = (MIGRATING, UNASSIGNED, LOST)

_NOT_THERE = -2
_ABSENT = PartitionImage((_NOT_THERE,), (), (), _NOT_THERE)
"""State of a partition that does not exist: it is in no set, not even in the set without a leader."""


def collision_form(name: str) -> str:
    """Form of a topic name with "_" for ".". Names with the same form collide in metric names."""
    return name.replace(".", "_")


class MetadataIndex(msgspec.Struct, frozen=True):
    """`in_sync`: broker → partitions with it in their in-sync set. `leads`: broker → number of partitions that it leads.
    `no_leader`: partitions without a leader. `directories`: directory id → partitions with a replica assigned to it.
    `owners`: directory id → broker that registered it. `names`: collision form → topic names, sorted. `eligible`: broker →
    partitions with it among their eligible leader replicas. `imbalanced`: partitions that their first replica, the
    preferred leader, does not lead. Use the methods, whose results are sorted.
    """

    in_sync: immutables.Map[int, PartitionSet] = immutables.Map()
    leads: immutables.Map[int, int] = immutables.Map()
    no_leader: PartitionSet = EMPTY_SET
    directories: immutables.Map[Uuid, PartitionSet] = immutables.Map()
    owners: immutables.Map[Uuid, int] = immutables.Map()
    names: immutables.Map[str, tuple[str, ...]] = immutables.Map()
    eligible: immutables.Map[int, PartitionSet] = immutables.Map()
    imbalanced: PartitionSet = EMPTY_SET

    def partitions_in_isr(self, broker_id: int) -> list[TopicPartition]:
        """Partitions with the broker in their in-sync set."""
        return members(self.in_sync.get(broker_id, EMPTY_SET))

    def partitions_in_elr(self, broker_id: int) -> list[TopicPartition]:
        """Partitions with the broker among their eligible leader replicas (KIP-966)."""
        return members(self.eligible.get(broker_id, EMPTY_SET))

    def concerned_by(self, broker_id: int) -> int:
        """Number of partitions that a broker's end or return may change: those with the broker in their in-sync set or among
        their eligible leader replicas, and those without a leader.
        """
        sets = (self.in_sync.get(broker_id, EMPTY_SET), self.eligible.get(broker_id, EMPTY_SET), self.no_leader)
        return sum(map(size, sets))

    def leads_any(self, broker_id: int) -> bool:
        return broker_id in self.leads

    def leaderless(self) -> list[TopicPartition]:
        """Partitions without a leader."""
        return members(self.no_leader)

    def led_by_others(self) -> list[TopicPartition]:
        """Partitions that their first replica does not lead, including those without a leader."""
        return members(self.imbalanced)

    def partitions_in_directory(self, directory_id: Uuid) -> list[TopicPartition]:
        """Partitions with a replica assigned to that directory."""
        return members(self.directories.get(directory_id, EMPTY_SET))

    def broker_of_directory(self, directory_id: Uuid) -> int | None:
        """Broker that registered that directory as online, None if there is none."""
        return self.owners.get(directory_id)

    def colliding_topics(self, name: str) -> tuple[str, ...]:
        """Existing topics with the collision form of `name`, including that name itself if it exists."""
        return self.names.get(collision_form(name), ())

    def apply(self, delta: MetadataDelta, after: MetadataImage) -> MetadataIndex:
        """Return the index of `after`, which `delta` made. This index must be that of `delta.image`."""
        sets = _SetsChanges(self)
        for topic_id, steps in delta.changed_partitions():
            sets.take(topic_id, steps)
        changes = delta.changes()
        return sets.finish(
            _owners(self.owners, changes, delta.image, after),
            _names(self.names, changes, delta.image, after),
        )


class _Moves(Generic[K]):
    """Partitions of a topic that left and joined the sets, by key of the set."""

    __slots__ = ("joined", "left")

    def __init__(self) -> None:
        self.left: defaultdict[K, list[int]] = defaultdict(list)
        self.joined: defaultdict[K, list[int]] = defaultdict(list)

    def note(self, numbers: list[int], before: tuple[K, ...], now: tuple[K, ...]) -> None:
        """Note that these partitions were in the sets of the keys `before`, and are in those of the keys `now`."""
        for key in before:
            if key not in now:
                self.left[key] += numbers
        for key in now:
            if key not in before:
                self.joined[key] += numbers

    def forget(self, key: K) -> None:
        """Drop a key that has no set."""
        self.left.pop(key, None)
        self.joined.pop(key, None)


class _SetsChanges:
    """Sets of an index while partitions move between them."""

    def __init__(self, index: MetadataIndex) -> None:
        self._in_sync = FamilyChanges(index.in_sync)
        self._leads = index.leads
        self._leads_more: defaultdict[int, int] = defaultdict(int)
        self._no_leader = SetChanges(index.no_leader)
        self._directories = FamilyChanges(index.directories)
        self._eligible = FamilyChanges(index.eligible)
        self._imbalanced = SetChanges(index.imbalanced)

    def take(self, topic_id: Uuid, steps: Iterable[PartitionStep]) -> None:
        """Add partitions of a topic, each once, with their states before and now (None: it does not exist)."""
        in_sync: _Moves[int] = _Moves()
        eligible: _Moves[int] = _Moves()
        directories: _Moves[Uuid] = _Moves()
        together: defaultdict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
        led: list[int] = []
        leaderless: list[int] = []
        balanced: list[int] = []
        imbalanced: list[int] = []
        leads_more = self._leads_more
        for number, before, now in steps:
            old, new = before or _ABSENT, now or _ABSENT
            leader, new_leader = old.leader, new.leader
            # Unchanged fields are the same objects, and are skipped.
            if old.isr is not new.isr:
                together[old.isr, new.isr].append(number)
            if leader != new_leader:
                leads_more[leader] -= 1
                leads_more[new_leader] += 1
                if leader == NO_LEADER:
                    led.append(number)
                elif new_leader == NO_LEADER:
                    leaderless.append(number)
            if leader != new_leader or old.replicas is not new.replicas:
                is_imbalanced = new_leader != new.replicas[0]
                if is_imbalanced != (leader != old.replicas[0]):
                    (imbalanced if is_imbalanced else balanced).append(number)
            if old.directories is not new.directories:
                directories.note([number], old.directories, new.directories)
            if old.elr is not new.elr:
                eligible.note([number], old.elr, new.elr)
        for (isr, new_isr), numbers in together.items():
            in_sync.note(numbers, isr, new_isr)
        for nowhere in _NO_DIRECTORY:
            directories.forget(nowhere)
        self._in_sync.replace(topic_id, in_sync.left, in_sync.joined)
        self._directories.replace(topic_id, directories.left, directories.joined)
        self._eligible.replace(topic_id, eligible.left, eligible.joined)
        self._no_leader.replace(topic_id, led, leaderless)
        self._imbalanced.replace(topic_id, balanced, imbalanced)

    def finish(self, owners: immutables.Map[Uuid, int], names: immutables.Map[str, tuple[str, ...]]) -> MetadataIndex:
        return MetadataIndex(
            self._in_sync.finish(),
            self._counts(),
            self._no_leader.finish(),
            self._directories.finish(),
            owners,
            names,
            self._eligible.finish(),
            self._imbalanced.finish(),
        )

    def _counts(self) -> immutables.Map[int, int]:
        leads, more = self._leads, self._leads_more
        return written(leads, {broker: leads.get(broker, 0) + more[broker] or None for broker in more if broker >= 0})


def _owners(
    owners: immutables.Map[Uuid, int], changes: MetadataChanges, before: MetadataImage, after: MetadataImage
) -> immutables.Map[Uuid, int]:
    """Owners of directories after registrations changed."""
    overlay: dict[Uuid, int | None] = {}
    for broker_id in changes.brokers:
        if (old := before.cluster.brokers.get(broker_id)) is not None:
            overlay.update(dict.fromkeys(old.log_dirs))
    for broker_id in changes.brokers:
        if (new := after.cluster.brokers.get(broker_id)) is not None:
            overlay.update(dict.fromkeys(new.log_dirs, broker_id))
    return written(owners, overlay)


def _names(
    names: immutables.Map[str, tuple[str, ...]], changes: MetadataChanges, before: MetadataImage, after: MetadataImage
) -> immutables.Map[str, tuple[str, ...]]:
    """Collision forms after topics were deleted and created."""
    overlay: dict[str, set[str]] = {}
    for topic_ids, image, is_created in ((changes.deleted_topics, before, False), (changes.created_topics, after, True)):
        for topic_id in topic_ids:
            name = image.topics.by_id[topic_id].name
            form = collision_form(name)
            known = overlay.setdefault(form, set(names.get(form, ())))
            if is_created:
                known.add(name)
            else:
                known.discard(name)
    return written(names, {form: tuple(sorted(known)) or None for form, known in overlay.items()})


EMPTY_INDEX = MetadataIndex()


def index_of(image: MetadataImage) -> MetadataIndex:
    """Build the index of an image from scratch, for a loaded snapshot. One pass, and nothing is held twice."""
    sets = _SetsChanges(EMPTY_INDEX)
    for topic_id, topic in image.topics.by_id.items():
        sets.take(topic_id, ((number, None, partition) for number, partition in topic.partitions.items()))
    names: dict[str, list[str]] = defaultdict(list)
    for name in image.topics.by_name:
        names[collision_form(name)].append(name)
    return sets.finish(
        immutables.Map(
            {directory: broker.broker_id for _, broker in image.cluster.brokers.items() for directory in broker.log_dirs}
        ),
        immutables.Map({form: tuple(sorted(known)) for form, known in names.items()}),
    )
