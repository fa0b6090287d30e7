"""The experiments by name. A module is imported when its experiment is needed."""

from __future__ import annotations

from importlib import import_module

from .experiment import Experiment

MODULES = {
    "leader-crash": "leader_crash",
    "wan-elections": "wan_elections",
    "split-votes": "split_votes",
    "leader-kill": "leader_kill",
    "failover-by-partitions": "failover_by_partitions",
    "partial-partitions": "partial_partitions",
    "storage-faults": "storage_faults",
    "planted-bugs": "planted_bugs",
}
"""Name of an experiment → the module in this package with its `EXPERIMENT`."""


def experiment_named(name: str) -> Experiment:
    """Return an experiment. KeyError if there is none with this name."""
    found: Experiment = import_module(f"{__package__}.{MODULES[name]}").EXPERIMENT
    return found
