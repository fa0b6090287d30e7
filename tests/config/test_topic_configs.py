"""The texts are those that Apache Kafka 4.3 gives for the same values."""

from __future__ import annotations

import pytest

from kraftlab.config.topic_configs import (
    BROKER_KEYS,
    TOPIC_KEYS,
    is_list_key,
    topic_default,
    validate_broker_value,
    validate_topic_value,
)

REPLICAS = (
    "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
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
        ("retention.ms", "-1"),
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
    ],
)
def test_broker_values_are_judged_as_kafka_judges_them(name: str, value: str, refusal: str | None) -> None:
    assert validate_broker_value(name, value) == refusal


def test_only_lists_take_append() -> None:
    assert is_list_key(2, "cleanup.policy")
    assert not is_list_key(2, "retention.ms")
    assert is_list_key(4, "listeners")


def test_a_topics_default_comes_from_the_static_file_first() -> None:
    assert topic_default("segment.bytes", {"log.segment.bytes": "1048576"}) == ("1048576", True)
    assert topic_default("segment.bytes") == ("1073741824", False)


def test_every_default_is_valid() -> None:
    for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()):
        if key.default is not None and key.name not in ("broker.id",):
            assert key.fault(key.default) is None, key.name
