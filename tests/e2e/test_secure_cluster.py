"""`kraftlab up --secure`: one command makes a cluster with TLS and logins, and everything that its clients need."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from kraftlab.certificates.folder import issue, throw_away
from kraftlab.cli import main
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.metadata_log import MetadataLog, observer_named
from kraftlab.client.security import ClientSecurity
from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import to_text
from kraftlab.config import properties
from kraftlab.demo import strangers
from kraftlab.lab import ClusterError, LocalCluster
from kraftlab.lab.links.shape import LinkShape
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.rpc.methods import SERVICE

pytestmark = pytest.mark.cluster
GROUPS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
BEGINNING = OffsetAndEpoch(0, 0)
ALICE = "marker-alice-6Wq"


@pytest.fixture(scope="module")
def cluster(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("secure") / "lab"
    with LocalCluster(directory, 1, 2, 1, overrides=GROUPS, secure=True, allow_chaos=True) as running:
        with running.admin() as admin:
            admin.create_topic("t", partitions=1, replication_factor=2)
        yield running


def kafka_python(cluster: LocalCluster, **changes: Any) -> dict[str, Any]:
    servers = cluster.kafka_bootstrap_servers.split(",")
    return {"bootstrap_servers": servers, **cluster.kafka_python_options, **changes}


def confluent(cluster: LocalCluster, **changes: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.kafka_bootstrap_servers, **cluster.librdkafka_properties, **changes}


def test_kafka_python_and_librdkafka_write_and_read(cluster: LocalCluster) -> None:
    with KafkaProducer(**kafka_python(cluster)) as producer:
        producer.send("t", b"from kafka-python").get(20)
    ours = confluent_kafka.Producer(confluent(cluster))
    ours.produce("t", b"from librdkafka")
    assert ours.flush(20) == 0
    expected = [b"from kafka-python", b"from librdkafka"]
    with KafkaConsumer("t", **kafka_python(cluster, group_id="g1", auto_offset_reset="earliest")) as consumer:
        assert [next(consumer).value for _ in expected] == expected
    reader = confluent_kafka.Consumer(confluent(cluster, **{"group.id": "g2", "auto.offset.reset": "earliest"}))
    reader.subscribe(["t"])
    try:
        assert [reader.poll(20).value() for _ in expected] == expected
    finally:
        reader.close()


def test_a_probe_needs_no_login_and_everything_else_does(cluster: LocalCluster) -> None:
    credentials = grpc.ssl_channel_credentials((cluster.directory / "secrets" / "ca.pem").read_bytes())
    for node in cluster.plan.nodes:
        with grpc.secure_channel(str(node.grpc), credentials) as channel:
            asked = HealthCheckRequest(service=SERVICE)
            assert HealthStub(channel).Check(asked, timeout=20).status == HealthCheckResponse.SERVING
            reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
            for refused in (HealthStub(channel).Watch(asked, timeout=20), reflect(iter([b""]), timeout=20)):
                with pytest.raises(grpc.RpcError) as caught:
                    next(refused)
                assert isinstance(caught.value, grpc.Call)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_exporter_reads_a_secure_cluster_as_its_user(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["exporter", "--once", "--data", str(cluster.directory), "--topic-filter", "^t$"]) == 0
    assert '\nkafka_topic_partition_replicas{topic="t",partition="0"} 2\n' in capsys.readouterr().out
    nobody = ["exporter", "--once", "--bootstrap-server", cluster.kafka_bootstrap_servers.split(",")[0]]
    assert main.run(nobody) == 1
    assert "\nkraftlab_exporter_up 0\n" in capsys.readouterr().out


def test_who_proves_nothing_is_refused(cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = throw_away(tmp_path / "other", [], ["admin"])
    for changes, reason in (
        ({"sasl_plain_password": "wrong"}, "SaslAuthenticationFailedError"),
        ({"ssl_cafile": str(other["ca"])}, "CERTIFICATE_VERIFY_FAILED"),
        ({"security_protocol": "PLAINTEXT"}, "socket disconnected"),
    ):
        caplog.clear()
        for bootstrap_timeout_ms in (1000, 5000, 20_000):  # as long as a busy machine needs to come to the refusal
            with pytest.raises(KafkaError):
                KafkaProducer(**kafka_python(cluster, bootstrap_timeout_ms=bootstrap_timeout_ms, **changes))
            if reason in caplog.text:
                break
        assert reason in caplog.text
    wrong = ClientSecurity.of(properties.load(cluster.directory / "client.properties"), user="admin", password="wrong")
    with AdminClient(cluster.bootstrap_servers, security=wrong) as admin, pytest.raises(ApiError, match="password is wrong"):
        admin.describe_cluster()
    with AdminClient(cluster.bootstrap_servers, timeout_ms=500) as admin, pytest.raises(ClusterUnreachable):
        admin.describe_cluster()


def test_the_demo_tells_a_cluster_that_refuses_strangers_from_an_open_one(cluster: LocalCluster, tmp_path: Path) -> None:
    is_safe, text = strangers.refused(cluster)
    assert is_safe, text
    assert all(f"{listener} without TLS" in text for listener in ("GRPC", "KAFKA", "CONTROLLER", "PEER"))
    with LocalCluster(tmp_path / "open", 1, 1, 1) as is_open:
        is_safe, text = strangers.refused(is_open)
    assert not is_safe
    assert all(f"{listener} without TLS" in text for listener in ("GRPC", "KAFKA", "CONTROLLER", "PEER"))


def test_a_user_without_rights_is_refused_and_admin_may_give_some(cluster: LocalCluster, tmp_path: Path) -> None:
    """Commands find the credentials of admin in the cluster's directory."""
    ours = ("--data", str(cluster.directory))
    file = tmp_path / "admin.properties"
    file.write_text((cluster.directory / "client.properties").read_text())
    user = ("--alter", "--entity-type", "users", "--entity-name", "alice")
    servers = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(file))
    assert main.run(["configs", *servers, *user, "--add-config", f"SCRAM-SHA-256=[iterations=4096,password={ALICE}]"]) == 0
    options = kafka_python(
        cluster, sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="alice", sasl_plain_password=ALICE, max_block_ms=5000
    )
    with KafkaProducer(**options) as producer, pytest.raises(TopicAuthorizationFailedError):
        producer.send("t", b"x").get(20)
    rule = ("--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", "t")
    assert main.run(["acls", *ours, *rule]) == 0
    with KafkaProducer(**options) as producer:
        producer.send("t", b"x").get(20)


def test_metrics_need_a_login_and_probes_do_not(cluster: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=str(cluster.directory / "secrets" / "ca.pem"))
    right = cluster.kafka_python_options["sasl_plain_password"]

    def status(at: object, path: str, password: str | None = None) -> int:
        request = urllib.request.Request(f"https://{at}{path}")
        if password is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    for node in cluster.plan.nodes:
        assert status(node.metrics, "/metrics", right) == 200
        assert status(node.metrics, "/metrics", "wrong") == status(node.metrics, "/metrics") == 401
        assert status(node.metrics, "/livez") == 200
        assert status(node.metrics, "/readyz") == 200
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=20)


def ports_of(cluster: LocalCluster) -> list[int]:
    """Ports of every listener of every node."""
    files = sorted(cluster.directory.glob("*/server.properties"))
    listeners = [properties.load(file)["listeners"].split(",") for file in files]
    return [int(each.rpartition(":")[2]) for node in listeners for each in node]


@pytest.mark.nightly
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01", bytes(3), b"GET / HTTP/1.1\r\n\r\n"])
def test_commits_go_on_while_strangers_hold_thousands_of_connections(cluster: LocalCluster, first: bytes) -> None:
    """From 80 addresses, so that no bound of one address holds them off."""
    ports, topic = ports_of(cluster), f"t-{len(first)}"
    with cluster.admin() as admin, ExitStack() as stack, KafkaProducer(**kafka_python(cluster, acks="all")) as producer:
        epoch = admin.describe_quorum().leader_epoch
        slowest_s = 0.0
        for number in range(5000):
            stranger = stack.enter_context(socket.socket())
            stranger.bind((f"127.0.1.{1 + number % 80}", 0))
            stranger.settimeout(20)
            stranger.connect(("127.0.0.1", ports[number % len(ports)]))
            with suppress(ConnectionError):
                stranger.sendall(first)
            if number % 500 == 0:
                begin = time.monotonic()
                admin.create_topic(f"{topic}-{number}", partitions=1, replication_factor=2)
                producer.send("t", b"x").get(20)
                slowest_s = max(slowest_s, time.monotonic() - begin)
        assert slowest_s < 5
        with KafkaProducer(**kafka_python(cluster)) as late:
            late.send("t", b"a new connection").get(20)
        assert admin.describe_quorum().leader_epoch == epoch
    assert not cluster.exited()
    assert not [log for log in (cluster.directory / "logs").iterdir() if "Traceback" in log.read_text()]


def test_only_who_has_cluster_action_observes_the_metadata_log(cluster: LocalCluster) -> None:
    """The user logs in at the GRPC listener, and has a certificate for the CONTROLLER listener."""
    secrets, observer = cluster.directory / "secrets", observer_named("a lake")
    own = properties.load(cluster.directory / "client.properties")
    own["ssl.keystore.location"] = str(issue(secrets, "lake"))
    user = ("--alter", "--user", "lake", "--add-config", f"SCRAM-SHA-512=[iterations=4096,password={ALICE}]")
    servers = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(cluster.directory / "client.properties"))
    assert main.run(["configs", *servers, *user]) == 0
    rule = ("acls", "--data", str(cluster.directory), "--add", "--allow-principal", "User:lake", "--cluster", "--operation")
    assert main.run([*rule, "Describe"]) == 0

    def observe(security: ClientSecurity) -> int:
        with MetadataLog(cluster.bootstrap_servers, observer=observer, security=security, timeout_ms=10_000) as log:
            assert log.fetch(BEGINNING).data
            return log.acknowledge(BEGINNING).high_watermark

    lake = ClientSecurity.of(own, user="lake", password=ALICE)
    with pytest.raises(ApiError, match=r"ClusterAction to the user in this client's certificate .*--operation ClusterAction"):
        observe(lake)
    assert main.run([*rule, "ClusterAction"]) == 0
    assert observe(lake) > 0
    assert observe(cluster.security) > 0
    with cluster.admin() as admin:
        known = {(each.replica_id, each.replica_directory_id) for each in admin.describe_quorum().observers}
    assert (-1, to_text(observer.directory_id)) in known
    without = ClientSecurity.of({key: own[key] for key in own if "keystore" not in key}, user="lake", password=ALICE)
    with pytest.raises(ClusterUnreachable, match=r"it wants a certificate of the client, set ssl\.keystore\.location"):
        observe(without)


def test_nodes_that_fail_come_back_and_links_between_them_can_be_cut(cluster: LocalCluster) -> None:
    for node_id in (3000, 0):
        cluster.kill_node(node_id)
        cluster.start_node(node_id)
        cluster.wait_ready()
    with KafkaProducer(**kafka_python(cluster, acks="all")) as producer:
        producer.send("t", b"x").get(20)
        links = [(0, 1), (1, 0)]
        cluster.cut_all(links)
        late = producer.send("t", b"late")
        with pytest.raises(KafkaError):
            late.get(0.3)
        cluster.heal_links(links, drop=True)
        late.get(20)
    with pytest.raises(ClusterError, match="TLS hides the messages"):
        cluster.shape(0, 1, LinkShape(loss=0.5))


def test_a_controller_that_is_added_gets_a_certificate(cluster: LocalCluster) -> None:
    added = cluster.add_controller()
    cluster.start_node(added)
    cluster.wait_ready()
    cluster.join(added)
    with cluster.admin() as admin:
        assert {voter.replica_id for voter in admin.describe_quorum().current_voters} == {3000, added}


@pytest.mark.nightly
def test_sessions_of_five_seconds_end_no_request_but_those_of_a_removed_user(tmp_path: Path) -> None:
    sessions = {f"listener.name.kafka.{name}.connections.max.reauth.ms": "5000" for name in ("scram-sha-512", "scram-sha-256")}
    failures: list[Any] = []
    refused: list[confluent_kafka.KafkaError] = []
    with LocalCluster(tmp_path / "lab", 1, 2, 1, overrides=sessions, secure=True) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("t", partitions=1, replication_factor=2)
        ours = ("--data", str(cluster.directory))
        user = ("configs", *ours, "--alter", "--entity-type", "users", "--entity-name", "alice")
        assert main.run([*user, "--add-config", f"SCRAM-SHA-256=[password={ALICE}]"]) == 0
        assert main.run(["acls", *ours, "--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "t"]) == 0
        login = {"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": ALICE}
        admins = confluent_kafka.Producer(confluent(cluster, error_cb=failures.append))
        alices = confluent_kafka.Producer(confluent(cluster, error_cb=refused.append, **login))

        def produce(producer: confluent_kafka.Producer) -> None:
            producer.produce("t", b"x", callback=lambda error, _: failures.append(error) if error else None)
            producer.poll(0.005)

        with KafkaProducer(**kafka_python(cluster)) as producer:
            end = time.monotonic() + 17  # three sessions
            while time.monotonic() < end:
                produce(admins)
                produce(alices)
                producer.send("t", b"x").get(20)
            assert (admins.flush(20), alices.flush(20), failures, refused) == (0, 0, [], [])
            assert main.run([*user, "--delete-config", "SCRAM-SHA-256"]) == 0
            end = time.monotonic() + 20
            while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in refused):
                assert time.monotonic() < end
                produce(alices)
            alices.purge()
            producer.send("t", b"x").get(20)


@contextmanager
def up(directory: Path) -> Iterator[dict[str, Any]]:
    """Run `kraftlab up --secure --json` and return what it prints."""
    words = ("up", "--data", str(directory), "--controllers", "1", "--brokers", "1", "--log-dirs", "1", "--secure", "--json")
    with subprocess.Popen([sys.executable, "-m", "kraftlab.cli.main", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            text = ""
            for line in lines:
                text += line
                if line == "}\n" or (line.startswith("{") and line.endswith("}\n")):
                    break
            yield json.loads(text)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@pytest.mark.nightly
def test_a_second_start_has_the_same_certificates_and_password(tmp_path: Path) -> None:
    directory = tmp_path / "lab"
    with up(directory) as printed:
        secrets = {path.name: path.read_bytes() for path in (directory / "secrets").iterdir()}
    assert {"ca.pem", "ca.key", "admin.pem", "admin.password", "broker-0.pem", "controller-3000.pem"} <= secrets.keys()
    assert all(
        stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in (directory / "client.properties", directory / "secrets")
    )
    with LocalCluster(directory) as again:
        client = {"bootstrap.servers": printed["kafka_bootstrap_servers"], **printed["client_properties"]}
        assert confluent_kafka.Producer(client).list_topics(timeout=20).brokers
        assert {path.name: path.read_bytes() for path in (directory / "secrets").iterdir()} == secrets
        assert again.cluster_id == printed["cluster_id"]


@pytest.mark.parametrize(
    "key",
    [
        "ssl.keystore.location",
        "ssl.key.password",
        "listener.name.kafka.ssl.truststore.certificates",
        "listener.security.protocol.map",
    ],
)
def test_the_certificates_of_nodes_cannot_be_set_for_all(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is left that would change a later start."""
    directory = tmp_path / "lab"
    assert main.run(["up", "--data", str(directory), "--secure", "--property", f"{key}=marker-own-3Hx"]) == 1
    told = capsys.readouterr().err
    assert f"{key} cannot be set with --property" in told and "leave it out" in told
    assert "marker-own-3Hx" not in told
    assert not (directory / "secrets").exists() and not (directory / "cluster.json").exists()


def test_an_open_cluster_stays_open(tmp_path: Path) -> None:
    LocalCluster(tmp_path / "lab", 1, 1, 1).close()
    with pytest.raises(ClusterError, match="start it without --secure, or use another directory"):
        LocalCluster(tmp_path / "lab", secure=True)
    assert not (tmp_path / "lab" / "secrets").exists()
