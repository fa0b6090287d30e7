"""A single name in the place of a list: refused before a node is asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.client import AdminClient
from kraftlab.client.log_dirs import LogDirFilter

CALLS: dict[str, Callable[[AdminClient], object]] = {
    "delete_topics": lambda client: client.delete_topics("nope"),
    "describe_topics": lambda client: client.describe_topics("nope"),
    "cancel_reassignments": lambda client: client.cancel_reassignments("nope"),
    "forget_plans": lambda client: client.forget_plans("nope"),
    "log dirs of topics": lambda client: LogDirFilter(topics="nope").request(),
    "log dirs by path": lambda client: LogDirFilter(log_dirs="nope").request(),
}


BY_PARTITION: dict[str, Callable[[AdminClient, Any], object]] = {
    "alter_partition_reassignments": lambda client, key: client.alter_partition_reassignments({key: (0, 1)}),
    "alter_replica_log_dirs": lambda client, key: client.alter_replica_log_dirs(0, {key: "/d1"}),
    "list_partition_reassignments": lambda client, key: client.list_partition_reassignments([key]),
    "elect_leaders": lambda client, key: client.elect_leaders(0, [key]),
    "delete_records": lambda client, key: client.delete_records({key: 1}),
    "log dirs of partitions": lambda client, key: LogDirFilter(partitions=[key]).request(),
}


@pytest.mark.parametrize("key", ["mv", ("mv", "0"), ("mv", 0, 1), 5], ids=repr)
@pytest.mark.parametrize("call", BY_PARTITION)
def test_a_key_that_is_no_partition_is_refused_with_the_accepted_form(call: str, key: Any) -> None:
    """A name of two characters would be taken for a topic and a number."""
    topic = "mv" if key == "mv" else "topic"
    message = f"{key!r} is not a partition; pass a tuple of its topic and its number, for instance {(topic, 0)!r}"
    with AdminClient("127.0.0.1:1") as client, pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        BY_PARTITION[call](client, key)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.alter_replication_factors({"mv": (0, 1)}),
        lambda client: client.alter_partition_counts({"mv": (0, 1)}),
        lambda client: client.create_partitions({"mv": (0, 1)}),
    ],
)
def test_a_value_that_is_no_number_is_refused_with_the_accepted_form(call: Callable[[AdminClient], object]) -> None:
    with AdminClient("127.0.0.1:1") as client, pytest.raises(TypeError, match=r"^\(0, 1\) for the topic 'mv' is not .*; pass "):
        call(client)


@pytest.mark.parametrize("call", CALLS)
def test_a_single_name_is_not_taken_for_a_list_of_its_characters(call: str) -> None:
    message = r"^'nope' is one name, not a list of names; pass \['nope'\]$"
    with AdminClient("127.0.0.1:1") as client, pytest.raises(TypeError, match=message):
        CALLS[call](client)
