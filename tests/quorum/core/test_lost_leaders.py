"""A leader that has moved: nodes ask others, and believe their answers, until they find it."""

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import ElectionState, Voter
from kraftlab.quorum.core.effects import ANYBODY, Append, LeaderChanged, OpenSnapshot, Send
from kraftlab.quorum.core.events import RequestFailed, ResponseReceived
from kraftlab.quorum.core.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LeaderView,
    Records,
    RemoveVoterRequest,
    SnapshotRequired,
    VoteRequest,
    VoteResponse,
)

MOVED = {"CONTROLLER": Endpoint("elsewhere", 9093)}
LED_BY_2 = ElectionState(5, 2, None)


@pytest.fixture
def following(driven):
    """A node with dynamic voters that has started as a follower of node 2 in epoch 5 and has just sent its first fetch."""

    def make(**options):
        node = driven(**{"dynamic": True, "election": LED_BY_2} | options)
        node.tick()
        node.fetch = fetch_of(node)
        assert (node.node.state_name, node.fetch.destination) == ("follower", 2)
        return node

    return make


def fetch_of(node) -> Send:
    [send] = node.sent(FetchRequest)
    return send


def not_the_leader(view: LeaderView) -> FetchResponse:
    return FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, view, -1, 0, 0, Records(b""))


def answered(node, send: Send, source: int, response) -> None:
    """Let `source` answer; for ANYBODY it can be any node."""
    node.step(ResponseReceived(send.correlation, source, response))


def failed(node, send: Send, *, refused: bool = True) -> None:
    node.step(RequestFailed(send.correlation, send.destination, refused))


def lost(node) -> Send:
    """Let the leader refuse the connection, and return the next fetch."""
    failed(node, node.fetch)
    return fetch_of(node)


# Whom to ask


@pytest.mark.parametrize("refused", [True, False])
def test_a_node_that_does_not_find_its_leader_asks_anybody_at_once(following, refused) -> None:
    node = following()
    failed(node, node.fetch, refused=refused)
    send = fetch_of(node)
    assert (send.destination, send.request.max_wait_ms) == (ANYBODY, 0)
    assert send.request.fetch_offset == node.node.log_end_offset


def test_the_leader_and_anybody_are_asked_in_turn_with_a_pause_between_two_rounds(following) -> None:
    node = following(fetch_timeout_ms=60_000, refused_backoff_max_ms=50_000)
    for _ in range(3):
        answered(node, lost(node), 3, not_the_leader(LeaderView(5, 2)))
        assert not node.sent(FetchRequest)
        node.tick(19)
        assert not node.sent(FetchRequest)
        node.tick(1)
        node.fetch = fetch_of(node)
        assert node.fetch.destination == 2


def test_nobody_out_there_is_no_word_about_the_leader(following) -> None:
    node = following(fetch_timeout_ms=60_000, refused_backoff_max_ms=50_000)
    send = lost(node)
    deadline_ms = node.node.state.fetch_deadline_ms
    failed(node, send)
    assert node.node.state.fetch_deadline_ms == deadline_ms
    node.tick(20)
    assert fetch_of(node).destination == 2


def test_a_lost_answer_of_a_leader_that_has_answered_before_costs_a_retry_there(following) -> None:
    node = following()
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), 0, 0, 0, Records(b"")))
    failed(node, fetch_of(node), refused=False)
    assert not node.sent(FetchRequest)
    node.tick(20)
    assert fetch_of(node).destination == 2


def test_a_leader_that_has_answered_and_whose_process_is_gone_is_looked_for(following) -> None:
    node = following()
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), 0, 0, 0, Records(b"")))
    failed(node, fetch_of(node))
    assert fetch_of(node).destination == ANYBODY


@pytest.mark.parametrize("refused", [True, False])
def test_voters_that_the_configuration_names_are_where_it_says(following, refused) -> None:
    node = following(dynamic=False, fetch_timeout_ms=60_000, refused_backoff_max_ms=50_000)
    for _ in range(3):
        failed(node, node.fetch, refused=refused)
        assert not node.sent(FetchRequest)
        node.tick(20)
        node.fetch = fetch_of(node)
        assert node.fetch.destination == 2


def test_an_observer_looks_for_its_leader_as_a_voter_does(following) -> None:
    node = following(node_id=9)
    failed(node, node.fetch, refused=False)
    assert fetch_of(node).destination == ANYBODY


def test_somebody_else_at_the_leaders_endpoint_means_that_it_is_not_there(following) -> None:
    node = following()
    answered(node, node.fetch, 3, not_the_leader(LeaderView(5, 2)))
    assert fetch_of(node).destination == ANYBODY


def test_a_voter_that_was_refused_the_pre_votes_goes_on_looking(following) -> None:
    node = following()
    answered(node, lost(node), 3, not_the_leader(LeaderView(5, 2)))
    node.tick_until("prospective")
    node.tick_until("follower")
    node.fetch = fetch_of(node)
    assert (node.fetch.destination, lost(node).destination) == (2, ANYBODY)


# What the answers say


def test_an_unknown_node_names_the_next_leader_and_where_it_is(following) -> None:
    node = following()
    answered(node, lost(node), 77, not_the_leader(LeaderView(9, 42, MOVED)))
    assert (node.node.state_name, node.node.epoch, node.node.leader_id) == ("follower", 9, 42)
    assert node.node.endpoints_of(42) == MOVED
    assert fetch_of(node).destination == 42


def test_the_same_leader_elsewhere_is_asked_there_at_once_and_no_timer_starts_again(following) -> None:
    node = following()
    send = lost(node)
    deadline_ms = node.node.state.fetch_deadline_ms
    answered(node, send, 77, not_the_leader(LeaderView(5, 2, MOVED)))
    assert node.node.endpoints_of(2) == MOVED
    assert node.only(LeaderChanged) == LeaderChanged(5, 2, MOVED)
    assert node.node.leader == LeaderView(5, 2, MOVED)
    assert fetch_of(node).destination == 2
    assert node.node.state.fetch_deadline_ms == deadline_ms


def test_if_anybody_is_the_leader_itself_its_records_count(following, batches_of) -> None:
    node = following(log=((4, 1),))
    data = batches_of(((5, 1),), 1, node.node.log.last_crc)[0]
    answered(node, lost(node), 2, FetchResponse(ErrorCode.NONE, LeaderView(5, 2, MOVED), 1, 0, 0, Records(data)))
    assert node.only(Append).end_offset == 2
    assert node.node.endpoints_of(2) == MOVED


def test_a_leader_found_by_chance_changes_nothing_about_the_snapshot_that_is_copied(following) -> None:
    node = following()
    needed = FetchResponse(ErrorCode.NONE, LeaderView(5, 2), 100, 50, 0, SnapshotRequired(60, 4))
    node.answer(node.fetch, needed)
    assert node.all(OpenSnapshot)
    download = node.node.state.download
    node.tick(200)
    [sign] = [effect for effect in node.effects if isinstance(effect, Send)]
    node.step(RequestFailed(sign.correlation, 2, refused=True))
    answered(node, fetch_of(node), 2, needed)
    assert node.node.state.download is download
    assert not node.all(OpenSnapshot)


def test_a_voter_that_asks_for_pre_votes_meanwhile_remembers_where_the_leader_is(following) -> None:
    node = following()
    send = lost(node)
    node.tick_until("prospective")
    answered(node, send, 77, not_the_leader(LeaderView(5, 2, MOVED)))
    assert node.node.state_name == "prospective"
    node.tick_until("follower")
    assert node.node.endpoints_of(2) == MOVED


def test_a_refused_pre_vote_tells_where_the_leader_is(following) -> None:
    node = following()
    node.tick_until("prospective")
    ask = next(send for send in node.sent(VoteRequest) if send.destination == 3)
    node.answer(ask, VoteResponse(ErrorCode.NONE, LeaderView(5, 2, MOVED), False, True))
    assert node.node.endpoints_of(2) == MOVED


def test_a_node_with_answers_of_its_leader_believes_no_other_node_about_its_address(following) -> None:
    node = following()
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2, MOVED), 0, 0, 0, Records(b"")))
    answered(node, fetch_of(node), 3, not_the_leader(LeaderView(5, 2, {"CONTROLLER": Endpoint("of old", 1)})))
    assert node.node.endpoints_of(2) == MOVED


def test_a_leader_that_announces_itself_is_asked_where_it_says(following, key_of) -> None:
    node = following()
    node.request(2, BeginQuorumEpochRequest(5, 2, key_of(1), MOVED))
    assert node.node.endpoints_of(2) == MOVED


def test_an_answer_without_endpoints_keeps_known_endpoints(following) -> None:
    node = following()
    answered(node, lost(node), 77, not_the_leader(LeaderView(5, 2, MOVED)))
    failed(node, fetch_of(node))
    answered(node, fetch_of(node), 3, not_the_leader(LeaderView(5, 2)))
    assert node.node.endpoints_of(2) == MOVED


# Stories


def test_a_voter_that_all_its_known_voters_have_left_finds_the_quorum_again(quorum, key_of) -> None:
    nodes = quorum(3, 3, dynamic=True)
    nodes.settle()
    nodes.isolate(3)
    for node_id in (4, 5, 6):
        assert nodes.change(AddVoterRequest(-1, Voter(key_of(node_id), {}), 5_000)).error is ErrorCode.NONE
    for node_id in (1, 2):
        assert nodes.change(RemoveVoterRequest(-1, key_of(node_id), 5_000)).error is ErrorCode.NONE
        nodes.leader()
    for node_id in (1, 2):
        nodes.crash(node_id)
    leader = nodes.leader()
    nodes.run(2_000)
    former = nodes.host(3)
    assert former.node.voters.ids() == (1, 2, 3)
    epoch = leader.node.epoch
    nodes.cuts.clear()
    nodes.run_until(lambda: former.node.leader_id == leader.config.node_id, 2_000)
    nodes.settle()
    assert former.node.voters.ids() == (3, 4, 5, 6)
    assert (leader.node.is_leader, leader.node.epoch) == (True, epoch), "nobody was disturbed"


def test_nobody_asks_anybody_while_the_leader_answers(quorum) -> None:
    nodes = quorum(3, 1, dynamic=True)
    leader_id = nodes.settle()
    for host in nodes.up():
        host.history.clear()
    for _ in range(50):
        nodes.propose(leader_id)
        nodes.run(100)
    assert not [send for node_id in nodes.hosts for send in nodes.seen(node_id, Send) if send.destination == ANYBODY]


# A voter that has moved while there is no leader that could write it down


@pytest.fixture
def asked_by_2(driven, key_of):
    """Let node 2 ask for a vote with its endpoints. Return node 1's view of them before and after, and the answer."""

    def ask(endpoints):
        node = driven(dynamic=True, log=((1, 3),))
        before = node.node.endpoints_of(2)
        answer = node.request(2, VoteRequest(5, key_of(2), key_of(1), 0, 0, True, endpoints=endpoints))
        return before, node.node.endpoints_of(2), answer

    return ask


def test_a_candidate_is_reached_where_it_says_also_if_it_is_refused(asked_by_2) -> None:
    before, after, answer = asked_by_2(MOVED)
    assert not answer.granted
    assert before != MOVED
    assert after == MOVED


@pytest.mark.parametrize(
    "endpoints",
    [
        {},
        {"CONTROLLER": Endpoint("elsewhere", 0)},
        {"": Endpoint("elsewhere", 1)},
        {str(number): Endpoint("elsewhere", 1) for number in range(17)},
    ],
    ids=["says nothing", "no port", "no listener", "too many"],
)
def test_endpoints_that_cannot_be_are_not_believed(asked_by_2, endpoints) -> None:
    before, after, _ = asked_by_2(endpoints)
    assert after == before
