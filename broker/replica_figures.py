"""Metrics of each replica on this broker, and their sums. For the thread of a scrape.

Theory of operation. The event loop gives a list of the partitions, and nothing more: with ten thousand of them it has no time to
look at each. What the thread reads may change meanwhile, so each attribute is read once. Whole lines are kept from scrape to
scrape and made again when a number has changed. After some partitions the thread lets the event loop run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.eligible_leaders import partition_min_isr
from kraftlab.metadata.image import MetadataImage, PartitionImage
from kraftlab.metrics.exposition import Exposition, beginning

from .log.partition_log import PartitionLog
from .log.segment import Segment
from .replica_manager import ReplicaManager
from .replication.partition import FollowerRole, LeaderRole, Partition

AT_ONCE = 100
"""Partitions between two turns of the event loop: less than half a millisecond."""
OF_LEADERS = tuple(
    f"kafka_cluster_partition_{name}"
    for name in (
        "replicascount",
        "insyncreplicascount",
        "atminisr",
        "underminisr",
        "underreplicated",
        "laststableoffsetlag",
    )
)
"""Kafka's numbers of the leader's side, which are 0 at followers."""
OF_LOGS = tuple(f"kafka_log_log_{name}" for name in ("logstartoffset", "logendoffset", "numlogsegments", "size"))
LAG = "kafka_server_fetcherlagmetrics_consumerlag"
FOLLOWER, MOVE = "Replica", "ReplicaAlterLogDirs"
"""Kafka's client ids of the two kinds of copies."""


class LeaderNumbers:
    """The numbers of `OF_LEADERS`, of a partition in one state. No transactions are open here: the stable offset never lags."""

    def __init__(self, state: PartitionImage, leads: bool, configured_min_isr: int) -> None:
        min_isr = partition_min_isr(state, configured_min_isr)
        in_sync = len(state.isr)
        self.is_at_min_isr = leads and in_sync == min_isr
        self.is_under_min_isr = leads and in_sync < min_isr
        # A replica that a reassignment adds is not missed (KIP-352).
        self.is_under_replicated = leads and not {*state.replicas}.issubset((*state.isr, *state.adding))
        self.is_reassigning = leads and state.is_reassigning
        self.values = (
            len(state.replicas) if leads else 0,
            in_sync if leads else 0,
            int(self.is_at_min_isr),
            int(self.is_under_min_isr),
            int(self.is_under_replicated),
            0,
        )


class ReplicaSums:
    """Numbers of all replicas here. `used_bytes`: of the logs in each directory, by its id."""

    def __init__(self) -> None:
        self.replicas = self.leaders = self.offline = self.reassigning = 0
        self.at_min_isr = self.under_min_isr = self.under_replicated = 0
        self.producers = 0
        self.follower_lag = self.move_lag = 0
        self.used_bytes: Counter[Uuid] = Counter()


class _PartitionLines:
    """Labels of one partition, and its lines with the values behind them."""

    __slots__ = (
        "configured",
        "labels",
        "lag",
        "lag_line",
        "leader_lines",
        "leads",
        "log_key",
        "log_lines",
        "numbers",
        "size_bytes",
        "state",
    )

    def __init__(self, partition: Partition) -> None:
        self.labels = beginning("", topic=partition.topic, partition=partition.number)
        self.state: PartitionImage | None = None
        self.leads = False
        self.configured = 0
        self.numbers: LeaderNumbers
        self.leader_lines: tuple[str, ...] = ()
        self.log_key: tuple[PartitionLog, tuple[Segment, ...], int, int, int] | None = None
        self.log_lines: tuple[str, ...] = ()
        self.size_bytes = 0
        self.lag = -1
        self.lag_line = ""

    def look_at_state(self, state: PartitionImage, leads: bool, configured: int) -> None:
        """Note the state of the partition and the role of the replica."""
        if self.state is state and self.leads == leads and self.configured == configured:
            return
        self.state, self.leads, self.configured = state, leads, configured
        self.numbers = LeaderNumbers(state, leads, configured)
        self.leader_lines = tuple(
            f"{name}{self.labels}{value}" for name, value in zip(OF_LEADERS, self.numbers.values, strict=True)
        )

    def look_at_log(self, log: PartitionLog) -> int:
        """Note the numbers of the log; return its end."""
        # Read the end first: what is appended meanwhile changes the end, and with it the key of the next scrape.
        end, start, segments, cuts = log.log_end_offset, log.log_start_offset, log.segments, log.cuts
        key = self.log_key
        if key is None or key[0] is not log or key[1] is not segments or key[2:] != (end, start, cuts):
            self.log_key = log, segments, end, start, cuts
            self.size_bytes, self.log_lines = log_lines(log, self.labels)
        return end

    def look_at_lag(self, lag: int) -> None:
        if self.lag != lag:
            self.lag = lag
            self.lag_line = f'{LAG}{{clientId="{FOLLOWER}",{self.labels[1:]}{lag}'


class ReplicaFigures:
    """The metrics of the replicas of one broker. `has_lines` False: their sums alone."""

    def __init__(self, replicas: ReplicaManager, has_lines: bool) -> None:
        self._replicas = replicas
        self._has_lines = has_lines
        self._kept: dict[Partition, _PartitionLines] = {}
        self._min_isr: dict[str, int] = {}
        self._min_isr_of = MetadataImage()
        """The image with the configs behind `_min_isr`."""

    def write(self, page: Exposition, partitions: Sequence[Partition]) -> ReplicaSums:
        """Write the lines of all partitions; return the sums."""
        sums = ReplicaSums()
        of_leaders: list[tuple[str, ...]] = []
        of_logs: list[tuple[str, ...]] = []
        lags: list[str] = []
        self._forget_min_isr()
        for first in range(0, len(partitions), AT_ONCE):
            for partition in partitions[first : first + AT_ONCE]:
                kept = self._looked_at(partition, sums)
                of_leaders.append(kept.leader_lines)
                log, future, role = partition.log, partition.future, partition.role
                if log is None:
                    continue
                end = kept.look_at_log(log)
                of_logs.append(kept.log_lines)
                sums.used_bytes[log.directory_id] += kept.size_bytes
                sums.producers += log.producer_count
                if isinstance(role, FollowerRole):
                    kept.look_at_lag(max(0, role.leader_high_watermark - end))
                    lags.append(kept.lag_line)
                    sums.follower_lag = max(sums.follower_lag, kept.lag)
                if future is not None:
                    self._write_future(page, partition, log, future, sums)
            time.sleep(0)
        if len(self._kept) > len(partitions):
            self._kept = {partition: self._kept[partition] for partition in partitions}
        if self._has_lines:
            for names, rows in ((OF_LEADERS, of_leaders), (OF_LOGS, of_logs)):
                for name, column in zip(names, zip(*rows, strict=True), strict=False):
                    page.extend(name, column)
            page.extend(LAG, lags)
        return sums

    def _looked_at(self, partition: Partition, sums: ReplicaSums) -> _PartitionLines:
        """Bring what is kept of a partition up to date, and add its numbers to the sums."""
        kept = self._kept.get(partition)
        if kept is None:
            kept = self._kept[partition] = _PartitionLines(partition)
        kept.look_at_state(partition.state, isinstance(partition.role, LeaderRole), self._configured(partition.topic))
        numbers = kept.numbers
        sums.replicas += 1
        sums.leaders += kept.leads
        sums.offline += partition.log is None and not partition.is_being_placed
        sums.at_min_isr += numbers.is_at_min_isr
        sums.under_min_isr += numbers.is_under_min_isr
        sums.under_replicated += numbers.is_under_replicated
        sums.reassigning += numbers.is_reassigning
        return kept

    def _write_future(
        self, page: Exposition, partition: Partition, log: PartitionLog, future: PartitionLog, sums: ReplicaSums
    ) -> None:
        lag = max(0, log.high_watermark - future.log_end_offset)
        sums.move_lag = max(sums.move_lag, lag)
        names = {"topic": partition.topic, "partition": partition.number}
        size_bytes, lines = log_lines(future, beginning("", **names, is_future="true"))
        sums.used_bytes[future.directory_id] += size_bytes
        if self._has_lines:
            for name, line in zip(OF_LOGS, lines, strict=True):
                page.extend(name, [line])
            page.add(LAG, lag, clientId=MOVE, **names)

    def _forget_min_isr(self) -> None:
        """Forget what min.insync.replicas was if configs may have changed. They change before the manager's image."""
        image, before = self._replicas.image, self._min_isr_of
        if image.configs is not before.configs or image.features is not before.features:
            self._min_isr, self._min_isr_of = {}, image

    def _configured(self, topic: str) -> int:
        found = self._min_isr.get(topic)
        if found is None:
            found = self._min_isr[topic] = self._replicas.min_insync_replicas(topic)
        return found


def log_lines(log: PartitionLog, labels: str) -> tuple[int, tuple[str, ...]]:
    """Return the size of a log, and its lines."""
    segments = log.segments
    size_bytes = sum(segment.size_bytes for segment in segments)
    values = log.log_start_offset, log.log_end_offset, len(segments), size_bytes
    return size_bytes, tuple(f"{name}{labels}{value}" for name, value in zip(OF_LOGS, values, strict=True))
