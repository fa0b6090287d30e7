"""Transactions over lists: cycles, and outcomes of appends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from jepsen_lite.workload import Options, Reply
from jepsen_lite.workloads.list_append import TransactionClient
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode


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
