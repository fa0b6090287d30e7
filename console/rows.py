"""Topics and partitions as rows: from an image of ours, or from the answers of Apache Kafka.

Both become the values of `client.results`. Rows are filtered, sorted and cut here, never in the browser: a cluster has more
partitions than a page can hold.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec

from kraftlab.client.health import is_under_replicated
from kraftlab.client.results import Partition, Topic
from kraftlab.common.uuids import to_text
from kraftlab.config.resources import ResourceType
from kraftlab.metadata.image import MetadataImage, PartitionImage, TopicImage

ROWS_MAX = 500
MIN_ISR = "min.insync.replicas"


class BadQuery(ValueError):
    """A query that cannot be meant; the text has the next step."""


def _is_skewed(partition: Partition) -> bool:
    return bool(partition.replica_nodes) and partition.leader_id not in (None, partition.replica_nodes[0])


class Rows:
    """All topics at `offset`; None: the cluster does not say. `min_isr`: min.insync.replicas of topics that set it."""

    def __init__(self, by_name: Mapping[str, Topic], offset: int | None, min_isr: Mapping[str, int]) -> None:
        self.offset = offset
        self.min_isr = min_isr
        self._by_name = by_name
        self.states: dict[str, Callable[[Topic, Partition], bool]] = {
            "offline": lambda topic, each: each.leader_id is None,
            "urp": lambda topic, each: is_under_replicated(each),
            "under-min-isr": lambda topic, each: len(each.isr_nodes) < min_isr.get(topic.name, 1),
            "moving": lambda topic, each: bool(each.adding_replicas or each.removing_replicas),
            "skewed": lambda topic, each: _is_skewed(each),
        }

    def topics(self) -> Iterable[Topic]:
        return self._by_name.values()

    @cached_property
    def _counts(self) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
        counts, leads, replicas = Counter[str](), Counter[int](), Counter[int]()
        for topic in self.topics():
            for each in topic.partitions:
                counts.update(name for name, holds in self.states.items() if holds(topic, each))
                replicas.update(each.replica_nodes)
                if each.leader_id is not None:
                    leads[each.leader_id] += 1
        partitions = sum(len(topic.partitions) for topic in self.topics())
        named = {"topics": len(self._by_name), "partitions": partitions, **{name: counts[name] for name in self.states}}
        return named, {broker: {"leads": leads[broker], "replicas": replicas[broker]} for broker in {*leads, *replicas}}

    def counts(self) -> dict[str, int]:
        """Return the number of topics, of partitions, and of partitions in each state."""
        return self._counts[0]

    def by_broker(self) -> dict[int, dict[str, int]]:
        """Return, for each broker with replicas, how many it has and leads."""
        return self._counts[1]

    def topic_page(self, text: str, internal: bool, sort: str, start: int, limit: int) -> dict[str, object]:
        """Return some topics, sorted by name or by the number of partitions in a state or in all."""
        found = [topic for topic in self.topics() if text in topic.name and (internal or not topic.is_internal)]
        rows = [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": len(topic.partitions),
                "replication_factor": max((len(each.replica_nodes) for each in topic.partitions), default=0),
                **{name: sum(holds(topic, each) for each in topic.partitions) for name, holds in self.states.items()},
            }
            for topic in found
        ]
        return self._page(rows, sort, ("name",), start, limit)

    def partition_page(
        self,
        *,
        topic: str = "",
        text: str = "",
        broker: int | None = None,
        state: str = "",
        sort: str = "",
        start: int,
        limit: int,
    ) -> dict[str, object]:
        """Return some partitions. BadQuery for an unknown state or sort."""
        if state and state not in self.states:
            raise BadQuery(f"there is no state {state!r}; there are {', '.join(self.states)}")
        holds = self.states.get(state)
        topics = [self._by_name[topic]] if topic in self._by_name else [] if topic else self.topics()
        rows = [
            {"topic": found.name, **msgspec.structs.asdict(each)}
            for found in topics
            if text in found.name
            for each in found.partitions
            if (broker is None or broker in each.replica_nodes) and (holds is None or holds(found, each))
        ]
        return self._page(rows, sort, ("topic", "partition_index"), start, limit)

    def _page(
        self, rows: list[dict[str, object]], sort: str, natural: tuple[str, ...], start: int, limit: int
    ) -> dict[str, object]:
        name = sort.removeprefix("-")
        if rows and name and name not in rows[0]:
            raise BadQuery(f"cannot sort by {name!r}; there are {', '.join(rows[0])}")
        rows.sort(key=lambda row: [row[each] for each in natural])
        if name:
            rows.sort(key=lambda row: _order(row[name]), reverse=sort.startswith("-"))
        part = rows[start : start + min(limit, ROWS_MAX)]
        return {"offset": self.offset, "total": len(rows), "from": start, "rows": part}

    def topic(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def leader(self, topic: str, index: int) -> int | None:
        """Return the leader of a partition, None if it has none or is unknown."""
        found = self._by_name.get(topic)
        partitions = () if found is None else found.partitions
        return partitions[index].leader_id if index < len(partitions) else None


def _order(value: object) -> tuple[bool, object]:
    return (value is not None, value)


class ImageRows:
    """Makes rows of images. A topic that has not changed keeps its value, so a new image costs its changes."""

    def __init__(self) -> None:
        self._newest: Rows | None = None
        self._made: dict[int, tuple[TopicImage, Topic]] = {}
        self._lock = threading.Lock()

    def of(self, image: MetadataImage) -> Rows:
        """Return the rows of an image. Thread-safe."""
        with self._lock:
            return self._of(image)

    def _of(self, image: MetadataImage) -> Rows:
        newest = self._newest
        if newest is not None and newest.offset == image.provenance.offset:
            return newest
        made: dict[int, tuple[TopicImage, Topic]] = {}
        for found in image.topics.by_id.values():
            known = self._made.get(id(found))
            made[id(found)] = known if known is not None and known[0] is found else (found, _topic(found))
        by_name = {topic.name: topic for _, topic in sorted(made.values(), key=lambda pair: pair[0].name)}
        self._made = made
        self._newest = Rows(by_name, image.provenance.offset, _min_isr(image))
        return self._newest


def _topic(found: TopicImage) -> Topic:
    partitions = tuple(_partition(number, each) for number, each in sorted(found.partitions.items()))
    return Topic(found.name, to_text(found.topic_id), found.name.startswith("__"), partitions, ())


def _partition(number: int, found: PartitionImage) -> Partition:
    return Partition(
        partition_index=number,
        leader_id=found.leader if found.leader >= 0 else None,
        leader_epoch=found.leader_epoch,
        replica_nodes=found.replicas,
        isr_nodes=found.isr,
        eligible_leader_replicas=found.elr,
        last_known_elr=found.last_known_elr,
        offline_replicas=(),
        adding_replicas=found.adding,
        removing_replicas=found.removing,
        original_replicas=found.original,
        target_replicas=found.target,
        partition_epoch=found.partition_epoch,
        directories=tuple(map(to_text, found.directories)),
    )


def _min_isr(image: MetadataImage) -> dict[str, int]:
    """Return min.insync.replicas of the topics, where the topic or the default of all brokers sets it."""
    default = image.config(ResourceType.BROKER, "", MIN_ISR)
    found = {name: image.config(ResourceType.TOPIC, name, MIN_ISR) or default for name in image.topics.by_name}
    return {name: int(value) for name, value in found.items() if value is not None and value.isdigit()}
