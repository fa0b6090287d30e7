"""`kraftlab topics`: create, list, describe, alter and delete topics (kafka-topics)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.common.exit_codes import DONE
from kraftlab.config.resources import ResourceType

from ..completion.values import complete_topics
from ..connection import bootstrap_option, caller_options, connect
from ..output import CommandFailed, Output, WrongUse, given_options, json_option, linearizable_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

    from .text import TopicView

PARTITION_FILTERS = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")
_FILTERS = tuple(f"{name}-partitions" for name in PARTITION_FILTERS)
_MOVE_OPTIONS = ("validate-only", "queue", "throttle", "plan-id")
_FAILED = "Error while executing topic command : "
_ALLOWED = {
    "create": ("topic", "partitions", "replication-factor", "replica-assignment", "config", "if-not-exists"),
    "list": ("topic", "exclude-internal", "linearizable"),
    "describe": ("topic", "exclude-internal", "if-exists", "topics-with-overrides", *_FILTERS, "linearizable"),
    "delete": ("topic", "if-exists"),
    "alter": ("topic", "if-exists", "partitions", "replication-factor", "replica-assignment", *_MOVE_OPTIONS),
}
"""Action → the options that go with it."""


class Options(msgspec.Struct, frozen=True):
    """Values of the command's options, named as on the command line; None, False or empty if an option was not given."""

    list_: bool
    topic: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    config: tuple[str, ...]
    if_not_exists: bool
    validate_only: bool
    queue: bool
    throttle: int | None
    plan_id: str | None
    if_exists: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    topics_with_overrides: bool
    exclude_internal: bool
    linearizable: bool

    @property
    def filters(self) -> list[str]:
        """Names of the given partition filters."""
        return [name for name in PARTITION_FILTERS if getattr(self, f"{name}_partitions".replace("-", "_"))]


def check_usage(given: Collection[str]) -> str:
    """Return the one action among the names of the options that were given. WrongUse with Kafka's text."""
    actions = [action for action in _ALLOWED if action in given]
    if len(actions) != 1:
        _refuse("Command must include exactly one action: " + ", ".join(f"--{action}" for action in _ALLOWED))
    action = actions[0]
    if action in ("create", "delete", "alter") and "topic" not in given:
        _refuse('Missing required argument "[topic]"')
    if action == "alter" and sum(option in given for option in ("partitions", "replication-factor")) != 1:
        _refuse("Give one of --partitions and --replication-factor with --alter")
    for option in _MOVE_OPTIONS:
        if option in given and not (action == "alter" and "replication-factor" in given):
            _refuse(f"--{option} needs --alter --replication-factor")
    excluded = {action: {*given} - {action, *_ALLOWED[action]}}
    if "topics-with-overrides" in given:
        excluded["topics-with-overrides"] = {*_FILTERS}
    if "replica-assignment" in given:
        excluded["replica-assignment"] = {"replication-factor", *(["partitions"] if action == "create" else [])}
    for cause, options in excluded.items():
        for option in given:
            if option in options:
                _refuse(f'Option "[{option}]" can\'t be used with option "[{cause}]"')
    return action


def _refuse(message: str) -> None:
    raise WrongUse(f"{message}\nSee: kraftlab topics --help")


def _failed(message: str) -> CommandFailed:
    return CommandFailed(f"{_FAILED}{message}", on_stdout=True)


@click.command(
    "topics",
    epilog="""\b
Examples:
  kraftlab topics --create --topic t --partitions 3 --replication-factor 2
  kraftlab topics --create --topic t --replica-assignment 0:1,1:2
  kraftlab topics --describe --under-replicated-partitions
  kraftlab topics --alter --topic t --partitions 6
  kraftlab topics --alter --topic t --replication-factor 3 --validate-only""",
)
@bootstrap_option
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--list", "list_", is_flag=True, help="List topics, one name per line.")
@click.option("--describe", is_flag=True, help="Show topics with their partitions.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--alter", is_flag=True, help="Add partitions to topics, or change their replication factor.")
@click.option(
    "--topic",
    metavar="NAME",
    shell_complete=complete_topics,
    help="Topic name; with every action but --create also a regular expression, or several separated by commas.",
)
@click.option(
    "--partitions", type=int, metavar="N", help="Number of partitions (default: num.partitions). With --alter: the new total."
)
@click.option(
    "--replication-factor", type=int, metavar="N", help="Replicas of each partition (default: default.replication.factor)."
)
@click.option(
    "--replica-assignment",
    metavar="0:1,1:2,…",
    help="Broker ids of each partition's replicas, preferred leader first. With --alter (and --partitions): list existing "
    "partitions too; they do not change.",
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="With --create: a topic config; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="With --create: no error if the topic exists.")
@click.option("--validate-only", is_flag=True, help="With --alter --replication-factor: show the moves without starting them.")
@click.option("--queue", is_flag=True, help="With --alter --replication-factor: queue moves until slots are free.")
@click.option(
    "--throttle",
    type=click.IntRange(min=0),
    metavar="B/s",
    help="With --alter --replication-factor: copy at most this many bytes per second into each broker; ends with the moves.",
)
@click.option(
    "--plan-id",
    metavar="PLAN",
    help="With --alter --replication-factor: save the current replicas under this name, for reassign-partitions --rollback.",
)
@click.option("--if-exists", is_flag=True, help="With --describe, --delete or --alter: no error if the topic does not exist.")
@click.option(
    "--under-replicated-partitions", is_flag=True, help="With --describe: only partitions with replicas that are not in sync."
)
@click.option("--unavailable-partitions", is_flag=True, help="With --describe: only partitions without a live leader.")
@click.option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with fewer in-sync replicas than min.insync.replicas.",
)
@click.option(
    "--at-min-isr-partitions", is_flag=True, help="With --describe: only partitions with exactly min.insync.replicas in sync."
)
@click.option("--topics-with-overrides", is_flag=True, help="With --describe: only topics with configs of their own.")
@click.option("--exclude-internal", is_flag=True, help="With --list or --describe: omit internal topics.")
@caller_options
@linearizable_option
@json_option
def topics(as_json: bool, **values: object) -> int:
    """Create, list, describe, alter or delete topics."""
    action = check_usage(given_options(values))
    options = msgspec.convert(values, Options)
    from kraftlab.common.errors import ApiError

    from .text import TopicUsageError

    try:
        with connect(changes=action not in ("list", "describe"), linearizable=options.linearizable) as client:
            _RUN[action](client, Output(as_json), options)
    except TopicUsageError as error:
        raise WrongUse(f"{_FAILED}{error}", on_stdout=True) from None
    except ApiError as error:
        raise _failed(error.message or str(error)) from None
    return DONE


def _create(client: AdminClient, out: Output, options: Options) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import answer_of, raise_first_error
    from kraftlab.common.errors import ErrorCode

    from .text import parse_assignment, parse_configs

    name = options.topic
    topic = pb.CreatableTopic(
        name=name,
        num_partitions=-1 if options.partitions is None else options.partitions,
        replication_factor=-1 if options.replication_factor is None else options.replication_factor,
        configs=[pb.CreatableTopicConfig(name=key, value=value) for key, value in parse_configs(options.config).items()],
    )
    if options.replica_assignment is not None:
        for partition, replicas in parse_assignment(options.replica_assignment).items():
            topic.assignments.append(pb.CreatableReplicaAssignment(partition_index=partition, broker_ids=replicas))
    results = answer_of(lambda: client.create_topics([topic])).topics
    exists = results[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists
    if not exists:
        raise_first_error(results)
        out.lines([f"Created topic {name}."])
    out.result({"topic": name, "created": not exists, "topic_id": results[0].topic_id})


def _all_names(client: AdminClient, options: Options) -> list[str]:
    """Return the names that --topic and --exclude-internal select, sorted. CommandFailed if --topic selects none."""
    from .text import matching

    described = client.describe_topics().values()
    known = sorted(topic.name for topic in described if not (topic.is_internal and options.exclude_internal))
    if options.topic is None:
        return known
    found = matching(options.topic, known)
    if not found and not options.if_exists and not options.list_:
        raise _failed(f"Topic '{options.topic}' does not exist as expected")
    return found


def _list(client: AdminClient, out: Output, options: Options) -> None:
    names = _all_names(client, options)
    out.lines(names)
    out.result({"topics": names})


def _delete(client: AdminClient, out: Output, options: Options) -> None:

    names = _all_names(client, options)
    if names:
        client.delete_topics(names)
    out.result({"deleted": names})


def _alter(client: AdminClient, out: Output, options: Options) -> None:
    """Alter partition counts without output, as Kafka's tool does, or replication factors with their plan (KIP-179)."""
    from kraftlab.client import MoveOptions

    from .text import factor_lines

    names = _all_names(client, options)
    if options.partitions is not None:
        if options.replica_assignment is not None:
            _grow_as_assigned(client, names, options.partitions, options.replica_assignment)
        elif names:
            client.alter_partition_counts(dict.fromkeys(names, options.partitions))
        out.result({"topics": names, "partitions": options.partitions})
        return
    moves = MoveOptions(
        validate_only=options.validate_only, queued=options.queue, throttle=options.throttle, plan_id=options.plan_id
    )
    results = client.alter_replication_factors(dict.fromkeys(names, options.replication_factor or 0), options=moves).topics
    plan = {
        (topic.name, entry.partition_index): (tuple(entry.replicas), tuple(entry.target_replicas), entry.queued)
        for topic in results
        for entry in topic.partitions
    }
    out.lines(factor_lines(plan, options.validate_only))
    out.result(
        {
            "validate_only": options.validate_only,
            "partitions": [
                {"topic": topic, "partition": partition, "replicas": before, "target_replicas": after, "queued": queued}
                for (topic, partition), (before, after, queued) in plan.items()
            ],
        }
    )


def _grow_as_assigned(client: AdminClient, names: list[str], count: int, assigned: str) -> None:
    """Add partitions as assigned. As in Kafka's tool, the assignment begins with partition 0, and existing partitions keep their
    replicas.
    """
    from kraftlab.client import NewPartitions

    from .text import parse_assignment

    assignment = list(parse_assignment(assigned).values())
    counts = {name: len(topic.partitions) for name, topic in client.describe_topics(names).items()}
    wanted = {name: NewPartitions(count, assignment[counts[name] :]) for name in names}
    if wanted:
        client.create_partitions(wanted)


def _describe(client: AdminClient, out: Output, options: Options) -> None:
    from .text import describe_lines

    names = _all_names(client, options)
    views = topic_views(client, names) if names else []
    filters = options.filters
    alive = frozenset(broker.broker_id for broker in client.describe_cluster().brokers) if filters else frozenset()
    out.lines(describe_lines(views, filters, overrides_only=options.topics_with_overrides, alive=alive))
    out.result({"topics": views})


def topic_views(client: AdminClient, names: list[str]) -> list[TopicView]:
    """Return topics as of one metadata offset, with every config that is not a default."""
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import answer_of

    from .text import PartitionView, TopicView

    described = answer_of(lambda: client.describe_topics(names)).values()
    found = answer_of(lambda: client.describe_configs([(ResourceType.TOPIC, topic.name) for topic in described]))
    views = []
    for topic in described:
        configs = sorted(found.get((ResourceType.TOPIC, topic.name), ()), key=lambda entry: entry.name)
        values = {entry.name: entry.value or "" for entry in configs}
        views.append(
            TopicView(
                topic.name,
                topic.topic_id,
                tuple(
                    PartitionView(
                        entry.partition_index,
                        -1 if entry.leader_id is None else entry.leader_id,
                        entry.replica_nodes,
                        entry.isr_nodes,
                        entry.adding_replicas,
                        entry.removing_replicas,
                        entry.eligible_leader_replicas,
                        entry.last_known_elr,
                    )
                    for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index)
                ),
                {entry.name: values[entry.name] for entry in configs if entry.config_source != pb.CONFIG_SOURCE_DEFAULT_CONFIG},
                topic.is_internal,
                any(entry.config_source == pb.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG for entry in configs),
                int(values.get("min.insync.replicas", "1")),
            )
        )
    return views


_RUN = {"create": _create, "list": _list, "describe": _describe, "delete": _delete, "alter": _alter}
