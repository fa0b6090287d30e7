"""Clusters with a secured listener for Kafka clients, and what each client needs there to be the user admin.

A client proves by a *login* that it is admin: by a mechanism of SASL, or by a certificate in a key store of a type. Sessions of
SASL are short, so that clients that stay must log in again (KIP-368).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from kraftlab.certificates import folder
from kraftlab.config import properties
from kraftlab.lab import credentials
from kraftlab.lab.local import LocalCluster

PEM, PKCS12, PLAIN, OAUTHBEARER = "PEM", "PKCS12", "PLAIN", "OAUTHBEARER"
STORE_PASSWORD = "of-the-store"
PLAIN_PASSWORD = "of-plain"
SESSION_MS = 5000
_GROUPS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {PLAIN: "plain.PlainLoginModule", OAUTHBEARER: "oauthbearer.OAuthBearerLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Secured:
    """A running cluster. `pki` is the folder of its authority; `tokens` has admin's token, and one that nobody should take."""

    cluster: LocalCluster
    protocol: str
    pki: Path
    tokens: Path

    @property
    def servers(self) -> str:
        return self.cluster.kafka_bootstrap_servers

    def token(self, name: str = "admin") -> Path:
        return self.tokens / f"{name}.jwt"

    def password(self, login: str) -> str:
        return PLAIN_PASSWORD if login == PLAIN else credentials.password(self.cluster.directory)

    def java(self, login: str) -> dict[str, str]:
        """Return the client properties of Apache Kafka."""
        found = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.pki / "ca.pem")}
        if login == PEM:
            return found | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.pki / "admin.pem")}
        if login == PKCS12:
            return found | {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(self.pki / "admin.p12"),
                "ssl.keystore.password": STORE_PASSWORD,
            }
        if login == OAUTHBEARER:
            return (
                found
                | jaas(login)
                | {
                    "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
                    "sasl.oauthbearer.token.endpoint.url": self.token().as_uri(),
                }
            )
        return found | jaas(login, username="admin", password=self.password(login))

    def librdkafka(self, login: str) -> dict[str, Any]:
        """Return the client properties of librdkafka."""
        found: dict[str, Any] = {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.pki / "ca.pem")
        if login == PEM:
            key = str(self.pki / "admin.pem")
            return found | {"ssl.key.location": key, "ssl.certificate.location": key}
        if login == PKCS12:
            return found | {"ssl.keystore.location": str(self.pki / "admin.p12"), "ssl.keystore.password": STORE_PASSWORD}
        found["sasl.mechanism"] = login
        if login == OAUTHBEARER:
            return found | {"oauth_cb": lambda _: (self.token().read_text(), time.time() + 3600)}
        return found | {"sasl.username": "admin", "sasl.password": self.password(login)}

    def franz_go(self, login: str) -> dict[str, str]:
        """Return the environment of our program on franz-go."""
        found = {"CA": str(self.pki / "ca.pem")} if self.protocol.endswith("SSL") else {}
        if login == PEM:
            return found | {"CERTIFICATE": str(self.pki / "admin.pem")}
        password = self.token().read_text() if login == OAUTHBEARER else self.password(login)
        return found | {"MECHANISM": login, "SASL_USER": "admin", "SASL_PASSWORD": password}


def jaas(mechanism: str, **options: str) -> dict[str, str]:
    """Return the client properties of Apache Kafka that log in by a mechanism."""
    module = f"{_SECURITY}.{_MODULES.get(mechanism, _SCRAM_MODULE)} required"
    words = [module, *(f'{name}="{value}"' for name, value in options.items())]
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": " ".join(words) + ";"}


@contextmanager
def secured(protocol: str, directory: Path) -> Iterator[Secured]:
    """Start a controller and two brokers whose listeners for Kafka clients speak this protocol, in an empty directory."""
    make_tokens(directory)
    if protocol == "SSL":
        # `up --secure` has logins at this listener. Here all nodes share a certificate for it, and nothing else is secured.
        pki = directory / "pki"
        folder.throw_away(pki, ["broker-0"], ["admin"])
        overrides = {
            "listener.security.protocol.map": "KAFKA:SSL",
            "listener.name.kafka.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pki / "broker-0.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(pki / "ca.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
    else:
        pki = directory / "lab" / credentials.SECRETS
        kafka = "listener.name.kafka"
        module = f"{_SECURITY}.{_MODULES[PLAIN]}"
        overrides = {
            f"{kafka}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{kafka}.plain.sasl.jaas.config": f'{module} required user_admin="{PLAIN_PASSWORD}";',
            f"{kafka}.sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
            f"{kafka}.connections.max.reauth.ms": str(SESSION_MS),
        }
    stack = ExitStack()
    if protocol == "SASL_PLAINTEXT":  # which `up --secure` does not offer
        overrides["listener.security.protocol.map"] = f"CONTROLLER:SSL,PEER:SSL,GRPC:SASL_SSL,METRICS:SASL_SSL,KAFKA:{protocol}"
        stack.enter_context(mock.patch.object(credentials, "check_given"))
    with stack, LocalCluster(directory / "lab", 1, 2, 1, overrides=overrides | _GROUPS, secure=protocol != "SSL") as cluster:
        folder.issue(pki, "admin", password=STORE_PASSWORD, as_pkcs12=True)
        yield Secured(cluster, protocol, pki, directory)


def make_tokens(directory: Path) -> None:
    """Write a key set, a token of admin that it accepts for an hour, and one of another issuer."""
    now = int(time.time())
    for name in ("admin", "foreign"):
        key = ec.generate_private_key(ec.SECP256R1())
        claims = {"sub": "admin", "scope": "kafka", "iat": now, "exp": now + 3600}
        (directory / f"{name}.jwt").write_text(jwt.encode(claims, key, "ES256", headers={"kid": "issuer"}))
        if name == "admin":
            entry = jwt.get_algorithm_by_name("ES256").to_jwk(key.public_key(), as_dict=True)
            (directory / "keys.json").write_text(json.dumps({"keys": [{**entry, "kid": "issuer"}]}))


def write_properties(path: Path, values: dict[str, str]) -> Path:
    """Write a file of client properties for Apache Kafka's tools."""
    path.write_text(properties.dumps(values))
    return path
