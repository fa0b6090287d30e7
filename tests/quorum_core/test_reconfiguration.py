"""Changing who votes while the quorum runs: one at a time, never two that need not meet, and a way back from every accident."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.quorum.core import ElectionState, Endpoint, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from kraftlab.quorum.core.batch import LeaderChange, decode, decode_control
from kraftlab.quorum.core.effects import (
    Append,
    Effects,
    Proposed,
    ReadIndexReady,
    Rejected,
    Reply,
    Resigned,
    Send,
    VotersChanged,
)
from kraftlab.quorum.core.errors import ErrorCode
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


def add(host, timeout_ms: int = 5_000) -> AddVoterRequest:
    return AddVoterRequest(-1, host.as_voter(), timeout_ms)


def remove(host, timeout_ms: int = 5_000) -> RemoveVoterRequest:
    return RemoveVoterRequest(-1, host.config.key, timeout_ms)


def transfer(host, timeout_ms: int = 5_000) -> TransferLeadershipRequest:
    return TransferLeadershipRequest(-1, host.config.key, timeout_ms)


def agreed(world, *ids: int) -> bool:
    """Everybody that is up has these voters."""
    return all(host.node.voters.ids() == ids for host in world.up())


# A whole quorum


def test_the_first_leader_writes_the_bootstrap_voters_into_the_log(world) -> None:
    quorum = world((1, 2, 3), (9,), dynamic=True).start()
    quorum.settle()
    first = decode(quorum[9].batches[0])
    change, version, voters = decode_control(first.body)
    assert (change.voters, version.kraft_version, voters.voters.ids()) == ((1, 2, 3), 1, (1, 2, 3))
    assert all((host.node.voters_offset, host.node.kraft_version) == (2, 1) for host in quorum.up())
    quorum.leader().crash()
    quorum.settle()
    second = decode_control(decode(quorum.leader().batches[-1]).body)
    assert [type(record) for record in second] == [LeaderChange], "once is enough"


def test_an_observer_becomes_a_voter_and_counts(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    quorum.settle()
    assert quorum.change(add(quorum[4])).error is ErrorCode.NONE
    quorum.settle()
    assert agreed(quorum, 1, 2, 3, 4)
    leader = quorum.leader()
    assert [row.key.node_id for row in leader.node.voter_progress(quorum.now_ms)] == [1, 2, 3, 4]
    assert leader.node.observer_progress() == []
    for host in quorum.up():
        if host is not leader and host is not quorum[4]:
            host.crash()
            break
    leader.propose()
    quorum.settle()


def test_one_voter_becomes_two_and_both_are_needed(world) -> None:
    quorum = world((1,), (2,), dynamic=True).start()
    quorum.settle()
    assert quorum.change(add(quorum[2])).error is ErrorCode.NONE
    quorum.settle()
    assert agreed(quorum, 1, 2)
    quorum[2].crash()
    proposed = quorum[1].propose()
    quorum.run(500)
    assert quorum[1].node.high_watermark < proposed.end_offset
    quorum[2].start()
    quorum.settle()


def test_the_second_of_two_voters_must_have_the_record_before_it_is_committed(world) -> None:
    quorum = world((1,), (2,), dynamic=True).start()
    quorum.settle()
    quorum[2].stall_disk()
    token = quorum.ask(1, add(quorum[2]))
    quorum.run_until(lambda: quorum[1].node.voters.ids() == (1, 2)).run(300)
    assert token not in quorum.answers
    assert quorum[1].node.high_watermark <= quorum[1].node.voters_offset
    quorum[2].unstall_disk()
    quorum.run_until(lambda: token in quorum.answers)
    assert quorum.answers[token].error is ErrorCode.NONE


def test_a_parked_observer_hears_at_once_that_it_votes(world) -> None:
    quorum = world((1,), (2,), dynamic=True).start()
    quorum.settle().run(30)
    start_ms = quorum.now_ms
    assert quorum.change(add(quorum[2])).error is ErrorCode.NONE
    assert quorum.now_ms - start_ms < 12, "probe, append, flush, fetch"


def test_two_voters_become_one_which_goes_on_alone(world) -> None:
    quorum = world((1, 2), dynamic=True).start()
    leader = quorum.settle().leader()
    (other,) = [host for host in quorum.up() if host is not leader]
    other.crash()
    assert quorum.change(remove(other)).error is ErrorCode.NONE
    leader.propose()
    quorum.settle().run(5_000)
    assert (leader.node.is_leader, leader.node.epoch) == (True, 1), "no check-quorum for a sole voter"
    leader.crash()
    leader.start()
    start_ms = quorum.now_ms
    quorum.leader()
    assert quorum.now_ms - start_ms < 10, "a sole voter waits for nobody"


def test_the_leader_of_two_removes_itself_and_the_other_leads_alone(world) -> None:
    quorum = world((1, 2), dynamic=True).start()
    leader = quorum.settle().leader()
    (other,) = [host for host in quorum.up() if host is not leader]
    assert quorum.change(remove(leader)).error is ErrorCode.NONE
    quorum.run_until(lambda: other.node.is_leader)
    quorum.settle()
    assert agreed(quorum, other.config.node_id)
    assert leader.node.state_name == "follower"


def test_a_removed_leader_leads_until_the_record_is_committed_without_counting_itself(world) -> None:
    quorum = world((1, 2, 3), (9,), dynamic=True).start()
    leader = quorum.settle().leader()
    others = [host for host in quorum.up() if host is not leader and host.config.node_id != 9]
    token = quorum.ask(leader.config.node_id, remove(leader))
    others[0].crash()
    quorum.run(600)
    assert leader.node.is_leader
    assert not leader.node.is_voter
    assert token not in quorum.answers, "the one of two that is left is no majority"
    others[0].start()
    quorum.run_until(lambda: token in quorum.answers)
    assert quorum.answers[token].error is ErrorCode.NONE
    assert leader.seen(Resigned)[-1].reason == "no longer a voter"
    start_ms = quorum.now_ms
    assert quorum.leader() in others
    assert quorum.now_ms - start_ms < 30, "EndQuorumEpoch spares the others the wait"
    quorum.run(5_000).settle()
    assert quorum.leader().node.epoch == 2, "the former leader disturbs nobody"
    assert agreed(quorum, *(host.config.node_id for host in others))


def test_a_leader_outside_the_set_resigns_when_the_voters_are_gone(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    leader = quorum.settle().leader()
    token = quorum.ask(leader.config.node_id, remove(leader))
    for host in quorum.up():
        if host is not leader:
            host.crash()
    quorum.run_until(lambda: not leader.node.is_leader, 1_000)
    answer = quorum.answers[token]
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "may still be committed" in answer.message


def test_a_removed_follower_learns_of_it_and_pulls_on_as_an_observer(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    leader = quorum.settle().leader()
    gone = next(host for host in quorum.up() if host is not leader)
    assert quorum.change(remove(gone)).error is ErrorCode.NONE
    quorum.settle()
    assert (gone.node.is_voter, gone.node.state_name) == (False, "follower")
    assert [row.key for row in leader.node.observer_progress()] == [gone.config.key]
    leader.propose()
    quorum.settle().run(3_000)
    assert not [send for send in gone.seen(Send) if isinstance(send.request, VoteRequest) and send.request.epoch > 1]


def test_a_voter_removed_while_it_was_away_disturbs_nobody_and_comes_to_know(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    leader = quorum.settle().leader()
    gone = next(host for host in quorum.up() if host is not leader)
    quorum.cut(gone.config.node_id)
    assert quorum.change(remove(gone)).error is ErrorCode.NONE
    quorum.run(3_000)
    quorum.heal()
    quorum.run_until(lambda: not gone.node.is_voter)
    quorum.settle()
    assert (leader.node.is_leader, leader.node.epoch) == (True, 1)


def test_a_wiped_disk_is_an_observer_until_it_is_replaced_in_two_changes(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    leader = quorum.settle().leader()
    host = next(host for host in quorum.up() if host is not leader)
    node_id, former = host.config.node_id, host.config.key
    host.crash()
    host.wipe()
    host.start()
    quorum.settle()
    assert not host.node.is_voter
    rows = {row.key: row for row in leader.node.voter_progress(quorum.now_ms)}
    assert former in rows, "the old disk stays a voter until it is removed"
    assert [row.key for row in leader.node.observer_progress()] == [host.config.key]
    refused = quorum.change(add(host))
    assert refused.error is ErrorCode.DUPLICATE_VOTER
    assert "remove the voter first" in refused.message
    assert quorum.change(RemoveVoterRequest(-1, former, 1_000)).error is ErrorCode.NONE
    assert quorum.change(add(host)).error is ErrorCode.NONE
    quorum.settle()
    assert agreed(quorum, 1, 2, 3)
    assert leader.node.voters.get(node_id).key == host.config.key


def test_a_wiped_disk_acknowledges_nothing_in_its_predecessors_name(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    leader = quorum.settle().leader()
    wiped, other = [host for host in quorum.up() if host is not leader]
    other.crash()
    wiped.crash()
    wiped.wipe()
    wiped.start()
    proposed = leader.propose()
    quorum.run(500)
    assert wiped.node.log_end_offset >= 3
    assert leader.node.high_watermark < proposed.end_offset


def test_joining_by_itself_replaces_a_wiped_disk(world) -> None:
    quorum = world((1, 2, 3), dynamic=True, auto_join=True).start()
    leader = quorum.settle().leader()
    host = next(host for host in quorum.up() if host is not leader)
    host.crash()
    host.wipe()
    host.start()
    quorum.run_until(lambda: host.node.is_voter, 4_000)
    quorum.settle()
    assert leader.node.voters.get(host.config.node_id).key == host.config.key
    assert (leader.node.is_leader, leader.node.epoch) == (True, 1)


def test_several_that_join_by_themselves_all_get_in(world) -> None:
    quorum = world((1,), (2, 3, 4, 5), dynamic=True, auto_join=True).start()
    quorum.run_until(lambda: quorum[1].node.voters.ids() == (1, 2, 3, 4, 5), 30_000)
    quorum.settle()
    assert agreed(quorum, 1, 2, 3, 4, 5)


def test_observers_that_are_not_told_to_do_not_join(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    quorum.settle().run(6_000).settle()
    assert agreed(quorum, 1, 2, 3)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_voter_that_moved_has_its_endpoints_updated(world, is_leader) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    quorum.settle()
    host = next(host for host in quorum.up() if host.node.is_leader == is_leader)
    moved = {"CONTROLLER": Endpoint("elsewhere", 1)}
    for _ in range(3 if is_leader else 1):
        host.crash()
        host.config = msgspec.structs.replace(host.config, endpoints=moved)
        host.start()
    if is_leader:
        quorum.settle()
        quorum.change(transfer(host))
        quorum.run_until(lambda: host.node.is_leader)
    quorum.settle()
    quorum.run_until(lambda: all(h.node.voters.get(host.config.node_id).endpoints == moved for h in quorum.up()))
    quorum.settle()
    assert quorum.leader().node.endpoints_of(host.config.node_id) == moved
    assert not host.node._quorum.membership.has_moved


def test_leadership_is_transferred(world) -> None:
    quorum = world((1, 2, 3), dynamic=True, seed=3).start()
    leader = quorum.settle().leader()
    for target in [host for host in quorum.up() if host is not leader]:
        start_ms = quorum.now_ms
        assert quorum.change(transfer(target)).error is ErrorCode.NONE
        quorum.run_until(lambda target=target: target.node.is_leader)
        assert quorum.now_ms - start_ms < 30
        quorum.settle()


def test_leadership_of_static_voters_can_be_transferred_too(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader = quorum.settle().leader()
    target = next(host for host in quorum.up() if host is not leader)
    assert quorum.change(transfer(target)).error is ErrorCode.NONE
    quorum.run_until(lambda: target.node.is_leader)


def test_replacing_the_leader_in_two_steps(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    leader = quorum.settle().leader()
    assert quorum.change(add(quorum[4])).error is ErrorCode.NONE
    assert quorum.change(remove(leader)).error is ErrorCode.NONE
    quorum.settle()
    assert agreed(quorum, *sorted({1, 2, 3, 4} - {leader.config.node_id}))


def test_two_leaders_can_not_both_change_the_set_they_found(world) -> None:
    """Ongaro's bug: each of two leaders would change the last committed set by one voter, and their majorities need not meet."""
    quorum = world((1, 2, 3, 4), (5,), dynamic=True).start()
    first = quorum.settle().leader()
    first_id = first.config.node_id
    quorum.run_until(first.node.observer_progress)
    quorum.cut(first_id, 5)
    token = quorum.ask(first_id, add(quorum[5]))
    quorum.run_until(lambda: first.node.voters.ids() == (1, 2, 3, 4, 5))
    quorum.run_until(lambda: any(h.node.is_leader for h in quorum.up() if h is not first))
    second = next(h for h in quorum.up() if h.node.is_leader and h is not first)
    third = next(h for h in quorum.up() if h not in (first, second, quorum[5]))
    early = second.node.leader_high_watermark < 0
    refused = quorum.ask(second.config.node_id, remove(third))
    assert early
    quorum.run_until(lambda: refused in quorum.answers)
    assert quorum.answers[refused].error is ErrorCode.REQUEST_TIMED_OUT
    assert "has not committed anything" in quorum.answers[refused].message
    quorum.run_until(lambda: second.node.leader_high_watermark >= 0)
    assert quorum.change(remove(third)).error is ErrorCode.NONE
    quorum.heal()
    quorum.settle()
    assert quorum.answers[token].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert agreed(quorum, *sorted({1, 2, 3, 4} - {third.config.node_id}))


def test_a_change_that_is_truncated_is_undone_everywhere(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    leader = quorum.settle().leader()
    quorum.cut(leader.config.node_id, 4)
    token = quorum.ask(leader.config.node_id, add(quorum[4]))
    quorum.run_until(lambda: quorum[4].node.is_voter)
    quorum.run_until(lambda: token in quorum.answers)
    assert quorum.answers[token].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "may still be committed" in quorum.answers[token].message
    quorum.heal()
    quorum.run_until(lambda: agreed(quorum, 1, 2, 3)).settle()
    assert quorum[4].seen(VotersChanged)[-1].voters.ids() == (1, 2, 3)
    assert quorum.change(add(quorum[4])).error is ErrorCode.NONE


def test_a_change_outlives_the_leader_that_began_it(world) -> None:
    """The record has reached one follower; the leader is gone for good; the next one commits it with a record of its own."""
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    leader = quorum.settle().leader()
    token = quorum.ask(leader.config.node_id, add(quorum[4]))
    quorum.run_until(lambda: any(h.node.voters.ids() == (1, 2, 3, 4) for h in quorum.up() if h is not leader))
    leader.crash()
    quorum.settle()
    assert agreed(quorum, 1, 2, 3, 4)
    assert token not in quorum.answers


def test_every_node_finds_the_same_voters_after_a_restart(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    quorum.settle()
    quorum.change(add(quorum[4]))
    quorum.change(remove(next(host for host in quorum.up() if not host.node.is_leader)))
    quorum.settle()
    ids = quorum.leader().node.voters.ids()
    for host in quorum.up():
        host.crash()
    quorum.start()
    assert agreed(quorum, *ids)
    quorum.settle()


def test_a_node_that_was_formatted_without_voters_finds_them_in_the_log(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start(1, 2, 3)
    quorum.settle()
    quorum[4].start()
    assert quorum[4].node.voters == VoterSet(())
    quorum.settle()
    assert agreed(quorum, 1, 2, 3)


def test_adding_a_node_that_is_behind_waits_until_it_has_caught_up(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True, fetch_max_bytes=100).start(1, 2, 3)
    leader = quorum.settle().leader()
    quorum[4].start()
    quorum.settle()
    quorum[4].stall_disk()
    for _ in range(5):
        leader.propose()
    quorum.run(700)
    token = quorum.ask(leader.config.node_id, add(quorum[4], 5_000))
    quorum.run(300)
    assert leader.node.voters.ids() == (1, 2, 3)
    assert token not in quorum.answers
    quorum[4].unstall_disk()
    quorum.run_until(lambda: token in quorum.answers)
    assert quorum.answers[token].error is ErrorCode.NONE


def test_a_node_that_is_added_may_start_after_it_was_asked_for(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start(1, 2, 3)
    leader = quorum.settle().leader()
    token = quorum.ask(leader.config.node_id, add(quorum[4], 5_000))
    quorum.run(500)
    assert leader.node.endpoints_of(4) == quorum[4].config.endpoints, "the shell must know where to probe"
    quorum[4].start()
    quorum.run_until(lambda: token in quorum.answers)
    assert quorum.answers[token].error is ErrorCode.NONE


def test_the_second_change_waits_for_the_first(world) -> None:
    quorum = world((1, 2, 3), (4, 5), dynamic=True).start(1, 2, 3, 5)
    leader = quorum.settle().leader()
    quorum.ask(leader.config.node_id, add(quorum[4], 300))
    refused = quorum.change(add(quorum[5]))
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    assert refused.message == "another change is under way, AddVoter(n4): ask again later"
    quorum.run(301)
    assert quorum.change(add(quorum[5])).error is ErrorCode.NONE


def test_who_does_not_lead_says_who_does(world) -> None:
    quorum = world((1, 2, 3), (4,), dynamic=True).start()
    leader = quorum.settle().leader()
    token = quorum.ask(4, add(quorum[4]))
    answer = quorum.answers[token]
    assert (answer.error, answer.leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.config.node_id)
    assert answer.message == f"node 4 does not lead; node {leader.config.node_id} leads epoch 1: ask it"


def test_linearizable_reads_are_confirmed_by_the_voters_of_the_moment(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    leader = quorum.settle().leader()
    others = [host for host in quorum.up() if host is not leader]
    for host in others:
        host.crash()
    leader.step(ReadIndexAsked(7))
    quorum.run(50)
    assert not leader.seen(ReadIndexReady)
    quorum.ask(leader.config.node_id, remove(others[0], 100))
    quorum.run(50)
    assert not leader.seen(ReadIndexReady), "one of two is no majority"
    others[1].start()
    quorum.run_until(lambda: leader.seen(ReadIndexReady))
    assert leader.seen(ReadIndexReady)[0].token == 7


# A leader's node, driven by hand


def voter(node_id: int, disk: int = 0) -> Voter:
    return Voter(ReplicaKey(node_id, bytes([node_id + disk]) * 16), {"CONTROLLER": Endpoint(f"host{node_id}", 9093)})


class Leading:
    """Node 1 leads 1, 2, 3 with a committed epoch; node 4 is an observer."""

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
        """The answer, if there was one at once."""
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
    """`leading()`; `commit=False`: nothing of the epoch is committed."""

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
    """Each request fails at the first gate that is closed, whatever is behind it."""
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
    """Node 3 has not fetched: without node 2, nobody could commit anything any more, this removal included."""
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


def test_who_copies_a_snapshot_to_repair_its_log_is_said_to_repair_it(leading) -> None:
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


def test_a_time_out_does_not_take_back_what_is_appended(leading) -> None:
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
def test_the_end_of_a_leadership_answers_what_is_under_way(leading, request_, end) -> None:
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


def test_who_hangs_up_drops_a_change_that_has_not_begun_and_no_other(leading) -> None:
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


def test_an_update_keeps_what_is_known_of_the_voter(leading) -> None:
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


def test_who_has_made_way_writes_nothing_any_more(leading) -> None:
    """Not even its own endpoints: its log would be longer than that of the one it makes way for, which then cannot win."""
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
