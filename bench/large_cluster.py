"""A cluster with thousands of partitions: 3 controllers and 4 brokers as processes of their own, with two log directories each.

Topics with 1,000 partitions of three replicas are created in one request; then every partition's replicas are reordered, in one
request; then a third of the partitions, which are empty, moves to another broker, in one request. Measured for each: the time
until the answer, and until it is done: every broker has the metadata, and then its replicas have their logs; every move has
ended. Processor time is that of all nodes together.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TypeVar

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.lab import LocalCluster

from .large_metadata import memory_mib, stat_of
from .measure import NoResult, Report, measurement, table

CONTROLLERS, BROKERS, LOG_DIRS, REPLICAS = 3, 4, 2, 3
TOPICS, PARTITIONS_PER_TOPIC = 9, 1000
DONE_WITHIN_S = 600.0
PARTITIONS_PER_REQUEST = 9_000
"""A controller takes at most 10,000 in one request."""

Item = TypeVar("Item")
POLL_S = 0.1
LOOK_S = 0.05
ELSEWHERE = {
    "created: answered": "0.41 s",
    "created: in every broker's metadata": "3 s",
    "reordered: answered": "1.1 s",
    "moved: answered": "0.23 s",
    "moved: done": "10.7 s",
    "memory of a controller": "200 MiB",
    "memory of a broker": "570 MiB",
}
"""Kafka 4.3 on a similar machine, 9 topics of 1,000 partitions, 3,000 of them moved."""


class LargeClusterResult(msgspec.Struct, frozen=True):
    """Seconds from the request on; memory is the peak of a role's largest node during the whole run."""

    partitions: int
    moved: int
    create_answered_s: float
    create_seen_s: float
    """Time until the last broker had it in its metadata; `create_done_s`: until all replicas had their logs."""
    create_done_s: float
    reorder_answered_s: float
    reorder_done_s: float
    move_answered_s: float
    move_done_s: float
    list_answered_s: float
    """Time of one listing of the moves during the moves."""
    controller_mib: float
    broker_mib: float
    broker_descriptors: int
    """Open files of the broker with the most, after the moves."""
    create_processor_s: float
    move_processor_s: float
    load_before: float
    load_after: float
    processors: int


class Nodes:
    """The nodes of a running cluster, and the queries of a measurement."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._pids = {node.node_id: cluster.pid(node.node_id) or 0 for node in cluster.plan.nodes}
        self.admin = cluster.admin(timeout_ms=round(DONE_WITHIN_S * 1000))
        self._clients = {broker_id: cluster.admin() for broker_id in cluster.broker_ids}
        self.admin.describe_cluster()

    def close(self) -> None:
        for client in (self.admin, *self._clients.values()):
            client.close()

    def when_all_brokers(self, offset: int, started: float) -> tuple[float, float]:
        """Return the seconds since `started` until every broker has metadata up to that offset, and until every broker has
        applied it. For the first, each broker is polled for its metadata offset; for the second, one request waits for the
        answer.
        """
        seen: dict[int, float] = {}
        done: dict[int, float] = {}

        def look(broker_id: int) -> bool:
            answer = self._clients[broker_id].call_at(
                self._cluster.node(broker_id).grpc, pb.ApiVersionsResponse, pb.ApiVersionsRequest()
            )
            return bool(answer.header.metadata_offset >= offset)

        def wait(broker_id: int) -> bool:
            request = pb.DescribeMetadataRequest(header=pb.RequestHeader(min_offset=offset))
            endpoint, timeout_ms = self._cluster.node(broker_id).grpc, round(DONE_WITHIN_S * 1000)
            self._clients[broker_id].call_at(endpoint, pb.DescribeMetadataResponse, request, timeout_ms=timeout_ms)
            return True

        def note(ask: Callable[[int], bool], broker_id: int, seconds: dict[int, float]) -> None:
            while broker_id not in seconds and time.perf_counter() - started < DONE_WITHIN_S:
                with suppress(ApiError, ClusterUnreachable):
                    if ask(broker_id):
                        seconds[broker_id] = time.perf_counter() - started
                        return
                time.sleep(LOOK_S)

        questions = ((look, seen), (wait, done))
        threads = [threading.Thread(target=note, args=(ask, each, into)) for ask, into in questions for each in self._clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(done) < len(self._clients):
            raise NoResult(f"only brokers {sorted(done)} have metadata up to {offset} after {DONE_WITHIN_S:g} s")
        return max(seen.values()), max(done.values())

    def processor_seconds(self) -> float:
        """Return the processor time of all nodes since they started."""
        return sum(int(ticks) for pid in self._pids.values() for ticks in stat_of(pid)[11:13]) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self, node_ids: tuple[int, ...]) -> float:
        return max(memory_mib("VmHWM", self._pids[node_id]) for node_id in node_ids)

    def descriptors(self, node_ids: tuple[int, ...]) -> int:
        return max(len(os.listdir(f"/proc/{self._pids[node_id]}/fd")) for node_id in node_ids)


def limit_descriptors(limit: int) -> None:
    """Lower the limit of open files of this process and of the nodes that it starts."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def timed(work: Callable[[], pb.ResponseHeader]) -> tuple[float, float, int]:
    """Return (start time, seconds until the answer, metadata offset in the answer)."""
    started = time.perf_counter()
    header = work()
    return started, time.perf_counter() - started, header.metadata_offset


def measure(topics: int, partitions_per_topic: int, moves: int | None = None) -> LargeClusterResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        cluster = LocalCluster(directory, CONTROLLERS, BROKERS, LOG_DIRS)
        try:
            cluster.start()
            cluster.wait_ready(120.0)
            nodes = Nodes(cluster)
            try:
                return _measure(cluster, nodes, topics, partitions_per_topic, moves)
            finally:
                nodes.close()
        finally:
            cluster.close()


def _measure(
    cluster: LocalCluster, nodes: Nodes, topics: int, partitions_per_topic: int, moves: int | None
) -> LargeClusterResult:
    load_before = os.getloadavg()[0]
    before = nodes.processor_seconds()
    started, create_answered, offset = timed(lambda: create(nodes.admin, topics, partitions_per_topic))
    create_seen, create_done = nodes.when_all_brokers(offset, started)
    created = nodes.processor_seconds()
    replicas = {
        (topic.name, each.partition_index): list(each.replica_nodes)
        for topic in nodes.admin.describe_topics().values()
        for each in topic.partitions
    }
    orders = {key: [*held[1:], held[0]] for key, held in replicas.items()}
    started, reorder_answered, offset = timed(lambda: reassign(nodes.admin, orders))
    _, reorder_done = nodes.when_all_brokers(offset, started)
    brokers = cluster.broker_ids
    targets = {
        key: [*orders[key][:-1], next(broker for broker in brokers if broker not in orders[key])]
        for key in sorted(orders)[: moves or len(orders) // 3]
    }
    middle = nodes.processor_seconds()
    started, move_answered, _ = timed(lambda: reassign(nodes.admin, targets))
    list_started = time.perf_counter()
    is_moving = bool(nodes.admin.list_partition_reassignments().running)
    list_answered = time.perf_counter() - list_started
    while is_moving:
        if time.perf_counter() - started > DONE_WITHIN_S:
            raise NoResult(f"the moves have not ended after {DONE_WITHIN_S:g} s")
        time.sleep(POLL_S)
        is_moving = bool(nodes.admin.list_partition_reassignments().running)
    move_done = time.perf_counter() - started
    return LargeClusterResult(
        len(replicas),
        len(targets),
        create_answered,
        create_seen,
        create_done,
        reorder_answered,
        reorder_done,
        move_answered,
        move_done,
        list_answered,
        nodes.peak_mib(cluster.controller_ids),
        nodes.peak_mib(cluster.broker_ids),
        nodes.descriptors(cluster.broker_ids),
        created - before,
        nodes.processor_seconds() - middle,
        load_before,
        os.getloadavg()[0],
        os.cpu_count() or 0,
    )


def create(admin: AdminClient, topics: int, partitions: int) -> pb.ResponseHeader:
    wanted = (
        pb.CreatableTopic(name=f"topic-{number}", num_partitions=partitions, replication_factor=REPLICAS)
        for number in range(topics)
    )
    for some in batched(wanted, max(PARTITIONS_PER_REQUEST // partitions, 1)):
        answer = admin.create_topics(some)
    return answer.header


def reassign(admin: AdminClient, targets: dict[tuple[str, int], list[int]]) -> pb.ResponseHeader:
    for some in batched(targets.items(), PARTITIONS_PER_REQUEST):
        answer = admin.alter_partition_reassignments(dict(some))
    return answer.header


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`, the last one shorter."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def render(result: LargeClusterResult) -> str:
    """Return the figures, each beside Kafka's if the size is the same."""
    measured = {
        "created: answered": f"{result.create_answered_s:.2f} s",
        "created: in every broker's metadata": f"{result.create_seen_s:.2f} s",
        "created: with logs, on disk": f"{result.create_done_s:.1f} s",
        "reordered: answered": f"{result.reorder_answered_s:.2f} s",
        "reordered: applied by every broker": f"{result.reorder_done_s:.2f} s",
        "moved: answered": f"{result.move_answered_s:.2f} s",
        "moved: listed during the moves": f"{result.list_answered_s:.2f} s",
        "moved: done": f"{result.move_done_s:.1f} s",
        "memory of a controller": f"{result.controller_mib:.0f} MiB",
        "memory of a broker": f"{result.broker_mib:.0f} MiB",
        "open files of a broker": f"{result.broker_descriptors:,}",
    }
    is_comparable = result.partitions == TOPICS * PARTITIONS_PER_TOPIC
    title = f"{result.partitions:,} partitions, {result.moved:,} moved"
    rows = [[title, "", "kraftlab", "elsewhere: Kafka"]]
    rows += [[name, "", value, ELSEWHERE.get(name, "") if is_comparable else ""] for name, value in measured.items()]
    return (
        f"{table(rows)}\n\nprocessor time of all nodes: {result.create_processor_s:.1f} s to create, "
        f"{result.move_processor_s:.1f} s to move; load of the machine {result.load_before:.1f} before, "
        f"{result.load_after:.1f} after, on {result.processors} processors"
    )


@measurement("large-cluster", __doc__, quick="3 topics of 100 partitions.")
@click.option("--topics", type=int, help=f"Number of topics (default {TOPICS}).")
@click.option("--partitions", type=int, help=f"Partitions of each topic (default {PARTITIONS_PER_TOPIC}).")
@click.option("--moves", type=int, help="Number of partitions to move (default a third).")
@click.option("--descriptors", type=int, help="Limit of open files of each process (default this shell's).")
def main(quick: bool, topics: int | None, partitions: int | None, moves: int | None, descriptors: int | None) -> Report:
    if descriptors is not None:
        limit_descriptors(descriptors)
    topics = topics or (3 if quick else TOPICS)
    result = measure(topics, partitions or (100 if quick else PARTITIONS_PER_TOPIC), moves)
    return Report([{"large-cluster": result}], render(result))
