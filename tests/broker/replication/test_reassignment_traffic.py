"""Filling new replicas: throttles hold over small copies, progress is shown, and replicas in sync do not notice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.endpoint import Endpoint
from kraftlab.metadata.peer_rpc import Api, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.metadata.records import RESOURCE_TOPIC
from kraftlab.wire.frames import MAX_FRAME_BYTES

from ...helpers.waiting import eventually
from ..conftest import batch, same_data

RATE = 100_000


async def limit(world: Any, brokers: list[int], leader: bool = True, follower: bool = True) -> None:
    """Throttle every replica of topic t on those brokers, as kafka-reassign-partitions --throttle does, with
    `leader.replication.throttled.replicas`, the rate, and the same of followers.
    """
    sides = [side for side, wanted in (("leader", leader), ("follower", follower)) if wanted]
    for broker_id in brokers:
        await world.configure(4, str(broker_id), **{f"{side}_replication_throttled_rate": str(RATE) for side in sides})
    await world.configure(2, "t", **{f"{side}_replication_throttled_replicas": "*" for side in sides})


@pytest.mark.parametrize(("leader", "follower"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("batches", "batch_bytes"), [(100, 2_000), (20, 10_000)])
async def test_the_throttle_holds_over_a_small_copy(
    autojump_clock: Any, world: Any, leader: bool, follower: bool, batches: int, batch_bytes: int
) -> None:
    await world.add_brokers(2)
    await world.create_topic("t", [0])
    size = await world.fill(batches, batch_bytes)
    await limit(world, [0, 1], leader, follower)
    begun = trio.current_time()
    await world.add_replica(0, 1)
    await eventually(lambda: 1 in world.state("t", 0).isr, "the new replica is in sync", 60)
    rate = size / (trio.current_time() - begun)
    assert rate <= RATE * 1.1 + batch_bytes / (size / RATE)
    assert rate >= RATE * 0.9


async def test_the_throttle_is_shared_by_copies_from_several_leaders(autojump_clock: Any, world: Any) -> None:
    _, _, target = await world.add_brokers(3)
    await world.create_topic("t", [0], [0], [1])
    for number in range(3):
        await world.fill(60, 2_000, number)
    await limit(world, [0, 1, 2])
    begun = trio.current_time()
    for number in range(3):
        await world.add_replica(number, 2)
    await trio.sleep(2)
    half_way = [target.log("t", number).size_bytes for number in range(3)]
    assert min(half_way) > 0.75 * max(half_way), "each partition gets its share"
    await eventually(lambda: all(2 in world.state("t", number).isr for number in range(3)), "all in sync", 60)
    total = sum(target.log("t", number).size_bytes for number in range(3))
    assert 0.9 * RATE <= total / (trio.current_time() - begun) <= 1.1 * RATE


async def test_replicas_in_sync_are_neither_throttled_nor_delayed(autojump_clock: Any, world: Any) -> None:
    await world.add_brokers(3)
    await world.create_topic("t", [0, 1], [0])
    await world.fill(50, 10_000, 1)
    await limit(world, [0, 1, 2])
    await world.add_replica(1, 1)
    await trio.sleep(0.5)
    begun = trio.current_time()
    await world.fill(20, 50_000)
    assert trio.current_time() - begun < 1, "a million bytes to a replica in sync, past a throttle of a tenth of that"


async def test_what_a_throttled_replica_borrows_does_not_make_an_answer_too_large_for_a_frame(
    autojump_clock: Any, world: Any
) -> None:
    broker = await world.add_broker(0)
    await world.configure(RESOURCE_TOPIC, "t", max_message_bytes=str(10 << 20))
    topic_id = await world.create_topic("t", [0, 1], [0, 1])
    await world.change("t", 1, isr=(0,))
    for number in (0, 1):
        await broker.produce("t", number, batch(1, 9 << 20), acks=1)
    await limit(world, [0], follower=False)
    wanted = tuple(FetchPartition(topic_id, number, 0, 0, -1, 0, 1 << 20) for number in (0, 1))
    with broker.configs.leader_gate.claim("another follower") as other:
        await trio.sleep(0.4)
        assert other.try_take(1)
        body = await fetch(world, ReplicaFetchRequest(1, 1, 500, 1, 16 << 20, wanted, session_epoch=0))
        assert 9 << 20 <= len(body) <= MAX_FRAME_BYTES
        first = msgspec.msgpack.decode(body, type=ReplicaFetchResponse)
        [part] = first.partitions
        request = ReplicaFetchRequest(1, 1, 500, 1, 16 << 20, (), session_id=first.session_id, session_epoch=1)
        [next_part] = msgspec.msgpack.decode(await fetch(world, request), type=ReplicaFetchResponse).partitions
    assert (part.partition, next_part.partition) == (0, 1)


async def fetch(world: Any, request: ReplicaFetchRequest) -> bytes:
    """The leader's answer as it goes into a frame."""
    body: bytes = await world.request(Endpoint("memory", 1), Api.REPLICA_FETCH, msgspec.msgpack.encode(request), timeout_ms=1_000)
    return body


async def test_progress_of_a_replica_that_is_filled_shows_bytes_rate_and_start(autojump_clock: Any, world: Any) -> None:
    _, target = await world.add_brokers(2)
    await world.create_topic("t", [0])
    size = await world.fill(100, 4_000)
    await limit(world, [0, 1])
    await world.add_replica(0, 1)
    await trio.sleep(2)
    described = await target.log_dirs_api.describe(admin_pb2.DescribeLogDirsRequest())
    [shown] = [part for result in described.results for topic in result.topics for part in topic.partitions]
    assert shown.bytes_left + shown.partition_size == pytest.approx(size, rel=0.05)
    assert shown.bytes_per_second == pytest.approx(RATE, rel=0.2)
    assert shown.started_ms > 0
    assert shown.error == ""
    await eventually(lambda: 1 in world.state("t", 0).isr, "in sync", 60)
    described = await target.log_dirs_api.describe(admin_pb2.DescribeLogDirsRequest())
    [shown] = [part for result in described.results for topic in result.topics for part in topic.partitions]
    assert (shown.bytes_left, shown.offset_lag) == (-1, 0)


async def test_a_cancelled_reassignment_leaves_everything_as_before(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1])
    await world.fill(50, 10_000)
    await trio.sleep(0.5)
    before = world.state("t", 0)
    await limit(world, [0, 1, 2])
    await world.add_replica(0, 2)
    await trio.sleep(1)
    assert 0 < brokers[2].log("t", 0).size_bytes < brokers[0].log("t", 0).size_bytes
    await world.change(
        "t",
        0,
        replicas=before.replicas,
        directories=before.directories,
        adding_replicas=(),
        removing_replicas=(),
        original_replicas=(),
        target_replicas=(),
    )
    assert not brokers[2].replicas.partitions
    brokers[2].logs.remove_expired(1 << 60)
    assert brokers[2].directories() == set()
    assert (await brokers[0].produce("t", 0, batch())).error == 0
    assert same_data("t", 0, brokers[:2])


async def test_lifting_the_throttle_takes_effect_at_once(autojump_clock: Any, world: Any) -> None:
    await world.add_brokers(2)
    await world.create_topic("t", [0])
    await world.fill(100, 20_000)
    await limit(world, [0, 1])
    await world.add_replica(0, 1)
    await trio.sleep(1)
    for broker_id in (0, 1):
        await world.configure(4, str(broker_id), leader_replication_throttled_rate=None, follower_replication_throttled_rate=None)
    await eventually(lambda: 1 in world.state("t", 0).isr, "the new replica is in sync", 1.5)


async def test_a_replica_whose_throttle_goes_does_not_wait_until_its_debt_is_paid(autojump_clock: Any, world: Any) -> None:
    await world.add_brokers(2)
    await world.create_topic("t", [0])
    await world.fill(10, 10_000)
    await world.configure(4, "1", follower_replication_throttled_rate="1")
    await world.configure(2, "t", follower_replication_throttled_replicas="*")
    await world.add_replica(0, 1)
    await trio.sleep(30)
    assert 1 not in world.state("t", 0).isr, "one batch is hours of debt at this rate"
    await world.configure(2, "t", follower_replication_throttled_replicas=None)
    await eventually(lambda: 1 in world.state("t", 0).isr, "the new replica is in sync", 5)
