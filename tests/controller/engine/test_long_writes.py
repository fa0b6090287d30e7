"""Long writes on a thread: events that may happen meanwhile, and the results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import outcome
import pytest
import trio
import trio.testing

from kraftlab.access.users import ANONYMOUS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.controller.api.apis import HANDLERS
from kraftlab.controller.cluster import brokers
from kraftlab.controller.engine import log_writer
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.queue import NEVER_MS, RETRY_MS
from kraftlab.controller.engine.quorum_controller import QuorumController, WriteResult
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.engine.worker_threads import on_a_thread
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.topics import topics
from kraftlab.metadata.records import RESOURCE_TOPIC, Config
from kraftlab.rpc.server import Call

Work = tuple[Callable[[], WriteResult], Callable[[outcome.Outcome[WriteResult]], None]]


@pytest.fixture
async def aside(cluster: Any) -> list[Work]:
    """The cluster's controller leads. Its long writes wait here."""
    works: list[Work] = []
    cluster.controller = QuorumController(
        cluster.settings, cluster.clock, random.Random(7), lambda: None, lambda work, done: works.append((work, done))
    )
    cluster.controller.attach(cluster.quorum)
    await cluster.lead()
    return works


def finish(works: list[Work]) -> None:
    work, done = works.pop()
    done(outcome.capture(work))


def setting(name: str, value: str) -> Callable[[ControllerState, Context], Outcome[str]]:
    """Append to the value of a config, so the result shows the order of writes."""

    def generate(state: ControllerState, context: Context) -> Outcome[str]:
        if value == "refused":
            raise ApiError(ErrorCode.INVALID_REQUEST, "refused")
        before = state.image.configs.get((RESOURCE_TOPIC, name), {}).get("note", "")
        return Outcome([Config(0, RESOURCE_TOPIC, name, "note", before + value)], before + value)

    return generate


def write(cluster: Any, value: str, *, is_long: bool = False) -> Answer[str]:
    answer: Answer[str] = cluster.controller.write("note", setting("t", value), is_long=is_long)
    return answer


async def test_other_writes_wait_for_a_long_one_and_see_its_changes(cluster: Any, aside: list[Work]) -> None:
    long, other = write(cluster, "a", is_long=True), write(cluster, "b")
    await cluster.commit()
    assert not long.done
    assert not other.done
    finish(aside)
    assert await cluster.done(long) == "a"
    assert await cluster.done(other) == "ab"


async def test_a_long_write_sees_uncommitted_earlier_writes(cluster: Any, aside: list[Work]) -> None:
    first, long = write(cluster, "a"), write(cluster, "b", is_long=True)
    finish(aside)
    assert await cluster.done(first) == "a"
    assert await cluster.done(long) == "ab"


async def test_a_long_write_is_prepared_on_the_thread_too(
    cluster: Any, aside: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding and replaying thousands of records takes long as well."""
    long = write(cluster, "a", is_long=True)
    work, done = aside.pop()
    result = outcome.capture(work)
    monkeypatch.setattr(log_writer, "prepare_write", None)
    done(result)
    assert await cluster.done(long) == "a"


async def test_commits_go_on_meanwhile(cluster: Any, aside: list[Work]) -> None:
    first, long = write(cluster, "a"), write(cluster, "b", is_long=True)
    assert await cluster.done(first) == "a"
    assert not long.done
    finish(aside)
    assert await cluster.done(long) == "ab"


async def test_a_refusal_from_the_thread_reaches_its_caller(cluster: Any, aside: list[Work]) -> None:
    long = write(cluster, "refused", is_long=True)
    finish(aside)
    with pytest.raises(ApiError, match="refused"):
        await cluster.done(long)
    assert await cluster.done(write(cluster, "b")) == "b"


async def test_a_long_write_is_dropped_if_the_leadership_is_lost(cluster: Any, aside: list[Work]) -> None:
    long = write(cluster, "a", is_long=True)
    await cluster.lose_leadership(survives=True)
    await cluster.lead()
    assert await cluster.done(write(cluster, "b")) == "b", "the queue goes on in the next epoch"
    finish(aside)
    assert long.error is not None
    assert long.error.code is ErrorCode.NOT_CONTROLLER
    assert await cluster.done(write(cluster, "c")) == "bc"


async def test_a_long_write_is_computed_again_if_the_quorum_wrote_meanwhile(cluster: Any, aside: list[Work]) -> None:
    """A change may contain offsets: the ids of its moves."""
    offsets: list[int] = []

    def generate(state: ControllerState, context: Context) -> Outcome[str]:
        offsets.append(context.next_offset)
        return setting("t", "a")(state, context)

    long = cluster.controller.write("note", generate, is_long=True)
    cluster.quorum.control_batch()
    finish(aside)
    assert len(offsets) == 1, "not on the event loop"
    finish(aside)
    assert await cluster.done(long) == "a"
    assert offsets[1] == offsets[0] + 1


async def test_events_that_fell_due_meanwhile_run_after_the_long_write(cluster: Any, aside: list[Work]) -> None:
    """A NoOp of an idle controller, for example, would force the computation to be repeated."""
    begun: list[int] = []

    def generate(state: ControllerState, context: Context) -> Outcome[str]:
        begun.append(context.next_offset)
        return setting("t", "a")(state, context)

    long = cluster.controller.write("note", generate, is_long=True)
    other: list[Answer[str]] = []
    cluster.controller.queue.schedule("due", cluster.clock(), lambda: other.append(write(cluster, "b")))
    cluster.controller.queue.run_due()
    assert not other
    finish(aside)
    assert await cluster.done(long) == "a"
    assert len(begun) == 1
    assert await cluster.done(other[0]) == "ab"


async def test_a_long_write_that_the_log_does_not_take_at_once_is_not_computed_again(cluster: Any, aside: list[Work]) -> None:
    long = write(cluster, "a", is_long=True)
    cluster.quorum.overloaded = True
    finish(aside)
    assert not long.done
    cluster.quorum.overloaded = False
    await cluster.pass_time(RETRY_MS)
    assert not aside, "it need not be worked out again"
    assert await cluster.done(long) == "a"


async def test_a_refusal_comes_although_the_log_takes_nothing(cluster: Any, aside: list[Work]) -> None:
    long = write(cluster, "refused", is_long=True)
    cluster.quorum.overloaded = True
    finish(aside)
    with pytest.raises(ApiError, match="refused"):
        await cluster.done(long)


async def test_timers_are_announced_after_a_long_write(cluster: Any) -> None:
    """Silent brokers must be fenced even if no further request arrives."""
    works: list[Work] = []
    announced: list[int] = []

    def timer_changed() -> None:
        announced.append(controller.queue.next_deadline_ms())

    controller = QuorumController(
        cluster.settings, cluster.clock, random.Random(7), timer_changed, lambda work, done: works.append((work, done))
    )
    controller.attach(cluster.quorum)
    cluster.controller = controller
    await cluster.lead()
    await cluster.pass_time(1000)
    due_ms = controller.queue.next_deadline_ms()
    assert cluster.clock.now_ms < due_ms < NEVER_MS
    long = write(cluster, "refused", is_long=True)
    finish(works)
    assert long.error is not None
    assert announced[-1] == due_ms


async def test_on_a_thread_the_event_loop_goes_on(cluster: Any) -> None:
    controller = QuorumController(cluster.settings, cluster.clock, random.Random(7), lambda: None, on_a_thread)
    controller.attach(cluster.quorum)
    cluster.controller = controller
    await cluster.lead()
    turned = trio.lowlevel.current_trio_token()
    loop_turns = trio.Event()

    def generate(state: ControllerState, context: Context) -> Outcome[str]:
        trio.from_thread.run_sync(loop_turns.set, trio_token=turned)
        return setting("t", "a")(state, context)

    long = controller.write("note", generate, is_long=True)
    answered = trio.Event()
    long.when_done(lambda answer: answered.set())
    with trio.fail_after(10):
        await loop_turns.wait()
        while not cluster.quorum.batches[cluster.quorum.committed_batches :]:  # noqa: ASYNC110 - the log tells nobody
            await trio.sleep(0.001)
        assert await cluster.done(long) == "a"
        await answered.wait()


@pytest.mark.parametrize(("entries", "is_long"), [(1, False), (reassignments.LONG_PARTITIONS + 1, True)])
async def test_a_plan_is_long_by_its_entries(cluster: Any, entries: int, is_long: bool) -> None:
    request = admin_pb2.AlterPartitionReassignmentsRequest()
    topic = request.topics.add(name="t")
    for number in range(entries):
        topic.partitions.add(partition_index=number)
    assert reassignments.is_long(cluster.controller.committed, request) is is_long


@pytest.mark.parametrize(("partitions", "is_long"), [((-1,), False), ((500, 500), False), ((500, 501), True)])
async def test_a_creation_is_long_by_the_partitions_of_all_its_topics(
    cluster: Any, partitions: tuple[int, ...], is_long: bool
) -> None:
    wanted = [admin_pb2.CreatableTopic(name=f"t{number}", num_partitions=count) for number, count in enumerate(partitions)]
    request = admin_pb2.CreateTopicsRequest(topics=wanted)
    assert topics.is_long(cluster.controller.committed, request) is is_long


BIG = {"big": 1001, "small": 999}


@pytest.fixture
async def sized(cluster: Any) -> ControllerState:
    """Topics of known sizes."""
    await cluster.start_brokers(0)
    for name, count in BIG.items():
        request = admin_pb2.CreateTopicsRequest(topics=[{"name": name, "num_partitions": count, "replication_factor": 1}])
        await cluster.write(topics.create, request)
    state: ControllerState = cluster.controller.committed
    return state


def election(**topic_partitions: int) -> admin_pb2.ElectLeadersRequest:
    request = admin_pb2.ElectLeadersRequest()
    for name, count in topic_partitions.items():
        request.topic_partitions.values.add(topic=name, partitions=range(count))
    return request


async def test_a_change_of_more_than_a_thousand_partitions_is_long_in_every_call(sized: ControllerState) -> None:
    big = sized.image.topics.by_name["big"]
    rows = [
        ("ElectLeaders", election(), True),
        ("ElectLeaders", election(big=1001), True),
        ("ElectLeaders", election(big=1000), False),
        ("CreatePartitions", admin_pb2.CreatePartitionsRequest(topics=[{"name": "big", "count": 2002}]), True),
        ("CreatePartitions", admin_pb2.CreatePartitionsRequest(topics=[{"name": "big", "count": 2001}]), False),
        ("CreatePartitions", admin_pb2.CreatePartitionsRequest(topics=[{"name": "nope", "count": 2002}]), False),
        ("AlterPartitionCounts", admin_pb2.AlterPartitionCountsRequest(topics=[{"name": "big", "count": 2002}]), True),
        ("DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=[{"name": "big"}]), True),
        ("DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=[{"topic_id": to_text(big)}]), True),
        ("DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=[{"topic_id": "no id"}, {"name": "nope"}]), False),
        ("DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=[{"name": "small"}]), False),
        ("AlterReplicationFactors", admin_pb2.AlterReplicationFactorsRequest(topics=[{"name": "small"}]), True),
        ("AlterReplicationFactors", admin_pb2.AlterReplicationFactorsRequest(topics=[{"name": "nope"}]), False),
        ("UnregisterBroker", admin_pb2.UnregisterBrokerRequest(broker_id=0), True),
        ("UnregisterBroker", admin_pb2.UnregisterBrokerRequest(broker_id=1), False),
    ]
    wrong = [(api, request) for api, request, is_long in rows if HANDLERS[api].is_long(sized, request) is not is_long]
    assert wrong == []


@pytest.fixture
async def large_brokers(cluster: Any, aside: list[Work], monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """Brokers 1 and 2 have more partitions than the event loop may change at once."""
    await cluster.start_brokers(1, 2)
    await cluster.create("t", (1, 2), (1, 2))
    monkeypatch.setattr(brokers, "LONG_PARTITIONS", 1)
    return aside


async def test_a_silent_broker_with_many_partitions_is_fenced_on_a_thread(cluster: Any, large_brokers: list[Work]) -> None:
    """A controller that is busy for longer than the fetch timeout is deposed, and so is the next one, forever."""
    for _ in range(5):
        await cluster.pass_time(1900)
        cluster.controller.heartbeat(cluster.beat(2))
    await cluster.pass_time(1)
    assert len(large_brokers) == 1
    assert not cluster.broker(1).fenced
    finish(large_brokers)
    await cluster.commit()
    await cluster.pass_time(1000)
    assert cluster.broker(1).fenced
    assert cluster.partition("t").leader == 2
    assert not large_brokers, "once is enough"
    assert cluster.controller.statistics().brokers_fenced == 1


async def test_a_broker_with_many_partitions_shuts_down_on_a_thread(cluster: Any, large_brokers: list[Work]) -> None:
    shutdown = cluster.controller.heartbeat(cluster.beat(1, want_shutdown=True))
    await cluster.commit()
    assert not shutdown.done
    other = cluster.controller.heartbeat(cluster.beat(2))
    assert other.done, "a heartbeat that changes nothing does not wait"
    finish(large_brokers)
    assert not (await cluster.done(shutdown)).should_shutdown
    assert cluster.partition("t").leader == 2
    cluster.controller.heartbeat(cluster.beat(2))
    last = cluster.controller.heartbeat(cluster.beat(1, want_shutdown=True))
    while large_brokers:
        finish(large_brokers)
    assert (await cluster.done(last)).should_shutdown


async def test_a_broker_with_many_partitions_is_unregistered_on_a_thread(
    cluster: Any, tools: Any, large_brokers: list[Work]
) -> None:
    answers: list[Any] = []
    request = admin_pb2.UnregisterBrokerRequest(broker_id=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tools.ServedController(cluster).send, Call("UnregisterBroker", request, ANONYMOUS), answers)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        assert cluster.controller.heartbeat(cluster.beat(2)).done, "a heartbeat that changes nothing does not wait"
        finish(large_brokers)
        await cluster.commit()
    (answer,) = answers
    assert answer.header.error_code == ErrorCode.NONE
    assert 1 not in cluster.controller.committed.image.cluster.brokers
    assert cluster.partition("t").leader == 2


async def test_a_broker_with_few_partitions_is_unregistered_at_once(cluster: Any, tools: Any, aside: list[Work]) -> None:
    await cluster.start_brokers(1, 2)
    await cluster.create("t", (1, 2))
    request = admin_pb2.UnregisterBrokerRequest(broker_id=1)
    answer = await tools.ServedController(cluster).ask(Call("UnregisterBroker", request, ANONYMOUS))
    assert answer.header.error_code == ErrorCode.NONE
    assert not aside
