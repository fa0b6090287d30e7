"""The texts are those of Apache Kafka 4.3 for the same values."""

from __future__ import annotations

import pytest

from kraftlab.config.topic_configs import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    broker_key,
    validate_broker_value,
    validate_client_metrics,
    validate_group_values,
    validate_topic_value,
)

REPLICAS = (
    "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        (
            "min.cleanable.dirty.ratio",
            "0_1",
            "Invalid value 0_1 for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "min.cleanable.dirty.ratio",
            "\u0660.\u0665",
            "Invalid value \u0660.\u0665 for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("min.insync.replicas", "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"),
        (
            "compression.type",
            "rar",
            "Invalid value rar for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("cleanup.policy", "rar", "Invalid value rar for configuration cleanup.policy: String must be one of: compact, delete"),
        (
            "cleanup.policy",
            "delete,rar",
            "Invalid value rar for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "unclean.leader.election.enable",
            "perhaps",
            "Invalid value perhaps for configuration unclean.leader.election.enable: Expected value to be either true or false",
        ),
        (
            "leader.replication.throttled.replicas",
            "0:1,bad",
            "Invalid value [0:1, bad] for configuration leader.replication.throttled.replicas: "
            f"leader.replication.throttled.replicas {REPLICAS}",
        ),
        (
            "leader.replication.throttled.replicas",
            "0:1,*",
            "Invalid value [0:1, *] for configuration leader.replication.throttled.replicas: "
            f"leader.replication.throttled.replicas {REPLICAS}",
        ),
        (
            "leader.replication.throttled.replicas",
            "*,*",
            "Invalid value [*, *] for configuration leader.replication.throttled.replicas: "
            f"leader.replication.throttled.replicas {REPLICAS}",
        ),
        ("cleanup.policy", ",", "Configuration 'cleanup.policy' values must not be empty."),
        ("cleanup.policy", "compact,", "Configuration 'cleanup.policy' values must not be empty."),
        ("cleanup.policy", "compact,,delete", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "cleanup.policy",
            "compact,none",
            "Invalid value none for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "cleanup.policy",
            "Compact",
            "Invalid value Compact for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("no.such", "x", "Unknown topic config name: no.such"),
    ],
)
def test_a_bad_topic_value_is_refused_in_kafkas_words(name: str, value: str, refusal: str) -> None:
    assert validate_topic_value(name, value) == refusal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", ""),
        ("cleanup.policy", " "),
        ("cleanup.policy", "compact,compact"),
        ("retention.ms", "-1"),
        ("leader.replication.throttled.replicas", "0:1,0:1"),
        ("leader.replication.throttled.replicas", "0:1,"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", ""),
        ("follower.replication.throttled.replicas", "0:1,12:3"),
        ("min.cleanable.dirty.ratio", "0.25"),
    ],
)
def test_good_topic_values_pass(name: str, value: str) -> None:
    assert validate_topic_value(name, value) is None


RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        (RATE, "1.5", f"Invalid value 1.5 for configuration {RATE}: Not a number of type LONG"),
        (RATE, "-1", f"Invalid value -1 for configuration {RATE}: Value must be at least 0"),
        (RATE, "9223372036854775808", f"Invalid value 9223372036854775808 for configuration {RATE}: Not a number of type LONG"),
        (RATE, "9223372036854775807", None),
        ("num.io.threads", "x", "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        ("node.id", "7", "Cannot update these configs dynamically: [node.id]"),
        ("broker.rack", "r", "Cannot update these configs dynamically: [broker.rack]"),
        ("no.such", "x", None),
        ("log.retention.ms", "99999", None),
        ("log.cleanup.policy", "compact,compact", None),
        (
            "log.cleanup.policy",
            "none",
            "Invalid value none for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        ("cordoned.log.dirs", "/d0, ", "Configuration 'cordoned.log.dirs' values must not be empty."),
    ],
)
def test_broker_values_are_judged_as_kafka_judges_them(name: str, value: str, refusal: str | None) -> None:
    assert validate_broker_value(name, value) == refusal


def test_a_key_of_one_listener_is_that_key() -> None:
    assert validate_broker_value("ssl.keystore.location", "/x") == (
        "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"
    )
    assert validate_broker_value("listener.name.external.ssl.keystore.location", "/x") is None
    assert broker_key("listener.name.external.ssl.keystore.location") is BROKER_KEYS["ssl.keystore.location"]
    assert broker_key("no.such") is None


def test_passwords_are_sensitive_and_never_quoted() -> None:
    assert BROKER_KEYS["listener.name.grpc.users"].is_sensitive
    assert not BROKER_KEYS["listeners"].is_sensitive


@pytest.mark.parametrize(
    ("key", "written", "shown"),
    [
        ("retention.ms", " 007 ", "7"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("preallocate", " TRUE", "true"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", "compact,compact", "compact"),
        ("cleanup.policy", "delete, delete ,compact", "delete,compact"),
        ("leader.replication.throttled.replicas", "0:1,0:1", "0:1,0:1"),
        ("leader.replication.throttled.replicas", "0:1,", "0:1,"),
        ("compression.type", "lz4", "lz4"),
    ],
)
def test_a_value_is_shown_the_same_however_it_was_written(key: str, written: str, shown: str) -> None:
    assert TOPIC_KEYS[key].fault(written) is None
    assert TOPIC_KEYS[key].normal(written) == shown


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({SESSION: "50000"}, None),
        ({SESSION: "1"}, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "9999999"}, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        ({SESSION: "x"}, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        (
            {"share.isolation.level": "x"},
            "Invalid value x for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
    ],
)
def test_a_groups_values_stay_within_what_the_brokers_allow(values: dict[str, str], refusal: str | None) -> None:
    assert validate_group_values(values, {}) == refusal


def test_a_groups_heartbeats_are_shorter_than_its_session() -> None:
    static = {"group.consumer.max.heartbeat.interval.ms": "50000"}
    assert validate_group_values({HEARTBEAT: "46000"}, static) == f"{HEARTBEAT} must be less than {SESSION}"
    assert validate_group_values({HEARTBEAT: "46000", SESSION: "47000"}, static) is None


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        ("metrics", "a.b,c", None),
        ("interval.ms", "100", None),
        ("interval.ms", "99", "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ("interval.ms", "x", "Invalid value x for configuration interval.ms: Not a number of type INT"),
        ("match", "client_id=abc.*,client_source_port=[0-9]+", None),
        ("match", "client_id", "Illegal client matching pattern: client_id"),
        ("match", "planet=x", "Illegal client matching pattern: planet=x"),
        ("match", "client_id=(", "Illegal client matching pattern: client_id=("),
    ],
)
def test_subscriptions_to_client_metrics(name: str, value: str, refusal: str | None) -> None:
    assert validate_client_metrics(name, value) == refusal


def test_every_default_is_valid() -> None:
    for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values(), *GROUP_KEYS.values(), *CLIENT_METRICS_KEYS.values()):
        if key.default is not None and key.name not in ("broker.id",):
            assert key.fault(key.default) is None, key.name
