"""Texts of `topics` as in Kafka's tool, and the parsers of its arguments: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ..reassign.plan import duplicates


class TopicUsageError(ValueError):
    """Arguments that `topics` cannot use. The text is for the user."""


class PartitionView(msgspec.Struct, frozen=True):
    """One partition of a describe response."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def replication_factor(self) -> int:
        """Number of replicas without those that are being added."""
        return len(self.replicas) - len(set(self.adding) & set(self.replicas))


class TopicView(msgspec.Struct, frozen=True):
    """One topic of a describe response. `configs` has every config that is not a default."""

    name: str
    topic_id: str
    partitions: tuple[PartitionView, ...]
    configs: dict[str, str]
    is_internal: bool = False
    has_overrides: bool = False
    min_insync_replicas: int = 1


def topic_line(topic: TopicView) -> str:
    configs = ",".join(f"{key}={value}" for key, value in topic.configs.items())
    factor = topic.partitions[0].replication_factor if topic.partitions else 0
    return (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {factor}\tConfigs: {configs}"
    )


def partition_line(topic: str, view: PartitionView) -> str:
    fields = [
        f"Topic: {topic}",
        f"Partition: {view.partition}",
        f"Leader: {view.leader if view.leader >= 0 else 'none'}",
        f"Replicas: {_ids(view.replicas)}",
        f"Isr: {_ids(view.isr)}",
    ]
    if view.adding or view.removing:
        fields += [f"Adding Replicas: {_ids(view.adding)}", f"Removing Replicas: {_ids(view.removing)}"]
    fields += [f"Elr: {_ids(view.elr)}", f"LastKnownElr: {_ids(view.last_known_elr)}"]
    return "\t" + "\t".join(fields)


def _ids(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def passes(topic: TopicView, view: PartitionView, name: str, alive: frozenset[int]) -> bool:
    """Return whether a partition passes a filter. Adding replicas do not count as missing."""
    match name:
        case "under-replicated":
            return len(view.isr) < view.replication_factor
        case "unavailable":
            return view.leader not in alive
        case "under-min-isr":
            return len(view.isr) < topic.min_insync_replicas
        case "at-min-isr":
            return len(view.isr) == topic.min_insync_replicas
    raise ValueError(name)


def describe_lines(
    topics: Sequence[TopicView], filters: Sequence[str] = (), *, overrides_only: bool = False, alive: frozenset[int] = frozenset()
) -> list[str]:
    """Return the lines of topics: with filters only partitions that pass all, with `overrides_only` only headers of topics with
    configs.
    """
    lines: list[str] = []
    for topic in topics:
        if overrides_only:
            lines += [topic_line(topic)] if topic.has_overrides else []
            continue
        if not filters:
            lines.append(topic_line(topic))
        lines += [
            partition_line(topic.name, view)
            for view in topic.partitions
            if all(passes(topic, view, name, alive) for name in filters)
        ]
    return lines


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that `--topic` selects: a regular expression, or several with commas between them. TopicUsageError."""
    try:
        expression = re.compile("|".join(part.strip() for part in pattern.split(",")))
    except re.error as error:
        raise TopicUsageError(f"{pattern} is an invalid regular expression: {error}") from None
    return [name for name in names if expression.fullmatch(name)]


def parse_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """Parse `0:1:2,1:2:0`, the replicas of each partition, preferred leader first. TopicUsageError."""
    assignment: dict[int, tuple[int, ...]] = {}
    for partition, item in enumerate(text.split(",")):
        try:
            replicas = tuple(int(broker) for broker in item.split(":"))
        except ValueError:
            raise TopicUsageError(
                f"invalid --replica-assignment {item!r}: expected broker ids separated by colons, for example 0:1:2"
            ) from None
        twice = duplicates(replicas)
        if twice:
            raise TopicUsageError(f"Partition replica lists may not contain duplicate entries: {_ids(twice)}")
        if assignment and len(replicas) != len(assignment[0]):
            raise TopicUsageError(f"Partition {partition} has different replication factor: {_ids(replicas)}")
        assignment[partition] = replicas
    return assignment


def parse_configs(items: Sequence[str]) -> Mapping[str, str]:
    """Parse `key=value` items. TopicUsageError."""
    configs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise TopicUsageError(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs[key.strip()] = value.strip()
    return configs


NOT_THE_LAST = (
    "Where another replica than the last is dropped, it is out of sync, its broker is down, its rack has more replicas, or the "
    "last is the leader."
)


def factor_lines(plan: Mapping[tuple[str, int], tuple[Sequence[int], Sequence[int], bool]], is_preview: bool) -> list[str]:
    """Return the lines of a change of the replication factor. `plan`: partition → (replicas, target replicas, is queued)."""
    if not plan:
        return ["Every partition has this replication factor already."]
    lines = []
    for (topic, partition), (before, after, queued) in sorted(plan.items()):
        waits = " (waits for a free slot)" if queued else ""
        lines.append(f"{topic}-{partition}: {','.join(map(str, before))} -> {','.join(map(str, after))}{waits}")
    if any(len(after) < len(before) and tuple(after) != tuple(before)[: len(after)] for before, after, _ in plan.values()):
        lines.append(NOT_THE_LAST)
    if is_preview:
        return ["This is the plan; nothing was changed:", *lines]
    return [*lines, f"Successfully started the change of the replication factor for {len(plan)} partition{'s' * (len(plan) > 1)}"]
