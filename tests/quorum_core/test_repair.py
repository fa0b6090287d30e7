"""Repair of a log that rot has damaged: what the node must not do until it has everything again, and when that is."""

import pytest

from kraftlab.quorum.core import ElectionState, LogTruncationRefused, OffsetAndEpoch
from kraftlab.quorum.core.effects import Apply, InstallSnapshot, RepairEnded, StoreElectionState
from kraftlab.quorum.core.errors import ErrorCode
from kraftlab.quorum.core.events import (
    RequestFailed,
    SnapshotChunkStored,
    SnapshotVerified,
    StorageCompleted,
)
from kraftlab.quorum.core.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    Diverging,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    Records,
    RemoveVoterRequest,
    SnapshotRequired,
    TransferLeadershipRequest,
    VoteRequest,
)
from kraftlab.quorum.core.raft_config import BootState

SNAPSHOT = OffsetAndEpoch(50, 3)


def repairing(driven, until=30, log=((1, 10),), **options):
    """Node 1 has what its disk kept, and had known its log to reach to `until`."""
    return driven(log=log, boot=BootState(repair_until=until), **options)


def following(driven, key_of, **options):
    node = repairing(driven, **options)
    node.tick()
    node.request(2, BeginQuorumEpochRequest(5, 2, key_of(1), {}))
    node.fetch = node.sent(FetchRequest)[0]
    return node


def answer(node, data=b"", high_watermark=-1):
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), high_watermark, 0, 0, Records(data)))
    node.fetch = next(iter(node.sent(FetchRequest)), None)


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("end_offset", [10, 1000])
def test_no_vote_and_no_pre_vote_is_granted_however_long_the_candidates_log(driven, key_of, pre_vote, end_offset) -> None:
    node = repairing(driven)
    node.tick()
    response = node.request(2, VoteRequest(7, key_of(2), key_of(1), 6, end_offset, pre_vote))
    assert (response.error, response.granted, response.leader.epoch) == (ErrorCode.NONE, False, 7)
    assert node.node.election.voted_key is None


def test_a_vote_given_before_is_not_given_again(driven, key_of) -> None:
    """The candidate may have it already; it is not for this node to confirm."""
    node = repairing(driven, election=ElectionState(7, -1, key_of(2)))
    node.tick()
    assert not node.request(2, VoteRequest(7, key_of(2), key_of(1), 6, 1000, pre_vote=False)).granted


@pytest.mark.parametrize("election", [None, ElectionState(4, -1, None), ElectionState(4, 1, None), ElectionState(4, 2, None)])
def test_it_never_stands_for_election_and_looks_for_a_leader_instead(driven, election) -> None:
    node = repairing(driven, election=election)
    asked = 0
    for _ in range(100):
        node.now_ms = max(node.now_ms, node.node.next_deadline_ms())
        node.tick()
        for send in node.sent(FetchRequest):
            asked += 1
            node.step(RequestFailed(send.correlation, send.destination), after_ms=10)
        assert node.sent(VoteRequest) == []
        assert node.node.state_name in ("unattached", "follower")
    assert asked > 20


@pytest.mark.parametrize("how", ["fetch timeout", "refused", "end of the epoch"])
def test_when_its_leader_is_gone_it_looks_for_another(driven, key_of, how) -> None:
    node = following(driven, key_of)
    if how == "refused":
        node.step(RequestFailed(node.fetch.correlation, 2, refused=True))
    elif how == "end of the epoch":
        node.request(2, EndQuorumEpochRequest(5, 2, (key_of(1), key_of(3))))
    node.now_ms = max(node.now_ms, node.node.state.next_deadline_ms())
    node.tick()
    assert node.node.state_name == "unattached"
    assert node.node.epoch == 5


def test_a_sole_voters_log_under_repair_leads_nobody(driven) -> None:
    """Its log may be from before the others were added: it asks the bootstrap endpoints."""
    node = repairing(driven, voters=(1,))
    node.tick()
    node.tick(20)
    assert node.node.state_name == "unattached"
    assert [send.destination for send in node.sent(FetchRequest)] == [-1]


def test_it_acknowledges_only_what_it_has_and_knows_that_to_be_committed(driven, key_of) -> None:
    node = following(driven, key_of)
    assert (node.fetch.request.fetch_offset, node.fetch.request.last_fetched_epoch) == (10, 1)
    assert node.node.is_repairing


def test_a_high_watermark_above_the_own_end_commits_what_there_is(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    answer(node, batches_of(((1, 5),), 10, node.node.log.last_crc)[0], high_watermark=100)
    assert node.only(Apply) == Apply(15)


def test_a_stamp_above_the_own_end_means_that_all_of_it_is_committed(driven) -> None:
    plain = driven(log=((1, 10),))
    view = plain.node.log
    view.high_watermark_stamp = 25
    node = type(plain.node)(plain.config, view, None, plain.node._quorum._random, 0, BootState(repair_until=30))
    assert node.high_watermark == 10


def test_the_repair_ends_once_when_everything_is_durable_again(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    first, second = batches_of(((1, 15), (2, 10)), 10, node.node.log.last_crc)
    answer(node, first)
    node.flush()
    assert node.all(RepairEnded) == []
    answer(node, second)
    assert node.node.log_end_offset == 35
    assert node.all(RepairEnded) == []
    assert node.node.is_repairing
    node.step(StorageCompleted(node.node._log.flushes.last_id))
    assert node.all(RepairEnded) == [RepairEnded()]
    assert not node.node.is_repairing
    answer(node, batches_of(((2, 5),), 35, node.node.log.last_crc)[0])
    node.flush()
    assert node.all(RepairEnded) == []


def test_after_the_repair_it_votes_and_stands_like_any_other(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    answer(node, batches_of(((1, 20),), 10, node.node.log.last_crc)[0])
    node.flush()
    assert node.request(3, VoteRequest(6, key_of(3), key_of(1), 5, 40, pre_vote=False)).granted
    assert node.node.state_name == "unattached"
    node.now_ms += 600
    node.tick()
    assert node.node.state_name == "prospective"


def test_a_repair_that_ends_without_a_leader_starts_the_election_timer(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    answer(node, batches_of(((1, 20),), 10, node.node.log.last_crc)[0])
    node.request(3, VoteRequest(6, key_of(3), key_of(1), 0, 0, pre_vote=False))
    assert node.node.state_name == "unattached"
    node.tick(5000)
    assert node.node.state_name == "unattached"
    node.flush()
    assert node.all(RepairEnded) == [RepairEnded()]
    node.tick(599)
    assert node.node.state_name == "prospective"


def test_a_repair_that_was_complete_before_the_restart_ends_at_boot(driven) -> None:
    node = repairing(driven, until=10)
    assert node.tick() and node.all(RepairEnded) == [RepairEnded()]
    assert not node.node.is_repairing
    node.tick_until("prospective")


def test_a_leader_that_lacks_what_is_left_is_refused(driven, key_of) -> None:
    node = following(driven, key_of, log=((1, 10), (3, 5)), until=30)
    node.node._log.commit(15)
    with pytest.raises(LogTruncationRefused, match="knows everything below offset 15 as committed"):
        node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 0, 0, Diverging(1, 10)))


def test_a_snapshot_beyond_the_damage_ends_the_repair_when_it_is_durable(driven, key_of) -> None:
    node = following(driven, key_of, log=(), until=30)
    outcome = SnapshotRequired(SNAPSHOT.offset, SNAPSHOT.epoch)
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 50, 0, outcome))
    node.step(SnapshotChunkStored(SNAPSHOT, 0))
    ask = node.sent(FetchSnapshotRequest)[0]
    node.answer(ask, FetchSnapshotResponse(ErrorCode.NONE, LeaderView(5, 2), SNAPSHOT, 9, 0, bytes(9)))
    node.step(SnapshotChunkStored(SNAPSHOT, 9))
    node.step(SnapshotVerified(SNAPSHOT, 7, ()))
    assert node.all(RepairEnded) == []
    node.step(StorageCompleted(node.only(InstallSnapshot).append_id))
    assert node.all(RepairEnded) == [RepairEnded()]


def test_no_snapshot_is_made_of_a_log_under_repair(driven) -> None:
    node = repairing(driven)
    node.node._log.commit(10)
    assert node.node.snapshot_context(10, cluster_id="c", generation=0, append_time_ms=0) is None


def test_a_leadership_of_before_the_damage_is_not_resumed_or_opened_anew(driven) -> None:
    node = repairing(driven, election=ElectionState(4, 1, None))
    node.tick()
    assert (node.node.state_name, node.node.epoch) == ("unattached", 5)
    assert node.only(StoreElectionState).state.epoch == 5


# Stories


def rotten(quorum, count=20, offset=6):
    """A follower that is down and has lost everything from `offset` on, which all others have."""
    leader = quorum.leader()
    for _ in range(count):
        leader.propose()
    quorum.settle()
    victim = next(host for host in quorum.up() if host is not leader)
    victim.crash()
    victim.rot(offset)
    return leader, victim


def test_a_rotten_follower_comes_back_with_everything(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader, victim = rotten(quorum)
    victim.start()
    assert victim.node.is_repairing
    quorum.settle()
    quorum.run(5)
    assert len(victim.seen(RepairEnded)) == 1
    assert not victim.node.is_repairing
    assert victim.disk == leader.disk


def test_nothing_committed_is_lost_although_the_rotten_one_was_of_the_majority(world) -> None:
    """2 leads, 3 is away and misses the end of the log; 2 and 1 commit it, 1 loses it: 3 and 1 must not elect 3."""
    quorum = world((1, 2, 3)).start()
    leader = quorum.leader()
    witness, away = (host for host in quorum.up() if host is not leader)
    away.crash()
    for _ in range(10):
        leader.propose()
    quorum.settle()
    committed = leader.node.high_watermark
    leader.crash()
    witness.crash()
    witness.rot(3)
    witness.start()
    away.start()
    quorum.run(10_000)
    assert not any(host.node.is_leader for host in quorum.up())
    assert witness.node.is_repairing
    leader.start()
    quorum.settle()
    assert quorum.leader().node.log_end_offset > committed
    assert not witness.node.is_repairing


def test_a_crash_in_the_middle_of_a_repair_goes_on_with_it(world) -> None:
    for delay_ms in range(1, 12):
        quorum = world((1, 2, 3), fetch_max_bytes=100).start()
        leader, victim = rotten(quorum)
        victim.start()
        quorum.run(delay_ms)
        victim.crash()
        victim.start()
        quorum.settle()
        quorum.run(5)
        assert not victim.node.is_repairing
        assert victim.disk == leader.disk


def test_a_rotten_follower_behind_the_cleaned_log_comes_back_by_snapshot(world) -> None:
    quorum = world((1, 2, 3)).start()
    leader, victim = rotten(quorum)
    leader.propose()
    quorum.settle()
    leader.take_snapshot(padding=2000)
    victim.start()
    quorum.settle()
    quorum.run(5)
    assert len(victim.seen(InstallSnapshot)) == 1
    assert not victim.node.is_repairing


def with_a_lost_tail(quorum, records=20):
    """Who led before has lost committed records and some of its own that nobody else has: its repair waits for as many. The
    others have elected one of themselves, whose whole log it has by now.
    """
    former = quorum.settle().leader()
    others = [host for host in quorum.up() if host is not former]
    for host in others:
        host.crash()
    for _ in range(records):
        former.propose()
    quorum.run(20)
    former.crash()
    former.rot(1)
    quorum.start(*(host.config.node_id for host in others))
    leader = quorum.leader()
    former.start()
    quorum.settle()
    assert former.node.is_repairing
    return former, leader, next(host for host in others if host is not leader)


@pytest.mark.parametrize("is_leader_removed", [False, True])
def test_no_voter_is_removed_without_whom_a_repair_would_forbid_elections(world, is_leader_removed) -> None:
    """{1,2,3} elects a leader while one of them repairs; of two, both must vote, and who repairs does not before there is one."""
    quorum = world((1, 2, 3), dynamic=True).start()
    former, leader, third = with_a_lost_tail(quorum)
    request = RemoveVoterRequest(-1, (leader if is_leader_removed else third).config.key, 1_000)
    refused = quorum.change(request)
    leader.crash()
    leader.start()
    assert quorum.leader().node.voters.ids() == (1, 2, 3)
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    assert "[1] do not vote until they have repaired their logs" in refused.message
    while former.node.is_repairing:
        quorum.leader().propose()
        quorum.settle()
        quorum.run(5)
    assert quorum.change(request).error is ErrorCode.NONE, "whole again, it votes"


def test_who_repairs_may_be_removed_itself(world) -> None:
    quorum = world((1, 2, 3), dynamic=True).start()
    former, *_ = with_a_lost_tail(quorum)
    assert quorum.change(RemoveVoterRequest(-1, former.config.key, 1_000)).error is ErrorCode.NONE


def test_who_repairs_is_not_handed_the_leadership(world) -> None:
    """It could not take it: the leader would be gone for nothing."""
    quorum = world((1, 2, 3), dynamic=True).start()
    former, leader, _ = with_a_lost_tail(quorum)
    answer = quorum.change(TransferLeadershipRequest(-1, former.config.key, 1_000))
    assert (answer.error, leader.node.is_leader) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert answer.message == "node 1 repairs its log and does not vote until it is whole: ask again then"


def test_who_repairs_is_not_added(world) -> None:
    """Two voters of whom one does not vote elect nobody."""
    quorum = world((1, 2, 3), dynamic=True).start()
    former, leader, third = with_a_lost_tail(quorum)
    for gone in (former, third):
        assert quorum.change(RemoveVoterRequest(-1, gone.config.key, 1_000)).error is ErrorCode.NONE
    answer = quorum.change(AddVoterRequest(-1, former.as_voter(), 1_000))
    assert (answer.error, "repairs its log" in answer.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert leader.node.voters.ids() == (leader.config.node_id,)


def test_the_leader_hears_of_a_repair_from_who_copies_its_snapshot_alone(driven, key_of) -> None:
    node = following(driven, key_of, log=(), until=30)
    outcome = SnapshotRequired(SNAPSHOT.offset, SNAPSHOT.epoch)
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 50, 0, outcome))
    node.step(SnapshotChunkStored(SNAPSHOT, 0))
    assert node.fetch.request.is_repairing
    assert node.sent(FetchSnapshotRequest)[0].request.is_repairing
