"""Options of a plan, and their consequences for one cluster: the brokers that take and give, the partitions that stay, and the
bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
import numpy as np

from ..errors import WrongUse
from .cluster import Cluster, Flags, Floats, Ints
from .documents import NUMBER_MAX, Broker
from .goals import (
    ALL,
    DISK,
    DISK_CAPACITY,
    DISK_CAPACITY_SHARE,
    REPLICA_CAPACITY,
    REPLICAS,
    REPLICAS_PER_BROKER,
    band_of_counts,
    topic_limits,
)


class PlanOptions(msgspec.Struct, frozen=True):
    """`replace`: (broker, the broker that takes its replicas). `rf`: topic → replication factor. `drain_dirs`: (broker, path).
    `exclude_topics`: names, with `*` and `?`. Scenarios (drain, replace, rf, add_brokers, drain_dirs) move only the named
    replicas, unless `balance` is set. Without a scenario everything is balanced.
    """

    goals: tuple[str, ...] = ALL
    eps: float = 0.1
    max_bytes: int | None = None
    drain: tuple[int, ...] = ()
    replace: tuple[tuple[int, int], ...] = ()
    rf: dict[str, int] = {}
    add_brokers: tuple[int, ...] = ()
    drain_dirs: tuple[tuple[int, str], ...] = ()
    exclude_brokers: tuple[int, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    balance: bool = False

    @property
    def emptied(self) -> tuple[int, ...]:
        """The brokers that must end empty."""
        return (*self.drain, *(source for source, _ in self.replace))

    @property
    def balances(self) -> bool:
        """True if replicas move for soft goals."""
        return self.balance or bool(self.add_brokers) or not (self.drain or self.replace or self.rf or self.drain_dirs)

    @property
    def balances_directories(self) -> bool:
        """True if replicas change directory for soft goals."""
        return self.balance or not (self.drain or self.replace or self.rf or self.drain_dirs or self.add_brokers)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the brokers that count: their share of all bytes, the mean number of replicas, and limits of both; infinite if
    there are none. `disk_limit`: the largest bytes of the hard goal. `topic_limit`: per topic, the most replicas on one
    broker.
    """

    share_bytes: Floats
    disk_low: Floats
    disk_high: Floats
    disk_limit: Floats
    mean_count: float
    count_low: Floats
    count_high: Floats
    topic_limit: Ints


@dataclass(frozen=True, slots=True)
class Scope:
    """Per broker: `takes` new replicas, `leaves` (must end empty), `counted` in means and bounds. Per partition: `pinned`
    (nothing of it moves), `factor` (its number of replicas), `rack_limit` (most in one rack).
    """

    options: PlanOptions
    takes: Flags
    leaves: Flags
    counted: Flags
    pinned: Flags
    factor: Ints
    rack_limit: Ints
    bounds: Bounds
    notes: tuple[str, ...]


def scope_of(cluster: Cluster, options: PlanOptions) -> Scope:
    """Return the scope of the options. WrongUse if they do not fit the cluster or each other."""
    _judge(cluster, options)
    leaves = _flags(cluster, options.emptied)
    excluded = _flags(cluster, options.exclude_brokers)
    roomy = np.array([_has_room(broker) for broker in cluster.brokers])
    takes = cluster.alive & ~leaves & ~excluded & roomy
    counted = cluster.alive & ~leaves & ~excluded
    if options.add_brokers:
        takes &= _flags(cluster, options.add_brokers)
    for _, target in options.replace:
        takes[cluster.index_of[target]] = True
    if not takes.any():
        raise WrongUse("no broker can take a replica: all are drained, excluded, down or without a usable log directory")
    pinned, notes = _pinned(cluster, options, leaves)
    factor = cluster.replication_factor
    for name, wanted in options.rf.items():
        factor = np.where((cluster.topic == cluster.topics.index(name)) & ~pinned, wanted, factor)
    _judge_factors(cluster, options, factor, counted | excluded)
    rack_limit = _rack_limits(cluster, factor, counted | excluded, notes)
    return Scope(
        options=options,
        takes=takes,
        leaves=leaves,
        counted=counted,
        pinned=pinned,
        factor=factor,
        rack_limit=rack_limit,
        bounds=_bounds(cluster, options, counted, factor, notes),
        notes=tuple(notes),
    )


def _has_room(broker: Broker) -> bool:
    """Return whether a broker has a log directory that can take a replica. A disk without a free byte cannot, whatever leaves it
    later.
    """
    return not broker.log_dirs or any(entry.online and not entry.cordoned and entry.usable_bytes for entry in broker.log_dirs)


def _flags(cluster: Cluster, ids: Iterable[int]) -> Flags:
    flags = np.zeros(cluster.broker_count, dtype=bool)
    flags[[cluster.index_of[id] for id in ids]] = True
    return flags


def _judge(cluster: Cluster, options: PlanOptions) -> None:
    if not 0 < options.eps < 1:
        raise WrongUse(f"eps {options.eps}: the width of the band is between 0 and 1; 0.1 is Cruise Control's")
    if options.max_bytes is not None and options.max_bytes < 0:
        raise WrongUse(f"a plan cannot move {options.max_bytes} bytes; give 0 or more")
    targets = tuple(target for _, target in options.replace)
    named = (*options.drain, *(source for source, _ in options.replace), *targets, *options.add_brokers, *options.exclude_brokers)
    for id in (*named, *(id for id, _ in options.drain_dirs)):
        if id not in cluster.index_of:
            known = ", ".join(str(broker.id) for broker in cluster.brokers[:20]) + (" …" if cluster.broker_count > 20 else "")
            raise WrongUse(f"broker {id} is not in the cluster; there are {known}")
    for id in (*targets, *options.add_brokers):
        if not cluster.brokers[cluster.index_of[id]].alive:
            raise WrongUse(f"broker {id} is down or fenced and cannot take replicas; start it first")
        if not _has_room(cluster.brokers[cluster.index_of[id]]):
            raise WrongUse(
                f"broker {id} has no log directory that takes replicas: each is offline, cordoned or full; choose another broker"
            )
    leaving = options.emptied
    for id in set(leaving) & {*targets, *options.add_brokers, *options.exclude_brokers}:
        raise WrongUse(f"broker {id} is drained or replaced, and also listed to take or keep replicas; choose one of the two")
    for id in set(options.exclude_brokers) & {*targets, *options.add_brokers}:
        raise WrongUse(f"broker {id} is listed to take replicas, and also excluded; choose one of the two")
    if len(set(leaving)) < len(leaving) or len(set(targets)) < len(targets):
        raise WrongUse(
            "a broker is named twice in --drain and --replace; each can be emptied once, and can replace one other broker"
        )
    for name, wanted in options.rf.items():
        if name not in cluster.topics:
            raise WrongUse(f"topic {name} is not in the cluster; `kraftlab topics --list` lists its topics")
        if not 1 <= wanted <= NUMBER_MAX:
            raise WrongUse(f"topic {name} cannot have {wanted} replicas; the minimum is 1, the maximum the number of brokers")
        if any(fnmatchcase(name, pattern) for pattern in options.exclude_topics):
            raise WrongUse(f"topic {name} is listed in --rf, and also excluded; choose one of the two")
    for pattern in options.exclude_topics:
        if not any(fnmatchcase(name, pattern) for name in cluster.topics):
            raise WrongUse(f"no topic is called {pattern}; `kraftlab topics --list` lists the topics")
    for id, path in options.drain_dirs:
        broker = cluster.brokers[cluster.index_of[id]]
        paths = [entry.path for entry in broker.log_dirs]
        if path not in paths:
            raise WrongUse(f"broker {id} has no log directory {path}; it has {', '.join(paths) or 'no known ones'}")
        if not broker.alive or not broker.log_dirs[paths.index(path)].online:
            what = f"log directory {path} of broker {id} is offline" if broker.alive else f"broker {id} is down"
            raise WrongUse(f"{what}: nothing can be copied out of {path}; --drain {id} makes new replicas on other brokers")


def _pinned(cluster: Cluster, options: PlanOptions, leaves: Flags) -> tuple[Flags, list[str]]:
    notes: list[str] = []
    pinned = cluster.busy.copy()
    if pinned.any():
        notes.append(f"{pinned.sum()} partitions are being reassigned and do not move; their targets count as their replicas")
    left = [at for at, name in enumerate(cluster.topics) if any(fnmatchcase(name, pattern) for pattern in options.exclude_topics)]
    excluded = np.isin(cluster.topic, left)
    pinned |= excluded
    kept = excluded & (leaves[cluster.replicas] & (cluster.replicas >= 0)).any(1)
    if kept.any():
        notes.append(f"{kept.sum()} partitions of excluded topics stay on drained brokers")
    unreachable = ~cluster.alive & ~leaves
    stuck = (unreachable[cluster.replicas] & (cluster.replicas >= 0)).any(1) & ~pinned
    if stuck.any():
        ids = [cluster.brokers[at].id for at in np.unique(cluster.replicas[stuck]).tolist() if at >= 0 and unreachable[at]]
        notes.append(
            f"{stuck.sum()} partitions have replicas on brokers that are down ({', '.join(map(str, ids))}) and do not move, "
            f"since no reassignment can name a broker that is down; --drain {ids[0]} moves them away"
        )
    return pinned | stuck, notes


def _judge_factors(cluster: Cluster, options: PlanOptions, factor: Ints, standing: Flags) -> None:
    """Raise WrongUse if there are too few brokers for a partition's replicas."""
    available = int(standing.sum())
    row = int(np.argmax(factor))
    if factor[row] > available and (options.rf or options.drain or options.replace):
        raise WrongUse(
            f"{cluster.name(row)} needs {factor[row]} replicas, but only {available} brokers can take them; "
            "add brokers, or request fewer replicas with --rf"
        )


def _rack_limits(cluster: Cluster, factor: Ints, standing: Flags, notes: list[str]) -> Ints:
    rack_count = max(1, len(np.unique(cluster.rack[standing])))
    crowded = int((factor > rack_count).sum())
    if rack_count > 1 and crowded:
        notes.append(
            f"{crowded} partitions have more replicas than racks exist ({rack_count}): they are spread as evenly as possible"
        )
    sizes = np.unique(cluster.rack[standing], return_counts=True)[1]
    return np.array([evenest(sizes, wanted) for wanted in range(int(factor.max()) + 1)], dtype=np.int64)[factor]


def evenest(sizes: Ints, wanted: int) -> int:
    """Return the largest number of replicas in one rack at the most even spread over racks of these sizes."""
    most = -(-wanted // max(len(sizes), 1))
    while np.minimum(sizes, most).sum() < min(wanted, sizes.sum()):
        most += 1
    return most


def _bounds(cluster: Cluster, options: PlanOptions, counted: Flags, factor: Ints, notes: list[str]) -> Bounds:
    """Return shares, means and bands of the brokers that count, for the replicas that they will hold together."""
    unknown = int((~cluster.size_known).sum())
    if unknown:
        notes.append(f"the size of {unknown} partitions is unknown; each counts as its topic's mean")
    elsewhere = ((cluster.replicas >= 0) & ~(counted[cluster.replicas] | _leaving(cluster, options)[cluster.replicas])).sum(1)
    held = np.maximum(factor - elsewhere, 0)
    total, replicas = float((held * cluster.size_bytes).sum()), int(held.sum())
    weights = np.where(counted, 1.0, 0.0)
    capacity = cluster.capacity_bytes
    if (capacity[counted] >= 0).all() and capacity[counted].sum() > 0:
        weights = np.where(counted, capacity, 0.0)
    share = total * weights / max(weights.sum(), 1e-300)
    mean = replicas / max(int(counted.sum()), 1)
    infinite = np.full(cluster.broker_count, np.inf)
    disk_low, disk_high, count_low, count_high = -infinite, infinite.copy(), -infinite, infinite.copy()
    disk_limit = infinite.copy()
    if DISK in options.goals:
        disk_low[counted], disk_high[counted] = share[counted] * (1 - options.eps), share[counted] * (1 + options.eps)
    if DISK_CAPACITY in options.goals:
        limited = counted & (capacity >= 0)
        disk_limit[limited] = capacity[limited] * DISK_CAPACITY_SHARE
        disk_high = np.minimum(disk_high, disk_limit)
        if not limited[counted].all():
            notes.append("some brokers do not report the size of their disks: DiskCapacityGoal is not judged there")
    if REPLICAS in options.goals:
        count_low[counted], count_high[counted] = band_of_counts(mean, options.eps)
    if REPLICA_CAPACITY in options.goals:
        count_high[counted] = np.minimum(count_high[counted], REPLICAS_PER_BROKER)
    per_topic = np.bincount(cluster.topic, weights=held.astype(np.float64), minlength=len(cluster.topics))
    return Bounds(
        share_bytes=share,
        disk_low=np.minimum(disk_low, disk_high),
        disk_high=disk_high,
        disk_limit=disk_limit,
        mean_count=mean,
        count_low=count_low,
        count_high=count_high,
        topic_limit=topic_limits(per_topic / max(int(counted.sum()), 1)),
    )


def _leaving(cluster: Cluster, options: PlanOptions) -> Flags:
    return _flags(cluster, options.emptied)
