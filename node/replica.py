"""A node's replica of the metadata log from server.properties, on controllers and brokers alike."""

from __future__ import annotations

from kraftlab.config.initial_voters import voter_endpoints
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import ControllerConfig, NodeConfig
from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.driver.driver_config import DriverConfig


def driver_config(config: NodeConfig, directory: MetaProperties) -> DriverConfig:
    """Return the driver's configuration; `directory` is the metadata directory's identity."""
    is_controller = isinstance(config, ControllerConfig)
    raft = RaftConfig(
        node_id=config.node_id,
        voters=config.voters,
        directory_id=directory.directory_id,
        endpoints=config.advertised_listeners,
        voter_endpoints=voter_endpoints(config) if is_controller else {},
        election_timeout_ms=config.election_timeout_ms,
        fetch_timeout_ms=config.fetch_timeout_ms,
        auto_join=isinstance(config, ControllerConfig) and config.auto_join,
    )
    return DriverConfig(
        cluster_id=directory.cluster_id,
        directory=str(config.metadata_log_dir),
        raft=raft,
        bootstrap_endpoints=config.bootstrap_servers,
        snapshot_max_new_bytes=config.snapshot_max_new_bytes,
        snapshot_max_interval_ms=config.snapshot_max_interval_ms,
        trace_file=str(config.trace_file).replace("{node}", str(config.node_id)) if config.trace_file is not None else None,
    )
