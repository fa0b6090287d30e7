"""Local clusters of real processes. The code of a node's process (`node.py`) is imported without the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster_plan import ClusterError, ClusterPlan, NodePlan
    from .kafka_container import KafkaContainer
    from .local import LocalCluster

__all__ = ["ClusterError", "ClusterPlan", "KafkaContainer", "LocalCluster", "NodePlan"]


def __getattr__(name: str) -> object:
    if name == "LocalCluster":
        from .local import LocalCluster

        return LocalCluster
    if name == "KafkaContainer":
        from .kafka_container import KafkaContainer

        return KafkaContainer
    if name in __all__:
        from . import cluster_plan

        return getattr(cluster_plan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
