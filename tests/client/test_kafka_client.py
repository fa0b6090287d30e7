"""A client over the Kafka protocol against scripted brokers: versions, old and broken brokers, TLS and SASL."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.kafka_probe import speaks_kafka
from kraftlab.client.sasl import BadProof, authenticate, scram
from kraftlab.client.security import ClientSecurity
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.messages.generated.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlab.messages.generated.sasl_authenticate_response import SaslAuthenticateResponse
from kraftlab.messages.generated.sasl_handshake_response import SaslHandshakeResponse
from kraftlab.rpc.calls import OFFERS

from .scripted_broker import Broker


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

    security = ClientSecurity(protocol="SASL_SSL", mechanism="SCRAM-SHA-256", user="user", password="pencil")
    scram(security, exchange, "rOprNGfwEbeRWgbNEkqO")
    assert said == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.parametrize("answer", [b"", b"r=other,s=AA==,i=4096", b"r=%s,s=AA==,i=4096", b"r=%sx,s=AA==,i=999999999"])
def test_a_broker_whose_scram_message_does_not_fit_is_refused(answer: bytes) -> None:
    security = ClientSecurity(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", user="user", password="pencil")

    def exchange(message: bytes) -> bytes:
        return answer.replace(b"%s", message.rpartition(b"r=")[2])

    with pytest.raises(BadProof):
        authenticate(security, exchange)


TOKEN = ClientSecurity(protocol="SASL_SSL", mechanism="OAUTHBEARER", token="a.b.c")


def test_a_token_is_sent_as_it_is() -> None:
    said: list[bytes] = []
    authenticate(TOKEN, lambda message: said.append(message) or b"")  # type: ignore[func-returns-value]
    assert said == [b"n,,\1auth=Bearer a.b.c\1\1"]


def test_a_broker_that_refuses_a_token_gets_the_message_for_which_it_waits() -> None:
    said: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        said.append(message)
        if len(said) == 1:
            return b'{"status":"invalid_token"}'
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')

    with pytest.raises(ApiError, match="invalid_token"):
        authenticate(TOKEN, exchange)
    assert said[1:] == [b"\1"]


@pytest.fixture
def login_broker(broker: Broker) -> Broker:
    """A broker that lets everybody log in, for as long as the test says."""
    broker.ranges |= {"SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2)}
    broker.answers |= {
        "SaslHandshake": lambda _: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        "SaslAuthenticate": lambda _: SaslAuthenticateResponse(),
    }
    return broker


def ask_twice(broker: Broker, between: Callable[[], None]) -> int:
    """Return the number of logins for two requests."""
    security = ClientSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", user="alice", password="p")
    with client_of(broker, security=security) as client:
        client.describe_cluster()
        between()
        client.describe_cluster()
    return broker.seen.count(("SaslAuthenticate", 2))


def test_a_login_is_for_the_whole_connection(login_broker: Broker) -> None:
    assert ask_twice(login_broker, lambda: None) == 1


def test_a_login_is_made_again_before_the_broker_ends_its_session(login_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    login_broker.answers["SaslAuthenticate"] = lambda _: SaslAuthenticateResponse(session_lifetime_ms=10_000)
    now = time.monotonic
    assert ask_twice(login_broker, lambda: monkeypatch.setattr(time, "monotonic", lambda: now() + 9)) == 2


def test_the_client_of_the_kafka_protocol_loads_without_the_run_time_of_nodes() -> None:
    """A user waits for it at every command."""
    code = "import sys, kraftlab.client.kafka_channels; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
