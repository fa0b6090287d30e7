"""Metrics of a broker: its replicas (`replica_figures.py`), traffic, directories, moves and groups, and whether it is ready."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import trio

from kraftlab.common.uuids import Uuid
from kraftlab.config.models import Detail
from kraftlab.metadata.peer_rpc import MoveProgress
from kraftlab.metrics.exposition import Exposition, beginning
from kraftlab.metrics.pages import Write
from kraftlab.node.health import NodeHealth
from kraftlab.node.metrics import write_disk_bytes
from kraftlab.quorum.driver.raft_driver import RaftDriver

from .control.lifecycle import BrokerState, Lifecycle
from .control.metadata_publisher import MetadataPublisher
from .groups.coordinator import Coordinator
from .groups.group import Group, State
from .groups.offsets import CommittedOffset, Place
from .log.log_manager import LogManager
from .log.open_files import OPEN_FILES
from .moves.move_state import MoveState
from .moves.mover import Move
from .replica_figures import FOLLOWER, GAUGES, MOVE, ReplicaFigures, ReplicaSums
from .replica_manager import ReplicaManager
from .replication.traffic import TopicTraffic, Traffic
from .upkeep.disk_space import DiskSpace, Space
from .upkeep.move_reports import MoveReports

BROKER_STATES = {
    BrokerState.NOT_RUNNING: 0,
    BrokerState.STARTING: 1,
    BrokerState.RECOVERY: 2,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's number of each state."""
OF_TOPICS = {
    f"kafka_server_brokertopicmetrics_{name}_total": attribute
    for name, attribute in (
        ("messagesin", "messages_in"),
        ("bytesin", "bytes_in"),
        ("bytesout", "bytes_out"),
        ("totalproducerequests", "produce_requests"),
        ("failedproducerequests", "failed_produce_requests"),
        ("totalfetchrequests", "fetch_requests"),
        ("failedfetchrequests", "failed_fetch_requests"),
    )
}
"""Families with a series for each topic, and their attribute of `TopicTraffic`."""


class PartsWithNumbers(NamedTuple):
    """The parts of a broker that its metrics are about."""

    lifecycle: Lifecycle
    replicas: ReplicaManager
    groups: Coordinator
    move_reports: MoveReports
    space: DiskSpace


class BrokerMetrics:
    """The source of one broker, and its health: an unfenced broker with loaded logs is ready.

    It has few numbers until it is given the broker's parts.

    `detail`: full, topics (no series of single partitions) or off (none of single topics either).
    """

    def __init__(self, node_id: int, driver: RaftDriver, publisher: MetadataPublisher, detail: Detail) -> None:
        self._node_id = node_id
        self._driver = driver
        self._publisher = publisher
        self.health = NodeHealth(driver, lambda: publisher.offset, self._faults)
        self._detail = detail
        self._parts: PartsWithNumbers | None = None
        self._replica_figures: ReplicaFigures

    def built(self, parts: PartsWithNumbers) -> None:
        """Take the broker's parts, once it has them."""
        self._replica_figures = ReplicaFigures(parts.replicas, has_lines=self._detail == "full")
        self._parts = parts

    def _faults(self) -> Iterator[str]:
        state = self._state()
        if state in (BrokerState.NOT_RUNNING, BrokerState.STARTING, BrokerState.RECOVERY):
            yield f"the broker is starting: {state.value}"
        elif state is not BrokerState.RUNNING:
            yield f"the broker is stopping: {state.value}"
        me = self._publisher.image.cluster.brokers.get(self._node_id)
        if me is None:
            yield "the broker is not registered"
        elif me.fenced:
            yield "the controller has fenced this broker"

    def _state(self) -> BrokerState:
        return self._parts.lifecycle.state if self._parts is not None else BrokerState.NOT_RUNNING

    def snapshot(self) -> Write:
        """Take the values, on the event loop: references alone of what there is much of."""
        state, applied, errors = self._state(), self._publisher.image.provenance, self._publisher.errors
        writes = [] if self._parts is None else self._of_parts(self._parts)

        def write(page: Exposition) -> None:
            write_disk_bytes(page, "kafkaserver")
            page.add("kafka_server_kafkaserver_brokerstate", BROKER_STATES[state])
            lag_ms = max(0, int(time.time() * 1000 - applied.append_time_ms)) if applied.offset > 0 else 0
            for name, value in (
                ("last_applied_record_offset", applied.offset - 1),
                ("last_applied_record_lag_ms", lag_ms),
                ("metadata_load_error_count", 0),
                ("metadata_apply_error_count", errors),
            ):
                page.add(f"kafka_server_brokermetadatametrics_{name}", value)
            for write_part in writes:
                write_part(page)

        return write

    def _of_parts(self, parts: PartsWithNumbers) -> list[Write]:
        replicas, logs = parts.replicas, parts.replicas.logs
        partitions, traffic = list(replicas.partitions.values()), replicas.traffic
        topics = list(traffic.topics.items()) if self._detail != "off" else []
        dirs = log_directories(logs)
        space = dict(parts.space.known)
        moves, limit, now_s = list(replicas.mover.moves.values()), replicas.mover.limit, trio.current_time()
        filling = parts.move_reports.last.replicas
        groups = [(list(shard.groups.values()), list(shard.offsets.items())) for shard in parts.groups.shards()]

        def of_replicas(page: Exposition) -> None:
            sums = self._replica_figures.write(page, partitions, [move.partition for move in moves])
            write_sums(page, sums)
            write_directories(page, dirs, space, sums)

        return [
            of_replicas,
            lambda page: write_traffic(page, traffic, topics),
            lambda page: write_moves(page, filling, [of_move(move, now_s, is_limited=limit is not None) for move in moves]),
            lambda page: write_groups(page, groups),
            write_flushes,
        ]


# --- replicas and their traffic ----------------------------------------------------------------------------------------------


def write_sums(page: Exposition, sums: ReplicaSums) -> None:
    for name in GAUGES:
        page.add(f"kafka_server_replicamanager_{name}", sums.gauges[name])
    page.add("kafka_server_replicafetchermanager_maxlag", sums.follower_lag, clientId=FOLLOWER)
    page.add("kafka_server_replicaalterlogdirsmanager_maxlag", sums.move_lag, clientId=MOVE)


def write_traffic(page: Exposition, traffic: Traffic, topics: Sequence[tuple[str, TopicTraffic]]) -> None:
    """Write the counts of all topics, and those of each topic that are not 0: a series appears with its first event."""
    for name, attribute in OF_TOPICS.items():
        page.add(name, getattr(traffic.total, attribute))
        page.extend(name, [f"{beginning(name, topic=topic)}{count}" for topic, of in topics if (count := getattr(of, attribute))])
    for attribute in ("replication_bytes_in", "replication_bytes_out", "reassignment_bytes_in", "reassignment_bytes_out"):
        page.add(f"kafka_server_brokertopicmetrics_{attribute.replace('_', '')}_total", getattr(traffic, attribute))
    for attribute in ("isr_expands", "isr_shrinks", "failed_isr_updates"):
        page.add(f"kafka_server_replicamanager_{attribute.replace('_', '')}_total", getattr(traffic, attribute))


# --- log directories ---------------------------------------------------------------------------------------------------------


class LogDirectory(NamedTuple):
    path: Path
    directory_id: Uuid | None
    is_offline: bool
    is_cordoned: bool

    @property
    def state(self) -> str:
        return "offline" if self.is_offline else "cordoned" if self.is_cordoned else "online"


def log_directories(logs: LogManager) -> list[LogDirectory]:
    """Return the configured directories as they are now."""
    online, cordoned = logs.directory_ids(), logs.cordoned_dirs
    return [LogDirectory(path, online.get(path), path not in online, path in cordoned) for path in logs.log_dirs]


def write_directories(page: Exposition, dirs: Sequence[LogDirectory], space: Mapping[Path, Space], sums: ReplicaSums) -> None:
    manager = "kafka_log_logmanager"
    page.add(f"{manager}_offlinelogdirectorycount", sum(each.is_offline for each in dirs))
    page.add(f"{manager}_cordonedlogdirectorycount", sum(each.is_cordoned for each in dirs))
    for each in dirs:
        page.add(f"{manager}_logdirectoryoffline", int(each.is_offline), logDirectory=each.path)
        page.add(f"{manager}_logdirectorycordoned", int(each.is_cordoned), logDirectory=each.path)
        page.add("kraftlab_log_dir_state", 1, log_dir=each.path, state=each.state)
        if each.directory_id is None:
            continue
        page.add("kraftlab_log_dir_used_bytes", sums.used_bytes[each.directory_id], log_dir=each.path)
        if each.path in space:
            page.add("kraftlab_log_dir_total_bytes", space[each.path].total_bytes, log_dir=each.path)
            page.add("kraftlab_log_dir_usable_bytes", space[each.path].usable_bytes, log_dir=each.path)


def write_flushes(page: Exposition) -> None:
    """Write the times of the process's flushes of segments."""
    page.add_histogram("kraftlab_fsync_duration_seconds", OPEN_FILES.sync_durations, log="partition")
    name = "kafka_log_logflushstats_logflushrateandtimems"
    page.add(f"{name}_count", OPEN_FILES.recent_syncs.count)
    for label, value_s in OPEN_FILES.recent_syncs.quantiles().items():
        page.add(name, value_s * 1000, quantile=label)


# --- moves -------------------------------------------------------------------------------------------------------------------


class MoveFigures(NamedTuple):
    """One move of a replica, to this broker or between its directories."""

    state: str
    bytes_done: int
    bytes_left: int
    bytes_per_second: float


MOVE_STATES = ("COPYING", "THROTTLED", "OUT_OF_SYNC", "NOT_FETCHING", "QUEUED", "PARKED")
"""As in the list of reassignments. QUEUED: the controller has to name the new directory. PARKED: an error, with a pause."""


def of_reassignment(progress: MoveProgress) -> MoveFigures:
    """Return the figures of a replica that a reassignment fills here."""
    state = "NOT_FETCHING" if progress.error else "OUT_OF_SYNC" if progress.bytes_left == 0 else "COPYING"
    if state == "COPYING" and progress.is_throttled:
        state = "THROTTLED"
    return MoveFigures(state, progress.bytes_done, progress.bytes_left, progress.bytes_per_second)


def of_move(move: Move, now_s: float, *, is_limited: bool) -> MoveFigures:
    """Return the figures of a move between directories. `is_limited`: all of them share a throttle."""
    future, filling = move.partition.future, move.filling
    state = "PARKED" if filling.error else "QUEUED" if move.state is MoveState.QUEUED else "COPYING"
    if state == "COPYING" and is_limited:
        state = "THROTTLED"
    return MoveFigures(state, 0 if future is None else future.size_bytes, filling.bytes_left, filling.rate_at(now_s))


def write_moves(page: Exposition, filling: Iterable[MoveProgress], moves: Sequence[MoveFigures]) -> None:
    every = [*map(of_reassignment, filling), *moves]
    states = Counter(each.state for each in every)
    for state in MOVE_STATES:
        page.add("kraftlab_move_blocked", states[state], state=state)
    page.add("kraftlab_move_bytes_done", sum(each.bytes_done for each in every))
    page.add("kraftlab_move_bytes_left", sum(max(0, each.bytes_left) for each in every))
    page.add("kraftlab_move_rate_bytes_per_second", sum(each.bytes_per_second for each in every))


# --- groups ------------------------------------------------------------------------------------------------------------------


def write_groups(page: Exposition, shards: Sequence[tuple[list[Group], list[tuple[str, dict[Place, CommittedOffset]]]]]) -> None:
    """Write the numbers of groups and offsets. A group that only commits offsets is Empty, as in Kafka."""
    states: Counter[State] = Counter()
    offsets = 0
    for groups, committed in shards:
        known = {group.group_id for group in groups}
        states.update(group.state for group in groups)
        states[State.EMPTY] += sum(group_id not in known for group_id, _ in committed)
        offsets += sum(len(places) for _, places in committed)
    manager = "kafka_coordinator_group_groupmetadatamanager"
    page.add(f"{manager}_numgroups", states.total())
    page.add(f"{manager}_numoffsets", offsets)
    for state in State:
        page.add(f"{manager}_numgroups{state.value.lower()}", states[state])
