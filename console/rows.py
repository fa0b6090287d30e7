"""Topics and partitions as rows: from an image of ours, or from the answers of Apache Kafka.

Both become the values of `client.results`. Rows are filtered, sorted and cut here, never in the browser: a cluster has more
partitions than a page can hold.
"""

from __future__ import annotations

import operator
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from kraftlab.client.health import is_under_replicated
from kraftlab.client.results import Partition, Topic
from kraftlab.common.uuids import to_text
from kraftlab.config.resources import ResourceType
from kraftlab.metadata.image import MetadataImage, PartitionImage, TopicImage

ROWS_MAX = 500
MIN_ISR = "min.insync.replicas"
T = TypeVar("T")


class BadQuery(ValueError):
    """A query that cannot be meant; the text has the next step."""


def _is_skewed(partition: Partition) -> bool:
    return bool(partition.replica_nodes) and partition.leader_id not in (None, partition.replica_nodes[0])


class RowFilter(NamedTuple):
    """Filters of rows; the defaults want every row. `topic` is a whole name, `text` a part of a name, `broker` has a replica."""

    topic: str = ""
    text: str = ""
    internal: bool = True
    broker: int | None = None
    state: str = ""


class _Tally(NamedTuple):
    """The row of a topic, and how many of its partitions each broker leads and has. They hold for that min.insync.replicas."""

    topic: Topic
    min_isr: int | None
    row: dict[str, int | str | bool]
    leads: Counter[int]
    replicas: Counter[int]


class Rows:
    """All topics at `offset`; None: the cluster does not say. `min_isr`: min.insync.replicas of topics that set it. Topics that
    have not changed since the rows `before` are not counted again.
    """

    def __init__(
        self, by_name: Mapping[str, Topic], offset: int | None, min_isr: Mapping[str, int], before: Rows | None = None
    ) -> None:
        self.offset = offset
        self._known: dict[str, _Tally] = {} if before is None else before.__dict__.get("_tallies", before._known)
        self.min_isr = min_isr
        self._by_name = dict(sorted(by_name.items()))
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
    def _tallies(self) -> dict[str, _Tally]:
        found = {}
        for topic in self.topics():
            known = self._known.get(topic.name)
            is_same = known is not None and known.topic is topic and known.min_isr == self.min_isr.get(topic.name)
            found[topic.name] = known if known is not None and is_same else self._tally(topic)
        return found

    def _tally(self, topic: Topic) -> _Tally:
        row: dict[str, int | str | bool] = {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replication_factor": max(
                (len({*each.replica_nodes} - {*each.adding_replicas}) for each in topic.partitions), default=0
            ),
            **{name: sum(holds(topic, each) for each in topic.partitions) for name, holds in self.states.items()},
        }
        leads = Counter(each.leader_id for each in topic.partitions if each.leader_id is not None)
        replicas = Counter(replica for each in topic.partitions for replica in each.replica_nodes)
        return _Tally(topic, self.min_isr.get(topic.name), row, leads, replicas)

    def counts(self) -> dict[str, int]:
        """Return the number of topics, of partitions, and of partitions in each state."""
        named = ("partitions", *self.states)
        return {
            "topics": len(self._by_name),
            **{name: sum(int(row[name]) for _, _, row, _, _ in self._tallies.values()) for name in named},
        }

    def by_broker(self) -> dict[int, dict[str, int]]:
        """Return, for each broker with replicas, how many it has and leads."""
        leads, replicas = Counter[int](), Counter[int]()
        for tally in self._tallies.values():
            leads.update(tally.leads)
            replicas.update(tally.replicas)
        return {broker: {"leads": leads[broker], "replicas": replicas[broker]} for broker in {*leads, *replicas}}

    def leaders(self) -> dict[tuple[str, int], int | None]:
        """Return the leader of each partition."""
        return {(topic.name, each.partition_index): each.leader_id for topic in self.topics() for each in topic.partitions}

    def topic(self, name: str) -> dict[str, int | str | bool] | None:
        """Return the row of a topic."""
        tally = self._tallies.get(name)
        return None if tally is None else tally.row

    def topic_page(self, wanted: RowFilter, sort: str, start: int, limit: int) -> dict[str, object]:
        """Return some of the topics with a wanted partition, by name or by another field of a row. BadQuery."""
        found = [self._tallies[topic.name].row for topic, partitions in self._chosen(wanted) if partitions]
        fields = ("name", "topic_id", "is_internal", "partitions", "replication_factor", *self.states)
        _sort(found, sort, {name: operator.itemgetter(name) for name in fields})
        return self._page(found, start, limit, lambda row: row)

    def partition_page(self, wanted: RowFilter, sort: str, start: int, limit: int) -> dict[str, object]:
        """Return some of the wanted partitions, by name or by another field of a row. BadQuery."""
        found = [(topic, each) for topic, partitions in self._chosen(wanted) for each in partitions]
        fields = {name: _of_partition(name) for name in Partition.__struct_fields__}
        _sort(found, sort, {"topic": lambda pair: pair[0].name, **fields})
        return self._page(found, start, limit, self._partition_row)

    def _partition_row(self, pair: tuple[Topic, Partition]) -> dict[str, object]:
        states = [name for name, holds in self.states.items() if holds(*pair)]
        return {"topic": pair[0].name, "states": states, **msgspec.structs.asdict(pair[1])}

    def _chosen(self, wanted: RowFilter) -> Iterator[tuple[Topic, Sequence[Partition]]]:
        """Yield the topics with a wanted name, in its order, with their wanted partitions. BadQuery for an unknown state."""
        if wanted.state and wanted.state not in self.states:
            raise BadQuery(f"there is no state {wanted.state!r}; there are {', '.join(self.states)}")
        holds, broker = self.states.get(wanted.state), wanted.broker
        of_name = {wanted.topic: self._by_name[wanted.topic]} if wanted.topic in self._by_name else {}
        for topic in (of_name if wanted.topic else self._by_name).values():
            if wanted.text in topic.name and (wanted.internal or not topic.is_internal):
                partitions = (each for each in topic.partitions if broker is None or broker in each.replica_nodes)
                yield topic, [each for each in partitions if holds is None or holds(topic, each)]

    def _page(self, found: list[T], start: int, limit: int, row_of: Callable[[T], object]) -> dict[str, object]:
        rows = [row_of(each) for each in found[start : start + min(limit, ROWS_MAX)]]
        return {"offset": self.offset, "total": len(found), "from": start, "rows": rows}


def _of_partition(name: str) -> Callable[[tuple[Topic, Partition]], object]:
    return lambda pair: getattr(pair[1], name)


def _sort(found: list[T], sort: str, fields: Mapping[str, Callable[[T], object]]) -> None:
    """Sort by a field, descending after a "-"; what is equal keeps its order. BadQuery for an unknown field."""
    name = sort.removeprefix("-")
    if name and name not in fields:
        raise BadQuery(f"cannot sort by {name!r}; there are {', '.join(fields)}")
    if name:
        found.sort(key=lambda each: _order(fields[name](each)), reverse=sort.startswith("-"))


def page(rows: list[dict[str, object]], sort: str, natural: tuple[str, ...], start: int, limit: int) -> dict[str, object]:
    """Return some rows, sorted by a column, with "-" in front downwards, else by `natural`. BadQuery for an unknown column."""
    rows.sort(key=lambda row: [row[each] for each in natural])
    if rows:
        _sort(rows, sort, {name: operator.itemgetter(name) for name in rows[0]})
    return {"total": len(rows), "from": start, "rows": rows[start : start + min(limit, ROWS_MAX)]}


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
        by_name = {topic.name: topic for _, topic in made.values()}
        self._made = made
        self._newest = Rows(by_name, image.provenance.offset, _min_isr(image), newest)
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
