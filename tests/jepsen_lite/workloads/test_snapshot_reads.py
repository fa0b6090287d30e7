"""Reads of one moment, of a value that is already set."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import trio

from jepsen_lite.generators import Invocation
from jepsen_lite.history import History, Op
from jepsen_lite.workloads import workload_named
from jepsen_lite.workloads.snapshot_reads import ReadingClient


def test_a_value_that_is_there_already_is_set_without_a_record(played):
    """In the final phase several clients set the same value. An answer to another value is still compared with the log."""
    cluster, run, _ = played("snapshot-reads")
    assert run.history.of("set")[-1].value == 1

    async def call(api, request, *, node=None, timeout_ms=None):
        return cluster.answer(api, request, node=None)

    port = SimpleNamespace(controllers=(3000,), brokers=(), call=call)
    completion = trio.run(ReadingClient(run.options, process=1000).invoke, Invocation("set", "0", 1), port)
    last = run.history[-1]
    times = {"invoked_ns": last.ended_ns + 1, "ended_ns": last.ended_ns + 2}
    for value, valid in ((1, True), (2, False)):
        again = Op(index=last.index + 1, process=1000, f="set", key="0", value=value, **times, **completion._asdict())
        played_on = msgspec.structs.replace(run, history=History([*run.history, again]), log=cluster.log())
        verdicts = {checker.name: checker.check(played_on) for checker in workload_named("snapshot-reads").checkers(run.options)}
        assert (verdicts["witness"].valid, verdicts["time travel"].valid) == (valid, True), verdicts["witness"].reason
