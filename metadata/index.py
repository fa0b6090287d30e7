"""Indexes derived from the image, persistent like the image itself: what to touch when a broker or a directory goes.

Fencing a broker must cost what its partitions cost, not what the cluster has. So beside each image stands an index of the same
offset: which partitions have a broker in their in-sync set (and does it lead them) or among their eligible leader replicas,
which have no leader or another than the preferred one, which lie in a directory, and which names stand behind one collision
form. It is never written to the log: `apply` brings it from one image to the next by looking at what a delta changed, and an
older index is still there for who kept the reference.
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
from .records import NO_LEADER
from .uuids import LOST, MIGRATING, UNASSIGNED, Uuid

K = TypeVar("K")

_NO_DIRECTORY = (MIGRATING, UNASSIGNED, LOST)
_NOTHING: immutables.Map[TopicPartition, bool] = immutables.Map()


def collision_form(name: str) -> str:
    """Topic names that differ only by "." and "_" collide in metric names: they have this form in common."""
    return name.replace(".", "_")


class MetadataIndex(msgspec.Struct, frozen=True):
    """`in_sync`: broker → its in-sync partitions, True where it leads. `no_leader`: partitions without leader. `directories`:
    directory id → partitions of replicas assigned to it. `owners`: directory id → broker that registered it. `names`: collision
    form → topic names, sorted. `eligible`: broker → partitions that have it among their eligible leader replicas. `imbalanced`:
    partitions that their preferred leader, the first replica, does not lead. Ask through the methods, whose answers are sorted.
    """

    in_sync: immutables.Map[int, immutables.Map[TopicPartition, bool]] = immutables.Map()
    no_leader: immutables.Map[TopicPartition, bool] = immutables.Map()
    directories: immutables.Map[Uuid, immutables.Map[TopicPartition, bool]] = immutables.Map()
    owners: immutables.Map[Uuid, int] = immutables.Map()
    names: immutables.Map[str, tuple[str, ...]] = immutables.Map()
    eligible: immutables.Map[int, immutables.Map[TopicPartition, bool]] = immutables.Map()
    imbalanced: immutables.Map[TopicPartition, bool] = immutables.Map()

    def partitions_in_isr(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that have the broker in their in-sync set."""
        return sorted(self.in_sync.get(broker_id, _NOTHING))

    def partitions_in_elr(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that have the broker among their eligible leader replicas (KIP-966)."""
        return sorted(self.eligible.get(broker_id, _NOTHING))

    def leads_any(self, broker_id: int) -> bool:
        return any(self.in_sync.get(broker_id, _NOTHING).values())

    def leaderless(self) -> list[TopicPartition]:
        """The partitions that have no leader."""
        return sorted(self.no_leader)

    def led_by_others(self) -> list[TopicPartition]:
        """The partitions that are not led by their first replica, those without leader included."""
        return sorted(self.imbalanced)

    def partitions_in_directory(self, directory_id: Uuid) -> list[TopicPartition]:
        """The partitions with a replica assigned to that directory."""
        return sorted(self.directories.get(directory_id, _NOTHING))

    def broker_of_directory(self, directory_id: Uuid) -> int | None:
        """The broker that has registered that directory as online, None if nobody has."""
        return self.owners.get(directory_id)

    def colliding_topics(self, name: str) -> tuple[str, ...]:
        """Existing topics with the collision form of `name`, that name itself included if it exists."""
        return self.names.get(collision_form(name), ())

    def apply(self, delta: MetadataDelta, after: MetadataImage) -> MetadataIndex:
        """The index of `after`, which `delta` made; this one must be the index of `delta.image`."""
        return self.apply_changes(delta.changes(), delta.image, after)

    def apply_changes(self, changes: MetadataChanges, before: MetadataImage, after: MetadataImage) -> MetadataIndex:
        """The index of `after`; this one must be the index of `before`, and `changes` all that differs between the two."""
        in_sync: _Overlay[int] = defaultdict(dict)
        directories: _Overlay[Uuid] = defaultdict(dict)
        eligible: _Overlay[int] = defaultdict(dict)
        no_leader: dict[TopicPartition, bool | None] = {}
        imbalanced: dict[TopicPartition, bool | None] = {}
        for key, old, new in changes.each_partition(before, after):
            _compare_in_sync(in_sync, key, old, new)
            _compare_directories(directories, key, old, new)
            _compare_eligible(eligible, key, old, new)
            is_imbalanced = new is not None and new.leader != new.replicas[0]
            if is_imbalanced != (old is not None and old.leader != old.replicas[0]):
                imbalanced[key] = is_imbalanced or None
            lacks_leader = new is not None and new.leader == NO_LEADER
            if lacks_leader != (old is not None and old.leader == NO_LEADER):
                no_leader[key] = lacks_leader or None
        return MetadataIndex(
            _merged(self.in_sync, in_sync),
            written(self.no_leader, no_leader),
            _merged(self.directories, directories),
            _owners(self.owners, changes, before, after),
            _names(self.names, changes, before, after),
            _merged(self.eligible, eligible),
            written(self.imbalanced, imbalanced),
        )


_Overlay = dict[K, dict[TopicPartition, bool | None]]
"""Changes of a map of maps: key → partition → new value, None to remove."""


def _compare_in_sync(overlay: _Overlay[int], key: TopicPartition, old: PartitionImage | None, new: PartitionImage | None) -> None:
    """Notes who left and who entered the in-sync set, and whose leadership changed."""
    old_isr, old_leader = (old.isr, old.leader) if old is not None else ((), NO_LEADER)
    new_isr, new_leader = (new.isr, new.leader) if new is not None else ((), NO_LEADER)
    if old_isr == new_isr and old_leader == new_leader:
        return
    for broker_id in old_isr:
        if broker_id not in new_isr:
            overlay[broker_id][key] = None
    for broker_id in new_isr:
        leads = broker_id == new_leader
        if broker_id not in old_isr or leads != (broker_id == old_leader):
            overlay[broker_id][key] = leads


def _compare_directories(
    overlay: _Overlay[Uuid], key: TopicPartition, old: PartitionImage | None, new: PartitionImage | None
) -> None:
    """Notes directories that lost or got a replica of the partition. Reserved ids stand for no directory."""
    old_directories = old.directories if old is not None else ()
    new_directories = new.directories if new is not None else ()
    if old_directories == new_directories:
        return
    for directory_id in old_directories:
        if directory_id not in new_directories and directory_id not in _NO_DIRECTORY:
            overlay[directory_id][key] = None
    for directory_id in new_directories:
        if directory_id not in old_directories and directory_id not in _NO_DIRECTORY:
            overlay[directory_id][key] = True


def _compare_eligible(
    overlay: _Overlay[int], key: TopicPartition, old: PartitionImage | None, new: PartitionImage | None
) -> None:
    """Notes who left and who entered the eligible leader replicas."""
    old_elr = old.elr if old is not None else ()
    new_elr = new.elr if new is not None else ()
    if old_elr == new_elr:
        return
    for broker_id in old_elr:
        overlay[broker_id][key] = None
    for broker_id in new_elr:
        overlay[broker_id][key] = True


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


def _merged(
    base: immutables.Map[K, immutables.Map[TopicPartition, bool]], overlay: _Overlay[K]
) -> immutables.Map[K, immutables.Map[TopicPartition, bool]]:
    """`base` with the overlay's values written into its inner maps; inner maps that become empty are dropped."""
    return written(base, {key: written(base.get(key, _NOTHING), inner) or None for key, inner in overlay.items()})


EMPTY_INDEX = MetadataIndex()


def index_of(image: MetadataImage) -> MetadataIndex:
    """The index of an image from scratch, for a loaded snapshot. One pass, and nothing is held twice."""
    in_sync = _Mutations[int]()
    directories = _Mutations[Uuid]()
    eligible = _Mutations[int]()
    no_leader: dict[TopicPartition, bool] = {}
    imbalanced: dict[TopicPartition, bool] = {}
    for topic_id, topic in image.topics.by_id.items():
        for number, partition in topic.partitions.items():
            key, leader = (topic_id, number), partition.leader
            if leader == NO_LEADER:
                no_leader[key] = True
            if leader != partition.replicas[0]:
                imbalanced[key] = True
            for broker_id in partition.elr:
                eligible[broker_id][key] = True
            for broker_id in partition.isr:
                in_sync[broker_id][key] = broker_id == leader
            for directory_id in partition.directories:
                if directory_id not in _NO_DIRECTORY:
                    directories[directory_id][key] = True
    names: dict[str, list[str]] = defaultdict(list)
    for name in image.topics.by_name:
        names[collision_form(name)].append(name)
    return MetadataIndex(
        in_sync.finish(),
        immutables.Map(no_leader),
        directories.finish(),
        immutables.Map(
            {directory: broker.broker_id for _, broker in image.cluster.brokers.items() for directory in broker.log_dirs}
        ),
        immutables.Map({form: tuple(sorted(known)) for form, known in names.items()}),
        eligible.finish(),
        immutables.Map(imbalanced),
    )


class _Mutations(dict[K, "immutables.MapMutation[TopicPartition, bool]"]):
    """Inner maps of a map of maps while they are filled."""

    def __missing__(self, key: K) -> immutables.MapMutation[TopicPartition, bool]:
        made = self[key] = _NOTHING.mutate()
        return made

    def finish(self) -> immutables.Map[K, immutables.Map[TopicPartition, bool]]:
        return immutables.Map({key: inner.finish() for key, inner in self.items()})
