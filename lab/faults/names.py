"""Names of nodes in orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..cluster_plan import ClusterError, ClusterPlan

ROLES = ("leader", "active", "followers", "controllers", "brokers", "all")
"""Names of groups of nodes. `leader` and `active`: the controller that leads the metadata quorum; `followers`: the others."""


def names_of(plan: ClusterPlan) -> tuple[str, ...]:
    """Names of nodes and of groups, nodes first."""
    return (*(node.name for node in plan.nodes), *ROLES)


def resolve(plan: ClusterPlan, names: Iterable[str], leader: Callable[[], int | None]) -> tuple[int, ...]:
    """Return node ids, each once. `leader()` is called only if a name needs it. ClusterError lists the valid names."""
    found: dict[int, None] = {}
    for name in names:
        found |= dict.fromkeys(_ids(plan, name, leader))
    if not found:
        raise ClusterError(f"{','.join(names) or 'nothing'} names no node here; names are {', '.join(names_of(plan))}")
    return tuple(found)


def _ids(plan: ClusterPlan, name: str, leader: Callable[[], int | None]) -> Iterable[int]:
    controllers, brokers = [node.node_id for node in plan.controllers], [node.node_id for node in plan.brokers]
    match name:
        case "all":
            return [*controllers, *brokers]
        case "controllers":
            return controllers
        case "brokers":
            return brokers
        case "leader" | "active" | "followers":
            leads = leader()
            if leads is None:
                raise ClusterError(f"no controller knows the leader, so {name!r} names no node now; name a controller, or wait")
            return [leads] if name != "followers" else [node_id for node_id in controllers if node_id != leads]
    for node in plan.nodes:
        if node.name == name:
            return [node.node_id]
    raise ClusterError(f"there is no node {name!r}; names are {', '.join(names_of(plan))}")


def leader_of(answers: Iterable[tuple[int, int]]) -> int | None:
    """Return the leader by (leader, epoch) pairs, -1 for none: a controller that is cut off still names a former leader."""
    return max(((epoch, leader) for leader, epoch in answers if leader >= 0), default=(0, None))[1]
