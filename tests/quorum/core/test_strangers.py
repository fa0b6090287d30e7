"""Strangers and impossible epochs: which claims a node believes, in requests and in answers."""

from __future__ import annotations

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.effects import Reply, Trace
from kraftlab.quorum.core.events import RequestReceived, ResponseReceived
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LeaderView,
    Records,
    VoteRequest,
)
from kraftlab.quorum.core.quorum_state import NO_EPOCH_LEFT
from kraftlab.quorum.core.types import EPOCH_JUMP_MAX, EPOCH_LAST, EPOCH_MAX, Standing

EPOCH = 5
NEWCOMER = ReplicaKey(7, b"another disk 16.")
NO_RECORDS = Records(b"")


def asked(node, request: object, standing: Standing):
    effects = node.step(RequestReceived(1, NEWCOMER, request, standing))
    return next(effect.response for effect in effects if isinstance(effect, Reply))


def follower(driven, **options: object):
    return driven(log=((1, 2),), election=ElectionState(EPOCH, -1, None), **options)


def requests(epoch: int) -> tuple[object, ...]:
    return (
        VoteRequest(epoch, NEWCOMER, ReplicaKey(1), 1, 99, False),
        BeginQuorumEpochRequest(epoch, 7, ReplicaKey(1), {}),
        EndQuorumEpochRequest(epoch, 7, ()),
        FetchRequest(epoch, NEWCOMER, 0, 0, -1, 0, 1),
    )


@pytest.mark.parametrize("number", range(4))
def test_only_a_controller_that_may_become_a_voter_raises_the_epoch(driven, number: int) -> None:
    for standing in (Standing.STRANGER, Standing.OBSERVER):
        node = follower(driven)
        assert asked(node, requests(EPOCH + 1)[number], standing).error is not ErrorCode.NONE
        assert node.node.election == ElectionState(EPOCH, -1, None)
    node = follower(driven)
    asked(node, requests(EPOCH + 1)[number], Standing.CONTROLLER)
    assert node.node.epoch == EPOCH + 1


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("epoch", [EPOCH + EPOCH_JUMP_MAX + 1, EPOCH_LAST, EPOCH_MAX])
def test_no_request_raises_the_epoch_too_far(driven, number: int, epoch: int) -> None:
    node = follower(driven)
    assert asked(node, requests(epoch)[number], Standing.CONTROLLER).error is ErrorCode.INVALID_REQUEST
    assert node.node.epoch == EPOCH


def test_a_stranger_is_not_given_the_log_but_learns_who_leads(driven) -> None:
    node = follower(driven)
    node.win()
    answer = asked(node, FetchRequest(node.node.epoch, NEWCOMER, 0, 0, -1, 0, 1), Standing.STRANGER)
    assert (answer.error, answer.leader.leader_id) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1)
    assert answer.outcome == NO_RECORDS
    assert node.node.observer_progress() == []


def answered(driven, own: int, claimed: LeaderView, *, node_id: int = 1, source: int | None = None):
    """Return a node of that epoch after an answer to its first fetch."""
    node = driven(node_id=node_id, election=ElectionState(own, -1, None))
    while not node.sent(FetchRequest):
        node.tick(10)
    send = node.sent(FetchRequest)[0]
    response = FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, claimed, -1, 0, 0, NO_RECORDS)
    node.step(ResponseReceived(send.correlation, send.destination if source is None else source, response))
    return node.node


@pytest.mark.parametrize(
    ("own", "claimed", "believed"),
    [
        (5, 6, True),
        (5, 5 + EPOCH_JUMP_MAX, True),
        (5, 6 + EPOCH_JUMP_MAX, False),
        (5, EPOCH_MAX, False),
        (0, 1_500_000, True),
        (0, EPOCH_LAST, True),
        (0, EPOCH_MAX, False),
    ],
)
def test_an_answer_raises_the_epoch_so_far(driven, own: int, claimed: int, believed: bool) -> None:
    """A node that was never in an epoch is perhaps new in an old cluster: it believes the node that it has asked."""
    assert answered(driven, own, LeaderView(claimed)).epoch == (claimed if believed else own)


def test_an_answer_of_another_node_than_the_one_that_was_asked_raises_nothing(driven) -> None:
    assert answered(driven, 5, LeaderView(6, 3), source=77).epoch == 5


def test_an_observer_enters_an_epoch_only_with_its_leader(driven) -> None:
    assert answered(driven, 5, LeaderView(6), node_id=9).epoch == 5
    assert answered(driven, 5, LeaderView(6, 3), node_id=9).epoch == 6


def test_an_observer_whose_leader_has_gone_on_without_one_looks_for_another(driven) -> None:
    node = driven(node_id=9, election=ElectionState(5, 2, None))
    while not (sent := [send for send in node.sent(FetchRequest) if send.destination == 2]):
        node.tick(10)
    node.answer(sent[0], FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, LeaderView(8), -1, 0, 0, NO_RECORDS))
    assert (node.node.state_name, node.node.epoch) == ("unattached", 5)


def test_the_last_epoch_is_kept_and_said(driven) -> None:
    node = driven(election=ElectionState(EPOCH_LAST - 1, -1, None))
    node.win()
    assert node.node.epoch == EPOCH_LAST
    late = driven(election=ElectionState(EPOCH_LAST, -1, None))
    effects = late.tick()
    assert [effect.text for effect in effects if isinstance(effect, Trace) and effect.kind == NO_EPOCH_LEFT]
    for _ in range(20):
        late.tick(1_000)
    assert (late.node.state_name, late.node.epoch) == ("unattached", EPOCH_LAST)


def test_the_leader_of_the_last_epoch_votes_for_nobody_else_in_it_after_a_restart(driven) -> None:
    node = driven(log=((1, 2),), election=ElectionState(EPOCH_LAST, 1, None))
    answer = asked(node, VoteRequest(EPOCH_LAST, NEWCOMER, ReplicaKey(1), 1, 99, False), Standing.CONTROLLER)
    assert (answer.error, answer.granted) == (ErrorCode.NONE, False)
