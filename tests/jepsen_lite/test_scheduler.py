"""The interpreter: workers, processes and the recorded history."""

from __future__ import annotations

import pytest

from jepsen_lite.generators import Invocation, limit, repeat
from jepsen_lite.scheduler import Interpreter
from jepsen_lite.workload import CallFailed, Completion, Options, Reply, Workload
from kraftlab.admin.v1 import admin_pb2


class Asking:
    """A client that sends one named request per operation."""

    def __init__(self, process: int) -> None:
        self.process, self.sequence = process, 0

    async def invoke(self, invocation, port):
        self.sequence += 1
        request = admin_pb2.DescribeClusterRequest()
        request.header.request_id.client_id = bytes([self.process]) * 16
        request.header.request_id.sequence = self.sequence
        reply = await port.call("DescribeCluster", request, node=invocation.value)
        return Completion("ok", reply.response, node=reply.node, offset=reply.offset, epoch=reply.epoch, request_id="own")


def workload(source, client=Asking, **more):
    return Workload("made-up", lambda options, process: client(process), lambda _: source, None, lambda _: (), **more)


def operations(world, source, **options):
    given = Options(**{"concurrency": 2, "time_s": 1.0, "rate": 0.0, **options})
    world.run(workload(source), given, Interpreter.clients)
    return world.ops


def named(process, sequence):
    return f"{bytes([process]).hex() * 16}:{sequence}"


def test_an_operation_says_who_did_what_when_and_how_it_ended(virtual_cluster):
    world = virtual_cluster(lambda api, request, now: Reply("answer", 11, 42, 3))
    (op,) = operations(world, Invocation("get", "a-topic", 11))
    assert (op.index, op.process, op.f, op.key, op.value) == (0, 0, "get", "a-topic", 11)
    assert (op.outcome, op.result, op.node, op.offset, op.epoch, op.request_id) == ("ok", "answer", 11, 42, 3, "own")
    assert (op.invoked_ns, op.ended_ns) == (0, 10_000_000)


def test_after_an_info_the_worker_goes_on_as_another_process_with_a_new_client(virtual_cluster):
    world = virtual_cluster()
    ops = operations(world, repeat(Invocation("get"), 5), concurrency=2)
    assert sorted(op.process for op in ops) == [0, 1, 2, 3, 4]
    assert all(op.request_id == named(op.process, 1) for op in ops)
    assert {op.error for op in ops} == {"nobody answers"}


def test_after_a_fail_the_process_and_its_client_go_on(virtual_cluster):
    def refuse(api, request, now):
        raise CallFailed("fail", "NOT_CONTROLLER", node=2, offset=7, epoch=1)

    ops = operations(virtual_cluster(refuse), repeat(Invocation("get"), 3), concurrency=1)
    assert [(op.process, op.request_id) for op in ops] == [(0, named(0, 1)), (0, named(0, 2)), (0, named(0, 3))]
    assert (ops[0].outcome, ops[0].node, ops[0].offset, ops[0].epoch) == ("fail", 2, 7, 1)


def test_workers_keep_to_the_rate_and_to_the_time(virtual_cluster):
    world = virtual_cluster(lambda api, request, now: Reply(None, 1, 1, 1))
    ops = operations(world, repeat(Invocation("get")), rate=50.0, time_s=4.0, concurrency=5)
    assert 150 <= len(ops) <= 250
    assert max(op.invoked_ns for op in ops) < 4 * 10**9


def test_an_operation_that_is_broken_off_is_written_down_as_info(virtual_cluster):
    class Stopped(BaseException):
        pass

    def stop(api, request, now):
        raise Stopped

    world = virtual_cluster(stop)
    with pytest.raises(Stopped):
        operations(world, Invocation("get"), concurrency=1)
    assert [(op.outcome, op.error, op.request_id) for op in world.ops] == [("info", "the run was cut short", named(0, 1))]


def test_phases_share_workers_and_indices_and_each_operation_is_reported(virtual_cluster):
    async def setup(options, port):
        await port.call("CreateTopics", admin_pb2.CreateTopicsRequest())

    async def collect(options, port):
        return {"asked at": port.now_ns()}

    world = virtual_cluster(lambda api, request, now: Reply(None, 1, 1, 1))
    whole = workload(Invocation("get"), setup=setup, collect=collect)._replace(
        final=lambda _: limit(2, repeat(Invocation("list")))
    )

    async def play(interpreter):
        await interpreter.setup()
        await interpreter.clients()
        await interpreter.final()
        assert await interpreter.collect() == {"asked at": 30_000_000}

    interpreter = world.run(whole, Options(concurrency=2, rate=0.0), play)
    assert [(op.index, op.f) for op in world.ops] == [(0, "get"), (1, "list"), (2, "list")]
    assert {op.process for op in world.ops[1:]} == {0, 1}
    assert world.ended == interpreter.ops
    assert [api for api, _, _ in world.asked] == ["CreateTopics"] + ["DescribeCluster"] * 3
