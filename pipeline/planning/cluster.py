"""A cluster as arrays: the load model of plans.

Brokers, racks and topics are indexes into sorted lists. Replicas are a matrix with one row per partition, -1 where a row is
shorter than the widest. A replica weighs its partition's size. Unknown sizes count as the mean of the topic's known ones (0 if
there are none), so that a plan does not pile them up; `size_known` marks the known ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .documents import Broker, ClusterDocument

NOT_KNOWN = -1.0
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cluster:
    """B brokers, P partitions, at most R replicas each.

    `replicas`, `directory`: [P, R], broker index and index of the broker's log directory, -1 for none and unknown. `leader`: [P],
    broker index, -1 for none. `busy`: [P], a reassignment runs, whose end `replicas` shows. `capacity_bytes`: [B], bytes of the
    online directories that Kafka can use, -1 if any of them is unknown.
    """

    brokers: tuple[Broker, ...]
    topics: tuple[str, ...]
    topic: Ints
    partition: Ints
    replicas: Ints
    leader: Ints
    size_bytes: Ints
    size_known: Flags
    directory: Ints
    busy: Flags
    rack: Ints
    racks: tuple[str, ...]
    capacity_bytes: Floats
    cluster_id: str = ""
    as_of_offset: int = -1
    index_of: dict[int, int] = field(default_factory=dict)

    @property
    def partition_count(self) -> int:
        return len(self.partition)

    @property
    def broker_count(self) -> int:
        return len(self.brokers)

    @property
    def alive(self) -> Flags:
        return np.array([broker.alive for broker in self.brokers], dtype=bool)

    @property
    def replication_factor(self) -> Ints:
        factor: Ints = (self.replicas >= 0).sum(1)
        return factor

    def name(self, row: int) -> str:
        return f"{self.topics[self.topic[row]]}-{self.partition[row]}"

    def ids(self, row: NDArray[np.int64]) -> tuple[int, ...]:
        """Return broker ids of a row of indexes."""
        return tuple(self.brokers[index].id for index in row.tolist() if index >= 0)


def racks_of(brokers: tuple[Broker, ...]) -> tuple[Ints, tuple[str, ...]]:
    """Return (rack index by broker, names). A broker without a rack is a rack of its own, with a name of its own."""
    names = [broker.rack if broker.rack is not None else f"(broker {broker.id})" for broker in brokers]
    racks = tuple(dict.fromkeys(names))
    index = {name: at for at, name in enumerate(racks)}
    return np.array([index[name] for name in names], dtype=np.int64), racks


def cluster_of(document: ClusterDocument) -> Cluster:
    """Return the arrays of a validated document."""
    brokers = document.brokers
    index_of = {broker.id: index for index, broker in enumerate(brokers)}
    paths = [{directory.path: at for at, directory in enumerate(broker.log_dirs)} for broker in brokers]
    unsaid = [_default_directory(broker) for broker in brokers]
    entries = [(at, entry) for at, topic in enumerate(document.topics) for entry in topic.partitions]
    width = max(len(entry.replicas) for _, entry in entries)
    replicas = np.full((len(entries), width), -1, dtype=np.int64)
    directory = np.full((len(entries), width), -1, dtype=np.int64)
    leader = np.full(len(entries), -1, dtype=np.int64)
    size = np.full(len(entries), -1, dtype=np.int64)
    for row, (_, entry) in enumerate(entries):
        for slot, id in enumerate(entry.settled):
            broker = index_of[id]
            replicas[row, slot] = broker
            path = entry.log_dirs[entry.replicas.index(id)] if entry.log_dirs else None
            directory[row, slot] = unsaid[broker] if path is None else paths[broker].get(path, -1)
        leader[row] = index_of.get(entry.leader, -1)
        size[row] = -1 if entry.size_bytes is None else entry.size_bytes
    topic = np.array([at for at, _ in entries], dtype=np.int64)
    rack, racks = racks_of(brokers)
    known = size >= 0
    sizes = filled_sizes(size, topic)
    return Cluster(
        brokers=brokers,
        topics=tuple(entry.name for entry in document.topics),
        topic=topic,
        partition=np.array([entry.partition for _, entry in entries], dtype=np.int64),
        replicas=replicas,
        leader=leader,
        size_bytes=sizes,
        size_known=known,
        directory=directory,
        busy=np.array([bool(entry.adding or entry.removing) for _, entry in entries], dtype=bool),
        rack=rack,
        racks=racks,
        capacity_bytes=capacities(brokers, replicas, directory, sizes),
        cluster_id=document.cluster_id,
        as_of_offset=document.as_of_offset,
        index_of=index_of,
    )


def _default_directory(broker: Broker) -> int:
    """Return the directory of replicas without a known one: an offline directory, or the only one; -1 means unknown."""
    if len(broker.log_dirs) == 1:
        return 0
    return next((at for at, entry in enumerate(broker.log_dirs) if not entry.online), -1)


def filled_sizes(size: Ints, topic: Ints) -> Ints:
    """Return sizes, with the topic's mean in place of -1."""
    known = size >= 0
    count = np.bincount(topic[known], minlength=int(topic.max()) + 1)
    total = np.bincount(topic[known], weights=size[known].astype(np.float64), minlength=len(count))
    mean = (total / np.maximum(count, 1)).astype(np.int64)
    return np.where(known, size, mean[topic])


def directory_bytes(brokers: tuple[Broker, ...], replicas: Ints, directory: Ints, size: Ints) -> list[Floats]:
    """Return bytes of replicas in each directory of each broker. Replicas of unknown place count in none."""
    width = max((len(broker.log_dirs) for broker in brokers), default=0) or 1
    placed = (replicas >= 0) & (directory >= 0)
    key = (replicas * width + directory)[placed]
    weights = np.broadcast_to(size[:, None], replicas.shape)[placed].astype(np.float64)
    table: Floats = np.bincount(key, weights=weights, minlength=len(brokers) * width).astype(np.float64)
    return [table[at * width : at * width + len(broker.log_dirs)] for at, broker in enumerate(brokers)]


def directory_capacities(brokers: tuple[Broker, ...], held: list[Floats]) -> list[Floats]:
    """Return the usable bytes of each directory: free space and the bytes of its replicas; -1 if offline or unknown."""
    return [
        np.array(
            [
                float(entry.usable_bytes + held[at][index]) if entry.online and entry.usable_bytes >= 0 else NOT_KNOWN
                for index, entry in enumerate(broker.log_dirs)
            ]
        )
        for at, broker in enumerate(brokers)
    ]


def capacities(brokers: tuple[Broker, ...], replicas: Ints, directory: Ints, size: Ints) -> Floats:
    """Return `Cluster.capacity_bytes`. Replicas of unknown place count in the online directories together."""
    by_directory = directory_capacities(brokers, directory_bytes(brokers, replicas, directory, size))
    astray = (replicas >= 0) & (directory < 0)
    weights = np.broadcast_to(size[:, None], replicas.shape)[astray].astype(np.float64)
    elsewhere = np.bincount(replicas[astray], weights=weights, minlength=len(brokers))
    found = np.full(len(brokers), NOT_KNOWN)
    for at, broker in enumerate(brokers):
        online = [index for index, entry in enumerate(broker.log_dirs) if entry.online]
        if online and all(broker.log_dirs[index].usable_bytes >= 0 for index in online):
            found[at] = by_directory[at][online].sum() + elsewhere[at]
    return found
