from __future__ import annotations

import itertools

import pytest

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


def test_every_state_but_the_last_has_a_row_for_every_combination() -> None:
    for current in (FENCED, UNFENCED, SHUTTING_DOWN):
        for values in itertools.product((False, True), repeat=5):
            assert next_state(current, HeartbeatFacts(*values)) in BrokerState
        assert [row for row in TRANSITIONS if row.current is current][-1].condition == "otherwise"


def test_a_failover_gives_every_broker_a_whole_session() -> None:
    table = HeartbeatTable(session_timeout_ms=9000)
    table.activate([1, 2], now_ms=5000)
    assert table.stalest([1, 2]) == (1, 14_000)
    assert table.has_valid_session(2, 14_000)
    assert not table.has_valid_session(2, 14_001)
    assert not table.has_valid_session(3, 5000)


def test_the_stalest_broker_is_the_one_heard_longest_ago() -> None:
    table = HeartbeatTable(9000)
    table.activate([1, 2, 3], 0)
    table.arrived(1, 10, 500)
    table.arrived(3, 10, 200)
    assert table.stalest([1, 3]) == (3, 9200)
    assert table.stalest([]) is None


def test_reported_offsets_never_go_back_and_unknown_ones_hold_everybody_up() -> None:
    table = HeartbeatTable(9000)
    table.activate([1, 2], 0)
    table.arrived(1, 10, 1)
    table.arrived(1, 7, 2)
    assert table.lowest_offset([1]) == 10
    assert table.lowest_offset([1, 2]) == -1
    assert table.lowest_offset([]) == UNBOUNDED_OFFSET


def test_controlled_shutdown_offset_is_set_once_and_cleared_by_a_new_incarnation() -> None:
    table = HeartbeatTable(9000)
    table.activate([1], 0)
    table.enter_controlled_shutdown(1, 50)
    table.enter_controlled_shutdown(1, 60)
    contact = table.contact(1)
    assert contact is not None and contact.controlled_shutdown_offset == 50
    assert table.state_of(1, fenced=False) is SHUTTING_DOWN
    assert table.state_of(1, fenced=True) is FENCED
    table.register(1, 5)
    assert table.state_of(1, fenced=False) is UNFENCED


def test_a_stall_of_the_controller_is_nobodys_silence() -> None:
    table = HeartbeatTable(9000)
    table.activate([1, 2], 0)
    table.arrived(2, 0, 8000)
    table.forgive(5000, now_ms=10_000)
    assert table.stalest([1]) == (1, 14_000)
    assert table.stalest([2]) == (2, 19_000), "nobody was heard in the future"


def test_contacts_of_unregistered_brokers_are_ignored() -> None:
    table = HeartbeatTable(9000)
    table.arrived(9, 1, 1)
    table.enter_controlled_shutdown(9, 1)
    table.leave_controlled_shutdown(9)
    assert table.contact(9) is None
    assert table.statistics(0) == {}
