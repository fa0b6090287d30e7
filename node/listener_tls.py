"""TLS contexts of a node's listeners: loaded and checked at the start, and again when their files change.

Theory of operation. Every ten seconds, and on SIGHUP, the node looks whether a file of keys or certificates has changed. It loads
them into a new context, which is checked as at the start and must be of the same node (KIP-978), and then swaps the reference:
the next connection uses it, open ones go on. Files that cannot be used change nothing but the log, which names the fault; the
node tries again when they change. Reading and checking happen in a thread.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from weakref import WeakSet

import trio
from cryptography import x509

from kraftlab.certificates.contexts import LoadedTls, client_context, file_marks, server_context
from kraftlab.certificates.folder import is_issued_by
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.peer_name import PeerName
from kraftlab.config.errors import ConfigError
from kraftlab.config.listener_security import BETWEEN_NODES, NodeSecurity
from kraftlab.config.tls_settings import TlsSettings
from kraftlab.rpc.server import GrpcTls, TlsMaterial
from kraftlab.wire.network import TCP, Network
from kraftlab.wire.tls import TlsWire
from kraftlab.wire.tls_network import TlsNetwork

logger = logging.getLogger("kraftlab.tls")

EXPIRY_WARNINGS_DAYS = (30, 7, 1)
PRINCIPALS_KEPT = 1000


class ListenerTls:
    """TLS of one listener. ConfigError if its files cannot be used."""

    def __init__(self, name: str, settings: TlsSettings) -> None:
        self.name = name
        self.settings = settings
        self._is_between_nodes = name in BETWEEN_NODES
        self._server = server_context(settings, is_between_nodes=self._is_between_nodes)
        self._client = client_context(settings) if self._is_between_nodes else None
        self._material = _material(self._server)
        self._refused_marks = self._server.files
        self._warned_days: int | None = None
        self._wires: WeakSet[TlsWire] = WeakSet()
        self.principal_of = functools.lru_cache(PRINCIPALS_KEPT)(settings.principal_mapping.principal)

    @property
    def expires_at(self) -> datetime | None:
        return self._server.expires_at

    def server(self) -> ssl.SSLContext:
        """Return the present context of the listener."""
        return self._server.context

    def client(self) -> ssl.SSLContext:
        """Return the present context for connections to other nodes."""
        assert self._client is not None, "only nodes dial each other with a listener's certificate"
        return self._client.context

    def material(self) -> TlsMaterial:
        """Return the present keys and certificates, for gRPC."""
        return self._material

    def has_changed(self) -> bool:
        """Return True if a file is another one than at the last attempt to load it. Reads the disk."""
        return file_marks(self.settings) not in (self._server.files, self._refused_marks)

    def reload(self) -> bool:
        """Load the files again; return True if others are trusted now. Reads the disk. ConfigError: the old context stays."""
        self._refused_marks = file_marks(self.settings)
        server = server_context(self.settings, self._server, is_between_nodes=self._is_between_nodes)
        client = client_context(self.settings) if self._is_between_nodes else None
        are_others_trusted = {*server.authorities} != {*self._server.authorities}
        self._server, self._client, self._material = server, client, _material(server)
        self._warned_days = None
        return are_others_trusted

    def opened(self, wire: TlsWire) -> None:
        """Note a connection: it ends if its certificate is no longer trusted."""
        if wire.certificate is not None:
            self._wires.add(wire)

    def end_untrusted(self) -> None:
        """End the connections with a certificate that no present authority has issued itself. Those that another certificate
        connects with an authority come back by themselves.
        """
        for wire in tuple(self._wires):
            assert wire.certificate is not None, "only such connections are noted"
            if not is_trusted(wire.certificate, self._server.authorities):
                whose = wire.peer or self.principal_of(wire.certificate)
                logger.warning("listener %s ends a connection of %s: its certificate is no longer trusted", self.name, whose)
                wire.end()

    def host_warning(self, advertised: Endpoint) -> str:
        """Return a line if clients that dial the advertised address refuse the certificate, otherwise ""."""
        if covers_host(self._server.sans, advertised.host):
            return ""
        names = ", ".join(self._server.sans) or "no host"
        return (
            f"listener {self.name} is advertised as {advertised}, and its certificate names {names}: clients will refuse it; "
            "issue one with that host"
        )

    def expiry_warning(self, now: datetime) -> str:
        """Return a line about a certificate that expires soon, once per threshold, otherwise ""."""
        if self.expires_at is None:
            return ""
        left = self.expires_at - now
        reached = min((days for days in EXPIRY_WARNINGS_DAYS if left.days < days), default=None)
        if reached is None or (self._warned_days is not None and self._warned_days <= reached):
            return ""
        self._warned_days = reached
        when = "has expired" if left.total_seconds() <= 0 else f"expires in {max(left.days, 0)} d {left.seconds // 3600} h"
        renew = f"kraftlab certificates renew {self.settings.keystore_location}"
        return f"the certificate of listener {self.name} {when}; renew it: {renew}"


class NodeTls:
    """TLS of all listeners of a node. `reached`: the address of each for others. ConfigError if files of one cannot be used."""

    def __init__(self, security: NodeSecurity, reached: Mapping[str, Endpoint]) -> None:
        self._nodes = security.nodes
        settings = {name: security.of(name).tls for name in reached}
        self._of = {name: ListenerTls(name, found) for name, found in settings.items() if found is not None}
        for name, tls in self._of.items():
            if warning := tls.host_warning(reached[name]):
                logger.warning("%s", warning)

    def of(self, listener: str) -> ListenerTls | None:
        """Return TLS of a listener, None if it speaks plaintext."""
        return self._of.get(listener)

    def network(self, listener: str) -> Network:
        """Return the network between nodes, of a node with that listener for others."""
        tls = self._of.get(listener)
        if tls is None:
            return TCP

        def named(certificate: bytes) -> PeerName:
            return self._nodes.name_of(tls.principal_of(certificate))

        return TlsNetwork(tls.server, tls.client, named, tls.opened)

    def grpc(self) -> GrpcTls | None:
        """Return TLS of the admin API's listener."""
        tls = self._of.get("GRPC")
        return None if tls is None else GrpcTls(tls.material, tls.settings.client_auth == "required")

    def expiries(self) -> dict[str, datetime]:
        """Return the time at which the certificate of each listener expires."""
        return {name: tls.expires_at for name, tls in self._of.items() if tls.expires_at is not None}

    async def look(self) -> None:
        """Load what has changed, and warn of what expires."""
        for tls in self._of.values():
            if await trio.to_thread.run_sync(tls.has_changed):
                try:
                    are_others_trusted = await trio.to_thread.run_sync(tls.reload)
                except ConfigError as error:
                    logger.error("the certificate of listener %s stays as it is: %s", tls.name, error)
                else:
                    logger.info("listener %s has a new certificate, which expires at %s", tls.name, tls.expires_at)
                    if are_others_trusted:
                        tls.end_untrusted()
            warning = tls.expiry_warning(datetime.now(UTC))
            if warning:
                logger.warning("%s", warning)


def is_trusted(certificate: bytes, authorities: Iterable[x509.Certificate]) -> bool:
    """Return True if an authority has issued the certificate (DER), or is that certificate."""
    found = x509.load_der_x509_certificate(certificate)
    return any(found == authority or is_issued_by(found, authority) for authority in authorities)


def covers_host(sans: Iterable[str], host: str) -> bool:
    """Return True if a client that dials the host accepts a certificate with these names (`DNS:*.example.org`, `IP:::1`)."""
    named = [(kind, name) for kind, _, name in (each.partition(":") for each in sans)]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        wanted = host.lower().rstrip(".")
        return any(kind == "DNS" and name.lower() in (wanted, f"*.{wanted.partition('.')[2]}") for kind, name in named)
    return any(kind == "IP" and ipaddress.ip_address(name) == address for kind, name in named)


def _material(loaded: LoadedTls) -> TlsMaterial:
    assert loaded.keys is not None, "a listener has a certificate"
    return TlsMaterial(loaded.keys.key_pem, loaded.keys.chain_pem, loaded.authorities_pem or None)
