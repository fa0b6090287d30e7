"""Indexes derived from the image, persistent like the image itself: what to touch when a broker or a directory goes.

Fencing a broker must cost what its partitions cost, not what the cluster has. So beside each image stands an index of the same
offset: which partitions have a broker in their in-sync set, as their leader, or among their eligible leader replicas, which
have no leader or another than the preferred one, which lie in a directory, and which names stand behind one collision
form. It is never written to the log: `apply` brings it from one image to the next by looking at what a delta changed, and an
older index is still there for who kept the reference.

Where a partition stands in all these sets follows from a few of its fields, its *standing*. Partitions of a topic that go from
the same standing to the same other one, as most do when a broker is fenced, are moved from set to set together.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

import immutables
import msgspec

from .changes import MetadataChanges, TopicPartition
from .delta import MetadataDelta
from .image import MetadataImage, PartitionImage
from .maps import written
from .partition_sets import EMPTY_SET, FamilyChanges, PartitionSet, SetChanges, bits_of, members
from .records import NO_LEADER
from .uuids import LOST, MIGRATING, UNASSIGNED, Uuid

K = TypeVar("K")

_NO_DIRECTORY = (MIGRATING, UNASSIGNED, LOST)

_Standing = tuple[tuple[int, ...], int, int, tuple[int, ...], tuple[Uuid, ...]]
"""In-sync set, leader, preferred leader, eligible leader replicas and directories of a partition."""
_NOT_THERE = -2
_NOWHERE: _Standing = ((), _NOT_THERE, _NOT_THERE, (), ())
"""The standing of a partition that does not exist: in no set, not even in that of those without leader."""


def collision_form(name: str) -> str:
    """Topic names that differ only by "." and "_" collide in metric names: they have this form in common."""
    return name.replace(".", "_")


class MetadataIndex(msgspec.Struct, frozen=True):
    """`in_sync`: broker → the partitions in whose in-sync set it is. `leads`: broker → partitions it leads. `no_leader`:
    partitions without leader. `directories`: directory id → partitions of replicas assigned to it. `owners`: directory id →
    broker that registered it. `names`: collision form → topic names, sorted. `eligible`: broker → partitions that have it among
    their eligible leader replicas. `imbalanced`: partitions that their preferred leader, the first replica, does not lead. Ask
    through the methods, whose answers are sorted.
    """

    in_sync: immutables.Map[int, PartitionSet] = immutables.Map()
    leads: immutables.Map[int, PartitionSet] = immutables.Map()
    no_leader: PartitionSet = EMPTY_SET
    directories: immutables.Map[Uuid, PartitionSet] = immutables.Map()
    owners: immutables.Map[Uuid, int] = immutables.Map()
    names: immutables.Map[str, tuple[str, ...]] = immutables.Map()
    eligible: immutables.Map[int, PartitionSet] = immutables.Map()
    imbalanced: PartitionSet = EMPTY_SET

    def partitions_in_isr(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that have the broker in their in-sync set."""
        return members(self.in_sync.get(broker_id, EMPTY_SET))

    def partitions_in_elr(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that have the broker among their eligible leader replicas (KIP-966)."""
        return members(self.eligible.get(broker_id, EMPTY_SET))

    def leads_any(self, broker_id: int) -> bool:
        return broker_id in self.leads

    def leaderless(self) -> list[TopicPartition]:
        """The partitions that have no leader."""
        return members(self.no_leader)

    def led_by_others(self) -> list[TopicPartition]:
        """The partitions that are not led by their first replica, those without leader included."""
        return members(self.imbalanced)

    def partitions_in_directory(self, directory_id: Uuid) -> list[TopicPartition]:
        """The partitions with a replica assigned to that directory."""
        return members(self.directories.get(directory_id, EMPTY_SET))

    def broker_of_directory(self, directory_id: Uuid) -> int | None:
        """The broker that has registered that directory as online, None if nobody has."""
        return self.owners.get(directory_id)

    def colliding_topics(self, name: str) -> tuple[str, ...]:
        """Existing topics with the collision form of `name`, that name itself included if it exists."""
        return self.names.get(collision_form(name), ())

    def apply(self, delta: MetadataDelta, after: MetadataImage) -> MetadataIndex:
        """The index of `after`, which `delta` made; this one must be the index of `delta.image`."""
        sets = _SetsChanges(self)
        for topic_id, steps in delta.changed_partitions():
            together: defaultdict[tuple[_Standing, _Standing], list[int]] = defaultdict(list)
            for number, old, new in steps:
                if old is None:
                    together[_NOWHERE, _standing(new)].append(number)
                elif new is None:
                    together[_standing(old), _NOWHERE].append(number)
                else:
                    together[
                        (old.isr, old.leader, old.replicas[0], old.elr, old.directories),
                        (new.isr, new.leader, new.replicas[0], new.elr, new.directories),
                    ].append(number)
            for (before, now), numbers in together.items():
                if before != now:
                    sets.move(topic_id, bits_of(numbers), before, now)
        changes = delta.changes()
        return sets.finish(
            _owners(self.owners, changes, delta.image, after),
            _names(self.names, changes, delta.image, after),
        )


def _standing(partition: PartitionImage | None) -> _Standing:
    if partition is None:
        return _NOWHERE
    return (partition.isr, partition.leader, partition.replicas[0], partition.elr, partition.directories)


class _SetsChanges:
    """The sets of an index while partitions move between them."""

    def __init__(self, index: MetadataIndex) -> None:
        self._in_sync = FamilyChanges(index.in_sync)
        self._leads = FamilyChanges(index.leads)
        self._no_leader = SetChanges(index.no_leader)
        self._directories = FamilyChanges(index.directories)
        self._eligible = FamilyChanges(index.eligible)
        self._imbalanced = SetChanges(index.imbalanced)

    def move(self, topic_id: Uuid, bits: int, before: _Standing, now: _Standing) -> None:
        """These partitions of a topic, given as bits, stood there before and stand here now."""
        isr, leader, preferred, elr, directories = before
        new_isr, new_leader, new_preferred, new_elr, new_directories = now
        if isr != new_isr:
            self._in_sync.replace(isr, new_isr, topic_id, bits)
        if leader != new_leader:
            self._leads.replace((leader,) if leader >= 0 else (), (new_leader,) if new_leader >= 0 else (), topic_id, bits)
            if NO_LEADER in (leader, new_leader):
                self._no_leader.put(topic_id, bits, new_leader == NO_LEADER)
        is_imbalanced = new_leader != new_preferred
        if is_imbalanced != (leader != preferred):
            self._imbalanced.put(topic_id, bits, is_imbalanced)
        if directories != new_directories:
            placed, newly_placed = (
                [each for each in some if each not in _NO_DIRECTORY] for some in (directories, new_directories)
            )
            self._directories.replace(placed, newly_placed, topic_id, bits)
        if elr != new_elr:
            self._eligible.replace(elr, new_elr, topic_id, bits)

    def finish(self, owners: immutables.Map[Uuid, int], names: immutables.Map[str, tuple[str, ...]]) -> MetadataIndex:
        return MetadataIndex(
            self._in_sync.finish(),
            self._leads.finish(),
            self._no_leader.finish(),
            self._directories.finish(),
            owners,
            names,
            self._eligible.finish(),
            self._imbalanced.finish(),
        )


def _owners(
    owners: immutables.Map[Uuid, int], changes: MetadataChanges, before: MetadataImage, after: MetadataImage
) -> immutables.Map[Uuid, int]:
    """The owners of directories after registrations changed."""
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
    """The collision forms after topics were deleted and created."""
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
    """The index of an image from scratch, for a loaded snapshot. One pass, and nothing is held twice."""
    sets = _SetsChanges(EMPTY_INDEX)
    for topic_id, topic in image.topics.by_id.items():
        together: defaultdict[_Standing, list[int]] = defaultdict(list)
        for number, partition in topic.partitions.items():
            together[_standing(partition)].append(number)
        for standing, numbers in together.items():
            sets.move(topic_id, bits_of(numbers), _NOWHERE, standing)
    names: dict[str, list[str]] = defaultdict(list)
    for name in image.topics.by_name:
        names[collision_form(name)].append(name)
    return sets.finish(
        immutables.Map(
            {directory: broker.broker_id for _, broker in image.cluster.brokers.items() for directory in broker.log_dirs}
        ),
        immutables.Map({form: tuple(sorted(known)) for form, known in names.items()}),
    )
