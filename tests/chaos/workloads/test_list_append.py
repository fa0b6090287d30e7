"""Transactions over lists: an honest cluster is found to be one, and each lie about lists is seen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from jepsen_lite.workload import Options, Reply
from jepsen_lite.workloads.list_append import TransactionClient
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.metadata.errors import ErrorCode

LIES = {
    "stale read": {"witness", "list-append"},
    "false offset": {"witness", "list-append"},
    "torn read": {"witness", "list-append"},
    "lost write": {"witness", "list-append"},
    "half a write": {"witness", "list-append"},
}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_has_serializable_lists(played, seed):
    _, run, verdicts = played("list-append", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert {op.outcome for op in run.history} == {"ok", "info"}
    assert verdicts["list-append"].details["edges"] > 500


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_lists_is_seen(played, lie):
    cluster, _, verdicts = played("list-append", lie, rate=0.3)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES[lie]


def test_an_answer_of_two_moments_makes_a_cycle(played):
    _, _, verdicts = played("list-append", "torn read", rate=0.3)
    names = {cycle["name"] for cycle in verdicts["list-append"].details["cycles"]}
    assert any(name.startswith(("G-single", "G2")) for name in names)


@pytest.mark.parametrize(
    ("codes", "outcome", "error"),
    [
        (("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION"), "fail", "UNKNOWN_TOPIC_OR_PARTITION"),
        (("NONE", "INVALID_CONFIG"), "info", "INVALID_CONFIG"),
        (("UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR"), "info", "UNKNOWN_SERVER_ERROR"),
        (("NONE", "UNKNOWN_SERVER_ERROR"), "info", "UNKNOWN_SERVER_ERROR"),
        (("INVALID_CONFIG", "KAFKA_STORAGE_ERROR"), "info", "KAFKA_STORAGE_ERROR"),
    ],
)
def test_an_append_failed_only_if_all_of_it_certainly_did(codes, outcome, error):
    async def call(api, request, **_):
        answers = [pb.AlterConfigsResourceResponse(error_code=ErrorCode[code]) for code in codes]
        return Reply(pb.IncrementalAlterConfigsResponse(responses=answers), 3000, 7, 1)

    client = TransactionClient(Options(), 0)
    invocation = SimpleNamespace(f="txn", key="0", value=[["append", f"appends-0-{number}/leader", "1:0"] for number in (0, 1)])
    ended = trio.run(client.invoke, invocation, SimpleNamespace(call=call, brokers=(), controllers=(3000,)))
    assert (ended.outcome, ended.error) == (outcome, error)
    assert ended.result is None
