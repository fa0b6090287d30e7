"""Reassignments as JSON, in the format of Kafka's reassignment tool: parser, checks and formatter. Error texts are Kafka's.

Files of the tool, recordings of the demo and the data of the znode `/admin/reassign_partitions` are read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

TopicPartition = tuple[str, int]
TopicPartitionReplica = tuple[str, int, int]
"""Topic, partition, broker."""

ANY = "any"
REPLICAS_MAX = 1000
NUMBER_MAX = 2**31 - 1
"""The largest id of a broker, and the largest number of a partition."""
T = TypeVar("T")


class PlanError(ValueError):
    """A file that cannot be used. The text is for its author."""


class Placement(msgspec.Struct, frozen=True):
    """One partition's replicas, preferred leader first, and the log directory of each ("any": the broker's choice)."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Plan(msgspec.Struct, frozen=True):
    """A reassignment file: `{"version":1,"partitions":[…]}`, its partitions sorted by topic, then number."""

    partitions: tuple[Placement, ...]

    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {placement.key: placement.replicas for placement in self.partitions}

    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(placement.topic for placement in self.partitions))

    def broker_ids(self) -> tuple[int, ...]:
        return tuple(sorted({broker for placement in self.partitions for broker in placement.replicas}))

    def moves(self) -> dict[TopicPartitionReplica, str]:
        """Return the named log directories, in the order of the tool's lines: by broker, topic, partition."""
        moves = {
            (placement.topic, placement.partition, broker): path
            for placement in self.partitions
            for broker, path in zip(placement.replicas, placement.log_dirs, strict=False)
            if path != ANY
        }
        return {replica: moves[replica] for replica in sorted(moves, key=lambda replica: (replica[2], replica[0], replica[1]))}


class _PlanVersion(msgspec.Struct):
    version: int = 1


class _Entry(msgspec.Struct):
    """One partition as a person writes it; null in place of directories means none."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] | None = None


class _PlanFile(msgspec.Struct):
    """A reassignment file, or the document that `--generate --json` prints, whose proposal counts."""

    partitions: tuple[_Entry, ...] | None = None
    proposed: _PlanFile | None = None


class _TopicName(msgspec.Struct):
    topic: str


class _TopicsFile(msgspec.Struct):
    topics: tuple[_TopicName, ...] = ()


def read_file(path: str) -> bytes:
    """Return the content of a file. PlanError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PlanError(f"Cannot read {path}: {error.strerror}") from error


def parse_plan(data: bytes, name: str = "The file", *, cancels: bool = False) -> Plan:
    """Parse a reassignment file and check it as far as possible without a cluster. PlanError.

    With `cancels` the list may be empty, and so may the replicas of a partition, as in ZooKeeper, where that cancels a move.
    """
    _check_version(data, name)
    file = _decode(data, _PlanFile, name)
    entries = (file.proposed or file).partitions
    if entries is None or not (entries or cancels):
        raise PlanError("Partition reassignment list cannot be empty")
    for at, entry in enumerate(entries):
        _check_numbers(entry, f".partitions[{at}]", name)
    partitions = [Placement(entry.topic, entry.partition, entry.replicas, entry.log_dirs or ()) for entry in entries]
    for placement in partitions:
        if placement.log_dirs and len(placement.log_dirs) != len(placement.replicas):
            raise PlanError(
                f"Size of replicas list {_bracketed(placement.replicas)} is different from size of log dirs list "
                f"{_bracketed(placement.log_dirs)} for partition {placement.name}"
            )
        for path in placement.log_dirs:
            if path != ANY and not path.startswith("/"):
                raise PlanError(f'Log directory {path!r} of partition {placement.name} is neither an absolute path nor "any"')
    if not cancels and not all(placement.replicas for placement in partitions):
        raise PlanError("Partition replica list cannot be empty")
    twice = duplicates([placement.name for placement in partitions])
    if twice:
        raise PlanError(f"Partition reassignment contains duplicate topic partitions: {','.join(twice)}")
    repeated = [(placement, duplicates(placement.replicas)) for placement in partitions]
    complaints = [f"{placement.name} contains multiple entries for {_joined(ids)}" for placement, ids in repeated if ids]
    if complaints:
        raise PlanError("Partition replica lists may not contain duplicate entries: " + ". ".join(complaints))
    return Plan(tuple(sorted((_with_dirs(placement) for placement in partitions), key=lambda placement: placement.key)))


def _check_numbers(entry: _Entry, place: str, name: str) -> None:
    """Refuse numbers that no partition and no broker has. PlanError names the file, the place and the value."""
    if not 0 <= entry.partition <= NUMBER_MAX:
        raise PlanError(f"{name} has the partition {entry.partition} at {place}; numbers are from 0 to {NUMBER_MAX}")
    if len(entry.replicas) > REPLICAS_MAX:
        raise PlanError(f"{name} has {len(entry.replicas)} replicas at {place}; at most {REPLICAS_MAX} are taken")
    for broker in entry.replicas:
        if not 0 <= broker <= NUMBER_MAX:
            raise PlanError(f"{name} has the broker {broker} at {place}.replicas; ids are from 0 to {NUMBER_MAX}")


def parse_topics(data: bytes, name: str = "The file") -> tuple[str, ...]:
    """Return the names in a --topics-to-move-json-file. PlanError."""
    _check_version(data, name)
    names = tuple(entry.topic for entry in _decode(data, _TopicsFile, name).topics)
    twice = duplicates(names)
    if twice:
        raise PlanError(f"List of topics to reassign contains duplicate entries: {_bracketed(twice)}")
    if not names:
        raise PlanError("List of topics to reassign cannot be empty")
    return names


def parse_partition(text: str) -> TopicPartition:
    """Return the topic and the number of `orders-0`. PlanError."""
    topic, _, number = text.rpartition("-")
    if not topic or not (number.isascii() and number.isdecimal() and len(number) <= len(str(NUMBER_MAX))):
        raise PlanError(f"{text!r} is not TOPIC-PARTITION, for example orders-0")
    return topic, int(number)


def parse_brokers(text: str) -> tuple[int, ...]:
    """Return the ids of a --broker-list. PlanError."""
    try:
        ids = tuple(int(item) for item in text.split(","))
    except ValueError:
        raise PlanError(f"invalid --broker-list {text!r}: expected broker ids separated by commas, for example 0,1,2") from None
    twice = duplicates(ids)
    if twice:
        raise PlanError(f"Broker list contains duplicate entries: {_bracketed(twice)}")
    return ids


def format_plan(placements: Iterable[Placement]) -> str:
    """Return the text of a file with these placements: compact, sorted, always with log_dirs."""
    ordered = sorted((_with_dirs(placement) for placement in placements), key=lambda placement: placement.key)
    return msgspec.json.encode({"version": 1, "partitions": ordered}).decode()


def duplicates(items: Sequence[T]) -> list[T]:
    """Return the items that occur more than once, in order of first appearance."""
    return [item for item, count in Counter(items).items() if count > 1]


def _with_dirs(placement: Placement) -> Placement:
    return placement if placement.log_dirs else msgspec.structs.replace(placement, log_dirs=(ANY,) * len(placement.replicas))


def _check_version(data: bytes, name: str) -> None:
    version = _decode(data, _PlanVersion, name).version
    if version != 1:
        raise PlanError(f"Not supported version field value {version}")


def _decode(data: bytes, kind: type[T], name: str) -> T:
    try:
        return decode_json(data, kind)
    except BadJson as error:
        raise PlanError(f"{name} is {error}; kraftlab reassign-partitions --help shows the format") from None


def _joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def _bracketed(items: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, items)) + "]"
