"""One broker with thousands of partitions: its start after a clean stop and after kill -9, its memory and its open files.

A controller and a broker run as processes of their own, the broker with two log directories. The partitions have
one replica and no records. A start is timed from the process on until the broker serves and is unfenced. Memory and
descriptors are those after it.
"""

from __future__ import annotations

import os
import tempfile
import time

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.lab import LocalCluster

from .large_metadata import memory_mib
from .measure import Report, measurement, table

PARTITIONS = 10_000
TOPICS = 2
LOG_DIRS = 2
WITHIN_S = 300.0
AIMS = {"start, clean": "3 s", "start, after kill -9": "8 s", "memory": "200 MiB", "descriptors": "5,000"}


class PartitionsResult(msgspec.Struct, frozen=True):
    """Memory and descriptors of the broker are the larger ones of those after each start."""

    partitions: int
    clean_start_s: float
    start_after_kill_s: float
    memory_mib: float
    descriptors: int


def measure(partitions: int) -> PartitionsResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        cluster = LocalCluster(directory, 1, 1, LOG_DIRS)
        try:
            cluster.start()
            cluster.wait_ready()
            [broker_id] = cluster.broker_ids
            with cluster.admin(timeout_ms=round(WITHIN_S * 1000)) as admin:
                for number in range(TOPICS):
                    topic = pb.CreatableTopic(name=f"t{number}", num_partitions=partitions // TOPICS, replication_factor=1)
                    created = admin.create_topics([topic])
                request = pb.DescribeMetadataRequest(header=pb.RequestHeader(min_offset=created.header.metadata_offset))
                endpoint = cluster.node(broker_id).grpc
                admin.call_at(endpoint, pb.DescribeMetadataResponse, request, timeout_ms=round(WITHIN_S * 1000))
            cluster.stop_node(broker_id, WITHIN_S)
            clean_s, clean_mib, clean_files = _start(cluster, broker_id)
            cluster.kill_node(broker_id)
            killed_s, killed_mib, killed_files = _start(cluster, broker_id)
        finally:
            cluster.close()
    return PartitionsResult(partitions, clean_s, killed_s, max(clean_mib, killed_mib), max(clean_files, killed_files))


def _start(cluster: LocalCluster, broker_id: int) -> tuple[float, float, int]:
    """Return seconds until the broker is ready, and its memory and descriptors then."""
    started = time.perf_counter()
    cluster.start_node(broker_id)
    cluster.wait_ready(WITHIN_S)
    seconds = time.perf_counter() - started
    pid = cluster.pid(broker_id) or 0
    return seconds, memory_mib("VmHWM", pid), len(os.listdir(f"/proc/{pid}/fd"))


def render(result: PartitionsResult) -> str:
    measured = {
        "start, clean": f"{result.clean_start_s:.1f} s",
        "start, after kill -9": f"{result.start_after_kill_s:.1f} s",
        "memory": f"{result.memory_mib:.0f} MiB",
        "descriptors": f"{result.descriptors:,}",
    }
    is_comparable = result.partitions == PARTITIONS
    rows = [[f"{result.partitions:,} partitions", "kraftlab", "at most"]]
    return table(rows + [[name, value, AIMS[name] if is_comparable else ""] for name, value in measured.items()])


@measurement("partitions", __doc__, quick="300 partitions.")
@click.option("--partitions", type=int, help=f"Number of partitions (default {PARTITIONS:,}).")
def main(quick: bool, partitions: int | None) -> Report:
    result = measure(partitions or (300 if quick else PARTITIONS))
    return Report([{"partitions": result}], render(result))
