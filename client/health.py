"""Health of a cluster: what is wrong, or still in progress, each with the next step.

`findings` is a pure function of what a client can see; `look` asks a cluster. A broker or directory that is gone, and the
partitions that suffer from it, are findings of their own: the first shows the cause, the others the extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kraftlab.common.errors import ApiError
from kraftlab.config.resources import ResourceType

from .errors import ClusterUnreachable
from .results import AllLogDirs, Cluster, Partition, Result, Topic

if TYPE_CHECKING:
    from .admin import AdminClient

SILENT_MS = 5000
"""A broker without a heartbeat for so long will soon be fenced. Brokers send one every two seconds."""
NAMED_MAX = 8
"""Partitions of a topic that a finding names; it counts the others."""


class Finding(Result, frozen=True):
    """A fault of a cluster, or a reassignment in progress (not `is_fault`). `kind` is a name for scripts."""

    kind: str
    text: str
    next_step: str
    is_fault: bool = True


def findings(
    cluster: Cluster, topics: Iterable[Topic], log_dirs: AllLogDirs, moves: int, min_isr: Mapping[str, int]
) -> list[Finding]:
    """Return what is wrong. `moves`: number of running reassignments; `min_isr`: min.insync.replicas of topics, where known."""
    found = []
    if cluster.leader_id is None:
        found.append(Finding("no-controller", "no controller leads", "start a majority of the controllers"))
    for broker in cluster.brokers:
        name = f"broker {broker.broker_id}"
        if broker.is_fenced:
            step = f"start it, or remove it: kraftlab cluster unregister --id {broker.broker_id}"
            found.append(Finding("fenced-broker", f"{name} is fenced", step))
        elif (broker.silent_ms or 0) > SILENT_MS:
            text = f"{name} has been silent for {(broker.silent_ms or 0) / 1000:.1f} s"
            found.append(Finding("silent-broker", text, "look at its process and its log"))
    for broker_id, reason in sorted(log_dirs.silent.items()):
        text = f"broker {broker_id} does not describe its log directories: {reason}"
        found.append(Finding("unknown-directories", text, "look at its process and its log"))
    for broker_id, described in sorted(log_dirs.brokers.items()):
        for directory in described.log_dirs:
            if directory.error_code:
                text = f"log directory {directory.log_dir} of broker {broker_id} is offline"
                step = f"repair the disk, then: kraftlab log-dirs --online {directory.log_dir} --broker {broker_id}"
                found.append(Finding("offline-directory", text, step))
    is_offline = any(each.kind == "offline-directory" for each in found)
    first = "bring the offline log directories back, or " if is_offline else ""
    for topic in topics:
        found.extend(_of_topic(topic, min_isr.get(topic.name, 1), first))
    if moves:
        text = f"{moves} {'reassignment is' if moves == 1 else 'reassignments are'} running"
        found.append(Finding("reassignments", text, "watch: kraftlab reassign-partitions --list --details", is_fault=False))
    return found


def is_under_replicated(partition: Partition) -> bool:
    """Return True if a replica that is not being added is out of sync."""
    return not {*partition.replica_nodes} - {*partition.adding_replicas} <= {*partition.isr_nodes}


def _of_topic(topic: Topic, min_isr: int, first: str) -> Iterable[Finding]:
    """Yield what is wrong with a topic. `first` begins each next step."""
    rows: tuple[tuple[str, str, str, Callable[[Partition], bool]], ...] = (
        ("no-leader", "no leader", "start a broker of their replicas", lambda each: each.leader_id is None),
        (
            "below-min-isr",
            f"fewer in-sync replicas than min.insync.replicas={min_isr}",
            "start the brokers of their replicas; acks=all is refused meanwhile",
            lambda each: each.leader_id is not None and len(each.isr_nodes) < min_isr,
        ),
        ("under-replicated", "replicas out of sync", "start the brokers of their replicas, or wait", is_under_replicated),
    )
    for kind, has, step, holds in rows:
        numbers = [each.partition_index for each in topic.partitions if holds(each)]
        if numbers:
            shown = ", ".join(str(number) for number in numbers[:NAMED_MAX])
            more = f" and {len(numbers) - NAMED_MAX} more" if len(numbers) > NAMED_MAX else ""
            noun = "partition" if len(numbers) == 1 else "partitions"
            verb = "has" if len(numbers) == 1 else "have"
            yield Finding(kind, f"{topic.name}: {noun} {shown}{more} {verb} {has}", first + step)


def look(client: AdminClient, timeout_ms: int) -> list[Finding]:
    """Return what is wrong with a cluster. `timeout_ms` is for each of some five calls. ApiError, ClusterUnreachable."""
    cluster = _cluster(client, timeout_ms)
    topics = [*client.describe_topics(timeout_ms=timeout_ms).values()]
    alive = [broker.broker_id for broker in cluster.brokers if not broker.is_fenced]
    log_dirs = client.all_log_dirs(brokers=alive, timeout_ms=timeout_ms)
    moves = len(client.list_partition_reassignments(timeout_ms=timeout_ms).running)
    behind = [topic.name for topic in topics if any(map(is_under_replicated, topic.partitions))]
    return findings(cluster, topics, log_dirs, moves, _min_isr(client, behind, timeout_ms))


def _cluster(client: AdminClient, timeout_ms: int) -> Cluster:
    """Describe the cluster, with the silence of brokers if the active controller answers: no other node knows it."""
    try:
        return client.describe_cluster(include_fenced_brokers=True, linearizable=True, timeout_ms=timeout_ms)
    except (ApiError, ClusterUnreachable):
        return client.describe_cluster(include_fenced_brokers=True, timeout_ms=timeout_ms)


def _min_isr(client: AdminClient, names: Sequence[str], timeout_ms: int) -> dict[str, int]:
    if not names:
        return {}
    try:
        described = client.describe_configs([(ResourceType.TOPIC, name) for name in names], timeout_ms=timeout_ms)
    except ApiError:  # a topic that is being deleted, for example
        return {}
    return {
        name: int(config.value or 1)
        for (_, name), configs in described.items()
        for config in configs
        if config.name == "min.insync.replicas"
    }
