"""The rules of granting votes and pre-votes (KIP-996), one row per case. The voter's log is (epoch 1, 2 records) = 2@1, and it is
in epoch 5.
"""

from collections.abc import Callable

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LeaderView,
    Records,
    VoteRequest,
    VoteResponse,
)

KeyOf = Callable[[int], ReplicaKey]
EPOCH = 5


def vote(
    key_of: KeyOf, *, epoch: int = EPOCH, log: tuple[int, int] = (2, 1), pre_vote: bool = False, **changes: object
) -> VoteRequest:
    fields = {"candidate": key_of(3), "voter": ReplicaKey(1)} | changes
    return VoteRequest(epoch=epoch, end_offset=log[0], last_epoch=log[1], pre_vote=pre_vote, **fields)


def in_state(driven, key_of: KeyOf, name: str):
    """Return a driven node 1 in epoch 5 in the named situation."""
    if name in ("unattached, voted for 3", "unattached, voted for 2"):
        return driven(log=((1, 2),), election=ElectionState(EPOCH, -1, key_of(int(name[-1]))))
    if name in ("candidate", "leader"):
        node = driven(log=((1, 2),), election=ElectionState(EPOCH - 1, -1, None))
        if name == "leader":
            node.win()
        else:
            node.tick_until("prospective")
            node.vote_requests = node.sent(VoteRequest)
            node.answer(node.vote_requests[0], VoteResponse(ErrorCode.NONE, LeaderView(EPOCH - 1), True, True))
        return node
    if name == "resigned":
        return driven(log=((1, 2),), election=ElectionState(EPOCH, 1, key_of(1)))
    node = driven(log=((1, 2),), election=ElectionState(EPOCH, -1, None))
    if name == "prospective":
        node.tick_until("prospective")
    if name.startswith("follower"):
        node.tick()
        node.request(2, BeginQuorumEpochRequest(EPOCH, 2, ReplicaKey(1), {}))
        if name == "follower that has fetched":
            send = node.sent(FetchRequest)[0]
            node.answer(send, FetchResponse(ErrorCode.NONE, LeaderView(EPOCH, 2), -1, 0, 0, Records(b"")))
    return node


UP_TO_DATE, LONGER, NEWER, SHORTER, OLDER = (2, 1), (3, 1), (1, 4), (1, 1), (9, 0)
ROWS = [
    # state, pre-vote granted if up to date, vote granted if up to date
    ("unattached", True, True),
    ("unattached, voted for 3", True, True),
    ("unattached, voted for 2", True, False),
    ("prospective", True, True),
    ("follower that has not fetched", True, False),
    ("follower that has fetched", False, False),
    ("candidate", True, False),
    ("resigned", True, False),
    ("leader", False, False),
]


@pytest.mark.parametrize("log", [UP_TO_DATE, LONGER, NEWER])
@pytest.mark.parametrize(("state", "pre_vote_granted", "vote_granted"), ROWS, ids=[row[0] for row in ROWS])
def test_the_vote_table_for_logs_up_to_date(driven, key_of, state, pre_vote_granted, vote_granted, log) -> None:
    log = (3, 5) if state == "leader" and log == UP_TO_DATE else log
    node = in_state(driven, key_of, state)
    assert node.node.epoch == EPOCH
    if log[1] <= EPOCH:
        assert node.request(3, vote(key_of, log=log, pre_vote=True)).granted is pre_vote_granted
    if log[1] < EPOCH:
        assert node.request(3, vote(key_of, log=log)).granted is vote_granted


@pytest.mark.parametrize("log", [SHORTER, OLDER])
@pytest.mark.parametrize("state", [row[0] for row in ROWS])
def test_nothing_new_is_granted_to_a_log_behind(driven, key_of, state, log) -> None:
    node = in_state(driven, key_of, state)
    assert node.request(3, vote(key_of, log=log, pre_vote=True)).granted is False
    again = state == "unattached, voted for 3"
    assert node.request(3, vote(key_of, log=log)).granted is again


def test_a_pre_vote_of_a_higher_epoch_is_adopted_before_it_is_judged(driven, key_of) -> None:
    node = in_state(driven, key_of, "follower that has fetched")
    assert node.request(3, vote(key_of, epoch=6, pre_vote=True)).granted
    assert (node.node.state_name, node.node.epoch) == ("unattached", 6)


def test_a_node_that_remembers_a_leader_grants_no_vote(driven, key_of) -> None:
    node = driven(log=((1, 2),), election=ElectionState(EPOCH, 8, None))
    assert node.node.state_name == "unattached"
    assert not node.request(3, vote(key_of)).granted


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 2**31}, ErrorCode.INVALID_REQUEST),
        ({"log": (5, 5)}, ErrorCode.INVALID_REQUEST),
        ({"log": (5, 6), "pre_vote": True}, ErrorCode.INVALID_REQUEST),
        ({"log": (-1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"log": (1, -1)}, ErrorCode.INVALID_REQUEST),
        ({"voter": ReplicaKey(2)}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter": ReplicaKey(1, b"another disk 16.")}, ErrorCode.INVALID_VOTER_KEY),
        ({"candidate": ReplicaKey(1)}, ErrorCode.INVALID_REQUEST),
        ({"candidate": ReplicaKey(3, b"")}, ErrorCode.INVALID_REQUEST),
        ({"candidate": ReplicaKey(3, bytes(1_000_000))}, ErrorCode.INVALID_REQUEST),  # too long to be read again as a vote
    ],
)
def test_requests_that_no_correct_peer_sends_are_refused(driven, key_of, changes, error) -> None:
    node = in_state(driven, key_of, "unattached")
    response = node.request(3, vote(key_of, **changes))
    assert (response.error, response.granted, response.leader) == (error, False, LeaderView(EPOCH))


def test_an_observer_grants_votes_too(driven, key_of) -> None:
    node = driven(node_id=9, log=((1, 2),), election=ElectionState(EPOCH, -1, None))
    assert node.request(3, vote(key_of, voter=ReplicaKey(9))).granted


def test_a_voter_that_does_not_know_pre_votes_makes_the_node_a_candidate_at_once(driven, key_of) -> None:
    node = in_state(driven, key_of, "prospective")
    send = node.sent(VoteRequest)[0]
    node.answer(send, VoteResponse(ErrorCode.UNSUPPORTED_VERSION, LeaderView(EPOCH), False, True))
    assert (node.node.state_name, node.node.epoch) == ("candidate", EPOCH + 1)
