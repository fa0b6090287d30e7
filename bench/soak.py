"""Soak of the data plane: producing, moving, compacting, full and failing disks, and kills, on real processes for ten minutes.

Three controllers and four brokers with two log directories each. Idempotent producers append numbered records with acks=all to a
plain topic, to a compacted one, and to one whose records are so old that retention deletes them, with three replicas each. Some
records of the plain topic have the latest timestamp that there is. Meanwhile a seed draws one trouble after the other: replicas
move between directories and brokers, moves are cancelled, disks run full or fail and come back, and brokers and controllers
are killed and restarted. At the end everything is healed and stopped, and the segment files of every replica are read from the
disks: in the plain topic each acknowledged record is there once, in order, at its offset; in the compacted topic each key has its
last acknowledged value; in the topic of old records the same holds from the first record on that is left. A different replica is
a failure (exit code 1).
"""

from __future__ import annotations

import errno
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, DataClient
from kraftlab.common.errors import ApiError
from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.lab import LocalCluster
from kraftlab.lab.faults.failing_calls import FailingCalls, Rule
from kraftlab.records.record_batch import Record, build_batch, decode_records

from .measure import NoResult, Report, measurement, table

CONTROLLERS, BROKERS, LOG_DIRS, REPLICAS = 3, 4, 2, 3
PLAIN, COMPACTED, EXPIRING = "soak-plain", "soak-compacted", "soak-expiring"
PARTITIONS = 3
"""Partitions of each topic."""
CONFIGS = {
    PLAIN: {"min.insync.replicas": "2", "segment.bytes": "1048576", "message.timestamp.after.max.ms": str(2**63 - 1)},
    EXPIRING: {"min.insync.replicas": "2", "segment.bytes": "1048576"},
    COMPACTED: {
        "min.insync.replicas": "2",
        "segment.bytes": "1048576",
        "segment.ms": "3000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
KEYS = 500
BATCH = 20
VALUE_BYTES = 200
PAUSE_S = 0.02
SEND_TIMEOUT_MS = 10_000
OLD_MS = 8 * 24 * 3600 * 1000
OVERRIDES = {"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "2000"}
TROUBLE_S = (0.5, 4.0)
"""Shortest and longest time of a trouble."""
HEALED_WITHIN_S = 120.0

TopicPartition = tuple[str, int]
REFUSED = (ApiError, ClusterUnreachable)


class SoakResult(msgspec.Struct, frozen=True):
    """`troubles`: numbers by kind. `differences`: replicas that do not hold what was acknowledged."""

    seconds: float
    acknowledged: int
    troubles: dict[str, int]
    differences: list[str]


class Producer:
    """Appends numbered records to one partition until stopped. A batch is sent again until it is acknowledged."""

    def __init__(self, servers: str, producer_id: int, partition: TopicPartition) -> None:
        self._servers = servers
        self._producer_id = producer_id
        self.partition = partition
        self.base_offsets: list[int] = []
        """Offset of each acknowledged batch, in order."""
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End once the last batch is acknowledged. NoResult if that does not happen."""
        self._stopping.set()
        self._thread.join(timeout=HEALED_WITHIN_S)
        if self.failure is not None:
            raise NoResult(f"the producer of {self.partition} failed") from self.failure
        if self._thread.is_alive():
            raise NoResult(f"{self.partition} took no record within {HEALED_WITHIN_S:g} s after the end")

    def _run(self) -> None:
        try:
            with AdminClient(self._servers) as admin, DataClient(admin) as client:
                while not self._stopping.is_set():
                    self.base_offsets.append(self._send(client, len(self.base_offsets) * BATCH))
                    self._stopping.wait(PAUSE_S)
        except BaseException as error:
            self.failure = error

    def _send(self, client: DataClient, first: int) -> int:
        timestamp_ms = _timestamp_ms(self.partition[0], first // BATCH)
        records = [
            Record(b"%d" % (number % KEYS), (b"%d." % number).ljust(VALUE_BYTES, b"."), timestamp_ms)
            for number in range(first, first + BATCH)
        ]
        batch = build_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=first)
        while True:
            with suppress(*REFUSED):
                return client.produce(*self.partition, batch, timeout_ms=SEND_TIMEOUT_MS).base_offset


def _timestamp_ms(topic: str, batch: int) -> int:
    now_ms = int(time.time() * 1000)
    if topic == EXPIRING:
        return now_ms - OLD_MS if batch % 4 else 0
    return 2**63 - 1 if topic == PLAIN and not batch % 50 else now_ms


class Troubles:
    """Draws and applies troubles, one at a time."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, calls: FailingCalls, seed: int) -> None:
        self._cluster, self._admin, self._calls = cluster, admin, calls
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "move between directories": (4, self._move_directory),
            "move between brokers": (4, self._reassign),
            "cancelled move": (1, self._cancel),
            "full disk": (2, self._fill),
            "failed disk": (1, self._fail),
            "killed broker": (3, self._kill_broker),
            "killed controller": (1, self._kill_controller),
        }

    def strike(self) -> None:
        """Apply one trouble. What the cluster refuses in its state does not count."""
        names = [*self._kinds]
        [name] = self._random.choices(names, [weight for weight, _ in self._kinds.values()])
        with suppress(*REFUSED):
            self._kinds[name][1]()
            self.counts[name] += 1

    def _partition(self) -> TopicPartition:
        return self._random.choice((PLAIN, COMPACTED, EXPIRING)), self._random.randrange(PARTITIONS)

    def _wait(self) -> None:
        time.sleep(self._random.uniform(*TROUBLE_S))

    def _directory(self, broker: int) -> Path:
        return self._random.choice(self._cluster.log_dirs(broker))

    def _move_directory(self) -> None:
        topic, index = self._partition()
        [partition] = [each for each in self._admin.describe_topics([topic])[topic].partitions if each.partition_index == index]
        broker = self._random.choice(partition.replica_nodes)
        self._admin.alter_replica_log_dirs(broker, {(topic, index): str(self._directory(broker))})

    def _reassign(self) -> None:
        replicas = self._random.sample(self._cluster.broker_ids, REPLICAS)
        self._admin.alter_partition_reassignments({self._partition(): replicas})

    def _cancel(self) -> None:
        self._admin.alter_partition_reassignments({self._partition(): None})

    def _fill(self) -> None:
        directory = self._directory(self._random.choice(self._cluster.broker_ids))
        with self._calls.failing(*(Rule(call, errno.ENOSPC, f"{directory}/*") for call in ("write", "create", "mkdir"))):
            self._wait()
        self.repair()

    def _fail(self) -> None:
        directory = self._directory(self._random.choice(self._cluster.broker_ids))
        with self._calls.failing(*(Rule(call, errno.EIO, f"{directory}/*") for call in ("write", "sync", "open"))):
            self._wait()
        self.repair()

    def repair(self) -> None:
        for broker, log_dir in offline_directories(self._cluster, self._admin):
            with suppress(*REFUSED):
                self._admin.call_broker(broker, pb.OnlineLogDirResponse, pb.OnlineLogDirRequest(log_dir=log_dir))

    def _kill_broker(self) -> None:
        self._kill(self._random.choice(self._cluster.broker_ids))

    def _kill_controller(self) -> None:
        self._kill(self._random.choice(self._cluster.controller_ids))

    def _kill(self, node_id: int) -> None:
        self._cluster.kill_node(node_id)
        self._wait()
        self._cluster.start_node(node_id)
        self._cluster.wait_ready()


def offline_directories(cluster: LocalCluster, admin: AdminClient) -> Iterator[tuple[int, str]]:
    """Yield (broker, log directory) of each directory that is offline."""
    for broker in cluster.broker_ids:
        for result in admin.describe_log_dirs(broker, []):
            if result.error_code:
                yield broker, result.log_dir


def measure(seconds: float, seed: int) -> SoakResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-soak-") as directory:
        calls = FailingCalls(Path(directory) / "calls")
        with (
            LocalCluster(
                Path(directory) / "cluster", CONTROLLERS, BROKERS, LOG_DIRS, overrides=OVERRIDES, failing_calls=calls
            ) as cluster,
            cluster.admin() as admin,
        ):
            producers = _begin(cluster, admin)
            troubles = Troubles(cluster, admin, calls, seed)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                troubles.strike()
                for producer in producers:
                    if producer.failure is not None:
                        producer.stop()
            troubles.repair()
            for producer in producers:
                producer.stop()
            replicas = _wait_healed(cluster, admin)
            for node_id in cluster.broker_ids:
                cluster.stop_node(node_id)
            found = [each for producer in producers for each in _differences(cluster, producer, replicas[producer.partition])]
        calls.close()
    acknowledged = sum(len(producer.base_offsets) for producer in producers) * BATCH
    return SoakResult(seconds, acknowledged, dict(troubles.counts), found)


def _begin(cluster: LocalCluster, admin: AdminClient) -> list[Producer]:
    """Create the topics, and start a producer for each partition."""
    topics = [pb.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=REPLICAS) for name in CONFIGS]
    for topic in topics:
        for key, value in CONFIGS[topic.name].items():
            topic.configs.add(name=key, value=value)
    admin.create_topics(topics)
    partitions = [(name, index) for name in CONFIGS for index in range(PARTITIONS)]
    broker = cluster.broker_ids[0]
    return [Producer(cluster.bootstrap_servers, admin.init_producer_id(broker).producer_id, each) for each in partitions]


def _wait_healed(cluster: LocalCluster, admin: AdminClient) -> dict[TopicPartition, list[int]]:
    """Wait until nothing moves and all replicas are in sync; return the replicas of each partition."""
    deadline, missing = time.monotonic() + HEALED_WITHIN_S, ""
    while time.monotonic() < deadline:
        with suppress(*REFUSED):
            described = {
                (topic.name, each.partition_index): each
                for topic in admin.describe_topics([*CONFIGS]).values()
                for each in topic.partitions
            }
            behind = [
                key for key, each in described.items() if len(each.isr_nodes) < len(each.replica_nodes) or each.adding_replicas
            ]
            futures = [
                (broker, each.topic, each.partition_index)
                for broker in cluster.broker_ids
                for log_dir in admin.describe_log_dirs(broker)
                for each in log_dir.replicas
                if each.is_future_key
            ]
            if not behind and not futures:
                return {key: list(each.replica_nodes) for key, each in described.items()}
            missing = f"not in sync: {behind}, still moving: {futures}"
        time.sleep(0.2)
    raise NoResult(f"the cluster did not heal within {HEALED_WITHIN_S:g} s; {missing}")


def _differences(cluster: LocalCluster, producer: Producer, replicas: list[int]) -> Iterator[str]:
    """Yield what is wrong on the disks of the replicas of a partition."""
    topic, index = producer.partition
    expected = {
        base_offset + number: place * BATCH + number
        for place, base_offset in enumerate(producer.base_offsets)
        for number in range(BATCH)
    }
    if topic == COMPACTED:
        newest = {number % KEYS: offset for offset, number in expected.items()}
        expected = {offset: expected[offset] for offset in newest.values()}
    for broker in replicas:
        places = [path for log_dir in cluster.log_dirs(broker) for path in [log_dir / f"{topic}-{index}"] if path.is_dir()]
        if len(places) != 1:
            yield f"{topic}-{index} has {len(places)} directories on broker {broker}"
            continue
        found = [record for path in sorted(places[0].glob("*.log")) for record in decode_records(path.read_bytes())]
        numbers = [(record.offset, int((record.value or b"-1").partition(b".")[0])) for record in found]
        held = dict(numbers)
        if topic == EXPIRING:
            start = numbers[0][0] if numbers else max(expected, default=0) + 1
            expected = {offset: number for offset, number in expected.items() if offset >= start}
        lost = [number for offset, number in expected.items() if held.get(offset) != number]
        if lost:
            yield f"{topic}-{index} on broker {broker} lacks {len(lost)} records, the first of them {lost[0]}"
        if numbers != sorted(set(numbers)) or [number for _, number in numbers] != sorted(held.values()):
            yield f"{topic}-{index} on broker {broker} has records twice or out of order"
        if topic != COMPACTED and held.keys() != expected.keys():
            yield f"{topic}-{index} on broker {broker} has {len(held)} records, not {len(expected)}"


def render(result: SoakResult) -> str:
    rows = [["soak", "count"], ["acknowledged records", f"{result.acknowledged:,}"]]
    rows += [[kind, str(count)] for kind, count in sorted(result.troubles.items())]
    verdict = "\n".join(result.differences) or "every acknowledged record is there once, in order, on every replica"
    return f"{table(rows)}\n\n{result.seconds:g} s: {verdict}"


@measurement("soak", __doc__, quick="20 seconds only.")
@click.option("--seconds", type=float, help="Time of the troubles (default 600).")
@click.option("--seed", type=int, default=1, help="Seed of the troubles (default 1).")
def main(quick: bool, seconds: float | None, seed: int) -> Report:
    result = measure(seconds or (20 if quick else 600), seed)
    return Report([{"soak": result}], render(result), FAILED if result.differences else DONE)
