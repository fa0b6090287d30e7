"""Two logs that part are brought together by leader epochs, in a bounded number of rounds, without touching what they share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.replication.divergence import leader_answer, truncation_offset


class EpochLog:
    """A log as a list of (offset, epoch) of its records: the naive twin."""

    def __init__(self, epochs: list[int]) -> None:
        self.epochs = epochs

    @property
    def end(self) -> int:
        return len(self.epochs)

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        known = [(offset, found) for offset, found in enumerate(self.epochs) if found <= epoch]
        if not known:
            return -1, 0
        largest = max(found for _, found in known)
        return largest, max(offset for offset, found in known if found == largest) + 1

    def shares(self, other: EpochLog) -> int:
        shared = 0
        while shared < min(self.end, other.end) and self.epochs[shared] == other.epochs[shared]:
            shared += 1
        return shared


def logs() -> st.SearchStrategy[tuple[list[int], list[int]]]:
    """A common beginning, and two ends in which no epoch was written by both sides: an epoch has one leader."""

    @st.composite
    def draw_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
        common = sorted(draw(st.lists(st.integers(0, 5), max_size=8)))
        base = common[-1] if common else 0
        mine = set(draw(st.lists(st.integers(base + 1, base + 9), max_size=4)))
        left = sorted(draw(st.lists(st.sampled_from(sorted(mine)), max_size=8))) if mine else []
        others = sorted({*range(base + 1, base + 10)} - mine)
        right = sorted(draw(st.lists(st.sampled_from(others), max_size=8))) if others else []
        extended = draw(st.integers(0, 4))
        return common + left, common + [base] * (extended if common and not left else 0) + right

    return draw_logs()


@given(logs())
def test_a_follower_ends_as_a_prefix_of_its_leader_and_keeps_all_they_share(pair: tuple[list[int], list[int]]) -> None:
    leader, follower = EpochLog(pair[0]), EpochLog(pair[1])
    shared = leader.shares(follower)
    for _ in range(40):
        answer = leader_answer(follower.end, follower.latest, leader.end, leader.latest, leader.end_offset_for)
        if answer is None:
            break
        cut = truncation_offset(answer, follower.end, follower.end_offset_for)
        assert cut < follower.end, "every round drops something"
        follower = EpochLog(follower.epochs[:cut])
    assert follower.epochs == leader.epochs[: follower.end]
    assert follower.end == shared


def test_an_empty_follower_may_fetch_from_anyone() -> None:
    assert leader_answer(0, -1, 100, 7, EpochLog([7]).end_offset_for) is None


def test_a_follower_beyond_the_leaders_end_in_the_same_epoch_is_sent_back_to_it() -> None:
    leader = EpochLog([1, 1, 1])
    assert leader_answer(5, 1, 3, 1, leader.end_offset_for) == (1, 3)
