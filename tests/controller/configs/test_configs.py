"""IncrementalAlterConfigs and DescribeConfigs: operations, checks in order, sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.resources import ConfigOperation
from kraftlab.controller.cluster import controllers
from kraftlab.controller.configs import configs, description
from kraftlab.controller.configs.description import unclean_election_enabled
from kraftlab.controller.engine.state import Outcome
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import ControllerRegistrationRequest, ForwardingBroker
from kraftlab.metadata.records import Config, Listener
from kraftlab.rpc.server import Call

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SESSION = "consumer.session.timeout.ms"
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
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


async def test_a_policy_named_twice_counts_once(topic: Any) -> None:
    """As Apache Kafka 4.3 answers."""
    assert await topic.configure(TOPIC, "t", ("cleanup.policy", SET, "compact,compact")) == (0, "")
    assert await topic.configure(TOPIC, "t", ("cleanup.policy", APPEND, "delete,delete")) == (0, "")
    assert stored(topic, TOPIC, "t", "cleanup.policy") == "compact,delete"
    refusal = (ErrorCode.INVALID_CONFIG, "Configuration 'cleanup.policy' values must not be empty.")
    for value in (",", "compact,", "compact,,delete"):
        assert await topic.configure(TOPIC, "t", ("cleanup.policy", SET, value)) == refusal
    assert stored(topic, TOPIC, "t", "cleanup.policy") == "compact,delete"


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
        ((BROKER, "abc"), (RATE, SET, "1"), 42, "Node id must be an integer, but it is: abc"),
        ((BROKER, "00"), (RATE, SET, "1"), 42, "Node id must be written as 0, but it is: 00"),
        ((BROKER, "9"), (RATE, SET, "1"), 102, "No broker with id 9 is registered."),
        ((BROKER, "0"), (RATE, SET, "x"), 42, f"Invalid value x for configuration {RATE}: Not a number of type LONG"),
        ((BROKER, "0"), ("broker.rack", SET, "x"), 42, "Cannot update these configs dynamically: [broker.rack]"),
        (
            (GROUP, "g"),
            (SESSION, SET, "1"),
            40,
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        ((GROUP, "g"), ("no.such", SET, "1"), 40, "Unknown group config name: no.such"),
        ((GROUP, ""), (SESSION, SET, "50000"), 42, "Default group resources are not allowed."),
        ((CLIENT_METRICS, ""), ("metrics", SET, "a"), 42, "Subscription name can't be empty"),
        ((CLIENT_METRICS, "m"), ("no.such", SET, "a"), 42, "Unknown client metrics configuration: no.such"),
        (
            (CLIENT_METRICS, "m"),
            ("interval.ms", SET, "1"),
            42,
            "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ((CLIENT_METRICS, "m"), ("match", SET, "planet=x"), 40, "Illegal client matching pattern: planet=x"),
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
    assert (await topic.configure(8, "0", ("a", SET, "INFO")))[0] == 42


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
    """Not even for these does an unchanged min.insync.replicas clear the eligible leader replicas."""
    for resource, key, writes in [
        ((TOPIC, "t"), "retention.ms", 0),
        ((BROKER, "0"), RATE, 1),
        ((TOPIC, "t"), "min.insync.replicas", 0),
        ((BROKER, ""), "min.insync.replicas", 1),
    ]:
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
    (result,) = description.describe(cluster.controller.committed, request, cluster.settings).results
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
    await topic.configure(BROKER, "", (RATE, SET, "1"))
    await topic.write(lambda *_: Outcome([Config(0, BROKER, "", "own.key", "secret")], ()), None)
    await topic.configure(BROKER, "0", (RATE, SET, "2"))
    assert describe(topic, BROKER, "0", RATE) == (0, {RATE: ("2", 2)})
    assert describe(topic, BROKER, "1", RATE) == (0, {RATE: ("1", 3)})
    assert describe(topic, BROKER, "")[1] == {
        RATE: ("1", 3),
        "min.insync.replicas": ("1", 3),
        "own.key": (None, 3),
    }, "what is not known may be secret"


async def test_descriptions_of_missing_resources(topic: Any) -> None:
    assert describe(topic, TOPIC, "u")[0] == 3
    assert describe(topic, TOPIC, "a b")[0] == 17
    assert describe(topic, 7, "x")[0] == 42
    assert describe(topic, BROKER, "9")[0] == 102
    assert describe(topic, TOPIC, "t", "no.such") == (0, {})


async def test_a_controller_decides_by_its_own_value_and_not_by_a_brokers(five: Any) -> None:
    registration = ControllerRegistrationRequest(3000, b"i" * 16, (Listener("CONTROLLER", "c", 1),), supported_features())
    await five.write(controllers.register, registration)
    await five.create("t", (0,))

    def enabled() -> bool:
        return unclean_election_enabled(five.controller.newest.image, "t", five.settings)

    assert (await five.configure(BROKER, "0", ("unclean.leader.election.enable", SET, "true")))[0] == 40
    assert not enabled()
    assert await five.configure(BROKER, "3000", ("unclean.leader.election.enable", SET, "true")) == (0, "")
    assert enabled()
    assert (await five.configure(BROKER, "3001", ("unclean.leader.election.enable", SET, "true")))[0] == 102


# --- groups and client metrics ------------------------------------------------------------------------------------------------


async def test_groups_and_subscriptions_exist_as_long_as_they_have_a_value(topic: Any) -> None:
    assert await topic.configure(GROUP, "g", (SESSION, SET, "50000")) == (0, "")
    assert await topic.configure(CLIENT_METRICS, "m", ("metrics", SET, "a,b")) == (0, "")
    assert describe(topic, GROUP, "g", SESSION) == (0, {SESSION: ("50000", 8)})
    assert describe(topic, GROUP, "nobody", SESSION) == (0, {SESSION: ("45000", 5)})
    assert describe(topic, CLIENT_METRICS, "m", "metrics", "interval.ms")[1] == {
        "metrics": ("a,b", 7),
        "interval.ms": ("300000", 5),
    }
    assert listed(topic, GROUP, CLIENT_METRICS) == [(GROUP, "g"), (CLIENT_METRICS, "m")]
    await topic.configure(GROUP, "g", (SESSION, DELETE, None))
    assert listed(topic, GROUP) == []


async def test_a_subscription_has_no_default_as_a_synonym(topic: Any) -> None:
    await topic.configure(CLIENT_METRICS, "m", ("metrics", SET, "a,b"))
    request = admin_pb2.DescribeConfigsRequest(include_synonyms=True)
    request.resources.add(resource_type=CLIENT_METRICS, resource_name="m")
    (result,) = description.describe(topic.controller.committed, request, topic.settings).results
    synonyms = {entry.name: [(each.value, each.source) for each in entry.synonyms] for entry in result.configs}
    assert synonyms == {"interval.ms": [], "match": [], "metrics": [("a,b", 7)]}


@pytest.mark.parametrize(("operation", "name"), [(APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")])
@pytest.mark.parametrize("key", ["match", "metrics", "interval.ms", "no.such"])
async def test_a_subscriptions_keys_are_no_lists(topic: Any, operation: ConfigOperation, name: str, key: str) -> None:
    text = f"Can't {name} to key {key} because its type is not LIST."
    assert await topic.configure(CLIENT_METRICS, "m", (key, operation, "client_id=a.*")) == (40, text)


async def test_a_value_of_one_listener_is_read_only_wherever_it_is_described(topic: Any) -> None:
    secret, own = "listener.name.external.ssl.keystore.password", "listener.name.external.max.connections"
    written = [Config(0, BROKER, "0", key, "1") for key in (secret, own, "max.connections")]
    await topic.write(lambda *_: Outcome(written, ()), None)
    request = admin_pb2.DescribeConfigsRequest()
    request.resources.add(resource_type=BROKER, resource_name="0").configuration_keys.values.extend(
        [secret, own, "max.connections"]
    )
    for broker in (None, ForwardingBroker(0)):
        (result,) = description.describe(topic.controller.committed, request, topic.settings, broker).results
        read_only = {entry.name: entry.read_only for entry in result.configs}
        assert read_only == {secret: True, own: True, "max.connections": False}


def listed(cluster: Any, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = admin_pb2.ListConfigResourcesRequest(resource_types=types)
    response = description.list_resources(cluster.controller.committed.image, request, version)
    return [(entry.resource_type, entry.resource_name) for entry in response.config_resources]


async def test_resources_are_listed_by_type_all_of_them_without_one(topic: Any) -> None:
    assert listed(topic, TOPIC) == [(TOPIC, "t")]
    assert listed(topic) == [(TOPIC, "t"), (BROKER, "0"), (BROKER, "1"), (8, "0"), (8, "1")]
    assert listed(topic, version=0) == []
    with pytest.raises(ApiError) as refused:
        listed(topic, TOPIC, 99)
    assert refused.value.code == 35


# --- synonyms and types -------------------------------------------------------------------------------------------------------


async def test_a_description_has_types_and_on_request_synonyms_and_documentation(topic: Any) -> None:
    await topic.configure(TOPIC, "t", ("retention.ms", SET, " 5 "))
    request = admin_pb2.DescribeConfigsRequest(include_synonyms=True, include_documentation=True)
    resource = request.resources.add(resource_type=TOPIC, resource_name="t")
    resource.configuration_keys.values.extend(["min.insync.replicas", "retention.ms", "preallocate"])
    (result,) = description.describe(topic.controller.committed, request, topic.settings).results
    assert (result.error_code, result.HasField("error_message")) == (0, True)
    found = {
        entry.name: (entry.value, entry.config_type, [(s.name, s.value, s.source) for s in entry.synonyms])
        for entry in result.configs
    }
    assert found == {
        "min.insync.replicas": ("1", 3, [("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5)]),
        "preallocate": ("false", 1, [("log.preallocate", "false", 5)]),
        "retention.ms": ("5", 5, [("retention.ms", "5", 1)]),
    }
    assert [entry.name for entry in result.configs if entry.documentation] == ["min.insync.replicas", "retention.ms"]


# --- the broker that was asked ------------------------------------------------------------------------------------------------

ASKED = ForwardingBroker(
    0, {"node.id": "0", "log.dirs": "/data/d0,/data/d1", "num.replica.fetchers": "4", "log.segment.delete.delay.ms": "1000"}
)


async def change_at(cluster: Any, broker: ForwardingBroker, name: str, key: str, value: str) -> tuple[int, str]:
    request = admin_pb2.IncrementalAlterConfigsRequest(validate_only=True)
    request.resources.add(resource_type=BROKER, resource_name=name).configs.add(name=key, value=value)
    response = await cluster.write(lambda s, r, c: configs.alter(s, r, c._replace(broker=broker)), request)
    return response.responses[0].error_code, response.responses[0].error_message


async def test_the_configs_of_a_broker_that_is_down_are_changed_at_any_broker(cluster: Any) -> None:
    """A plan that moves replicas off it sets its throttle (KAFKA-13392)."""
    at, rate = ForwardingBroker(0), "leader.replication.throttled.rate"
    await cluster.start_brokers(0, 1)
    assert (await change_at(cluster, at, "1", rate, "1000"))[0] == ErrorCode.INVALID_REQUEST
    await cluster.stop_broker(1)
    assert await change_at(cluster, at, "1", rate, "1000") == (ErrorCode.NONE, "")
    assert (await change_at(cluster, at, "99", rate, "1000"))[0] == ErrorCode.INVALID_REQUEST
    await cluster.configure(BROKER, "1", (rate, SET, "1000"))
    request = admin_pb2.DescribeConfigsRequest()
    request.resources.add(resource_type=BROKER, resource_name="1")
    (shown,) = description.describe(cluster.controller.committed, request, cluster.settings, at).results
    assert (rate, "1000") in [(config.name, config.value) for config in shown.configs]


@pytest.mark.parametrize(
    ("name", "key", "value", "code", "text"),
    [
        ("0", "log.retention.ms", "1", 0, ""),
        ("", "log.retention.ms", "1", 0, ""),
        ("1", "log.retention.ms", "1", 42, "Unexpected broker id, expected 0, but received 1"),
        ("abc", "log.retention.ms", "1", 42, "Node id must be an integer, but it is: abc"),
        ("0", "no.such.config", "x", 40, "Unknown broker config name: no.such.config"),
        (
            "",
            "num.replica.fetcher",
            "2",
            40,
            "Unknown broker config name: num.replica.fetcher; did you mean num.replica.fetchers?",
        ),
        ("0", "num.io.threads", "8", 0, ""),
        (
            "0",
            "num.io.threads",
            "16",
            40,
            "num.io.threads=16 has no effect: a kraftlab node serves all connections on one event loop; "
            "remove it or set num.io.threads=8",
        ),
        (
            "0",
            "listener.name.external.log.retention.ms",
            "1",
            40,
            "listener.name.external.log.retention.ms has no effect: all listeners share log.retention.ms; "
            "set it without the prefix",
        ),
        (
            "0",
            "listeners",
            "PEER://h:1",
            40,
            "listeners cannot change dynamically: listeners open when the node starts; "
            "write it into server.properties and restart the node",
        ),
        (
            "0",
            "reassignment.plans.kept",
            "1",
            40,
            "reassignment.plans.kept has no effect for one broker: the active controller decides for the whole cluster; "
            "set it as the default of all brokers",
        ),
        ("", "reassignment.plans.kept", "1", 0, ""),
        (
            "0",
            "num.replica.fetchers",
            "100",
            42,
            "Dynamic thread count update validation failed for num.replica.fetchers=100, "
            "value should not be greater than double the current value 4",
        ),
        ("0", "listeners", "x", 42, "Error creating broker listeners from '[x]': Unable to parse x to a broker endpoint"),
        ("0", "cordoned.log.dirs", "/data/d1", 0, ""),
        ("0", "cordoned.log.dirs", "*", 0, ""),
        (
            "0",
            "cordoned.log.dirs",
            "/no",
            42,
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /no; "
            "the broker has /data/d0, /data/d1",
        ),
        ("", "cordoned.log.dirs", "*", 42, "Cannot update these configs at default cluster level: [cordoned.log.dirs]"),
        ("0", "min.insync.replicas", "2", 40, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ("", "min.insync.replicas", "2", 0, ""),
    ],
)
async def test_a_broker_judges_its_own_configs(topic: Any, name: str, key: str, value: str, code: int, text: str) -> None:
    assert await change_at(topic, ASKED, name, key, value) == (code, text)


async def test_values_are_inherited_from_the_forwarding_broker(topic: Any) -> None:
    await topic.configure(BROKER, "0", ("log.retention.ms", SET, "99"))

    def described(kind: int, name: str, key: str, broker: ForwardingBroker) -> tuple[int, str, list[Any]]:
        request = admin_pb2.DescribeConfigsRequest(include_synonyms=True)
        request.resources.add(resource_type=kind, resource_name=name).configuration_keys.values.append(key)
        (result,) = description.describe(topic.controller.committed, request, topic.settings, broker).results
        values = [(e.value, e.config_source, [(s.name, s.value, s.source) for s in e.synonyms]) for e in result.configs]
        return result.error_code, result.error_message, values

    delay = [("log.segment.delete.delay.ms", "1000", 4), ("log.segment.delete.delay.ms", "60000", 5)]
    assert described(TOPIC, "t", "file.delete.delay.ms", ASKED)[2] == [("1000", 4, delay)]
    assert described(TOPIC, "t", "retention.ms", ASKED)[2] == [
        ("99", 2, [("log.retention.ms", "99", 2), ("log.retention.hours", "168", 5)])
    ]
    assert described(TOPIC, "t", "retention.ms", ForwardingBroker(1))[2] == [("604800000", 5, [])]
    assert described(BROKER, "0", "broker.id", ASKED)[2] == [("0", 4, [("broker.id", "0", 4), ("broker.id", "-1", 5)])]
    assert described(BROKER, "0", RATE, ASKED) == (0, "", []), "shown when it is set"
    assert described(BROKER, "1", RATE, ASKED) == (42, "Unexpected broker id, expected 0 or empty string, but received 1", [])
    assert described(BROKER, "abc", RATE, ASKED) == (42, "Broker id must be an integer, but it is: abc", [])
    assert described(BROKER, "", "num.partitions", ASKED) == (0, "", [])


# --- the old call -------------------------------------------------------------------------------------------------------------


async def replace(cluster: Any, **values: str | None) -> tuple[int, str]:
    request = admin_pb2.AlterConfigsRequest()
    resource = request.resources.add(resource_type=TOPIC, resource_name="t")
    for name, value in values.items():
        resource.configs.add(name=name.replace("_", "."), value=value)
    response = await cluster.write(configs.replace, request)
    return response.responses[0].error_code, response.responses[0].error_message


async def test_alter_configs_deletes_all_values_that_it_does_not_name(topic: Any) -> None:
    await topic.configure(TOPIC, "t", ("retention.ms", SET, "1000"), ("min.insync.replicas", SET, "1"))
    assert await replace(topic, cleanup_policy="compact") == (0, "")
    assert dict(topic.controller.committed.image.configs[(TOPIC, "t")]) == {"cleanup.policy": "compact"}
    assert await replace(topic, retention_ms="x") == (
        40,
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    )
    assert await replace(topic, retention_ms=None) == (42, "Null value not supported for : retention.ms")
    assert await replace(topic) == (0, "")
    assert (TOPIC, "t") not in topic.controller.committed.image.configs


# --- eligible leader replicas -------------------------------------------------------------------------------------------------


async def test_the_clusters_min_isr_stays_while_eligible_leaders_are_kept(topic: Any) -> None:
    text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    assert await topic.configure(BROKER, "", ("min.insync.replicas", DELETE, None)) == (40, text)


# --- policies -----------------------------------------------------------------------------------------------------------------


def no_short_retention(resource_type: int, name: str, values: dict[str, str]) -> None:
    if int(values.get("retention.ms", "10000")) < 10_000:
        raise ValueError(f"{name} must keep its records for 10 s")


async def test_a_policy_of_the_server_may_refuse(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import kraftlab.controller.configs.policies as policies

    monkeypatch.setattr(policies, "no_short_retention", no_short_retention, raising=False)
    static = {"alter.config.policy.class.name": "kraftlab.controller.configs.policies:no_short_retention"}
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, static=static, max_idle_interval_ms=0))
    await cluster.lead()
    await cluster.start_brokers(0)
    await cluster.create("t", (0,))
    assert await cluster.configure(TOPIC, "t", ("retention.ms", SET, "5")) == (44, "t must keep its records for 10 s")
    assert await cluster.configure(TOPIC, "t", ("retention.ms", SET, "50000")) == (0, "")


@pytest.mark.parametrize("entry", ["no.such.module:f", "os:no_such", "os:sep", "os"])
def test_a_policy_that_cannot_be_loaded_is_refused_at_the_start(entry: str) -> None:
    from kraftlab.config.errors import ConfigError
    from kraftlab.controller.configs.policies import check_loadable

    with pytest.raises(ConfigError, match="module:callable"):
        check_loadable({"alter.config.policy.class.name": entry})


@pytest.mark.parametrize("source", ["def policy(:", "raise RuntimeError('no database')"])
def test_a_policy_whose_module_fails_is_refused_at_the_start(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kraftlab.config.errors import ConfigError
    from kraftlab.controller.configs.policies import check_loadable

    (tmp_path / "broken_policy.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"broken_policy:policy: .*module:callable"):
        check_loadable({"create.topic.policy.class.name": "broken_policy:policy"})


# --- committed or not ---------------------------------------------------------------------------------------------------------


async def test_a_change_is_described_and_answered_once_it_is_committed(topic: Any) -> None:
    request = admin_pb2.IncrementalAlterConfigsRequest()
    request.resources.add(resource_type=TOPIC, resource_name="t").configs.add(name="retention.ms", value="5")
    answer = topic.controller.write("test", lambda state, context: configs.alter(state, request, context))
    assert not answer.done
    assert describe(topic, TOPIC, "t", "retention.ms")[1] == {"retention.ms": ("604800000", 5)}
    await topic.commit()
    assert answer.done
    assert describe(topic, TOPIC, "t", "retention.ms")[1] == {"retention.ms": ("5", 1)}


# --- loggers ------------------------------------------------------------------------------------------------------------------


async def test_a_controller_answers_for_its_own_loggers_and_for_the_rest_of_the_request(topic: Any, tools: Any) -> None:
    served = tools.ServedController(topic, accepts=True)

    async def call(api: str, request: Any) -> Any:
        return await served.ask(Call(api, request, "User:ANONYMOUS"))

    changes = admin_pb2.IncrementalAlterConfigsRequest()
    changes.resources.add(resource_type=8, resource_name="3000").configs.add(name="no.such", value="INFO")
    changes.resources.add(resource_type=TOPIC, resource_name="t").configs.add(name="retention.ms", value="5")
    changes.resources.add(resource_type=8, resource_name="0").configs.add(name="root", value="INFO")
    answer = await call("IncrementalAlterConfigs", changes)
    assert [(entry.error_code, entry.resource_name) for entry in answer.responses] == [(40, "3000"), (0, "t"), (42, "0")]
    assert stored(topic, TOPIC, "t", "retention.ms") == "5"
    question = admin_pb2.DescribeConfigsRequest()
    question.resources.add(resource_type=8, resource_name="3000").configuration_keys.values.append("root")
    (result,) = (await call("DescribeConfigs", question)).results
    assert [(entry.name, entry.config_source) for entry in result.configs] == [("root", 6)]
