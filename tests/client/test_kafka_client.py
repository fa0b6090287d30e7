"""A client over the Kafka protocol against scripted brokers: versions, old and broken brokers, TLS and SASL."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.kafka_probe import speaks_kafka
from kraftlab.client.kafka_security import BadProof, KafkaSecurity, authenticate, kafka_security, scram
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.errors import ConfigError
from kraftlab.gateway.codec import Header, KafkaRequest, decode_request, encode_response, peek
from kraftlab.gateway.translation import to_value
from kraftlab.messages.catalog import response_class
from kraftlab.messages.generated.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlab.messages.schema import Message
from kraftlab.rpc.calls import OFFERS

API_VERSIONS = OFFERS["ApiVersions"].key


class Broker:
    """A broker that knows ranges of versions by API name, and answers each API with a message."""

    def __init__(self, **ranges: tuple[int, int]) -> None:
        self.ranges = {"ApiVersions": (0, 3), "DescribeCluster": (0, 0), "Metadata": (0, 9), **ranges}
        self.answers: dict[str, Callable[[Any], Any]] = {"DescribeCluster": lambda _: pb.DescribeClusterResponse(cluster_id="k")}
        self.seen: list[tuple[str, int]] = []
        self.cuts = 0
        """Number of connections to close after their next response."""
        self.garbles = False
        """Leave out the end of each response but ApiVersions'."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._listener.getsockname())
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._threads: list[threading.Thread] = []
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for connected in self._sockets:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                self._sockets.append(connected)
                self._threads.append(threading.Thread(target=self._serve, args=(connected,)))
                self._threads[-1].start()

    def _serve(self, connected: socket.socket) -> None:
        with suppress(OSError, struct.error), connected, connected.makefile("rb") as stream:
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                frame = stream.read(size)
                header = peek(frame)
                name = next(offer.name for offer in OFFERS.values() if offer.key == header.key)
                self.seen.append((name, header.version))
                answer = b"".join(encode_response(*self._answer(name, frame)))[4:]  # type: ignore[arg-type]
                answer = answer[:-1] if self.garbles and name != "ApiVersions" else answer
                connected.sendall(struct.pack(">i", len(answer)) + answer)
                if name != "ApiVersions" and self.cuts:
                    self.cuts -= 1
                    return

    def _answer(self, name: str, frame: bytes) -> tuple[Header, Message]:
        key, version, correlation_id = peek(frame)
        if name == "ApiVersions":
            is_known = version <= self.ranges[name][1]
            version = version if is_known else 0
            said = pb.ApiVersionsResponse()
            for api, (lowest, highest) in self.ranges.items():
                said.api_keys.add(api_key=OFFERS[api].key, min_version=lowest, max_version=highest)
            said.header.error_code = 0 if is_known else 35
            return Header(key, version, correlation_id), to_value(said, response_class(key), version)
        request: KafkaRequest = decode_request(frame)
        answer = self.answers[name](request.body)
        return request.header, answer if isinstance(answer, Message) else to_value(answer, response_class(key), version)


@pytest.fixture
def broker() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.close()


def client_of(broker: Broker, **options: Any) -> AdminClient:
    return AdminClient(f"kafka://{broker.endpoint}", timeout_ms=5000, **options)


def test_a_broker_that_does_not_know_the_newest_api_versions_names_its_own(broker: Broker) -> None:
    with client_of(broker) as client:
        assert client.describe_cluster().cluster_id == "k"
    assert broker.seen == [("ApiVersions", 4), ("ApiVersions", 3), ("DescribeCluster", 0)]


def test_a_request_goes_in_the_newest_version_that_both_sides_know(broker: Broker) -> None:
    broker.ranges["DescribeCluster"] = (0, 99)
    with client_of(broker) as client:
        client.describe_cluster()
        client.describe_cluster()
    assert broker.seen.count(("DescribeCluster", OFFERS["DescribeCluster"].highest)) == 2
    assert broker.seen.count(("ApiVersions", 3)) == 1


def test_a_request_that_a_broker_does_not_offer_is_refused_by_name(broker: Broker) -> None:
    broker.ranges["CreateTopics"] = (40, 41)
    with client_of(broker) as client:
        with pytest.raises(ApiError, match="does not offer DescribeQuorum"):
            client.describe_quorum()
        with pytest.raises(ApiError, match="CreateTopics in versions 40 to 41, this client 2 to 7"):
            client.create_topics([])


def test_an_option_that_an_old_version_lacks_is_refused_by_name(broker: Broker) -> None:
    broker.ranges["AlterPartitionReassignments"] = (0, 0)
    broker.answers["AlterPartitionReassignments"] = lambda _: pb.AlterPartitionReassignmentsResponse()
    with client_of(broker) as client:
        client.alter_partition_reassignments({("t", 0): [1]})
        with pytest.raises(ApiError, match=r"version 0\) has no --disallow-replication-factor-change"):
            client.alter_partition_reassignments({("t", 0): [1]}, allow_replication_factor_change=False)


def test_topics_of_an_old_broker_come_from_metadata_and_are_moving_as_listed(broker: Broker) -> None:
    def metadata(_: Any) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=1, replica_nodes=(2, 1), isr_nodes=(1,))
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])

    def listed(_: Any) -> pb.ListPartitionReassignmentsResponse:
        response = pb.ListPartitionReassignmentsResponse()
        response.topics.add(name="t").partitions.add(
            partition_index=0, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1]
        )
        return response

    broker.ranges["ListPartitionReassignments"] = (0, 0)
    broker.answers |= {"Metadata": metadata, "ListPartitionReassignments": listed}
    with client_of(broker) as client:
        (partition,) = client.describe_topics(["t"])["t"].partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, (2, 1), (1,))
    assert (partition.adding_replicas, partition.removing_replicas) == ((2,), (1,))
    assert (partition.original_replicas, partition.target_replicas) == ((1,), (2,))


def test_a_broker_that_closed_an_idle_connection_is_connected_to_again(broker: Broker) -> None:
    broker.cuts = 2
    with client_of(broker) as client:
        for _ in range(3):
            assert client.describe_cluster().cluster_id == "k"


def test_a_server_that_never_answers_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = AdminClient(f"kafka://127.0.0.1:{silent.getsockname()[1]}", timeout_ms=300)
        with client, pytest.raises(ClusterUnreachable, match="failed to connect"):
            client.describe_cluster()


def test_the_next_server_is_asked_if_the_first_is_down(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with AdminClient(f"kafka://127.0.0.1:{port},{broker.endpoint}", timeout_ms=5000) as client:
        assert client.describe_cluster().cluster_id == "k"


def test_a_controller_names_the_controllers_and_the_active_one(broker: Broker) -> None:
    del broker.ranges["Metadata"]
    broker.ranges["DescribeCluster"] = (0, 2)
    members = [pb.DescribedBroker(broker_id=3000 + index, host="127.0.0.1", port=1 + index) for index in range(3)]
    broker.answers["DescribeCluster"] = lambda request: pb.DescribeClusterResponse(
        brokers=members if request.endpoint_type == 2 else [], controller_id=3001
    )
    with client_of(broker) as client:
        found = client.describe_cluster(include_fenced_brokers=True)
        assert client.leader == Endpoint("127.0.0.1", 2)
    assert [(each.controller_id, each.port) for each in found.controllers] == [(3000, 1), (3001, 2), (3002, 3)]
    assert (found.brokers, found.leader_id) == ((), 3001)


def test_an_answer_that_cannot_be_read_is_final_and_says_so(broker: Broker) -> None:
    broker.garbles = True
    with client_of(broker) as client, pytest.raises(ApiError, match="cannot be read, though the request may have taken effect"):
        client.describe_cluster()
    assert broker.seen.count(("DescribeCluster", 0)) == 1


def test_an_error_of_a_whole_response_is_raised(broker: Broker) -> None:
    broker.answers["DescribeCluster"] = lambda _: pb.DescribeClusterResponse(header=pb.ResponseHeader(error_code=31))
    with client_of(broker) as client, pytest.raises(ApiError) as raised:
        client.describe_cluster()
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_kafka_broker_is_told_from_other_servers(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        quiet = Endpoint(*silent.getsockname())
        gone = Endpoint(*closed.getsockname())
        closed.close()
        assert speaks_kafka([broker.endpoint])
        assert speaks_kafka([gone, broker.endpoint])
        assert not speaks_kafka([gone])
        assert not speaks_kafka([Endpoint("x" * 70, 1)])
        assert speaks_kafka([quiet, broker.endpoint], timeout_s=0.1)


def test_scram_proves_the_password_to_both_sides() -> None:
    """The exchange of RFC 7677, section 3."""
    said: list[bytes] = []
    answers = iter(
        [
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ]
    )

    def exchange(message: bytes) -> bytes:
        said.append(message)
        return next(answers)

    security = KafkaSecurity(protocol="SASL_SSL", mechanism="SCRAM-SHA-256", user="user", password="pencil")
    scram(security, exchange, "rOprNGfwEbeRWgbNEkqO")
    assert said == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.parametrize("answer", [b"", b"r=other,s=AA==,i=4096", b"r=%s,s=AA==,i=4096", b"r=%sx,s=AA==,i=999999999"])
def test_a_broker_whose_scram_message_does_not_fit_is_refused(answer: bytes) -> None:
    security = KafkaSecurity(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", user="user", password="pencil")

    def exchange(message: bytes) -> bytes:
        return answer.replace(b"%s", message.rpartition(b"r=")[2])

    with pytest.raises(BadProof):
        authenticate(security, exchange)


def test_kafkas_properties_become_a_security() -> None:
    values = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    found = kafka_security(values, "alice", "secret", "client.properties")
    assert found == KafkaSecurity("SASL_SSL", "SCRAM-SHA-512", "alice", "secret", "/etc/ca.pem", checks_host_name=False)
    assert (found.has_tls, found.has_sasl) == (True, True)


@pytest.mark.parametrize(
    ("values", "user", "reason"),
    [
        ({"security.protocol": "KERBEROS"}, None, "expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "alice", "sasl.mechanism is not set, expected one of PLAIN, SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "alice", "sasl.mechanism is GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, None, "needs a user"),
        ({}, "alice", "names a user"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/ca.jks"}, None, "ssl.truststore.type is JKS, expected PEM"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "…"}, None, "ssl.keystore.key is not supported"),
    ],
)
def test_security_that_is_not_supported_is_refused(values: dict[str, str], user: str | None, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        kafka_security(values, user, None if user is None else "secret", "client.properties")


def test_an_authority_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot use /nowhere\.pem"):
        KafkaSecurity(protocol="SSL", truststore="/nowhere.pem").tls_context()


def test_the_client_of_the_kafka_protocol_loads_without_the_run_time_of_nodes() -> None:
    """A user waits for it at every command."""
    code = "import sys, kraftlab.client.kafka_channels; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
