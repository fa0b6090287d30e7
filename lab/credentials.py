"""Security of a cluster that `kraftlab up --secure` has made: certificates, the user admin, and the properties that use them.

    DIR/secrets/ca.pem, ca.key      a certificate authority for this cluster alone
    DIR/secrets/broker-0.pem, …     key and certificate of each node and of the user admin
    DIR/secrets/admin.password      admin's password, at KAFKA listeners (SCRAM), GRPC and METRICS listeners
    DIR/secrets/librdkafka.properties   what a client of librdkafka needs, with that password (kcat -F FILE)
    DIR/client.properties           the same for Java clients and our commands

All of it is made once and kept for later starts; only the owner can read it. Nodes prove to each other by certificates who they
are. Clients of the KAFKA listeners log in by SCRAM, with credentials of the metadata log, to which the log begins with admin's.
For GRPC and METRICS listeners admin's password is in the nodes' own properties too (PLAIN): a quorum that has lost its log still
knows admin.
The authorizer is on, admin is the super user, and without a rule everything is refused.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from pathlib import Path

from kraftlab.access.sasl.mechanisms import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from kraftlab.config import bootstrap_scram, properties
from kraftlab.config.jaas import PLAIN_MODULE
from kraftlab.config.meta_properties import write_durably
from kraftlab.metadata.records import UserScramCredential
from kraftlab.metadata.scram import ScramMechanism

from .cluster_plan import CLIENT_PROPERTIES, ClusterError, ClusterPlan, NodePlan

ADMIN = "admin"
SECRETS = "secrets"
PASSWORD_FILE = "admin.password"
LIBRDKAFKA_PROPERTIES = "librdkafka.properties"
PASSWORD_BYTES = 24
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OWN_KEY = re.compile(r"listener\.security\.protocol\.map|(listener\.name\.[^.]+\.)?ssl\.(keystore|truststore|key)\..+")
"""Keys that follow from the certificates of each node."""


def check_given(directory: Path, properties: Collection[str], held: Collection[str]) -> None:
    """ClusterError if a key of `--property` is one that this module writes; `held`: keys of earlier starts."""
    for key in sorted(filter(_OWN_KEY.fullmatch, properties)):
        step = f"take it away with --unset-property {key}" if key in held else "leave it out"
        raise ClusterError(
            f"{key} cannot be set with --property: each node of a secure cluster has a certificate of its own in "
            f"{directory / SECRETS}, and clients trust its authority; {step}. docs/security.md says how to start nodes with "
            "certificates of your own"
        )


def prepare(directory: Path, plan: ClusterPlan) -> None:
    """Make what is missing: certificates of all nodes and of admin, admin's password, client.properties. ConfigError, OSError."""
    folder = directory / SECRETS
    names = [node.name for node in plan.nodes]
    wanted = [folder / "ca.key", *(folder / f"{name}.pem" for name in (*names, ADMIN))]
    if not all(path.exists() for path in wanted):
        from kraftlab.certificates.folder import local_hosts, throw_away  # half of the time of a later start

        hosts = dict.fromkeys((*local_hosts(), *(node.host for node in plan.nodes)))
        throw_away(folder, names, [ADMIN], list(hosts))
    path = folder / PASSWORD_FILE
    if not path.exists():
        write_durably(path, secrets.token_urlsafe(PASSWORD_BYTES))
    # librdkafka takes lines as they are, Java with escapes.
    lines = "".join(f"{key}={value}\n" for key, value in librdkafka_properties(directory).items())
    for path, text in (
        (directory / CLIENT_PROPERTIES, properties.dumps(client_properties(directory))),
        (folder / LIBRDKAFKA_PROPERTIES, lines),
    ):
        if not path.exists() or path.read_text() != text:
            write_durably(path, text)


def node_properties(directory: Path, node: NodePlan) -> dict[str, str]:
    """Keys of server.properties of a node, after `prepare`. OSError."""
    own = "CONTROLLER" if node.role == "controller" else "PEER"
    scram = f"{SCRAM_SHA_512},{SCRAM_SHA_256}"
    jaas = f'{PLAIN_MODULE} required user_{ADMIN}="{password(directory)}";'
    return {
        "listener.security.protocol.map": f"{own}:SSL,GRPC:SASL_SSL,KAFKA:SASL_SSL,METRICS:SASL_SSL",
        **_stores(directory, node.name),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
        "listener.name.kafka.sasl.enabled.mechanisms": scram,
        **{f"listener.name.{name}.sasl.enabled.mechanisms": f"{PLAIN},{scram}" for name in ("grpc", "metrics")},
        **{f"listener.name.{name}.plain.sasl.jaas.config": jaas for name in ("grpc", "metrics")},
        "authorizer.class.name": _AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }


def first_credentials(directory: Path) -> list[UserScramCredential]:
    """Return admin's credentials, for the bootstrap of the metadata log. OSError."""
    return [bootstrap_scram.credential(ADMIN, mechanism, password(directory)) for mechanism in ScramMechanism]


def client_properties(directory: Path) -> dict[str, str]:
    """Return admin's properties with Kafka's names, for Java clients and for our commands. OSError.

    Listeners between nodes have no logins; there the certificate is admin's.
    """
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": SCRAM_SHA_512,
        "sasl.jaas.config": f'{_SCRAM_MODULE} required username="{ADMIN}" password="{password(directory)}";',
        **_stores(directory, ADMIN),
    }


def librdkafka_properties(directory: Path) -> dict[str, str]:
    """Return admin's properties with the names of librdkafka (confluent-kafka). OSError."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": SCRAM_SHA_512,
        "sasl.username": ADMIN,
        "sasl.password": password(directory),
        "ssl.ca.location": str(directory / SECRETS / "ca.pem"),
    }


def kafka_python_options(directory: Path) -> dict[str, str]:
    """Return admin's arguments for the constructors of kafka-python. OSError."""
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": SCRAM_SHA_512,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": password(directory),
        "ssl_cafile": str(directory / SECRETS / "ca.pem"),
    }


def password(directory: Path) -> str:
    """Return admin's password. OSError."""
    return (directory / SECRETS / PASSWORD_FILE).read_text()


def _stores(directory: Path, name: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / SECRETS / f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / SECRETS / "ca.pem"),
    }
