"""gRPC's health service (`grpc.health.v1`) of a node, in front of its event loop.

Theory of operation. "" is the node: serving while its event loop answers within ANSWER_S, until the node stops. The name of the
admin service is the node's readiness, as /readyz tells it. Nothing is asked while nobody wants to know. A question goes to the
event loop, and its answer serves all who ask within FRESH_S: a probe needs no login, and strangers must not keep the loop busy.
A loop that does not answer is neither serving nor asked again. Watchers look every LOOK_S, each for itself, so one that
does not read keeps nobody else waiting. When the node stops, every name becomes NOT_SERVING, and then the watches end.

The messages are those of grpcio-health-checking, loaded at the first call. Its servicer is not used: it writes to its watchers
under one lock, which a watcher that does not read would hold.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from .methods import SERVICE as ADMIN

if TYPE_CHECKING:
    from grpc_health.v1.health_pb2 import HealthCheckResponse

SERVICE = "grpc.health.v1.Health"
ANSWER_S = 5.0
"""Time in which an event loop that is alive answers."""
FRESH_S = 0.1
LOOK_S = 0.5


class Health(NamedTuple):
    """Health of a node. `is_serving` until it stops; `is_ready` as /readyz says."""

    is_serving: bool
    is_ready: bool


OUT_OF_ORDER = Health(is_serving=False, is_ready=False)
"""Health of a node that stops, or does not answer."""
Tell = Callable[[Health], None]


class HealthService:
    """The service of one node, on gRPC's loop. `ask` lets the node's event loop call the function with its present health."""

    def __init__(self, ask: Callable[[Tell], None]) -> None:
        self._ask = ask
        self._answer: asyncio.Future[Health] | None = None
        self._asked_s = -math.inf
        self._stopped = asyncio.Event()

    async def check(self, name: str) -> HealthCheckResponse | None:
        """Return the status of a name, None for an unknown one."""
        from grpc_health.v1.health_pb2 import HealthCheckResponse

        present = await self._present()
        is_well = {"": present.is_serving, ADMIN: present.is_ready}.get(name)
        if is_well is None:
            return None
        return HealthCheckResponse(status=HealthCheckResponse.SERVING if is_well else HealthCheckResponse.NOT_SERVING)

    async def watch(self, name: str) -> AsyncIterator[HealthCheckResponse]:
        """Yield the status of a name, and each change of it, until the node stops."""
        from grpc_health.v1.health_pb2 import HealthCheckResponse

        last = None
        while True:
            is_last = self._stopped.is_set()
            status = await self.check(name) or HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
            if status != last:
                yield status
            if is_last:
                return
            last = status
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), LOOK_S)

    def stop(self) -> None:
        """Make every name NOT_SERVING for good, and let the watches end."""
        self._stopped.set()

    async def _present(self) -> Health:
        if self._stopped.is_set():
            return OUT_OF_ORDER
        answer, now_s = self._answer, time.monotonic()
        if answer is None or (answer.done() and now_s - self._asked_s >= FRESH_S):
            self._answer = answer = asyncio.get_running_loop().create_future()
            self._asked_s = now_s
            self._ask(answer.set_result)
        if not answer.done():
            await asyncio.wait((answer,), timeout=max(self._asked_s + ANSWER_S - now_s, 0))
        return answer.result() if answer.done() and not self._stopped.is_set() else OUT_OF_ORDER
