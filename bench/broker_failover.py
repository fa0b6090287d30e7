"""Kill -9 of the broker that leads a partition: time until the next acks=all write, with the default settings.

One controller and three brokers run as processes on loopback. The partition has three replicas and min.insync.replicas 2. A run
begins with the signal and ends when a client, which does not know of the kill, has the answer to one write with acks=all. The
time includes detection, fencing, the election of another leader, the ISR change, and the client's own search for the new leader.
Then the killed broker is restarted, and the next run waits until all three replicas are in sync.
"""

from __future__ import annotations

import tempfile
import time

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, DataClient
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

from .measure import NoResult, Report, measurement, percentile, table

TOPIC = "failover"
BROKERS = 3
IN_SYNC_TIMEOUT_S = 30.0
ELSEWHERE = {"Kafka": "11.5–14 s"}
"""Measured on a similar machine with the same cluster."""


class BrokerFailoverResult(msgspec.Struct, frozen=True):
    """Seconds of each run, in order."""

    seconds: list[float]


def measure(runs: int) -> BrokerFailoverResult:
    seconds = []
    with (
        tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory,
        LocalCluster(directory, 1, BROKERS, 1) as cluster,
        cluster.admin() as admin,
        DataClient(admin) as client,
    ):
        topic = pb.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=BROKERS)
        topic.configs.add(name="min.insync.replicas", value="2")
        admin.create_topics([topic])
        for run in range(runs):
            leader = _wait_in_sync(admin)
            _write(client, run)
            started = time.perf_counter()
            cluster.kill_node(leader)
            _write(client, run)
            seconds.append(time.perf_counter() - started)
            cluster.start_node(leader)
    return BrokerFailoverResult(seconds)


def _write(client: DataClient, run: int) -> None:
    client.produce(TOPIC, 0, build_batch([Record(b"%d" % run, b"value", run)]))


def _wait_in_sync(admin: AdminClient) -> int:
    """Wait until every replica is in sync; return the leader."""
    deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
    while time.monotonic() < deadline:
        [partition] = admin.describe_topics([TOPIC])[TOPIC].partitions
        if len(partition.isr_nodes) == BROKERS and partition.leader_id is not None:
            return partition.leader_id
        time.sleep(0.05)
    raise NoResult(f"not every replica was in sync after {IN_SYNC_TIMEOUT_S:g} s")


def render(result: BrokerFailoverResult) -> str:
    values = [f"{percentile(result.seconds, percent):.2f} s" for percent in (0, 50, 100)]
    heading = ["kill -9 of the leader to next acks=all write", "runs", "min", "median", "max"]
    heading += [f"elsewhere: {name}" for name in ELSEWHERE]
    return table([heading, ["kraftlab", str(len(result.seconds)), *values, *ELSEWHERE.values()]])


@measurement("broker-failover", __doc__, quick="3 runs only.")
@click.option("--runs", type=int, help="Number of kills (default 10).")
def main(quick: bool, runs: int | None) -> Report:
    result = measure(runs or (3 if quick else 10))
    return Report([{"broker-failover": result}], render(result))
