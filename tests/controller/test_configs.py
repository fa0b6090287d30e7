"""IncrementalAlterConfigs and DescribeConfigs: operations, checks in order, sources."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.controller.configs import configs
from kraftlab.controller.configs.configs import APPEND, DELETE, SET, SUBTRACT, unclean_election_enabled

TOPIC, BROKER = 2, 4
THROTTLE = "leader.replication.throttled.replicas"
RATE = "leader.replication.throttled.rate"


@pytest.fixture
async def topic(cluster: Any) -> Any:
    """Brokers 0 and 1, topic t."""
    await cluster.start_brokers(0, 1)
    await cluster.create("t", (0, 1))
    return cluster


def stored(cluster: Any, resource_type: int, name: str, key: str) -> str | None:
    value: str | None = cluster.controller.committed.image.config(resource_type, name, key)
    return value


async def test_set_and_delete(topic: Any) -> None:
    assert await topic.configure(TOPIC, "t", ("retention.ms", SET, "1000")) == (0, "")
    assert stored(topic, TOPIC, "t", "retention.ms") == "1000"
    assert await topic.configure(TOPIC, "t", ("retention.ms", DELETE, None)) == (0, "")
    assert await topic.configure(TOPIC, "t", ("retention.ms", DELETE, None), ("no.such", DELETE, None)) == (0, "")
    assert stored(topic, TOPIC, "t", "retention.ms") is None


async def test_append_and_subtract_on_lists(topic: Any) -> None:
    for operation, value, result in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, "delete,compact", "delete,compact"),
    ]:
        assert await topic.configure(TOPIC, "t", ("cleanup.policy", operation, value)) == (0, "")
        assert stored(topic, TOPIC, "t", "cleanup.policy") == result
    await topic.configure(TOPIC, "t", (THROTTLE, APPEND, "0:0"))
    await topic.configure(TOPIC, "t", (THROTTLE, APPEND, "0:1,0:0"))
    assert stored(topic, TOPIC, "t", THROTTLE) == "0:0,0:1"
    await topic.configure(TOPIC, "t", (THROTTLE, SUBTRACT, "0:0"))
    assert stored(topic, TOPIC, "t", THROTTLE) == "0:1"
    code, text = await topic.configure(TOPIC, "t", (THROTTLE, APPEND, "*"))
    assert code == 40 and text.startswith(f"Invalid value [0:1, *] for configuration {THROTTLE}")


@pytest.mark.parametrize(
    ("resource", "change", "code", "text"),
    [
        (
            (TOPIC, "t"),
            ("retention.ms", SET, "abc"),
            40,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ((TOPIC, "t"), ("no.such", SET, "1"), 40, "Unknown topic config name: no.such"),
        ((TOPIC, "t"), ("retention.ms", APPEND, "1"), 40, "Can't APPEND to key retention.ms because its type is not LIST."),
        ((TOPIC, "t"), ("no.such", SUBTRACT, "1"), 40, "Can't SUBTRACT to key no.such because its type is not LIST."),
        ((TOPIC, "t"), ("retention.ms", SET, None), 42, "Null value not supported for : retention.ms"),
        ((TOPIC, "t"), ("cleanup.policy", APPEND, None), 42, "Null value not supported for : cleanup.policy"),
        (
            (TOPIC, "t"),
            ("retention.ms", 7, "1"),
            42,
            "Unknown config operation 7 for key retention.ms; it is one of 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT.",
        ),
        ((TOPIC, ""), ("retention.ms", SET, "1"), 42, "Default topic resources are not allowed."),
        ((TOPIC, "u"), ("retention.ms", SET, "1"), 3, "The topic 'u' does not exist."),
        ((0, "x"), ("a", SET, "1"), 42, "Unknown resource type 0"),
        ((64, "x"), ("a", SET, "1"), 42, "Unknown resource type 64"),
        ((BROKER, "abc"), (RATE, SET, "1"), 42, "Broker id must be an integer, but it is: abc"),
        ((BROKER, "9"), (RATE, SET, "1"), 102, "No broker with id 9 is registered."),
        ((BROKER, "0"), (RATE, SET, "x"), 42, f"Invalid value x for configuration {RATE}: Not a number of type LONG"),
        ((BROKER, "0"), ("broker.rack", SET, "x"), 42, "Cannot update these configs dynamically: [broker.rack]"),
    ],
)
async def test_changes_are_refused(
    topic: Any, resource: tuple[int, str], change: tuple[str, int, str | None], code: int, text: str
) -> None:
    end = topic.quorum.end_offset
    assert await topic.configure(*resource, change) == (code, text)
    assert topic.quorum.end_offset == end


async def test_invalid_topic_names_and_types_kept_elsewhere(topic: Any) -> None:
    assert (await topic.configure(TOPIC, "a b", ("retention.ms", SET, "1")))[0] == 17
    for resource_type in (8, 16, 32):
        assert (await topic.configure(resource_type, "x", ("a", SET, "1")))[0] == 42


async def test_a_resource_is_all_or_nothing_and_resources_are_independent(topic: Any) -> None:
    request = admin_pb2.IncrementalAlterConfigsRequest()
    bad = request.resources.add(resource_type=TOPIC, resource_name="t")
    bad.configs.add(name="retention.ms", value="1")
    bad.configs.add(name="min.insync.replicas", value="x")
    good = request.resources.add(resource_type=BROKER, resource_name="")
    good.configs.add(name=RATE, value="5")
    response = await topic.write(configs.alter, request)
    assert [r.error_code for r in response.responses] == [40, 0]
    assert stored(topic, TOPIC, "t", "retention.ms") is None
    assert stored(topic, BROKER, "", RATE) == "5"


async def test_keys_and_resources_named_twice(topic: Any) -> None:
    code, text = await topic.configure(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert (code, text) == (42, "Error due to duplicate config keys")
    request = admin_pb2.IncrementalAlterConfigsRequest()
    for value in "12":
        request.resources.add(resource_type=TOPIC, resource_name="t").configs.add(name="retention.ms", value=value)
    response = await topic.write(configs.alter, request)
    assert {(r.error_code, r.error_message) for r in response.responses} == {(42, "Each resource must appear at most once.")}


async def test_an_unchanged_value_is_written_for_brokers_only(topic: Any) -> None:
    for resource, key, writes in [((TOPIC, "t"), "retention.ms", 0), ((BROKER, "0"), RATE, 1)]:
        await topic.configure(*resource, (key, SET, "5"))
        end = topic.quorum.end_offset
        await topic.configure(*resource, (key, SET, "5"))
        assert topic.quorum.end_offset == end + writes


async def test_validate_only_writes_nothing(topic: Any) -> None:
    end = topic.quorum.end_offset
    assert await topic.configure(TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == (0, "")
    assert (await topic.configure(TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True))[0] == 40
    assert topic.quorum.end_offset == end


def describe(cluster: Any, resource_type: int, name: str, *keys: str) -> tuple[int, dict[str, tuple[str | None, int]]]:
    request = admin_pb2.DescribeConfigsRequest()
    resource = request.resources.add(resource_type=resource_type, resource_name=name)
    if keys:
        resource.configuration_keys.values.extend(keys)
    (result,) = configs.describe(cluster.controller.committed, request, cluster.settings).results
    return result.error_code, {e.name: (e.value if e.HasField("value") else None, e.config_source) for e in result.configs}


async def test_a_topics_value_comes_from_topic_then_cluster_then_file_then_default(tools: Any) -> None:
    static = {"log.retention.ms": "3"}
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, static=static))
    await cluster.lead()
    await cluster.start_brokers(0)
    await cluster.create("t", (0,))
    assert describe(cluster, TOPIC, "t", "segment.ms")[1] == {"segment.ms": ("604800000", 5)}
    assert describe(cluster, TOPIC, "t", "retention.ms")[1] == {"retention.ms": ("3", 4)}
    await cluster.configure(BROKER, "", ("log.retention.ms", SET, "4"))
    assert describe(cluster, TOPIC, "t", "retention.ms")[1] == {"retention.ms": ("4", 3)}
    await cluster.configure(TOPIC, "t", ("retention.ms", SET, "5"))
    assert describe(cluster, TOPIC, "t", "retention.ms")[1] == {"retention.ms": ("5", 1)}
    assert len(describe(cluster, TOPIC, "t")[1]) > 30


async def test_broker_values_are_those_of_the_broker_then_of_the_cluster(topic: Any) -> None:
    await topic.configure(BROKER, "", (RATE, SET, "1"), ("own.key", SET, "secret"))
    await topic.configure(BROKER, "0", (RATE, SET, "2"))
    assert describe(topic, BROKER, "0", RATE) == (0, {RATE: ("2", 2)})
    assert describe(topic, BROKER, "1", RATE) == (0, {RATE: ("1", 3)})
    assert describe(topic, BROKER, "")[1] == {RATE: ("1", 3), "own.key": (None, 3)}, "what is not known may be secret"


async def test_descriptions_of_what_is_not_there(topic: Any) -> None:
    assert describe(topic, TOPIC, "u")[0] == 3
    assert describe(topic, TOPIC, "a b")[0] == 17
    assert describe(topic, 7, "x")[0] == 42
    assert describe(topic, BROKER, "9")[0] == 102
    assert describe(topic, TOPIC, "t", "no.such") == (0, {})


async def test_unclean_election_is_decided_by_topic_then_cluster_then_file(tools: Any) -> None:
    cluster = tools.Cluster(
        tools.Settings(tools.cluster_id, 3000, static={"unclean.leader.election.enable": "true"}, max_idle_interval_ms=0)
    )
    await cluster.lead()
    await cluster.start_brokers(0)
    await cluster.create("t", (0,))

    def enabled() -> bool:
        return unclean_election_enabled(cluster.controller.newest.image, "t", cluster.settings)

    assert enabled()
    await cluster.configure(BROKER, "", ("unclean.leader.election.enable", SET, "false"))
    assert not enabled()
    await cluster.configure(TOPIC, "t", ("unclean.leader.election.enable", SET, "true"))
    assert enabled()
