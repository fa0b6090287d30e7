"""Changes of voters in a running quorum: one at a time, with overlapping majorities, and safe in every accident."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import ElectionState, OffsetAndEpoch, Voter
from kraftlab.quorum.core.effects import (
    Append,
    Effects,
    Proposed,
    ReadIndexReady,
    Rejected,
    Reply,
    Send,
    VotersChanged,
)
from kraftlab.quorum.core.events import (
    Propose,
    ReadIndexAsked,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    ResignAsked,
    ShutdownAsked,
)
from kraftlab.quorum.core.messages import (
    AddVoterRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    LeaderView,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    Request,
    Response,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
)


def add(node_id: int, timeout_ms: int = 5_000) -> AddVoterRequest:
    return AddVoterRequest(-1, Voter(voter(node_id).key, {}), timeout_ms)


def remove(node_id: int, timeout_ms: int = 5_000) -> RemoveVoterRequest:
    return RemoveVoterRequest(-1, voter(node_id).key, timeout_ms)


def agreed(nodes, *ids: int) -> bool:
    """Return True if all nodes that are up have these voters."""
    return all(host.node.voters.ids() == ids for host in nodes.up())


# A whole quorum


def test_two_voters_become_one_which_goes_on_alone(quorum) -> None:
    nodes = quorum(2, dynamic=True)
    assert nodes.settle() == 1
    nodes.crash(2)
    assert nodes.change(remove(2)).error is ErrorCode.NONE
    nodes.propose(1)
    nodes.run(5_000)
    node = nodes.host(1).node
    assert (node.is_leader, node.epoch) == (True, 1), "no check-quorum for a sole voter"
    nodes.crash(1)
    nodes.start(1)
    start_ms = nodes.now_ms
    nodes.leader()
    assert nodes.now_ms - start_ms < 10, "a sole voter waits for nobody"


def test_a_leader_outside_the_set_resigns_when_the_voters_are_gone(quorum) -> None:
    nodes = quorum(3, dynamic=True)
    assert nodes.settle() == 1
    nodes.crash(2)
    nodes.crash(3)
    token = nodes.ask(1, remove(1), "the leader is removed")
    nodes.run_until(lambda: not nodes.host(1).node.is_leader, 1_000)
    answer = nodes.answers[token]
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "may still be committed" in answer.message


def test_a_removed_follower_learns_of_it_and_pulls_on_as_an_observer(quorum) -> None:
    nodes = quorum(3, dynamic=True)
    assert nodes.settle() == 1
    assert nodes.change(remove(2)).error is ErrorCode.NONE
    nodes.settle()
    gone = nodes.host(2).node
    assert (gone.is_voter, gone.state_name) == (False, "follower")
    assert [row.key for row in nodes.host(1).node.observer_progress()] == [gone.config.key]
    nodes.propose(1)
    nodes.settle()
    nodes.run(3_000)
    assert not [send for send in nodes.seen(2, Send) if isinstance(send.request, VoteRequest)]


def test_a_voter_removed_while_it_was_away_disturbs_nobody_and_comes_to_know(quorum) -> None:
    nodes = quorum(3, dynamic=True)
    assert nodes.settle() == 1
    nodes.isolate(2)
    assert nodes.change(remove(2)).error is ErrorCode.NONE
    nodes.run(3_000)
    nodes.cuts.clear()
    nodes.run_until(lambda: not nodes.host(2).node.is_voter)
    assert (nodes.settle(), nodes.host(1).node.epoch) == (1, 1)


def test_several_that_join_by_themselves_all_get_in(quorum) -> None:
    nodes = quorum(1, 4, dynamic=True, auto_join=True)
    nodes.run_until(lambda: agreed(nodes, 1, 2, 3, 4, 5))


def test_observers_without_auto_join_do_not_join(quorum) -> None:
    nodes = quorum(3, 1, dynamic=True)
    nodes.settle()
    nodes.run(6_000)
    assert agreed(nodes, 1, 2, 3)


def test_a_change_outlives_the_leader_that_began_it(quorum) -> None:
    """One follower has the record, and the leader is gone for good. The next leader commits it with a record of its own."""
    nodes = quorum(3, 1, dynamic=True)
    assert nodes.settle() == 1
    token = nodes.ask(1, add(4), "node 4 is added")
    nodes.run_until(lambda: any(nodes.host(node_id).node.voters.ids() == (1, 2, 3, 4) for node_id in (2, 3)))
    nodes.crash(1)
    nodes.settle()
    assert agreed(nodes, 1, 2, 3, 4)
    assert token not in nodes.answers


def test_every_node_finds_the_same_voters_after_a_restart(quorum) -> None:
    nodes = quorum(3, 1, dynamic=True)
    assert nodes.settle() == 1
    nodes.change(add(4))
    nodes.change(remove(2))
    nodes.settle()
    for node_id in nodes.hosts:
        nodes.crash(node_id)
    nodes.start_all()
    assert agreed(nodes, 1, 3, 4)
    nodes.settle()


def test_linearizable_reads_are_confirmed_by_the_voters_of_the_moment(quorum) -> None:
    nodes = quorum(3, dynamic=True)
    assert nodes.settle() == 1
    nodes.crash(2)
    nodes.crash(3)
    nodes.do(1, ReadIndexAsked(7))
    nodes.run(50)
    assert not nodes.seen(1, ReadIndexReady)
    nodes.ask(1, remove(2, 100), "node 2 is removed")
    nodes.run(50)
    assert not nodes.seen(1, ReadIndexReady), "one of two is no majority"
    nodes.start(3)
    nodes.run_until(lambda: nodes.seen(1, ReadIndexReady))
    assert nodes.seen(1, ReadIndexReady)[0].token == 7


# A leader's node, driven by hand


def voter(node_id: int, disk: int = 0) -> Voter:
    return Voter(ReplicaKey(node_id, bytes([node_id + disk]) * 16), {"CONTROLLER": Endpoint(f"host{node_id}", 9093)})


class Leading:
    """A leader, node 1, of the voters 1, 2, 3 with a committed epoch; node 4 is an observer."""

    def __init__(self, driven, **options) -> None:
        self.node = driven(dynamic=True, **options)
        self.node.win()
        self.node.flush()
        self.tokens = 100

    def fetch(self, node_id: int, offset: int | None = None, disk: int = 0) -> Response | None:
        node = self.node.node
        offset = node.log_end_offset if offset is None else offset
        key = ReplicaKey(node_id, bytes([node_id + disk]) * 16)
        last_epoch = node.epoch if offset else 0
        return self.node.request(node_id, FetchRequest(node.epoch, key, offset, last_epoch, node.high_watermark, 200, 1000))

    def ask(self, request: Request) -> VoterChangeResponse | None:
        """Return the answer, if there was one at once."""
        self.tokens += 1
        effects = self.node.step(RequestReceived(self.tokens, ReplicaKey(-1), request))
        return self.answer_in(effects)

    def answer_in(self, effects: Effects) -> VoterChangeResponse | None:
        answers = [e.response for e in effects if isinstance(e, Reply) and isinstance(e.response, VoterChangeResponse)]
        return answers[0] if answers else None

    def tick(self, after_ms: int) -> VoterChangeResponse | None:
        return self.answer_in(self.node.tick(after_ms))

    def probe_answered(
        self, key: ReplicaKey, error: ErrorCode = ErrorCode.NONE, version_max: int = 1
    ) -> VoterChangeResponse | None:
        (send,) = self.node.sent(ProbeVoterRequest)
        response = ProbeVoterResponse(error, LeaderView(self.node.node.epoch, 1), key, version_max)
        return self.answer_in(self.node.answer(send, response))


@pytest.fixture
def leading(driven) -> Callable[..., Leading]:
    """`leading()` makes a leader; with `commit=False` nothing of its epoch is committed."""

    def make(commit: bool = True, **options) -> Leading:
        made = Leading(driven, **options)
        if commit:
            made.fetch(2)
            assert made.node.node.leader_high_watermark == 3
        return made

    return make


ADD, REMOVE = AddVoterRequest(-1, voter(4), 1_000), RemoveVoterRequest(-1, voter(3).key, 1_000)
UPDATE, TRANSFER = UpdateVoterRequest(-1, voter(2)), TransferLeadershipRequest(-1, voter(2).key, 1_000)
ALL = (ADD, REMOVE, UPDATE, TRANSFER)


@pytest.mark.parametrize("request_", ALL, ids=repr)
def test_only_the_leader_changes_voters(driven, request_) -> None:
    node = driven(dynamic=True)
    answer = node.request(9, request_)
    assert (answer.error, answer.message) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "node 1 does not lead; no leader is known: ask again",
    )


@pytest.mark.parametrize("request_", ALL, ids=repr)
@pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_request_meant_for_another_epoch_is_refused(leading, request_, epoch, error) -> None:
    leader = leading()
    assert leader.ask(msgspec.structs.replace(request_, epoch=epoch)).error is error
    assert leader.node.node.is_leader


@pytest.mark.parametrize("request_", ALL[:3], ids=repr)
def test_no_change_before_the_epoch_has_committed_something(leading, request_) -> None:
    answer = leading(commit=False).ask(request_)
    assert (answer.error, "has not committed anything" in answer.message) == (ErrorCode.REQUEST_TIMED_OUT, True)


@pytest.mark.parametrize("request_", ALL[:3], ids=repr)
def test_static_voters_can_not_be_changed(driven, request_) -> None:
    node = driven()
    node.win()
    node.flush()
    node.request(2, FetchRequest(1, voter(2).key, 1, 1, -1, 0, 1000))
    answer = node.request(9, request_)
    assert (answer.error, "controller.quorum.voters" in answer.message) == (ErrorCode.UNSUPPORTED_VERSION, True)


@pytest.mark.parametrize("request_", ALL[:3], ids=repr)
def test_no_change_while_the_last_one_is_uncommitted(leading, request_) -> None:
    leader = leading()
    leader.ask(UpdateVoterRequest(-1, voter(3)))
    answer = leader.ask(request_)
    assert (answer.error, "not committed so far" in answer.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    leader.node.flush()
    leader.fetch(2)
    answer = leader.ask(request_)
    assert answer is None or answer.error is ErrorCode.NONE


def test_the_gates_are_asked_in_order(leading) -> None:
    """Each request fails at the first closed gate, whatever comes after it."""
    stale = AddVoterRequest(7, Voter(ReplicaKey(-1), {}), 0)
    leader = leading(commit=False)
    errors = [leader.ask(stale)]
    errors.append(leader.ask(msgspec.structs.replace(stale, epoch=-1)))
    errors.append(leader.ask(msgspec.structs.replace(stale, epoch=-1, timeout_ms=1)))
    errors.append(leader.ask(AddVoterRequest(-1, voter(2), 1)))
    leader.fetch(2)
    errors.append(leader.ask(AddVoterRequest(-1, voter(2), 1)))
    assert [answer.error for answer in errors] == [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_VOTER,
    ]


def test_the_id_of_a_voter_is_taken_whatever_its_directory(leading) -> None:
    leader = leading()
    assert leader.ask(AddVoterRequest(-1, voter(3), 1_000)).error is ErrorCode.DUPLICATE_VOTER
    assert leader.ask(AddVoterRequest(-1, voter(3, disk=9), 1_000)).error is ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize("key", [voter(4).key, voter(3, disk=9).key, ReplicaKey(3)], ids=["unknown", "other disk", "no disk"])
def test_only_a_voter_with_that_very_disk_is_removed(leading, key) -> None:
    assert leading().ask(RemoveVoterRequest(-1, key, 1_000)).error is ErrorCode.VOTER_NOT_FOUND


def test_a_removal_that_the_rest_could_not_commit_is_refused(leading) -> None:
    """Node 3 has not fetched: without node 2, nothing could be committed any more, not even this removal."""
    leader = leading()
    answer = leader.ask(RemoveVoterRequest(-1, voter(2).key, 1_000))
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert answer.message == ("of {1,3}, which would be left, 2 are needed, but only [1] are alive: start or replace the others")
    assert leader.ask(REMOVE) is None, "the dead one may go"


def test_the_last_voter_stays(driven) -> None:
    node = driven(voters=(1,), dynamic=True)
    node.tick()
    node.flush()
    answer = node.request(9, RemoveVoterRequest(-1, node.config.key, 1_000))
    assert (answer.error, "the last voter" in answer.message) == (ErrorCode.VOTER_NOT_FOUND, True)


def test_an_observer_that_copies_a_snapshot_for_its_repair_is_reported_as_repairing(leading) -> None:
    leader = leading()
    leader.node.request(4, FetchSnapshotRequest(1, voter(4).key, OffsetAndEpoch(9, 1), 0, 100, is_repairing=True))
    assert leader.ask(ADD) is None
    leader.probe_answered(voter(4).key)
    assert leader.tick(1_000).message == "node 4 repairs its log and does not vote until it is whole: ask again then"


def test_a_new_voter_is_probed_then_awaited_then_appended_then_committed(leading) -> None:
    leader = leading()
    leader.fetch(4, 0)
    assert leader.ask(ADD) is None
    assert [(send.destination, send.request.voter) for send in leader.node.sent(ProbeVoterRequest)] == [(4, voter(4).key)]
    assert leader.node.node.endpoints_of(4) == voter(4).endpoints
    assert leader.probe_answered(voter(4).key) is None
    assert not [e for e in leader.node.effects if isinstance(e, Append)], "it has nothing of the log so far"
    leader.fetch(4)
    assert leader.node.only(VotersChanged).voters.ids() == (1, 2, 3, 4)
    assert leader.node.only(Append).end_offset == 4
    leader.node.flush()
    leader.fetch(2)
    assert leader.answer_in(leader.node.effects) is None, "two of four"
    leader.fetch(4)
    assert leader.answer_in(leader.node.effects).error is ErrorCode.NONE
    assert [row.key for row in leader.node.node.voter_progress(leader.node.now_ms)] == [voter(i).key for i in (1, 2, 3, 4)]


def test_an_observer_that_was_caught_up_long_ago_is_waited_for(leading) -> None:
    leader = leading()
    leader.fetch(4)
    leader.node.tick(500)
    leader.fetch(2)
    leader.node.tick(101)
    leader.ask(ADD)
    leader.probe_answered(voter(4).key)
    assert leader.node.node.voters.ids() == (1, 2, 3)
    leader.fetch(4)
    assert leader.node.node.voters.ids() == (1, 2, 3, 4)


def test_another_node_at_that_address_is_refused_with_both_directories(leading) -> None:
    leader = leading()
    leader.ask(ADD)
    answer = leader.probe_answered(voter(4, disk=5).key, ErrorCode.INVALID_VOTER_KEY)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.message == (
        "the node that answers there is node 4 with directory id CQkJCQkJCQkJCQkJCQkJCQ, "
        "not node 4 with directory id BAQEBAQEBAQEBAQEBAQEBA"
    )
    assert leader.ask(ADD) is None, "the way is free for the next"


def test_a_node_that_does_not_know_this_kraft_version_is_refused(leading) -> None:
    leader = leading()
    leader.ask(ADD)
    answer = leader.probe_answered(voter(4).key, version_max=0)
    assert (answer.error, "upgrade it first" in answer.message) == (ErrorCode.UNSUPPORTED_VERSION, True)


def test_an_unreachable_node_is_probed_again_until_the_time_is_up(leading) -> None:
    leader = leading()
    leader.ask(ADD)
    for _ in range(5):
        (send,) = leader.node.sent(ProbeVoterRequest)
        leader.node.step(RequestFailed(send.correlation, 4, refused=True))
        assert not leader.node.sent(ProbeVoterRequest)
        leader.node.tick(20)
    leader.fetch(2)
    answer = leader.tick(900)
    assert (answer.error, answer.message) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "node 4 did not answer at CONTROLLER://host4:9093: is it running, and is that its address?",
    )


def test_a_late_answer_to_an_earlier_probe_counts_for_nothing(leading) -> None:
    leader = leading()
    leader.ask(ADD)
    (early,) = leader.node.sent(ProbeVoterRequest)
    leader.fetch(2)
    assert leader.tick(1_000).error is ErrorCode.REQUEST_TIMED_OUT
    leader.ask(AddVoterRequest(-1, voter(4, disk=5), 1_000))
    response = ProbeVoterResponse(ErrorCode.NONE, LeaderView(1, 1), voter(4).key, 1)
    assert leader.answer_in(leader.node.answer(early, response)) is None
    assert leader.node.node.next_deadline_ms() <= leader.node.now_ms + 1_000


@pytest.mark.parametrize("offset", [None, 0])
def test_a_node_that_does_not_catch_up_in_time_is_not_added(leading, offset) -> None:
    leader = leading()
    if offset is not None:
        leader.fetch(4, offset)
    leader.ask(ADD)
    leader.probe_answered(voter(4).key)
    leader.fetch(2)
    deadline_ms = leader.node.now_ms + 1_000
    assert leader.node.node.next_deadline_ms() <= deadline_ms
    answer = leader.tick(1_000)
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert ("only up to offset 0 of 3" if offset == 0 else "does not fetch from this leader") in answer.message
    assert leader.node.node.voters.ids() == (1, 2, 3)


def test_a_time_out_does_not_undo_an_appended_change(leading) -> None:
    leader = leading()
    assert leader.ask(REMOVE) is None
    leader.node.flush()
    leader.node.tick(600)
    leader.fetch(2, 3)
    answer = leader.tick(400)
    assert (answer.error, "they still may be" in answer.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert leader.node.node.voters.ids() == (1, 2)
    assert "not committed so far" in leader.ask(ADD).message
    leader.fetch(2)
    assert leader.node.node.leader_high_watermark == 4
    assert leader.ask(ADD) is None


@pytest.mark.parametrize("request_", [ADD, REMOVE, TRANSFER], ids=repr)
@pytest.mark.parametrize("end", [ResignAsked(1, "test"), ShutdownAsked()], ids=repr)
def test_the_end_of_a_leadership_answers_pending_changes(leading, request_, end) -> None:
    leader = leading()
    leader.node.step(Propose(1, b"\x91\x01", 1))
    assert leader.ask(request_) is None
    answer = leader.answer_in(leader.node.step(end))
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ("may still be committed" if request_ is REMOVE else "it was not begun") in answer.message


def test_a_higher_epoch_ends_a_change_too(leading, key_of) -> None:
    leader = leading()
    leader.ask(REMOVE)
    effects = leader.node.step(RequestReceived(7, key_of(2), VoteRequest(2, key_of(2), key_of(1), 1, 3, False)))
    assert leader.answer_in(effects).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_caller_that_hangs_up_drops_only_a_change_that_has_not_begun(leading) -> None:
    leader = leading()
    leader.ask(ADD)
    leader.node.step(RequestAbandoned(leader.tokens))
    assert leader.ask(REMOVE) is None
    leader.node.step(RequestAbandoned(leader.tokens))
    leader.node.flush()
    leader.fetch(2)
    assert leader.answer_in(leader.node.effects) is None
    assert leader.node.node.voters.ids() == (1, 2)
    assert leader.ask(ADD) is None


def test_an_update_is_answered_at_once_and_one_that_changes_nothing_appends_nothing(leading) -> None:
    leader = leading()
    assert leader.ask(UPDATE).error is ErrorCode.NONE
    assert leader.node.only(Append).end_offset == 4
    assert leader.node.only(VotersChanged).voters.get(2) == voter(2)
    leader.node.flush()
    leader.fetch(2)
    assert leader.ask(UPDATE).error is ErrorCode.NONE
    assert not [e for e in leader.node.effects if isinstance(e, Append)]


def test_an_update_keeps_the_known_progress_of_the_voter(leading) -> None:
    leader = leading()
    leader.ask(UPDATE)
    assert [row.end_offset for row in leader.node.node.voter_progress(0)] == [3, 3, -1]


@pytest.mark.parametrize("key", [voter(4).key, voter(2, disk=9).key])
def test_only_voters_are_updated(leading, key) -> None:
    assert leading().ask(UpdateVoterRequest(-1, Voter(key, {}))).error is ErrorCode.VOTER_NOT_FOUND


def test_the_leader_updates_its_own_endpoints_once_it_may(leading) -> None:
    leader = leading(commit=False, endpoints={"CONTROLLER": Endpoint("moved", 1)})
    assert leader.node.node.voters_offset == 2
    leader.fetch(2)
    assert leader.node.only(VotersChanged).voters.get(1).endpoints == {"CONTROLLER": Endpoint("moved", 1)}
    leader.node.flush()
    leader.fetch(2)
    assert not [e for e in leader.node.effects if isinstance(e, Append)], "once is enough"


def test_leadership_passes_when_the_target_has_everything(leading) -> None:
    leader = leading()
    leader.node.step(Propose(1, b"\x91\x01", 1))
    assert leader.ask(TRANSFER) is None
    leader.node.flush()
    leader.fetch(3)
    assert leader.node.node.is_leader
    leader.fetch(2)
    answer = leader.answer_in(leader.node.effects)
    assert answer.error is ErrorCode.NONE
    assert leader.node.node.state_name == "resigned"
    ends = leader.node.sent(EndQuorumEpochRequest)
    assert [send.destination for send in ends] == [2, 3]
    assert [key.node_id for key in ends[0].request.preferred] == [2, 3]


def test_a_leader_that_has_made_way_writes_nothing_more(leading) -> None:
    """It does not even write its own endpoints: then its log would be longer than its successor's, which could not win."""
    leader = leading(commit=False, endpoints={"CONTROLLER": Endpoint("moved", 1)})
    assert leader.ask(TRANSFER) is None
    end_offset = leader.node.node.log_end_offset
    leader.fetch(2)
    assert leader.answer_in(leader.node.effects).error is ErrorCode.NONE
    assert leader.node.node.state_name == "resigned"
    assert leader.node.node.log_end_offset == end_offset


def test_the_target_stands_first_though_another_is_as_far(leading) -> None:
    leader = leading()
    leader.fetch(2)
    leader.fetch(3)
    assert leader.ask(TransferLeadershipRequest(-1, voter(3).key, 1_000)).error is ErrorCode.NONE
    assert [key.node_id for key in leader.node.sent(EndQuorumEpochRequest)[0].request.preferred] == [3, 2]


def test_a_static_target_stands_first_though_it_was_named_before_its_directory_was_known(driven) -> None:
    node = driven()
    node.win()
    node.flush()
    end_offset = node.node.log_end_offset
    node.request(9, TransferLeadershipRequest(-1, ReplicaKey(3), 1_000))
    for node_id in (2, 3):
        assert node.node.is_leader
        node.request(node_id, FetchRequest(1, voter(node_id).key, end_offset, 1, -1, 0, 1_000))
    assert [key.node_id for key in node.sent(EndQuorumEpochRequest)[0].request.preferred] == [3, 2]


def test_a_busy_leader_stops_taking_proposals_in_the_second_half_of_a_transfer(leading) -> None:
    leader = leading()
    leader.node.step(Propose(1, b"\x91\x01", 1))
    leader.ask(TRANSFER)
    leader.node.step(Propose(1, b"\x91\x01", 1), after_ms=499)
    assert leader.node.only(Proposed)
    leader.node.step(Propose(1, b"\x91\x01", 1), after_ms=1)
    assert leader.node.only(Rejected).overloaded
    leader.fetch(3)
    answer = leader.tick(500)
    assert (answer.error, "only up to offset 3 of 5" in answer.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    leader.node.step(Propose(1, b"\x91\x01", 1))
    assert leader.node.only(Proposed)


def test_leadership_is_not_given_to_a_voter_that_fell_silent(leading) -> None:
    leader = leading()
    leader.node.tick(500)
    leader.fetch(3)
    leader.node.tick(101)
    assert leader.ask(msgspec.structs.replace(TRANSFER, timeout_ms=200)) is None
    assert leader.node.node.is_leader
    assert "has not fetched for long" in leader.tick(200).message


def test_a_transfer_to_the_leader_itself_is_done_already(leading) -> None:
    leader = leading()
    assert leader.ask(TransferLeadershipRequest(-1, leader.node.config.key, 1_000)).error is ErrorCode.NONE
    assert leader.node.node.is_leader


@pytest.mark.parametrize("key", [voter(4).key, voter(2, disk=9).key])
def test_leadership_passes_to_voters_only(leading, key) -> None:
    assert leading().ask(TransferLeadershipRequest(-1, key, 1_000)).error is ErrorCode.VOTER_NOT_FOUND


def test_a_probe_is_answered_by_anybody_with_its_own_key(driven) -> None:
    node = driven(node_id=4, voters=(), dynamic=True)
    right = node.request(1, ProbeVoterRequest(3, voter(4).key))
    wrong = node.request(1, ProbeVoterRequest(3, voter(4, disk=5).key))
    assert (right.error, right.key, right.kraft_version_max) == (ErrorCode.NONE, voter(4).key, 1)
    assert (wrong.error, wrong.key) == (ErrorCode.INVALID_VOTER_KEY, voter(4).key)


def test_a_probe_of_a_deposed_leader_tells_it_so(driven) -> None:
    node = driven(election=ElectionState(5, 2, None), dynamic=True)
    answer = node.request(3, ProbeVoterRequest(4, voter(1).key))
    assert (answer.error, answer.leader) == (ErrorCode.FENCED_LEADER_EPOCH, LeaderView(5, 2))


@pytest.mark.parametrize("request_", [*ALL, ProbeVoterRequest(1, voter(1).key)], ids=repr)
def test_a_node_that_shuts_down_says_so(driven, request_) -> None:
    node = driven(dynamic=True)
    node.step(ShutdownAsked())
    assert node.request(9, request_).error is ErrorCode.BROKER_NOT_AVAILABLE


def test_check_quorum_counts_the_voters_of_the_moment(leading) -> None:
    leader = leading()
    leader.node.tick(800)
    leader.fetch(3)
    leader.ask(RemoveVoterRequest(-1, voter(2).key, 1_000))
    leader.node.tick(899)
    assert leader.node.node.is_leader
    leader.node.tick(1)
    assert leader.node.node.state_name == "resigned"


numbers = st.one_of(st.integers(-3, 8), st.sampled_from([2**31, 2**40, -(2**40)]))
keys = st.builds(ReplicaKey, numbers, st.sampled_from([bytes(16), b"", *(bytes([byte]) * 16 for byte in (1, 2, 3, 4))]))
voters = st.builds(Voter, keys, st.sampled_from([{}, {"CONTROLLER": Endpoint("host", 1)}]))
requests = st.one_of(
    st.builds(AddVoterRequest, numbers, voters, numbers),
    st.builds(RemoveVoterRequest, numbers, keys, numbers),
    st.builds(UpdateVoterRequest, numbers, voters),
    st.builds(TransferLeadershipRequest, numbers, keys, numbers),
    st.builds(ProbeVoterRequest, numbers, keys),
    st.builds(FetchRequest, st.just(1), keys, st.integers(0, 5), st.just(1), st.integers(-1, 5), st.just(0), st.just(100)),
)
views = st.builds(LeaderView, st.integers(-1, 1), numbers, st.just({}))
errors = st.sampled_from(list(ErrorCode))
responses = st.one_of(
    st.builds(ProbeVoterResponse, errors, views, keys, numbers),
    st.builds(VoterChangeResponse, errors, views, st.just("because")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(st.data())
def test_nothing_a_peer_says_about_voters_raises_and_every_request_has_one_answer(driven, data: st.DataObject) -> None:
    node = Leading(driven).node if data.draw(st.booleans()) else driven(dynamic=True, auto_join=True)
    in_flight, answers, asked = [], dict[int, int](), []
    for _ in range(data.draw(st.integers(1, 15))):
        what = data.draw(st.sampled_from(("request", "request", "answer", "tick", "flush")))
        if what == "answer" and in_flight:
            node.answer(in_flight.pop(), data.draw(responses))
        elif what == "request":
            request = data.draw(requests)
            node.request(2, request)
            asked.append(node.token)
        elif what == "flush":
            node.flush()
        else:
            node.tick(data.draw(st.integers(0, 400)))
        in_flight += node.sent(ProbeVoterRequest)
        for effect in node.effects:
            if isinstance(effect, Reply):
                answers[effect.correlation] = answers.get(effect.correlation, 0) + 1
    for effect in node.step(ShutdownAsked()):
        if isinstance(effect, Reply):
            answers[effect.correlation] = answers.get(effect.correlation, 0) + 1
    assert all(answers.get(token) == 1 for token in asked)
