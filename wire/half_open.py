"""Connections before their peer has proven its identity.

Theory of operation. All that comes before the proof (a TLS handshake, a login) has one deadline, however slowly bytes come.
An address may have a bounded number of such connections, and so may all addresses together. At the bound the oldest one makes
room: an honest peer is done within milliseconds, so those that have waited longest are the ones that do not mean to finish.

When many begin at the same moment, as after a restart, one task does one step of a handshake per turn of the event loop
(`turn`), so that heartbeats go on in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

PROOF_TIMEOUT_S = 10.0
PER_ADDRESS_MAX = 64
TOTAL_MAX = 1024


class HalfOpen:
    """The half-open connections of one listener."""

    def __init__(self, per_address_max: int = PER_ADDRESS_MAX, total_max: int = TOTAL_MAX) -> None:
        self._per_address_max, self._total_max = per_address_max, total_max
        self._scopes: dict[trio.CancelScope, str] = {}
        """Scopes of the connections in the order of their begin, with their addresses."""
        self._of_address: dict[str, dict[trio.CancelScope, None]] = {}
        self.turn = trio.Lock()
        """Held during one step of a handshake."""
        self.evicted = 0
        """Number of connections that made room."""

    def __len__(self) -> int:
        return len(self._scopes)

    @contextmanager
    def bounded(self, address: str) -> Iterator[trio.CancelScope]:
        """Cancel the block at its deadline, or if it has to make room."""
        of_address = self._of_address.setdefault(address, {})
        if len(of_address) >= self._per_address_max:
            self._evict(next(iter(of_address)))
        elif len(self._scopes) >= self._total_max:
            self._evict(next(iter(self._scopes)))
        scope = trio.CancelScope(deadline=trio.current_time() + PROOF_TIMEOUT_S)
        self._scopes[scope] = address
        self._of_address.setdefault(address, {})[scope] = None
        try:
            with scope:
                yield scope
        finally:
            self._forget(scope)

    def _evict(self, scope: trio.CancelScope) -> None:
        self.evicted += 1
        scope.cancel()
        self._forget(scope)

    def _forget(self, scope: trio.CancelScope) -> None:
        address = self._scopes.pop(scope, None)
        if address is None:
            return
        of_address = self._of_address[address]
        del of_address[scope]
        if not of_address:
            del self._of_address[address]
