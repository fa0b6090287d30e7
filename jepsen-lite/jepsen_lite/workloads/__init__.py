"""Workloads: the operations of clients and the checks of their results, one module each, imported when needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from ..workload import Client, Options, Workload

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
    "records",
    "groups",
    "voters",
    "list-append",
    "producer-ids",
    "deltas",
    "availability",
    "soak",
    "admin",
)
"""In the order of lists."""


class UnknownWorkload(ValueError):
    """The name of a workload is unknown; the text lists the known ones."""


KAFKA_CLIENTS = {
    "groups": ("groups", "GroupClient"),
    "records": ("kafka_records", "KafkaRecords"),
    "topics": ("kafka_admin", "KafkaTopics"),
    "reassignments": ("kafka_admin", "KafkaReassignments"),
}
"""Workload → module and class of its client that uses kafka-python."""
KAFKA_ONLY = frozenset({"groups"})
"""Workloads that kafka-python alone plays, whatever client is asked for."""


def _load(name: str) -> Workload:
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    workload: Workload = module.workload()
    return workload._replace(kafka_client=partial(_kafka_client, name)) if name in KAFKA_CLIENTS else workload


def _kafka_client(name: str, options: Options, process: int) -> Client:
    module, kind = KAFKA_CLIENTS[name]
    client: Client = getattr(importlib.import_module(f".{module}", __package__), kind)(options, process)
    return client


WORKLOADS: dict[str, Callable[[], Workload]] = {name: partial(_load, name) for name in NAMES}
"""Name → function that makes the workload."""


def workload_named(name: str) -> Workload:
    """Return the workload. UnknownWorkload."""
    if name not in WORKLOADS:
        raise UnknownWorkload(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
    return WORKLOADS[name]()
