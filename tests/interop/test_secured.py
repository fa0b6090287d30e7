"""Existing Kafka clients over secured listeners: every client, listener and login in the table of docs/security.md."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kraftlab.certificates import folder

from ..helpers.waiting import wait_until
from .conftest import KafkaTools, run_franz_go
from .secured import OAUTHBEARER, PEM, PLAIN, SESSION_MS, Secured, jaas, secured, write_properties

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
TABLE = PAGE.read_text().partition("## Tested clients")[2].partition("\n## ")[0]
HEAD, _, *LINES = ([cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("|"))
ROWS = [
    (protocol, login, client)
    for client, *cells in LINES
    for protocol, logins in zip(HEAD[1:], cells, strict=True)
    for login in logins.split(", ")
]
"""Listener's protocol, login, client."""
VALUES = [str(number) for number in range(20)]
ALICE = "alice-secret"


@pytest.fixture(scope="module")
def clusters(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Secured]]:
    """Clusters by the protocol of their listener, each started on first use."""
    with ExitStack() as running:
        yield functools.cache(lambda protocol: running.enter_context(secured(protocol, tmp_path_factory.mktemp("secured"))))


@pytest.fixture
def listener(request: pytest.FixtureRequest, clusters: Callable[[str], Secured]) -> Secured:
    """The cluster of the protocol that is the parameter."""
    return clusters(request.param)


on = pytest.mark.parametrize


def tools(listener: Secured, config: Path) -> KafkaTools:
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={listener.token().as_uri()},{listener.token('foreign').as_uri()}"
    return KafkaTools(listener.servers, config, (allowed,))


def through_kafka_tools(listener: Secured, login: str, topic: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("jars")
    run = tools(listener, write_properties(request.getfixturevalue("tmp_path") / "client.properties", listener.java(login)))
    run("kafka-console-producer", "--topic", topic, stdin="".join(f"{value}\n" for value in VALUES))
    limits = ("--group", topic, "--from-beginning", "--max-messages", str(len(VALUES)))
    assert sorted(run("kafka-console-consumer", "--topic", topic, *limits).splitlines()) == sorted(VALUES)


def through_franz_go(listener: Secured, login: str, topic: str, request: pytest.FixtureRequest) -> None:
    run = functools.partial(run_franz_go, request.getfixturevalue("franz_go"), environment=listener.franz_go(login))
    acknowledged = run("produce", listener.servers, topic, seconds=0.5).splitlines()
    assert acknowledged
    said = run("group", listener.servers, topic, str(len(acknowledged)))
    assert said == f"read {len(acknowledged)} values with 2 members\n"


def through_librdkafka(listener: Secured, login: str, topic: str, request: pytest.FixtureRequest) -> None:
    producer = confluent_kafka.Producer(listener.librdkafka(login))
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    assert sorted(read_by_librdkafka(listener, login, topic, len(VALUES))) == sorted(VALUES)


def read_by_librdkafka(listener: Secured, login: str, topic: str, count: int) -> list[str]:
    """Read `count` values as a group."""
    reader = confluent_kafka.Consumer(listener.librdkafka(login) | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        reader.subscribe([topic])
        values: list[str] = []
        while len(values) < count:
            message = reader.poll(30)
            assert message is not None, f"read {len(values)} values of {count}"
            value = message.value()
            assert message.error() is None and value is not None, message.error()
            values.append(value.decode())
        return values
    finally:
        reader.close()


THROUGH = {
    "Apache Kafka's tools": through_kafka_tools,
    "franz-go": through_franz_go,
    "librdkafka": through_librdkafka,
}


@on(("listener", "login", "client"), ROWS, indirect=["listener"])
def test_a_client_logs_in_writes_and_reads(listener: Secured, login: str, client: str, request: pytest.FixtureRequest) -> None:
    topic = re.sub(r"\W", "-", f"{client}.{login}")
    with listener.cluster.admin() as admin:
        admin.create_topic(topic, partitions=2, replication_factor=2)
    THROUGH[client](listener, login, topic, request)


@on(("listener", "login"), [("SSL", PEM), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", PLAIN)], indirect=["listener"])
def test_admin_administers_the_cluster(listener: Secured, login: str, jars: None, tmp_path: Path) -> None:
    """Over SASL_SSL the file is the one that `kraftlab up --secure` writes, as it is."""
    config = listener.cluster.directory / "client.properties"
    if listener.protocol != "SASL_SSL":
        config = write_properties(tmp_path / "client.properties", listener.java(login))
    kafka = tools(listener, config)
    assert kafka("kafka-topics", "--create", "--topic", "moved", "--replica-assignment", "0") == "Created topic moved.\n"
    status = kafka("kafka-metadata-quorum", "describe", "--status")
    assert re.search(rf"^ClusterId: +{listener.cluster.cluster_id}$", status, re.MULTILINE)

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1]}]}))
    move = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment for moved-0" in kafka(*move, "--execute")
    wait_until(lambda: "Reassignment of partition moved-0 is completed." in kafka(*move, "--verify"), "moved-0 is on broker 1")

    user = ("--entity-type", "users", "--entity-name", "alice")
    both = ",".join(f"{mechanism}=[iterations=8192,password={ALICE}]" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"))
    assert kafka("kafka-configs", "--alter", *user, "--add-config", both) == "Completed updating config for user alice.\n"
    held = (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=8192\n"
    )
    assert kafka("kafka-configs", "--describe", *user) == held
    kafka("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    rule = ("--allow-principal", "User:alice", "--operation", "Write", "--topic", "moved")
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in kafka("kafka-acls", "--add", *rule)
    if listener.protocol != "SSL":
        of_alice = listener.java("SCRAM-SHA-256") | jaas("SCRAM-SHA-256", username="alice", password=ALICE)
        alice = tools(listener, write_properties(tmp_path / "alice.properties", of_alice))
        alice("kafka-console-producer", "--topic", "moved", stdin="of alice\n")
        assert read_by_librdkafka(listener, login, "moved", 1) == ["of alice"]
        assert "ClusterAuthorizationException" in alice("kafka-acls", "--list", code=1)


WRONG = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


@on(
    ("listener", "login", "changes", "said"),
    [
        ("SASL_SSL", "SCRAM-SHA-512", jaas("SCRAM-SHA-512", username="admin", password="wrong"), f"{WRONG}SCRAM-SHA-512"),
        ("SASL_SSL", "SCRAM-SHA-256", jaas("SCRAM-SHA-256", username="nobody", password="wrong"), f"{WRONG}SCRAM-SHA-256"),
        (
            "SASL_SSL",
            PLAIN,
            jaas(PLAIN, username="admin", password="wrong"),
            "Authentication failed: Invalid username or password",
        ),
        ("SASL_SSL", OAUTHBEARER, {"sasl.oauthbearer.token.endpoint.url": "{foreign-token}"}, "invalid_token"),
        ("SASL_SSL", PLAIN, {"ssl.truststore.location": "{foreign}/ca.pem"}, "SSL handshake failed"),
        ("SSL", PEM, {"ssl.keystore.location": "{foreign}/admin.pem"}, "Received fatal alert: unknown_ca"),
        ("SSL", PEM, {"ssl.keystore.type": "", "ssl.keystore.location": ""}, "Received fatal alert: certificate_required"),
    ],
    indirect=["listener"],
)
def test_a_tool_says_that_it_was_refused(
    listener: Secured, login: str, changes: dict[str, str], said: str, jars: None, tmp_path: Path
) -> None:
    folder.throw_away(tmp_path, [], ["admin"])
    places = {"{foreign}": str(tmp_path), "{foreign-token}": listener.token("foreign").as_uri()}
    values = listener.java(login) | changes
    for name, place in places.items():
        values = {key: value.replace(name, place) for key, value in values.items() if value}
    answer = tools(listener, write_properties(tmp_path / "client.properties", values))("kafka-topics", "--list", code=1)
    assert "AuthenticationException" in answer and said in answer, answer


@on(("listener", "login"), [("SASL_SSL", OAUTHBEARER), ("SASL_SSL", "SCRAM-SHA-256")], indirect=["listener"])
def test_librdkafka_logs_in_again_and_loses_no_acknowledged_record(listener: Secured, login: str) -> None:
    """It produces for two sessions, one request at a time: a login waits for those that were sent before."""
    topic = f"long-{login}"
    with listener.cluster.admin() as admin:
        admin.create_topic(topic, partitions=2, replication_factor=2)
    acknowledged: list[str] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value().decode())

    with no_session_ends(listener):
        producer = confluent_kafka.Producer(listener.librdkafka(login) | {"max.in.flight.requests.per.connection": 1})
        deadline, number = time.monotonic() + 2 * SESSION_MS / 1000, 0
        while time.monotonic() < deadline:
            producer.produce(topic, str(number), on_delivery=delivered)
            producer.poll(0.02)
            number += 1
        assert producer.flush(30) == 0
    assert len(acknowledged) == number
    assert sorted(read_by_librdkafka(listener, login, topic, number)) == sorted(acknowledged)


@on("listener", ["SASL_SSL"], indirect=True)
def test_franz_go_logs_in_again(listener: Secured, franz_go: Path) -> None:
    with listener.cluster.admin() as admin:
        admin.create_topic("long-franz", partitions=2, replication_factor=2)
    with no_session_ends(listener):
        environment, seconds = listener.franz_go(OAUTHBEARER), 1.5 * SESSION_MS / 1000
        said = run_franz_go(franz_go, "produce", listener.servers, "long-franz", seconds=seconds, environment=environment)
    acknowledged = said.splitlines()
    assert acknowledged
    assert sorted(read_by_librdkafka(listener, PLAIN, "long-franz", len(acknowledged))) == sorted(acknowledged)


@on("listener", ["SASL_PLAINTEXT"], indirect=True)
def test_apache_kafkas_producer_logs_in_again(listener: Secured, jars: None, tmp_path: Path) -> None:
    """Without TLS, where its client can leave answers unread (docs/security.md): this producer does not try again."""
    kafka = tools(listener, write_properties(tmp_path / "client.properties", listener.java("SCRAM-SHA-512")))
    with listener.cluster.admin() as admin:
        admin.create_topic("long-verifiable", partitions=2, replication_factor=2)
    count = 2 * SESSION_MS // 1000 * 50
    pace = ("--throughput", "50", "--max-messages", str(count))
    with no_session_ends(listener):
        said = kafka("kafka-verifiable-producer", "--topic", "long-verifiable", *pace)
    events = [json.loads(line) for line in said.splitlines()]
    failed = [event for event in events if event["name"] == "producer_send_error"]
    assert (failed, events[-1]["sent"], events[-1]["acked"]) == ([], count, count)
    assert len(read_by_librdkafka(listener, "SCRAM-SHA-512", "long-verifiable", count)) == count


@contextmanager
def no_session_ends(listener: Secured) -> Iterator[None]:
    """Check that no broker has closed a connection whose client did not log in again."""

    def ends() -> int:
        return sum(listener.cluster.log_path(broker).read_text().count("the session ended") for broker in (0, 1))

    before = ends()
    yield
    assert ends() == before
