from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraftlab.controller.cluster.heartbeats import (
    TRANSITIONS,
    UNBOUNDED_OFFSET,
    BrokerState,
    HeartbeatFacts,
    HeartbeatTable,
    next_state,
)

FENCED, UNFENCED = BrokerState.FENCED, BrokerState.UNFENCED
SHUTTING_DOWN, GO = BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW


@pytest.mark.parametrize(
    ("current", "facts", "following"),
    [
        (FENCED, {"want_shutdown": True}, GO),
        (FENCED, {"want_shutdown": True, "want_fence": True, "caught_up": True}, GO),
        (FENCED, {"caught_up": True}, UNFENCED),
        (FENCED, {"caught_up": True, "want_fence": True}, FENCED),
        (FENCED, {}, FENCED),
        (UNFENCED, {"want_fence": True, "want_shutdown": True, "leads": True}, GO),
        (UNFENCED, {"want_fence": True}, FENCED),
        (UNFENCED, {"want_shutdown": True, "leads": True}, SHUTTING_DOWN),
        (UNFENCED, {"want_shutdown": True}, GO),
        (UNFENCED, {"caught_up": True}, UNFENCED),
        (SHUTTING_DOWN, {"leads": True, "shutdown_seen": True}, SHUTTING_DOWN),
        (SHUTTING_DOWN, {"shutdown_seen": True}, GO),
        (SHUTTING_DOWN, {"want_fence": True}, SHUTTING_DOWN),
    ],
)
def test_heartbeat_state_machine(current: BrokerState, facts: dict[str, bool], following: BrokerState) -> None:
    nothing = dict.fromkeys(HeartbeatFacts._fields, False)
    assert next_state(current, HeartbeatFacts(**(nothing | facts))) is following


@pytest.mark.parametrize("current", [FENCED, UNFENCED, SHUTTING_DOWN])
def test_every_combination_has_a_row_which_agrees_with_the_rules_as_sentences(current: BrokerState) -> None:
    assert [row for row in TRANSITIONS if row.current is current][-1].condition == "otherwise"
    for facts in (HeartbeatFacts(*values) for values in itertools.product((False, True), repeat=5)):
        following = next_state(current, facts)
        assert following in BrokerState
        if following is GO:
            assert facts.want_shutdown or current is SHUTTING_DOWN, "nobody is sent away who did not ask"
            assert current is not UNFENCED or not facts.leads or facts.want_fence, "leaderships are moved first"
        if following is UNFENCED:
            assert current is UNFENCED or (facts.caught_up and not facts.want_fence), "nobody leads who does not know itself"
        if following is SHUTTING_DOWN:
            assert current is SHUTTING_DOWN or facts.leads
        if following is FENCED:
            assert current is FENCED or facts.want_fence


def test_a_stopped_controller_extends_all_sessions() -> None:
    table = HeartbeatTable(9000)
    table.activate([1, 2], 0)
    table.note_contact(2, 0, 8000)
    table.extend_sessions(5000, now_ms=10_000)
    assert table.oldest_contact([1]) == (1, 14_000)
    assert table.oldest_contact([2]) == (2, 19_000), "nobody was heard in the future"


def test_contacts_of_unregistered_brokers_are_ignored() -> None:
    table = HeartbeatTable(9000)
    table.note_contact(9, 1, 1)
    table.enter_controlled_shutdown(9, 1)
    table.leave_controlled_shutdown(9)
    assert table.contact(9) is None
    assert table.statistics(0) == {}


class NaiveTable:
    """Twin of the table: the whole history of heartbeats, searched for each answer."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, int]] = []
        self.shutdowns: list[tuple[int, int]] = []
        self.known: set[int] = set()

    def last_ms(self, broker_id: int) -> int:
        return [at_ms for who, _, at_ms in self.heard if who == broker_id][-1]

    def offset(self, broker_id: int) -> int:
        return max(offset for who, offset, _ in self.heard if who == broker_id)

    def forget(self, broker_id: int) -> None:
        self.heard = [entry for entry in self.heard if entry[0] != broker_id]
        self.shutdowns = [entry for entry in self.shutdowns if entry[0] != broker_id]


class HeartbeatTableMachine(RuleBasedStateMachine):
    """After any sequence of events the table agrees with its twin."""

    brokers = st.integers(0, 3)

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.table = HeartbeatTable(session_timeout_ms=100)
        self.twin = NaiveTable()

    @initialize(broker_ids=st.sets(brokers, max_size=3))
    def activate(self, broker_ids: set[int]) -> None:
        self.table.activate(broker_ids, self.now_ms)
        for broker_id in broker_ids:
            self.twin.known.add(broker_id)
            self.twin.heard.append((broker_id, -1, self.now_ms))

    @rule(broker_id=brokers)
    def register(self, broker_id: int) -> None:
        self.table.register(broker_id, self.now_ms)
        self.twin.forget(broker_id)
        self.twin.known.add(broker_id)
        self.twin.heard.append((broker_id, -1, self.now_ms))

    @rule(broker_id=brokers, offset=st.integers(-1, 50))
    def note_contact(self, broker_id: int, offset: int) -> None:
        self.table.note_contact(broker_id, offset, self.now_ms)
        if broker_id in self.twin.known:
            self.twin.heard.append((broker_id, offset, self.now_ms))

    @rule(broker_id=brokers, offset=st.integers(0, 50))
    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        self.table.enter_controlled_shutdown(broker_id, offset)
        if broker_id in self.twin.known:
            self.twin.shutdowns.append((broker_id, offset))

    @rule(broker_id=brokers)
    def fence(self, broker_id: int) -> None:
        self.table.leave_controlled_shutdown(broker_id)
        self.twin.shutdowns = [entry for entry in self.twin.shutdowns if entry[0] != broker_id]

    @rule(milliseconds=st.integers(0, 80))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @invariant()
    def sessions_agree(self) -> None:
        for broker_id in range(4):
            valid = broker_id in self.twin.known and self.now_ms - self.twin.last_ms(broker_id) <= 100
            assert self.table.has_valid_session(broker_id, self.now_ms) == valid

    @invariant()
    def the_stalest_agrees(self) -> None:
        known = sorted(self.twin.known)
        oldest_contact = self.table.oldest_contact(range(4))
        if not known:
            assert oldest_contact is None
        else:
            assert oldest_contact is not None
            oldest_ms = min(map(self.twin.last_ms, known))
            assert (self.twin.last_ms(oldest_contact[0]), oldest_contact[1]) == (oldest_ms, oldest_ms + 100)
            assert (oldest_contact[1] < self.now_ms) == (not self.table.has_valid_session(oldest_contact[0], self.now_ms))

    @invariant()
    def the_lowest_offset_agrees(self) -> None:
        known = sorted(self.twin.known)
        lowest = min(map(self.twin.offset, known), default=UNBOUNDED_OFFSET)
        assert self.table.lowest_offset(known) == lowest
        strangers = [broker_id for broker_id in range(4) if broker_id not in known]
        assert self.table.lowest_offset(strangers) == (-1 if strangers else UNBOUNDED_OFFSET)

    @invariant()
    def shutdowns_agree(self) -> None:
        for broker_id in range(4):
            offsets = [offset for who, offset in self.twin.shutdowns if who == broker_id]
            assert self.table.state_of(broker_id, fenced=False) is (SHUTTING_DOWN if offsets else UNFENCED)
            assert self.table.state_of(broker_id, fenced=True) is FENCED
            if offsets:
                contact = self.table.contact(broker_id)
                assert contact is not None and contact.controlled_shutdown_offset == offsets[0], "set once"


TestHeartbeatTable = HeartbeatTableMachine.TestCase
TestHeartbeatTable.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
