"""Coordinators of groups: they move with the leaders of their partitions, and forget nothing that was acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.broker.groups.coordinator import OFFSETS_TOPIC, partition_of
from kraftlab.broker.groups.records import OffsetEntry, decode
from kraftlab.broker.upkeep.cleaner import Cleaner
from kraftlab.common.errors import ErrorCode
from kraftlab.messages.generated.join_group_request import JoinGroupRequestProtocol
from kraftlab.messages.generated.leave_group_request import MemberIdentity
from kraftlab.messages.generated.offset_delete_request import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kraftlab.messages.generated.sync_group_request import SyncGroupRequestAssignment
from kraftlab.records.record_batch import Record, build_batch, decode_records

MINUTE_S = 60.0


def number_of(group_id: str) -> int:
    return partition_of(group_id, 2)


def entries(broker: Any, group_id: str) -> list[Any]:
    """Entries of the group's partition in the broker's log, in order."""
    log = broker.log(OFFSETS_TOPIC, number_of(group_id))
    records = decode_records(log.read(log.log_start_offset, 10**7))
    return [decode(record.key, record.value, 0) for record in records]


async def move(clients: Any, group_id: str) -> Any:
    """Give the group's partition another leader; return the broker, loaded."""
    world, number = clients.world, number_of(group_id)
    state = world.state(OFFSETS_TOPIC, number)
    await world.change(OFFSETS_TOPIC, number, leader=next(each for each in state.isr if each != state.leader))
    return await clients.loaded(group_id)


# --- moving -----------------------------------------------------------------------------------------------------------------


async def test_members_generation_and_offsets_are_known_to_the_next_coordinator(cluster: Any, autojump_clock: Any) -> None:
    member_id = await cluster.alone("a")
    assert await cluster.commit("a", 42, "kept", member_id=member_id, generation_id_or_member_epoch=1) == 0
    first = cluster.coordinator("a")
    first.crash()
    assert await move(cluster, "a") is not first
    assert await cluster.beat("a", member_id) == ErrorCode.NONE
    assert await cluster.committed("a") == (42, "kept")
    described = await cluster.describe("a")
    assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"\x07\x07")
    assert described.members[0].client_host == "/127.0.0.1"
    assert await cluster.beat("a", member_id, 2) == ErrorCode.ILLEGAL_GENERATION


async def test_the_former_coordinator_answers_those_who_wait(cluster: Any, nursery: trio.Nursery, autojump_clock: Any) -> None:
    await cluster.alone("a")
    other = (await cluster.join("a")).member_id
    answers: list[Any] = []

    async def join() -> None:
        answers.append(await cluster.join("a", other))

    nursery.start_soon(join)
    await trio.testing.wait_all_tasks_blocked()
    former = cluster.coordinator("a")
    await move(cluster, "a")
    await trio.testing.wait_all_tasks_blocked()
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    response = await cluster.call(former, "DescribeGroups", groups=("a",))
    assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_an_old_epoch_of_the_same_broker_writes_nothing(cluster: Any, autojump_clock: Any) -> None:
    """A leadership that comes back to the same broker has a shard of its own, and the old one's decisions are void."""
    broker = cluster.coordinator("a")
    (old,) = [shard for shard in broker.groups.shards() if shard.store.partition.number == number_of("a")]
    await move(cluster, "a")
    while await move(cluster, "a") is not broker:
        pass
    with pytest.raises(Exception, match="is over"):
        await old.store.append([])
    (new,) = [shard for shard in broker.groups.shards() if shard.store.partition.number == number_of("a")]
    assert new is not old
    assert old.is_over


async def test_a_coordinator_waits_for_its_high_watermark(cluster: Any, autojump_clock: Any) -> None:
    """A new leader does not serve what may not be committed yet."""
    world = cluster.world
    assert await cluster.commit("a", 1) == ErrorCode.NONE
    state = world.state(OFFSETS_TOPIC, number_of("a"))
    first = world.brokers[state.leader]
    others = [each for each in state.isr if each != state.leader]
    second = next(each for each in others if each == others[0])
    world.unreachable.update(others)
    first.crash()
    await world.change(OFFSETS_TOPIC, number_of("a"), leader=second)
    broker = world.brokers[second]
    # The third replica cannot fetch, so the leader cannot know that it has the records.
    response = await cluster.call(broker, "DescribeGroups", groups=("a",))
    assert response.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await cluster.committed("a") == (-1000 - ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")
    assert await cluster.beat("a", "anybody") == ErrorCode.NONE  # Nothing is known against it.
    assert await cluster.commit("a", 2) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = await cluster.call(broker, "ListGroups")
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.unreachable.clear()
    await cluster.loaded("a")
    assert await cluster.committed("a") == (1, "")


# --- durability -------------------------------------------------------------------------------------------------------------


async def test_a_commit_is_answered_when_it_is_replicated(cluster: Any, nursery: trio.Nursery, autojump_clock: Any) -> None:
    world, state = cluster.world, cluster.world.state(OFFSETS_TOPIC, number_of("a"))
    world.unreachable.add(state.leader)
    codes: list[int] = []

    async def commit() -> None:
        codes.append(await cluster.commit("a", 5))

    nursery.start_soon(commit)
    await trio.sleep(1)
    assert not codes
    world.unreachable.clear()
    await trio.sleep(2)
    assert codes == [ErrorCode.NONE]


async def test_what_is_not_replicated_in_time_is_neither_confirmed_nor_shown(cluster: Any, autojump_clock: Any) -> None:
    world, state = cluster.world, cluster.world.state(OFFSETS_TOPIC, number_of("a"))
    assert await cluster.commit("a", 4) == ErrorCode.NONE
    world.controller_answers = trio.Event()  # The ISR cannot shrink.
    world.unreachable.add(state.leader)
    assert await cluster.commit("a", 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await cluster.committed("a") == (-1000 - ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    # The next leader has not got it, and so the group has not either.
    world.brokers[state.leader].crash()
    world.unreachable.clear()
    world.controller_answers.set()
    await move(cluster, "a")
    assert await cluster.committed("a") == (4, "")


async def test_refused_records_leave_the_group_as_it_was(cluster: Any, autojump_clock: Any) -> None:
    member_id = await cluster.alone("a")
    await cluster.world.configure(2, OFFSETS_TOPIC, min_insync_replicas="3")
    state = cluster.world.state(OFFSETS_TOPIC, number_of("a"))
    await cluster.world.change(OFFSETS_TOPIC, number_of("a"), isr=state.isr[:1])
    assert await cluster.commit("a", 5, member_id=member_id, generation_id_or_member_epoch=1) == 15
    leaving = await cluster.call(cluster.coordinator("a"), "LeaveGroup", group_id="a", members=[MemberIdentity(member_id)])
    assert leaving.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await cluster.beat("a", member_id) == ErrorCode.NONE
    assert await cluster.committed("a") == (-1, "")


async def test_an_assignment_that_no_batch_can_hold_is_refused(
    cluster: Any, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    member_id = (await cluster.join("a")).member_id
    joined = await cluster.join("a", member_id)
    for size_bytes in (2 * 1024 * 1024, 13 * 1024 * 1024):
        assigned = [SyncGroupRequestAssignment(member_id, b"x" * size_bytes)]
        refused = await cluster.sync("a", member_id, joined.generation_id, assignments=assigned)
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "group 'a'" in caplog.text and "max.message.bytes" in caplog.text
    assigned = [SyncGroupRequestAssignment(member_id, b"x")]
    assert (await cluster.sync("a", member_id, joined.generation_id, assignments=assigned)).assignment == b"x"


async def test_an_alarm_whose_record_is_refused_rings_again(cluster: Any, autojump_clock: Any) -> None:
    member_id = await cluster.alone("a")
    await cluster.world.configure(2, OFFSETS_TOPIC, min_insync_replicas="3")
    state = cluster.world.state(OFFSETS_TOPIC, number_of("a"))
    cluster.world.controller_answers = trio.Event()  # The ISR cannot grow.
    await cluster.world.change(OFFSETS_TOPIC, number_of("a"), isr=state.isr[:1])
    await trio.sleep(MINUTE_S)
    assert (await cluster.describe("a")).group_state == "Stable"
    await cluster.world.configure(2, OFFSETS_TOPIC, min_insync_replicas=None)
    await trio.sleep(5)
    assert (await cluster.describe("a")).group_state == "Empty"
    assert await cluster.beat("a", member_id) == ErrorCode.UNKNOWN_MEMBER_ID


# --- loading ----------------------------------------------------------------------------------------------------------------


async def test_tombstones_hold_after_a_move(cluster: Any, autojump_clock: Any) -> None:
    await cluster.world.create_topic("kept", [0, 1, 2])
    for topic in ("t", "kept"):
        assert await cluster.commit("a", 1, topic=topic) == ErrorCode.NONE
    partition = [OffsetDeleteRequestPartition(0)]
    deleted = await cluster.call(
        cluster.coordinator("a"), "OffsetDelete", group_id="a", topics=[OffsetDeleteRequestTopic("t", partition)]
    )
    assert deleted.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert await cluster.commit("b", 1) == ErrorCode.NONE
    gone = await cluster.call(cluster.coordinator("b"), "DeleteGroups", groups_names=("b",))
    assert gone.results[0].error_code == ErrorCode.NONE
    for group_id in ("a", "b"):
        await move(cluster, group_id)
    assert await cluster.committed("a") == (-1, "")
    assert await cluster.committed("a", "kept") == (1, "")
    assert (await cluster.describe("b")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_the_last_of_many_commits_is_loaded(cluster: Any, autojump_clock: Any) -> None:
    for offset in range(300):
        assert await cluster.commit("a", offset, "x" * 4000) == ErrorCode.NONE
    await move(cluster, "a")
    assert await cluster.committed("a") == (299, "x" * 4000)


async def test_a_compacted_log_gives_the_same_groups(cluster: Any, autojump_clock: Any) -> None:
    await cluster.world.configure(
        2, OFFSETS_TOPIC, cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0.1"
    )
    member_id = await cluster.alone("a")
    for offset in range(50):
        code = await cluster.commit("a", offset, "x" * 100, member_id=member_id, generation_id_or_member_epoch=1)
        assert code == ErrorCode.NONE
    before = await cluster.describe("a")
    await trio.sleep(2)
    for broker in cluster.world.brokers.values():
        assert await Cleaner(broker.replicas, broker.configs).clean_all() == 1
        assert len(entries(broker, "a")) < 20
    await move(cluster, "a")
    assert await cluster.committed("a") == (49, "x" * 100)
    assert await cluster.describe("a") == before


async def test_a_record_that_cannot_be_read_does_not_stop_the_others(cluster: Any, autojump_clock: Any) -> None:
    assert await cluster.commit("a", 1) == ErrorCode.NONE
    broken = build_batch([Record(b"\0\1\0\1a", b"\0\x63", 1)])
    await cluster.coordinator("a").produce(OFFSETS_TOPIC, number_of("a"), broken)
    await move(cluster, "a")
    assert await cluster.committed("a") == (1, "")


async def test_offsets_of_a_deleted_topic_go_and_do_not_count_for_the_next(cluster: Any, autojump_clock: Any) -> None:
    assert await cluster.commit("a", 7) == ErrorCode.NONE
    broker = cluster.coordinator("a")
    await cluster.world.delete_topic("t")
    await trio.sleep(1)
    assert entries(broker, "a")[-1] == OffsetEntry("a", ("t", 0), None)
    await cluster.world.create_topic("t", [0, 1, 2])
    assert await cluster.committed("a") == (-1, "")


async def test_a_group_that_loses_its_last_offset_is_known_until_it_is_deleted_or_moves(
    cluster: Any, autojump_clock: Any
) -> None:
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]

    async def delete_offset() -> int:
        answer = await cluster.call(cluster.coordinator("a"), "OffsetDelete", group_id="a", topics=topics)
        return int(answer.error_code)

    async def delete_group() -> int:
        answer = await cluster.call(cluster.coordinator("a"), "DeleteGroups", groups_names=("a",))
        return int(answer.results[0].error_code)

    assert await cluster.commit("a", 7) == ErrorCode.NONE
    assert [await delete_offset(), await delete_offset()] == [ErrorCode.NONE, ErrorCode.NONE]
    assert [await delete_group(), await delete_group()] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert await cluster.commit("a", 7) == ErrorCode.NONE
    assert await delete_offset() == ErrorCode.NONE
    await move(cluster, "a")
    assert await delete_group() == ErrorCode.GROUP_ID_NOT_FOUND


# --- the settings of brokers ------------------------------------------------------------------------------------------------


async def started(clients: Any, **settings: str) -> Any:
    """Start one broker with these settings, which coordinates all groups."""
    broker = await clients.world.add_broker(0, **{"offsets_topic_num_partitions": "1", **settings})
    await clients.world.create_topic(OFFSETS_TOPIC, [0])
    await clients.world.create_topic("t", [0], [0])
    await clients.loaded("g")
    return broker


async def test_offsets_expire_after_their_retention(clients: Any, autojump_clock: Any) -> None:
    await started(clients, offsets_retention_minutes="10", offsets_retention_check_interval_ms="60000")
    assert await clients.commit("g", 3) == ErrorCode.NONE
    await trio.sleep(9 * MINUTE_S)
    assert await clients.committed("g") == (3, "")
    await trio.sleep(2 * MINUTE_S)
    assert await clients.committed("g") == (-1, "")
    assert (await clients.describe("g")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_members_do_not_expire(clients: Any, autojump_clock: Any) -> None:
    await started(
        clients,
        offsets_retention_minutes="1",
        offsets_retention_check_interval_ms="60000",
        group_initial_rebalance_delay_ms="0",
        group_max_session_timeout_ms="100000000",
    )
    topics = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
    protocols = [JoinGroupRequestProtocol("range", topics)]
    fields = {"protocols": protocols, "session_timeout_ms": 10**8}
    member_id = (await clients.join("g", **fields)).member_id
    joined = await clients.join("g", member_id, **fields)
    await clients.sync("g", member_id, joined.generation_id)
    assert await clients.commit("g", 3, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE
    await trio.sleep(10 * MINUTE_S)
    assert await clients.committed("g") == (3, "")


async def test_the_session_timeout_has_bounds(clients: Any, autojump_clock: Any) -> None:
    await started(clients, group_min_session_timeout_ms="1000", group_max_session_timeout_ms="2000")
    for timeout_ms, code in ((999, 26), (1000, 79), (2000, 79), (2001, 26)):
        assert (await clients.join("g", session_timeout_ms=timeout_ms)).error_code == code


async def test_a_group_has_at_most_its_size(clients: Any, autojump_clock: Any) -> None:
    await started(clients, group_max_size="1", group_initial_rebalance_delay_ms="0")
    await clients.alone("g")
    assert (await clients.join("g")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_the_first_members_wait_for_more(clients: Any, autojump_clock: Any) -> None:
    await started(clients, group_initial_rebalance_delay_ms="5000")
    member_id = (await clients.join("g")).member_id
    begun_s = trio.current_time()
    await clients.join("g", member_id)
    assert 5 <= trio.current_time() - begun_s < 6


async def test_notes_have_a_limit(clients: Any, autojump_clock: Any) -> None:
    await started(clients, offset_metadata_max_bytes="5")
    assert await clients.commit("g", 1, "12345") == ErrorCode.NONE
    assert await clients.commit("g", 2, "123456") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await clients.committed("g") == (1, "12345")


@pytest.mark.parametrize(("note", "longer"), [("ééééé", "é"), ("日本日本日", "本"), ("😀😀", "😀"), ("😀😀e", "e")])
async def test_the_limit_of_notes_counts_characters_as_java_does(
    note: str, longer: str, clients: Any, autojump_clock: Any
) -> None:
    await started(clients, offset_metadata_max_bytes="5")
    assert await clients.commit("g", 1, note) == ErrorCode.NONE
    assert await clients.commit("g", 2, note + longer) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await clients.committed("g") == (1, note)


async def test_a_note_that_old_clients_could_not_read_is_too_large(clients: Any, autojump_clock: Any) -> None:
    await started(clients, offset_metadata_max_bytes="40000")
    assert await clients.commit("g", 1, "é" * 16_383) == ErrorCode.NONE
    assert await clients.commit("g", 2, "é" * 16_384) == ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_an_id_that_no_record_can_hold_is_refused(clients: Any, autojump_clock: Any) -> None:
    await started(clients)
    assert await clients.commit("g" * 32_767, 1) == ErrorCode.NONE
    assert await clients.commit("g" * 32_768, 1) == ErrorCode.INVALID_GROUP_ID


async def test_the_topic_is_created_once_when_a_client_looks_for_its_coordinator(
    clients: Any, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    async def create(partitions: int, replicas: int) -> str | None:
        asked.append((partitions, replicas))
        await trio.sleep(1)
        await clients.world.create_topic(OFFSETS_TOPIC, *[[0]] * partitions)
        return None

    monkeypatch.setattr(clients.world, "create_offsets_topic", create)
    settings = {"offsets_topic_num_partitions": "7", "offsets_topic_replication_factor": "2"}
    brokers = [await clients.world.add_broker(broker_id, **settings) for broker_id in range(2)]
    for _ in range(3):
        response = await clients.call(brokers[0], "FindCoordinator", coordinator_keys=("g",))
        assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await trio.sleep(2)
    assert asked == [(7, 2)]
    (row,) = (await clients.call(brokers[0], "FindCoordinator", coordinator_keys=("g",))).coordinators
    assert (row.error_code, row.node_id, row.port) == (0, 0, 9001)


async def test_a_small_cluster_has_fewer_replicas_of_offsets(
    clients: Any, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    async def create(partitions: int, replicas: int) -> str | None:
        asked.append((partitions, replicas))
        return "not now"

    monkeypatch.setattr(clients.world, "create_offsets_topic", create)
    broker = await clients.world.add_broker(0)
    await clients.call(broker, "FindCoordinator", coordinator_keys=("g",))
    await trio.sleep(1)
    assert asked == [(50, 1)]
    await clients.call(broker, "FindCoordinator", coordinator_keys=("g",))
    await trio.sleep(1)
    assert len(asked) == 2


# --- lists ------------------------------------------------------------------------------------------------------------------


async def test_groups_are_listed_by_state_and_type(clients: Any, autojump_clock: Any) -> None:
    broker = await started(clients, group_initial_rebalance_delay_ms="0")
    await clients.alone("g")
    assert await clients.commit("simple", 1) == ErrorCode.NONE

    async def listed(**filters: tuple[str, ...]) -> set[tuple[str, str, str, str]]:
        response = await clients.call(broker, "ListGroups", **filters)
        return {(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups}

    both = {("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")}
    assert await listed() == both
    assert await listed(states_filter=("stable", "Dead")) == {("g", "consumer", "Stable", "classic")}
    assert await listed(types_filter=("Classic",)) == both
    assert await listed(types_filter=("consumer",)) == set()
    assert await listed(states_filter=("nonsense",)) == set()
