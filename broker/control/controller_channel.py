"""Requests of this broker to the active controller.

The leader of the metadata quorum is the active controller, and the observer knows the leader. The broker keeps two connections to
it: one for its own requests (registration, heartbeats, ISR changes, directories), one for admin calls that it passes on for
clients, so that a heartbeat never waits behind a large request. A request to a controller that is no longer active is abandoned
at once, since it may hang.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.quorum.core.messages import LeaderView
from kraftlab.quorum.core.types import VoterSet
from kraftlab.wire.network import TCP, Network
from kraftlab.wire.parts import InMemory
from kraftlab.wire.transport import PeerError, PeerIdentity, PeerPool, PeerTimeout, PeerUnreachable

logger = logging.getLogger("kraftlab.broker.channel")

CONTROLLER_LISTENER = "CONTROLLER"
NO_ANSWER = (PeerError, PeerTimeout, PeerUnreachable, msgspec.MsgspecError)
"""Errors of a request that gets no answer, or none that can be read."""

Answer = TypeVar("Answer")


class Requests(Protocol):
    """The way to the active controller."""

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> InMemory: ...


async def ask(
    channel: Requests, api: int, request: msgspec.Struct, answers: Decoder[Answer], *, timeout_ms: int
) -> Answer | None:
    """Send a request to the active controller and decode its answer; None if there is none."""
    try:
        return answers.decode(await channel.request(api, msgspec.msgpack.encode(request), timeout_ms=timeout_ms))
    except NO_ANSWER as error:
        logger.debug("%s failed: %s", type(request).__name__, error)
        return None


class NoController(PeerUnreachable):
    """No leader is known; the request was not sent."""


class ControllerChannel:
    """`leader` returns the current leader. Call `leader_changed()` whenever that changes."""

    def __init__(
        self,
        nursery: trio.Nursery,
        identity: PeerIdentity,
        leader: Callable[[], LeaderView],
        voters: VoterSet,
        network: Network = TCP,
    ) -> None:
        self._own = PeerPool(nursery, identity, network)
        self._passed_on = PeerPool(nursery, identity, network)
        self._leader = leader
        self._voters = voters
        self._changed = trio.Event()
        self._in_flight: dict[trio.CancelScope, Endpoint] = {}

    @property
    def controller_id(self) -> int:
        """The active controller as this broker knows it, -1 if unknown."""
        return self._leader().leader_id

    def leader_changed(self) -> None:
        """Wake tasks that wait for a controller, and abandon requests to one that is no longer active."""
        current = self.endpoint()
        for scope, asked in self._in_flight.items():
            if current is not None and current != asked:
                scope.cancel()
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return when the leader changes, or after the timeout."""
        changed = self._changed
        with trio.move_on_after(timeout_s):
            await changed.wait()

    def endpoint(self) -> Endpoint | None:
        """The active controller's peer listener, None if the leader is unknown."""
        leader = self._leader()
        if leader.leader_id < 0:
            return None
        endpoint = leader.endpoints.get(CONTROLLER_LISTENER)
        if endpoint is None:
            voter = self._voters.get(leader.leader_id)
            endpoint = voter.endpoints.get(CONTROLLER_LISTENER) if voter is not None else None
        return endpoint

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> memoryview:
        """Send the broker's own request. PeerUnreachable, PeerTimeout or PeerError; NoController without a leader."""
        return await self._request(self._own, api, body, timeout_ms)

    async def pass_on(self, api: int, body: bytes, *, timeout_ms: int) -> memoryview:
        """Send a client's request, on a separate connection. Raises as `request`."""
        return await self._request(self._passed_on, api, body, timeout_ms)

    async def _request(self, pool: PeerPool, api: int, body: bytes, timeout_ms: int) -> memoryview:
        deadline = trio.current_time() + timeout_ms / 1000
        while (endpoint := self.endpoint()) is None:
            rest_s = deadline - trio.current_time()
            if rest_s <= 0:
                raise NoController("no controller is known to lead; make sure that a majority of the controllers runs")
            await self.wait_for_change(rest_s)
        rest_ms = max(1, int((deadline - trio.current_time()) * 1000))
        with trio.CancelScope() as scope:
            self._in_flight[scope] = endpoint
            try:
                return await pool.request(endpoint, api, body, timeout_ms=rest_ms, node_id=self.controller_id)
            finally:
                del self._in_flight[scope]
        raise PeerUnreachable(f"the controller at {endpoint} is no longer active")

    def close(self) -> None:
        self._own.close()
        self._passed_on.close()
