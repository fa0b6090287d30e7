"""A move between log directories walks its table, and the controller always ends up with the truth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.moves.move_state import MOVE_TABLE, MoveAction, MoveEvent, MoveState, next_step


def test_the_way_of_a_move_that_succeeds() -> None:
    state, actions = MoveState.COPYING, []
    for event in (MoveEvent.CAUGHT_UP, MoveEvent.TARGET_COMMITTED, MoveEvent.CAUGHT_UP, MoveEvent.SWAPPED):
        state, action = next_step(state, event)
        actions.append(action)
    assert state is MoveState.EFFECTIVE
    assert actions == [MoveAction.ASSIGN_TARGET, MoveAction.NOTHING, MoveAction.SWAP, MoveAction.NOTHING]


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (MoveState.COPYING, MoveAction.NOTHING),
        (MoveState.QUEUED, MoveAction.ASSIGN_SOURCE),
        (MoveState.ACCEPTED, MoveAction.ASSIGN_SOURCE),
    ],
)
def test_a_dropped_move_takes_back_its_report_to_the_controller(state: MoveState, action: MoveAction) -> None:
    assert next_step(state, MoveEvent.DROP) == (MoveState.DROPPED, action)


@given(
    st.lists(st.sampled_from([MoveEvent.CAUGHT_UP, MoveEvent.TARGET_COMMITTED, MoveEvent.SWAPPED, MoveEvent.DROP]), max_size=20)
)
def test_no_history_swaps_before_the_metadata_says_so_or_leaves_a_wrong_directory(events: list[MoveEvent]) -> None:
    state, committed, known = MoveState.COPYING, False, "source"
    for event in events:
        if (state, event) not in MOVE_TABLE:
            continue
        state, action = next_step(state, event)
        committed = committed or event is MoveEvent.TARGET_COMMITTED
        if action is MoveAction.ASSIGN_TARGET or event is MoveEvent.TARGET_COMMITTED:
            known = "target"
        if action is MoveAction.ASSIGN_SOURCE:
            known = "source"
        if action is MoveAction.SWAP or state is MoveState.EFFECTIVE:
            assert committed
    if state is MoveState.EFFECTIVE:
        assert known == "target"
    if state is MoveState.DROPPED:
        assert known == "source"


def test_an_event_that_cannot_happen_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="copying cannot see: the future log has become"):
        next_step(MoveState.COPYING, MoveEvent.SWAPPED)
