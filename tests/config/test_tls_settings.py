"""TLS settings: the prefix of a listener, Kafka's refusals with a next step, suites, and no secret in any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.config.errors import ConfigError
from kraftlab.config.tls_settings import CIPHERS, CIPHERS_OF_TLS13, for_listener, tls_settings

SECRET = "do-not-show-me"
PEM_FILE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "node.pem"}


def test_a_listeners_own_value_wins_over_the_base_key() -> None:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "base.pem",
        "listener.name.kafka.ssl.keystore.location": "kafka.pem",
        "listener.name.kafka.scram-sha-256.connections.max.reauth.ms": "5000",
        "listener.name.grpc.ssl.keystore.location": "grpc.pem",
        "node.id": "1",
    }
    assert for_listener(properties, "KAFKA") == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "kafka.pem",
        "scram-sha-256.connections.max.reauth.ms": "5000",
        "node.id": "1",
    }
    assert for_listener(properties, "PEER")["ssl.keystore.location"] == "base.pem"


def test_client_auth_without_prefix_is_refused_with_sasl_where_kafka_ignores_it() -> None:
    base = {"ssl.client.auth": "required"}
    assert for_listener(base, "KAFKA")["ssl.client.auth"] == "required"
    with pytest.raises(
        ConfigError, match=r"does not count for listener KAFKA, .* write listener\.name\.kafka\.ssl\.client\.auth=req"
    ):
        for_listener(base, "KAFKA", has_sasl=True)
    own = base | {"listener.name.kafka.ssl.client.auth": "none"}
    assert for_listener(own, "KAFKA", has_sasl=True)["ssl.client.auth"] == "none"


def test_defaults_are_kafkas() -> None:
    settings = tls_settings({}, "listener KAFKA")
    assert (settings.keystore_type, settings.client_auth, settings.checks_host_name) == ("JKS", "none", True)
    assert settings.protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.principal_mapping.name("CN=a,O=b") == "CN=a,O=b"
    assert (settings.has_keystore, settings.has_truststore) == (False, False)
    assert not settings.allows_dn_changes
    assert not settings.allows_san_changes


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"ssl.keystore.key": SECRET}, "SSL private key can be specified only for PEM, but key store type is JKS."),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": SECRET},
            "SSL private key is specified, but certificate chain is not specified.",
        ),
        (
            {**PEM_FILE, "ssl.keystore.key": SECRET, "ssl.keystore.certificate.chain": SECRET},
            "Both SSL key store location and separate private key are specified.",
        ),
        (
            {**PEM_FILE, "ssl.keystore.password": SECRET},
            "SSL key store password cannot be specified with PEM format, only key password may be specified.",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": SECRET},
            "SSL certificate chain is specified, but private key is not specified.",
        ),
        ({"ssl.keystore.password": SECRET}, "SSL key store is not specified, but key store password is specified."),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "a.p12"},
            "SSL key store is specified, but key store password is not specified.",
        ),
        (
            {"ssl.truststore.certificates": SECRET},
            "SSL trust store certs can be specified only for PEM, but trust store type is JKS.",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "a", "ssl.truststore.certificates": SECRET},
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "a", "ssl.truststore.password": SECRET},
            "SSL trust store password cannot be specified for PEM format.",
        ),
        ({"ssl.truststore.password": SECRET}, "SSL trust store is not specified, but trust store password is specified."),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth=maybe: expected one of none, requested, required"),
        (
            {"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"},
            "ssl.enabled.protocols names TLSv1.1, which is not served; write TLSv1.2,",
        ),
        (
            {"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"},
            "ssl.cipher.suites names TLS_RSA_WITH_AES_128_CBC_SHA, which is not",
        ),
        (
            {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"},
            "add TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256, or remove the others",
        ),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.3"},
            "ssl.cipher.suites has no suite for TLSv1.3; add one",
        ),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm=ldaps: expected https"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules: Invalid rule: `RULE:x`"),
        ({"ssl.allow.dn.changes": "yes"}, "ssl.allow.dn.changes=yes: expected one of true, false"),
    ],
)
def test_a_fault_is_refused_with_kafkas_text_and_without_secrets(values: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tls_settings(values, "listener KAFKA")
    assert str(refused.value).startswith("listener KAFKA: ")
    assert text in str(refused.value)
    assert SECRET not in str(refused.value)


def test_suites_decide_which_protocols_are_left_as_in_java() -> None:
    of_tls12 = tls_settings({"ssl.cipher.suites": ",".join(CIPHERS)}, "x")
    assert of_tls12.protocols == ("TLSv1.2",)
    assert of_tls12.ciphers == tuple(CIPHERS.values())
    of_tls13 = tls_settings({"ssl.cipher.suites": ",".join(CIPHERS_OF_TLS13)}, "x")
    assert (of_tls13.protocols, of_tls13.ciphers) == (("TLSv1.3",), ())
    both = tls_settings({"ssl.cipher.suites": ",".join([*CIPHERS, *CIPHERS_OF_TLS13])}, "x")
    assert both.protocols == ("TLSv1.2", "TLSv1.3")


def test_no_secret_is_in_a_repr() -> None:
    keys = ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.truststore.certificates")
    inline = dict.fromkeys(keys, SECRET) | {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    stores = {
        f"ssl.{store}.{key}": value
        for store in ("keystore", "truststore")
        for key, value in (("type", "PKCS12"), ("location", "a.p12"), ("password", SECRET))
    }
    for values in (inline, stores):
        settings = tls_settings(values, "x")
        assert SECRET in vars(settings).values()
        assert SECRET not in repr(settings)


KEYS = ["ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key", "ssl.client.auth"]
KEYS += ["ssl.keystore.certificate.chain", "ssl.key.password", "ssl.truststore.type", "ssl.truststore.location"]
KEYS += ["ssl.cipher.suites", "ssl.enabled.protocols", "ssl.principal.mapping.rules", "ssl.endpoint.identification.algorithm"]


@given(
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["PEM", "PKCS12", "", "TLSv1.3", "required", "DEFAULT"]) | st.text())
)
def test_odd_values_are_refused_and_never_crash(values: dict[str, str]) -> None:
    try:
        assert tls_settings(values, "listener X").protocols
    except ConfigError as error:
        assert str(error).startswith("listener X: ")
