"""Attempts of strangers at the listeners of a secure cluster. Each has to be refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.data import PeerConnection
from kraftlab.client.security import NO_SECURITY, ClientSecurity
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.lab import LocalCluster
from kraftlab.metadata.peer_rpc import Api, LogDigestRequest
from kraftlab.wire.frames import FrameError

_PLAIN, _WRONG = "without TLS", "with a wrong password"
_TIMEOUT_MS = {_PLAIN: 1_000, _WRONG: 5_000}
"""A listener with TLS never answers plain bytes. A busy node may take long to refuse a password."""


def refused(cluster: LocalCluster) -> tuple[bool, str]:
    """Return True if no attempt got an answer, and a text that names the attempts."""
    attempts = _attempts(cluster)
    let_in = [name for name, attempt in attempts.items() if _answers(attempt)]
    if let_in:
        return False, f"got an answer: {', '.join(let_in)}"
    return True, f"got no answer: {', '.join(attempts)}"


def _attempts(cluster: LocalCluster) -> dict[str, Callable[[], object]]:
    wrong = msgspec.structs.replace(cluster.security, password="wrong")
    kafka = f"kafka://{cluster.kafka_bootstrap_servers}"
    attempts: dict[str, Callable[[], object]] = {
        f"{name} {how}": partial(_describe, servers, security, _TIMEOUT_MS[how])
        for name, servers in (("GRPC", cluster.bootstrap_servers), ("KAFKA", kafka))
        for how, security in ((_PLAIN, NO_SECURITY), (_WRONG, wrong))
    }
    for name, node in (("CONTROLLER", cluster.plan.controllers[0]), ("PEER", cluster.plan.brokers[0])):
        attempts[f"{name} {_PLAIN}"] = partial(_digest, PeerConnection(node.peer, cluster.cluster_id))
    return attempts


def _describe(servers: str, security: ClientSecurity, timeout_ms: int) -> None:
    with AdminClient(servers, timeout_ms=timeout_ms, security=security) as admin:
        admin.describe_cluster()


def _digest(connection: PeerConnection) -> None:
    try:
        connection.request(Api.LOG_DIGEST, msgspec.msgpack.encode(LogDigestRequest()), _TIMEOUT_MS[_PLAIN] / 1000)
    finally:
        connection.close()


def _answers(attempt: Callable[[], object]) -> bool:
    """Return True if a listener answers. An error is an answer too, unless it refuses a login."""
    try:
        attempt()
    except ApiError as error:
        return error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED
    except (ClusterUnreachable, FrameError, OSError):
        return False
    return True
