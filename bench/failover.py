"""Kill -9 of the active controller: time until a client's next write is committed, with the default settings.

Three controllers run as processes on loopback. A run begins with the signal and ends when the client, which does not know of the
kill, has the answer to one small write. The time includes detection, election, activation, commit and the client's own search for
the new controller. Then the killed controller is restarted, and the next run waits until it has caught up.
"""

from __future__ import annotations

import tempfile
import time

import click
import msgspec

from kraftlab.client import AdminClient
from kraftlab.client.config_parts import config_changes
from kraftlab.common.errors import ApiError
from kraftlab.config.resources import ResourceType
from kraftlab.lab import LocalCluster

from .measure import NoResult, Report, measurement, percentile, table

CAUGHT_UP_TIMEOUT_S = 20.0
ELSEWHERE = {"ZooKeeper": "0.6–1.1 s", "etcd": "1.5–2.3 s", "Kafka": "2.0–3.5 s"}
"""Measured on a similar machine, three nodes on loopback, fsync on."""


class FailoverResult(msgspec.Struct, frozen=True):
    """Seconds of each run, in order."""

    seconds: list[float]


def measure(runs: int) -> FailoverResult:
    seconds = []
    with (
        tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory,
        LocalCluster(directory, 3, 0, 1) as cluster,
        cluster.admin() as client,
    ):
        for run in range(runs):
            _write(client, run)
            active = _wait_caught_up(cluster, client)
            started = time.perf_counter()
            cluster.kill_node(active)
            _write(client, run + runs)
            seconds.append(time.perf_counter() - started)
            cluster.start_node(active)
    return FailoverResult(seconds)


def _write(client: AdminClient, value: int) -> None:
    """Make one small write that needs no broker: a default of the whole cluster."""
    resource = config_changes(ResourceType.BROKER, "", {"leader.replication.throttled.rate": str(1 << 20 | value)})
    client.incremental_alter_configs([resource])


def _wait_caught_up(cluster: LocalCluster, client: AdminClient) -> int:
    """Wait until every controller runs and its log reaches the high watermark; return the active one."""
    deadline = time.monotonic() + CAUGHT_UP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            quorum = client.describe_quorum()
        except ApiError:
            continue
        reached = [voter.replica_id for voter in quorum.current_voters if voter.log_end_offset >= quorum.high_watermark > 0]
        runs = len(reached) == len(cluster.controller_ids) and all(map(cluster.pid, cluster.controller_ids))
        if runs and quorum.leader_id is not None:
            return quorum.leader_id
        time.sleep(0.05)
    raise NoResult(f"not every controller caught up within {CAUGHT_UP_TIMEOUT_S:g} s; their logs are in {cluster.directory}/logs")


def render(result: FailoverResult) -> str:
    values = [f"{percentile(result.seconds, percent):.2f} s" for percent in (0, 50, 90, 100)]
    heading = ["kill -9 to next commit", "runs", "min", "p50", "p90", "max", *(f"elsewhere: {name}" for name in ELSEWHERE)]
    return table([heading, ["kraftlab", str(len(result.seconds)), *values, *ELSEWHERE.values()]])


@measurement("failover", __doc__, quick="5 runs only.")
@click.option("--runs", type=int, help="Number of kills (default 20).")
def main(quick: bool, runs: int | None) -> Report:
    result = measure(runs or (5 if quick else 20))
    return Report([{"failover": result}], render(result))
