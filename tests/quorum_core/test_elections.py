"""Elections as stories: who leads, how long it takes, and what does not disturb a quorum."""

import pytest

from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.effects import BecameLeader, LeaderChanged, Resigned, Send, StoreElectionState
from kraftlab.quorum.core.elections import end_quorum_epoch_delay_ms
from kraftlab.quorum.core.errors import ErrorCode
from kraftlab.quorum.core.events import ElectionStateStored, RequestFailed, ResignAsked, ShutdownAsked, StorageFailed
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    LeaderView,
    VoteRequest,
    VoteResponse,
)


def test_three_voters_elect_one_leader_and_keep_it(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.leader()
    assert leader.node.epoch == 1
    quorum.run(30_000)
    assert leader.node.is_leader
    assert all(host.node.epoch == 1 and host.node.leader_id == leader.config.node_id for host in quorum.up())


def test_a_vote_request_leaves_only_when_the_own_vote_is_stored(driven) -> None:
    node = driven()
    node.tick_until("prospective")
    view = LeaderView(0)
    node.answer(node.sent(VoteRequest)[0], VoteResponse(ErrorCode.NONE, view, True, True))
    stored = node.only(StoreElectionState)
    assert (stored.state.epoch, stored.state.voted_key) == (1, node.config.key)
    assert {send.after.election_version for send in node.sent(VoteRequest)} == {stored.version}


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


def test_a_sole_voter_with_a_slow_disk_leads_once_its_vote_is_stored(driven) -> None:
    node = driven(voters=(1,))
    node.tick()
    version = node.only(StoreElectionState).version
    node.tick(after_ms=10_000)
    node.step(ElectionStateStored(version))
    assert node.node.is_leader
    assert node.node.epoch == 1


def test_a_granted_pre_vote_does_not_make_a_follower_of_the_leader_it_names(driven) -> None:
    node = driven(election=ElectionState(3, -1, None))
    node.tick_until("prospective")
    node.answer(node.sent(VoteRequest)[0], VoteResponse(ErrorCode.NONE, LeaderView(3, 3), True, True))
    assert (node.node.state_name, node.node.epoch) == ("candidate", 4)


def test_a_refused_pre_vote_makes_a_follower_of_the_leader_it_names(driven) -> None:
    node = driven(election=ElectionState(3, -1, None))
    node.tick_until("prospective")
    node.answer(node.sent(VoteRequest)[0], VoteResponse(ErrorCode.NONE, LeaderView(3, 3), False, True))
    assert (node.node.state_name, node.node.leader_id) == ("follower", 3)


def test_a_killed_leader_is_replaced_within_a_few_round_trips(world) -> None:
    quorum = world((1, 2, 3), seed=1).start()
    leader = quorum.settle().leader()
    killed_ms = quorum.now_ms
    leader.crash()
    assert quorum.leader().node.epoch > 1
    assert quorum.now_ms - killed_ms < 150


def test_a_silent_leader_is_replaced_after_the_fetch_timeout(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    cut_ms = quorum.now_ms
    quorum.cut(leader.config.node_id)
    quorum.run_until(lambda: any(host.node.is_leader for host in quorum.up() if host is not leader))
    assert 300 < quorum.now_ms - cut_ms < 1500


def test_followers_of_a_silent_leader_mostly_do_not_split_the_vote(world) -> None:
    epochs = []
    for seed in range(20):
        quorum = world((1, 2, 3), seed=seed).start()
        leader = quorum.settle().leader()
        before = leader.node.epoch
        quorum.cut(leader.config.node_id)
        quorum.run_until(lambda others=[h for h in quorum.up() if h is not leader]: any(h.node.is_leader for h in others))
        epochs.append(max(host.node.epoch for host in quorum.up()) - before)
    assert epochs.count(1) > len(epochs) / 2


def test_followers_differ_in_patience_but_none_outlasts_check_quorum(driven) -> None:
    nodes = [driven(node_id=node_id, voters=tuple(range(1, 40)), election=ElectionState(1, 1, None)) for node_id in range(2, 40)]
    timeouts = {node.node.state.fetch_timeout_ms for node in nodes}
    assert len(timeouts) > 10
    assert min(timeouts) >= 600
    assert max(timeouts) <= 750 < nodes[0].config.check_quorum_timeout_ms


def test_a_refused_connection_ends_the_fetch_timer_soon(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    follower = next(host for host in quorum.up() if host is not leader)
    follower.step(RequestFailed(follower.node.state.fetch_correlation, leader.config.node_id, refused=True))
    assert follower.node.state.fetch_deadline_ms <= quorum.now_ms + 50
    assert not follower.node.state.has_fetched


def test_a_connection_lost_but_not_refused_leaves_the_fetch_timer_alone(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    follower = next(host for host in quorum.up() if host is not leader)
    before = follower.node.state.fetch_deadline_ms
    follower.step(RequestFailed(follower.node.state.fetch_correlation, leader.config.node_id))
    assert follower.node.state.fetch_deadline_ms == before


def test_an_isolated_follower_does_not_raise_the_epoch(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    lonely = next(host for host in quorum.up() if host is not leader)
    quorum.cut(lonely.config.node_id)
    quorum.run(20_000)
    assert lonely.node.epoch == 1
    quorum.heal()
    quorum.run(3_000)
    assert leader.node.is_leader
    assert leader.node.epoch == 1


def test_a_follower_that_can_not_reach_the_leader_does_not_depose_it(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    other = next(host for host in quorum.up() if host is not leader)
    pair = (leader.config.node_id, other.config.node_id)
    quorum.cuts |= {pair, pair[::-1]}
    quorum.run(20_000)
    assert leader.node.is_leader
    assert leader.node.epoch == other.node.epoch == 1


def test_a_leader_that_nobody_fetches_from_resigns(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    quorum.cut(leader.config.node_id)
    cut_ms = quorum.now_ms
    quorum.run_until(lambda: not leader.node.is_leader)
    assert 600 < quorum.now_ms - cut_ms <= 1000
    assert "no majority has fetched" in leader.seen(Resigned)[0].reason


def test_one_follower_of_three_is_enough_to_keep_the_leader(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    lost = next(host for host in quorum.up() if host is not leader)
    lost.crash()
    quorum.run(5_000)
    assert leader.node.is_leader


def test_became_leader_is_told_once_and_only_after_the_epoch_has_committed(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.leader()
    for _ in range(3):
        leader.propose()
        quorum.settle()
    assert leader.seen(BecameLeader) == [BecameLeader(1, 0)]
    assert leader.node.leader_high_watermark > 0


def test_followers_hear_of_the_leader_once(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    quorum.run(5_000)
    for host in quorum.up():
        expected = [] if host is leader else [leader.config.node_id]
        assert [changed.leader_id for changed in host.seen(LeaderChanged) if changed.leader_id >= 0] == expected


def test_a_leader_that_restarts_never_leads_its_epoch_again(world) -> None:
    quorum = world((1, 2, 3)).start()
    for _ in range(5):
        leader = quorum.leader()
        epoch = leader.node.epoch
        leader.crash()
        leader.start()
        assert leader.node.state_name == "resigned"
        assert leader.node.leader_id == -1
        quorum.run_until(lambda epoch=epoch: any(host.node.is_leader and host.node.epoch > epoch for host in quorum.up()))


def test_a_resigning_leader_hands_over_to_the_follower_with_the_most_log(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    ahead, behind = (host for host in quorum.up() if host is not leader)
    quorum.cut(behind.config.node_id)
    leader.propose()
    quorum.run(20)
    quorum.heal()
    resigned_ms = quorum.now_ms
    leader.step(ResignAsked(leader.node.epoch, "asked to"))
    request = leader.seen(Send)[-1].request
    assert isinstance(request, EndQuorumEpochRequest)
    assert [key.node_id for key in request.preferred] == [ahead.config.node_id, behind.config.node_id]
    assert quorum.leader() is ahead
    assert quorum.now_ms - resigned_ms < 60


def test_a_request_to_resign_from_another_epoch_is_ignored(world) -> None:
    leader = world((1, 2, 3)).start().leader()
    leader.step(ResignAsked(leader.node.epoch - 1, "too late"))
    assert leader.node.is_leader


def test_successors_stand_one_after_the_other() -> None:
    assert [end_quorum_epoch_delay_ms(position, 4, 400) for position in (0, 1, 2, 3, -1)] == [0, 50, 100, 200, 400]
    assert end_quorum_epoch_delay_ms(0, 1, 400) == 0


def test_a_leader_whose_disk_is_full_resigns(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    leader.step(StorageFailed("no space left on /data"))
    assert leader.seen(Resigned)[-1].reason == "storage failed: no space left on /data"
    assert quorum.leader() is not leader


def test_a_node_that_shuts_down_hands_over_and_answers_nothing_else(world, key_of) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    leader.step(ShutdownAsked())
    assert leader.seen(Resigned)[-1].reason == "shutting down"
    assert any(isinstance(send.request, EndQuorumEpochRequest) for send in leader.seen(Send))
    quorum.run_until(lambda: any(host.node.is_leader for host in quorum.up()))
    assert leader.node.state_name == "resigned"
    assert leader.node.next_deadline_ms() > quorum.now_ms + 10**12


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


def test_a_voter_that_does_not_fetch_is_told_again_who_leads(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    deaf = next(host for host in quorum.up() if host is not leader)
    deaf.crash()
    leader.history.clear()
    quorum.run(1_000)
    begins = [send for send in leader.seen(Send) if isinstance(send.request, BeginQuorumEpochRequest)]
    assert {send.destination for send in begins} == {deaf.config.node_id}
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


def test_begin_again_does_not_reset_the_fetch_timer(driven, key_of) -> None:
    node = driven()
    begin = BeginQuorumEpochRequest(4, 2, key_of(1), {})
    node.request(2, begin)
    deadline_ms = node.node.state.fetch_deadline_ms
    node.request(2, begin, after_ms=100)
    assert node.node.state.fetch_deadline_ms == deadline_ms


def test_two_voters_without_a_majority_stay_in_their_epoch(world) -> None:
    quorum = world((1, 2, 3, 4, 5)).start()
    quorum.settle()
    for host in list(quorum.up())[:3]:
        host.crash()
    survivors = quorum.up()
    quorum.run(2_000)
    epochs = [host.node.epoch for host in survivors]
    quorum.run(20_000)
    assert [host.node.epoch for host in survivors] == epochs


@pytest.mark.parametrize("seed", range(10))
def test_a_quorum_started_together_elects_soon(world, seed) -> None:
    quorum = world((1, 2, 3, 4, 5), seed=seed).start()
    start_ms = quorum.now_ms
    quorum.leader()
    assert quorum.now_ms - start_ms < 1500
