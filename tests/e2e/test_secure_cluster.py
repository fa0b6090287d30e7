"""`kraftlab up --secure`: one command makes a cluster with TLS and logins, and everything that its clients need."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from kraftlab.certificates.folder import throw_away
from kraftlab.cli import main
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.security import ClientSecurity
from kraftlab.common.errors import ApiError
from kraftlab.config import properties
from kraftlab.lab import ClusterError, LocalCluster
from kraftlab.lab.links.shape import LinkShape
from kraftlab.rpc.methods import SERVICE

pytestmark = pytest.mark.cluster
GROUPS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
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


def test_an_open_cluster_stays_open(tmp_path: Path) -> None:
    LocalCluster(tmp_path / "lab", 1, 1, 1).close()
    with pytest.raises(ClusterError, match="start it without --secure, or use another directory"):
        LocalCluster(tmp_path / "lab", secure=True)
    assert not (tmp_path / "lab" / "secrets").exists()
