"""Who is alive: contact times of brokers, and the heartbeat state machine.

Theory of operation. What the log says of a broker (fenced, in controlled shutdown) is replicated; when it was last heard
is not: this table lives on the active controller only. It is filled at activation with *now* for every registered broker,
so a failover gives each of them a whole session timeout. Contact times are taken when a request arrives, before it waits
for anything, so that a busy controller does not fence healthy brokers; a controller that finds that it stood still itself
forgives that time.

`next_state` walks the table `TRANSITIONS`; what a change of state means for partitions is `brokers.py`.

Metadata offsets are end offsets: a broker that reports N has applied everything below N.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

NEVER_MS = 1 << 62
NO_OFFSET = -1
UNBOUNDED_OFFSET = 1 << 62


class BrokerState(enum.Enum):
    """Where a broker stands in its life (KIP-631)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class HeartbeatFacts(NamedTuple):
    """What a heartbeat's outcome depends on, besides the current state."""

    want_fence: bool
    want_shutdown: bool
    caught_up: bool
    """The broker has applied its own registration."""
    leads: bool
    """It leads at least one partition."""
    shutdown_seen: bool
    """Every active broker has applied the changes that took its leaderships away."""


class Transition(NamedTuple):
    current: BrokerState
    condition: str
    holds: Callable[[HeartbeatFacts], bool]
    following: BrokerState


TRANSITIONS: tuple[Transition, ...] = (
    Transition(BrokerState.FENCED, "wants shutdown", lambda f: f.want_shutdown, BrokerState.SHUTDOWN_NOW),
    Transition(
        BrokerState.FENCED, "no wish to be fenced, caught up", lambda f: not f.want_fence and f.caught_up, BrokerState.UNFENCED
    ),
    Transition(BrokerState.FENCED, "otherwise", lambda f: True, BrokerState.FENCED),
    Transition(
        BrokerState.UNFENCED, "wants fence and shutdown", lambda f: f.want_fence and f.want_shutdown, BrokerState.SHUTDOWN_NOW
    ),
    Transition(BrokerState.UNFENCED, "wants fence", lambda f: f.want_fence, BrokerState.FENCED),
    Transition(
        BrokerState.UNFENCED, "wants shutdown, leads", lambda f: f.want_shutdown and f.leads, BrokerState.CONTROLLED_SHUTDOWN
    ),
    Transition(BrokerState.UNFENCED, "wants shutdown, leads nothing", lambda f: f.want_shutdown, BrokerState.SHUTDOWN_NOW),
    Transition(BrokerState.UNFENCED, "otherwise", lambda f: True, BrokerState.UNFENCED),
    Transition(BrokerState.CONTROLLED_SHUTDOWN, "still leads", lambda f: f.leads, BrokerState.CONTROLLED_SHUTDOWN),
    Transition(
        BrokerState.CONTROLLED_SHUTDOWN, "seen by all active brokers", lambda f: f.shutdown_seen, BrokerState.SHUTDOWN_NOW
    ),
    Transition(BrokerState.CONTROLLED_SHUTDOWN, "otherwise", lambda f: True, BrokerState.CONTROLLED_SHUTDOWN),
)
"""Per current state, the first row whose condition holds decides."""

_ROWS = {state: tuple(row for row in TRANSITIONS if row.current is state) for state in BrokerState}


def next_state(current: BrokerState, facts: HeartbeatFacts) -> BrokerState:
    """The state that a heartbeat leads to."""
    return next(row.following for row in _ROWS[current] if row.holds(facts))


class BrokerContact:
    """One broker's entry. `controlled_shutdown_offset` is the end of the batch that moved its leaderships away, -1 if
    none did.
    """

    __slots__ = ("controlled_shutdown_offset", "last_contact_ms", "metadata_offset")

    def __init__(self, last_contact_ms: int) -> None:
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = NO_OFFSET
        self.controlled_shutdown_offset = NO_OFFSET


class HeartbeatTable:
    """Contact times and reported offsets of registered brokers, by id. Empty on a controller that is not active."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, BrokerContact] = {}

    def activate(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """Starts anew with every registered broker as just heard."""
        self._contacts = {broker_id: BrokerContact(now_ms) for broker_id in broker_ids}

    def deactivate(self) -> None:
        self._contacts = {}

    def register(self, broker_id: int, now_ms: int) -> None:
        """A new incarnation: everything known of the old one is dropped."""
        self._contacts[broker_id] = BrokerContact(now_ms)

    def arrived(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Notes a heartbeat at its arrival. Offsets never go back; unknown brokers are left to the checks that follow."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.last_contact_ms = now_ms
            contact.metadata_offset = max(contact.metadata_offset, metadata_offset)

    def contact(self, broker_id: int) -> BrokerContact | None:
        return self._contacts.get(broker_id)

    def state_of(self, broker_id: int, fenced: bool) -> BrokerState:
        """Where a broker stands; a controlled shutdown counts only if this controller began it (KIP-631)."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.controlled_shutdown_offset != NO_OFFSET and not fenced:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if fenced else BrokerState.UNFENCED

    def enter_controlled_shutdown(self, broker_id: int, end_offset: int) -> None:
        """Sets the offset that all active brokers must have applied before this one may go; once only."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.controlled_shutdown_offset == NO_OFFSET:
            contact.controlled_shutdown_offset = end_offset

    def leave_controlled_shutdown(self, broker_id: int) -> None:
        """The broker was fenced: if it comes back, it begins anew."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.controlled_shutdown_offset = NO_OFFSET

    def lowest_offset(self, broker_ids: Iterable[int]) -> int:
        """The lowest metadata offset that these brokers reported; UNBOUNDED_OFFSET for none of them, -1 if one did not
        report yet.
        """
        lowest = UNBOUNDED_OFFSET
        for broker_id in broker_ids:
            contact = self._contacts.get(broker_id)
            lowest = min(lowest, NO_OFFSET if contact is None else contact.metadata_offset)
        return lowest

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Heard within the session timeout (whether it is fenced is the image's knowledge)."""
        contact = self._contacts.get(broker_id)
        return contact is not None and now_ms - contact.last_contact_ms <= self.session_timeout_ms

    def stalest(self, unfenced_ids: Iterable[int]) -> tuple[int, int] | None:
        """Of these brokers, the one heard longest ago: (id, time its session ends). None if there is none."""
        oldest: tuple[int, int] | None = None
        for broker_id in unfenced_ids:
            contact = self._contacts.get(broker_id)
            if contact is not None and (oldest is None or contact.last_contact_ms < oldest[1]):
                oldest = (broker_id, contact.last_contact_ms)
        return None if oldest is None else (oldest[0], oldest[1] + self.session_timeout_ms)

    def forgive(self, stall_ms: int, now_ms: int) -> None:
        """This controller did not listen for that long: nobody's silence in that time counts."""
        for contact in self._contacts.values():
            contact.last_contact_ms = min(now_ms, contact.last_contact_ms + stall_ms)

    def statistics(self, now_ms: int) -> dict[int, dict[str, int]]:
        """Per broker: milliseconds since the last contact, and the metadata offset it reported."""
        return {
            broker_id: {"silent_ms": now_ms - contact.last_contact_ms, "metadata_offset": contact.metadata_offset}
            for broker_id, contact in self._contacts.items()
        }
