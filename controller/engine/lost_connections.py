"""Fast detection of dead brokers: a heartbeat connection that ended, and a port that refuses.

Theory of operation. A broker sends its heartbeats over one connection, and listens on its PEER port for as long as its process
lives. When the process dies, the kernel closes the connection and refuses new ones to the port. A process that is stopped or slow
accepts connections (the kernel does that for it), and a machine that vanished or cannot be reached answers nothing. So the end of
the connection over which the newest heartbeat came makes a broker suspect, and `REFUSALS` refused connections in a row,
`PAUSE_MS` apart, confirm that its process is dead. Then the broker is fenced through the same operation as after its session.
A process closes its sockets one after the other as it dies, so its port may accept for a moment longer: after any other result
the count starts again, and `WINDOW_MS` after the end of the connection the session decides.

A suspicion ends without a fence, too, when a heartbeat of that broker arrives, when the broker registers again (a suspicion is
about one broker epoch), and when this controller resigns. A new active controller has no connections yet: after `GRACE_MS` it
suspects every unfenced broker that it has not heard from, since brokers send a heartbeat at once to a new leader. So a broker
that died together with the active controller does not cost a session either.

Fencing a living broker is safe, since the broker is unfenced by its next heartbeat, but it moves leaderships. It takes a network
that breaks one connection and refuses another one. Such a network must not let a broker flap: a broker epoch is fenced this way
at most once per leadership. A process that really died does not come back with the same epoch.

Tries run outside of the event queue. Their results, and the fence, are events like all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from kraftlab.common.endpoint import Endpoint
from kraftlab.metadata.image import BrokerImage

from .queue import EventQueue
from .state import PEER

logger = logging.getLogger("kraftlab.controller")

REFUSALS = 3
"""Refused connections in a row that confirm a broker's death."""
PAUSE_MS = 50
"""Time between two tries. The confirmation of a death takes `(REFUSALS - 1) * PAUSE_MS`."""
WINDOW_MS = 500
"""Time in which tries begin."""
GRACE_MS = 300
"""Time for the first heartbeats to a new active controller."""
GRACE_TAG = "suspect brokers without a heartbeat"

Probe = Callable[[Endpoint, Callable[[bool], None]], None]
"""Try once to connect to a port. The function is called later, once, with True only if the connection was refused."""


class _Suspicion:
    """Doubt about one epoch of a broker. `refusals`: refused connections in a row."""

    def __init__(self, broker_id: int, broker_epoch: int, ends_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.ends_ms = ends_ms
        self.refusals = 0

    @property
    def tag(self) -> str:
        return f"try the port of broker {self.broker_id}"


class LostConnections:
    """One per controller. `brokers`: the newest registrations. `fence`: queues the fence of this epoch of a broker, which
    is called off if the function returns False by then. Without a `probe` nobody is suspected.
    """

    def __init__(
        self,
        queue: EventQueue,
        clock: Callable[[], int],
        brokers: Callable[[], Mapping[int, BrokerImage]],
        fence: Callable[[int, int, Callable[[], bool]], None],
        probe: Probe | None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._brokers = brokers
        self._fence = fence
        self._probe = probe
        self._heard: dict[int, tuple[int, object]] = {}
        """By broker: epoch and connection of the newest heartbeat."""
        self._suspected: dict[int, _Suspicion] = {}
        self._fenced_epochs: dict[int, int] = {}
        """Epoch of each broker that was fenced here last."""

    def activate(self) -> None:
        """Expect a heartbeat of every unfenced broker."""
        if self._probe is not None:
            self._queue.schedule(GRACE_TAG, self._clock() + GRACE_MS, self._suspect_unheard)

    def deactivate(self) -> None:
        """Forget everything: another controller decides."""
        self._queue.cancel(GRACE_TAG)
        for broker_id in [*self._suspected]:
            self._acquit(broker_id)
        self._heard.clear()
        self._fenced_epochs.clear()

    def heard(self, broker_id: int, broker_epoch: int, connection: object) -> None:
        """Note the connection of a heartbeat of the registered epoch. The broker is no longer suspect."""
        self._heard[broker_id] = (broker_epoch, connection)
        self._acquit(broker_id)

    def closed(self, connection: object) -> None:
        """Suspect the brokers whose newest heartbeat came over this connection. Called on the active controller only."""
        for broker_id, (broker_epoch, last) in [*self._heard.items()]:
            if last is connection:
                del self._heard[broker_id]
                self._suspect(broker_id, broker_epoch)

    def _suspect_unheard(self) -> None:
        for broker_id, broker in self._brokers().items():
            if not broker.fenced and broker_id not in self._heard and broker_id not in self._suspected:
                self._suspect(broker_id, broker.epoch)

    def _suspect(self, broker_id: int, broker_epoch: int) -> None:
        self._acquit(broker_id)
        if self._fenced_epochs.get(broker_id) != broker_epoch:
            suspicion = self._suspected[broker_id] = _Suspicion(broker_id, broker_epoch, self._clock() + WINDOW_MS)
            self._try_port(suspicion)

    def _acquit(self, broker_id: int) -> None:
        suspicion = self._suspected.pop(broker_id, None)
        if suspicion is not None:
            self._queue.cancel(suspicion.tag)

    def _is_current(self, suspicion: _Suspicion) -> bool:
        return self._suspected.get(suspicion.broker_id) is suspicion

    def _try_port(self, suspicion: _Suspicion) -> None:
        broker = self._brokers().get(suspicion.broker_id)
        listener = broker.listener(PEER) if broker is not None and broker.epoch == suspicion.broker_epoch else None
        if listener is None or self._probe is None:
            self._acquit(suspicion.broker_id)
        else:
            self._probe(Endpoint(listener.host, listener.port), partial(self._tried, suspicion))

    def _tried(self, suspicion: _Suspicion, was_refused: bool) -> None:
        if not self._is_current(suspicion):
            return
        suspicion.refusals = suspicion.refusals + 1 if was_refused else 0
        if suspicion.refusals == REFUSALS:
            self._fenced_epochs[suspicion.broker_id] = suspicion.broker_epoch
            self._fence(suspicion.broker_id, suspicion.broker_epoch, partial(self._is_current, suspicion))
        elif self._clock() + PAUSE_MS < suspicion.ends_ms:
            self._queue.schedule(suspicion.tag, self._clock() + PAUSE_MS, partial(self._try_port, suspicion))
        else:
            logger.info("broker %d has no connection here, but its port does not refuse", suspicion.broker_id)
            self._acquit(suspicion.broker_id)
