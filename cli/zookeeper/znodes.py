"""Topics and running reassignments in the znodes of a ZooKeeper-based Kafka (KIP-455, KIP-113): pure functions.

`/brokers/topics/[topic]` holds a topic's replicas. Version 1 has `partitions` only; version 2 adds `adding_replicas` and
`removing_replicas` of running reassignments (KIP-455), version 3 `topic_id`. A moving partition lists old and new replicas.
Without the adding replicas they are the *original* set, without the removing replicas the *target*.
`/admin/reassign_partitions` is the older request for reassignments, with log directories since KIP-113.

Precedence is as in Kafka's controller: an entry of `/admin/reassign_partitions` overrides the topic's znode for its partition.
The original set always comes from the topic's znode. An override with the original replicas, or with an empty list, cancels the
running reassignment in the topic's znode.

The parser does not guess: it refuses bad JSON, unknown versions and contradictions with the file, the path in its JSON, and the
reason.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

from ..output import BadInput
from ..reassign.plan import ANY, NUMBER_MAX, REPLICAS_MAX, PlanError, TopicPartition, duplicates, parse_plan

TOPICS_PATH = "brokers/topics"
REASSIGN_PATH = "admin/reassign_partitions"
TOPIC_VERSIONS = (1, 2, 3)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Replicas = Annotated[tuple[Number, ...], msgspec.Meta(max_length=REPLICAS_MAX)]


class TopicZnode(NamedTuple):
    """The znode of one topic. `adding` and `removing` name only moving partitions."""

    source: str
    topic: str
    partitions: Mapping[int, Replicas]
    adding: Mapping[int, Replicas]
    removing: Mapping[int, Replicas]
    topic_id: str | None

    def original(self, partition: int) -> Replicas:
        return _without(self.partitions[partition], self.adding.get(partition, ()))

    def target(self, partition: int) -> Replicas:
        return _without(self.partitions[partition], self.removing.get(partition, ()))


class Override(NamedTuple):
    """Entry of `/admin/reassign_partitions` for one partition; () cancels. `log_dirs` is parallel to `replicas`, or ()."""

    source: str
    replicas: Replicas
    log_dirs: tuple[str, ...] = ()


class PartitionImport(NamedTuple):
    """The import of one partition: created with `original`, then moved to `target`, if there is one.

    `reason` names the znode that decides. `log_dirs`: broker → directory, for target replicas with a fixed directory.
    """

    topic: str
    partition: int
    original: Replicas
    target: Replicas | None
    reason: str
    log_dirs: Mapping[int, str]


def _without(replicas: Replicas, gone: Sequence[int]) -> Replicas:
    return tuple(broker for broker in replicas if broker not in gone)


# --- reading -------------------------------------------------------------------------------------------------------------------


class _Data(msgspec.Struct):
    """The data of `/brokers/topics/[topic]`."""

    version: int
    partitions: dict[Number, Replicas]
    adding_replicas: dict[Number, Replicas] = {}
    removing_replicas: dict[Number, Replicas] = {}
    topic_id: str | None = None


def stored(data: bytes) -> bytes:
    """Return a znode's data without the znode's stat, which zkCli prints after it."""
    try:
        decode_json(data, object)
    except BadJson:
        lines = data.removeprefix(BOM_UTF8).splitlines()
        return next((line for line in lines if line.lstrip().startswith(b"{")), data)
    return data


def parse_topic(source: str, topic: str, data: bytes) -> TopicZnode:
    """Parse the data of `/brokers/topics/[topic]`. BadInput."""
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise BadInput(f"{source}: {topic!r} is not a topic name; give the file the name of the topic")
    try:
        found = decode_json(stored(data), _Data)
    except BadJson as error:
        raise BadInput(f"{source}: it is {error}; give the znode's stored data") from None
    adding, removing = (
        {partition: moving for partition, moving in sorted(moves.items()) if moving}
        for moves in (found.adding_replicas, found.removing_replicas)
    )
    znode = TopicZnode(source, topic, dict(sorted(found.partitions.items())), adding, removing, found.topic_id)
    for fault in (*_faults(found), *_faults_of_moves(znode)):
        raise BadInput(f"{source}: {fault}")
    return znode


def _faults(data: _Data) -> Iterator[str]:
    if data.version not in TOPIC_VERSIONS:
        yield f".version is {data.version!r}; versions 1, 2 and 3 are supported"
    for field, since in (("adding_replicas", 2), ("removing_replicas", 2), ("topic_id", 3)):
        if getattr(data, field) and data.version < since:
            yield f".{field} is given, but .version is {data.version}; the field exists since version {since}"
    if not data.partitions:
        yield ".partitions is empty, but a topic has at least one"
    if missing := sorted(set(range(len(data.partitions))) - set(data.partitions)):
        yield f".partitions has {len(data.partitions)} partitions and no {missing[0]}; numbers go from 0 without gaps"
    for field in ("partitions", "adding_replicas", "removing_replicas"):
        for partition, replicas in getattr(data, field).items():
            place = f".{field}.{partition}"
            if not replicas and field == "partitions":
                yield f"{place} is empty, but a partition has at least one replica"
            yield from (f"{place} names broker {broker} twice" for broker in duplicates(replicas))


def _faults_of_moves(znode: TopicZnode) -> Iterator[str]:
    for field, moves in (("adding_replicas", znode.adding), ("removing_replicas", znode.removing)):
        for partition, brokers in moves.items():
            if partition not in znode.partitions:
                yield f".{field}.{partition} is given, but .partitions has no {partition}"
            elif strangers := sorted(set(brokers) - set(znode.partitions[partition])):
                yield f".{field}.{partition} names broker {strangers[0]}, which is not in .partitions.{partition}"
    for partition in znode.partitions:
        if both := set(znode.adding.get(partition, ())) & set(znode.removing.get(partition, ())):
            yield f"broker {min(both)} is both added to and removed from partition {partition}"
        for what, kept in (("added", znode.original(partition)), ("removed", znode.target(partition))):
            if not kept:
                yield f"every replica of partition {partition} is {what}; at least one must stay"


def parse_reassignments(source: str, data: bytes) -> dict[TopicPartition, Override]:
    """Parse the data of `/admin/reassign_partitions`. BadInput."""
    try:
        plan = parse_plan(stored(data), "it", cancels=True)
    except PlanError as error:
        raise BadInput(f"{source}: {error}") from None
    return {entry.key: Override(source, entry.replicas, entry.log_dirs) for entry in plan.partitions}


# --- a dump of the tree --------------------------------------------------------------------------------------------------------


def read_dump(directory: Path) -> tuple[list[TopicZnode], dict[TopicPartition, Override]]:
    """Read a directory that mirrors the znodes `brokers/topics/TOPIC` and `admin/reassign_partitions`. Each znode is a file, also
    with the ending `.json`, or a directory with a file `data`. BadInput, OSError.
    """
    root = directory / TOPICS_PATH
    if not root.is_dir():
        raise BadInput(f"{directory} holds no {TOPICS_PATH}; give a directory that mirrors the znodes, or files")
    topics = []
    for child in sorted(root.iterdir(), key=lambda path: path.name):
        source = znode_file(child)
        if source is not None:
            topic = child.name.removesuffix(".json") if source == child else child.name
            topics.append(parse_topic(str(source), topic, source.read_bytes()))
    parent, name = (directory / REASSIGN_PATH).parent, Path(REASSIGN_PATH).name
    overrides: dict[TopicPartition, Override] = {}
    for candidate in (parent / name, parent / f"{name}.json"):
        source = znode_file(candidate)
        if source is not None:
            overrides = parse_reassignments(str(source), source.read_bytes())
    return topics, overrides


def znode_file(path: Path) -> Path | None:
    """Return the file with a znode's data, None without data."""
    return next((found for found in (path, path / "data", path / "data.json") if found.is_file()), None)


# --- precedence ----------------------------------------------------------------------------------------------------------------


def plan_import(topics: Sequence[TopicZnode], overrides: Mapping[TopicPartition, Override]) -> list[PartitionImport]:
    """Return the import of each partition, sorted. BadInput for contradictions between znodes."""
    by_name: dict[str, TopicZnode] = {}
    for znode in topics:
        if znode.topic in by_name:
            raise BadInput(f"{znode.source}: topic {znode.topic} is in {by_name[znode.topic].source} as well")
        by_name[znode.topic] = znode
    for (topic, partition), override in overrides.items():
        if topic not in by_name or partition not in by_name[topic].partitions:
            what = f"topic {topic} has no partition {partition}" if topic in by_name else f"there is no topic {topic}"
            raise BadInput(f"{override.source}: it moves {topic}-{partition}, but {what}; take that entry out, or give its znode")
    return [
        _planned(znode, partition, overrides.get((name, partition)))
        for name, znode in sorted(by_name.items())
        for partition in sorted(znode.partitions)
    ]


def _planned(znode: TopicZnode, partition: int, override: Override | None) -> PartitionImport:
    original, running = znode.original(partition), znode.target(partition)
    is_moving = partition in znode.adding or partition in znode.removing
    if override is None:
        reason = f"/{TOPICS_PATH}/{znode.topic} has it moving" if is_moving else "it does not move"
        return PartitionImport(znode.topic, partition, original, running if is_moving else None, reason, {})
    log_dirs = {broker: path for broker, path in zip(override.replicas, override.log_dirs, strict=False) if path != ANY}
    if not override.replicas or override.replicas == original:
        reason = f"/{REASSIGN_PATH} cancels it" if is_moving else f"/{REASSIGN_PATH} asks for the current replicas"
        return PartitionImport(znode.topic, partition, original, None, reason, log_dirs)
    reason = f"/{REASSIGN_PATH} asks for it"
    if is_moving:
        reason += f", instead of {list(running)}"
    return PartitionImport(znode.topic, partition, original, override.replicas, reason, log_dirs)


def import_lines(topics: Sequence[TopicZnode], plan: Sequence[PartitionImport]) -> list[str]:
    """Return the lines that describe an import."""
    lines: list[str] = []
    of_topic: dict[str, list[PartitionImport]] = {}
    for entry in plan:
        of_topic.setdefault(entry.topic, []).append(entry)
    for znode in sorted(topics, key=lambda znode: znode.topic):
        kept = f"; its id {znode.topic_id} is not kept, the cluster gives a new one" if znode.topic_id else ""
        lines.append(f"{znode.topic}: {len(znode.partitions)} partitions{kept}")
        for entry in of_topic.get(znode.topic, ()):
            way = f"{list(entry.original)} stays" if entry.target is None else f"{list(entry.original)} -> {list(entry.target)}"
            dirs = "".join(f"; broker {broker} in {path}" for broker, path in entry.log_dirs.items())
            lines.append(f"  {entry.topic}-{entry.partition}: {way} ({entry.reason}){dirs}")
    return lines
