"""What an operator lets reassignments do: caps and order of the queue, how many plans are kept, the guard of replication factors.

All of it is dynamic configuration of the cluster (the default of all brokers), else this controller's own file, else the default.
The value of a single broker plays no part: the active controller may be any node.
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
    """`per_broker`, `per_cluster`: how many queued moves may run at once, 0: any number."""

    per_broker: int
    per_cluster: int
    order: str
    plans_kept: int
    allows_size_change: bool


def policy_of(image: MetadataImage, settings: Settings) -> MovePolicy:
    """The policy in force."""

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
