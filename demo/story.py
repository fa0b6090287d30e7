"""The main job in seven chapters on a real cluster. Each chapter's docstring names its steps and checks."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
from rich.markup import escape

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.connection import CONFIG_VARIABLE
from kraftlab.cli.partitions.segments import PartitionFiles, import_partition
from kraftlab.cli.reassign.plan import format_plan
from kraftlab.client.config_parts import config_changes
from kraftlab.client.errors import ClusterUnreachable
from kraftlab.client.results import Partition
from kraftlab.common.errors import ApiError
from kraftlab.common.sizes import bytes_text
from kraftlab.config.resources import ResourceType
from kraftlab.lab import LocalCluster

from . import kafka_clients, strangers, verify
from .lab import Lab, TopicPartition, wait_until
from .load import BYTES_PER_S_MAX, Producer, missing
from .moves import MoveWatch
from .recording import Recording, map_directory
from .report import StoryReport, add_bar

BROKERS = 4
OVERRIDES = {"log.segment.delete.delay.ms": "1000"}
MOVE_SECONDS = 8.0
"""Duration of the plan at the busiest broker: the throttle is low enough to be visible."""
LEAST_RATE = 20_000
TOLERANCE = 0.10
THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def name_of(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


class Story:
    """Plays a recording on a cluster and reports the checks."""

    def __init__(self, report: StoryReport, recording: Recording, cluster: LocalCluster) -> None:
        self.report = report
        self.recording = recording
        self.cluster = cluster
        self.contents = verify.recorded_contents(recording)
        self.sizes = {partition: content.size_bytes for partition, content in self.contents.items()}
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = {}
        self.lab: Lab
        self.clients: kafka_clients.KafkaClients | None = None

    def play(self) -> None:
        """Play all chapters, in order."""
        self.start()
        self.lab = Lab(self.cluster)
        try:
            self.import_topics()
            self.start_kafka_clients()
            self.execute_plan()
            self.move_under_load()
            self.cancel_half_way()
            self.verify_kafka_clients()
            self.verify_replicas()
            self.verify_metadata()
        finally:
            if self.clients is not None:
                self.clients.close()
            self.lab.close()

    # 1

    def start(self) -> None:
        """Format and start every node as a process; the quorum elects a leader and unfences the brokers. A secure cluster lets no
        stranger in.
        """
        controllers, brokers = len(self.cluster.controller_ids), len(self.cluster.broker_ids)
        self.report.chapter(1, f"{controllers} controllers and {brokers} brokers, each a process with disks of its own")
        self.cluster.start()
        ready_s = self.cluster.wait_ready()
        self.report.took("ready", ready_s)
        self.report.check("cluster ready", True, f"a controller leads and {brokers} brokers are unfenced after {ready_s:.2f} s")
        if self.cluster.plan.secure:
            self.report.print("  nodes prove by certificates who they are, and every client logs in over TLS")
            self.report.check("strangers refused", *strangers.refused(self.cluster))

    # 2

    def import_topics(self) -> None:
        """Create the recorded topics with their placements and import the recorded segments at their leaders."""
        recording = self.recording
        self.report.chapter(
            2, f"recorded topics: {recording.total_records} records, {bytes_text(recording.total_bytes)} of a real Kafka cluster"
        )
        started = time.monotonic()
        self.lab.admin.create_topics(self._creatable_topics())
        self.lab.data.refresh()
        with self.report.progress() as progress:
            bar = add_bar(progress, "importing segments", recording.total_bytes)
            for partition in recording.partitions:
                files = PartitionFiles(
                    partition.topic, partition.partition, tuple(recording.files(partition)), partition.log_bytes
                )
                import_partition(self.lab.data, files, lambda count: progress.advance(bar, count))
        replicas = sum(len(entry.replicas) for entry in recording.assignment)
        wait_until("followers copy the imported data", self._all_equal_to_recording)
        self.report.took("import", time.monotonic() - started)
        agrees = all(
            verify.manifest_agrees(partition, self.contents[partition.topic, partition.partition])
            for partition in recording.partitions
        )
        self.report.check(
            "manifest", agrees, f"{len(recording.partitions)} partitions counted again: same batches, records, bytes"
        )
        self.report.check("imported", True, f"{replicas} replicas hold exactly the recorded batches, offsets kept")

    def _creatable_topics(self) -> list[pb.CreatableTopic]:
        topics: dict[str, pb.CreatableTopic] = {}
        for entry in sorted(self.recording.assignment, key=lambda entry: (entry.topic, entry.partition)):
            topic = topics.setdefault(entry.topic, pb.CreatableTopic(name=entry.topic, num_partitions=-1, replication_factor=-1))
            topic.assignments.append(pb.CreatableReplicaAssignment(partition_index=entry.partition, broker_ids=entry.replicas))
        return list(topics.values())

    def _all_equal_to_recording(self) -> bool:
        held = self.lab.digests()
        return all(
            set(held.get((entry.topic, entry.partition), {})) == set(entry.replicas)
            and all(
                verify.content_of_replica(digest) == self.contents[entry.topic, entry.partition]
                for digest in held[entry.topic, entry.partition].values()
            )
            for entry in self.recording.assignment
            if (entry.topic, entry.partition) in self.contents
        )

    def start_kafka_clients(self) -> None:
        """Let kafka-python produce and consume from now on, if it is installed."""
        if not kafka_clients.is_installed():
            self.report.print(f"  {escape(kafka_clients.MISSING)}")
            return
        self.clients = kafka_clients.KafkaClients(self.cluster.kafka_bootstrap_servers, self.cluster.kafka_python_options)
        self.report.print(f"  a producer and a consumer of kafka-python work on {kafka_clients.TOPIC} from now on")

    # 3 and 4

    def execute_plan(self) -> None:
        """Execute the captured plan with the command line tool, throttled; kill the active controller in the middle."""
        before = self.lab.partitions()
        targets = {(entry.topic, entry.partition): set(entry.replicas) for entry in self.recording.plan}
        arrivals = {
            (broker, partition)
            for partition, wanted in targets.items()
            for broker in wanted - set(before[partition].replica_nodes)
        }
        received = {broker: sum(self.sizes.get(p, 0) for b, p in arrivals if b == broker) for broker, _ in arrivals}
        busiest = max(received, key=lambda broker: received[broker], default=-1)
        rate = max(int(received.get(busiest, 0) / MOVE_SECONDS), LEAST_RATE)
        self.report.chapter(3, f"the recorded plan: {len(arrivals)} replicas move, throttled to {bytes_text(rate)}/s per broker")
        if self.clients is not None:
            self.clients.reassign()
        path = self._plan_file()
        options = ("--throttle", str(rate), "--replica-alter-log-dirs-throttle", str(4 * rate))
        executed = self._tool("--execute", "--reassignment-json-file", str(path), *options)
        if executed.returncode:
            self.report.check("plan started", False, (executed.stdout + executed.stderr).strip().splitlines()[-1])
            return
        watch = MoveWatch(self.lab, arrivals, {p: self.sizes.get(p, 0) for p in targets}, verify.largest_batch(self.recording))
        with ThreadPoolExecutor(1) as pool:
            failover: list[Future[None]] = []
            watch.run(self.report, rate, lambda: failover.append(pool.submit(self._kill_controller)))
            for future in failover:
                future.result()
        self._check_throttle(watch, busiest, rate)
        self._check_plan(path)

    def _check_throttle(self, watch: MoveWatch, busiest: int, rate: int) -> None:
        if not watch.total_bytes:
            self.report.check("throttle", True, "the plan moves no bytes: nothing to throttle")
            return
        most_ahead = max(throughput.most_ahead for throughput in watch.by_broker.values())
        seen = watch.by_broker[busiest]
        mean = seen.bytes / seen.seconds if seen.seconds else 0.0
        off = mean / rate - 1
        is_slow = seen.bytes < rate * (1 - TOLERANCE) * seen.seconds_min
        self.report.check(
            "throttle",
            most_ahead <= 1 + TOLERANCE and off <= TOLERANCE and not is_slow and seen.bytes > 0,
            f"broker {busiest} received {bytes_text(seen.bytes)} at {bytes_text(mean)}/s, {off:+.1%} of the limit; "
            f"no broker was ever above {most_ahead:.0%} of it",
        )

    def _check_plan(self, path: pathlib.Path) -> None:
        wait_until("log dirs of the plan", lambda: self._tool("--verify", "--reassignment-json-file", str(path)).returncode != 2)
        verified = self._tool("--verify", "--reassignment-json-file", str(path))
        now = self.lab.partitions()
        wrong = [
            entry for entry in self.recording.plan if tuple(now[entry.topic, entry.partition].replica_nodes) != entry.replicas
        ]
        self.report.check(
            "plan executed",
            verified.returncode == 0 and not wrong,
            f"{len(self.recording.plan)} partitions on the replicas and log dirs of the plan, throttles removed"
            if not wrong
            else f"not as planned: {', '.join(name_of((entry.topic, entry.partition)) for entry in wrong)}",
        )

    def _kill_controller(self) -> None:
        """Play chapter 4: kill -9 of the active controller; time until the next write commits; catch-up of the killed one."""
        leader = self.lab.active_controller()
        topic = self.recording.assignment[0].topic
        self.report.chapter(4, f"kill -9 of controller {leader}, the active one")
        lab = Lab(self.cluster)
        try:
            lab.small_write(topic, 1_000_000)
            killed_at = time.monotonic()
            self.cluster.kill_node(leader)
            offset = _first_success(lambda: lab.small_write(topic, 2_000_000, timeout_ms=2_000))
            failover_s = time.monotonic() - killed_at
            self.report.took("failover", failover_s)
            successor = lab.active_controller()
            self.report.check(
                "failover",
                successor != leader,
                f"controller {successor} committed the next write {failover_s:.2f} s after the kill",
            )
            self.cluster.start_node(leader)
            caught_up_s = wait_until(f"controller {leader} catches up", lambda: _has_reached(lab, self.cluster, leader, offset))
            self.report.check(
                "killed controller back", True, f"controller {leader} caught up {caught_up_s:.1f} s after its restart"
            )
        finally:
            lab.close()

    def _plan_file(self) -> pathlib.Path:
        directories = self.lab.log_dir_paths()
        placements = [
            msgspec.structs.replace(entry, log_dirs=tuple(map_directory(path, directories) for path in entry.log_dirs))
            for entry in self.recording.plan
        ]
        path = self.cluster.directory / "plan.json"
        path.write_text(format_plan(placements))
        return path

    def _tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kraftlab.cli.main", "reassign-partitions"]
        command += ["--data", str(self.cluster.directory), *arguments]
        environment = {key: value for key, value in os.environ.items() if key != CONFIG_VARIABLE}  # of a user's own cluster
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment)

    # 5

    def move_under_load(self) -> None:
        """Move leader and follower replicas to the other log dir of their broker while producers append to them."""
        partitions = self._largest(3)
        rate = max(int(max(self.sizes.get(partition, 0) for partition in partitions) / 2), LEAST_RATE)
        rate += BYTES_PER_S_MAX * len(partitions)
        self.report.chapter(5, f"{', '.join(map(name_of, partitions))} move between log dirs while producers append")
        producer = Producer(self.cluster, partitions)
        producer.start()
        try:
            self.lab.set_broker_configs({LOG_DIR_THROTTLE: str(rate)})
            wait_until("producers get answers", lambda: all(producer.acknowledged.values()))
            targets = self._start_dir_moves([*partitions, *self._with_clients()])
            with self.report.progress() as progress:
                bars = {
                    key: add_bar(progress, f"{name_of(key[1])} on broker {key[0]}", self.sizes.get(key[1], 0))
                    for key in targets
                    if key[1] in partitions
                }

                def moved() -> bool:
                    on_disk = self.lab.replicas_on_disk()
                    arrived = 0
                    for (broker, partition), path in targets.items():
                        rows = [row for row in on_disk[partition] if row.broker == broker]
                        done = [row.log_dir for row in rows] == [path]
                        future = next((row for row in rows if row.is_future), None)
                        size = self.sizes.get(partition, 1) if done else future.size_bytes if future else 0
                        note = f"{bytes_text(max(future.bytes_per_second, 0)):>9}/s" if future else ""
                        if (broker, partition) in bars:
                            progress.update(bars[broker, partition], completed=size, note=note)
                        arrived += done
                    return arrived == len(targets)

                seconds = wait_until("log dir moves", moved, timeout_s=60)
        finally:
            producer.stop()
            self.lab.set_broker_configs({LOG_DIR_THROTTLE: None})
        self.acknowledged = producer.acknowledged
        self.report.check(
            "moved between log dirs",
            not producer.failures,
            f"{len(targets)} replicas changed disk in {seconds:.1f} s while {producer.records} records were acknowledged"
            + (f"; {len(producer.failures)} appends failed, first: {producer.failures[0]}" if producer.failures else ""),
        )

    def _with_clients(self) -> list[TopicPartition]:
        """Return the partitions of kafka-python's topic, once they are on other brokers."""
        if self.clients is None:
            return []

        def moved() -> bool:
            placed = self.lab.partitions()
            return all(tuple(placed[partition].replica_nodes) == to for partition, to in kafka_clients.AFTER.items())

        wait_until(f"{kafka_clients.TOPIC} is on other brokers", moved)
        return list(kafka_clients.AFTER)

    def _largest(self, count: int) -> list[TopicPartition]:
        recorded = self.lab.partitions().keys() - kafka_clients.AFTER.keys()
        everything = sorted(recorded, key=lambda partition: (-self.sizes.get(partition, 0), partition))
        return everything[:count]

    def _start_dir_moves(self, partitions: list[TopicPartition]) -> dict[tuple[int, TopicPartition], str]:
        """Move each broker's replica of each partition to the next of its log dirs; return the targets."""
        paths = self.lab.log_dir_paths()
        targets: dict[tuple[int, TopicPartition], str] = {}
        on_disk = self.lab.replicas_on_disk()
        for partition in partitions:
            for row in on_disk[partition]:
                dirs = [path for (broker, _), path in sorted(paths.items()) if broker == row.broker]
                targets[row.broker, partition] = dirs[(dirs.index(row.log_dir) + 1) % len(dirs)]
        for broker in {broker for broker, _ in targets}:
            moves = {partition: path for (owner, partition), path in targets.items() if owner == broker}
            self.lab.admin.alter_replica_log_dirs(broker, moves)
        return targets

    # 6

    def cancel_half_way(self) -> None:
        """Start a second reassignment, cancel it after some bytes, and compare with the state before."""
        brokers = self.lab.brokers()
        placed = self.lab.partitions()
        chosen = [partition for partition in self._largest(len(placed)) if len(placed[partition].replica_nodes) < len(brokers)][
            :2
        ]
        self.report.chapter(6, f"{', '.join(map(name_of, chosen))} start to move once more, and are cancelled half-way")
        before = self._state_of(chosen)
        rate = max(int(max(self.sizes.get(partition, 0) for partition in chosen) / 4), LEAST_RATE)
        throttled = dict.fromkeys(("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "*")
        self._set_topic_configs(chosen, throttled)
        self.lab.set_broker_configs(dict.fromkeys(THROTTLES, str(rate)))
        targets = {}
        for partition in chosen:
            replicas = list(placed[partition].replica_nodes)
            spare = next(broker for broker in reversed(brokers) if broker not in replicas)
            targets[partition] = [spare, *replicas[:-1]] if len(replicas) > 1 else [spare]
        self.lab.admin.alter_partition_reassignments(targets)
        arriving = {(target[0], partition) for partition, target in targets.items()}
        copied = 0

        def something_arrived() -> bool:
            nonlocal copied
            on_disk = self.lab.replicas_on_disk()
            sizes = [row.size_bytes for broker, p in arriving for row in on_disk.get(p, []) if row.broker == broker]
            copied = sum(sizes)
            return len(sizes) == len(arriving) and (copied > 0 or not any(self.sizes.get(p) for p in chosen))

        wait_until("the second reassignment copies bytes", something_arrived)
        self.lab.admin.alter_partition_reassignments(dict.fromkeys(targets))
        self._set_topic_configs(chosen, dict.fromkeys(throttled))
        self.lab.set_broker_configs(dict.fromkeys(THROTTLES))
        wait_until("the cancelled replicas leave the disks", lambda: self._state_of(chosen) == before)
        total = sum(self.sizes.get(partition, 0) for partition in chosen)
        self.report.check(
            "cancelled exactly", True, f"after {bytes_text(copied)} of {bytes_text(total)}: replicas, ISR and log dirs as before"
        )

    def _state_of(self, partitions: list[TopicPartition]) -> dict[TopicPartition, object]:
        now, on_disk = self.lab.partitions(), self.lab.replicas_on_disk()
        return {
            partition: (
                list(now[partition].replica_nodes),
                list(now[partition].isr_nodes),
                list(now[partition].directories),
                list(now[partition].adding_replicas),
                sorted((row.broker, row.log_dir, row.is_future) for row in on_disk.get(partition, [])),
            )
            for partition in partitions
        }

    def _set_topic_configs(self, partitions: list[TopicPartition], configs: dict[str, str] | dict[str, None]) -> None:
        topics = sorted({topic for topic, _ in partitions})
        resources = [config_changes(ResourceType.TOPIC, topic, configs) for topic in topics]
        self.lab.admin.incremental_alter_configs(resources)

    # 7

    def verify_kafka_clients(self) -> None:
        """Check that kafka-python's consumer received what its producer sent."""
        self.report.chapter(7, "verification")
        if self.clients is not None:
            self.report.check("kafka-python", *self.clients.finish())

    def verify_replicas(self) -> None:
        """Check that every replica's bytes equal the leader's, acknowledged records exist, and no directory is left over."""
        placed = self.lab.partitions()
        differing: list[str] = []

        def all_equal() -> bool:
            held = self.lab.digests()
            differing[:] = [
                name_of(partition)
                for partition, item in placed.items()
                if set(held.get(partition, {})) != set(item.replica_nodes)
                or len({msgspec.msgpack.encode(verify.content_of_replica(digest)) for digest in held[partition].values()}) != 1
            ]
            return not differing

        with contextlib.suppress(RuntimeError):
            wait_until("replicas become equal", all_equal)
        replicas = sum(len(item.replica_nodes) for item in placed.values())
        self.report.check(
            "bytes equal", not differing, f"CRC of {replicas} replicas compared" if not differing else f"differ: {differing}"
        )
        unchanged = [partition for partition in self.contents if partition not in self.acknowledged]
        held = self.lab.digests()
        changed = [
            name_of(partition)
            for partition in unchanged
            if any(verify.content_of_replica(d) != self.contents[partition] for d in held[partition].values())
        ]
        self.report.check(
            "recorded data intact",
            not changed,
            f"{len(unchanged)} partitions are still exactly what was recorded" if not changed else f"changed: {changed}",
        )
        records = sum(map(len, self.acknowledged.values()))
        lost = sum(missing(self.lab.data, partition, values) for partition, values in self.acknowledged.items())
        self.report.check(
            "nothing acknowledged is missing", lost == 0, f"{records} acknowledged records read back, {lost} missing"
        )
        self.report.check("no reassignment left", not self.lab.reassigning(), "none is listed")
        self._check_directories(placed)

    def _check_directories(self, placed: dict[TopicPartition, Partition]) -> None:
        wanted = {(broker, name_of(partition)) for partition, item in placed.items() for broker in item.replica_nodes}
        odd: list[str] = []

        def is_clean() -> bool:
            found = [
                (broker, entry.name)
                for broker in self.lab.brokers()
                for path in self.cluster.log_dirs(broker)
                for entry in path.iterdir()
                if entry.is_dir()
            ]
            odd[:] = [f"broker {broker}: {name}" for broker, name in found if (broker, name) not in wanted]
            odd.extend(f"broker {broker}: {name} twice" for broker, name in set(found) if found.count((broker, name)) > 1)
            odd.extend(f"broker {broker}: no {name}" for broker, name in wanted - set(found))
            return not odd and not self.lab.strays()

        with contextlib.suppress(RuntimeError):
            wait_until("deleted directories disappear", is_clean, timeout_s=15)
        self.report.check("no stray directory", not odd, f"{len(wanted)} replica directories, no other" if not odd else str(odd))

    def verify_metadata(self) -> None:
        """Check that every node's image at one offset is the same, and equals the image of its log re-read from disk."""
        nodes = (*self.cluster.controller_ids, *self.cluster.broker_ids)
        published: dict[int, pb.DescribeMetadataResponse] = {}

        def at_one_offset() -> bool:
            published.update((node_id, self.lab.metadata_of(self.cluster.node(node_id).grpc)) for node_id in nodes)
            return len({answer.offset for answer in published.values()}) == 1

        wait_until("all nodes publish the same offset", at_one_offset)
        offset = published[nodes[0]].offset
        images = {bytes(answer.image_digest) for answer in published.values()}
        self.report.check(
            "same metadata everywhere", len(images) == 1, f"{len(nodes)} nodes have published the same image at offset {offset}"
        )
        logs = [self.lab.metadata_of(self.cluster.node(node_id).grpc, at_offset=offset, reread_log=True) for node_id in nodes]
        reread = {(answer.reread_offset, bytes(answer.reread_digest)) for answer in logs}
        self.report.check(
            "metadata log re-read",
            len(images) == 1 and reread == {(offset, *images)},
            f"{len(nodes)} logs read again from disk give that image",
        )


def _first_success(attempt: Callable[[], int], *, timeout_s: float = 30.0) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except (ApiError, ClusterUnreachable):
            if time.monotonic() > deadline:
                raise


def _has_reached(lab: Lab, cluster: LocalCluster, node_id: int, offset: int) -> bool:
    try:
        return lab.metadata_of(cluster.node(node_id).grpc).offset >= offset
    except (ApiError, ClusterUnreachable):
        return False
