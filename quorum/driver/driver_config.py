"""Configuration and statistics of a RaftDriver."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kraftlab.common.endpoint import Endpoint

from ..core.raft_config import RaftConfig
from ..core.raft_node import RaftStatistics


class DriverConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` is metadata.log.dir. `raft.endpoints` and the voters' endpoints name `peer_listener` for peer frames.

    `bootstrap_endpoints` are peer listeners of controllers (dynamic voters). A node that knows no other nodes, or does not reach
    the leader, looks for the leader there.
    """

    cluster_id: str
    directory: str
    raft: RaftConfig
    peer_listener: str = "CONTROLLER"
    bootstrap_endpoints: tuple[Endpoint, ...] = ()
    snapshot_max_new_bytes: int = 20 * 1024 * 1024
    """A snapshot is taken when this many bytes were applied since the last one."""
    snapshot_max_interval_ms: int = 3_600_000
    """A snapshot is also taken when anything was applied and the last one is this old; 0: age does not count."""
    trace_file: str | None = None
    """File for every transition of the core, one JSON object per line (quorum/trace.py)."""


class DriverStatistics(NamedTuple):
    """`staged_bytes` are not durable yet, `held_messages` wait for their barrier, `flushes` counts since the start.
    `disk_busy_s`: time that the running flush takes already, 0 without one.
    """

    core: RaftStatistics
    flushes: int
    staged_bytes: int
    held_messages: int
    applied_offset: int
    disk_busy_s: float
    log_bytes: int
    segments: int
