"""Votes are counted once for each voter, and a majority of all voters wins."""

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.quorum.core.vote_tally import VoteTally


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20))
def test_is_won_by_a_majority_and_lost_when_none_is_possible(voter_count: int, answers: list[tuple[int, bool]]) -> None:
    voters = tuple(range(1, voter_count + 1))
    tally = VoteTally(voters, 1, 0)
    granted, refused = {1}, set[int]()
    for voter_id, grant in answers:
        (tally.grant if grant else tally.refuse)(voter_id)
        if voter_id in voters and voter_id != 1:
            if grant:
                granted.add(voter_id)
                refused.discard(voter_id)
            elif voter_id not in granted:
                refused.add(voter_id)
    majority = voter_count // 2 + 1
    assert tally.is_won == (len(granted) >= majority)
    assert tally.is_lost == (voter_count - len(refused) < majority)
    assert tally.granting_voters() == tuple(sorted(granted))


def test_each_voter_is_asked_once_unless_asked_again() -> None:
    tally = VoteTally((1, 2, 3), 1, 100)
    assert tally.due(99) == []
    assert tally.due(100) == [2, 3]
    assert tally.due(10_000) == []
    tally.ask_again(3, 150)
    assert tally.next_ask_ms == 150
    assert tally.due(150) == [3]


def test_an_observer_does_not_vote_for_itself() -> None:
    assert VoteTally((1, 2, 3), 9, 0).granting_voters() == ()
