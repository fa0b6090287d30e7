"""The two options that only experiments set: without pre-votes, and without check quorum."""

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.messages import LeaderView, VoteRequest, VoteResponse
from kraftlab.quorum.core.types import NEVER_MS


def test_without_pre_votes_a_voter_campaigns_at_once(driven) -> None:
    node = driven(pre_vote=False, election=ElectionState(3, 2, None))
    node.tick_until("candidate")
    assert node.node.epoch == 4
    assert [send.request.pre_vote for send in node.sent(VoteRequest)] == [False, False]


def test_without_pre_votes_a_lost_election_is_followed_by_another_epoch(driven) -> None:
    node = driven(pre_vote=False)
    node.tick_until("candidate")
    node.flush()
    node.tick(after_ms=600)
    assert (node.node.state_name, node.node.epoch) == ("candidate", 2)


def test_a_voter_that_comes_back_deposes_a_healthy_leader_only_without_pre_votes(quorum) -> None:
    for pre_vote in (True, False):
        nodes = quorum(3, pre_vote=pre_vote)
        leader_id = nodes.settle()
        epoch = nodes.host(leader_id).node.epoch
        away = next(node_id for node_id in nodes.hosts if node_id != leader_id)
        nodes.isolate(away)
        nodes.run(3_000)
        nodes.cuts.clear()
        nodes.run(3_000)
        assert (nodes.leader().node.epoch == epoch) is pre_vote


def test_without_check_quorum_a_leader_that_nobody_fetches_from_stays(driven) -> None:
    node = driven(check_quorum=False)
    node.win()
    node.tick(after_ms=60_000)
    assert node.node.is_leader
    assert node.node.state.check_quorum_deadline_ms == NEVER_MS


def test_without_check_quorum_a_leader_still_steps_down_for_a_higher_epoch(driven, key_of) -> None:
    node = driven(check_quorum=False)
    node.win()
    answer = node.request(3, VoteRequest(7, key_of(3), key_of(1), 6, 100, False))
    assert answer == VoteResponse(ErrorCode.NONE, LeaderView(7), True, False)
    assert not node.node.is_leader
