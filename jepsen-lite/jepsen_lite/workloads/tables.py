"""Topics, configs and producer ids from the log, as plain tables: the state that folds of workloads compare answers with.

It reads the records by itself and shares no code with the images of nodes. It need not handle transactions: a `Change` is
complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..checkers.fold import Change, Fold

RESOURCE_TOPIC = 2


@dataclass(slots=True)
class Partition:
    """The compared fields of a partition."""

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    epoch: int
    adding: list[int]
    removing: list[int]


@dataclass(slots=True)
class Topic:
    """A topic with its partitions."""

    name: str
    topic_id: str
    offset: int
    partitions: dict[int, Partition] = field(default_factory=dict)


class Tables:
    """Topics by name and by id, configs of topics, and producer ids."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.block = (0, 0)
        """The last block of producer ids: its start and its length."""

    def apply(self, change: Change) -> set[str]:
        """Apply the next change; return the names of the topics that it changed."""
        touched: set[str] = set()
        for entry in change.entries:
            record = entry.record
            match entry.kind:
                case "Topic":
                    topic = Topic(record["name"], record["topic_id"], entry.offset)
                    self.topics[topic.name] = self.by_id[topic.topic_id] = topic
                case "RemoveTopic":
                    topic = self.by_id.pop(record["topic_id"])
                    self.topics.pop(topic.name, None)
                    self.configs.pop(topic.name, None)
                case "Partition" | "PartitionChange":
                    topic = self.by_id[record["topic_id"]]
                    if entry.kind == "Partition":
                        topic.partitions[record["partition_id"]] = _partition(record)
                    else:
                        _change(topic.partitions[record["partition_id"]], record)
                case "Config":
                    if record["resource_type"] != RESOURCE_TOPIC:
                        continue
                    values = self.configs.setdefault(record["resource_name"], {})
                    if record["value"] is None:
                        values.pop(record["name"], None)
                    else:
                        values[record["name"]] = record["value"]
                    touched.add(record["resource_name"])
                    continue
                case "ProducerIds":
                    start = sum(self.block)
                    self.block = (start, record["next_producer_id"] - start)
                    continue
                case _:
                    continue
            touched.add(topic.name)
        return touched


class TableFold(Fold):
    """A fold with tables as its state, and names of topics as the keys of operations."""

    def __init__(self) -> None:
        self._tables = Tables()

    def apply(self, change: Change) -> Iterable[str]:
        return self._tables.apply(change)


def _partition(record: dict[str, Any]) -> Partition:
    return Partition(
        record["replicas"],
        record["isr"],
        record["leader"],
        record["leader_epoch"],
        record["partition_epoch"],
        record["adding_replicas"],
        record["removing_replicas"],
    )


def _change(partition: Partition, record: dict[str, Any]) -> None:
    partition.epoch += 1
    if record["leader"] is not None:
        partition.leader = record["leader"]
        partition.leader_epoch += 1
    for name, field_name in (
        ("replicas", "replicas"),
        ("isr", "isr"),
        ("adding_replicas", "adding"),
        ("removing_replicas", "removing"),
    ):
        if record[name] is not None:
            setattr(partition, field_name, record[name])
