"""The doors of a node: the network between nodes and the listeners of the admin API, of Kafka clients and of metrics, each with
its security.

What reads certificates is loaded only if a listener speaks TLS: most nodes start without.
"""

from __future__ import annotations

import logging
import resource
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from kraftlab.access.entrance import OPEN, Entrance, SaslSettings
from kraftlab.access.logins import CertificateLogin, Login, UserLogin
from kraftlab.access.users import Users
from kraftlab.common.endpoint import Endpoint
from kraftlab.config.models import (
    CONTROLLER_LISTENER,
    GRPC_LISTENER,
    KAFKA_LISTENER,
    METRICS_LISTENER,
    PEER_LISTENER,
    NodeConfig,
)
from kraftlab.metadata.image import MetadataImage
from kraftlab.metrics.answers import CONNECTIONS_MAX, Page
from kraftlab.metrics.pages import Source
from kraftlab.metrics.server import MetricsServer
from kraftlab.rpc.health import Health
from kraftlab.rpc.server import MAX_CONNECTIONS as CALLERS_MAX
from kraftlab.rpc.server import Accept, AdminServer, Dispatch
from kraftlab.wire.half_open import TOTAL_MAX as HALF_OPEN_MAX
from kraftlab.wire.network import TCP, Network
from kraftlab.wire.transport import MAX_CONNECTIONS as PEERS_MAX
from kraftlab.wire.transport import ListenError

from .logins import Credentials, Logins

if TYPE_CHECKING:
    from .listener_tls import ListenerTls, NodeTls

logger = logging.getLogger("kraftlab.node")

LOOK_INTERVAL_S = 10.0


def few_files_warning(config: NodeConfig, limit: int) -> str:
    """Return a line if a process with that limit of open files has too few for the connections that its listeners take, otherwise
    "". A quarter of the files is for logs (`broker/log/open_files.py`). RLIM_INFINITY is negative.
    """
    peers = PEERS_MAX + HALF_OPEN_MAX
    kafka = int(config.static("max.connections") or HALF_OPEN_MAX)
    bounds = {
        CONTROLLER_LISTENER: peers,
        PEER_LISTENER: peers,
        GRPC_LISTENER: CALLERS_MAX,
        KAFKA_LISTENER: kafka,
        METRICS_LISTENER: CONNECTIONS_MAX,
    }
    connections = sum(bounds[name] for name in config.listeners)
    needed = connections * 4 // 3
    if not 0 <= limit < needed:
        return ""
    return (
        f"this process may open {limit} files, and its listeners take up to {connections} connections at once: none could "
        f"be left for logs; raise the limit to {needed} (ulimit -n)"
    )


class Doors:
    """The doors of one node. `image` returns its present metadata. ConfigError if certificates cannot be used."""

    def __init__(self, config: NodeConfig, image: Callable[[], MetadataImage]) -> None:
        self._config = config
        if warning := few_files_warning(config, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
            logger.warning("%s", warning)
        self.connections: dict[str, Callable[[], Mapping[str, int]]] = {}
        """Statistics of the open listeners that count their `connections`."""
        self.sources: list[Source] = []
        """Metrics of open listeners."""
        credentials = Credentials(image)
        self._logins: dict[str, Logins] = {}
        for name in config.listeners:
            sasl = config.security.of(name).sasl
            if sasl is not None:
                self._logins[name] = Logins(name, sasl, credentials)
        self._tls: NodeTls | None = None
        if any(config.security.of(name).tls is not None for name in config.listeners):
            from .listener_tls import NodeTls

            self._tls = NodeTls(config.security, config.listeners | config.advertised_listeners)

    def network(self, listener: str) -> Network:
        """Return the network between nodes, of a node with that listener for the others."""
        return TCP if self._tls is None else self._tls.network(listener)

    def admin_server(self, dispatch: Dispatch, health: Callable[[], Health], accept: Accept | None = None) -> AdminServer:
        """Return the server of the admin API, which tells the node's health too."""
        at, tls = self._config.grpc, None if self._tls is None else self._tls.grpc()
        return AdminServer(dispatch, at.host, at.port, accept=accept, login=self._grpc_login(), tls=tls, health=health)

    def _grpc_login(self) -> Login:
        return self._login(GRPC_LISTENER, self._config.users)

    def _login(self, listener: str, users: Users) -> Login:
        """Return the login of a listener that is not for Kafka clients. `users` are those of plaintext."""
        logins, tls = self._logins.get(listener), self._tls_of(listener)
        if logins is not None:
            return logins.grpc()
        return UserLogin(users) if tls is None else CertificateLogin(tls.principal_of)

    def metrics_login(self) -> Login:
        """Return the login of the METRICS listener."""
        return self._login(METRICS_LISTENER, Users({}))

    def metrics_server(self, at: Endpoint, pages: Mapping[str, Page]) -> MetricsServer:
        """Open the METRICS listener. ListenError if the port is not available."""
        tls = self._tls_of(METRICS_LISTENER)
        try:
            return MetricsServer(at, pages, None if tls is None else tls.server)
        except OSError as error:
            why = f"{error.strerror or error}; is another process using the port?"
            raise ListenError(f"cannot listen on {at} for METRICS: {why}") from error

    def certificate_expiries_s(self) -> dict[str, float]:
        """Return the time, in seconds since 1970, at which the certificate of each listener with TLS expires."""
        return {} if self._tls is None else {name: at.timestamp() for name, at in self._tls.expiries().items()}

    def kafka_entrance(self) -> Entrance:
        """Return the entrance of the Kafka listener."""
        tls, config = self._tls_of(KAFKA_LISTENER), self._config.security.of(KAFKA_LISTENER).sasl
        sasl = None
        if config is not None:
            mechanisms = self._logins[KAFKA_LISTENER].mechanisms()
            sasl = SaslSettings(mechanisms, config.max_reauth_ms, config.frame_bytes_max)
        if tls is not None:
            return Entrance(tls.server, tls.principal_of, sasl, tls.opened)
        return OPEN if sasl is None else Entrance(sasl=sasl)

    async def run(self) -> None:
        """Look after the files of certificates and keys, every LOOK_INTERVAL_S and on SIGHUP, until cancelled."""
        if self._tls is None and not self._logins:
            return
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            while True:
                await self.look()
                with trio.move_on_after(LOOK_INTERVAL_S):
                    await anext(signals)

    async def look(self) -> None:
        """Load the files that have changed."""
        if self._tls is not None:
            await self._tls.look()
        for logins in self._logins.values():
            if logins.token_keys is not None:
                await trio.to_thread.run_sync(logins.token_keys.look)

    def _tls_of(self, listener: str) -> ListenerTls | None:
        return None if self._tls is None else self._tls.of(listener)
