"""Brokers that restart, cleanly or not, brokers that are unregistered, cordoned directories, producer ids."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.cluster import brokers, directories, producer_ids
from kraftlab.controller.cluster.describe import describe
from kraftlab.controller.engine.state import Outcome
from kraftlab.metadata import codec
from kraftlab.metadata.peer_rpc import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AssignReplicasToDirsRequest,
    DirectoryAssignment,
)
from kraftlab.metadata.records import (
    RECOVERING,
    AnyRecord,
    BrokerRegistrationChange,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    UnregisterBroker,
)


def written(cluster: Any, since: int) -> list[AnyRecord]:
    return [record for batch in cluster.quorum.batches[since:] if batch.body for record in codec.decode(batch.body)]


def sets(cluster: Any, name: str = "t") -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(ISR, ELR, leader)."""
    partition = cluster.partition(name)
    return partition.isr, tuple(sorted(partition.elr)), partition.leader


async def assign(cluster: Any, broker_id: int, name: str, number: int, directory: bytes) -> None:
    """The broker reports the directory of a replica."""
    entry = DirectoryAssignment(directory, cluster.controller.newest.image.topics.get(name).topic_id, number)
    request = AssignReplicasToDirsRequest(broker_id, cluster.broker(broker_id).epoch, (entry,))
    response = await cluster.write(directories.assign, request)
    assert response.results[0].error == ErrorCode.NONE


@pytest.fixture
async def last_one(five: Any) -> Any:
    """Partition t-0 on brokers 1 to 3 with min.insync.replicas 2. Broker 3 stopped first, then 2, then 1: no replica is in
    sync.
    """
    await five.create("t", (1, 2, 3), min_insync_replicas="2")
    await five.stop_broker(3)
    await five.stop_broker(2)
    assert sets(five) == ((1,), (2,), 1)
    await five.stop_broker(1)
    assert sets(five) == ((), (1, 2), -1)
    return five


# --- clean and unclean restarts ----------------------------------------------------------------------------------------------


async def test_after_a_clean_stop_a_broker_keeps_its_claim_and_is_elected_when_it_is_unfenced(last_one: Any) -> None:
    batches, old = len(last_one.quorum.batches), last_one.broker(2).epoch
    await last_one.register(2, 2, previous_broker_epoch=old)
    assert [type(record) for record in written(last_one, batches)] == [RegisterBroker]
    assert sets(last_one) == ((), (1, 2), -1)
    await last_one.heartbeat(2)
    assert sets(last_one) == ((2,), (1,), 2)


@pytest.mark.parametrize("claimed_epoch", [-1, 0, 10_000])
async def test_after_any_other_stop_a_broker_has_no_claim(last_one: Any, claimed_epoch: int) -> None:
    batches, first_offset = len(last_one.quorum.batches), last_one.quorum.end_offset
    epoch = await last_one.register(2, 2, previous_broker_epoch=claimed_epoch)
    assert [type(record) for record in written(last_one, batches)] == [PartitionChange, RegisterBroker]
    assert epoch == first_offset, "the first record's offset"
    assert last_one.broker(2).registration_offset == first_offset + 1
    assert sets(last_one) == ((), (1,), -1)
    await last_one.heartbeat(2)
    assert sets(last_one) == ((), (1,), -1), "it may have lost what was acknowledged"
    await last_one.register(1, 2, previous_broker_epoch=last_one.broker(1).epoch)
    await last_one.heartbeat(1)
    assert sets(last_one) == ((1,), (), 1)


async def test_an_epoch_that_was_clean_once_does_not_count_after_another_registration(last_one: Any) -> None:
    clean = last_one.broker(2).epoch
    await last_one.register(2, 2, previous_broker_epoch=clean)
    await last_one.register(2, 3, previous_broker_epoch=clean)
    assert sets(last_one) == ((), (1,), -1)


async def test_the_last_known_leader_is_remembered_through_unclean_restarts(last_one: Any) -> None:
    for broker_id in (1, 2):
        await last_one.register(broker_id, 2)
    partition = last_one.partition("t")
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (), (1,))


async def test_a_clean_restart_that_nobody_noticed_hands_its_leaderships_over(five: Any) -> None:
    await five.create("t", (1, 2))
    await five.register(1, 2, previous_broker_epoch=five.broker(1).epoch)
    assert sets(five) == ((2,), (), 2)
    assert five.broker(1).fenced


async def test_a_clean_restart_without_a_directory_gives_up_its_replicas(cluster: Any, tools: Any) -> None:
    """A disk was taken out of log.dirs: the broker creates the replica again, empty, in another directory."""
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    await cluster.start_brokers(2)
    await cluster.create("t", (1, 2), (1, 2), min_insync_replicas="2")
    for number, directory in enumerate((first, second)):
        await assign(cluster, 1, "t", number, directory)
    await cluster.stop_broker(1)
    await cluster.stop_broker(2)
    assert [cluster.partition("t", number).elr for number in (0, 1)] == [(1, 2), (1, 2)]
    await cluster.register(1, 2, log_dirs=(second,), previous_broker_epoch=cluster.broker(1).epoch)
    assert [cluster.partition("t", number).elr for number in (0, 1)] == [(2,), (1, 2)]
    await cluster.heartbeat(1)
    await assign(cluster, 1, "t", 0, second)
    assert [cluster.partition("t", number).leader for number in (0, 1)] == [-1, 1]
    await cluster.heartbeat(2)
    assert cluster.partition("t", 0).leader == 2


async def test_a_clean_restart_without_a_directory_that_nobody_noticed(cluster: Any, tools: Any) -> None:
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    await cluster.start_brokers(2)
    await cluster.create("t", (1, 2), (1, 2), min_insync_replicas="2")
    for number, directory in enumerate((first, second)):
        await assign(cluster, 1, "t", number, directory)
    await cluster.pass_time(9001)
    await cluster.heartbeat(2)
    await cluster.register(1, 2, log_dirs=(second,), previous_broker_epoch=cluster.broker(1).epoch)
    assert [(cluster.partition("t", number).isr, cluster.partition("t", number).elr) for number in (0, 1)] == [
        ((2,), ()),
        ((2,), (1,)),
    ]


async def test_an_unclean_restart_that_nobody_noticed_leaves_isr_and_elr(five: Any) -> None:
    await five.create("t", (1, 2), min_insync_replicas="2")
    await five.register(1, 2)
    assert sets(five) == ((2,), (), 2)


async def test_the_same_incarnation_registering_again_keeps_its_claim(five: Any) -> None:
    await five.create("t", (1, 2))
    before = sets(five)
    await five.register(1, previous_broker_epoch=-1)
    assert sets(five) == before


async def test_a_registration_that_changes_very_many_partitions_is_one_for_readers(small_batches: Any) -> None:
    five = small_batches
    await five.start_brokers(0, 1, 2, 3, 4)
    await five.create("t", (1, 2), (1, 3), (1, 4))
    request = five.registration(1, 2)
    table = five.controller.heartbeats
    batches = len(five.quorum.batches)
    answer = five.controller.write("register", lambda state, context: brokers.register(state, table, request, context))
    assert len(five.quorum.batches) - batches == 3, "Begin, three partitions, RegisterBroker, End"
    await five.commit(2)
    seen = five.controller.committed.image.topics.get("t").partitions
    assert [seen[number].leader for number in range(3)] == [1, 1, 1]
    response = await five.done(answer)
    assert five.broker(1).epoch == response.broker_epoch
    assert [five.partition("t", number).leader for number in range(3)] == [2, 3, 4]


# --- unregistering -----------------------------------------------------------------------------------------------------------


async def unregister(cluster: Any, broker_id: int, expected: int | None = None) -> pb.UnregisterBrokerResponse:
    request = pb.UnregisterBrokerRequest(broker_id=broker_id, expected_broker_epoch=expected)
    response = await cluster.write(brokers.unregister, request)
    assert isinstance(response, pb.UnregisterBrokerResponse)
    return response


async def test_an_unregistered_broker_is_gone_and_may_come_back(five: Any) -> None:
    await five.create("t", (1, 2), min_insync_replicas="2")
    batches = len(five.quorum.batches)
    response = await unregister(five, 1)
    assert response.header.HasField("error_message") and response.header.error_message == ""
    assert [type(record) for record in written(five, batches)] == [PartitionChange, UnregisterBroker]
    assert five.partition("t").replicas == (1, 2), "replica lists are not edited"
    assert sets(five) == ((2,), (), 2)
    assert 1 not in five.controller.committed.image.cluster.brokers
    with pytest.raises(ApiError) as caught:
        await unregister(five, 1)
    assert (caught.value.code, caught.value.message) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 1 is not currently registered",
    )
    await five.register(1, 2)
    await five.heartbeat(1)
    assert not five.broker(1).fenced


async def test_a_broker_that_waits_in_an_elr_leaves_it_when_it_is_unregistered(last_one: Any) -> None:
    await unregister(last_one, 2)
    assert sets(last_one) == ((), (1,), -1)


async def test_a_registration_newer_than_the_one_that_was_looked_at_is_not_taken_out(five: Any) -> None:
    seen = five.broker(1).epoch
    await five.register(1, 2)
    with pytest.raises(ApiError) as caught:
        await unregister(five, 1, expected=seen)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert "registered again" in caught.value.message
    await unregister(five, 1, expected=five.broker(1).epoch)
    assert 1 not in five.controller.newest.image.cluster.brokers


async def test_unregistering_a_broker_that_is_being_added_leaves_the_move_listed(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.stop_broker(4)
    assert (await five.reassign("t", (0, 4)))[0] == 0
    await unregister(five, 4)
    assert five.state("t") == ((0, 4, 1), (0, 1), 0, (4,), (1,))
    assert (await five.reassign("t", None))[0] == 0
    assert five.partition("t").replicas == (0, 1)


# --- heartbeats --------------------------------------------------------------------------------------------------------------


async def test_heartbeats_that_expire_in_the_queue_are_counted(five: Any) -> None:
    five.controller.queue.hold()
    answer = five.controller.heartbeat(five.beat(1, want_fence=True, current_metadata_offset=10_000))
    five.clock.now_ms += five.settings.heartbeat_interval_ms // 2
    five.controller.queue.resume()
    assert answer.error.code is ErrorCode.REQUEST_TIMED_OUT
    assert five.controller.statistics().heartbeats_timed_out == 1
    assert not five.broker(1).fenced
    contact = five.controller.heartbeats.contact(1)
    assert contact.metadata_offset == 10_000, "what it reported counts"


async def test_a_cordoned_directory_is_noted_once(cluster: Any, tools: Any) -> None:
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    batches = len(cluster.quorum.batches)
    for _ in range(2):
        await cluster.heartbeat(1, cordoned_log_dirs=(second, b"s" * 16))
    assert written(cluster, batches) == [
        BrokerRegistrationChange(0, 1, cluster.broker(1).epoch, cordoned_log_dirs=(second,)),
    ]
    assert not cluster.broker(1).is_cordoned
    await cluster.heartbeat(1, cordoned_log_dirs=(second, first))
    assert cluster.broker(1).is_cordoned
    await cluster.heartbeat(1)
    assert cluster.broker(1).is_cordoned, "a heartbeat that does not tell changes nothing"
    await cluster.register(1, log_dirs=(first, second), rack="r")
    assert cluster.broker(1).is_cordoned, "a refresh keeps it"
    await cluster.heartbeat(1, cordoned_log_dirs=())
    assert cluster.broker(1).cordoned_log_dirs == ()


async def test_a_listing_has_the_last_heartbeats_and_cordoned_directories(five: Any) -> None:
    await five.stop_broker(2)
    await five.heartbeat(3, cordoned_log_dirs=five.broker(3).log_dirs)
    five.clock.now_ms += 700
    await five.heartbeat(1)

    def listed(include_fenced: bool) -> dict[int, Any]:
        request = pb.DescribeClusterRequest(include_fenced_brokers=include_fenced)
        silences_ms = five.controller.silences_ms()
        response = describe(five.controller.committed, request, five.settings, 3000, silences_ms)
        return {broker.broker_id: broker for broker in response.brokers}

    assert sorted(listed(False)) == [0, 1, 3, 4]
    assert {broker_id: broker.silent_ms for broker_id, broker in listed(True).items()} == {0: 700, 1: 0, 2: 700, 3: 700, 4: 700}
    assert list(listed(True)[3].cordoned_log_dirs) == list(listed(True)[3].log_dirs)
    await five.lose_leadership(survives=True)
    assert not listed(True)[1].HasField("silent_ms"), "only the active controller hears brokers"


async def test_cordons_and_a_change_of_state_in_one_heartbeat(cluster: Any, tools: Any) -> None:
    await cluster.register(1)
    response = await cluster.heartbeat(1, cordoned_log_dirs=(tools.directory(1, 0),))
    assert not response.is_fenced and not cluster.broker(1).fenced
    assert cluster.broker(1).is_cordoned


# --- producer ids ------------------------------------------------------------------------------------------------------------


async def test_producer_ids_are_given_in_blocks_that_never_overlap(five: Any) -> None:
    starts = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id, five.broker(broker_id).epoch)
        response = await five.write(producer_ids.allocate_for_broker, request)
        assert isinstance(response, AllocateProducerIdsResponse)
        starts.append((response.producer_id_start, response.producer_id_len))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert five.controller.committed.image.next_producer_id == 3000
    await five.lose_leadership(survives=True)
    await five.lead()
    by_hand = pb.AllocateProducerIdsRequest(broker_id=3, broker_epoch=five.broker(3).epoch)
    response = await five.write(producer_ids.allocate, by_hand)
    assert (response.producer_id_start, response.producer_id_len) == (3000, 1000)  # type: ignore[attr-defined]


async def test_a_block_whose_answer_is_lost_is_not_given_again(five: Any) -> None:
    request = AllocateProducerIdsRequest(1, five.broker(1).epoch)
    lost = five.controller.write("ids", lambda state, context: producer_ids.allocate_for_broker(state, request, context))
    await five.lose_leadership(survives=True)
    assert lost.error.code is ErrorCode.NOT_CONTROLLER
    await five.lead()
    response = await five.write(producer_ids.allocate_for_broker, request)
    assert response.producer_id_start == 1000  # type: ignore[attr-defined]


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, -1), (99, 1), (1, 999_999)])
async def test_producer_ids_are_for_registered_brokers_only(five: Any, broker_id: int, epoch: int) -> None:
    with pytest.raises(ApiError) as caught:
        await five.write(producer_ids.allocate, pb.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_after_the_last_producer_id_none_is_given_twice(five: Any) -> None:
    epoch = five.broker(1).epoch
    last = producer_ids.HIGHEST_PRODUCER_ID - producer_ids.BLOCK_SIZE + 1
    await five.write(lambda state, request, context: Outcome([ProducerIds(0, 1, epoch, last)], True), None)
    with pytest.raises(ApiError, match="Exhausted all producer ids"):
        await five.write(producer_ids.allocate, pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))


# --- any history -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
async def test_after_an_unclean_restart_a_broker_has_no_claim_until_it_is_in_sync_again(five: Any, seed: int) -> None:
    """Stops, restarts of both kinds, unregistrations, cordons and failovers in any order. The model remembers, per partition,
    which brokers may have lost acknowledged records. The fixture checks the invariants after every commit.
    """
    source = random.Random(seed)
    await five.create("t", (0, 1, 2), (1, 2, 3), (2, 3, 4), min_insync_replicas="2")
    suspects: list[set[int]] = [set(), set(), set()]
    incarnations = dict.fromkeys(range(5), 1)

    async def restart(broker_id: int, *, clean: bool) -> None:
        incarnations[broker_id] += 1
        known = five.controller.newest.image.cluster.brokers.get(broker_id)
        claimed_epoch = known.epoch if clean and known is not None else -1
        await five.register(broker_id, incarnations[broker_id], previous_broker_epoch=claimed_epoch)
        if claimed_epoch == -1:
            for index in range(3):
                suspects[index].add(broker_id)

    for _ in range(80):
        broker_id, index = source.randrange(5), source.randrange(3)
        registered = broker_id in five.controller.newest.image.cluster.brokers
        partition = five.partition("t", index)
        match source.randrange(9):
            case 0 | 1:
                await restart(broker_id, clean=source.random() < 0.5)
            case 2 | 3 if registered:
                await five.heartbeat(broker_id)
            case 4 if registered:
                await five.heartbeat(broker_id, want_fence=True)
            case 5 if registered and source.random() < 0.3:
                await unregister(five, broker_id)
                for suspect in suspects:
                    suspect.add(broker_id)
            case 6 if registered:
                cordoned = source.choice([(), five.broker(broker_id).log_dirs])
                await five.heartbeat(broker_id, want_fence=five.broker(broker_id).fenced, cordoned_log_dirs=cordoned)
            case 7 if partition.leader >= 0:
                brokers_now = five.controller.newest.image.cluster.brokers
                live = [b for b in partition.replicas if b in brokers_now and brokers_now[b].is_active and b != partition.leader]
                joined = source.sample(live, source.randint(0, len(live)))
                if await five.set_isr("t", (partition.leader, *joined), index) == ErrorCode.NONE:
                    suspects[index] -= {partition.leader, *joined}
            case 8 if source.random() < 0.3:
                await five.lose_leadership(survives=True)
                await five.lead()
        for number, suspect in enumerate(suspects):
            now = five.partition("t", number)
            if now.leader_recovery_state == RECOVERING:
                suspect -= {now.leader}  # The last known leader leads: its log is the only one left.
            assert not suspect & {*now.isr, *now.elr}, f"partition {number}: {now}"
            assert now.leader not in suspect


async def test_a_directory_that_is_gone_is_not_cordoned_any_more(cluster: Any, tools: Any) -> None:
    first, second = tools.directory(0, 0), tools.directory(0, 1)
    await cluster.start_brokers(0, log_dirs=(first, second))
    await cluster.heartbeat(0, cordoned_log_dirs=(first, second))
    await cluster.heartbeat(0, offline_log_dirs=(first,))
    assert (cluster.broker(0).log_dirs, cluster.broker(0).cordoned_log_dirs) == ((second,), (second,))
    await cluster.register(0, log_dirs=(first,))
    assert (cluster.broker(0).log_dirs, cluster.broker(0).cordoned_log_dirs) == ((first,), ())
