"""A single name in the place of a list: refused before a node is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftlab.client import AdminClient
from kraftlab.client.log_dirs import LogDirFilter

CALLS: dict[str, Callable[[AdminClient], object]] = {
    "delete_topics": lambda client: client.delete_topics("nope"),
    "describe_topics": lambda client: client.describe_topics("nope"),
    "topics": lambda client: client.topics("nope"),
    "cancel_partition_reassignments": lambda client: client.cancel_partition_reassignments("nope"),
    "forget_plans": lambda client: client.forget_plans("nope"),
    "describe_user_scram_credentials": lambda client: client.describe_user_scram_credentials("nope"),
    "log dirs of topics": lambda client: LogDirFilter(topics="nope").request(),
    "log dirs by path": lambda client: LogDirFilter(log_dirs="nope").request(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_single_name_is_not_taken_for_a_list_of_its_characters(call: str) -> None:
    message = r"^'nope' is one name, not a list of names; pass \['nope'\]$"
    with AdminClient("127.0.0.1:1") as client, pytest.raises(TypeError, match=message):
        CALLS[call](client)
