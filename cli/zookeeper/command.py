"""`kraftlab import-znode`: import topics and running reassignments of a ZooKeeper-based cluster from its znodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kraftlab.common.exit_codes import DONE

from ..connection import caller_options, connect, named_servers, server_option
from ..output import CommandFailed, Output, WrongUse, json_option
from ..reassign.plan import TopicPartition
from .znodes import (
    Override,
    PartitionImport,
    TopicZnode,
    import_lines,
    parse_reassignments,
    parse_topic,
    plan_import,
    read_dump,
)

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

TIMEOUT_S = 30.0
PORTION = 5000
"""Number of topics and partitions in one request: the controller accepts at most 10,000."""

K = TypeVar("K")


@click.command(
    "import-znode",
    epilog="""\b
Examples:
  kraftlab import-znode --directory zk-dump --validate-only
  kraftlab import-znode --directory zk-dump
  kraftlab import-znode --topic-znode orders=orders.json --reassign-znode reassign.json

\b
A directory mirrors the tree: brokers/topics/TOPIC and admin/reassign_partitions, each a file with the znode's data.
Topics are created with their original replicas, then the reassignments start. /admin/reassign_partitions overrides the topic's
znode for a partition; an empty list cancels. A topic that exists with these replicas stays unchanged. The command does not
contact ZooKeeper, and copies no data.""",
)
@click.option("--directory", type=click.Path(), metavar="DIR", help="Directory that mirrors the znodes; see below.")
@click.option(
    "--topic-znode",
    "topic_files",
    multiple=True,
    metavar="TOPIC=FILE",
    help="File with the data of /brokers/topics/TOPIC; repeatable.",
)
@click.option(
    "--reassign-znode",
    "reassign_file",
    type=click.Path(),
    metavar="FILE",
    help="File with the data of /admin/reassign_partitions.",
)
@server_option()
@caller_options
@click.option(
    "--validate-only",
    is_flag=True,
    help="Show the changes without making them; with --bootstrap-server or --data the cluster validates them.",
)
@json_option
def import_znode(
    directory: str | None,
    topic_files: tuple[str, ...],
    reassign_file: str | None,
    validate_only: bool,
    as_json: bool,
) -> int:
    """Create the topics in znodes, and start their running reassignments (KIP-455, KIP-113)."""
    from ..reassign.directories import ReassignmentFailed

    has_cluster = named_servers() is not None or not validate_only
    out = Output(as_json)
    topics, overrides = _read(directory, topic_files, reassign_file)
    plan = plan_import(topics, overrides)
    out.lines(import_lines(topics, plan))
    done = {"created": [], "existing": [], "moved": []}  # type: dict[str, list[str]]
    if has_cluster:
        with connect(changes=not validate_only) as client:
            try:
                done = apply_plan(client, topics, plan, validate_only)
            except ReassignmentFailed as error:
                raise CommandFailed(str(error)) from None
    out.lines(_summary(done, validate_only, has_cluster))
    out.result(
        {
            "validate_only": validate_only,
            "topics": [znode.topic for znode in topics],
            "partitions": [entry._asdict() for entry in plan],
            **done,
        }
    )
    return DONE


def _read(
    directory: str | None, topic_files: Sequence[str], reassign_file: str | None
) -> tuple[list[TopicZnode], dict[TopicPartition, Override]]:
    """Read the znodes from a dump or from files. BadInput."""
    if (directory is None) == (not topic_files):
        raise WrongUse(
            "Error: give --directory, or files with --topic-znode and --reassign-znode\nSee: kraftlab import-znode --help"
        )
    if directory is not None:
        if reassign_file is not None:
            raise WrongUse("Error: --directory has its own /admin/reassign_partitions; leave --reassign-znode out")
        return read_dump(Path(directory))
    topics = []
    for given in topic_files:
        topic, equals, path = given.partition("=")
        if not equals:
            raise WrongUse(f"Error: --topic-znode {given!r} has no topic; expected TOPIC=FILE")
        topics.append(parse_topic(path, topic, Path(path).read_bytes()))
    overrides = {} if reassign_file is None else parse_reassignments(reassign_file, Path(reassign_file).read_bytes())
    return topics, overrides


def apply_plan(
    client: AdminClient, topics: Sequence[TopicZnode], plan: Sequence[PartitionImport], validate_only: bool
) -> dict[str, list[str]]:
    """Create missing topics, then start the moves. Directories are checked before anything is created. CommandFailed and
    ReassignmentFailed name what the cluster refuses.
    """
    from kraftlab.client import MoveOptions, answer_of

    from ..reassign.actions import partition_errors
    from ..reassign.directories import check_directories

    existing = _existing(client, topics, plan)
    check_directories(client, _moves(plan))
    created = {znode.topic for znode in topics}.difference(existing)
    create_topics(client, [entry for entry in plan if entry.topic in created], validate_only)
    moving = {(entry.topic, entry.partition): entry.target for entry in plan if entry.target is not None}
    if not validate_only:
        _place(client, plan)
    startable = {key: target for key, target in moving.items() if not validate_only or key[0] in existing}
    if startable:
        options = MoveOptions(reason="imported from znodes", validate_only=validate_only)
        refused: dict[TopicPartition, str] = {}
        for portion in _portions(dict.fromkeys(startable, 1)):
            targets = {key: startable[key] for key in portion}
            start = partial(client.alter_partition_reassignments, targets, options=options)
            refused |= partition_errors(answer_of(start))
        if refused:
            (topic, partition), reason = min(refused.items())
            raise CommandFailed(
                f"Error: {len(refused)} of {len(startable)} reassignments were refused, {topic}-{partition}: {reason}. The "
                "topics exist now; correct the znode's data and run the import again"
            )
    return {
        "created": sorted(created),
        "existing": sorted(existing),
        "moved": [f"{topic}-{partition}" for topic, partition in sorted(moving)],
    }


def _existing(client: AdminClient, topics: Sequence[TopicZnode], plan: Sequence[PartitionImport]) -> set[str]:
    """Return the topics of the plan that the cluster has already. CommandFailed if one differs from its znode."""
    wanted = {(entry.topic, entry.partition): entry for entry in plan}
    names = {znode.topic: len(znode.partitions) for znode in topics}
    existing: set[str] = set()
    for topic in client.describe_topics().values():
        if topic.name not in names:
            continue
        if len(topic.partitions) != names[topic.name]:
            raise CommandFailed(
                f"Error: topic {topic.name} exists with {len(topic.partitions)} partitions, its znode has {names[topic.name]}; "
                "delete the topic, or leave its znode out"
            )
        for found in topic.partitions:
            entry = wanted[topic.name, found.partition_index]
            replicas = tuple(found.original_replicas or found.replica_nodes)
            if replicas not in (entry.original, entry.target):
                raise CommandFailed(
                    f"Error: {topic.name}-{found.partition_index} exists with replicas {list(replicas)}, its znode has "
                    f"{list(entry.original)}; delete the topic, or leave its znode out"
                )
        existing.add(topic.name)
    return existing


def create_topics(client: AdminClient, plan: Sequence[PartitionImport], validate_only: bool) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import answer_of

    creations: dict[str, pb.CreatableTopic] = {}
    for entry in plan:
        topic = creations.setdefault(entry.topic, pb.CreatableTopic(name=entry.topic, num_partitions=-1, replication_factor=-1))
        topic.assignments.add(partition_index=entry.partition, broker_ids=entry.original)
    refused = []
    for portion in _portions({name: 1 + len(topic.assignments) for name, topic in creations.items()}):
        create = partial(client.create_topics, [creations[name] for name in portion], validate_only=validate_only)
        answer = answer_of(create)
        refused += [result for result in answer.topics if result.error_code]
    if refused:
        raise CommandFailed(
            f"Error: {len(refused)} of {len(creations)} topics were refused, {refused[0].name}: {refused[0].error_message}. "
            "Start the brokers that its znode names, or correct it, and run the import again: existing topics are not changed"
        )


def _portions(sizes: Mapping[K, int]) -> Iterator[list[K]]:
    """Yield the keys in portions for one request each, with at least one key."""
    portion: list[K] = []
    taken = 0
    for key, size in sizes.items():
        if portion and taken + size > PORTION:
            yield portion
            portion, taken = [], 0
        portion.append(key)
        taken += size
    if portion:
        yield portion


def _moves(plan: Sequence[PartitionImport]) -> dict[tuple[str, int, int], str]:
    return {(entry.topic, entry.partition, broker): path for entry in plan for broker, path in entry.log_dirs.items()}


def _place(client: AdminClient, plan: Sequence[PartitionImport]) -> None:
    """Ask brokers to put replicas into the directories of the plan. ReassignmentFailed."""
    from ..reassign.directories import move_directories

    moves = _moves(plan)
    original = {(entry.topic, entry.partition): entry.original for entry in plan}
    absent = [replica for replica in moves if replica[2] not in original[replica[:2]]]
    list(move_directories(client, moves, TIMEOUT_S, absent))


def _summary(done: dict[str, list[str]], validate_only: bool, with_cluster: bool) -> list[str]:
    if not with_cluster:
        return ["The znodes are valid. Nothing was done; no cluster was asked."]
    would = "would be " if validate_only else ""
    return [
        f"{_count(done['created'], 'topic')} {would}created, {len(done['existing'])} "
        f"{'exists' if len(done['existing']) == 1 else 'exist'} already, {_count(done['moved'], 'reassignment')} {would}started."
    ]


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what if len(names) == 1 else what + 's'}"
