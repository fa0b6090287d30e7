"""Source and synonyms of a value, as in Apache Kafka 4.3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.config.effective import BrokerValues, Source, Synonym, broker_value, topic_value
from kraftlab.config.throttled_replicas import MOVE_RATE, MOVE_RATES, NO_LIMIT
from kraftlab.config.topic_configs import BROKER_KEYS, TOPIC_KEYS

SECOND = "intra.broker.throttled.rate"
NOTHING = BrokerValues({}, {}, {})


def test_a_topic_inherits_from_the_broker_then_the_cluster_then_the_file_then_the_default() -> None:
    values = BrokerValues({"message.max.bytes": "2"}, {"message.max.bytes": "3"}, {"message.max.bytes": "4"})
    found = topic_value("max.message.bytes", "1", values)
    assert (found.value, found.source) == ("1", Source.DYNAMIC_TOPIC)
    assert [(name, value, int(source)) for name, value, source in found.synonyms] == [
        ("max.message.bytes", "1", 1),
        ("message.max.bytes", "2", 2),
        ("message.max.bytes", "3", 3),
        ("message.max.bytes", "4", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    assert topic_value("max.message.bytes", None, values)[:2] == ("2", Source.DYNAMIC_BROKER)
    assert topic_value("max.message.bytes", None, NOTHING)[:2] == ("1048588", Source.DEFAULT)


@pytest.mark.parametrize(
    ("key", "static", "value"),
    [
        ("retention.ms", {}, "604800000"),
        ("retention.ms", {"log.retention.hours": "2"}, "7200000"),
        ("retention.ms", {"log.retention.minutes": "3", "log.retention.hours": "2"}, "180000"),
        ("retention.ms", {"log.retention.ms": "4", "log.retention.minutes": "3"}, "4"),
        ("segment.ms", {"log.roll.hours": "2"}, "7200000"),
        ("segment.ms", {"log.roll.hours": "2", "log.roll.ms": "5"}, "5"),
        ("segment.jitter.ms", {"log.roll.jitter.hours": "2"}, "7200000"),
        ("segment.jitter.ms", {"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "6"}, "6"),
        ("flush.ms", {"log.flush.scheduler.interval.ms": "7"}, "7"),
        ("flush.ms", {"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}, "8"),
    ],
)
def test_of_keys_in_several_units_the_finest_counts(key: str, static: dict[str, str], value: str) -> None:
    assert topic_value(key, None, BrokerValues({}, {}, static)).value == value


def test_synonyms_begin_with_the_name_that_was_asked_for() -> None:
    assert topic_value("retention.ms", None, NOTHING).synonyms == ()
    found = topic_value("retention.ms", "9", BrokerValues({"log.retention.ms": "99999"}, {}, {}))
    assert [(name, value, int(source)) for name, value, source in found.synonyms] == [
        ("retention.ms", "9", 1),
        ("log.retention.ms", "99999", 2),
        ("log.retention.hours", "168", 5),
    ]
    assert [synonym.name for synonym in broker_value("log.retention.hours", NOTHING).synonyms] == ["log.retention.hours"]


def test_unknown_and_secret_values_are_not_shown() -> None:
    found = broker_value("no.such", BrokerValues({"no.such": "secret"}, {}, {}))
    assert found.value is None
    assert found.synonyms == (("no.such", None, Source.DYNAMIC_BROKER),)
    users = broker_value("listener.name.grpc.users", BrokerValues({}, {}, {"listener.name.grpc.users": "alice:secret"}))
    assert (users.value, users.source) == (None, Source.STATIC_BROKER)
    assert "secret" not in str(users)


@given(st.sampled_from(sorted(TOPIC_KEYS)), st.sets(st.sampled_from(["topic", "node", "cluster", "static"])))
def test_the_source_is_that_of_the_first_synonym(name: str, places: set[str]) -> None:
    key = TOPIC_KEYS[name]
    value = "1" if key.default is None else key.default
    maps = [{key.synonym: value} if place in places and key.synonym else {} for place in ("node", "cluster", "static")]
    found = topic_value(name, value if "topic" in places else None, BrokerValues(*maps))
    assert found.source == (found.synonyms[0].source if found.synonyms else Source.DEFAULT)
    assert found.value == key.normal(value)


@given(st.sampled_from(sorted(BROKER_KEYS)), st.booleans())
def test_a_broker_key_shows_its_default_unless_it_is_shown_only_when_set(name: str, is_set: bool) -> None:
    key = BROKER_KEYS[name]
    value = key.default or ("1" if key.type.value in ("INT", "SHORT", "LONG", "DOUBLE") else "x")
    found = broker_value(name, BrokerValues({name: value} if is_set else {}, {}, {}))
    assert (found.source == Source.DYNAMIC_BROKER) == is_set
    assert not (key.hidden and any(synonym.source == Source.DEFAULT for synonym in found.synonyms))


@pytest.mark.parametrize(
    ("node", "cluster", "static", "value"),
    [
        ({}, {}, {}, None),
        ({}, {}, {SECOND: "1"}, "1"),
        ({}, {SECOND: "2"}, {MOVE_RATE: "1"}, "2"),
        ({}, {SECOND: "2", MOVE_RATE: "3"}, {}, "3"),
        ({SECOND: "4"}, {MOVE_RATE: "3"}, {}, "4"),
    ],
)
def test_the_rate_of_moves_has_two_names(
    node: dict[str, str], cluster: dict[str, str], static: dict[str, str], value: str | None
) -> None:
    values = BrokerValues(node, cluster, static)
    found = [values.value(name) for name in MOVE_RATES]
    assert found == [value or str(NO_LIMIT), value]


@pytest.mark.parametrize(
    ("name", "value", "synonyms"),
    [
        ("listener.name.mtls.ssl.client.auth", "required", [("ssl.client.auth", "none")]),
        ("listener.name.mtls.ssl.keystore.type", "PEM", [("ssl.keystore.type", "JKS")]),
        ("listener.name.mtls.ssl.keystore.location", "/x/server.pem", []),
        ("listener.name.reauth.plain.connections.max.reauth.ms", "3000", [("connections.max.reauth.ms", "0")]),
        ("listener.name.reauth.sasl.enabled.mechanisms", "PLAIN", [("sasl.enabled.mechanisms", "GSSAPI")]),
    ],
)
def test_the_value_of_one_listener_stands_before_that_of_all(name: str, value: str, synonyms: list[tuple[str, str]]) -> None:
    """Rows as Apache Kafka 4.3 describes them."""
    found = broker_value(name, BrokerValues({}, {}, {name: value}))
    assert (found.value, found.source) == (value, Source.STATIC_BROKER)
    own = Synonym(name, value, Source.STATIC_BROKER)
    assert found.synonyms == (own, *(Synonym(base, default, Source.DEFAULT) for base, default in synonyms))


def test_the_password_of_one_listener_is_not_shown() -> None:
    name = "listener.name.reauth.plain.sasl.jaas.config"
    found = broker_value(name, BrokerValues({}, {}, {name: "secret"}))
    assert found.value is None
    assert found.synonyms == (Synonym(name, None, Source.STATIC_BROKER),)
