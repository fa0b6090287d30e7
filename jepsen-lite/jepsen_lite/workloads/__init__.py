"""What clients ask, and what must hold of what they saw: one module per workload, imported when it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from ..workload import Workload

NAMES = (
    "registers",
    "topics",
    "reassignments",
    "brokers",
    "agreement",
    "exactly-once",
    "snapshot-reads",
    "elections",
    "log-dirs",
    "voters",
    "list-append",
    "producer-ids",
    "deltas",
    "availability",
    "soak",
)
"""In the order in which they are listed."""


class UnknownWorkload(ValueError):
    """There is no workload of that name; the text lists those that there are."""


def _load(name: str) -> Workload:
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    workload: Workload = module.workload()
    return workload


WORKLOADS: dict[str, Callable[[], Workload]] = {name: partial(_load, name) for name in NAMES}
"""Name → what makes it."""


def workload_named(name: str) -> Workload:
    """UnknownWorkload."""
    if name not in WORKLOADS:
        raise UnknownWorkload(f"there is no workload {name!r}; there are: {', '.join(WORKLOADS)}")
    return WORKLOADS[name]()
