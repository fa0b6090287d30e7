"""The gate makes the transitions of the table, and refuses all others."""

import itertools
import random

import pytest

from kraftlab.common.errors import InvariantViolation
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import TRANSITIONS, LogView, RaftConfig, Voter, VoterSet
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.states import Candidate, EpochState, Follower, Prospective, Resigned, Unattached
from kraftlab.quorum.core.vote_tally import VoteTally

OWN = ReplicaKey(1)
STATES = (Unattached, Prospective, Candidate, Leader, Follower, Resigned)


def state_of(kind: type[EpochState], epoch: int) -> EpochState:
    tally = VoteTally((1, 2, 3), 1, 0)
    if kind is Unattached:
        return Unattached(epoch, election_deadline_ms=0, fetch_at_ms=0)
    if kind is Prospective:
        return Prospective(epoch, tally=tally, election_deadline_ms=0, leader_id=-1, voted_key=None, leader_endpoints=None)
    if kind is Candidate:
        return Candidate(epoch, own_key=OWN, tally=tally, election_version=1)
    if kind is Leader:
        return Leader(
            epoch,
            own_key=OWN,
            voted_key=OWN,
            endpoints={},
            epoch_start_offset=0,
            other_voters=(),
            check_quorum_deadline_ms=0,
            begin_at_ms=0,
        )
    if kind is Follower:
        return Follower(epoch, 2, voted_key=None, leader_endpoints={}, fetch_timeout_ms=600, now_ms=0)
    return Resigned(epoch, own_key=OWN, voted_key=OWN, election_deadline_ms=0)


@pytest.fixture
def gate() -> QuorumState:
    voters = VoterSet(tuple(Voter(ReplicaKey(node_id), {}) for node_id in (1, 2, 3)))
    return QuorumState(RaftConfig(node_id=1, voters=voters), LogView(), None, random.Random(0), 0, [])


def is_in_table(source: type[EpochState], target: type[EpochState], step: int) -> bool:
    relations = {-1: (), 0: ("same", "same or higher"), 1: ("next", "higher", "same or higher"), 2: ("higher", "same or higher")}
    return any(row.source is source and row.target is target and row.epoch in relations[step] for row in TRANSITIONS)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(STATES, STATES)), ids=lambda kind: kind.name)
def test_exactly_the_rows_of_the_table_are_allowed(gate, source, target) -> None:
    for step in (-1, 0, 1, 2):
        old, new = state_of(source, 5), state_of(target, 5 + step)
        if step == 0:
            new.voted_key = new.voted_key or old.voted_key
            if old.leader_id >= 0:
                new.leader_id = old.leader_id
        if is_in_table(source, target, step):
            gate.check(old, new)
        else:
            with pytest.raises(InvariantViolation, match="illegal transition"):
                gate.check(old, new)


def test_no_pair_of_states_has_two_rows() -> None:
    pairs = [(row.source, row.target) for row in TRANSITIONS]
    assert len(pairs) == len(set(pairs))


def test_a_second_vote_in_an_epoch_is_refused(gate) -> None:
    gate.vote_for(ReplicaKey(2), 0)
    with pytest.raises(InvariantViolation, match="a second vote in epoch 0"):
        gate.vote_for(ReplicaKey(3), 0)


def test_a_second_leader_in_an_epoch_is_refused(gate) -> None:
    gate.follow(3, 2, {}, 0, "test")
    with pytest.raises(InvariantViolation, match="illegal transition"):
        gate.follow(3, 3, {}, 0, "test")


def test_a_lower_epoch_is_refused(gate) -> None:
    gate.adopt_epoch(4, 0, "test")
    with pytest.raises(InvariantViolation, match="illegal transition"):
        gate.adopt_epoch(3, 0, "test")


def test_an_unattached_voter_keeps_its_remaining_election_time_through_new_epochs(gate) -> None:
    deadline_ms = gate.state.election_deadline_ms
    for epoch in range(1, 20):
        gate.adopt_epoch(epoch, epoch * 10, "test")
        assert gate.state.election_deadline_ms == deadline_ms


def test_a_prospective_that_was_refused_gets_a_new_timer(gate) -> None:
    gate.stand(0, "test")
    kept = gate.state.election_deadline_ms
    gate.adopt_epoch(1, 100, "test")
    assert gate.state.election_deadline_ms == kept
    gate.stand(200, "test")
    gate.state.tally.refuse(2)
    gate.state.tally.refuse(3)
    before = gate.state.election_deadline_ms
    gate.adopt_epoch(2, 5000, "test")
    assert gate.state.election_deadline_ms > before


def test_an_observer_can_not_stand() -> None:
    voters = VoterSet((Voter(ReplicaKey(2), {}),))
    gate = QuorumState(RaftConfig(node_id=1, voters=voters), LogView(), None, random.Random(0), 0, [])
    with pytest.raises(InvariantViolation, match="not a voter"):
        gate.stand(0, "test")


def test_states_print_as_one_short_line() -> None:
    assert repr(state_of(Leader, 5)) == "leader e5 L1 V1 start=0 hw=-1 []"
    assert repr(state_of(Prospective, 5)) == "prospective e5 +1-0/3"
    assert repr(state_of(Follower, 5)) == "follower e5 L2"
