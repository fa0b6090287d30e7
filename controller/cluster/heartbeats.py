"""Contact times of brokers, and the state machine of heartbeats.

Theory of operation. The log says whether a broker is fenced or in controlled shutdown. The time of its last heartbeat is not
replicated: this table exists on the active controller only. At activation every registered broker gets the current time, so
after a failover each has a whole session timeout. A contact is noted when the request arrives, before it waits for anything,
so a busy controller does not fence healthy brokers. A controller that was stopped itself forgives that time.

`next_state` walks the table `TRANSITIONS`; `brokers.py` writes what a change of state means for partitions.

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
    """States in a broker's life (KIP-631)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class HeartbeatFacts(NamedTuple):
    """Facts that decide the next state, besides the current one."""

    want_fence: bool
    want_shutdown: bool
    caught_up: bool
    """The broker has applied its own registration."""
    leads: bool
    """It leads at least one partition."""
    shutdown_seen: bool
    """Every active broker has applied the changes that moved this broker's leaderships."""


class Transition(NamedTuple):
    current: BrokerState
    condition: str
    holds: Callable[[HeartbeatFacts], bool]
    following: BrokerState


TRANSITIONS: tuple[Transition, ...] = (
    Transition(BrokerState.FENCED, "wants shutdown", lambda f: f.want_shutdown, BrokerState.SHUTDOWN_NOW),
    Transition(BrokerState.FENCED, "wants no fence, caught up", lambda f: not f.want_fence and f.caught_up, BrokerState.UNFENCED),
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
    """State after a heartbeat."""
    return next(row.following for row in _ROWS[current] if row.holds(facts))


class BrokerContact:
    """Entry of one broker. `controlled_shutdown_offset`: end of the batch that moved its leaderships, -1 if there is none."""

    __slots__ = ("controlled_shutdown_offset", "last_contact_ms", "metadata_offset")

    def __init__(self, last_contact_ms: int) -> None:
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = NO_OFFSET
        self.controlled_shutdown_offset = NO_OFFSET


class HeartbeatTable:
    """Contact times and reported offsets of registered brokers, by id. Empty on a standby."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, BrokerContact] = {}

    def activate(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """Start with every registered broker, as if each had just sent a heartbeat."""
        self._contacts = {broker_id: BrokerContact(now_ms) for broker_id in broker_ids}

    def deactivate(self) -> None:
        self._contacts = {}

    def register(self, broker_id: int, now_ms: int) -> None:
        """Add a new incarnation and forget the old one."""
        self._contacts[broker_id] = BrokerContact(now_ms)

    def note_contact(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Note a heartbeat at its arrival. Reported offsets never go back. Unknown brokers are left to later checks."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.last_contact_ms = now_ms
            contact.metadata_offset = max(contact.metadata_offset, metadata_offset)

    def contact(self, broker_id: int) -> BrokerContact | None:
        return self._contacts.get(broker_id)

    def state_of(self, broker_id: int, fenced: bool) -> BrokerState:
        """Current state of a broker. A controlled shutdown counts only if this controller began it (KIP-631)."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.controlled_shutdown_offset != NO_OFFSET and not fenced:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if fenced else BrokerState.UNFENCED

    def enter_controlled_shutdown(self, broker_id: int, end_offset: int) -> None:
        """Set the offset that all active brokers must have applied before this one may shut down; once only."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.controlled_shutdown_offset == NO_OFFSET:
            contact.controlled_shutdown_offset = end_offset

    def leave_controlled_shutdown(self, broker_id: int) -> None:
        """Forget the controlled shutdown of a broker that was fenced."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.controlled_shutdown_offset = NO_OFFSET

    def lowest_offset(self, broker_ids: Iterable[int]) -> int:
        """Lowest metadata offset that these brokers reported. UNBOUNDED_OFFSET without brokers, -1 if one has not reported
        yet.
        """
        lowest = UNBOUNDED_OFFSET
        for broker_id in broker_ids:
            contact = self._contacts.get(broker_id)
            lowest = min(lowest, NO_OFFSET if contact is None else contact.metadata_offset)
        return lowest

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Return True if the last heartbeat is not older than the session timeout."""
        contact = self._contacts.get(broker_id)
        return contact is not None and now_ms - contact.last_contact_ms <= self.session_timeout_ms

    def oldest_contact(self, unfenced_ids: Iterable[int]) -> tuple[int, int] | None:
        """The broker with the oldest heartbeat among these: (id, end of its session). None without brokers."""
        oldest: tuple[int, int] | None = None
        for broker_id in unfenced_ids:
            contact = self._contacts.get(broker_id)
            if contact is not None and (oldest is None or contact.last_contact_ms < oldest[1]):
                oldest = (broker_id, contact.last_contact_ms)
        return None if oldest is None else (oldest[0], oldest[1] + self.session_timeout_ms)

    def extend_sessions(self, stall_ms: int, now_ms: int) -> None:
        """Extend all sessions by the time during which this controller was stopped."""
        for contact in self._contacts.values():
            contact.last_contact_ms = min(now_ms, contact.last_contact_ms + stall_ms)

    def statistics(self, now_ms: int) -> dict[int, dict[str, int]]:
        """Per broker: milliseconds since the last contact, and the reported metadata offset."""
        return {
            broker_id: {"silent_ms": now_ms - contact.last_contact_ms, "metadata_offset": contact.metadata_offset}
            for broker_id, contact in self._contacts.items()
        }
