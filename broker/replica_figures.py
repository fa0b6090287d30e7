"""Metrics of each replica on this broker, and their sums. For the thread of a scrape.

Theory of operation. The event loop gives a list of the partitions, and nothing more: with ten thousand of them it has no time to
look at each. What the thread reads may change meanwhile, so each attribute is read once. The text of a block of partitions is
kept from scrape to scrape, and made again when something in the block has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.eligible_leaders import partition_min_isr
from kraftlab.metadata.image import MetadataImage, PartitionImage
from kraftlab.metrics.exposition import Exposition, beginning

from .log.partition_log import Extent, PartitionLog
from .replica_manager import ReplicaManager
from .replication.partition import FollowerRole, LeaderRole, Partition

BLOCK = 200
"""Partitions with one text."""
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
GAUGES = (
    "partitioncount",
    "leadercount",
    "offlinereplicacount",
    "reassigningpartitions",
    "atminisrpartitioncount",
    "underminisrpartitioncount",
    "underreplicatedpartitions",
    "produceridcount",
)
"""Kafka's gauges of the replica manager: sums over all replicas here."""

MinIsr = Callable[[str], int]
"""The configured min.insync.replicas of a topic."""


class LeaderNumbers(NamedTuple):
    """The numbers of `OF_LEADERS`, in that order. No transactions are open here: the stable offset never lags."""

    replicas: int = 0
    in_sync: int = 0
    at_min_isr: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0
    stable_offset_lag: int = 0


def leader_numbers(state: PartitionImage, configured_min_isr: int) -> LeaderNumbers:
    """Return the numbers of a partition that is led here."""
    min_isr, in_sync = partition_min_isr(state, configured_min_isr), len(state.isr)
    # A replica that a reassignment adds is not missed (KIP-352).
    is_under_replicated = not {*state.replicas}.issubset((*state.isr, *state.adding))
    return LeaderNumbers(
        *(len(state.replicas), in_sync, int(in_sync == min_isr), int(in_sync < min_isr), int(is_under_replicated))
    )


class ReplicaSums:
    """Sums over replicas: `gauges` by name, `used_bytes` of the logs in each directory by its id, and the largest lags."""

    def __init__(self) -> None:
        self.gauges: Counter[str] = Counter()
        self.used_bytes: Counter[Uuid] = Counter()
        self.follower_lag = self.move_lag = 0


class _Block:
    """Text and sums of some partitions. `texts`: by family, "" without a line; none at all unless it `has_lines`."""

    def __init__(self, has_lines: bool) -> None:
        self._has_lines = has_lines
        self._labels: list[str] = []
        self._states: list[tuple[Partition, PartitionImage, bool]] = []
        self._min_isr: MinIsr | None = None
        self._logs: list[tuple[PartitionLog | None, int | None, Extent | None, bool]] = []
        self.of_leaders, self.of_logs = Counter[str](), Counter[str]()
        self.used_bytes: Counter[Uuid] = Counter()
        self.lag = 0
        self.texts: dict[str, str] = {}

    def look_at(self, partitions: Sequence[Partition], min_isr: MinIsr) -> None:
        """Bring the block up to date."""
        states = [(partition, partition.state, isinstance(partition.role, LeaderRole)) for partition in partitions]
        if states != self._states or min_isr is not self._min_isr:
            if [each[0] for each in states] != [each[0] for each in self._states]:
                self._labels = [beginning("", topic=partition.topic, partition=partition.number) for partition in partitions]
                self._logs = []
            self._states, self._min_isr = states, min_isr
            self._write_leaders(min_isr)
        logs = [_log_of(partition) for partition in partitions]
        if logs != self._logs:
            self._logs = logs
            self._write_logs()

    def _write_leaders(self, min_isr: MinIsr) -> None:
        nothing = LeaderNumbers()
        rows = [leader_numbers(state, min_isr(each.topic)) if leads else nothing for each, state, leads in self._states]
        _, _, at_min, under_min, under_replicated, _ = map(sum, zip(*rows, strict=True))
        self.of_leaders = Counter(
            partitioncount=len(rows),
            leadercount=sum(leads for _, _, leads in self._states),
            reassigningpartitions=sum(leads and state.is_reassigning for _, state, leads in self._states),
            atminisrpartitioncount=at_min,
            underminisrpartitioncount=under_min,
            underreplicatedpartitions=under_replicated,
        )
        self._write(OF_LEADERS, self._labels, rows)

    def _write_logs(self) -> None:
        labels: list[str] = []
        rows: list[tuple[int, ...]] = []
        lags: list[str] = []
        self.of_logs, self.used_bytes, self.lag = Counter[str](), Counter(), 0
        for label, (log, leader_end, extent, is_offline) in zip(self._labels, self._logs, strict=True):
            self.of_logs["offlinereplicacount"] += is_offline
            if log is None or extent is None:
                continue
            row = log_numbers(extent)
            labels.append(label)
            rows.append(row)
            end, _, _, producers, _ = extent
            self.of_logs["produceridcount"] += producers
            self.used_bytes[log.directory_id] += row[-1]
            if leader_end is not None:
                lag = max(0, leader_end - end)
                self.lag = max(self.lag, lag)
                lags.append(f'{LAG}{{clientId="{FOLLOWER}",{label[1:]}{lag}')
        self._write(OF_LOGS, labels, rows)
        if self._has_lines:
            self.texts[LAG] = "\n".join(lags)

    def _write(self, names: Sequence[str], labels: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
        columns = [*zip(*rows, strict=True)] or [()] * len(names)
        for name, column in zip(names, columns, strict=True) if self._has_lines else ():
            self.texts[name] = "\n".join([f"{name}{label}{value}" for label, value in zip(labels, column, strict=True)])


class ReplicaFigures:
    """The metrics of the replicas of one broker. `has_lines` False: their sums alone."""

    def __init__(self, replicas: ReplicaManager, has_lines: bool) -> None:
        self._replicas = replicas
        self._has_lines = has_lines
        self._blocks: list[_Block] = []
        self._min_isr_image = MetadataImage()
        """The image with the configs behind `_min_isr`."""
        self._min_isr = self._lookup()

    def write(self, page: Exposition, partitions: Sequence[Partition], moving: Iterable[Partition]) -> ReplicaSums:
        """Write the lines of all partitions; return the sums. `moving`: those that may have a future log."""
        sums = ReplicaSums()
        min_isr = self._min_isr_now()
        count = -(-len(partitions) // BLOCK)
        self._blocks = self._blocks[:count] + [_Block(self._has_lines) for _ in range(count - len(self._blocks))]
        for number, block in enumerate(self._blocks):
            block.look_at(partitions[number * BLOCK : (number + 1) * BLOCK], min_isr)
            sums.gauges.update(block.of_leaders)
            sums.gauges.update(block.of_logs)
            sums.used_bytes.update(block.used_bytes)
            sums.follower_lag = max(sums.follower_lag, block.lag)
            for name, text in block.texts.items():
                page.extend(name, [text] if text else ())
        for partition in moving:
            self._write_future(page, partition, sums)
        return sums

    def _write_future(self, page: Exposition, partition: Partition, sums: ReplicaSums) -> None:
        log, future = partition.log, partition.future
        if log is None or future is None:
            return
        extent = future.extent
        lag = max(0, log.high_watermark - extent[0])
        sums.move_lag = max(sums.move_lag, lag)
        names = {"topic": partition.topic, "partition": partition.number}
        row = log_numbers(extent)
        sums.used_bytes[future.directory_id] += row[-1]
        if self._has_lines:
            for name, value in zip(OF_LOGS, row, strict=True):
                page.add(name, value, **names, is_future="true")
            page.add(LAG, lag, clientId=MOVE, **names)

    def _min_isr_now(self) -> MinIsr:
        """Return a lookup, another one if configs may have changed. They change before the manager's image."""
        image, before = self._replicas.image, self._min_isr_image
        if image.configs is not before.configs or image.features is not before.features:
            self._min_isr_image, self._min_isr = image, self._lookup()
        return self._min_isr

    def _lookup(self) -> MinIsr:
        return cache(self._replicas.min_insync_replicas)


def _log_of(partition: Partition) -> tuple[PartitionLog | None, int | None, Extent | None, bool]:
    """Return the log, the leader's high watermark for a follower, the log's extent, and True for a replica without a log."""
    log, role = partition.log, partition.role
    if log is None:
        return None, None, None, not partition.is_being_placed
    return log, role.leader_high_watermark if isinstance(role, FollowerRole) else None, log.extent, False


def log_numbers(extent: Extent) -> tuple[int, int, int, int]:
    """Return the numbers of `OF_LOGS`, in that order."""
    end, start, _, _, segments = extent
    return start, end, len(segments), sum([segment.size_bytes for segment in segments])
