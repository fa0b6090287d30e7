"""One entry of a reassignment request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftlab.common.uuids import Uuid

NO_DIRECTORIES: Mapping[int, Uuid] = {}


class RequestedChange(NamedTuple):
    """`target` None: cancel. `directories`: directories of some replicas, by broker; brokers choose the others.

    `expected_replicas`, `expected_epoch`: preconditions. `is_repeated`: the request names the partition more than once.
    `is_rollback`: the change comes from a plan. `is_gone`: the plan's partition was deleted, even if another of that name
    exists.
    """

    topic: str
    partition_index: int
    target: tuple[int, ...] | None
    directories: Mapping[int, Uuid] = NO_DIRECTORIES
    expected_replicas: tuple[int, ...] | None = None
    expected_epoch: int | None = None
    is_repeated: bool = False
    is_rollback: bool = False
    is_gone: bool = False

    @property
    def name(self) -> str:
        """topic:partition, as in Kafka's texts."""
        return f"{self.topic}:{self.partition_index}"
