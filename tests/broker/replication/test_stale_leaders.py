"""Former leaders that may not know that they are deposed: acknowledged records outlive them."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import trio

from kraftlab.broker.replication.partition import LeaderRole
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Api,
    FetchPartition,
    IsrChangeResult,
    ReplicaFetchRequest,
)
from kraftlab.records.record_batch import iterate

from ...helpers.waiting import eventually
from ..conftest import batch, same_data


def lose_half_of_the_tail(log: Any) -> None:
    """Truncate the log like a power cut that loses records without an fsync."""
    path = log.directory / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size // 2)


async def test_a_restarted_leader_does_not_lead_on_in_the_name_of_its_last_incarnation(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    for _ in range(10):
        assert (await brokers[0].produce("t", 0, batch())).error == ErrorCode.NONE
    log = brokers[0].log("t", 0)
    brokers[0].crash()
    lose_half_of_the_tail(log)
    await brokers[0].restart(registers=False)
    await trio.sleep(2)
    assert (await brokers[0].produce("t", 0, batch(), acks=1)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [broker.log("t", 0).log_end_offset for broker in brokers[1:]] == [10, 10]
    await world.change("t", 0, leader=1, isr=(1, 2))
    await world.register(brokers[0])
    await eventually(lambda: world.state("t", 0).isr == (1, 2, 0), "broker 0 is back in the ISR")
    assert brokers[0].log("t", 0).log_end_offset == 10
    assert same_data("t", 0, brokers)


async def test_a_restarted_broker_leads_again_once_it_is_registered_and_elected(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await broker.produce("t", 0, batch())
    broker.crash()
    await broker.restart(registers=False)
    await world.change("t", 0, leader=-1)
    await world.register(broker)
    await world.change("t", 0, leader=0)
    answer = await broker.produce("t", 0, batch())
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 1)


async def test_a_read_that_a_deposed_leader_finishes_late_is_not_given_out(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    topic_id = await world.create_topic("t", [0, 1, 2])
    await brokers[0].produce("t", 0, batch())
    world.unreachable.add(0)
    await trio.sleep(1)
    for _ in range(2):
        await brokers[0].produce("t", 0, batch(), acks=1)
    slow_disk, run = trio.Event(), brokers[0].disks.run

    async def run_reads_late(log_dir: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
        if work.__name__ == "read":
            await slow_disk.wait()
        return await run(log_dir, work, *args, **kwargs)

    brokers[0].disks.run = run_reads_late
    responses: list[Any] = []

    async def fetch_as_a_follower_with_record_1() -> None:
        wanted = FetchPartition(topic_id, 0, 0, 2, 0, 0, 1 << 20)
        request = ReplicaFetchRequest(2, brokers[2].epoch, 100, 1, 1 << 20, (wanted,), 7)
        responses.append(await brokers[0].fetches.fetch(request))

    world.nursery.start_soon(fetch_as_a_follower_with_record_1)
    await trio.sleep(0.01)
    await world.change("t", 0, leader=1, isr=(1, 2))
    for _ in range(3):
        assert (await brokers[1].produce("t", 0, batch())).error == ErrorCode.NONE
    await eventually(lambda: brokers[0].log("t", 0).log_end_offset == 4, "broker 0 follows the new leader")
    slow_disk.set()
    await eventually(lambda: bool(responses), "the fetch is answered")
    [part] = responses[0].partitions
    assert [header.leader_epoch for _, header in iterate(part.records)] == [], "records of epoch 1 on top of record 1 of epoch 0"
    assert part.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_isr_change_that_began_another_leader_epoch_is_pending_until_the_metadata_has_it(
    autojump_clock: Any, world: Any
) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await trio.sleep(1)
    await world.change("t", 0, isr=(0, 1))
    controller = world.controller

    async def answers_with_the_next_epoch(api: int, body: bytes, *, timeout_ms: int) -> bytes:
        if api != Api.ALTER_PARTITION:
            return bytes(await controller(api, body, timeout_ms=timeout_ms))
        [change] = msgspec.msgpack.decode(body, type=AlterPartitionRequest).changes
        isr = tuple(member for member, _ in change.isr)
        result = IsrChangeResult(change.topic_id, 0, 0, 0, change.leader_epoch + 1, isr, 0, change.partition_epoch + 1)
        return msgspec.msgpack.encode(AlterPartitionResponse(0, None, (result,)))

    world.controller = answers_with_the_next_epoch
    role = brokers[0].partition("t", 0).role
    assert isinstance(role, LeaderRole)
    await trio.sleep(1)
    brokers[2].scope.cancel()
    await trio.sleep(4)
    answer = await brokers[0].produce("t", 0, batch())
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT, "broker 2 may be in the ISR, and does not have the record"
