"""How a fault that is meant can fail itself."""

from __future__ import annotations

from kraftlab.client import ClusterUnreachable
from kraftlab.config.errors import ConfigError
from kraftlab.lab import ClusterError
from kraftlab.metadata.errors import ApiError

CLUSTER_FAULTS = (ClusterError, ApiError, ClusterUnreachable, ConfigError, OSError)
"""What a cluster that other faults strike may answer to one more."""


class CannotStrike(Exception):
    """A fault cannot be done here and now; the text says why. The run goes on."""


class CannotUndo(Exception):
    """A fault was not undone; the text says why."""
