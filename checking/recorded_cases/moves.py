"""Reassignments of a scenario in our cluster, to distinguish intended differences from wrong answers.

Theory of operation. The steps before an answer say which replicas a partition was created with, which targets were asked for
since, and whether they were cancelled; `History` follows them as far as the recording says that they were accepted. From that
follows what we answer where Kafka answers something else: adding replicas are counted against the original ones, a target that
drops an adding broker ends when all of it is in sync, a cancel gives back the original replicas in their order, and a partition
that a request names twice is left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import paths
from .paths import Path, Value

Step = dict[str, Value]
Key = tuple[str, int]

_AT_REST = re.compile(r"no reassignment on topic (\S+)")
_IN_SYNC = re.compile(r"isr of (\S+)-(\d+) is (\[[\d, ]*\])")


class Place(NamedTuple):
    """A place in a scenario's answers: the recorded steps, and a path into one of them."""

    steps: Sequence[Step]
    path: Path

    @property
    def at(self) -> int:
        return int(self.path[1])

    @property
    def step(self) -> Step:
        return self.steps[self.at]

    def recorded(self) -> Value:
        """Return the recorded value at the place, None without one."""
        try:
            return paths.value_at({"steps": list(self.steps)}, self.path)
        except LookupError:
            return None


@dataclass
class History:
    """One partition. `origins`: what its replicas may have been before the targets, `targets`: those asked for since then.

    There may be several origins because it depends on who is in sync whether a move that was replaced has ended before.
    """

    origins: list[tuple[int, ...]]
    targets: list[tuple[int, ...]] = field(default_factory=list)
    was_cancelled: bool = False
    was_named_twice: bool = False
    has_dropped: bool = False
    """A target dropped a broker that an earlier target was adding."""
    has_merged: bool = False
    """A target was equal to the partition's original and target replicas together."""

    @property
    def target(self) -> tuple[int, ...]:
        return self.targets[-1] if self.targets else self.origins[-1]

    @property
    def everybody(self) -> set[int]:
        return {broker for replicas in (*self.origins, *self.targets) for broker in replicas}

    def ask(self, target: tuple[int, ...]) -> None:
        added = {broker for earlier in self.targets for broker in earlier} - {*self.origins[0]}
        if self.has_dropped and self.targets:
            self.origins.append(self.target)
        self.has_dropped = self.has_dropped or bool(added - {*target})
        self.has_merged = self.has_merged or (bool(self.targets) and {*target} == self.everybody)
        self.targets.append(target)

    def cancel(self) -> None:
        if self.has_dropped and self.targets:
            self.origins.append(self.target)
        self.was_cancelled, self.targets = True, []

    def rest(self) -> None:
        if self.targets:
            self.origins, self.targets = [self.target], []


def named_twice(step: Step) -> set[Key]:
    """Return the partitions that a reassignment request names more than once."""
    if step.get("api") != "AlterPartitionReassignments":
        return set()
    counted = Counter(key for key, _ in _asked(step))
    return {key for key, times in counted.items() if times > 1}


def histories(steps: Sequence[Step]) -> dict[Key, History]:
    """Return the histories of partitions with recorded first replicas, after these steps."""
    found: dict[Key, History] = {}
    for step in steps:
        for key, replicas in _created(step):
            found[key] = History([replicas])
        if step.get("api") == "AlterPartitionReassignments":
            accepted, twice = _accepted(step), named_twice(step)
            for key, target in _asked(step):
                if key not in found:
                    continue
                if key in twice:
                    found[key].was_named_twice = True
                elif key in accepted and target is not None:
                    found[key].ask(target)
                elif key in accepted:
                    found[key].cancel()
        at_rest = _AT_REST.fullmatch(str(step.get("what", "")))
        for (topic, _), history in found.items():
            if at_rest is not None and topic == at_rest[1]:
                history.rest()
    return found


def _created(step: Step) -> Iterator[tuple[Key, tuple[int, ...]]]:
    if step.get("action") == "create_topic":
        for number, replicas in step["assignment"].items():
            yield (step["topic"], int(number)), tuple(replicas)
    elif step.get("api") == "CreateTopics":
        for topic in step["request"].get("topics") or ():
            for entry in topic.get("assignments") or ():
                yield (topic["name"], entry["partition_index"]), tuple(entry["broker_ids"])


def _asked(step: Step) -> Iterator[tuple[Key, tuple[int, ...] | None]]:
    for topic in step["request"].get("topics") or ():
        for entry in topic.get("partitions") or ():
            replicas = entry.get("replicas")
            yield (topic["name"], entry["partition_index"]), None if replicas is None else tuple(replicas)


def _accepted(step: Step) -> set[Key]:
    return {
        (topic["name"], entry["partition_index"])
        for topic in (step["response"] or {}).get("responses") or ()
        for entry in topic.get("partitions") or ()
        if entry["error_code"] == 0
    }


def history_at(place: Place) -> History | None:
    """Return the history of the place's partition before its step, None without a known partition."""
    key = _partition_at(place)
    return None if key is None else histories(place.steps[: place.at]).get(key)


def _partition_at(place: Place) -> Key | None:
    """Return the topic and partition of `….topics[i].partitions[j]…` or `….responses[i].partitions[j]…`."""
    for length in range(len(place.path), 2, -1):
        if place.path[length - 2] == "partitions" and isinstance(place.path[length - 1], int):
            entry = Place(place.steps, place.path[:length]).recorded()
            topic = Place(place.steps, place.path[: length - 2]).recorded()
            if isinstance(entry, dict) and isinstance(topic, dict) and "partition_index" in entry and topic.get("name"):
                return topic["name"], entry["partition_index"]
    return None


def waits_for_dropped(place: Place) -> bool:
    """Return whether a step waits until dropped brokers are in sync, or observes that a move never ends."""
    found = histories(place.steps[: place.at])
    what = str(place.step.get("what", ""))
    in_sync = _IN_SYNC.match(what)
    if in_sync is not None:
        history = found.get((in_sync[1], int(in_sync[2])))
        members = {int(number) for number in re.findall(r"\d+", in_sync[3])}
        return history is not None and history.has_dropped and not members <= {*history.target}
    topics = {topic for (topic, _), history in found.items() if history.has_dropped}
    return place.step.get("action") == "observe" and any(topic in what for topic in topics)
