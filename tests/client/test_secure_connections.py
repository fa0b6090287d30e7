"""A client under TLS, by each protocol: who gets through, and what the error of anybody else says to do."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from kraftlab.access.logins import UserLogin
from kraftlab.access.users import Users
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, DataClient
from kraftlab.client.kafka_probe import speaks_kafka
from kraftlab.client.metadata_log import ANONYMOUS, MetadataLog, observer_named
from kraftlab.client.security import NO_SECURITY, ClientSecurity
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.config.errors import ConfigError
from kraftlab.metadata.peer_rpc import Api, ProduceRequest, ProduceResponse
from kraftlab.quorum.core.messages import API_OF, FetchRequest, FetchResponse, LeaderView, Records
from kraftlab.quorum.core.types import OffsetAndEpoch

from ..helpers.certificates import DAY, Authority
from .conftest import CLUSTER_ID, FakeCluster
from .secured_servers import DOORS, TIMEOUT_S, Certificates, Door, ask_admin, grpc_server, kafka_server

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = [("kafka", TLS_1_2), ("kafka", TLS_1_3), ("peer", TLS_1_2), ("peer", TLS_1_3), ("grpc", TLS_1_3)]
"""gRPC's servers do not choose a version."""
ALICE = {"kafka": "k", "peer": "User:CN=alice -1", "grpc": "User:CN=alice"}
"""Answer to a client with the certificate of alice; a scripted broker does not name its caller."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("strange"), "stranger")


@pytest.fixture(params=sorted(DOORS))
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


def security(authority: Authority, key: Path | None = None, **more: str) -> ClientSecurity:
    values = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        **({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)} if key else {}),
    }
    return ClientSecurity.of(values | {key.replace("_", "."): value for key, value in more.items()})


def refused(door: Door, served: Certificates | None, asks: ClientSecurity) -> str:
    """Return the error of a request, which does not take the whole time: nothing that is repeated would help."""
    with door.serve(served) as endpoint:
        started = time.monotonic()
        with pytest.raises((ClusterUnreachable, ConnectionError)) as error:
            door.ask(endpoint, asks)
        assert time.monotonic() - started < TIMEOUT_S * 0.8
    return str(error.value)


@pytest.mark.parametrize(("name", "newest"), VERSIONS)
def test_the_client_is_the_name_in_its_certificate(name: str, newest: ssl.TLSVersion, authority: Authority) -> None:
    served = Certificates(authority, authority.issue("node"), requires=True, newest=newest)
    with DOORS[name].serve(served) as endpoint:
        assert DOORS[name].ask(endpoint, security(authority, authority.issue("alice", names=()))) == ALICE[name]


@pytest.mark.parametrize("name", ["kafka", "grpc"])
def test_a_listener_that_asks_for_no_certificate_gets_none(name: str, authority: Authority) -> None:
    with DOORS[name].serve(Certificates(authority, authority.issue("node"))) as endpoint:
        assert DOORS[name].ask(endpoint, security(authority)) in ("User:ANONYMOUS", "k")


@pytest.mark.parametrize(("name", "newest"), VERSIONS)
def test_a_client_without_a_certificate_is_told_to_set_one(name: str, newest: ssl.TLSVersion, authority: Authority) -> None:
    served = Certificates(authority, authority.issue("node"), requires=True, newest=newest)
    assert "it wants a certificate of the client, set ssl.keystore.location" in refused(DOORS[name], served, security(authority))


@pytest.mark.parametrize(("name", "newest"), VERSIONS)
def test_a_client_whose_certificate_is_of_another_authority_is_told_so(
    name: str, newest: ssl.TLSVersion, authority: Authority, stranger: Authority
) -> None:
    served = Certificates(authority, authority.issue("node"), requires=True, newest=newest)
    found = refused(DOORS[name], served, security(authority, stranger.issue("alice")))
    assert "not take the client's certificate" in found
    assert "check ssl.keystore.location" in found


def test_a_server_of_another_authority_is_not_trusted(door: Door, authority: Authority, stranger: Authority) -> None:
    found = refused(door, Certificates(stranger, stranger.issue("node")), security(authority, authority.issue("alice")))
    assert re.search(r"its certificate is not trusted \(.*\); set ssl.truststore.location to the CA's certificate", found)


def test_a_server_of_another_host_is_refused(door: Door, authority: Authority) -> None:
    served = Certificates(authority, authority.issue("node", names=("example.org",)))
    found = refused(door, served, security(authority, authority.issue("alice")))
    assert "its certificate is not for 127.0.0.1; connect by a name that is in it" in found


def test_a_server_whose_certificate_has_expired_is_refused(door: Door, authority: Authority) -> None:
    served = Certificates(authority, authority.issue("node", begins=-3 * DAY, ends=-1 * DAY))
    found = refused(door, served, security(authority, authority.issue("alice")))
    assert "its certificate has expired; renew it on the node" in found


def test_a_server_without_tls_is_named(door: Door, authority: Authority) -> None:
    found = refused(door, None, security(authority, authority.issue("alice")))
    assert "it does not speak TLS, set security.protocol=PLAINTEXT" in found


def test_a_client_without_tls_is_told_of_it(door: Door, authority: Authority) -> None:
    found = refused(door, Certificates(authority, authority.issue("node")), NO_SECURITY)
    assert "it expects TLS; set security.protocol=SSL, or SASL_SSL for a login" in found


def test_a_kafka_listener_is_told_from_grpc(authority: Authority) -> None:
    served = Certificates(authority, authority.issue("node"))
    with kafka_server(served) as kafka, pytest.raises(ClusterUnreachable) as error:
        ask_admin(str(kafka), security(authority))
    assert "it speaks TLS, and not gRPC; a KAFKA listener is written kafka://HOST:PORT" in str(error.value)
    for serve, expected in ((kafka_server, True), (grpc_server, False)):
        with serve(served) as endpoint:
            assert speaks_kafka([endpoint], security(authority)) is expected


def test_keys_come_from_pem_files_pkcs12_stores_and_properties(door: Door, authority: Authority, tmp_path: Path) -> None:
    pem = authority.issue("alice").read_bytes()
    key, certificate = load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    store, encrypted = tmp_path / "alice.p12", tmp_path / "encrypted.pem"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"alice", key, certificate, None, BestAvailableEncryption(b"sesame")))
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame"))
    encrypted.write_bytes(text + certificate.public_bytes(Encoding.PEM))
    keys = [
        {"type": "PKCS12", "location": str(store), "password": "sesame"},
        {"type": "PEM", "location": str(encrypted)},
        {"type": "PEM", "key": text.decode(), "certificate.chain": certificate.public_bytes(Encoding.PEM).decode()},
    ]
    trusted = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate.read_text(),
    }
    with door.serve(Certificates(authority, authority.issue("node"), requires=True)) as endpoint:
        for number, store_keys in enumerate(keys):
            values = trusted | {f"ssl.keystore.{name}": value for name, value in store_keys.items()}
            values |= {"ssl.key.password": "sesame"} if number else {}
            assert "alice" in door.ask(endpoint, ClientSecurity.of(values)) or door is DOORS["kafka"]


def test_without_a_check_of_names_a_server_may_have_another_one_but_not_for_grpc(authority: Authority) -> None:
    asks = security(authority, authority.issue("alice"), ssl_endpoint_identification_algorithm="")
    served = Certificates(authority, authority.issue("node", names=("example.org",)), requires=True)
    for name in ("kafka", "peer"):
        with DOORS[name].serve(served) as endpoint:
            assert DOORS[name].ask(endpoint, asks) == ALICE[name]
    with pytest.raises(ConfigError, match="gRPC always checks the host name"):
        ask_admin("127.0.0.1:1", asks)


def test_a_renewed_certificate_counts_from_the_next_connection_on(door: Door, authority: Authority, tmp_path: Path) -> None:
    place = tmp_path / "client.pem"
    place.write_bytes(authority.issue("bob", names=()).read_bytes())
    asks = security(authority, place)
    with door.serve(Certificates(authority, authority.issue("node"), requires=True)) as endpoint:
        assert door.ask(endpoint, asks) in ("k", "User:CN=bob -1", "User:CN=bob")
        place.write_bytes(authority.issue("alice", names=()).read_bytes())
        assert door.ask(endpoint, asks) in ALICE.values()
        place.write_bytes(b"")
        assert door.ask(endpoint, asks) in ALICE.values()


def test_a_client_of_grpc_takes_renewed_files_when_a_connection_fails(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """A channel cannot change what it trusts, so the client makes another one."""
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(stranger.certificate.read_bytes())
    values = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    with (
        grpc_server(Certificates(authority, authority.issue("node"))) as endpoint,
        AdminClient(str(endpoint), security=ClientSecurity.of(values)) as client,
    ):
        with pytest.raises(ClusterUnreachable, match="not trusted"):
            client.describe_cluster()
        trusted.write_bytes(authority.certificate.read_bytes())
        with suppress(ClusterUnreachable):
            client.describe_cluster()  # finds that the files have changed
        assert client.describe_cluster().cluster_id == "User:ANONYMOUS"


PASSWORDS = UserLogin(Users({"alice": "alice-secret"}))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_user_of_any_mechanism_is_named_by_grpc_metadata(authority: Authority, mechanism: str) -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="alice-secret";'
    asks = security(authority, security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=jaas)
    with grpc_server(Certificates(authority, authority.issue("node")), PASSWORDS) as endpoint:
        assert ask_admin(str(endpoint), asks) == "User:alice"


def test_a_token_is_read_again_for_each_call(authority: Authority, tmp_path: Path) -> None:
    class Bearer:
        async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
            return headers["authorization"]

    place = tmp_path / "token"
    place.write_text("one\n")
    asks = security(
        authority,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=place.as_uri(),
    )
    with (
        grpc_server(Certificates(authority, authority.issue("node")), Bearer()) as endpoint,
        AdminClient(str(endpoint), security=asks) as client,
    ):
        assert client.describe_cluster().cluster_id == "Bearer one"
        place.write_text("two\n")
        assert client.describe_cluster().cluster_id == "Bearer two"


@pytest.fixture
def secure_cluster(authority: Authority) -> Iterator[FakeCluster]:
    fake = FakeCluster(Certificates(authority, authority.issue("broker-1"), requires=True))
    yield fake
    fake.close()


def test_records_go_to_leaders_with_the_security_of_the_admin_client(secure_cluster: FakeCluster, authority: Authority) -> None:
    secure_cluster.describe()
    seen: list[ProduceRequest] = []

    def produce(body: bytes) -> ProduceResponse:
        seen.append(msgspec.msgpack.decode(body, type=ProduceRequest))
        return ProduceResponse(0, None, 5, 6)

    secure_cluster.nodes[0].peer_answers[Api.PRODUCE] = produce
    records = bytes(range(256)) * 4096
    asks = security(authority, authority.issue("alice"))
    with AdminClient(secure_cluster.nodes[0].server, security=asks) as admin, DataClient(admin) as data:
        assert data.produce("t", 0, records).base_offset == 5
        assert seen[-1].records == records
        data.produce("t", 0, b"unacknowledged", acks=0)
        assert data.produce("t", 0, b"x").base_offset == 5
    assert [bytes(each.records[:15]) for each in seen[1:]] == [b"unacknowledged", b"x"]


def test_an_observer_of_the_metadata_log_has_a_name_and_no_node_id(secure_cluster: FakeCluster, authority: Authority) -> None:
    """Under TLS a node id belongs to a certificate. Reads acknowledge nothing, and are anonymous."""
    node, replicas = secure_cluster.nodes[0], list[ReplicaKey]()
    at = pb.QuorumEndpoint(name="CONTROLLER", host="127.0.0.1", port=node.peer_port)
    quorum = pb.DescribeQuorumResponse(
        cluster_id=CLUSTER_ID, leader_id=1, leader_epoch=2, current_voters=[pb.QuorumReplica(replica_id=1, endpoints=[at])]
    )
    node.answers["DescribeQuorum"] = lambda _: quorum

    def fetch(body: bytes) -> FetchResponse:
        replicas.append(msgspec.msgpack.decode(body, type=FetchRequest).replica)
        return FetchResponse(ErrorCode.NONE, LeaderView(2, 1), 7, 0, 0, Records(b"x"))

    node.peer_answers[API_OF[FetchRequest]] = fetch
    asks = security(authority, authority.issue("alice"))
    observer = observer_named("a-lake")
    assert observer.node_id == -1 and observer != ANONYMOUS
    with MetadataLog(node.server, observer=observer, security=asks) as log:
        assert log.fetch(OffsetAndEpoch(0, 0)).data == b"x"
        assert log.acknowledge(OffsetAndEpoch(0, 0)).high_watermark == 7
    assert replicas == [ANONYMOUS, observer]
