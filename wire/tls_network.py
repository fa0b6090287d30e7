"""The network between nodes under TLS: both ends of a connection prove by certificates which nodes they are.

Theory of operation. A connection is a `Network`'s connection with a handshake on top, in both directions: the dialling end checks
the chain and the host of the other one, and shows its own certificate. The certificate gives the peer's name (`named`), and what
speaks over the wire later is held against it (`transport.py`). Contexts are asked for at every connection, so that new
certificates count from the next one on. A handshake runs in the task of its connection, under a deadline and a bound
(`half_open.py`), so strangers that connect and stay silent hold up nobody.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable

import trio

from kraftlab.common.audit import PEERS, AuditLog
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.peer_name import PeerName

from .half_open import HalfOpen
from .network import CONNECT_TIMEOUT_S, TCP, Accept, TcpNetwork, TcpPort, TcpWire, Wire, host_of
from .tls import HandshakeFailed, SilentEnd, TlsWire

Context = Callable[[], ssl.SSLContext]
"""The present context of one side."""
Named = Callable[[bytes], PeerName]
"""The name of a certificate (DER). ValueError if it gives none."""


class TlsNetwork:
    """Connections under TLS, with a certificate at both ends. `opened` is called with each of them."""

    def __init__(
        self,
        server: Context,
        client: Context,
        named: Named,
        opened: Callable[[TlsWire], None] = lambda wire: None,
        network: TcpNetwork = TCP,
    ) -> None:
        self._opened = opened
        self._server, self._client = server, client
        self._named = named
        self._network = network
        self._half_open = HalfOpen()
        self._audit = AuditLog()

    @property
    def chance(self) -> random.Random:
        return self._network.chance

    async def connect(self, endpoint: Endpoint) -> TlsWire:
        """Connect, and check the certificate of the node at the endpoint. OSError, HandshakeFailed among them."""
        wire = TlsWire(await self._network.connect(endpoint), self._client(), endpoint.host)
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                await wire.shake_hands()
            self._name(wire)
        except trio.TooSlowError as error:
            wire.close()
            raise TimeoutError(f"no TLS handshake within {CONNECT_TIMEOUT_S:.0f} s") from error
        except BaseException:
            wire.close()
            raise
        return wire

    async def listen(self, host: str, port: int) -> TlsPort:
        return TlsPort(await self._network.listen(host, port), self)

    async def accepted(self, connected: TcpWire, source: str) -> TlsWire | None:
        """Return the wire of a peer that has proven its name, None for any other."""
        host = host_of(source)
        try:
            wire = TlsWire(connected, self._server())
        except SilentEnd:
            return None
        try:
            with self._half_open.bounded(host):
                await wire.shake_hands(self._half_open.turn)
                self._name(wire)
                return wire
            self._audit.login_failed(PEERS, host, "no TLS handshake in time")
        except SilentEnd:
            pass
        except HandshakeFailed as error:
            self._audit.login_failed(PEERS, host, str(error))
        except BaseException:
            wire.close()
            raise
        wire.close()
        return None

    def _name(self, wire: TlsWire) -> None:
        if wire.certificate is None:
            raise HandshakeFailed("it showed no certificate")
        try:
            wire.peer = self._named(wire.certificate)
        except ValueError as error:
            raise HandshakeFailed(f"its certificate names nobody: {error}") from error
        self._opened(wire)


class TlsPort:
    """A port that takes connections under TLS."""

    def __init__(self, port: TcpPort, network: TlsNetwork) -> None:
        self._port = port
        self._network = network

    @property
    def number(self) -> int:
        return self._port.number

    async def serve(self, accept: Accept, nursery: trio.Nursery) -> None:
        async def secure(connected: Wire, source: str) -> None:
            assert isinstance(connected, TcpWire)
            wire = await self._network.accepted(connected, source)
            if wire is not None:
                await accept(wire, source)

        await self._port.serve(secure, nursery)
