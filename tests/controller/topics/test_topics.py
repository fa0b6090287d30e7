"""Creating, deleting and describing topics: every check with its code and text."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import ZERO, to_text
from kraftlab.controller.configs.mutation_quota import MutationCharge
from kraftlab.controller.topics import description, topics
from kraftlab.metadata import codec
from kraftlab.metadata.records import RESOURCE_TOPIC

NO_ID = to_text(ZERO)


async def create(cluster: Any, *creatables: dict[str, Any], validate_only: bool = False) -> list[Any]:
    request = admin_pb2.CreateTopicsRequest(validate_only=validate_only)
    for creatable in creatables:
        request.topics.append(creation(**creatable))
    response = await cluster.write(topics.create, request)
    return list(response.topics)


def creation(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assignments: dict[int, tuple[int, ...]] | Sequence[tuple[int, tuple[int, ...]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> admin_pb2.CreatableTopic:
    topic = admin_pb2.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
    for index, replicas in assignments.items() if isinstance(assignments, dict) else assignments:
        topic.assignments.add(partition_index=index, broker_ids=replicas)
    for key, value in configs:
        topic.configs.add(name=key, value=value)
    return topic


LONG = "n" * 250
ILLEGAL = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    ("creatable", "code", "text"),
    [
        ({"name": ""}, 17, "Topic name is invalid: the empty string is not allowed"),
        ({"name": "."}, 17, "Topic name is invalid: '.' is not allowed"),
        ({"name": ".."}, 17, "Topic name is invalid: '..' is not allowed"),
        ({"name": LONG}, 17, f"Topic name is invalid: the length of '{LONG}' is longer than the max allowed length 249"),
        ({"name": "a b"}, 17, f"Topic name is invalid: 'a b' {ILLEGAL}"),
        ({"name": "ö"}, 17, f"Topic name is invalid: 'ö' {ILLEGAL}"),
        ({"name": "a\n"}, 17, f"Topic name is invalid: 'a\n' {ILLEGAL}"),
        ({"name": "__cluster_metadata"}, 42, "Creation of internal topic __cluster_metadata is prohibited."),
        ({"name": "old_topic"}, 17, "Topic 'old_topic' collides with existing topic: old.topic"),
        ({"name": "old.topic"}, 36, "Topic 'old.topic' already exists."),
        ({"name": "old.topic", "partitions": 0}, 36, "Topic 'old.topic' already exists."),
        ({"name": "t", "configs": [("retention.ms", None)]}, 40, "Null value not supported for topic configs: retention.ms"),
        ({"name": "t", "configs": [("no.such", "1")]}, 40, "Unknown topic config name: no.such"),
        (
            {"name": "t", "configs": [("retention.ms", "x")]},
            40,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"name": "t", "partitions": 2, "factor": 2, "assignments": {0: (0, 1)}},
            42,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            {"name": "t", "partitions": 2, "assignments": {0: (0, 1)}},
            42,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            {"name": "t", "assignments": [(0, (0,)), (0, (1,))]},
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
        ({"name": "t", "assignments": {0: ()}}, 39, "The manual partition assignment includes an empty replica list."),
        (
            {"name": "t", "assignments": {0: (0, 99)}},
            39,
            "The manual partition assignment includes broker 99, but no such broker is registered.",
        ),
        (
            {"name": "t", "assignments": {0: (-1,)}},
            39,
            "The manual partition assignment includes broker -1, but no such broker is registered.",
        ),
        (
            {"name": "t", "assignments": {0: (1, 1)}},
            39,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            {"name": "t", "assignments": {0: (0, 1), 1: (2,)}},
            39,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous "
            "partitions, which have 2 replica(s).",
        ),
        (
            {"name": "t", "assignments": {0: (4,)}},
            39,
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown.",
        ),
        ({"name": "t", "assignments": {0: (0,), 2: (1,)}}, 39, "partitions should be a consecutive 0-based integer sequence"),
        ({"name": "t", "factor": 0}, 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        ({"name": "t", "factor": -2}, 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        ({"name": "t", "partitions": 0}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"name": "t", "partitions": -2}, 37, "Number of partitions was set to an invalid non-positive value."),
    ],
)
async def test_creations_are_refused(five: Any, creatable: dict[str, Any], code: int, text: str) -> None:
    await five.create("old.topic", (0,))
    await five.stop_broker(4)
    for validate_only in (True, False):
        (result,) = await create(five, creatable, validate_only=validate_only)
        assert (result.error_code, result.error_message) == (code, text)
        assert (result.topic_id, result.num_partitions, result.replication_factor) == (NO_ID, -1, -1)
    assert sorted(five.controller.committed.image.topics.by_name) == ["old.topic"]


async def test_a_replication_factor_above_the_number_of_brokers_is_refused(five: Any) -> None:
    (result,) = await create(five, {"name": "t", "factor": 6})
    assert result.error_code == 38
    assert "only 5 broker(s) are registered" in result.error_message
    assert (await create(five, {"name": "t", "factor": 32767}))[0].error_code == 38


async def test_no_brokers_or_only_fenced_ones(cluster: Any) -> None:
    assert (await create(cluster, {"name": "t"}))[0].error_code == 38
    await cluster.register(1)
    assert (await create(cluster, {"name": "t"}))[0].error_code == 38


async def test_a_manual_assignment_is_taken_as_it_is(five: Any) -> None:
    (result,) = await create(five, {"name": "t", "assignments": [(1, (3, 2)), (0, (0, 1))]})
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
    assert five.state("t", 0) == ((0, 1), (0, 1), 0, (), ())
    assert five.state("t", 1) == ((3, 2), (3, 2), 3, (), ())
    partition = five.partition("t")
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


async def test_fenced_brokers_may_be_replicas_but_are_not_in_sync_and_do_not_lead(five: Any) -> None:
    await five.stop_broker(0)
    await five.create("t", (0, 1, 2))
    assert five.state("t") == ((0, 1, 2), (1, 2), 1, (), ())


async def test_placement_uses_defaults_of_the_controller_and_spreads(tools: Any) -> None:
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, num_partitions=2, default_replication_factor=3))
    await cluster.lead()
    for broker_id in range(4):
        await cluster.start_brokers(broker_id, rack=f"rack-{broker_id % 2}")
    (result,) = await create(cluster, {"name": "t"})
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    for index in range(2):
        replicas, isr, leader, _, _ = cluster.state("t", index)
        assert len(set(replicas)) == 3 and isr == replicas and leader == replicas[0]
        assert {cluster.broker(b).rack for b in replicas} == {"rack-0", "rack-1"}


async def test_answers_come_in_request_order_and_names_given_twice_last_and_once(five: Any) -> None:
    results = await create(
        five,
        {"name": "b", "factor": 1},
        {"name": "a", "factor": 1},
        {"name": "bad name"},
        {"name": "c", "factor": 1},
        {"name": "a", "partitions": 2, "factor": 1},
    )
    assert [(r.name, r.error_code, r.error_message) for r in results if r.name == "a"] == [("a", 42, "Duplicate topic name.")]
    assert [r.name for r in results] == ["b", "bad name", "c", "a"]
    assert sorted(five.controller.committed.image.topics.by_name) == ["b", "c"]


async def test_colliding_names_in_one_request_the_later_is_refused(five: Any) -> None:
    results = await create(five, {"name": "a.b", "factor": 1}, {"name": "a_b", "factor": 1})
    assert [r.error_code for r in results] == [0, 17]
    assert results[1].error_message == "Topic 'a_b' collides with existing topic: a.b"
    results = await create(five, {"name": "x.y", "factor": 99}, {"name": "x_y", "factor": 1})
    assert [r.error_code for r in results] == [38, 0], "what was refused collides with nobody"


async def test_a_collision_ends_with_the_topic(five: Any) -> None:
    await five.create("foo.bar", (0,))
    await delete(five, ("foo.bar", None))
    assert (await create(five, {"name": "foo_bar", "factor": 1}))[0].error_code == 0


async def test_configs_are_stored_and_the_last_of_a_repeated_key_wins(five: Any) -> None:
    configs = [("retention.ms", "1"), ("cleanup.policy", "compact"), ("retention.ms", "2")]
    (result,) = await create(five, {"name": "t", "factor": 1, "configs": configs})
    assert five.controller.committed.image.config(2, "t", "retention.ms") == "2"
    shown = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert shown["retention.ms"] == ("2", admin_pb2.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG)
    assert shown["min.insync.replicas"] == ("1", admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert [entry.name for entry in result.configs] == sorted(shown)


async def test_a_policy_named_twice_counts_once_and_an_empty_one_is_refused(five: Any) -> None:
    """As Apache Kafka 4.3 answers."""
    (result,) = await create(five, {"name": "t", "factor": 1, "configs": [("cleanup.policy", "compact,compact")]})
    assert {entry.name: entry.value for entry in result.configs}["cleanup.policy"] == "compact"
    (refused,) = await create(five, {"name": "u", "factor": 1, "configs": [("cleanup.policy", "compact,")]})
    assert refused.error_code == 40 and refused.error_message == "Configuration 'cleanup.policy' values must not be empty."


@pytest.mark.parametrize("has_min_isr", [True, False])
async def test_a_topic_is_written_as_topic_configs_and_partitions(five: Any, has_min_isr: bool) -> None:
    """A min.insync.replicas of its own clears the eligible leader replicas."""
    configs = [("retention.ms", "1"), *([("min.insync.replicas", "2")] if has_min_isr else [])]
    start = len(five.quorum.batches)
    await create(five, {"name": "a", "factor": 1, "configs": configs}, {"name": "b", "factor": 1, "partitions": 2})
    (batch,) = five.quorum.batches[start:]
    written = [type(record).__name__ for record in codec.decode(batch.body)]
    configured = ["Config", "Config", "ClearElr"] if has_min_isr else ["Config"]
    assert written == ["Topic", *configured, "Partition", "Topic", "Partition", "Partition"]


async def test_bad_configs_fail_only_their_topic(five: Any) -> None:
    results = await create(
        five, {"name": "bad", "factor": 1, "configs": [("no.such", "1")]}, {"name": "good", "factor": 1, "partitions": 2}
    )
    assert [(result.name, result.error_code) for result in results] == [("bad", 40), ("good", 0)]
    assert five.controller.committed.image.config(RESOURCE_TOPIC, "bad", "no.such") is None


async def test_brokers_that_shut_down_are_not_in_sync_and_get_no_replicas_by_themselves(five: Any) -> None:
    await five.create("led-by-0", (0, 1))
    await five.heartbeat(0, want_shutdown=True)
    await five.create("t", (0, 1))
    assert five.state("t") == ((0, 1), (1,), 1, (), ())
    (result,) = await create(five, {"name": "u", "factor": 5})
    assert result.error_code == 38


async def test_brokers_whose_directories_are_all_cordoned_get_replicas_only_if_assigned(five: Any, tools: Any) -> None:
    await five.heartbeat(4, cordoned_log_dirs=(tools.directory(4, 0),))
    (result,) = await create(five, {"name": "t", "factor": 5})
    assert (result.error_code, "only 4 broker(s) are registered" in result.error_message) == (38, True)
    await five.create("u", (4, 0))
    assert five.state("u") == ((4, 0), (4, 0), 4, (), ())


class Budget(MutationCharge):
    """A client's account that is overdrawn after the first topic."""

    def __init__(self, taken: list[int]) -> None:
        self.taken = taken

    def take(self, partitions: int) -> None:
        if self.taken:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self.taken.append(partitions)


def charged(operation: Callable[..., Any], budget: Budget) -> Callable[..., Any]:
    return lambda state, request, context: operation(state, request, context._replace(mutations=budget))


async def test_a_mutation_quota_refuses_topics_and_writes_nothing_of_them(five: Any) -> None:
    request = admin_pb2.CreateTopicsRequest()
    for name in ("a", "b"):
        request.topics.append(creation(name, partitions=3, factor=1))
    taken: list[int] = []
    response = await five.write(charged(topics.create, Budget(taken)), request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 0), ("b", 89)]
    assert (taken, sorted(five.controller.committed.image.topics.by_name)) == ([3], ["a"])
    deletion = admin_pb2.DeleteTopicsRequest()
    deletion.topics.add(name="a")
    response = await five.write(charged(topics.delete, Budget(taken)), deletion)
    assert (response.responses[0].error_code, taken) == (89, [3])


async def test_a_policy_of_the_server_refuses_topics_one_by_one(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_most_two(name: str, assignments: dict[int, tuple[int, ...]], configs: dict[str, str]) -> None:
        if len(assignments) > 2 and configs.get("cleanup.policy") != "compact":
            raise ValueError(f"{name} has {len(assignments)} partitions; 2 are enough here")

    module = types.ModuleType("policy_of_this_test")
    monkeypatch.setattr(module, "check", at_most_two, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    static = {"create.topic.policy.class.name": f"{module.__name__}:check"}
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, static=static))
    await cluster.lead()
    await cluster.start_brokers(0)
    compacted = {"name": "c", "partitions": 3, "configs": [("cleanup.policy", "compact")]}
    results = await create(cluster, {"name": "a", "partitions": 3}, {"name": "b", "partitions": 2}, compacted)
    assert [(result.error_code, result.error_message) for result in results] == [
        (44, "a has 3 partitions; 2 are enough here"),
        (0, ""),
        (0, ""),
    ]
    assert sorted(cluster.controller.committed.image.topics.by_name) == ["b", "c"]


async def test_validate_only_answers_in_full_and_writes_nothing(five: Any) -> None:
    end = five.quorum.end_offset
    (result,) = await create(five, {"name": "t", "factor": 2, "partitions": 3}, validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 2)
    assert result.topic_id != NO_ID
    assert five.quorum.end_offset == end


async def test_more_partitions_than_a_batch_holds_refuse_the_whole_request(five: Any) -> None:
    with pytest.raises(ApiError) as caught:
        await create(five, {"name": "small", "factor": 1}, {"name": "big", "partitions": 10_000, "factor": 1})
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(ApiError) as caught:
        await create(five, {"name": "just", "partitions": 10_000, "factor": 1})
    assert caught.value.code is ErrorCode.POLICY_VIOLATION, "with its Topic record it does not fit"
    assert not five.controller.committed.image.topics.by_name


async def test_one_write_of_ten_thousand_records(five: Any) -> None:
    (result,) = await create(five, {"name": "big", "partitions": 9_999, "factor": 1})
    assert result.error_code == 0
    assert len(five.controller.committed.image.topics.get("big").partitions) == 9_999


# --- deletion ---------------------------------------------------------------------------------------------------------------


async def delete(cluster: Any, *entries: tuple[str | None, str | None]) -> list[tuple[str | None, str, int, str]]:
    request = admin_pb2.DeleteTopicsRequest()
    for name, topic_id in entries:
        request.topics.add(name=name, topic_id=topic_id)
    response = await cluster.write(topics.delete, request)
    return [(r.name if r.HasField("name") else None, r.topic_id, r.error_code, r.error_message) for r in response.responses]


def id_of(cluster: Any, name: str) -> str:
    return to_text(cluster.controller.committed.image.topics.get(name).topic_id)


async def test_topics_are_deleted_by_name_or_id(five: Any) -> None:
    await five.create("a", (0,), retention_ms="5")
    await five.create("b", (0,))
    a, b = id_of(five, "a"), id_of(five, "b")
    assert await delete(five, ("a", None), (None, b)) == [("a", a, 0, ""), ("b", b, 0, "")]
    assert not five.controller.committed.image.topics.by_name
    assert (RESOURCE_TOPIC, "a") not in five.controller.committed.image.configs
    (again,) = await delete(five, (None, b))
    assert again[:3] == (None, b, 100)


async def test_deletions_are_refused_one_by_one(five: Any) -> None:
    await five.create("t", (0,))
    both = ("t", id_of(five, "t"))
    results = await delete(five, ("no such", None), (None, None), both, both, (None, "short"), ("", None))
    assert [(name, code) for name, _, code, _ in results] == [
        ("no such", 3),
        (None, 42),
        ("t", 42),
        ("t", 42),
        (None, 100),
        ("", 3),
    ]
    assert results[2] == (*both, 42, "You may not specify both topic name and topic id.")
    results = await delete(five, ("t", None), both)
    assert [(name, code) for name, _, code, _ in results] == [("t", 0), ("t", 42)], "what is wrong by itself names nothing"


async def test_a_topic_named_twice_is_refused_once_and_kept(five: Any) -> None:
    for name in "abc":
        await five.create(name, (0,))
    a, b = id_of(five, "a"), id_of(five, "b")
    assert await delete(five, (None, a), (None, a)) == [(None, a, 42, "Duplicate topic id.")]
    c = id_of(five, "c")
    assert await delete(five, ("a", None), ("a", None), ("c", None)) == [
        ("a", NO_ID, 42, "Duplicate topic name."),
        ("c", c, 0, ""),
    ]
    ((name, _, code, text),) = await delete(five, ("b", None), (None, b))
    assert (name, code, text) == ("b", 42, "The provided topic name maps to an ID that was already supplied.")
    assert sorted(five.controller.committed.image.topics.by_name) == ["a", "b"]


async def test_a_topic_named_by_name_and_by_id_is_answered_with_both(five: Any) -> None:
    await five.create("t", (0,))
    ((name, topic_id, code, _),) = await delete(five, ("t", None), (None, id_of(five, "t")))
    assert (name, topic_id, code) == ("t", id_of(five, "t"), 42)


@pytest.mark.parametrize(("version", "code"), [(None, 73), (6, 73), (3, 73), (2, 42)])
async def test_deletion_can_be_disabled(tools: Any, version: int | None, code: int) -> None:
    settings = tools.Settings(tools.cluster_id, 3000, static={"delete.topic.enable": "false"})
    cluster = tools.Cluster(settings)
    await cluster.lead()
    await cluster.start_brokers(0)
    await cluster.create("t", (0,))
    request = admin_pb2.DeleteTopicsRequest()
    if version is not None:
        request.header.api_version = version
    request.topics.add(name="t")
    with pytest.raises(ApiError) as caught:
        await cluster.write(topics.delete, request)
    assert (caught.value.code, "delete.topic.enable" in caught.value.message) == (code, True)
    assert cluster.controller.committed.image.topics.get("t") is not None


async def test_deleting_a_topic_ends_its_reassignment(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.reassign("t", (2, 3))
    assert five.listed() == [("t", 0)]
    await delete(five, ("t", None))
    assert five.listed() == []


# --- description ------------------------------------------------------------------------------------------------------------


def describe(cluster: Any, *names: str) -> list[Any]:
    request = admin_pb2.DescribeTopicPartitionsRequest()
    if names:
        request.topics.names.extend(names)
    return list(description.describe(cluster.controller.committed, request).topics)


async def test_description_carries_the_whole_reassignment_and_offline_replicas(five: Any, tools: Any) -> None:
    await five.create("t", (0, 1), retention_ms="7")
    await five.reassign("t", (2, 1))
    await five.stop_broker(0)
    (topic,) = describe(five, "t")
    (partition,) = topic.partitions
    assert (topic.error_code, topic.topic_id) == (0, id_of(five, "t"))
    assert list(partition.replica_nodes) == [2, 1, 0]
    assert (list(partition.adding_replicas), list(partition.removing_replicas)) == ([2], [0])
    assert (list(partition.original_replicas), list(partition.target_replicas)) == ([0, 1], [2, 1])
    assert (list(partition.isr_nodes), partition.leader_id, list(partition.offline_replicas)) == ([1], 1, [0])
    assert partition.directories[0] == to_text(tools.directory(2, 0))
    assert [(entry.name, entry.value) for entry in topic.configs] == [("retention.ms", "7")]


async def test_all_topics_come_sorted_and_unknown_ones_say_so(five: Any) -> None:
    for name in ("b", "a"):
        await five.create(name, (0,))
    assert [topic.name for topic in describe(five)] == ["a", "b"]
    results = describe(five, "b", "zzz", "b", "no good")
    assert [(topic.name, topic.error_code) for topic in results] == [("b", 0), ("no good", 17), ("zzz", 3)]


async def test_a_partition_without_leader_is_described_without_an_error(five: Any) -> None:
    await five.create("t", (0,))
    await five.stop_broker(0)
    (topic,) = describe(five, "t")
    assert (topic.partitions[0].leader_id, topic.partitions[0].error_code) == (-1, ErrorCode.NONE)
