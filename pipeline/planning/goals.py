"""The goals of plans, with Cruise Control's names, order and bands, and the distance of a cluster from each.

Hard goals come first and are never traded for soft ones. Bands are ±10 % around the mean (`eps`). In counts the band is widened
to whole numbers, as in Cruise Control, since a third of a replica cannot be placed. Disk usage is judged by share of capacity if
every broker (or every directory of a broker) reports its capacity, otherwise in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from ..errors import WrongUse
from .cluster import Floats, Ints

DISK_CAPACITY_SHARE = 0.8
"""Part of a disk or broker that a plan can fill (Cruise Control's disk.capacity.threshold)."""
REPLICAS_PER_BROKER = 10_000
"""Cruise Control's max.replicas.per.broker."""
TOPIC_BAND = 3.0
TOPIC_GAP = (2, 40)
"""A broker can hold 3 × the mean of a topic, at least the mean + 2 and at most the mean + 40 (topic.replica.count.balance.*)."""

RACK = "RackAwareGoal"
REPLICA_CAPACITY = "ReplicaCapacityGoal"
DISK_CAPACITY = "DiskCapacityGoal"
REPLICAS = "ReplicaDistributionGoal"
DISK = "DiskUsageDistributionGoal"
TOPICS = "TopicReplicaDistributionGoal"
LEADERS = "LeaderReplicaDistributionGoal"
DIRECTORY_CAPACITY = "IntraBrokerDiskCapacityGoal"
DIRECTORY = "IntraBrokerDiskUsageDistributionGoal"


class Goal(msgspec.Struct, frozen=True):
    """A goal: whether it is hard, its short name (several goals can share one), and its rule."""

    name: str
    hard: bool
    short: str
    about: str


GOALS = (
    Goal(
        RACK,
        True,
        "rack",
        "replicas of a partition are in different racks; with fewer racks than replicas, as evenly as possible",
    ),
    Goal(REPLICA_CAPACITY, True, "count", f"no broker has more than {REPLICAS_PER_BROKER:,} replicas"),
    Goal(DISK_CAPACITY, True, "disk", f"no broker is filled to more than {DISK_CAPACITY_SHARE:.0%} of its disks"),
    Goal(REPLICAS, False, "count", "every broker's number of replicas is in the band around the mean"),
    Goal(DISK, False, "disk", "every broker's bytes are in the band around its share of all bytes"),
    Goal(TOPICS, False, "topic", "no broker has far more of a topic's replicas than the mean"),
    Goal(LEADERS, False, "leader", "every broker is the preferred leader of a number of partitions in the band around the mean"),
    Goal(DIRECTORY_CAPACITY, True, "logdir", f"no log directory is filled to more than {DISK_CAPACITY_SHARE:.0%} of its disk"),
    Goal(DIRECTORY, False, "logdir", "every log directory's bytes are in the band around its broker's mean"),
)
"""In their order: the first wins."""

NOT_DONE = (
    ("CpuCapacityGoal, CpuUsageDistributionGoal", "no CPU load is measured"),
    ("NetworkInboundCapacityGoal, NetworkOutboundCapacityGoal", "no traffic is measured"),
    ("NetworkInboundUsageDistributionGoal, NetworkOutboundUsageDistributionGoal, PotentialNwOutGoal", "no traffic is measured"),
    ("LeaderBytesInDistributionGoal", "no traffic is measured; leaders are balanced by number"),
    ("MinTopicLeadersPerBrokerGoal, BrokerSetAwareGoal", "their settings are Cruise Control's own"),
)
"""Cruise Control's goals that plans do not support, and the reason. Sizes come from DescribeLogDirs, which reports bytes only."""

ALL = tuple(goal.name for goal in GOALS)


def parse_goals(words: Iterable[str]) -> tuple[str, ...]:
    """Return names of goals in their order, from short names, or full ones with or without `Goal`. WrongUse."""
    wanted: set[str] = set()
    for word in words:
        lowered = word.strip().lower().removesuffix("goal")
        found = {goal.name for goal in GOALS if lowered in (goal.short, goal.name.lower().removesuffix("goal"))}
        if not found:
            undone = next((why for names, why in NOT_DONE if lowered and lowered in names.lower()), None)
            shorts = ", ".join(dict.fromkeys(goal.short for goal in GOALS))
            reason = f": {undone}" if undone else ""
            raise WrongUse(f"unknown goal {word!r}{reason}; known are {shorts}, and {', '.join(ALL)}")
        wanted |= found
    if not wanted:
        raise WrongUse("--goals is empty; leave it out for all goals")
    return tuple(name for name in ALL if name in wanted)


class GoalState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Distance of a cluster from a goal. `least` and `most` are relative to the mean, or to the limit (capacity goals: `least` is
    0). `violations` counts partitions (rack), brokers, brokers × topics, or log directories that are out of bounds.
    """

    least: float
    most: float
    violations: int
    worst: str = ""


def band_of_counts(mean: float, eps: float) -> tuple[int, int]:
    """Return (fewest, most) replicas or leaders."""
    return int(np.floor(mean * (1 - eps) + 1e-9)), int(np.ceil(mean * (1 + eps) - 1e-9))


def topic_limits(mean: Floats) -> Ints:
    """Return the largest number of replicas of each topic on a broker, from the mean of each."""
    least, most = TOPIC_GAP
    banded = np.ceil(mean * TOPIC_BAND)
    limits: Ints = np.ceil(np.minimum(mean + most, np.maximum(mean + least, banded))).astype(np.int64)
    return limits
