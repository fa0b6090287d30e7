"""Certificates of nodes that are measured under TLS: P-256, from an authority in a directory."""

from __future__ import annotations

from pathlib import Path

from kraftlab.certificates.folder import throw_away
from kraftlab.config import properties
from kraftlab.lab import LocalCluster, layout

CLIENT = "bench"
"""User whose certificate clients show."""
BETWEEN_NODES = {"controller": "CONTROLLER", "broker": "PEER"}


def tls_properties(folder: Path, name: str, protocols: str) -> dict[str, str]:
    """Return the properties of a node that shows the certificate of that name."""
    return {
        "listener.security.protocol.map": protocols,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
    }


def secure(cluster: LocalCluster) -> Path:
    """Let a new cluster, which has not started, speak TLS between nodes and with Kafka clients. Return the directory of the
    certificates; that of CLIENT is there too.
    """
    folder = cluster.directory / "certificates"
    throw_away(folder, [node.name for node in cluster.plan.nodes], [CLIENT])
    for node in cluster.plan.nodes:
        values = tls_properties(folder, node.name, f"{BETWEEN_NODES[node.role]}:SSL,GRPC:PLAINTEXT,KAFKA:SSL")
        with open(layout.properties_path(cluster.directory, node), "a") as file:
            file.write(properties.dumps(values))
    return folder
