"""The state of a node after a start, as a function of its disk."""

import pytest

from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.effects import LeaderChanged, StoreElectionState

ROWS = [
    # stored election state of node 1 (epoch, leader, vote), last epoch of its log, voters -> state, epoch
    ("a new disk", None, 0, (1, 2, 3), "unattached", 0),
    ("nothing but an epoch", (5, -1, None), 1, (1, 2, 3), "unattached", 5),
    ("a vote for another", (5, -1, 2), 1, (1, 2, 3), "unattached", 5),
    ("a vote for itself", (5, -1, 1), 1, (1, 2, 3), "unattached", 5),
    ("a known leader", (5, 2, None), 1, (1, 2, 3), "follower", 5),
    ("a known leader and a vote", (5, 2, 3), 1, (1, 2, 3), "follower", 5),
    ("a leader it can not reach", (5, 8, None), 1, (1, 2, 3), "unattached", 5),
    ("its own leadership", (5, 1, 1), 5, (1, 2, 3), "resigned", 5),
    ("a log of a newer epoch", (5, 2, None), 6, (1, 2, 3), "unattached", 6),
    ("an observer's leader", (5, 2, None), 1, (2, 3), "follower", 5),
    ("a leadership from when it was a voter", (5, 1, 1), 1, (2, 3), "unattached", 6),
]


@pytest.mark.parametrize(("stored", "last_epoch", "voters", "state", "epoch"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_the_boot_table(driven, key_of, stored, last_epoch, voters, state, epoch) -> None:
    election = stored and ElectionState(stored[0], stored[1], key_of(stored[2]) if stored[2] else None)
    log = ((last_epoch, 2),) if last_epoch else ()
    node = driven(voters=voters, log=log, election=election)
    assert (node.node.state_name, node.node.epoch) == (state, epoch)
    assert node.node.next_deadline_ms() == node.now_ms


def test_the_vote_is_remembered(driven, key_of) -> None:
    node = driven(election=ElectionState(5, 2, key_of(3)))
    assert node.node.state.voted_key == key_of(3)
    assert not [effect for effect in node.tick() if isinstance(effect, StoreElectionState)]


def test_a_known_leader_is_announced_to_the_shell(driven) -> None:
    node = driven(election=ElectionState(5, 2, None))
    node.tick()
    assert node.only(LeaderChanged) == LeaderChanged(5, 2, {})


def test_a_sole_voter_stands_at_once_in_the_next_epoch(driven, key_of) -> None:
    node = driven(voters=(1,), election=ElectionState(4, -1, key_of(1)))
    node.tick()
    assert (node.node.state_name, node.node.epoch) == ("candidate", 5)


def test_a_sole_voter_that_led_never_leads_that_epoch_again(driven, key_of) -> None:
    node = driven(voters=(1,), log=((5, 1),), election=ElectionState(5, 1, key_of(1)))
    node.tick()
    node.flush()
    assert node.node.is_leader
    assert node.node.epoch > 5
