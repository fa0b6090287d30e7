"""The log after a scripted history, and every call's answer while the queue is held."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode
from kraftlab.controller.api.apis import HANDLERS
from kraftlab.controller.api.service import ControllerService
from kraftlab.controller.cluster import brokers, producer_ids
from kraftlab.controller.engine.state import Outcome
from kraftlab.controller.topics import topics
from kraftlab.metadata import codec
from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.records import (
    AnyRecord,
    BrokerRegistrationChange,
    Config,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.rpc.calls import CALLS, WRITE
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call

WRITES = sorted(api for api, row in CALLS.items() if row.place is WRITE)
LISTS = sorted(api for api in WRITES if isinstance(HANDLERS[api].entries, str))


def log_of(cluster: Any) -> list[AnyRecord]:
    return [record for batch in cluster.quorum.batches if batch.body for record in codec.decode(batch.body)]


# --- the log -----------------------------------------------------------------------------------------------------------------


async def test_a_history_writes_these_records_and_no_others(cluster: Any) -> None:
    await cluster.start_brokers(0, 1)
    await cluster.create("t", (0, 1), segment_bytes="1048576")
    await cluster.stop_broker(0)
    epoch = cluster.broker(1).epoch
    await cluster.write(producer_ids.allocate, pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    await cluster.configure(2, "t", ("retention.ms", 0, "1000"))
    await cluster.write(brokers.unregister, pb.UnregisterBrokerRequest(broker_id=0))
    await cluster.write(topics.delete, pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name="t")]))
    records = log_of(cluster)
    bootstrap = bootstrap_records()
    assert records[: len(bootstrap)] == bootstrap
    assert [type(record) for record in records[len(bootstrap) :]] == [
        RegisterBroker,
        BrokerRegistrationChange,
        RegisterBroker,
        BrokerRegistrationChange,
        Topic,
        Config,
        Partition,
        PartitionChange,
        BrokerRegistrationChange,
        ProducerIds,
        Config,
        UnregisterBroker,
        RemoveTopic,
    ]


async def test_a_batch_that_cannot_be_replayed_ends_a_standby_and_is_not_published(tools: Any) -> None:
    standby = tools.Cluster().controller
    body, count = codec.encode([Config(0, 4, "", "k", "v"), RemoveTopic(0, b"x" * 16)])
    with pytest.raises(ReplayError, match="this node must stop"):
        await standby.apply([CommittedBatch(0, count, 1, 0, body)], count)
    assert standby.committed.image == EMPTY
    with pytest.raises(ReplayError, match="this node must stop"):
        standby.read_snapshot([body])
    assert standby.committed.image == EMPTY


async def test_offsets_start_at_zero_and_follow_the_log(tools: Any) -> None:
    cluster = tools.Cluster()
    assert (cluster.controller.applied_offset, cluster.controller.committed.image.provenance) == (0, Provenance())
    await cluster.lead()
    end = cluster.quorum.end_offset
    assert cluster.controller.applied_offset == end
    answer = cluster.controller.write("set", lambda state, context: Outcome([Config(0, 4, "", "k", "v")], context.next_offset))
    assert (answer.done, cluster.controller.applied_offset) == (False, end)
    assert await cluster.done(answer) == end, "an operation knows the offset of its first record"
    assert cluster.controller.applied_offset == end + 1


# --- a queue that stands still -----------------------------------------------------------------------------------------------


@pytest.fixture
async def service(five: Any) -> ControllerService:
    five.controller.queue.hold()
    return ControllerService(five.controller, five.clock, {})


async def ask(five: Any, service: ControllerService, api: str, request: Any, wait_ms: int) -> Any:
    """Send a request and let time pass. Return the answer, None without one."""
    answers: list[Any] = []

    async def dispatch() -> None:
        answers.append(await service.dispatch(Call(api, request, "User:ANONYMOUS")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatch)
        await trio.testing.wait_all_tasks_blocked()
        five.clock.now_ms += wait_ms
        five.controller.queue.run_due()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return answers[0] if answers else None


def something(api: str) -> Any:
    """A request of that call that is not empty."""
    request: Any = METHODS[api].request()
    entries = HANDLERS[api].entries
    if HANDLERS[api].is_empty_request(request):
        field = getattr(request, entries if isinstance(entries, str) else "topics")
        field.append("x") if api == "ForgetPlans" else field.add()
    return request


@pytest.mark.parametrize("api", WRITES)
async def test_a_write_that_times_out_in_the_queue_is_answered_and_never_done(
    five: Any, service: ControllerService, api: str
) -> None:
    batches = len(five.quorum.batches)
    request = something(api)
    request.header.timeout_ms = 500
    answer = await ask(five, service, api, request, 501)
    assert answer is not None
    assert answer.header.error_code == ErrorCode.REQUEST_TIMED_OUT
    five.controller.queue.resume()
    assert len(five.quorum.batches) == batches


@pytest.mark.parametrize("api", LISTS)
async def test_an_empty_write_is_answered_although_the_queue_is_held(five: Any, service: ControllerService, api: str) -> None:
    answer = await ask(five, service, api, METHODS[api].request(), 0)
    assert answer is not None
    assert answer.header.error_code == ErrorCode.NONE
