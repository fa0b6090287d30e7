"""Connections of a simulated broker to controllers, and its own port, which controllers try.

A process that dies ends its connections, and its port refuses from then on; a machine that vanishes does neither. A network can
end a connection for no reason, can refuse connections to a broker that lives, and can hold up its heartbeats. In half of the
seeds controllers hear of none of this, as if all connections lasted forever: then only sessions end.
"""

from __future__ import annotations

from collections.abc import Callable

from ..consensus.options import SimulationOptions
from .stage import MetadataStage, TargetController

SHARE_OF_SEEDS = 0.5
VANISHING_SHARE = 0.3
"""Share of deaths that take the machine along."""
BREAK_RATES = (0.005, 0.02, 0.2)
"""Shares of turns in which the connections of a broker end although it lives; a broker has one of them."""
BREAKS_WITHIN_US = 150_000
REFUSING_SHARE = 0.5
"""Share of these in which the network refuses connections to the broker as well."""
HOLDING_SHARE = 0.5
"""Share of these in which nothing that the broker sends arrives for a while."""
HOLDS_MS = (100, 300, 800)
REFUSES_MS = (20, 120, 300, 2_000)
TRAVEL_US = (100, 300, 5_000)


def are_watched(options: SimulationOptions) -> bool:
    """Return True if controllers notice the ends of connections in this run."""
    return options.random("broker lines").random() < SHARE_OF_SEEDS


class BrokerLine:
    """The network of one broker. Nothing ends in a run whose controllers do not watch. `hold` holds up what the broker sends for
    so many milliseconds.
    """

    def __init__(self, world: MetadataStage, broker_id: int, hold: Callable[[int], None]) -> None:
        self._world = world
        self._hold = hold
        self._broker_id = broker_id
        self._random = world.options.random(f"broker line/{broker_id}")
        self._break_rate = self._random.choice(BREAK_RATES)
        self._connections: dict[TargetController, object] = {}
        self._has_vanished = False
        self._refuses_until_us = 0

    def connection(self, target: TargetController) -> object:
        """Return the connection to that controller; it is made when needed."""
        return self._connections.setdefault(target, object())

    def process_died(self) -> None:
        self._has_vanished = self._random.random() < VANISHING_SHARE
        if self._has_vanished:
            self._connections.clear()
        else:
            self._end_connections()

    def maybe_break(self) -> None:
        """Let the network break the broker's connections, now and then, at any time until its next heartbeat or so."""
        if self._world.watches_brokers and self._world.is_troubled and self._random.random() < self._break_rate:
            self._world.after(self._random.randrange(BREAKS_WITHIN_US), self._break)

    def _break(self) -> None:
        if self._world.is_healed:
            return
        if self._random.random() < HOLDING_SHARE:
            self._hold(self._random.choice(HOLDS_MS))
        if self._random.random() < REFUSING_SHARE:
            self._refuses_until_us = self._world.now_us + self._random.choice(REFUSES_MS) * 1_000
        self._world.note(f"broker {self._broker_id} loses its connections, its port refuses until {self._refuses_until_us} us")
        self._end_connections()

    def refuses(self, is_down: bool) -> bool:
        """Return True if the broker's port refuses a connection now."""
        return (is_down and not self._has_vanished) or self._world.now_us < self._refuses_until_us

    def _end_connections(self) -> None:
        ended, self._connections = self._connections, {}
        if self._world.watches_brokers:
            for target, connection in ended.items():
                self._world.after(self._random.choice(TRAVEL_US), self._ended, target, connection)

    def _ended(self, target: TargetController, connection: object) -> None:
        if not target.postponed(self._ended, target, connection):
            target.controller.connection_closed(connection)
            target.check()
