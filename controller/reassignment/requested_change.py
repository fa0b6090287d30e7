"""What one entry of a reassignment request asks for one partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftlab.metadata.uuids import Uuid

NO_DIRECTORIES: Mapping[int, Uuid] = {}


class Wish(NamedTuple):
    """`target` None: cancel. `directories`: where replicas belong, by broker; the others are the brokers' choice.

    `expected_replicas`, `expected_epoch`: what the partition must be now. `is_repeated`: the request names it more than once.
    `is_rollback`: it comes from a plan; `is_gone`: the partition that it means was deleted, though one of that name may exist.
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
        """topic:partition, as Kafka's texts write it."""
        return f"{self.topic}:{self.partition_index}"
