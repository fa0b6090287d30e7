"""Questions that are asked of a cluster while a page is open, each at its own rate.

Theory of operation. Each question has a thread, so that one which waits for a silent broker does not hold the others up. The
answer becomes a part of the state. An error becomes the part's fault, and the last answer stays with its time: a page shows both.
Nothing is asked while nobody looks.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.facts import Observation
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.health import findings
from kraftlab.client.log_dirs import LogDirFilter
from kraftlab.client.results import AllLogDirs, Cluster, Controller, LogDirMoves, Quorum
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.lab.cluster_plan import ClusterError, load
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.orders import SOCKET_NAME, Order

from .lanes import LaneRecorder, order_lanes
from .rows import Rows
from .streams import Streams

logger = logging.getLogger("kraftlab.console")

CALL_MS = 2000
LEADER_MS = 700
"""Time for each controller to say who leads, so that a paused one is seen soon."""
DIRECTORIES = LogDirFilter(topics=())
MEMORY_MS = 15 * 60 * 1000
SAMPLES_MAX = 900
SAMPLE_S = 1.0
REST_S = 1.0
"""Time after which a question that rests looks whether it shall end."""
BUCKET = re.compile(r'^kraftlab_commit_duration_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)$', re.MULTILINE)


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The quorum at one moment, for curves: time, high watermark, and log end offsets by node."""

    at_ms: int
    high_watermark: int
    ends: dict[int, int]


class Question(threading.Thread):
    """Asks every `interval_s`, while `streams.watched`, and puts the answer as the part `name`."""

    def __init__(self, streams: Streams, name: str, interval_s: float, ask: Callable[[], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._streams = streams
        self._interval_s = interval_s
        self._ask = ask
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            if not self._streams.watched.wait(REST_S):
                continue
            begun = time.monotonic()
            try:
                self._streams.put(self.name, self._ask())
            except (ApiError, ClusterUnreachable, ClusterError) as error:
                self._streams.put(self.name, None, str(error))
            except Exception as error:
                if self._stopping.is_set():  # and the client is closed
                    return
                logger.exception("the part %s of the pages failed", self.name)
                self._streams.put(self.name, None, f"{type(error).__name__}; the console's log has the reason")
            self._stopping.wait(max(0.05, begun + self._interval_s - time.monotonic()))


class Questions:
    """All questions about one cluster. `rows` returns the newest partitions. `data`: directory of a local cluster; its control
    socket is asked about faults.
    """

    def __init__(
        self, client: AdminClient, streams: Streams, rows: Callable[[], Rows | None], data: Path | None, faults: bool
    ) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.cluster: Cluster | None = None
        self._client = client
        self._rows = rows
        self._data = data
        self._lanes = LaneRecorder()
        self._log_dirs = AllLogDirs({}, {})
        self._moves = 0
        self._commits: dict[int, tuple[dict[float, int], dict[float, int]]] = {}
        """Counts of commits up to each duration, of the leader that gave them: those before, and the newest ones."""
        self._pool = ThreadPoolExecutor(8, "who-leads")
        asked: list[tuple[str, float, Callable[[], object]]] = [
            ("quorum", 1.0, self._quorum),
            ("brokers", 2.0, self._brokers),
            ("topics", 1.0, self._topics),
            ("moves", 1.0, self._reassignments),
            ("disks", 5.0, self._disks),
        ]
        if not client.speaks_kafka:
            asked.append(("lanes", 0.5, self._who_leads))
        if faults or (data is not None and (data / SOCKET_NAME).exists()):
            asked.append(("faults", 0.5, self._faults))
        if data is not None and not client.security.tls:
            asked.append(("commits", 2.0, self._commit_times))
        self.threads = [Question(streams, *each) for each in asked]

    def _quorum(self) -> Quorum:
        quorum = self._client.describe_quorum(timeout_ms=CALL_MS)
        now_ms = time.time_ns() // 1_000_000
        if not self.samples or now_ms - self.samples[-1].at_ms >= 900 * SAMPLE_S:
            ends = {each.replica_id: each.log_end_offset for each in (*quorum.current_voters, *quorum.observers)}
            self.samples.append(Sample(now_ms, quorum.high_watermark, ends))
        return quorum

    def _who_leads(self) -> object:
        """Ask every controller for its leader: a controller that is cut off still names a former leader."""
        if self.cluster is None:
            self._brokers()
        assert self.cluster is not None, "it was described"
        now_ns = time.time_ns()
        nodes = self.cluster.controllers
        for node, seen in zip(nodes, self._pool.map(lambda node: self._view_of(node, now_ns), nodes), strict=True):
            self._lanes.add(f"controller {node.controller_id}", seen)
        return self._lanes.lanes()

    def _view_of(self, node: Controller, now_ns: int) -> Observation:
        node_id, request = node.controller_id, pb.DescribeClusterRequest()
        try:
            answer = self._client.call_at(
                Endpoint(node.host, node.port), pb.DescribeClusterResponse, request, timeout_ms=LEADER_MS
            )
        except (ApiError, ClusterUnreachable):
            return Observation(at_ns=now_ns, node=node_id, is_up=False)
        header = answer.header
        return Observation(at_ns=now_ns, node=node_id, is_up=True, leader=header.leader_id, epoch=header.epoch)

    def _brokers(self) -> object:
        cluster = self.cluster = self._client.describe_cluster(include_fenced_brokers=True, timeout_ms=CALL_MS)
        rows = self._rows()
        counts = {} if rows is None else rows.by_broker()
        min_isr = {} if rows is None else rows.min_isr
        found = findings(cluster, () if rows is None else rows.topics(), self._log_dirs, self._moves, min_isr)
        return {
            "cluster_id": cluster.cluster_id,
            "leader_id": cluster.leader_id,
            "controllers": cluster.controllers,
            "brokers": [
                {**msgspec.structs.asdict(each), **counts.get(each.broker_id, {"leads": 0, "replicas": 0})}
                for each in cluster.brokers
            ],
            "findings": found,
        }

    def _topics(self) -> Mapping[str, int] | None:
        rows = self._rows()
        return None if rows is None else rows.counts()

    def _reassignments(self) -> object:
        moves = self._client.list_partition_reassignments(timeout_ms=CALL_MS)
        self._moves = len(moves.running)
        between = LogDirMoves((), {})
        if not self._client.speaks_kafka:
            between = self._client.log_dir_moves(brokers=self._alive(), timeout_ms=CALL_MS)
        found = [{**msgspec.structs.asdict(each), "eta_ms": each.eta_ms} for each in between.moves if each.replica.is_future_key]
        rows = self._rows()
        leaders = {} if rows is None or not moves.running else rows.leaders()
        running = [
            {**msgspec.structs.asdict(each), "leader_id": leaders.get((each.topic, each.partition_index))}
            for each in moves.running
        ]
        return {**msgspec.structs.asdict(moves), "running": running, "between_directories": found, "incoming": _incoming(between)}

    def _disks(self) -> AllLogDirs:
        self._log_dirs = self._client.all_log_dirs(DIRECTORIES, brokers=self._alive(), timeout_ms=CALL_MS)
        return self._log_dirs

    def _commit_times(self) -> object:
        """Return the median and the 99th percentile of the leader's newest commits, in ms: of those that were counted last, or of
        all since its process began. None before the first commit.
        """
        plan = None if self._data is None else load(self._data)
        leader = None if self.cluster is None else self.cluster.leader_id
        node = next((each for each in plan.nodes if each.node_id == leader), None) if plan is not None else None
        if node is None or node.metrics is None:
            raise ClusterError("no controller of this cluster leads")
        try:
            with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=CALL_MS / 1000) as answer:
                text = answer.read().decode()
        except OSError as error:
            raise ClusterError(f"no metrics of controller {leader}: {error}") from None
        counts = {float(bound): int(float(count)) for bound, count in BUCKET.findall(text)}
        before, newest = self._commits.get(leader or 0, ({}, {}))
        if counts != newest:
            before = newest if counts.get(math.inf, 0) >= newest.get(math.inf, 0) else {}  # a new process counts from zero
        self._commits = {leader or 0: (before, counts)}
        grown = {bound: count - before.get(bound, 0) for bound, count in sorted(counts.items())}
        total = max(grown.values(), default=0)
        at = {share: next((b for b, count in grown.items() if count >= share * total), None) for share in (0.5, 0.99)}
        return {"commits": total, "p50_ms": _ms(at[0.5], total), "p99_ms": _ms(at[0.99], total)}

    def _alive(self) -> list[int] | None:
        return None if self.cluster is None else [each.broker_id for each in self.cluster.brokers if not each.is_fenced]

    def _faults(self) -> object:
        """Return nodes, links and orders of a local cluster, and the lanes of its orders of the last 15 minutes."""
        assert self._data is not None, "the question is asked of local clusters"
        status = give(self._data, Order("faults"), timeout_s=CALL_MS / 1000).status
        assert status is not None, "it was asked for"
        now_ms = time.time_ns() // 1_000_000
        seen = [each for each in (*status.past, *status.orders) if each.ended_ms is None or each.ended_ms > now_ms - MEMORY_MS]
        return {**msgspec.structs.asdict(msgspec.structs.replace(status, past=())), "lanes": order_lanes(seen, now_ms)}


def _incoming(between: LogDirMoves) -> dict[int, dict[str, int]]:
    """Return the bytes that are still missing in each directory of each broker, for moves of every kind."""
    found: dict[int, dict[str, int]] = {}
    for each in between.moves:
        directories = found.setdefault(each.broker_id, {})
        directories[each.log_dir] = directories.get(each.log_dir, 0) + (each.replica.bytes_left or 0)
    return found


def _ms(bound_s: float | None, total: int) -> float | None:
    return None if bound_s is None or not total or math.isinf(bound_s) else 1000 * bound_s
