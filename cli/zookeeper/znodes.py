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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kraftlab.common.uuids import from_text
from kraftlab.config.json_files import BadJson, decode_json

from ..output import BadInput
from ..reassign.plan import ANY, NUMBER_MAX, REPLICAS_MAX, PlanError, TopicPartition, parse_plan

TOPICS_PATH = "brokers/topics"
REASSIGN_PATH = "admin/reassign_partitions"
TOPIC_VERSIONS = (1, 2, 3)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Replicas = tuple[int, ...]


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


def stored(data: bytes) -> bytes:
    """Return a znode's data without the znode's stat, which zkCli prints after it."""
    try:
        decode_json(data, object)
    except BadJson:
        lines = data.removeprefix(BOM_UTF8).splitlines()
        return next((line for line in lines if line.lstrip().startswith(b"{")), data)
    return data


def decode(source: str, data: bytes) -> dict[str, Any]:
    """Return a znode's JSON object. BadInput."""
    try:
        document = decode_json(stored(data), object)
    except BadJson as error:
        raise BadInput(f"{source}: it is {error}; give the znode's stored data") from None
    if not isinstance(document, dict):
        raise BadInput(f"{source}: it is {_kind(document)}, not a JSON object; give the znode's stored data")
    return document


def parse_topic(source: str, topic: str, data: bytes) -> TopicZnode:
    """Parse the data of `/brokers/topics/[topic]`. BadInput."""
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise BadInput(f"{source}: {topic!r} is not a topic name; give the file the name of the topic")
    document = decode(source, data)
    version = document.get("version")
    if type(version) is not int or version not in TOPIC_VERSIONS:
        raise BadInput(f"{source}: .version is {version!r}; versions 1, 2 and 3 are supported")
    for field, since in (("adding_replicas", 2), ("removing_replicas", 2), ("topic_id", 3)):
        if document.get(field) and version < since:
            raise BadInput(f"{source}: .{field} is given, but .version is {version}; the field exists since version {since}")
    partitions = _assignments(source, document, "partitions", may_be_empty=False)
    if not partitions:
        raise BadInput(f"{source}: .partitions is empty, but a topic has at least one")
    if missing := sorted(set(range(len(partitions))) - set(partitions)):
        raise BadInput(
            f"{source}: .partitions has {len(partitions)} partitions and no {missing[0]}; numbers go from 0 without gaps"
        )
    topic_id = document.get("topic_id")
    if topic_id is not None:
        try:
            from_text(topic_id)
        except (ValueError, TypeError):
            raise BadInput(f"{source}: .topic_id {topic_id!r} is not an id of 22 base64url characters") from None
    znode = TopicZnode(
        source,
        topic,
        partitions,
        _assignments(source, document, "adding_replicas", may_be_empty=True),
        _assignments(source, document, "removing_replicas", may_be_empty=True),
        topic_id,
    )
    _check_moves(znode)
    return znode


def _check_moves(znode: TopicZnode) -> None:
    for field, moves in (("adding_replicas", znode.adding), ("removing_replicas", znode.removing)):
        for partition, brokers in moves.items():
            place = f"{znode.source}: .{field}.{partition}"
            if partition not in znode.partitions:
                raise BadInput(f"{place} is given, but .partitions has no {partition}")
            strangers = sorted(set(brokers) - set(znode.partitions[partition]))
            if strangers:
                raise BadInput(f"{place} names broker {strangers[0]}, which is not in .partitions.{partition}")
    for partition in znode.partitions:
        both = set(znode.adding.get(partition, ())) & set(znode.removing.get(partition, ()))
        if both:
            raise BadInput(f"{znode.source}: broker {min(both)} is both added to and removed from partition {partition}")
        if not znode.original(partition) or not znode.target(partition):
            what = "added" if not znode.original(partition) else "removed"
            raise BadInput(f"{znode.source}: every replica of partition {partition} is {what}; at least one must stay")


def parse_reassignments(source: str, data: bytes) -> dict[TopicPartition, Override]:
    """Parse the data of `/admin/reassign_partitions`. BadInput."""
    try:
        plan = parse_plan(stored(data), "it", cancels=True)
    except PlanError as error:
        raise BadInput(f"{source}: {error}") from None
    return {entry.key: Override(source, entry.replicas, entry.log_dirs) for entry in plan.partitions}


def _assignments(source: str, document: dict[str, Any], field: str, *, may_be_empty: bool) -> dict[int, Replicas]:
    value = document.get(field, {} if may_be_empty else None)
    if not isinstance(value, dict):
        raise BadInput(f"{source}: .{field} is {_kind(value)}, not an object of partition → replicas")
    found: dict[int, Replicas] = {}
    for key, replicas in value.items():
        if not re.fullmatch(r"0|[1-9][0-9]{0,8}", key):
            raise BadInput(f"{source}: .{field} has the key {key!r}, which is not a partition number")
        if brokers := _replicas(f"{source}: .{field}.{key}", replicas, may_be_empty=may_be_empty):
            found[int(key)] = brokers
    return dict(sorted(found.items()))


def _replicas(place: str, value: Any, *, may_be_empty: bool) -> Replicas:
    if not isinstance(value, list) or any(type(broker) is not int for broker in value):
        raise BadInput(f"{place} is {_kind(value)}, not a list of broker ids")
    if not value and not may_be_empty:
        raise BadInput(f"{place} is empty, but a partition has at least one replica")
    if len(value) > REPLICAS_MAX:
        raise BadInput(f"{place} has {len(value)} replicas; at most {REPLICAS_MAX} are taken")
    for broker in value:
        if not 0 <= broker <= NUMBER_MAX:
            raise BadInput(f"{place} names broker {broker}; ids are from 0 to {NUMBER_MAX}")
        if value.count(broker) > 1:
            raise BadInput(f"{place} names broker {broker} twice")
    return tuple(value)


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    found = names.get(type(value), "something else")
    return f"{found} of other things" if isinstance(value, list) else found


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
    ids: dict[str, TopicZnode] = {}
    for znode in topics:
        if znode.topic in by_name:
            raise BadInput(f"{znode.source}: topic {znode.topic} is in {by_name[znode.topic].source} as well")
        by_name[znode.topic] = znode
        if znode.topic_id is not None:
            if znode.topic_id in ids:
                raise BadInput(f"{znode.source}: .topic_id {znode.topic_id} is that of {ids[znode.topic_id].source} as well")
            ids[znode.topic_id] = znode
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
