"""What a shell's completion offers as values of options: words that this program knows, and names that the cluster has now.

Somebody waits at a prompt: a cluster that does not answer at once, or refuses, offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ..credentials import connect

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

TIMEOUT_MS = 1000

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def offer_words(words: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Offers what needs no cluster; behind a comma the next word of a list."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(before + comma + word) for word in words(context) if word.startswith(last)]

    return complete


def _offered(names: Callable[[AdminClient], Iterable[str]]) -> Completer:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        servers = context.params.get("bootstrap_server") or context.params.get("bootstrap_controller")
        if not servers:
            return []
        try:
            # Who asks is remembered by the context, which is not the current one while a line is completed.
            with context.scope(cleanup=False), connect(servers, timeout_ms=TIMEOUT_MS) as client:
                found = sorted(names(client), key=lambda name: (len(name) if name.isdecimal() else 0, name))
        except Exception:
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


def _topics(client: AdminClient) -> Iterable[str]:
    return [topic.name for topic in client.describe_topics().topics]


def _brokers(client: AdminClient) -> Iterable[str]:
    return [str(broker.broker_id) for broker in client.describe_cluster(include_fenced_brokers=True).brokers]


def _plans(client: AdminClient) -> Iterable[str]:
    return [plan.plan_id for plan in client.list_partition_reassignments().plans]


def _features(client: AdminClient) -> Iterable[str]:
    return [feature.name for feature in client.api_versions().supported_features]


complete_topics = _offered(_topics)
complete_brokers = _offered(_brokers)
complete_plans = _offered(_plans)
complete_features = _offered(_features)
