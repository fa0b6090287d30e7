"""An independent check of plans: plain loops over the documents, which share nothing with the code that makes plans.

The check accepts any reassignment, Kafka's own files included, and the cluster that it is for. It judges whether the reassignment
is safe and fulfils the request, and the state of the cluster afterwards. An *error* is a broken rule, a *warning* a soft
goal that the plan leaves unmet. Not checked: enough network and time of the brokers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from .documents import ClusterDocument, Partition

ERROR, WARNING = "error", "warning"
FILLED_AT_MOST = 0.8
NamedPartition = tuple[str, int]


class Target(msgspec.Struct, frozen=True):
    """A plan's change of one partition. `before` is the replica list that the plan expects, None if it gives none."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()
    before: tuple[int, ...] | None = None


class CheckOptions(msgspec.Struct, frozen=True):
    """The plan's options that checks depend on."""

    eps: float = 0.1
    rf: dict[str, int] = {}
    empty: tuple[int, ...] = ()
    empty_dirs: tuple[tuple[int, str], ...] = ()
    untouched: tuple[int, ...] = ()
    max_bytes: int | None = None
    banded: bool = True


class Finding(msgspec.Struct, frozen=True):
    """A failed check: its number of violations, and one example."""

    check: str
    severity: str
    count: int
    example: str


CHECKS = (
    ("unknown_partition", ERROR, "every partition of the plan exists"),
    ("stale", ERROR, "partitions have the replicas that the plan assumes"),
    ("under_way", ERROR, "no partition of the plan is being reassigned"),
    ("duplicate", ERROR, "no broker is twice in a replica list, no partition twice in the plan"),
    ("replication_factor", ERROR, "the number of replicas is unchanged, or as requested"),
    ("unknown_broker", ERROR, "every broker of the plan is registered"),
    ("dead_broker", ERROR, "no replica list of the plan has a broker that is down"),
    ("rack", ERROR, "no partition has more replicas in a rack than necessary, and more than before"),
    ("not_empty", ERROR, "drained brokers and log directories are empty"),
    ("excluded", ERROR, "excluded brokers get and lose no replicas"),
    ("log_dir", ERROR, "log directories exist on their broker, are online and take replicas"),
    ("disk_capacity", ERROR, "no receiving broker is filled to more than 80 %"),
    ("log_dir_capacity", ERROR, "no receiving log directory is filled to more than 80 %"),
    ("budget", ERROR, "no more bytes move than allowed"),
    ("disk_band", WARNING, "every broker's bytes are in the band"),
    ("replica_band", WARNING, "every broker's number of replicas is in the band"),
    ("leader_band", WARNING, "every broker's number of preferred leaderships is in the band"),
)
"""(check, severity, rule), in the order of display."""


def check(document: ClusterDocument, targets: Sequence[Target], asked: CheckOptions) -> list[Finding]:
    """Return the violations by check; an empty list means none."""
    examples: dict[str, list[str]] = defaultdict(list)
    for name, example in _all(document, targets, asked):
        examples[name].append(example)
    return [Finding(name, severity, len(examples[name]), examples[name][0]) for name, severity, _ in CHECKS if examples.get(name)]


def _all(document: ClusterDocument, targets: Sequence[Target], asked: CheckOptions) -> Iterator[tuple[str, str]]:
    cluster = _Cluster(document)
    for (topic, partition), count in Counter((target.topic, target.partition) for target in targets).items():
        if count > 1:
            yield "duplicate", f"{topic}-{partition} is {count} times in the plan"
    for target in targets:
        yield from _partition(cluster, target, asked)
    after = _after(cluster, targets)
    yield from _brokers(cluster, after, asked)
    yield from _emptied_directories(cluster, targets, asked)
    yield from _capacities(cluster, targets, after)
    if asked.banded:
        yield from _bands(cluster, after, asked)
    moved = sum(
        len(set(target.replicas) - set(cluster.replicas(target.topic, target.partition)))
        * cluster.size(target.topic, target.partition)
        for target in targets
    )
    if asked.max_bytes is not None and moved > asked.max_bytes:
        yield "budget", f"{moved} bytes move, {asked.max_bytes} are allowed"


def mean_size(partitions: Iterable[Partition]) -> int:
    """Return the mean of the known sizes, which partitions of unknown size count as."""
    known = [entry.size_bytes for entry in partitions if entry.size_bytes is not None]
    return sum(known) // len(known) if known else 0


class _Cluster:
    """A document by name and id."""

    def __init__(self, document: ClusterDocument) -> None:
        self.brokers = {broker.id: broker for broker in document.brokers}
        self.partitions: dict[NamedPartition, Partition] = {
            (topic.name, entry.partition): entry for topic in document.topics for entry in topic.partitions
        }
        self.mean_sizes = {topic.name: mean_size(topic.partitions) for topic in document.topics}

    def size(self, topic: str, partition: int) -> int:
        entry = self.partitions.get((topic, partition))
        if entry is None:
            return 0
        return self.mean_sizes[topic] if entry.size_bytes is None else entry.size_bytes

    def replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the replicas after the end of a running reassignment."""
        entry = self.partitions.get((topic, partition))
        return tuple(broker for broker in entry.replicas if broker not in entry.removing) if entry else ()

    def rack(self, broker: int) -> str:
        entry = self.brokers.get(broker)
        return f"broker {broker}" if entry is None or entry.rack is None else f"rack {entry.rack}"

    def path(self, broker: int, path: str | None) -> str | None:
        """Return the path of a replica: the broker's only directory if the path is unknown."""
        entry = self.brokers.get(broker)
        return entry.log_dirs[0].path if path is None and entry is not None and len(entry.log_dirs) == 1 else path

    def paths(self, entry: Partition) -> dict[int, str | None]:
        """Return the paths by replica."""
        log_dirs = entry.log_dirs or (None,) * len(entry.replicas)
        return {broker: self.path(broker, path) for broker, path in zip(entry.replicas, log_dirs, strict=True)}

    def most_in_a_rack(self, replicas: Iterable[int]) -> int:
        """Return the largest number of replicas in one rack."""
        return max(Counter(self.rack(broker) for broker in replicas).values(), default=0)

    def alive(self) -> list[int]:
        return [broker.id for broker in self.brokers.values() if broker.alive]


def _partition(cluster: _Cluster, target: Target, asked: CheckOptions) -> Iterator[tuple[str, str]]:
    name = f"{target.topic}-{target.partition}"
    entry = cluster.partitions.get((target.topic, target.partition))
    if entry is None:
        yield "unknown_partition", f"{name} is not in the cluster"
        return
    now = cluster.replicas(target.topic, target.partition)
    if target.before is not None and target.before != now:
        yield "stale", f"{name} is on {list(now)}, the plan was made for {list(target.before)}"
    if entry.adding or entry.removing:
        yield "under_way", f"{name} is being reassigned"
    if len(set(target.replicas)) < len(target.replicas):
        yield "duplicate", f"{name} → {list(target.replicas)}"
    wanted = asked.rf.get(target.topic, len(now))
    if len(target.replicas) != wanted:
        yield (
            "replication_factor",
            f"{name} has {len(now)} replicas and would have {len(target.replicas)}; {wanted} were requested",
        )
    for broker in target.replicas:
        if broker not in cluster.brokers:
            yield "unknown_broker", f"{name} → {list(target.replicas)}: there is no broker {broker}"
        elif not cluster.brokers[broker].alive:
            yield "dead_broker", f"{name} → {list(target.replicas)}: broker {broker} is down"
    racks = Counter(cluster.rack(broker) for broker in cluster.alive() if broker not in asked.empty)
    allowed = max(_evenest(racks.values(), len(target.replicas)), min(cluster.most_in_a_rack(now), len(now)))
    if cluster.most_in_a_rack(target.replicas) > allowed:
        yield "rack", f"{name} → {list(target.replicas)}: {cluster.most_in_a_rack(target.replicas)} in one rack"
    for broker in set(now) ^ set(target.replicas):
        if broker in asked.untouched:
            yield "excluded", f"{name}: {list(now)} → {list(target.replicas)} changes the replicas of broker {broker} has"
    yield from _directories(cluster, target, now)


def _evenest(sizes: Collection[int], replicas: int) -> int:
    """Return the smallest possible maximum of replicas in one rack, for racks of these sizes."""
    possible = (most for most in range(1, replicas + 1) if sum(min(most, size) for size in sizes) >= replicas)
    return next(possible, math.ceil(replicas / max(len(sizes), 1)))


def _directories(cluster: _Cluster, target: Target, now: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    name = f"{target.topic}-{target.partition}"
    if target.log_dirs and len(target.log_dirs) != len(target.replicas):
        yield "log_dir", f"{name} has {len(target.replicas)} replicas and {len(target.log_dirs)} log_dirs"
    for broker, path in zip(target.replicas, target.log_dirs, strict=False):
        if path == "any" or broker not in cluster.brokers:
            continue
        found = [entry for entry in cluster.brokers[broker].log_dirs if entry.path == path]
        if not found:
            yield "log_dir", f"{name}: broker {broker} has no {path}"
        elif not found[0].online:
            yield "log_dir", f"{name}: {path} of broker {broker} is offline"
        elif found[0].cordoned:
            yield "log_dir", f"{name}: {path} of broker {broker} takes no new replicas"


def _after(cluster: _Cluster, targets: Iterable[Target]) -> dict[NamedPartition, tuple[int, ...]]:
    after = {key: cluster.replicas(*key) for key in cluster.partitions}
    for target in targets:
        if (target.topic, target.partition) in after:
            after[target.topic, target.partition] = target.replicas
    return after


def _held(cluster: _Cluster, placement: Mapping[NamedPartition, Sequence[int]]) -> dict[int, int]:
    held: dict[int, int] = defaultdict(int)
    for key, replicas in placement.items():
        for broker in replicas:
            held[broker] += cluster.size(*key)
    return held


def _brokers(cluster: _Cluster, after: Mapping[NamedPartition, Sequence[int]], asked: CheckOptions) -> Iterator[tuple[str, str]]:
    for (topic, partition), replicas in after.items():
        for broker in replicas:
            if broker in asked.empty:
                yield "not_empty", f"{topic}-{partition} stays on broker {broker}"


def _emptied_directories(cluster: _Cluster, targets: Iterable[Target], asked: CheckOptions) -> Iterator[tuple[str, str]]:
    """Report replicas that stay in a directory to be emptied: the broker keeps them, and no other directory is named for them."""
    wanted = {(target.topic, target.partition): target for target in targets}
    for (topic, partition), entry in cluster.partitions.items():
        target = wanted.get((topic, partition))
        replicas = target.replicas if target else cluster.replicas(topic, partition)
        goes = dict(zip(target.replicas, target.log_dirs, strict=False)) if target else {}
        for broker, path in zip(entry.replicas, entry.log_dirs, strict=False):
            if (broker, path) in asked.empty_dirs and broker in replicas and goes.get(broker, "any") in ("any", path):
                yield "not_empty", f"{topic}-{partition} stays in {path} of broker {broker}"


def _capacities(
    cluster: _Cluster, targets: Iterable[Target], after: Mapping[NamedPartition, Sequence[int]]
) -> Iterator[tuple[str, str]]:
    """Report disks and directories that the plan overfills. Only those that get fuller count."""
    before = {key: cluster.replicas(*key) for key in cluster.partitions}
    old, new = _held(cluster, before), _held(cluster, after)
    for id, broker in cluster.brokers.items():
        usable = [entry.usable_bytes for entry in broker.log_dirs if entry.online]
        if usable and min(usable) >= 0:
            room = (sum(usable) + old[id]) * FILLED_AT_MOST
            if new[id] > room and new[id] > old[id]:
                yield "disk_capacity", f"broker {id} would hold {new[id]} bytes; {room:.0f} are 80 % of its disks"
    in_directory: dict[tuple[int, str], int] = defaultdict(int)
    for entry_key, entry in cluster.partitions.items():
        for broker_id, path in cluster.paths(entry).items():
            if path is not None:
                in_directory[broker_id, path] += cluster.size(*entry_key)
    comes: dict[tuple[int, str], int] = defaultdict(int)
    for target in targets:
        entry_found = cluster.partitions.get((target.topic, target.partition))
        where = cluster.paths(entry_found) if entry_found else {}
        size = cluster.size(target.topic, target.partition)
        goes = dict(zip(target.replicas, target.log_dirs, strict=False))
        for broker_id, path in where.items():
            moves_within = goes.get(broker_id, "any") not in ("any", path)
            if path is not None and (broker_id not in target.replicas or moves_within):
                comes[broker_id, path] -= size
        for broker_id, wanted in goes.items():
            if wanted not in ("any", where.get(broker_id)):
                comes[broker_id, wanted] += size
    for (broker_id, path), change in comes.items():
        found = [one for one in cluster.brokers[broker_id].log_dirs if one.path == path] if broker_id in cluster.brokers else []
        if change > 0 and found and found[0].usable_bytes >= 0:
            room = (found[0].usable_bytes + in_directory[broker_id, path]) * FILLED_AT_MOST
            if in_directory[broker_id, path] + change > room:
                yield (
                    "log_dir_capacity",
                    f"{path} of broker {broker_id} would hold {in_directory[broker_id, path] + change} bytes",
                )


def _bands(cluster: _Cluster, after: Mapping[NamedPartition, Sequence[int]], asked: CheckOptions) -> Iterator[tuple[str, str]]:
    members = [id for id in cluster.alive() if id not in asked.empty and id not in asked.untouched]
    if not members:
        return
    held = _held(cluster, after)
    replicas = Counter(broker for brokers in after.values() for broker in brokers)
    leaders = Counter(brokers[0] for brokers in after.values() if brokers)
    old = _held(cluster, {key: cluster.replicas(*key) for key in cluster.partitions})
    weight = {}
    for id in members:
        usable = [entry.usable_bytes for entry in cluster.brokers[id].log_dirs if entry.online]
        if usable and min(usable) >= 0:
            weight[id] = sum(usable) + old[id]
    if len(weight) < len(members) or not any(weight.values()):
        weight = dict.fromkeys(members, 1)
    total = sum(held[id] for id in members)
    for id in members:
        share = total * weight[id] / sum(weight.values())
        if share and not share * (1 - asked.eps) - 1 <= held[id] <= share * (1 + asked.eps) + 1:
            yield "disk_band", f"broker {id} would hold {held[id]} bytes, {held[id] / share:.3f} x its share"
    for name, counts in (("replica_band", replicas), ("leader_band", leaders)):
        mean = sum(counts[id] for id in members) / len(members)
        least, most = math.floor(mean * (1 - asked.eps) + 1e-9), math.ceil(mean * (1 + asked.eps) - 1e-9)
        for id in members:
            if not least <= counts[id] <= most:
                yield name, f"broker {id} would have {counts[id]}; {least} to {most} is the band"
