"""The operator's policy for reassignments: caps and order of the queue, number of kept plans, changes of replication factors.

Each value comes from the cluster's dynamic defaults for brokers, otherwise from this controller's own file, otherwise from the
key's default. Values of a single broker do not count, since the active controller can be any node.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftlab.config.topic_configs import BROKER_KEYS
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RESOURCE_BROKER

from ..engine.state import Settings

SIZE_CHANGE = "reassignment.replication.factor.change.enable"
MOVES_PER_BROKER = "reassignment.max.moves.per.broker"
MOVES_PER_CLUSTER = "reassignment.max.moves.per.cluster"
QUEUE_ORDER = "reassignment.queue.order"
PLANS_KEPT = "reassignment.plans.kept"


class MovePolicy(NamedTuple):
    """`per_broker`, `per_cluster`: number of queued moves that may run at once, 0: any number."""

    per_broker: int
    per_cluster: int
    order: str
    plans_kept: int
    allows_size_change: bool


def policy_of(image: MetadataImage, settings: Settings) -> MovePolicy:
    """Current policy."""

    def value(name: str) -> str:
        dynamic = image.config(RESOURCE_BROKER, "", name)
        if dynamic is not None:
            return dynamic.strip()
        return settings.static.get(name, BROKER_KEYS[name].default or "").strip()

    return MovePolicy(
        int(value(MOVES_PER_BROKER)),
        int(value(MOVES_PER_CLUSTER)),
        value(QUEUE_ORDER),
        int(value(PLANS_KEPT)),
        value(SIZE_CHANGE).lower() == "true",
    )
