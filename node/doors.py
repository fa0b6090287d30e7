"""The doors of a node: the network between nodes, the admin API's listener and the Kafka listener, each with its security.

What reads certificates is loaded only if a listener speaks TLS: most nodes start without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlab.access.entrance import OPEN, Entrance, SaslSettings
from kraftlab.config.models import GRPC_LISTENER, KAFKA_LISTENER, NodeConfig
from kraftlab.metadata.image import MetadataImage
from kraftlab.rpc.server import Accept, AdminServer, Dispatch
from kraftlab.wire.network import TCP, Network

from .logins import credentials_of, grpc_login, sasl_mechanisms

if TYPE_CHECKING:
    from .listener_tls import ListenerTls, NodeTls


class Doors:
    """The doors of one node. `image` returns its present metadata. ConfigError if certificates cannot be used."""

    def __init__(self, config: NodeConfig, image: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._credential_of = credentials_of(image)
        self._tls: NodeTls | None = None
        if any(config.security.of(name).tls is not None for name in config.listeners):
            from .listener_tls import NodeTls

            self._tls = NodeTls(config.security, config.advertised_listeners)

    def network(self, listener: str) -> Network:
        """Return the network between nodes, of a node with that listener for the others."""
        return TCP if self._tls is None else self._tls.network(listener)

    def admin_server(self, dispatch: Dispatch, accept: Accept | None = None) -> AdminServer:
        """Return the server of the admin API."""
        config, at = self._config, self._config.grpc
        login = grpc_login(config.security.of(GRPC_LISTENER), config.users, self._tls_of(GRPC_LISTENER), self._credential_of)
        tls = None if self._tls is None else self._tls.grpc()
        return AdminServer(dispatch, at.host, at.port, accept=accept, login=login, tls=tls)

    def kafka_entrance(self) -> Entrance:
        """Return the entrance of the Kafka listener. OSError for the file of its secret."""
        security, tls = self._config.security.of(KAFKA_LISTENER), self._tls_of(KAFKA_LISTENER)
        config, sasl = security.sasl, None
        if config is not None:
            mechanisms = sasl_mechanisms(config, self._credential_of, self._config.metadata_log_dir)
            sasl = SaslSettings(mechanisms, config.max_reauth_ms, config.frame_bytes_max)
        if tls is not None:
            return Entrance(tls.server, tls.principal_of, sasl)
        return OPEN if sasl is None else Entrance(sasl=sasl)

    async def run(self) -> None:
        """Look after the files of certificates, until cancelled."""
        if self._tls is not None:
            await self._tls.run()

    def _tls_of(self, listener: str) -> ListenerTls | None:
        return None if self._tls is None else self._tls.of(listener)
