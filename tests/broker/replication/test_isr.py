"""The in-sync set and the high watermark, against naive twins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.replication.isr import (
    FollowerProgress,
    Reaction,
    advance_high_watermark,
    lagging_members,
    maximal_isr,
    may_join,
    reaction_to,
)
from kraftlab.common.errors import ErrorCode

OFFSETS = st.integers(-1, 50)


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 50),
    st.lists(OFFSETS, max_size=5),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_the_high_watermark_is_monotone_and_inside_the_log(
    current: int, start: int, length: int, ends: list[int], members: int, min_isr: int
) -> None:
    end = start + length
    current = min(max(current, start), end)
    raised = advance_high_watermark(current, start, end, ends, members, min_isr)
    assert current <= raised <= end


@given(st.integers(0, 50), st.lists(OFFSETS, max_size=5))
def test_the_high_watermark_never_passes_a_follower_that_counts(end: int, ends: list[int]) -> None:
    naive = end
    for follower_end in ends:
        naive = min(naive, max(follower_end, 0))
    assert advance_high_watermark(0, 0, end, ends, 3, 1) == naive


def test_the_high_watermark_waits_for_enough_members() -> None:
    assert advance_high_watermark(5, 0, 20, [20], committed_isr_size=1, min_isr_size=2) == 5


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=30), st.floats(0.1, 5))
def test_a_follower_is_caught_up_when_its_end_reached_the_leaders_within_the_lag(
    steps: list[tuple[int, int]], lag_s: float
) -> None:
    """Naive twin: remember the leader's end at every fetch and look back."""
    progress, now, leader_end, follower_end = FollowerProgress(), 0.0, 0, 0
    seen: list[tuple[float, int]] = []
    caught_up_s = float("-inf")
    for produced, fetched in steps:
        now += 1.0
        leader_end += produced
        follower_end = min(leader_end, follower_end + fetched)
        if follower_end >= leader_end:
            caught_up_s = now
        elif seen and follower_end >= seen[-1][1]:
            caught_up_s = max(caught_up_s, seen[-1][0])
        seen.append((now, leader_end))
        progress = progress.after_fetch(follower_end, 0, 1, leader_end, now)
        expected = follower_end == leader_end or now - caught_up_s <= lag_s
        assert progress.is_caught_up(leader_end, now, lag_s) == expected


def test_a_follower_joins_only_at_the_high_watermark_and_past_the_epochs_start() -> None:
    at_ten = FollowerProgress(log_end_offset=10, broker_epoch=7)
    assert may_join(at_ten, high_watermark=10, epoch_start_offset=10, registered_epoch=7, is_eligible=True)
    assert not may_join(at_ten, 11, 0, 7, True)
    assert not may_join(at_ten, 0, 11, 7, True)
    assert not may_join(at_ten, 0, 0, 8, True), "it has restarted since it fetched"
    assert not may_join(at_ten, 0, 0, 7, False), "it is fenced or shutting down"


def test_only_members_that_did_not_keep_up_are_lagging_and_never_the_leader() -> None:
    fresh = FollowerProgress(log_end_offset=5, last_caught_up_s=9.0)
    stale = FollowerProgress(log_end_offset=5, last_caught_up_s=1.0)
    level = FollowerProgress(log_end_offset=20, last_caught_up_s=1.0)
    assert lagging_members((0, 1, 2, 3, 4), 0, {1: fresh, 2: stale, 3: level}, 20, 10.0, 3.0) == (2, 4)


def test_growth_counts_at_once_and_shrinking_only_when_committed() -> None:
    assert maximal_isr((0, 1), (0, 1, 2)) == {0, 1, 2}
    assert maximal_isr((0, 1, 2), (0, 1)) == {0, 1, 2}
    assert maximal_isr((0, 1), None) == {0, 1}


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.NONE, Reaction.ADOPT),
        (ErrorCode.INELIGIBLE_REPLICA, Reaction.RESET),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, Reaction.RESET),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Reaction.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_ID, Reaction.WAIT),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.WAIT),
        (ErrorCode.INVALID_UPDATE_VERSION, Reaction.WAIT),
        (ErrorCode.INVALID_REQUEST, Reaction.WAIT),
        (ErrorCode.NEW_LEADER_ELECTED, Reaction.WAIT),
        (ErrorCode.NOT_CONTROLLER, Reaction.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Reaction.RETRY),
    ],
)
def test_each_answer_to_an_isr_change_has_its_reaction(code: ErrorCode, reaction: Reaction) -> None:
    assert reaction_to(code) is reaction
