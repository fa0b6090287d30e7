"""Values of options for a shell's completion: words of this program, and names in the cluster.

A user waits at the prompt: a cluster that refuses, or does not answer within a second, offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ..connection import connect

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

TIMEOUT_MS = 1000

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def offer_words(words: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Offer words that need no cluster. After a comma, offer the next word of a list."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(before + comma + word) for word in words(context) if word.startswith(last)]

    return complete


def offer(names: Callable[[AdminClient, click.Context], Iterable[CompletionItem]]) -> Completer:
    """Offer names in the cluster that the command line addresses, numbers in their order."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            # The options are in this context, which is not click's current one while a line is completed.
            with context.scope(cleanup=False), connect(timeout_ms=TIMEOUT_MS) as client:
                found = list(names(client, context))
        except Exception:
            return []
        found.sort(key=lambda item: (len(item.value) if item.value.isdecimal() else 0, item.value))
        return [item for item in found if item.value.startswith(incomplete)]

    return complete


def _topics(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    return [CompletionItem(name) for name in client.describe_topics()]


def _nodes(client: AdminClient, context: click.Context) -> list[CompletionItem]:
    cluster = client.describe_cluster(include_fenced_brokers=True)
    controllers = [CompletionItem(str(node.controller_id), help="controller") for node in cluster.controllers]
    return [*controllers, *(CompletionItem(str(node.broker_id), help="broker") for node in cluster.brokers)]


def _brokers(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    return [node for node in _nodes(client, context) if node.help == "broker"]


def _plans(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    return [CompletionItem(plan.plan_id) for plan in client.list_partition_reassignments().plans]


def _features(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client.kafka_calls import SOFTWARE

    answer = client.call(pb.ApiVersionsResponse, pb.ApiVersionsRequest(**SOFTWARE))
    return [CompletionItem(feature.name) for feature in answer.supported_features]


def _log_dirs(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    from kraftlab.client.log_dirs import LogDirFilter

    described = client.all_log_dirs(LogDirFilter(topics=[]), timeout_ms=TIMEOUT_MS).brokers
    paths = {found.log_dir for broker in described.values() for found in broker.log_dirs}
    return [CompletionItem(path) for path in paths]


def _directories(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    """Offer the directories of --broker by their paths and by their last parts."""
    from kraftlab.client.log_dirs import LogDirFilter

    broker = context.params.get("broker")
    wanted = None if broker is None else [broker]
    described = client.all_log_dirs(LogDirFilter(topics=[]), brokers=wanted, timeout_ms=TIMEOUT_MS).brokers
    paths = {found.log_dir for answer in described.values() for found in answer.log_dirs}
    return [CompletionItem(name) for name in paths | {path.rpartition("/")[2] for path in paths}]


def _partitions(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    topics = client.describe_topics().values()
    return [CompletionItem(f"{topic.name}-{entry.partition_index}") for topic in topics for entry in topic.partitions]


def _groups(client: AdminClient, context: click.Context) -> Iterable[CompletionItem]:
    return [CompletionItem(group.group_id) for group in client.list_consumer_groups()]


complete_topics, complete_brokers, complete_nodes = offer(_topics), offer(_brokers), offer(_nodes)
complete_log_dirs, complete_groups = offer(_log_dirs), offer(_groups)
complete_plans, complete_features = offer(_plans), offer(_features)
complete_directories, complete_partitions = offer(_directories), offer(_partitions)
