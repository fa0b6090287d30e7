"""Looks at a cluster for `kraftlab top`: one moment, and the rates between two."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.health import Finding, findings
from kraftlab.client.results import AllLogDirs, Cluster, LogDir, Quorum, Reassignments, Topic
from kraftlab.common.errors import ApiError

T = TypeVar("T")

CALL_TIMEOUT_MS = 2000
NO_LOG_DIRS = AllLogDirs({}, {})


class Look(msgspec.Struct, frozen=True):
    """A cluster at one moment of this machine's monotonic clock. None: that call was not answered; `faults` says why."""

    at_s: float
    wall_ms: int
    cluster: Cluster | None = None
    quorum: Quorum | None = None
    topics: tuple[Topic, ...] = ()
    log_dirs: AllLogDirs = NO_LOG_DIRS
    moves: Reassignments | None = None
    faults: tuple[str, ...] = ()


class VoterRow(msgspec.Struct, frozen=True):
    """One voter. `lag` in records; None: only the leader knows."""

    voter_id: int
    is_leader: bool
    lag: int | None
    silent_ms: int | None


class DirectoryRow(msgspec.Struct, frozen=True):
    """One log directory. Sizes in bytes, None where it is offline."""

    log_dir: str
    state: str
    used_bytes: int | None
    usable_bytes: int | None
    total_bytes: int | None


class BrokerRow(msgspec.Struct, frozen=True):
    broker_id: int
    state: str
    silent_ms: int | None
    leads: int
    replicas: int
    log_dirs: tuple[DirectoryRow, ...]


class MoveRow(msgspec.Struct, frozen=True):
    """One reassignment that runs, or one move between log directories. `waits_for`: the first blocker, "" without one."""

    partition: str
    path: str
    bytes_done: int | None
    bytes_left: int | None
    bytes_per_second: float | None
    eta_ms: int | None
    waits_for: str


class TopicRow(msgspec.Struct, frozen=True):
    """One topic. Rates are those at which its logs grow, without replicas; None without an earlier look."""

    name: str
    partitions: int
    size_bytes: int
    bytes_per_second: float | None
    records_per_second: float | None


class Overview(msgspec.Struct, frozen=True):
    """Everything on the page, ready for JSON."""

    wall_ms: int
    cluster_id: str
    leader_id: int | None
    leader_epoch: int | None
    high_watermark: int | None
    commits_per_second: float | None
    voters: tuple[VoterRow, ...]
    observers: int
    brokers: tuple[BrokerRow, ...]
    moves: tuple[MoveRow, ...]
    queued_moves: int
    topics: tuple[TopicRow, ...]
    findings: tuple[Finding, ...]
    faults: tuple[str, ...]


def look(client: AdminClient) -> Look:
    """Ask a cluster. A call that is not answered leaves its part out, with the reason."""
    faults: list[str] = []

    def asked(call: Callable[[], T]) -> T | None:
        try:
            return call()
        except (ApiError, ClusterUnreachable) as error:
            faults.append(str(error))
            return None

    at_s, wall_ms, limit = time.monotonic(), time.time_ns() // 1_000_000, CALL_TIMEOUT_MS
    newest = not client.speaks_kafka  # Kafka's protocol has no linearizable reads
    cluster = asked(lambda: client.describe_cluster(include_fenced_brokers=True, linearizable=newest, timeout_ms=limit))
    if cluster is None:  # no controller leads; any node knows the rest
        cluster = asked(lambda: client.describe_cluster(include_fenced_brokers=True, timeout_ms=limit))
    if cluster is None:
        return Look(at_s, wall_ms, faults=tuple(faults[-1:]))
    alive = [broker.broker_id for broker in cluster.brokers if not broker.is_fenced]
    topics = asked(lambda: client.describe_topics(timeout_ms=limit))
    return Look(
        at_s,
        wall_ms,
        cluster,
        asked(lambda: client.describe_quorum(timeout_ms=limit)),
        tuple((topics or {}).values()),
        asked(lambda: client.all_log_dirs(brokers=alive, timeout_ms=limit)) or NO_LOG_DIRS,
        asked(lambda: client.list_partition_reassignments(timeout_ms=limit)),
        tuple(dict.fromkeys(faults)),
    )


def overview(now: Look, before: Look | None) -> Overview:
    """Return the page of a look. Rates are those since the look before."""
    quorum, cluster, moves = now.quorum, now.cluster, now.moves
    running = (*(_moves(moves) if moves is not None else ()), *_directory_moves(now.log_dirs))
    return Overview(
        now.wall_ms,
        "" if cluster is None else cluster.cluster_id,
        None if quorum is None else quorum.leader_id,
        None if quorum is None else quorum.leader_epoch,
        None if quorum is None else quorum.high_watermark,
        _commits(now, before),
        tuple(_voters(quorum, now.wall_ms)) if quorum is not None else (),
        len(quorum.observers) if quorum is not None else 0,
        tuple(_brokers(now)),
        running,
        len(moves.queued) if moves is not None else 0,
        tuple(_topics(now, before)),
        tuple(findings(cluster, now.topics, now.log_dirs, 0, {})) if cluster is not None else (),
        now.faults,
    )


def _commits(now: Look, before: Look | None) -> float | None:
    if before is None or now.quorum is None or before.quorum is None or now.at_s <= before.at_s:
        return None
    return max(0, now.quorum.high_watermark - before.quorum.high_watermark) / (now.at_s - before.at_s)


def _voters(quorum: Quorum, wall_ms: int) -> Iterator[VoterRow]:
    end_offset = max((replica.log_end_offset for replica in quorum.current_voters), default=0)
    for replica in quorum.current_voters:
        is_leader = replica.replica_id == quorum.leader_id
        lag = end_offset - replica.log_end_offset if replica.log_end_offset >= 0 else None
        caught_up = replica.last_caught_up_timestamp
        silent_ms = 0 if is_leader else None if caught_up is None or caught_up < 0 else max(0, wall_ms - caught_up)
        yield VoterRow(replica.replica_id, is_leader, lag, silent_ms)


def _brokers(now: Look) -> Iterator[BrokerRow]:
    leads = Counter(partition.leader_id for topic in now.topics for partition in topic.partitions)
    replicas = Counter(each for topic in now.topics for partition in topic.partitions for each in partition.replica_nodes)
    for broker in now.cluster.brokers if now.cluster is not None else ():
        state = "fenced" if broker.is_fenced else "stopping" if broker.in_controlled_shutdown else "active"
        if broker.broker_id in now.log_dirs.silent:
            state = "silent"
        described = now.log_dirs.brokers.get(broker.broker_id)
        rows = tuple(map(_directory, described.log_dirs)) if described is not None else ()
        found = (leads[broker.broker_id], replicas[broker.broker_id])
        yield BrokerRow(broker.broker_id, state, broker.silent_ms, *found, rows)


def _directory(found: LogDir) -> DirectoryRow:
    if found.error_code:
        return DirectoryRow(found.log_dir, "offline", None, None, None)
    used = sum(replica.partition_size for replica in found.replicas)
    return DirectoryRow(found.log_dir, "cordoned" if found.is_cordoned else "online", used, found.usable_bytes, found.total_bytes)


def _moves(moves: Reassignments) -> Iterator[MoveRow]:
    for move in moves.running:
        before, after = (",".join(map(str, ids)) for ids in (move.original_replicas, move.target_replicas))
        blocker = move.blockers[0] if move.blockers else None
        yield MoveRow(
            f"{move.topic}-{move.partition_index}",
            f"{before} → {after}",
            move.bytes_done,
            move.bytes_left,
            move.bytes_per_second,
            move.eta_ms,
            "" if blocker is None else blocker.text or blocker.state,
        )


def _directory_moves(log_dirs: AllLogDirs) -> Iterator[MoveRow]:
    for broker_id, described in log_dirs.brokers.items():
        for directory in described.log_dirs:
            for replica in directory.replicas:
                if not replica.is_future_key:
                    continue
                left, rate = replica.bytes_left, replica.bytes_per_second
                yield MoveRow(
                    f"{replica.topic}-{replica.partition_index}",
                    f"broker {broker_id}: to {directory.log_dir}",
                    replica.partition_size,
                    left,
                    rate,
                    int(left / rate * 1000) if left is not None and rate else None,
                    replica.error,
                )


class _Extent(NamedTuple):
    """The largest replica of a partition: the leader's, or a former leader's."""

    size_bytes: int
    end_offset: int


def _extents(look: Look) -> dict[str, dict[int, _Extent]]:
    """Return the extent of each partition, by topic."""
    found: dict[str, dict[int, _Extent]] = {}
    for described in look.log_dirs.brokers.values():
        for directory in described.log_dirs:
            for replica in directory.replicas:
                extent = _Extent(replica.partition_size, replica.log_end_offset)
                partitions = found.setdefault(replica.topic, {})
                old = partitions.get(replica.partition_index, extent)
                partitions[replica.partition_index] = _Extent(*map(max, old, extent))
    return found


def _topics(now: Look, before: Look | None) -> Iterator[TopicRow]:
    extents, old = _extents(now), {} if before is None else _extents(before)
    elapsed_s = 0.0 if before is None else now.at_s - before.at_s
    for topic in now.topics:
        mine, earlier = extents.get(topic.name, {}), old.get(topic.name, {})
        size = sum(extent.size_bytes for extent in mine.values())
        rates: list[float | None] = [None, None]
        if elapsed_s > 0 and earlier:
            # What retention takes away in the meantime does not count.
            grown = [[max(0, n - o) for n, o in zip(mine[at], earlier[at], strict=True)] for at in mine.keys() & earlier.keys()]
            rates = [sum(column) / elapsed_s for column in zip(*grown, strict=True)] or [0.0, 0.0]
        yield TopicRow(topic.name, len(topic.partitions), size, *rates)
