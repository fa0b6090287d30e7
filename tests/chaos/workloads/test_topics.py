"""Topics: an honest cluster is found to be one, and each lie about topics is seen."""

from __future__ import annotations

import pytest
import trio

from jepsen_lite.generators import Invocation
from jepsen_lite.history import INFO
from jepsen_lite.workload import CallFailed, Options
from jepsen_lite.workloads.topics import TopicClient

LIES = {
    "stale read": {"witness", "linearizable"},
    "false offset": {"witness", "linearizable"},
    "goes back": {"witness"},
    "lost write": {"witness", "linearizable"},
    "half a write": {"witness", "linearizable"},
    "half a topic": {"witness", "linearizable"},
    "resurrected topic": {"linearizable", "lives of topics"},
}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_has_topics(played, seed):
    _, run, verdicts = played("topics", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert {op.outcome for op in run.history} == {"ok", "fail", "info"}
    assert {"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"} <= {op.error for op in run.history}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_topics_is_seen(played, lie):
    cluster, _, verdicts = played("topics", lie, rate=0.3)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES[lie]


class Silent:
    """A port to nodes of which none answers."""

    controllers, brokers = (3000,), (1,)

    async def call(self, api, request, **_):
        raise CallFailed(INFO, "DEADLINE_EXCEEDED", node=1)


def test_a_deletion_whose_id_nobody_told_was_never_sent():
    ended = trio.run(TopicClient(Options(), 0).invoke, Invocation("delete-id", "topics-0"), Silent())
    assert (ended.outcome, ended.error) == ("fail", "not sent, the id is not known: DEADLINE_EXCEEDED")
