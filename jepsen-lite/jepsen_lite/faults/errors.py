"""Errors of the faults themselves."""

from __future__ import annotations

from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.config.errors import ConfigError
from kraftlab.lab import ClusterError

CLUSTER_FAULTS = (ClusterError, ApiError, ClusterUnreachable, ConfigError, OSError)
"""Errors of a cluster that other faults already strike."""


class CannotStrike(Exception):
    """A fault cannot be brought about here and now; the text says why. The run continues."""


class CannotUndo(Exception):
    """A fault was not undone; the text says why."""
