"""Kafka's client properties as the security of a client, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.client import AdminClient
from kraftlab.client.security import ClientSecurity
from kraftlab.config.errors import ConfigError

SECRET = "marker-secret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{SECRET}";'
TOKEN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


def test_kafkas_properties_become_a_security() -> None:
    values = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
        "client.id": "of something else",
    }
    found = ClientSecurity.of(values)
    assert (found.protocol, found.mechanism, found.user, found.password) == ("SASL_SSL", "SCRAM-SHA-512", "alice", SECRET)
    assert found.tls is not None
    assert found.tls.settings.truststore_location == "/etc/ca.pem"
    assert not found.tls.settings.checks_host_name


def test_nothing_set_is_no_security() -> None:
    assert ClientSecurity.of({}) == ClientSecurity()
    assert ClientSecurity.of({"ssl.truststore.location": "/etc/ca.pem"}).tls is None


def test_a_user_of_the_caller_takes_the_place_of_the_files() -> None:
    values = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
    assert ClientSecurity.of(values, user="bob", password="b").user == "bob"


def test_our_own_short_keys_name_a_user_too(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("username=alice\npassword=p\n")
    assert ClientSecurity.load(file) == ClientSecurity(user="alice", password="p")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"security.protocol": "KERBEROS"}, "expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL", "username": "a", "password": "b"}, "sasl.mechanism is not set, expected one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "SASL_SSL needs a user; add sasl.jaas.config"),
        ({"security.protocol": "SSL", "sasl.jaas.config": JAAS}, "with security.protocol=SSL the certificate names the client"),
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config: the login module x has no control flag"),
        ({"username": "alice"}, "has a username and no password; add password="),
        ({"security.protocol": "SSL", "ssl.keystore.key": SECRET}, "can be specified only for PEM, but key store type is JKS"),
        (TOKEN, "needs a token; set either sasl.oauthbearer.token, or"),
        (TOKEN | {"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}, "names no file"),
        (
            TOKEN | {"sasl.oauthbearer.token": "t", "sasl.jaas.config": JAAS},
            "names a user, and sasl.mechanism=OAUTHBEARER",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_next_step(values: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        ClientSecurity.of(values, "client.properties")
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_no_text_of_a_security_shows_a_secret(protocol: str) -> None:
    values = {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": SECRET,
        "ssl.keystore.certificate.chain": SECRET,
        "ssl.key.password": SECRET,
    }
    found = ClientSecurity.of(values)
    token = ClientSecurity.of(TOKEN | {"sasl.oauthbearer.token": SECRET})
    assert SECRET not in f"{found} {found!r} {found.tls!r} {token!r}"


def test_a_file_without_a_token_is_named(tmp_path: Path) -> None:
    place = tmp_path / "token"
    found = ClientSecurity.of(TOKEN | {"sasl.oauthbearer.token.endpoint.url": place.as_uri()})
    with pytest.raises(ConfigError, match=f"cannot read {place}: No such file"):
        found.bearer()
    place.write_text(f"{SECRET} {SECRET}")
    with pytest.raises(ConfigError, match=f"{place} holds no token") as error:
        found.bearer()
    assert SECRET not in str(error.value)


def test_a_missing_authority_file_is_named_at_the_first_connection() -> None:
    values = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/nowhere.pem"}
    for servers in ("127.0.0.1:1", "kafka://127.0.0.1:1"):
        with (
            AdminClient(servers, security=ClientSecurity.of(values), timeout_ms=500) as client,
            pytest.raises(ConfigError, match=r"cannot read /nowhere\.pem"),
        ):
            client.describe_cluster()


def test_a_user_without_sasl_is_for_grpc_alone() -> None:
    with pytest.raises(ConfigError, match="user alice is named for a cluster that speaks the Kafka protocol"):
        AdminClient("kafka://127.0.0.1:1", user="alice", password="p")
    with pytest.raises(ValueError, match="names the user"):
        AdminClient("127.0.0.1:1", user="alice", password="p", security=ClientSecurity())
