"""Local clusters of real processes."""

from __future__ import annotations

from .layout import ClusterError, ClusterPlan, NodePlan
from .local import LocalCluster

__all__ = ["ClusterError", "ClusterPlan", "LocalCluster", "NodePlan"]
