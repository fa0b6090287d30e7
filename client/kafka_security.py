"""TLS and SASL of a client of a Kafka cluster, from the properties of Kafka's own tools.

Certificates are PEM files: Java's key stores need Java. Mechanisms are PLAIN and SCRAM (RFC 5802, RFC 7677). SCRAM proves the
password to the broker without sending it, and the broker proves in its last message that it knows the password too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Callable, Mapping

import msgspec

from kraftlab.config.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *_HASHES)
_REFUSED = {
    "ssl.keystore.key": "put key and certificate chain into a PEM file for ssl.keystore.location",
    "ssl.keystore.certificate.chain": "put key and certificate chain into a PEM file for ssl.keystore.location",
}
"""Keys that are not read → what to do instead."""
ITERATIONS_MAX = 1_000_000
"""A broker may ask for no more work than this."""


class BadProof(Exception):
    """The broker's part of an authentication is wrong: it does not know the password, or is not a Kafka broker."""


class KafkaSecurity(msgspec.Struct, frozen=True):
    """Protocol, keys and user of connections to the brokers of a Kafka cluster. Paths are of PEM files; an empty one is not used.

    `truststore`: certificates of authorities (default: those of the machine). `keystore`: the client's key and certificate.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    truststore: str = ""
    authorities: str = ""
    keystore: str = ""
    key_password: str = ""
    checks_host_name: bool = True

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def tls_context(self) -> ssl.SSLContext:
        """Return the context of TLS connections. ConfigError for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.truststore or None, cadata=self.authorities or None)
            if self.keystore:
                context.load_cert_chain(self.keystore, password=self.key_password)
        except OSError as error:  # ssl.SSLError is one
            files = " or ".join(filter(None, (self.truststore, self.keystore))) or "the certificates"
            raise ConfigError(f"cannot use {files}: {error}; expected PEM files") from error
        context.check_hostname = self.checks_host_name
        return context


PLAINTEXT = KafkaSecurity()


def kafka_security(values: Mapping[str, str], user: str | None, password: str | None, name: str) -> KafkaSecurity:
    """Return the security of a file for --command-config; `name` is for errors. ConfigError."""
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{name}: security.protocol is {protocol}, expected one of {', '.join(PROTOCOLS)}")
    for key, advice in _REFUSED.items():
        if key in values:
            raise ConfigError(f"{name}: {key} is not supported; {advice}")
    for store in ("truststore", "keystore"):
        kind = values.get(f"ssl.{store}.type", "JKS").upper()
        if f"ssl.{store}.location" in values and kind != "PEM":
            raise ConfigError(
                f"{name}: ssl.{store}.type is {kind}, expected PEM; convert the store, for example with keytool and openssl"
            )
    found = KafkaSecurity(
        protocol=protocol,
        mechanism=values.get("sasl.mechanism", "") if protocol.startswith("SASL_") else "",
        user=user or "",
        password=password or "",
        truststore=values.get("ssl.truststore.location", ""),
        authorities=values.get("ssl.truststore.certificates", ""),
        keystore=values.get("ssl.keystore.location", ""),
        key_password=values.get("ssl.key.password", ""),
        checks_host_name=values.get("ssl.endpoint.identification.algorithm", "https") != "",
    )
    if found.has_sasl and found.mechanism not in MECHANISMS:
        given = found.mechanism or "not set"
        raise ConfigError(f"{name}: sasl.mechanism is {given}, expected one of {', '.join(MECHANISMS)}")
    if found.has_sasl and user is None:
        raise ConfigError(f"{name}: {protocol} needs a user; add sasl.jaas.config, or username and password")
    if user is not None and not found.has_sasl:
        raise ConfigError(
            f"{name} names a user for a cluster that speaks the Kafka protocol; write security.protocol=SASL_SSL (or "
            "SASL_PLAINTEXT) and sasl.mechanism into the file for --command-config, or leave the user out"
        )
    return found


def authenticate(security: KafkaSecurity, exchange: Callable[[bytes], bytes]) -> None:
    """Authenticate over a connection. `exchange` sends the client's message and returns the broker's. BadProof."""
    if security.mechanism == PLAIN:
        exchange(b"\0" + security.user.encode() + b"\0" + security.password.encode())
    else:
        scram(security, exchange, secrets.token_urlsafe(24))


def scram(security: KafkaSecurity, exchange: Callable[[bytes], bytes], nonce: str) -> None:
    """Authenticate by SCRAM with this nonce, which must be random. BadProof."""
    name = security.user.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = exchange(f"n,,{client_first}".encode()).decode(errors="replace")
    try:
        given = dict(part.split("=", 1) for part in server_first.split(","))
        salt, iterations, joined = base64.b64decode(given["s"]), int(given["i"]), given["r"]
    except (KeyError, ValueError):
        raise BadProof("the broker's first SCRAM message is malformed") from None
    if not joined.startswith(nonce) or joined == nonce or not 1 <= iterations <= ITERATIONS_MAX:
        raise BadProof("the broker's first SCRAM message does not fit the client's")
    digest = _HASHES[security.mechanism]
    salted = hashlib.pbkdf2_hmac(digest, security.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    client_final = f"c=biws,r={joined}"
    signed = f"{client_first},{server_first},{client_final}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))
    server_final = exchange(f"{client_final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if server_final.split(",")[0] != f"v={base64.b64encode(expected).decode()}":
        raise BadProof("the broker does not know the user's password; is this the right cluster?")
