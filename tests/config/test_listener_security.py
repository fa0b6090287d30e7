"""TLS and SASL of a node's listeners, from its properties: what is served, and what is refused with the next step."""

from __future__ import annotations

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.peer_name import PeerName
from kraftlab.config.errors import ConfigError
from kraftlab.config.listener_security import NodeSecurity, is_loopback, node_security

LISTENERS = {"PEER": Endpoint("127.0.0.1", 1), "GRPC": Endpoint("127.0.0.1", 2), "KAFKA": Endpoint("127.0.0.1", 3)}
MAP = "listener.security.protocol.map"
KEYSTORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/x/node.pem"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
PLAIN = {
    MAP: "KAFKA:SASL_PLAINTEXT",
    "listener.name.kafka.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.kafka.plain.sasl.jaas.config": JAAS,
}


def read(values: dict[str, str], host: str = "127.0.0.1") -> NodeSecurity:
    listeners = {name: Endpoint(host, at.port) for name, at in LISTENERS.items()}
    return node_security(values, "server.properties", listeners)


def test_without_a_map_listeners_are_plaintext() -> None:
    security = read({})
    assert {security.of(name).protocol for name in LISTENERS} == {"PLAINTEXT"}
    assert security.nodes.name_of("User:broker-3") == PeerName("User:broker-3", "broker", 3)


def test_nodes_have_other_principals_if_the_file_says_so() -> None:
    nodes = read({"kraftlab.node.principals": "User:c{id};User:b{id}"}).nodes
    assert nodes.name_of("User:b7") == PeerName("User:b7", "broker", 7)


def test_a_listeners_own_value_counts_before_the_one_for_all() -> None:
    security = read(
        {MAP: "KAFKA:SSL,GRPC:SSL,PEER:PLAINTEXT", **KEYSTORE, "listener.name.kafka.ssl.keystore.location": "/x/kafka.pem"}
    )
    kafka, grpc = security.of("KAFKA").tls, security.of("GRPC").tls
    assert kafka is not None
    assert grpc is not None
    assert (kafka.keystore_location, grpc.keystore_location) == ("/x/kafka.pem", "/x/node.pem")
    assert (kafka.client_auth, security.of("PEER").tls) == ("none", None)


INLINE = {"ssl.keystore.type": "PEM", "ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "CHAIN"}
PKCS12 = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/x/node.p12", "ssl.keystore.password": "pw"}


@pytest.mark.parametrize(
    ("values", "attribute", "value"),
    [
        (KEYSTORE | {"ssl.allow.dn.changes": "true"}, "allows_dn_changes", True),
        (KEYSTORE | {"ssl.allow.san.changes": "true"}, "allows_san_changes", True),
        (
            KEYSTORE | {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "ciphers",
            ("ECDHE-ECDSA-AES128-GCM-SHA256",),
        ),
        (KEYSTORE | {"ssl.client.auth": "requested"}, "client_auth", "requested"),
        (KEYSTORE | {"ssl.enabled.protocols": "TLSv1.3"}, "protocols", ("TLSv1.3",)),
        (KEYSTORE | {"ssl.endpoint.identification.algorithm": ""}, "checks_host_name", False),
        (KEYSTORE | {"ssl.key.password": "pw"}, "key_password", "pw"),
        (INLINE, "certificate_chain", "CHAIN"),
        (INLINE, "keystore_key", "KEY"),
        (KEYSTORE, "keystore_location", "/x/node.pem"),
        (PKCS12, "keystore_password", "pw"),
        (PKCS12, "keystore_type", "PKCS12"),
        (KEYSTORE | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "CA"}, "truststore_certificates", "CA"),
        (KEYSTORE | {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/x/ca"}, "truststore_location", "/x/ca"),
        (PKCS12 | {"ssl.truststore.location": "/x", "ssl.truststore.password": "pw"}, "truststore_password", "pw"),
        (KEYSTORE | {"ssl.truststore.type": "PEM"}, "truststore_type", "PEM"),
    ],
)
def test_tls_is_as_each_key_says(values: dict[str, str], attribute: str, value: object) -> None:
    tls = read({MAP: "KAFKA:SSL", "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/", **values}).of("KAFKA").tls
    assert tls is not None
    assert getattr(tls, attribute) == value
    assert tls.principal_mapping.name("CN=alice") == "alice"


def test_tokens_are_judged_as_each_key_says() -> None:
    values = {
        "sasl.oauthbearer.clock.skew.seconds": "7",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.jwks.endpoint.url": "file:///x/jwks.json",
        "sasl.oauthbearer.scope.claim.name": "scp",
        "sasl.oauthbearer.sub.claim.name": "login",
    }
    enabled = {MAP: "KAFKA:SASL_SSL", **KEYSTORE, "sasl.enabled.mechanisms": "OAUTHBEARER"}
    sasl = read(enabled | {f"listener.name.kafka.oauthbearer.{name}": value for name, value in values.items()}).of("KAFKA").sasl
    assert sasl is not None
    assert sasl.oauthbearer == values


def test_nodes_require_certificates_of_each_other() -> None:
    tls = read({MAP: "PEER:SSL", **KEYSTORE, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/x/ca.pem"}).of("PEER").tls
    assert tls is not None
    assert tls.client_auth == "required"


def test_logins_have_mechanisms_passwords_and_sessions() -> None:
    sasl = (
        read(
            PLAIN
            | {
                "listener.name.kafka.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "connections.max.reauth.ms": "60000",
                "listener.name.kafka.plain.connections.max.reauth.ms": "5000",
                "sasl.server.max.receive.size": "1000",
            }
        )
        .of("KAFKA")
        .sasl
    )
    assert sasl is not None
    assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert sasl.max_reauth_ms == {"PLAIN": 5000, "SCRAM-SHA-256": 60000}
    assert (dict(sasl.passwords), sasl.frame_bytes_max) == ({"alice": "alice-secret"}, 1000)
    assert "alice-secret" not in repr(sasl)


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({MAP: "KAFKA:TLS"}, "'KAFKA:TLS' is not LISTENER:PROTOCOL, with one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({MAP: "KAFKA"}, "'KAFKA' is not LISTENER:PROTOCOL"),
        ({MAP: ":SSL"}, "':SSL' is not LISTENER:PROTOCOL"),
        ({MAP: "KAFKA:SSL:SSL"}, "is not LISTENER:PROTOCOL"),
        ({MAP: "KAFKA:SSL,kafka:PLAINTEXT", **KEYSTORE}, "names KAFKA twice, as SSL and PLAINTEXT; keep one"),
        ({MAP: "PEER:SASL_SSL", **KEYSTORE}, "nodes know each other by certificates: write PEER:SSL"),
        ({MAP: "CONTROLLER:SASL_PLAINTEXT"}, "write CONTROLLER:SSL"),
        ({MAP: "PEER:SSL,CONTROLLER:PLAINTEXT", **KEYSTORE}, "write CONTROLLER:SSL,PEER:SSL"),
        ({MAP: "PEER:SSL", **KEYSTORE, "listener.name.peer.ssl.client.auth": "none"}, "write required, or remove it"),
        ({MAP: "GRPC:SSL", **KEYSTORE, "listener.name.grpc.ssl.client.auth": "requested"}, "write required"),
        ({MAP: "KAFKA:SSL"}, "has no certificate; set ssl.keystore.location"),
        ({MAP: "KAFKA:SASL_PLAINTEXT"}, "no mechanism is enabled; name at least one of PLAIN"),
        (PLAIN | {"listener.name.kafka.sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI: Kerberos is not served"),
        ({MAP: "KAFKA:SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}, "listener.name.kafka.plain.sasl.jaas.config"),
        (PLAIN | {"listener.name.kafka.plain.connections.max.reauth.ms": "4999"}, "4999 is too short"),
        (PLAIN | {"listener.name.kafka.scram-sha-256.sasl.jaas.config": "x"}, "does not enable SCRAM-SHA-256; add it to"),
        (
            PLAIN | {"listener.name.external.sasl.jaas.config": JAAS},
            "the node has no such listener; its listeners are PEER",
        ),
        ({"ssl.keystore.location": "/x"}, "ssl.keystore.location=/x has no effect: no listener has TLS; set its protocol in"),
        ({"ssl.keystore.password": "pw-123"}, "ssl.keystore.password=(hidden) has no effect"),
        (PLAIN | {"listener.name.kafka.ssl.keystore.location": "/x"}, "listener KAFKA has no TLS"),
        (
            {MAP: "KAFKA:SSL", **KEYSTORE, "sasl.jaas.config": "x"},
            "=(hidden) has no effect: no listener has SASL",
        ),
        ({MAP: "GRPC:SSL", **KEYSTORE, "listener.name.grpc.users": "a:b"}, "write the users into listener.name.grpc.plain.sasl"),
        ({"kraftlab.node.principals": "User:x"}, "kraftlab.node.principals=User:x: expected the controllers'"),
    ],
)
def test_what_is_not_served_is_refused_with_the_next_step(values: dict[str, str], advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(values)
    assert advice in str(caught.value)
    assert str(caught.value).startswith("server.properties")
    assert "secret" not in str(caught.value)
    assert "pw-123" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (PLAIN, "listener KAFKA at 0.0.0.0:3 would take PLAIN logins in plain text; write KAFKA:SASL_SSL"),
        ({"listener.name.grpc.users": "alice:alice-secret"}, "listener GRPC at 0.0.0.0:2 would take passwords in plain text"),
        (
            {MAP: "KAFKA:SASL_PLAINTEXT", "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512"},
            "would take OAUTHBEARER logins in plain text",
        ),
    ],
)
def test_passwords_in_plain_text_do_not_leave_the_machine(values: dict[str, str], advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(values, host="0.0.0.0")
    assert advice in str(caught.value)


def test_scram_without_tls_is_served_on_any_address() -> None:
    """No password is sent."""
    values = {MAP: "KAFKA:SASL_PLAINTEXT", "listener.name.kafka.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    assert read(values, host="0.0.0.0").of("KAFKA").sasl is not None


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "Localhost")),
        *((host, False) for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.1")),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
