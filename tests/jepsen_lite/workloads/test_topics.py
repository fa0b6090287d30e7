"""Topics: a request that was never sent certainly failed."""

from __future__ import annotations

import trio

from jepsen_lite.generators import Invocation
from jepsen_lite.history import INFO
from jepsen_lite.workload import CallFailed, Options
from jepsen_lite.workloads.topics import TopicClient


class Silent:
    """A port to nodes that never answer."""

    controllers, brokers = (3000,), (1,)

    async def call(self, api, request, **_):
        raise CallFailed(INFO, "DEADLINE_EXCEEDED", node=1)


def test_a_deletion_by_an_unknown_id_is_never_sent():
    ended = trio.run(TopicClient(Options(), 0).invoke, Invocation("delete-id", "topics-0"), Silent())
    assert (ended.outcome, ended.error) == ("fail", "not sent, the id is unknown: DEADLINE_EXCEEDED")
