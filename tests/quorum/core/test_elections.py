"""Elections as stories: the leader, the time that elections take, and events that must not disturb a quorum."""

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.effects import Send, StoreElectionState
from kraftlab.quorum.core.elections import end_quorum_epoch_delay_ms
from kraftlab.quorum.core.events import ElectionStateStored, ResignAsked, ShutdownAsked
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    LeaderView,
    VoteRequest,
    VoteResponse,
)


def test_three_voters_elect_one_leader_and_keep_it(quorum) -> None:
    nodes = quorum(3)
    leader_id = nodes.settle()
    nodes.run(30_000)
    assert nodes.host(leader_id).node.is_leader
    assert all((host.node.epoch, host.node.leader_id) == (1, leader_id) for host in nodes.up())


def test_a_candidate_opens_no_further_epoch_while_its_vote_is_being_stored(driven) -> None:
    node = driven()
    node.tick_until("prospective")
    node.answer(node.sent(VoteRequest)[0], VoteResponse(ErrorCode.NONE, LeaderView(0), True, True))
    version = node.only(StoreElectionState).version
    node.tick(after_ms=10_000)
    assert (node.node.state_name, node.node.epoch) == ("candidate", 1)
    node.step(ElectionStateStored(version))
    node.tick(after_ms=299)
    assert node.node.state_name == "candidate"
    node.tick(after_ms=301)
    assert (node.node.state_name, node.node.epoch) == ("prospective", 1)


def test_a_refused_pre_vote_makes_a_follower_of_the_leader_it_names(driven) -> None:
    node = driven(election=ElectionState(3, -1, None))
    node.tick_until("prospective")
    node.answer(node.sent(VoteRequest)[0], VoteResponse(ErrorCode.NONE, LeaderView(3, 3), False, True))
    assert (node.node.state_name, node.node.leader_id) == ("follower", 3)


def test_followers_differ_in_patience_but_none_outlasts_check_quorum(driven) -> None:
    nodes = [driven(node_id=node_id, voters=tuple(range(1, 40)), election=ElectionState(1, 1, None)) for node_id in range(2, 40)]
    timeouts = {node.node.state.fetch_timeout_ms for node in nodes}
    assert len(timeouts) > 10
    assert min(timeouts) >= 600
    assert max(timeouts) <= 750 < nodes[0].config.check_quorum_timeout_ms


def test_a_request_to_resign_from_another_epoch_is_ignored(driven) -> None:
    node = driven()
    node.win()
    node.step(ResignAsked(node.node.epoch - 1, "too late"))
    assert node.node.is_leader


def test_successors_stand_one_after_the_other() -> None:
    assert [end_quorum_epoch_delay_ms(position, 4, 400) for position in (0, 1, 2, 3, -1)] == [0, 50, 100, 200, 400]
    assert end_quorum_epoch_delay_ms(0, 1, 400) == 0


@pytest.mark.parametrize("api", ["vote", "fetch", "begin", "end"])
def test_requests_after_shutdown_get_broker_not_available(driven, key_of, api) -> None:
    node = driven()
    node.step(ShutdownAsked())
    request = {
        "vote": VoteRequest(1, key_of(2), key_of(1), 0, 0, False),
        "fetch": FetchRequest(1, key_of(2), 0, 0, -1, 100, 1000),
        "begin": BeginQuorumEpochRequest(1, 2, key_of(1), {}),
        "end": EndQuorumEpochRequest(1, 2, ()),
    }[api]
    assert node.request(2, request).error is ErrorCode.BROKER_NOT_AVAILABLE


def test_the_leader_announces_itself_again_to_a_voter_that_does_not_fetch(quorum) -> None:
    nodes = quorum(3)
    leader_id = nodes.settle()
    nodes.crash(3)
    nodes.host(leader_id).history.clear()
    nodes.run(1_000)
    begins = [send for send in nodes.seen(leader_id, Send) if isinstance(send.request, BeginQuorumEpochRequest)]
    assert {send.destination for send in begins} == {3}
    assert 2 <= len(begins) <= 4


def test_a_second_leader_of_the_same_epoch_is_refused(driven, key_of) -> None:
    node = driven()
    assert node.request(2, BeginQuorumEpochRequest(4, 2, key_of(1), {})).error is ErrorCode.NONE
    assert node.request(3, BeginQuorumEpochRequest(4, 3, key_of(1), {})).error is ErrorCode.INVALID_REQUEST
    assert node.node.leader_id == 2


def test_begin_for_another_disk_is_refused(driven, key_of) -> None:
    node = driven()
    response = node.request(2, BeginQuorumEpochRequest(4, 2, key_of(3), {}))
    assert response.error is ErrorCode.INVALID_VOTER_KEY
    assert node.node.leader_id == -1
