"""Registration, heartbeats, fencing, controlled shutdown and directories, through the controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kraftlab.common.errors import ApiError, ErrorCode, InvariantViolation
from kraftlab.common.uuids import LOST, UNASSIGNED
from kraftlab.controller.cluster import brokers, controllers, directories
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    ControllerRegistrationRequest,
    DirectoryAssignment,
)
from kraftlab.metadata.records import (
    RECOVERING,
    BrokerRegistrationChange,
    FeatureLevel,
    Listener,
    PartitionChange,
    RegisterBroker,
)
from kraftlab.quorum.driver.errors import NotLeader


async def refused(cluster: Any, broker_id: int, incarnation: int = 1, **changes: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await cluster.register(broker_id, incarnation, **changes)
    return caught.value


# --- registration -----------------------------------------------------------------------------------------------------------


async def test_the_broker_epoch_is_the_offset_of_the_first_record_and_a_new_broker_is_fenced(cluster: Any) -> None:
    expected = cluster.quorum.end_offset
    assert await cluster.register(1) == expected
    assert cluster.broker(1).fenced
    assert cluster.broker(1).registration_offset == expected


async def test_the_same_incarnation_keeps_epoch_and_flags_and_refreshes_the_rest(five: Any) -> None:
    before = five.broker(1)
    assert await five.register(1, rack="r9") == before.epoch
    assert five.broker(1).rack == "r9"
    assert not five.broker(1).fenced


async def test_a_new_incarnation_gets_a_higher_epoch_and_is_fenced(five: Any) -> None:
    old = five.broker(1).epoch
    await five.stop_broker(1)
    assert await five.register(1, 2) > old
    assert five.broker(1).fenced


async def test_a_live_broker_is_not_replaced_by_another_incarnation(five: Any) -> None:
    error = await refused(five, 1, 2, log_dirs=(b"another directory"[:16],))
    assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "9000 ms" in error.message


async def test_copied_directories_on_another_machine_do_not_replace_a_live_broker(five: Any) -> None:
    error = await refused(five, 1, 2, listeners=(Listener("PEER", "elsewhere", 9092),))
    assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_an_incarnation_that_holds_directories_and_endpoints_of_a_live_one_replaces_it_at_once(five: Any) -> None:
    await five.create("t", (1, 2))
    old = five.broker(1).epoch
    assert await five.register(1, 2) > old
    assert five.broker(1).fenced
    assert five.state("t") == ((1, 2), (2,), 2, (), ())


async def test_a_silent_broker_is_replaced_even_before_it_is_fenced_and_leads_nothing_then(five: Any) -> None:
    await five.create("t", (1, 2))
    five.clock.now_ms += 9001
    for broker_id in (0, 2, 3, 4):
        five.controller.heartbeats.note_contact(broker_id, 0, five.clock.now_ms)
    five.controller.queue.cancel("fence stale brokers")
    first = five.quorum.end_offset
    assert await five.register(1, 2) == first
    assert five.broker(1).registration_offset == first + 1, "the partition changes come first"
    assert five.state("t") == ((1, 2), (2,), 2, (), ())


async def test_registration_checks_come_in_order(five: Any) -> None:
    everything_wrong: dict[str, Any] = {"cluster_id": "other", "log_dirs": (), "features": ()}
    error = await refused(five, 1, 2, **everything_wrong)
    assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "other" in error.message
    del everything_wrong["cluster_id"]
    assert (await refused(five, 1, 2, **everything_wrong)).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert (await refused(five, 1, 1, **everything_wrong)).code is ErrorCode.INVALID_REGISTRATION
    del everything_wrong["log_dirs"]
    assert (await refused(five, 1, 1, **everything_wrong)).code is ErrorCode.UNSUPPORTED_VERSION


async def test_directories_must_be_valid_distinct_and_not_of_another_broker(five: Any, tools: Any) -> None:
    own, others = tools.directory(7, 0), tools.directory(1, 0)
    for log_dirs, word in [((), "no log directory"), ((own, own), "twice"), ((UNASSIGNED,), "reserved"), ((others,), "broker 1")]:
        error = await refused(five, 7, log_dirs=log_dirs)
        assert error.code is ErrorCode.INVALID_REGISTRATION
        assert word in error.message
    await five.register(1, log_dirs=(others, own))
    assert five.broker(1).log_dirs == tuple(sorted((others, own)))


async def test_a_broker_must_support_every_finalized_level(cluster: Any) -> None:
    everything = {name: (name, lowest, highest) for name, lowest, highest in supported_features()}

    def without(name: str, *instead: tuple[str, int, int]) -> tuple[tuple[str, int, int], ...]:
        return (*(entry for key, entry in everything.items() if key != name), *instead)

    for name, instead, range_and_level in [
        ("metadata.version", (), "1 to 1, and the cluster's level is 30"),
        ("metadata.version", (("metadata.version", 7, 29),), "7 to 29, and the cluster's level is 30"),
        ("group.version", (), "0 to 0, and the cluster's level is 1"),
        ("kraft.version", (("kraft.version", 0, 0),), "0 to 0, and the cluster's level is 1"),
    ]:
        error = await refused(cluster, 1, features=without(name, *instead))
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert f"{name} {range_and_level}" in error.message
    more = without("metadata.version", ("metadata.version", 7, 31), ("x.version", 0, 3))
    await cluster.register(1, features=more)
    assert cluster.broker(1).features == tuple(sorted(more)), "what the controller does not know is kept"


# --- heartbeats -------------------------------------------------------------------------------------------------------------


async def test_heartbeats_of_strangers_and_old_incarnations_are_refused(five: Any) -> None:
    for changes in ({"broker_epoch": five.broker(1).epoch - 1}, {"broker_id": 9, "broker_epoch": 1}):
        answer = five.controller.heartbeat(msgspec.structs.replace(five.beat(1), **changes))
        with pytest.raises(ApiError) as caught:
            await five.done(answer)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_a_broker_is_unfenced_once_it_has_applied_its_registration(cluster: Any) -> None:
    await cluster.register(1)
    at = cluster.broker(1).registration_offset
    behind = await cluster.heartbeat(1, current_metadata_offset=at)
    assert behind == BrokerHeartbeatResponse(0, None, is_caught_up=False, is_fenced=True)
    waiting = await cluster.heartbeat(1, current_metadata_offset=at + 1, want_fence=True)
    assert waiting == BrokerHeartbeatResponse(0, None, is_caught_up=True, is_fenced=True)
    ready = await cluster.heartbeat(1, current_metadata_offset=at + 1)
    assert ready == BrokerHeartbeatResponse(0, None, is_caught_up=True, is_fenced=False)
    assert cluster.broker(1).is_active


async def test_a_heartbeat_that_changes_nothing_writes_nothing_and_does_not_wait(five: Any) -> None:
    await five.create("t", (1, 2))
    five.controller.queue.hold()
    end = five.quorum.end_offset
    answer = five.controller.heartbeat(five.beat(3))
    assert answer.done and not answer.value.is_fenced
    assert five.quorum.end_offset == end
    assert five.controller.statistics().quick_heartbeats >= 1


async def test_a_heartbeat_does_not_reveal_an_unfencing_that_is_not_committed(cluster: Any) -> None:
    await cluster.register(1)
    first = cluster.controller.heartbeat(cluster.beat(1))
    second = cluster.controller.heartbeat(cluster.beat(1))
    assert not first.done and not second.done
    await cluster.commit()
    assert not first.value.is_fenced and not second.value.is_fenced


async def test_contact_is_noted_at_arrival_even_if_the_queue_is_held(five: Any) -> None:
    five.controller.queue.hold()
    five.clock.now_ms += 8000
    five.controller.heartbeat(five.beat(1, want_fence=True))
    assert five.controller.heartbeats.contact(1).last_contact_ms == five.clock.now_ms


async def test_a_heartbeat_that_waits_too_long_is_dropped_but_counts_as_contact(five: Any) -> None:
    five.controller.queue.hold()
    answer = five.controller.heartbeat(five.beat(1, want_fence=True))
    five.clock.now_ms += 1000
    five.controller.queue.run_due()
    assert answer.error.code is ErrorCode.REQUEST_TIMED_OUT
    assert not five.broker(1).fenced


async def test_a_broker_that_wants_to_be_fenced_leaves_isr_and_leadership_before_it_is_marked(five: Any) -> None:
    await five.create("t", (1, 2, 3), (2, 3, 1))
    start = len(five.quorum.batches)
    await five.stop_broker(1)
    assert five.state("t", 0) == ((1, 2, 3), (2, 3), 2, (), ())
    assert five.state("t", 1) == ((2, 3, 1), (2, 3), 2, (), ())
    assert five.partition("t", 1).leader_epoch == 0, "a mere shrink leaves the leader epoch"
    assert len(five.quorum.batches) == start + 1


async def test_fencing_all_brokers_keeps_the_last_isr_member_eligible_and_unfencing_it_restores_the_leader(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    for broker_id in (1, 2, 3):
        await five.stop_broker(broker_id)
    assert five.state("t") == ((1, 2, 3), (), -1, (), ())
    assert (five.partition("t").elr, five.partition("t").last_known_elr) == ((3,), (3,))
    await five.heartbeat(1)
    assert five.partition("t").leader == -1, "1 is not in sync"
    await five.heartbeat(3)
    assert five.state("t") == ((1, 2, 3), (3,), 3, (), ())


# --- sessions ---------------------------------------------------------------------------------------------------------------


async def test_fencing_that_the_log_refuses_waits_before_it_tries_again(five: Any) -> None:
    propose, attempts = five.quorum.propose, 0

    def refuse(epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        nonlocal attempts
        attempts += 1
        if attempts == 10:
            raise InvariantViolation("tried again without a pause")
        raise NotLeader(-1, epoch)

    five.quorum.propose = refuse
    for _ in range(90):
        await five.pass_time(100)
        for broker_id in (0, 2, 3, 4):
            five.controller.heartbeat(five.beat(broker_id))
    await five.pass_time(1)
    assert attempts == 1
    five.quorum.propose = propose
    await five.pass_time(100)
    assert [b for b in range(5) if five.broker(b).fenced] == [1]


async def test_a_silent_broker_is_fenced_when_its_session_ends(five: Any) -> None:
    await five.create("t", (1, 2))
    for _ in range(5):
        await five.pass_time(2000)
        for broker_id in (0, 2, 3, 4):
            await five.heartbeat(broker_id)
    await five.pass_time(150)
    assert [b for b in range(5) if five.broker(b).fenced] == [1]
    assert five.partition("t").leader == 2
    assert five.controller.statistics().brokers_fenced == 1


async def test_all_silent_brokers_are_fenced_although_none_sends_a_heartbeat_after_a_failover(five: Any) -> None:
    await five.lose_leadership(survives=True)
    five.clock.now_ms += 60_000
    await five.lead()
    await five.pass_time(9000)
    assert not any(five.broker(b).fenced for b in range(5)), "a failover gives everybody a session"
    await five.pass_time(1)
    assert all(five.broker(b).fenced for b in range(5))


async def test_a_controller_that_was_stopped_fences_no_broker_for_that_time(five: Any) -> None:
    await five.pass_time(8000)
    await five.pass_time(60_000)
    assert not any(five.broker(b).fenced for b in range(5))
    await five.pass_time(9001)
    assert all(five.broker(b).fenced for b in range(5))


async def test_a_standby_fences_no_broker(five: Any) -> None:
    await five.lose_leadership(survives=True)
    await five.pass_time(60_000)
    assert not any(five.broker(b).fenced for b in range(5))


# --- controlled shutdown ----------------------------------------------------------------------------------------------------


async def test_controlled_shutdown_ends_when_all_active_brokers_have_seen_the_leaderships_move(five: Any) -> None:
    await five.create("t", (1, 2, 3))
    response = await five.heartbeat(1, want_shutdown=True)
    assert not response.should_shutdown and not response.is_fenced
    assert five.state("t") == ((1, 2, 3), (2, 3), 2, (), ())
    assert five.broker(1).in_controlled_shutdown
    moved_at = five.controller.applied_offset
    assert not (await five.heartbeat(1, want_shutdown=True)).should_shutdown
    for broker_id in (0, 2, 3, 4):
        await five.heartbeat(broker_id, current_metadata_offset=moved_at - 1 if broker_id == 4 else moved_at)
    assert not (await five.heartbeat(1, want_shutdown=True)).should_shutdown, "broker 4 has not seen it"
    await five.heartbeat(4, current_metadata_offset=moved_at)
    assert (await five.heartbeat(1, want_shutdown=True)).should_shutdown
    assert five.broker(1).fenced


async def test_a_broker_that_leads_nothing_may_go_at_once(five: Any) -> None:
    assert (await five.heartbeat(1, want_shutdown=True)).should_shutdown
    assert five.broker(1).fenced


async def test_a_partition_without_other_leader_does_not_hold_the_shutdown_up(five: Any) -> None:
    await five.create("t", (1,))
    await five.heartbeat(1, want_shutdown=True)
    assert five.state("t") == ((1,), (), -1, (), ())
    offset = five.controller.applied_offset
    for broker_id in (0, 2, 3, 4):
        await five.heartbeat(broker_id, current_metadata_offset=offset)
    assert (await five.heartbeat(1, want_shutdown=True)).should_shutdown


async def test_the_entry_into_controlled_shutdown_runs_again_on_a_new_active_controller(five: Any) -> None:
    await five.create("t", (1, 2))
    await five.heartbeat(1, want_shutdown=True)
    await five.lose_leadership(survives=True)
    await five.lead()
    writes = five.controller.statistics().writes
    for broker_id in (0, 2, 3, 4):
        await five.heartbeat(broker_id)
    response = await five.heartbeat(1, want_shutdown=True)
    assert response.should_shutdown, "it leads nothing any more"
    assert five.controller.statistics().writes == writes + 1


async def test_a_broker_whose_shutdown_has_begun_leads_nothing_although_it_is_unfenced_again(five: Any) -> None:
    """The broker fell silent during its shutdown, and then a heartbeat from before the shutdown arrives."""
    await five.create("t", (1,))
    await five.heartbeat(1, want_shutdown=True)
    await five.pass_time(9001)
    assert five.broker(1).fenced
    await five.heartbeat(1)
    assert not five.broker(1).fenced
    assert five.broker(1).in_controlled_shutdown
    assert five.partition("t").leader == -1
    await five.register(1, 2, previous_broker_epoch=five.broker(1).epoch)
    await five.heartbeat(1)
    assert five.partition("t").leader == 1


# --- directories ------------------------------------------------------------------------------------------------------------


async def two_dirs(cluster: Any, tools: Any) -> tuple[bytes, bytes]:
    """Brokers 1 and 2; broker 1 has two directories and a replica in each."""
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    await cluster.start_brokers(2)
    await cluster.create("t", (1, 2), (1, 2))
    for index, directory in enumerate((first, second)):
        assert await assign(cluster, 1, "t", index, directory) == ErrorCode.NONE
    return first, second


async def assign(cluster: Any, broker_id: int, topic: str, partition: int, directory: bytes, **changes: Any) -> int:
    known = cluster.controller.newest.image.topics.get(topic)
    topic_id = changes.get("topic_id", known.topic_id if known is not None else b"x" * 16)
    request = AssignReplicasToDirsRequest(
        broker_id, changes.get("epoch", cluster.broker(broker_id).epoch), (DirectoryAssignment(directory, topic_id, partition),)
    )
    response = await cluster.write(directories.assign, request)
    assert isinstance(response, AssignReplicasToDirsResponse)
    return response.results[0].error


async def test_new_replicas_go_to_the_only_directory_or_wait_for_the_brokers_choice(cluster: Any, tools: Any) -> None:
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    await cluster.start_brokers(2)
    await cluster.create("t", (1, 2))
    assert cluster.partition("t").directories == (UNASSIGNED, tools.directory(2, 0))
    assert await assign(cluster, 1, "t", 0, second) == ErrorCode.NONE
    assert cluster.partition("t").directories == (second, tools.directory(2, 0))


async def test_directory_assignments_are_checked(five: Any, tools: Any) -> None:
    await five.create("t", (1, 2))
    there = tools.directory(1, 0)
    assert await assign(five, 1, "t", 0, there, topic_id=b"x" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert await assign(five, 1, "t", 9, there) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await assign(five, 3, "t", 0, there) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as caught:
        await assign(five, 1, "t", 0, there, epoch=0)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_a_known_assignment_writes_nothing(five: Any, tools: Any) -> None:
    await five.create("t", (1, 2))
    before = five.partition("t")
    assert await assign(five, 1, "t", 0, tools.directory(1, 0)) == ErrorCode.NONE
    assert five.partition("t") == before


async def test_a_replica_in_a_lost_or_unknown_directory_leaves_isr_and_leadership(five: Any) -> None:
    await five.create("t", (1, 2), (1, 2))
    assert await assign(five, 1, "t", 0, LOST) == ErrorCode.NONE
    assert await assign(five, 1, "t", 1, b"n" * 16) == ErrorCode.NONE
    assert five.state("t", 0) == five.state("t", 1) == ((1, 2), (2,), 2, (), ())
    await five.create("u", (3,))
    assert await assign(five, 3, "u", 0, LOST) == ErrorCode.NONE
    assert (five.partition("u").isr, five.partition("u").elr, five.partition("u").last_known_elr) == ((), (), (3,))


async def test_where_unclean_elections_are_allowed_a_lost_directory_leads_to_one_at_once(five: Any) -> None:
    await five.create("t", (1, 2), unclean_leader_election_enable="true")
    await five.stop_broker(2)
    await five.heartbeat(2)
    assert five.state("t") == ((1, 2), (1,), 1, (), ())
    assert await assign(five, 1, "t", 0, LOST) == ErrorCode.NONE
    assert five.state("t") == ((1, 2), (2,), 2, (), ())
    assert five.partition("t").leader_recovery_state == RECOVERING


async def test_an_assignment_leaves_the_eligible_leaders_alone(cluster: Any, tools: Any) -> None:
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    await cluster.start_brokers(2, 3)
    await cluster.create("t", (1, 2, 3), min_insync_replicas="3")
    await cluster.stop_broker(3)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1, 2), (3,))
    assert await assign(cluster, 1, "t", 0, second) == ErrorCode.NONE
    assert cluster.partition("t").elr == (3,)
    assert await assign(cluster, 1, "t", 0, LOST) == ErrorCode.NONE
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((2,), (3,)), "1 has lost its log, 3 has not"


async def test_too_many_assignments_are_refused_at_once(five: Any) -> None:
    request = AssignReplicasToDirsRequest(
        1, five.broker(1).epoch, (DirectoryAssignment(LOST, b"x" * 16, 0),) * (directories.MAX_ASSIGNMENTS + 1)
    )
    with pytest.raises(ApiError) as caught:
        await five.write(directories.assign, request)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert "2250" in caught.value.message


async def test_an_offline_directory_takes_its_replicas_out_and_leaves_the_rest(cluster: Any, tools: Any) -> None:
    first, second = await two_dirs(cluster, tools)
    response = await cluster.heartbeat(1, offline_log_dirs=(first, b"s" * 16))
    assert not response.is_fenced
    assert cluster.state("t", 0) == ((1, 2), (2,), 2, (), ())
    assert cluster.state("t", 1) == ((1, 2), (1, 2), 1, (), ())
    assert cluster.broker(1).log_dirs == (second,)
    writes = cluster.controller.statistics().writes
    await cluster.heartbeat(1, offline_log_dirs=(first,))
    assert cluster.controller.statistics().writes == writes, "reported again until acknowledged, handled once"


async def test_a_directory_that_a_repeated_registration_lacks_is_offline(cluster: Any, tools: Any) -> None:
    _, second = await two_dirs(cluster, tools)
    epoch = cluster.broker(1).epoch
    assert await cluster.register(1, log_dirs=(second,)) == epoch
    assert cluster.state("t", 0) == ((1, 2), (2,), 2, (), ())
    assert cluster.state("t", 1) == ((1, 2), (1, 2), 1, (), ())
    assert not cluster.broker(1).fenced


@pytest.mark.parametrize("way", ["heartbeat", "registration"])
async def test_losing_a_directory_of_another_broker_leaves_that_brokers_replicas(cluster: Any, tools: Any, way: str) -> None:
    """A disk was moved to another broker. The metadata still assigns replicas of its first broker to it."""
    moved, _ = await two_dirs(cluster, tools)
    own = tools.directory(2, 0)
    await cluster.heartbeat(1, offline_log_dirs=(moved,))
    await cluster.register(2, log_dirs=(moved, own))
    if way == "heartbeat":
        await cluster.heartbeat(2, offline_log_dirs=(moved,))
    else:
        await cluster.register(2, log_dirs=(own,))
    assert cluster.broker(2).log_dirs == (own,)
    assert cluster.state("t", 0) == ((1, 2), (2,), 2, (), ())


async def test_replicas_in_an_offline_directory_are_not_eligible(cluster: Any, tools: Any) -> None:
    """A repaired directory may come back empty. The broker stays known as the last leader."""
    first, _ = await two_dirs(cluster, tools)
    await cluster.stop_broker(2)
    await cluster.heartbeat(1, offline_log_dirs=(first,))
    assert cluster.state("t", 0) == ((1, 2), (), -1, (), ())
    assert (cluster.partition("t", 0).elr, cluster.partition("t", 0).last_known_elr) == ((), (1,))


async def test_a_directory_that_comes_back_may_lead_partitions_without_a_leader(cluster: Any, tools: Any) -> None:
    first, second = tools.directory(1, 0), tools.directory(1, 1)
    await cluster.start_brokers(1, log_dirs=(first, second))
    await cluster.start_brokers(2)
    await cluster.create("alone", (1,), (1,))
    await cluster.create("shared", (1, 2))
    for topic, index, directory in (("alone", 0, first), ("alone", 1, second), ("shared", 0, first)):
        assert await assign(cluster, 1, topic, index, directory) == ErrorCode.NONE
    epoch = cluster.broker(1).epoch

    def leaders() -> list[int]:
        return [cluster.partition(topic, index).leader for topic, index in (("alone", 0), ("alone", 1), ("shared", 0))]

    await cluster.heartbeat(1, offline_log_dirs=(first,))
    assert leaders() == [-1, 1, 2]
    assert await cluster.register(1, log_dirs=(first, second)) == epoch
    assert cluster.broker(1).log_dirs == tuple(sorted((first, second)))
    assert not cluster.broker(1).fenced
    assert leaders() == [1, 1, 2]
    assert cluster.partition("shared").isr == (2,), "it has to catch up first"


async def test_a_broker_without_any_directory_left_is_fenced(cluster: Any, tools: Any) -> None:
    first, second = await two_dirs(cluster, tools)
    await cluster.create("unplaced", (1, 2))
    await cluster.heartbeat(1, offline_log_dirs=(first, second))
    assert cluster.broker(1).fenced
    assert cluster.state("t", 1) == ((1, 2), (2,), 2, (), ())
    assert cluster.state("unplaced", 0) == ((1, 2), (2,), 2, (), ()), "although nobody knew in which directory it was"


async def test_a_broker_without_any_directory_left_is_not_unfenced_again(cluster: Any, tools: Any) -> None:
    only = tools.directory(1, 0)
    await cluster.start_brokers(1, log_dirs=(only,))
    await cluster.create("t", (1,))
    assert (await cluster.heartbeat(1, offline_log_dirs=(only,))).is_fenced
    assert (await cluster.heartbeat(1)).is_fenced
    assert cluster.broker(1).fenced
    assert cluster.partition("t").leader == -1
    assert (await cluster.heartbeat(1, want_shutdown=True)).should_shutdown
    await cluster.start_brokers(1, incarnation=2)
    assert not cluster.broker(1).fenced


async def test_unfencing_with_a_dead_directory_in_one_heartbeat(cluster: Any, tools: Any) -> None:
    first, second = await two_dirs(cluster, tools)
    await cluster.stop_broker(2)
    await cluster.stop_broker(1)
    assert cluster.partition("t", 0).leader == cluster.partition("t", 1).leader == -1
    response = await cluster.heartbeat(1, offline_log_dirs=(first,))
    assert not response.is_fenced
    assert cluster.partition("t", 0).leader == -1, "its replica lies in the dead directory"
    assert cluster.partition("t", 1).leader == 1
    assert cluster.broker(1).log_dirs == (second,)


async def test_generating_twice_from_one_state_gives_the_same_records_and_changes_nothing(five: Any) -> None:
    await five.create("t", (1, 2))
    before = five.controller.newest
    seen: list[list[type]] = []

    def look(state: ControllerState, context: Context) -> Outcome[None]:
        for _ in range(2):
            outcome = brokers.fence(state, five.controller.heartbeats, 1, context)
            seen.append([type(record) for record in outcome.records])
        raise ApiError(ErrorCode.POLICY_VIOLATION, "only looking")

    five.controller.write("look", look)
    assert five.controller.newest is before
    assert seen == [[PartitionChange, BrokerRegistrationChange]] * 2, "partitions first, then the mark"


# --- older metadata versions ------------------------------------------------------------------------------------------------


async def at_level(tools: Any, level: int) -> Any:
    """A new cluster at that metadata.version."""
    cluster = tools.Cluster()
    await cluster.lead()
    records = [FeatureLevel(0, name, 0) for name in cluster.controller.committed.image.features if name != "metadata.version"]
    records.append(FeatureLevel(0, "metadata.version", level))
    await cluster.done(cluster.controller.write("downgrade", lambda state, context: Outcome(records, True)))
    return cluster


async def test_before_directories_are_known_registrations_have_none_and_need_none(tools: Any) -> None:
    cluster = await at_level(tools, 16)
    await cluster.start_brokers(1)
    await cluster.start_brokers(2, log_dirs=())
    assert cluster.broker(1).log_dirs == cluster.broker(2).log_dirs == ()
    request = AssignReplicasToDirsRequest(1, cluster.broker(1).epoch, ())
    with pytest.raises(ApiError) as caught:
        await cluster.write(directories.assign, request)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    raised = Outcome([FeatureLevel(0, "metadata.version", 17)], True)
    await cluster.done(cluster.controller.write("upgrade", lambda state, context: raised))
    epoch = cluster.broker(1).epoch
    assert await cluster.register(1) == epoch
    assert cluster.broker(1).log_dirs == (tools.directory(1, 0),)
    assert not cluster.broker(1).fenced


@pytest.mark.parametrize(("level", "is_one"), [(12, False), (13, True)])
async def test_before_transactions_are_known_a_large_registration_may_be_cut(tools: Any, level: int, is_one: bool) -> None:
    cluster = await at_level(tools, level)
    await cluster.start_brokers(1, 2)
    await cluster.create("t", (1, 2), (1, 2))
    seen: list[Outcome[Any]] = []

    def look(state: ControllerState, context: Context) -> Outcome[None]:
        after_its_session = context._replace(now_ms=context.now_ms + cluster.settings.session_timeout_ms + 1)
        seen.append(brokers.register(state, cluster.controller.heartbeats, cluster.registration(1, 2), after_its_session))
        raise ApiError(ErrorCode.POLICY_VIOLATION, "only looking")

    cluster.controller.write("look", look)
    (outcome,) = seen
    assert [type(record) for record in outcome.records] == [PartitionChange, PartitionChange, RegisterBroker]
    assert outcome.atomic is is_one


async def test_before_cordons_are_known_they_are_not_noted(tools: Any) -> None:
    cluster = await at_level(tools, 29)
    await cluster.start_brokers(1)
    writes = cluster.controller.statistics().writes
    await cluster.heartbeat(1, cordoned_log_dirs=cluster.broker(1).log_dirs)
    assert cluster.broker(1).cordoned_log_dirs == ()
    assert cluster.controller.statistics().writes == writes


async def test_before_controllers_are_registered_they_are_refused(tools: Any) -> None:
    cluster = await at_level(tools, 14)
    request = ControllerRegistrationRequest(3000, b"i" * 16, (), supported_features())
    with pytest.raises(ApiError) as caught:
        await cluster.write(controllers.register, request)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "metadata.version 14 has no registrations of controllers; 15" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"broker_id": 1 << 31}, "ids are numbers from 0"),
        ({"listeners": (Listener("PEER", "h", 1 << 16),)}, "ports are numbers up to 65535"),
        ({"listeners": (Listener("PEER", "h", 1), Listener("PEER", "h", 2))}, "names a listener twice"),
        ({"features": (("metadata.version", 3, 2),)}, "levels rise"),
    ],
)
async def test_a_registration_that_no_answer_could_repeat_is_refused(cluster, tools, changes, message):
    with pytest.raises(tools.ApiError, match=message) as refusal:
        await cluster.register(**{"broker_id": 0, **changes})
    assert refusal.value.code is tools.ErrorCode.INVALID_REGISTRATION
