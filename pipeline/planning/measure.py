"""Distance of a placement from each goal, before and after a plan by the same means: those after it."""

from __future__ import annotations

import numpy as np

from .cluster import Cluster, Flags, Floats, Ints, directory_bytes, directory_capacities
from .goals import (
    DIRECTORY,
    DIRECTORY_CAPACITY,
    DISK,
    DISK_CAPACITY,
    DISK_CAPACITY_SHARE,
    LEADERS,
    RACK,
    REPLICA_CAPACITY,
    REPLICAS,
    REPLICAS_PER_BROKER,
    TOPICS,
    GoalState,
    band_of_counts,
)
from .leaders import leader_counts
from .options import Scope

SLACK = 1e-9


def loads(cluster: Cluster, replicas: Ints) -> tuple[Floats, Ints, Ints]:
    """Return (bytes, replicas, preferred leaderships), [B] each."""
    placed = replicas >= 0
    holders, rows = replicas[placed], np.nonzero(placed)[0]
    weights = cluster.size_bytes[rows].astype(np.float64)
    disk = np.bincount(holders, weights=weights, minlength=cluster.broker_count).astype(np.float64)
    count = np.bincount(holders, minlength=cluster.broker_count)
    return disk, count, leader_counts(replicas, cluster.broker_count)


def measure(cluster: Cluster, scope: Scope, replicas: Ints, directory: Ints) -> dict[str, GoalState]:
    """Return the state of every requested goal. `directory`: [P, R], -1 if unknown."""
    disk, count, leaders = loads(cluster, replicas)
    counted, eps, bounds = scope.counted, scope.options.eps, scope.bounds
    ids = [broker.id for broker in cluster.brokers]
    fewest, most = band_of_counts(bounds.mean_count, eps)
    mean_leaders = float(leaders[counted].sum()) / max(int(counted.sum()), 1)
    led = band_of_counts(mean_leaders, eps)
    share = bounds.share_bytes
    limited = counted & (cluster.capacity_bytes >= 0)
    room = np.maximum(cluster.capacity_bytes * DISK_CAPACITY_SHARE, 1.0)
    states = {
        RACK: _racks(cluster, scope, replicas),
        REPLICA_CAPACITY: _at_most(ids, count / REPLICAS_PER_BROKER, counted),
        DISK_CAPACITY: _at_most(ids, disk / room, limited),
        REPLICAS: _banded(ids, count, np.full(len(count), bounds.mean_count), counted, (count < fewest) | (count > most)),
        DISK: _banded(ids, disk, share, counted, (disk < share * (1 - eps) - SLACK) | (disk > share * (1 + eps) + SLACK)),
        TOPICS: _topics(cluster, scope, replicas),
        LEADERS: _banded(ids, leaders, np.full(len(leaders), mean_leaders), counted, (leaders < led[0]) | (leaders > led[1])),
        **_directories(cluster, scope, replicas, directory),
    }
    return {name: states[name] for name in scope.options.goals}


def hard_excess(cluster: Cluster, scope: Scope, replicas: Ints, directory: Ints) -> dict[str, Floats]:
    """Return the excess of each partition, broker or log directory over a requested hard goal; 0 if it is within."""
    disk, count, _ = loads(cluster, replicas)
    found = {
        RACK: _most_in_a_rack(cluster, replicas) - scope.rack_limit,
        REPLICA_CAPACITY: np.where(scope.counted, count - REPLICAS_PER_BROKER, 0),
        DISK_CAPACITY: disk - scope.bounds.disk_limit,
        DIRECTORY_CAPACITY: _directory_excess(cluster, scope, replicas, directory),
    }
    return {name: np.maximum(amount, 0.0) for name, amount in found.items() if name in scope.options.goals}


def worse(before: dict[str, Floats], after: dict[str, Floats]) -> dict[str, int]:
    """Return by goal how many exceed a hard goal by more than before. All amounts are whole except for rounding."""
    return {name: int((after[name] > amount + 0.5).sum()) for name, amount in before.items()}


def _directory_excess(cluster: Cluster, scope: Scope, replicas: Ints, directory: Ints) -> Floats:
    """[all log directories]"""
    before = directory_bytes(cluster.brokers, cluster.replicas, cluster.directory, cluster.size_bytes)
    capacity = np.concatenate(directory_capacities(cluster.brokers, before))
    held = np.concatenate(directory_bytes(cluster.brokers, replicas, directory, cluster.size_bytes))
    counted = np.repeat(scope.counted, [len(broker.log_dirs) for broker in cluster.brokers])
    excess: Floats = np.where(counted & (capacity >= 0), held - capacity * DISK_CAPACITY_SHARE, 0.0)
    return excess


def _banded(ids: list[int], values: Floats | Ints, mean: Floats, counted: Flags, out: Flags) -> GoalState:
    if not counted.any() or mean[counted].max() <= 0:
        return GoalState(1.0, 1.0, 0)
    ratio = np.where(counted & ((mean > 0) | (values > 0)), values / np.where(mean > 0, mean, 1.0), 1.0)
    worst = int(np.where(counted, np.abs(ratio - 1), -1).argmax())
    return GoalState(
        round(float(ratio[counted].min()), 4),
        round(float(ratio[counted].max()), 4),
        int((out & counted).sum()),
        f"broker {ids[worst]}: {ratio[worst]:.3f} x",
    )


def _at_most(ids: list[int], ratio: Floats, judged: Flags) -> GoalState:
    if not judged.any():
        return GoalState(0.0, 0.0, 0)
    worst = int(np.where(judged, ratio, -1).argmax())
    return GoalState(0.0, round(float(ratio[worst]), 4), int((ratio[judged] > 1 + SLACK).sum()), f"broker {ids[worst]}")


def _most_in_a_rack(cluster: Cluster, replicas: Ints) -> Ints:
    """[P]"""
    rack = np.where(replicas >= 0, cluster.rack[replicas], -1)
    most = np.zeros(len(replicas), dtype=np.int64)
    for slot in range(rack.shape[1]):
        most = np.maximum(most, ((rack == rack[:, slot : slot + 1]) & (rack >= 0)).sum(1) * (rack[:, slot] >= 0))
    return most


def _racks(cluster: Cluster, scope: Scope, replicas: Ints) -> GoalState:
    most = _most_in_a_rack(cluster, replicas)
    over = most > scope.rack_limit
    worst = int((most - scope.rack_limit).argmax())
    text = f"{cluster.name(worst)}: {most[worst]} replicas in one rack" if over.any() else ""
    return GoalState(0.0, float((most / np.maximum(scope.rack_limit, 1)).max()), int(over.sum()), text)


def _topics(cluster: Cluster, scope: Scope, replicas: Ints) -> GoalState:
    placed = replicas >= 0
    key = cluster.topic[np.nonzero(placed)[0]] * cluster.broker_count + replicas[placed]
    table = np.bincount(key, minlength=len(cluster.topics) * cluster.broker_count).reshape(-1, cluster.broker_count)
    ratio = np.where(scope.counted[None, :], table / scope.bounds.topic_limit[:, None], 0.0)
    topic, broker = divmod(int(ratio.argmax()), cluster.broker_count)
    text = f"broker {cluster.brokers[broker].id} has {table[topic, broker]} of {cluster.topics[topic]}"
    return GoalState(0.0, round(float(ratio.max()), 4), int((ratio > 1 + SLACK).sum()), text)


def _directories(cluster: Cluster, scope: Scope, replicas: Ints, directory: Ints) -> dict[str, GoalState]:
    before = directory_bytes(cluster.brokers, cluster.replicas, cluster.directory, cluster.size_bytes)
    capacity = directory_capacities(cluster.brokers, before)
    held = directory_bytes(cluster.brokers, replicas, directory, cluster.size_bytes)
    least, most, out, full, over = 1.0, 1.0, 0, 0.0, 0
    worst = fullest = ""
    eps = scope.options.eps
    for at, broker in enumerate(cluster.brokers):
        usable = [n for n, entry in enumerate(broker.log_dirs) if entry.online]
        if not scope.counted[at] or not usable:
            continue
        load, room = held[at][usable], capacity[at][usable]
        known = bool((room >= 0).all())
        share = load.sum() * (room / room.sum() if known and room.sum() > 0 else np.full(len(usable), 1 / len(usable)))
        if load.sum() > 0:
            ratio = np.where(share + load > 0, load / np.where(share > 0, share, 1.0), 1.0)
            out += int(((load < share * (1 - eps) - SLACK) | (load > share * (1 + eps) + SLACK)).sum())
            furthest = int(np.abs(ratio - 1).argmax())
            if abs(ratio[furthest] - 1) > max(most - 1, 1 - least):
                worst = f"{broker.log_dirs[usable[furthest]].path} of broker {broker.id}: {ratio[furthest]:.3f} x"
            least, most = min(least, float(ratio.min())), max(most, float(ratio.max()))
        if (room >= 0).any():
            filled = np.where(room >= 0, load / np.maximum(room * DISK_CAPACITY_SHARE, 1.0), 0.0)
            over += int((filled > 1 + SLACK).sum())
            if float(filled.max()) > full:
                full = float(filled.max())
                fullest = f"{broker.log_dirs[usable[int(filled.argmax())]].path} of broker {broker.id}"
    return {
        DIRECTORY_CAPACITY: GoalState(0.0, round(full, 4), over, fullest),
        DIRECTORY: GoalState(round(least, 4), round(most, 4), out, worst),
    }


def lower_bound_bytes(cluster: Cluster, scope: Scope) -> int:
    """Return the fewest bytes that any plan for the request has to copy. The rack rule counts only where it is broken now.

    Three bounds hold, and the largest is the result: replicas of each partition that cannot stay or are added; bytes that brokers
    lack below their band; and bytes that brokers have above theirs, or have to give up, less bytes that disappear.
    """
    holders = cluster.replicas
    placed = holders >= 0
    leaving = placed & scope.leaves[holders] & ~scope.pinned[:, None]
    stays = placed & ~leaving
    kept = stays.sum(1)
    if RACK in scope.options.goals and scope.options.balances:
        kept = _kept_by_racks(cluster, scope, stays)
    needed = np.where(scope.pinned, 0, np.maximum(scope.factor - kept, 0))
    forced = float((needed * cluster.size_bytes).sum())
    if not scope.options.balances:
        return int(forced)
    disk, _, _ = loads(cluster, holders)
    lacking = np.maximum(scope.bounds.disk_low - disk, 0.0).sum()
    size = np.broadcast_to(cluster.size_bytes[:, None], holders.shape)[leaving]
    leaving_bytes = float(size.sum())
    surplus = np.where(scope.counted, np.maximum(disk - scope.bounds.disk_high, 0.0), 0.0).sum()
    change = float(((scope.factor - placed.sum(1)) * cluster.size_bytes).sum())
    return int(max(forced, float(lacking), float(surplus) + leaving_bytes + change))


def _kept_by_racks(cluster: Cluster, scope: Scope, stays: Flags) -> Ints:
    """Return how many of the replicas that can stay the rack limit allows."""
    rack = np.where(stays, cluster.rack[cluster.replicas], -1)
    kept = np.zeros(len(rack), dtype=np.int64)
    for slot in range(rack.shape[1]):
        before = ((rack[:, :slot] == rack[:, slot : slot + 1]) & (rack[:, slot : slot + 1] >= 0)).sum(1)
        kept += (rack[:, slot] >= 0) & (before < scope.rack_limit)
    return kept
