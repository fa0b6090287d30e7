"""Replicas that hold up a reassignment, with the reason and the next step.

A replica that is being added holds its move up until it is in sync. A replica that is kept does so only if the set shrinks:
then the whole target must be in sync (`arithmetic.complete`).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from kraftlab.common.sizes import bytes_text
from kraftlab.metadata.image import ClusterImage, PartitionImage
from kraftlab.metadata.records import NO_LEADER

from .progress import ReplicaReport


class BlockerState(enum.Enum):
    """Reasons why a replica is not in sync. The first applicable reason is given."""

    UNREGISTERED = "UNREGISTERED"
    FENCED = "FENCED"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    DIRECTORY_OFFLINE = "DIRECTORY_OFFLINE"
    NO_LEADER = "NO_LEADER"
    STARTING = "STARTING"
    NOT_FETCHING = "NOT_FETCHING"
    THROTTLED = "THROTTLED"
    COPYING = "COPYING"
    OUT_OF_SYNC = "OUT_OF_SYNC"

    @property
    def has_rate(self) -> bool:
        """True while the replica is being copied, so that the rate of its report is its rate now."""
        return self in (BlockerState.THROTTLED, BlockerState.COPYING, BlockerState.OUT_OF_SYNC)


STARTING_MS = 3_000
"""Time after its start during which a move has nothing to report: brokers learn of it, connect, and report once a second."""


class Blocker(NamedTuple):
    broker_id: int
    state: BlockerState
    text: str


def holding_up(partition: PartitionImage) -> tuple[int, ...]:
    """Replicas that the completion waits for, in the order of the target."""
    shrinks = len(partition.target) < len(partition.original)
    return tuple(
        broker_id
        for broker_id in partition.target
        if broker_id not in partition.isr and (shrinks or broker_id in partition.adding)
    )


def blocker(
    cluster: ClusterImage,
    partition: PartitionImage,
    broker_id: int,
    report: ReplicaReport | None,
    *,
    knows_reports: bool,
    age_ms: int = STARTING_MS,
) -> Blocker:
    """Reason why that replica is not in sync. `knows_reports`: a missing report means something. `age_ms`: time since the move
    began.
    """
    state, text = _state(cluster, partition, broker_id, report, knows_reports, age_ms)
    return Blocker(broker_id, state, text)


def _state(
    cluster: ClusterImage,
    partition: PartitionImage,
    broker_id: int,
    report: ReplicaReport | None,
    knows_reports: bool,
    age_ms: int,
) -> tuple[BlockerState, str]:
    broker = cluster.brokers.get(broker_id)
    subject = f"broker {broker_id}"
    if broker is None:
        return BlockerState.UNREGISTERED, f"{subject} is no longer registered; cancel, or choose another target"
    if broker.fenced:
        return BlockerState.FENCED, f"{subject} is fenced; start it, or choose another target"
    if broker.in_controlled_shutdown:
        return BlockerState.SHUTTING_DOWN, f"{subject} is shutting down"
    directory = partition.directory_of(broker_id)
    if directory is not None and not broker.has_online(directory):
        return BlockerState.DIRECTORY_OFFLINE, f"the log directory of this replica on {subject} is offline; repair it and restart"
    if partition.leader == NO_LEADER:
        able = ",".join(map(str, sorted({*partition.isr, *partition.elr}))) or "that was in sync last"
        return (
            BlockerState.NO_LEADER,
            f"the partition has no leader to copy from; bring a replica that may lead back: broker {able}",
        )
    if report is None:
        if knows_reports and age_ms < STARTING_MS:
            return BlockerState.STARTING, f"the move has just started; {subject} reports its progress once a second"
        if knows_reports:
            return BlockerState.NOT_FETCHING, f"{subject} has not reported a fetch for some seconds"
        return BlockerState.OUT_OF_SYNC, f"{subject} is not in sync"
    if report.error:
        return BlockerState.NOT_FETCHING, f"{subject}: {report.error}"
    if report.bytes_left == 0:
        return BlockerState.OUT_OF_SYNC, f"{subject} has copied its leader's log, and waits to join the ISR"
    left = f"{bytes_text(report.bytes_left)} to go" if report.bytes_left > 0 else "starting"
    if report.is_throttled:
        return BlockerState.THROTTLED, f"{subject} copies within its throttle, {left}"
    return BlockerState.COPYING, f"{subject} copies, {left}"
