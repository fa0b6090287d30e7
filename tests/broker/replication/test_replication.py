"""Followers copy their leaders, in order, through leader changes, and the in-sync set says who has what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.replication.partition import LeaderRole
from kraftlab.broker.upkeep.producer_expiry import ProducerExpiry
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchedPartition, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.metadata.records import RECOVERING, RESOURCE_BROKER
from kraftlab.records.record_batch import Record, build_batch, iterate

from ...helpers.waiting import eventually
from ..conftest import batch, same_data


async def test_an_append_acknowledged_by_all_is_on_every_replica(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    for _ in range(20):
        answer = await brokers[0].produce("t", 0, batch(5))
        assert answer.error == ErrorCode.NONE
        assert all(broker.log("t", 0).log_end_offset >= answer.log_end_offset for broker in brokers)
    assert same_data("t", 0, brokers)


async def test_the_high_watermark_reaches_followers_within_a_round_trip(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await trio.sleep(1)
    begun = trio.current_time()
    answer = await brokers[0].produce("t", 0, batch())
    assert trio.current_time() - begun < 0.02
    await trio.sleep(0.01)
    assert [broker.log("t", 0).high_watermark for broker in brokers] == [answer.log_end_offset] * 3


async def test_a_consumer_sees_nothing_above_the_high_watermark(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    topic_id = await world.create_topic("t", [0, 1, 2])
    await brokers[0].produce("t", 0, batch())
    world.unreachable.add(0)
    await trio.sleep(1)
    await brokers[0].produce("t", 0, batch(), acks=1)
    wanted = FetchPartition(topic_id, 0, -1, 0, -1, -1, 1 << 20)
    response = await brokers[0].fetches.fetch(ReplicaFetchRequest(-1, -1, 0, 1, 1 << 20, (wanted,)))
    [found] = response.partitions
    assert (found.high_watermark, found.log_end_offset) == (1, 2)
    assert len(found.records) == len(batch())


async def test_a_consumer_may_read_from_a_follower_up_to_the_high_watermark_that_it_knows(
    autojump_clock: Any, world: Any
) -> None:
    brokers = await world.add_brokers(3)
    topic_id = await world.create_topic("t", [0, 1], [1, 0])
    sent = batch(3)
    await brokers[0].produce("t", 0, sent)
    await eventually(lambda: brokers[1].log("t", 0).high_watermark == 3, "the follower knows the high watermark")
    world.unreachable.add(1)
    await trio.sleep(1)
    await brokers[0].produce("t", 0, batch(), acks=1)

    async def fetch(broker: int, *, any_replica: bool, epoch: int = -1, offset: int = 0) -> Any:
        wanted = FetchPartition(topic_id, 0, epoch, offset, -1, -1, 1 << 20)
        request = ReplicaFetchRequest(-1, -1, 0, 1, 1 << 20, (wanted,), any_replica=any_replica)
        [found] = (await brokers[broker].fetches.fetch(request)).partitions
        return found

    found = await fetch(1, any_replica=True)
    assert (found.error, found.high_watermark, len(found.records)) == (0, 3, len(sent))
    assert (await fetch(1, any_replica=False)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(2, any_replica=True)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await fetch(1, any_replica=True, epoch=99)).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    beyond = await fetch(1, any_replica=True, offset=9)
    assert beyond.error == ErrorCode.NOT_LEADER_OR_FOLLOWER, "a follower that is behind must not make a consumer start over"


async def test_records_that_only_the_old_leader_had_are_truncated_when_it_follows_the_new_one(
    autojump_clock: Any, world: Any
) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await brokers[0].produce("t", 0, batch(3))
    world.unreachable.add(0)
    await trio.sleep(1)
    for _ in range(4):
        await brokers[0].produce("t", 0, batch(), acks=1)
    await world.change("t", 0, leader=1, isr=(1, 2))
    for _ in range(2):
        assert (await brokers[1].produce("t", 0, batch(2))).error == ErrorCode.NONE
    world.unreachable.clear()
    await eventually(lambda: world.state("t", 0).isr == (1, 2, 0), "broker 0 is back in the ISR")
    assert brokers[0].log("t", 0).log_end_offset == 7
    assert same_data("t", 0, brokers)


async def test_a_leader_that_wrote_nothing_in_its_epoch_can_follow_again(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await brokers[0].produce("t", 0, batch())
    world.unreachable.update((1, 2))
    await world.change("t", 0, leader=1)
    await world.change("t", 0, leader=2)
    world.unreachable.clear()
    assert (await brokers[2].produce("t", 0, batch())).error == ErrorCode.NONE
    assert same_data("t", 0, brokers)


async def test_a_follower_that_stops_fetching_leaves_the_isr_and_comes_back(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    brokers[2].scope.cancel()
    del world.brokers[2]
    sending = trio.current_time()
    answer = await brokers[0].produce("t", 0, batch())
    assert answer.error == ErrorCode.NONE
    assert trio.current_time() - sending > 2, "the append waits until the member has left"
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "broker 2 has left the ISR")
    brokers[2].crash()
    await brokers[2].restart()
    await eventually(lambda: world.state("t", 0).isr == (0, 1, 2), "broker 2 is back in the ISR")
    assert same_data("t", 0, brokers)


@pytest.mark.parametrize(("kind", "is_the_leaders"), [("CreateTime", False), ("LogAppendTime", True)])
async def test_a_topic_stores_the_time_of_the_producer_or_of_the_leader(
    autojump_clock: Any, world: Any, kind: str, is_the_leaders: bool
) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.configure(2, "t", message_timestamp_type=kind)
    answer = await broker.produce("t", 0, batch())
    assert (answer.error, answer.log_append_time_ms > 0) == (ErrorCode.NONE, is_the_leaders)
    [(_, header)] = iterate(broker.log("t", 0).read(0, 1 << 20))
    assert header.max_timestamp_ms == (answer.log_append_time_ms if is_the_leaders else 1)


async def test_the_leaders_file_says_how_long_a_follower_may_lag(autojump_clock: Any, world: Any) -> None:
    leader = await world.add_broker(0, replica_lag_time_max_ms="10000")
    follower = await world.add_broker(1)
    await world.create_topic("t", [0, 1])
    await trio.sleep(1)
    follower.scope.cancel()
    del world.brokers[1]
    cut_off = trio.current_time()
    await leader.produce("t", 0, batch(), acks=1)
    await eventually(lambda: world.state("t", 0).isr == (0,), "the follower has left the ISR", 20)
    assert 9 <= trio.current_time() - cut_off <= 16


async def test_a_member_that_the_controller_has_dropped_does_not_hold_the_high_watermark(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await trio.sleep(1)
    brokers[2].scope.cancel()
    await world.change("t", 0, isr=(0, 1))
    sending = trio.current_time()
    assert (await brokers[0].produce("t", 0, batch())).error == ErrorCode.NONE
    assert trio.current_time() - sending < 0.1


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "silent"])
async def test_a_follower_that_was_refused_and_then_went_does_not_hold_the_high_watermark_for_ever(
    autojump_clock: Any, world: Any, is_fenced: bool
) -> None:
    """It was caught up a moment ago, and might have joined; nothing of the partition itself changes when it goes."""
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    world.refuse_isr_with = ErrorCode.INELIGIBLE_REPLICA
    await world.change("t", 0, isr=(0, 1))
    await trio.sleep(1)
    brokers[2].scope.cancel()
    world.unreachable.add(2)
    sending = trio.current_time()

    async def fence() -> None:
        await trio.sleep(0.5)
        if is_fenced:
            await world.fence(2, True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fence)
        assert (await brokers[0].produce("t", 0, batch())).error == ErrorCode.NONE
    assert 0.4 < trio.current_time() - sending < (0.6 if is_fenced else 5)


async def test_a_fenced_follower_is_not_proposed(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await world.fence(2, True)
    await world.change("t", 0, isr=(0, 1))
    await brokers[0].produce("t", 0, batch())
    await trio.sleep(2)
    assert world.state("t", 0).isr == (0, 1)
    await world.fence(2, False)
    await eventually(lambda: world.state("t", 0).isr == (0, 1, 2), "broker 2 joins once it is unfenced")


async def test_an_isr_change_of_uncertain_fate_is_not_repeated_before_newer_metadata(autojump_clock: Any, world: Any) -> None:
    await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    await trio.sleep(1)
    world.refuse_isr_with = ErrorCode.INVALID_UPDATE_VERSION
    await world.change("t", 0, isr=(0, 1))
    await trio.sleep(3)
    assert len(world.isr_requests) == 1
    world.refuse_isr_with = 0
    await world.change("t", 0, isr=(0, 1))
    await eventually(lambda: world.state("t", 0).isr == (0, 1, 2), "asked again")


async def test_acks_all_is_refused_with_too_few_in_sync_and_acks_one_is_not(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1])
    await world.configure(2, "t", min_insync_replicas="2")
    world.unreachable.add(0)
    await world.change("t", 0, isr=(0,))
    answer = await brokers[0].produce("t", 0, batch())
    assert answer.error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert brokers[0].log("t", 0).log_end_offset == 0
    assert (await brokers[0].produce("t", 0, batch(), acks=1)).error == ErrorCode.NONE


async def test_an_append_that_is_not_replicated_in_time_is_reported_as_written(autojump_clock: Any, world: Any) -> None:
    """Otherwise the producer would send it again and write it twice."""
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1, 2])
    world.unreachable.add(0)
    world.controller_answers = trio.Event()
    answer = await brokers[0].produce("t", 0, batch())
    assert (answer.error, answer.base_offset, answer.log_end_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0, 1)
    assert "it was written" in answer.message.lower()
    assert "nothing was changed" not in answer.message


async def test_a_produce_that_cannot_be_served_says_why(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1])
    assert (await brokers[1].produce("t", 0, batch())).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await brokers[2].produce("t", 0, batch())).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await brokers[0].produce("t", 7, batch())).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await brokers[0].produce("t", 0, batch(), acks=2)).error == ErrorCode.INVALID_REQUIRED_ACKS
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    assert (await brokers[0].produce("t", 0, bytes(damaged))).error == ErrorCode.CORRUPT_MESSAGE


async def test_errors_that_no_producer_waits_for_are_counted_and_logged(autojump_clock: Any, world: Any, caplog: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    assert (await broker.produce("t", 0, batch(), acks=0)).base_offset == 0
    for _ in range(3):
        await broker.produce("t", 0, b"no batch", acks=0)
    assert broker.data_plane.producing.unseen_errors == {ErrorCode.INVALID_RECORD: 3}
    assert len([line for line in caplog.messages if "acks=0 was not written" in line]) == 1


async def test_a_duplicate_is_answered_once_the_first_copy_is_replicated(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await eventually(lambda: bool(brokers[1].replicas.partitions), "the follower is there")
    numbered = build_batch([Record(None, b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=0)
    world.unreachable.add(0)
    assert (await brokers[0].produce("t", 0, numbered, acks=1)).error == ErrorCode.NONE
    answers: list[Any] = []

    async def send_again() -> None:
        answers.append(await brokers[0].produce("t", 0, numbered))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_again)
        await trio.sleep(0.5)
        assert not answers, "the follower lacks it"
        world.unreachable.clear()
    assert [(answer.error, answer.base_offset, answer.log_end_offset) for answer in answers] == [(ErrorCode.NONE, 0, 1)]
    assert brokers[0].log("t", 0).log_end_offset == 1


async def test_a_duplicate_is_found_by_the_next_leader(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    numbered = [build_batch([Record(None, b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=at) for at in range(3)]
    for sent in numbered:
        assert (await brokers[0].produce("t", 0, sent)).error == ErrorCode.NONE
    brokers[0].crash()
    await world.change("t", 0, leader=1, isr=(1,))
    await eventually(lambda: isinstance(brokers[1].partition("t", 0).role, LeaderRole), "the next leader leads")
    assert (await brokers[1].produce("t", 0, numbered[1])).base_offset == 1
    assert brokers[1].log("t", 0).log_end_offset == 3


async def test_a_fetch_with_another_leader_epoch_learns_which_side_is_behind(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    topic_id = await world.create_topic("t", [0, 1])
    await world.change("t", 0, leader=0)
    for epoch, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        wanted = FetchPartition(topic_id, 0, epoch, 0, -1, 0, 1 << 20)
        response = await brokers[0].fetches.fetch(ReplicaFetchRequest(1, 1, 0, 1, 1 << 20, (wanted,)))
        assert [part.error for part in response.partitions] == [error]


async def test_a_follower_behind_the_leaders_log_start_starts_over(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1])
    world.unreachable.add(0)
    await world.change("t", 0, isr=(0,))
    for _ in range(10):
        await brokers[0].produce("t", 0, batch())
    brokers[0].log("t", 0).advance_log_start(6)
    world.unreachable.clear()
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "broker 1 is in sync")
    assert brokers[1].log("t", 0).log_start_offset == 6
    assert same_data("t", 0, brokers[:2])


async def test_a_follower_that_the_log_start_passes_while_it_is_read_starts_over(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    world.unreachable.add(0)
    await world.change("t", 0, isr=(0,))
    for _ in range(3):
        await brokers[0].produce("t", 0, batch())
    leader, follower, starts = brokers[0].log("t", 0), brokers[1].log("t", 0), list[int]()
    read, start_over = leader.read_or_place, follower.truncate_fully_and_start_at

    def read_late(*arguments: Any, **options: Any) -> Any:
        leader.advance_log_start(2)
        return read(*arguments, **options)

    def note_start(offset: int) -> None:
        starts.append(offset)
        start_over(offset)

    monkeypatch.setattr(leader, "read_or_place", read_late)
    monkeypatch.setattr(follower, "truncate_fully_and_start_at", note_start)
    world.unreachable.clear()
    await eventually(lambda: world.state("t", 0).isr == (0, 1), "broker 1 is in sync")
    assert starts == [2]


async def test_replicas_come_and_go_by_the_metadata_alone(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", [0, 1])
    await brokers[0].produce("t", 0, batch())
    await world.change("t", 0, replicas=(0, 1, 2), directories=(*world.state("t", 0).directories, b"\0" * 15 + b"\1"))
    await eventually(lambda: 2 in world.state("t", 0).isr, "broker 2 has been filled")
    await world.change("t", 0, replicas=(0, 1), isr=(0, 1), directories=world.state("t", 0).directories[:2])
    assert all("-delete" in name for name in brokers[2].directories())
    old = world.image.topics.by_name["t"]
    await world.delete_topic("t")
    assert await world.create_topic("t", [0, 1]) != old
    assert brokers[0].log("t", 0).log_end_offset == 0


async def test_the_controller_learns_where_each_replica_was_placed(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(3)
    await world.create_topic("t", *([[0, 1]] * 4))

    def placed() -> bool:
        return all(
            world.state("t", number).directory_of(broker.broker_id) == broker.log("t", number).directory_id
            for number in range(4)
            for broker in brokers[:2]
        )

    await eventually(placed, "the metadata names the real directories")
    used = {broker.log("t", number).log_dir for number in range(4) for broker in brokers[:1]}
    assert used == set(brokers[0].dirs)


async def test_a_leader_whose_metadata_comes_late_is_asked_again_soon(autojump_clock: Any, world: Any, monkeypatch: Any) -> None:
    """Also by a follower that has nothing else to ask of it."""
    brokers = follower, leader = await world.add_brokers(2)
    await world.create_topic("t", [follower.broker_id, leader.broker_id])
    await trio.sleep(5)
    publish = leader.publish

    async def publish_late(publication: Any) -> None:
        await trio.sleep(0.3)
        await publish(publication)

    monkeypatch.setattr(leader, "publish", publish_late)
    await world.change("t", 0, leader=leader.broker_id)
    with trio.fail_after(2):
        assert (await leader.produce("t", 0, batch())).error == ErrorCode.NONE
    assert same_data("t", 0, brokers)


async def test_an_error_that_no_table_knows_holds_up_its_own_partition_only(
    autojump_clock: Any, world: Any, monkeypatch: Any, caplog: Any
) -> None:
    brokers = await world.add_brokers(3)
    topic_id = await world.create_topic("t", [0, 1], [0, 1])
    fetches, asked = brokers[0].fetches, []
    fetch, errors = fetches.fetch, iter([int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])

    async def fetch_with_an_error(request: ReplicaFetchRequest, *rest: Any) -> ReplicaFetchResponse:
        response = await fetch(request, *rest)
        asked.extend(part.partition for part in request.partitions)
        parts = (
            FetchedPartition(topic_id, 0, next(errors, 777)) if part.partition == 0 else part for part in response.partitions
        )
        return msgspec.structs.replace(response, partitions=tuple(parts))

    monkeypatch.setattr(fetches, "fetch", fetch_with_an_error)
    for number in (0, 1):
        await brokers[0].produce("t", number, batch(), acks=1)
    await eventually(lambda: same_data("t", 1, brokers[:2]), "the other partition is copied")
    await eventually(lambda: asked.count(0) > 2, "the one with the error is tried again")
    assert not same_data("t", 0, brokers[:2])
    assert [line for line in caplog.messages if "777" in line] == ["t-0: the leader answered UNKNOWN(777); trying again"]
    monkeypatch.undo()
    await eventually(lambda: same_data("t", 0, brokers[:2]), "it is copied when the error is gone")


async def test_a_broker_that_ends_while_a_disk_makes_its_logs_takes_up_no_part(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fetchers may have ended by then."""
    broker, ends = await world.add_broker(0), trio.CancelScope()
    run = broker.disks.run

    async def run_to_its_end(log_dir: Any, *work: Any, **options: Any) -> Any:
        ends.cancel()
        with trio.CancelScope(shield=True):
            return await run(log_dir, *work, **options)

    monkeypatch.setattr(broker.disks, "run", run_to_its_end)
    with ends:
        await world.create_topic("t", [0], [1, 0])
    assert {path.rpartition("/")[2] for path in broker.directories()} == {"t-0", "t-1"}
    assert not broker.replicas.partitions


async def test_producers_expire_as_configured_now(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    numbered = build_batch([Record(None, b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=0)
    await broker.produce("t", 0, numbered)
    expiry, now_ms = ProducerExpiry(broker.replicas, broker.configs), wall_clock_ms()
    assert await expiry.check(now_ms + 3_600_000) == 0
    await world.configure(RESOURCE_BROKER, "", producer_id_expiration_ms="60000")
    assert await expiry.check(now_ms + 3_600_000) == 1
    assert (await broker.produce("t", 0, numbered)).base_offset == 1, "unknown again, as in Kafka"


async def test_records_that_a_truncation_removes_are_counted_and_logged(autojump_clock: Any, world: Any, caplog: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await brokers[0].produce("t", 0, batch(3))
    world.unreachable.add(0)
    await brokers[0].produce("t", 0, batch(2), acks=1)
    await world.change("t", 0, leader=1, isr=(1,))
    world.unreachable.clear()
    await brokers[1].produce("t", 0, batch(1), acks=1)
    await eventually(lambda: same_data("t", 0, brokers), "the former leader follows")
    losses = brokers[0].partition("t", 0).losses
    assert (losses.truncations, losses.records, losses.acknowledged) == (1, 2, 0)
    assert any("t-0 lost offsets 3 to 4 in a truncation: 2 records, 0 of them below" in line for line in caplog.messages)
    assert not brokers[1].partition("t", 0).losses


async def test_an_unclean_election_is_counted_and_logged(autojump_clock: Any, world: Any, caplog: Any) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.change("t", 0, leader=0, isr=(0,), leader_recovery_state=RECOVERING)
    assert broker.partition("t", 0).losses.unclean_elections == 1
    assert any("leads after an unclean election" in line for line in caplog.messages)
    described = await broker.log_dirs_api.describe(admin_pb2.DescribeLogDirsRequest())
    (replica,) = (replica for entry in described.results for topic in entry.topics for replica in topic.partitions)
    assert replica.lost.unclean_elections == 1
