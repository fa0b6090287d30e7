"""Repair of a log that rot has damaged: the end of the repair, and everything that a node must not do before it."""

import random

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import ElectionState, LogTruncationRefused, OffsetAndEpoch, Voter
from kraftlab.quorum.core.effects import Apply, InstallSnapshot, RepairEnded, StoreElectionState
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
    """A driven node 1 with the rest of a log that had reached `until`."""
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


def test_a_vote_given_before_is_not_given_again(driven, key_of) -> None:
    """The candidate may lead already; a node in repair must not confirm that."""
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
    """Its log can be older than the other voters, so it asks the bootstrap endpoints."""
    node = repairing(driven, voters=(1,))
    node.tick()
    node.tick(20)
    assert node.node.state_name == "unattached"
    assert [send.destination for send in node.sent(FetchRequest)] == [-1]


def test_a_node_in_repair_acknowledges_only_its_log_and_knows_that_as_committed(driven, key_of) -> None:
    node = following(driven, key_of)
    assert (node.fetch.request.fetch_offset, node.fetch.request.last_fetched_epoch) == (10, 1)
    assert node.node.is_repairing


def test_a_high_watermark_above_the_own_end_commits_the_whole_log(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    answer(node, batches_of(((1, 5),), 10, node.node.log.last_crc)[0], high_watermark=100)
    assert node.only(Apply) == Apply(15)


def test_a_stamp_above_the_own_end_means_that_all_of_it_is_committed(driven) -> None:
    plain = driven(log=((1, 10),))
    view = plain.node.log
    view.high_watermark_stamp = 25
    node = type(plain.node)(plain.config, view, None, random.Random(0), 0, BootState(repair_until=30))
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
    node.step(StorageCompleted(node.node.local_log.flushes.last_id))
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


def test_a_leader_without_the_rest_of_the_log_is_refused(driven, key_of) -> None:
    node = following(driven, key_of, log=((1, 10), (3, 5)), until=30)
    node.node.local_log.commit(15)
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
    node.node.local_log.commit(10)
    assert node.node.snapshot_context(10, cluster_id="c", generation=0, append_time_ms=0) is None


def test_a_leadership_from_before_the_damage_is_neither_resumed_nor_opened_again(driven) -> None:
    node = repairing(driven, election=ElectionState(4, 1, None))
    node.tick()
    assert (node.node.state_name, node.node.epoch) == ("unattached", 5)
    assert node.only(StoreElectionState).state.epoch == 5


# Stories


def test_a_crash_in_the_middle_of_a_repair_goes_on_with_it(quorum) -> None:
    for deliveries in range(1, 12):
        nodes = quorum(3, fetch_max_bytes=100)
        leader_id = nodes.settle()
        nodes.propose(leader_id, 20)
        nodes.settle()
        nodes.crash(3)
        nodes.host(3).rot(6)
        nodes.start(3)
        nodes.run_deliveries(deliveries)
        nodes.crash(3)
        nodes.start(3)
        nodes.settle()
        assert not nodes.host(3).node.is_repairing
        assert nodes.host(3).disk == nodes.host(leader_id).disk


def with_a_lost_tail(quorum, records=20):
    """Node 1 has led, and has lost committed records and some that only it had: its repair needs as many records. The others have
    elected node 2, and node 1 has node 2's whole log by now.
    """
    nodes = quorum(3, dynamic=True)
    assert nodes.settle() == 1
    nodes.crash(2)
    nodes.crash(3)
    nodes.propose(1, records)
    nodes.crash(1)
    nodes.host(1).rot(1)
    nodes.start(2)
    nodes.start(3)
    nodes.leader()
    nodes.start(1)
    assert nodes.settle() == 2
    assert nodes.host(1).node.is_repairing
    return nodes


@pytest.mark.parametrize("removed", [2, 3], ids=["the leader", "the other"])
def test_a_voter_is_not_removed_if_a_repair_would_then_prevent_elections(quorum, key_of, removed) -> None:
    """Voters {1,2,3} elect a leader while one of them repairs. Two voters must both vote, and a repairing node does not."""
    nodes = with_a_lost_tail(quorum)
    request = RemoveVoterRequest(-1, key_of(removed), 1_000)
    refused = nodes.change(request)
    nodes.crash(2)
    nodes.start(2)
    assert nodes.leader().node.voters.ids() == (1, 2, 3)
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    assert "[1] do not vote until they have repaired their logs" in refused.message
    while nodes.host(1).node.is_repairing:
        nodes.propose(nodes.settle())
    nodes.run(300)
    assert nodes.change(request).error is ErrorCode.NONE, "whole again, it votes"


def test_a_node_in_repair_can_be_removed(quorum, key_of) -> None:
    assert with_a_lost_tail(quorum).change(RemoveVoterRequest(-1, key_of(1), 1_000)).error is ErrorCode.NONE


def test_a_node_in_repair_does_not_get_the_leadership(quorum, key_of) -> None:
    """The target could not lead, and the leader would be gone for nothing."""
    nodes = with_a_lost_tail(quorum)
    answer = nodes.change(TransferLeadershipRequest(-1, key_of(1), 1_000))
    assert (answer.error, nodes.host(2).node.is_leader) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert answer.message == "node 1 repairs its log and does not vote until it is whole: ask again then"


def test_a_node_in_repair_is_not_added(quorum, key_of) -> None:
    """One of two voters does not vote, so no leader is elected."""
    nodes = with_a_lost_tail(quorum)
    for gone in (1, 3):
        assert nodes.change(RemoveVoterRequest(-1, key_of(gone), 1_000)).error is ErrorCode.NONE
    answer = nodes.change(AddVoterRequest(-1, Voter(key_of(1), {}), 1_000))
    assert (answer.error, "repairs its log" in answer.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert nodes.host(2).node.voters.ids() == (2,)


def test_a_fetch_of_a_snapshot_tells_the_leader_of_a_repair(driven, key_of) -> None:
    node = following(driven, key_of, log=(), until=30)
    outcome = SnapshotRequired(SNAPSHOT.offset, SNAPSHOT.epoch)
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 50, 0, outcome))
    node.step(SnapshotChunkStored(SNAPSHOT, 0))
    assert node.fetch.request.is_repairing
    assert node.sent(FetchSnapshotRequest)[0].request.is_repairing
