"""Snapshots (KIP-630): when they are taken, which followers need one, how a copy is made, and the log that it replaces."""

import pytest

from kraftlab.common.errors import ErrorCode, InvariantViolation
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import ElectionState, LogTruncationRefused, OffsetAndEpoch
from kraftlab.quorum.core.batch import KRaftVersion, KRaftVoters, SnapshotHeader
from kraftlab.quorum.core.effects import (
    Apply,
    CleanLog,
    InstallSnapshot,
    OpenSnapshot,
    ReadLog,
    ReadSnapshot,
    Reply,
    RewriteSnapshot,
    StoreSnapshotChunk,
    Trace,
    VerifySnapshot,
    VotersChanged,
)
from kraftlab.quorum.core.events import (
    RecordsRead,
    RequestFailed,
    SnapshotChunkStored,
    SnapshotRead,
    SnapshotRefused,
    SnapshotTaken,
    SnapshotVerified,
    StorageCompleted,
)
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    Diverging,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    Records,
    SnapshotRequired,
    VoteRequest,
)
from kraftlab.quorum.core.raft_config import BootState
from kraftlab.quorum.core.types import NEVER_MS, Voter, VoterSet

from .test_replication import following

START = OffsetAndEpoch(100, 2)
SNAPSHOT = OffsetAndEpoch(50, 3)


def voter(node_id) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


def fetch(key, epoch, offset, last_epoch, max_wait_ms=0) -> FetchRequest:
    return FetchRequest(epoch, key, offset, last_epoch, -1, max_wait_ms, 1 << 20)


def fetch_snapshot(key, epoch, snapshot=START, position=0, max_bytes=1000) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(epoch, key, snapshot, position, max_bytes)


def leading(driven, **options):
    """Let node 1 lead epoch 5 with a log [100..116): ten records of epoch 3, five of 4, and its own first record."""
    node = driven(log=((3, 10), (4, 5)), start=START, **options)
    node.win()
    assert (node.node.epoch, node.node.log_end_offset) == (5, 116)
    return node


def offer(node, snapshot=SNAPSHOT, epoch=5):
    """Answer the fetch: a snapshot is needed."""
    outcome = SnapshotRequired(snapshot.offset, snapshot.epoch)
    return node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(epoch, 2), -1, snapshot.offset, 0, outcome))


def copying(driven, key_of, snapshot=SNAPSHOT, **options):
    """Let node 1 ask node 2 for the first bytes of `snapshot`; `ask` is that request."""
    node = following(driven, key_of, **options)
    offer(node, snapshot)
    node.step(SnapshotChunkStored(snapshot, 0))
    node.ask = node.sent(FetchSnapshotRequest)[0]
    return node


def answer(node, data=b"", size=30, error=ErrorCode.NONE, **changes):
    """Answer the current FetchSnapshot."""
    request = node.ask.request
    said = {"snapshot": request.snapshot, "size_bytes": size, "position": request.position, "data": data, **changes}
    return node.answer(node.ask, FetchSnapshotResponse(error=error, leader=LeaderView(5, 2), **said))


def stored(node, position, snapshot=SNAPSHOT):
    """Complete the disk's write; `ask` is the next request, if there is one."""
    node.step(SnapshotChunkStored(snapshot, position))
    node.ask = next(iter(node.sent(FetchSnapshotRequest)), None)
    return node.ask.request if node.ask else None


def verifying(driven, key_of, snapshot=SNAPSHOT, **options):
    node = copying(driven, key_of, snapshot, **options)
    answer(node, bytes(30))
    assert stored(node, 30, snapshot) is None
    assert node.only(VerifySnapshot) == VerifySnapshot(snapshot)
    return node


# When one may be made


def context(node, offset):
    return node.node.snapshot_context(offset, cluster_id="c", generation=4, append_time_ms=9)


def test_a_snapshot_begins_with_the_crc_of_the_chain(driven) -> None:
    node = driven(voters=(1,), log=((3, 10), (4, 5)))
    node.tick_until("candidate")
    node.flush()
    made = context(node, 15)
    assert made.id == OffsetAndEpoch(15, 4)
    assert made.control == (SnapshotHeader(0, "c", 4, node.node.log.crc_at(15), 9),)


def test_a_snapshot_holds_the_voters_that_were_in_force_at_its_end(driven) -> None:
    node = driven(voters=(1,), dynamic=True)
    node.tick_until("candidate")
    node.flush()
    made = context(node, 3)
    assert made.control[1:] == (KRaftVersion(0, 1), KRaftVoters(0, node.node.voters))


@pytest.mark.parametrize("offset", [0, 50, 100, 105, 117, 200])
def test_there_is_no_snapshot_at_or_below_the_start_inside_a_batch_or_above_the_high_watermark(driven, offset) -> None:
    node = leading(driven)
    assert node.node.high_watermark == 100
    assert context(node, offset) is None
    node.request(2, fetch(voter(2), 5, 116, 5))
    node.flush()
    assert node.node.high_watermark == 116
    assert context(node, offset) is None
    assert context(node, 110).id == OffsetAndEpoch(110, 3)
    assert context(node, 116).id == OffsetAndEpoch(116, 5)


def test_the_log_starts_at_the_end_of_the_first_snapshot(driven) -> None:
    node = committed(driven)
    node.step(SnapshotTaken(OffsetAndEpoch(10, 3)))
    assert node.all(CleanLog) == [CleanLog(OffsetAndEpoch(10, 3))]
    assert node.node.log.start == OffsetAndEpoch(10, 3)
    assert context(node, 10) is None


def committed(driven, **options):
    """Let node 1 lead alone with everything committed: [0..10) of epoch 3, [10..15) of 4, [15..16) of 5."""
    node = driven(voters=(1,), log=((3, 10), (4, 5)), **options)
    node.tick_until("candidate")
    node.flush()
    node.flush()
    assert node.node.high_watermark == 16
    return node


def test_the_newest_snapshots_are_kept_and_the_log_behind_the_oldest_of_them(driven) -> None:
    node = committed(driven)
    for snapshot in (OffsetAndEpoch(10, 3), OffsetAndEpoch(15, 4)):
        node.step(SnapshotTaken(snapshot))
    assert node.all(CleanLog) == []
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(10, 3), OffsetAndEpoch(15, 4)), 10)
    node.step(SnapshotTaken(OffsetAndEpoch(16, 5)))
    assert node.all(CleanLog) == [CleanLog(OffsetAndEpoch(15, 4))]
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(15, 4), OffsetAndEpoch(16, 5)), 15)
    assert node.node.log.end_offset_for_epoch(3) == OffsetAndEpoch(15, 4)


def test_a_leader_keeps_the_log_for_the_observer_that_is_furthest_behind(driven) -> None:
    node = committed(driven, snapshots_kept=1)
    node.request(7, fetch(voter(7), 5, 16, 5))
    node.request(9, fetch(voter(9), 5, 10, 3))
    node.step(SnapshotTaken(OffsetAndEpoch(10, 3)))
    node.step(SnapshotTaken(OffsetAndEpoch(15, 4)))
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(10, 3), OffsetAndEpoch(15, 4)), 10)
    node.request(9, fetch(voter(9), 5, 15, 4))
    node.step(SnapshotTaken(OffsetAndEpoch(16, 5)))
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(15, 4), OffsetAndEpoch(16, 5)), 15)


def test_a_leader_keeps_the_beginning_of_the_log_for_an_observer_that_is_behind_the_first_snapshot(driven) -> None:
    node = committed(driven, snapshots_kept=1, snapshots_kept_for_observers=2)
    node.request(9, fetch(voter(9), 5, 10, 3))
    node.step(SnapshotTaken(OffsetAndEpoch(15, 4)))
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(15, 4),), 0)
    node.step(SnapshotTaken(OffsetAndEpoch(16, 5)))
    assert node.node.log.start_offset == 15, "the beginning and one snapshot are as many as are kept"


def test_the_beginning_of_the_log_goes_once_nobody_needs_it(driven) -> None:
    node = committed(driven, snapshots_kept=1)
    node.request(9, fetch(voter(9), 5, 10, 3))
    node.step(SnapshotTaken(OffsetAndEpoch(15, 4)))
    assert node.node.log.start_offset == 0
    node.request(9, fetch(voter(9), 5, 16, 5))
    node.step(SnapshotTaken(OffsetAndEpoch(16, 5)))
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(16, 5),), 16)


def test_for_observers_a_leader_keeps_only_so_many(driven) -> None:
    node = committed(driven, snapshots_kept=1, snapshots_kept_for_observers=2)
    node.request(9, fetch(voter(9), 5, 10, 3))
    for snapshot in (OffsetAndEpoch(10, 3), OffsetAndEpoch(15, 4), OffsetAndEpoch(16, 5)):
        node.step(SnapshotTaken(snapshot))
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(15, 4), OffsetAndEpoch(16, 5)), 15)


def test_nothing_is_kept_for_an_observer_that_is_anonymous_or_long_gone(driven) -> None:
    node = committed(driven, snapshots_kept=1, observer_session_ms=1_000)
    node.request(9, fetch(voter(9), 5, 10, 3))
    node.request(8, fetch(ReplicaKey(-1), 5, 10, 3))
    node.tick(1_001)
    node.step(SnapshotTaken(OffsetAndEpoch(10, 3)))
    node.step(SnapshotTaken(OffsetAndEpoch(15, 4)))
    assert (node.node.snapshots, node.node.log.start_offset) == ((OffsetAndEpoch(15, 4),), 15)


def test_a_snapshot_overtaken_by_another_while_it_was_written_is_removed(driven) -> None:
    node = committed(driven)
    node.step(SnapshotTaken(OffsetAndEpoch(16, 5)))
    node.step(SnapshotTaken(OffsetAndEpoch(10, 3)))
    assert node.all(CleanLog) == [CleanLog(OffsetAndEpoch(16, 5))]
    assert node.node.snapshots == (OffsetAndEpoch(16, 5),)


@pytest.mark.parametrize("snapshot", [OffsetAndEpoch(110, 3), OffsetAndEpoch(105, 3), OffsetAndEpoch(100, 3)])
def test_a_snapshot_of_uncommitted_records_is_a_bug(driven, snapshot) -> None:
    node = leading(driven)
    with pytest.raises(InvariantViolation, match="not a committed position"):
        node.step(SnapshotTaken(snapshot))


# What a boot finds


def test_a_snapshot_found_at_boot_proves_that_everything_below_is_committed(driven) -> None:
    found = BootState(snapshots=(OffsetAndEpoch(110, 3), START))
    node = driven(log=((3, 10), (4, 5)), start=START, boot=found)
    assert node.node.high_watermark == 110
    node.tick()
    assert node.all(Apply)[-1] == Apply(110)
    assert node.node.snapshots == (START, OffsetAndEpoch(110, 3))


def test_a_voter_whose_removal_a_snapshot_proves_to_be_committed_does_not_stand(driven, key_of) -> None:
    """Without the snapshot, the removal may never have reached a majority, and then this node can still be needed."""
    three, two = (VoterSet(tuple(Voter(key_of(node_id), {}) for node_id in ids)) for ids in ((1, 2, 3), (2, 3)))
    boot = BootState(control=((10, KRaftVoters(0, two)),), bootstrap=(KRaftVersion(0, 1), KRaftVoters(0, three)))
    log = ((3, 10), (3, 1))
    assert driven(dynamic=True, log=log, boot=boot).node.state.election_deadline_ms < NEVER_MS
    boot = boot._replace(snapshots=(OffsetAndEpoch(11, 3),))
    assert driven(dynamic=True, log=log, boot=boot).node.state.election_deadline_ms == NEVER_MS


def test_snapshots_that_are_no_position_of_the_log_are_not_used(driven) -> None:
    found = (OffsetAndEpoch(0, 0), OffsetAndEpoch(10, 3), OffsetAndEpoch(12, 4), OffsetAndEpoch(15, 3), OffsetAndEpoch(40, 4))
    node = driven(log=((3, 10), (4, 5)), boot=BootState(snapshots=found))
    assert node.node.snapshots == (OffsetAndEpoch(10, 3),)
    assert node.node.high_watermark == 10


def test_a_log_that_starts_where_no_snapshot_ends_is_a_bug_of_storage(driven) -> None:
    with pytest.raises(InvariantViolation, match="starts after a snapshot that is not there"):
        driven(log=((3, 10),), start=START, boot=BootState(snapshots=(OffsetAndEpoch(110, 3),)))


# Who is sent one


@pytest.mark.parametrize(
    ("offset", "last_epoch", "outcome"),
    [
        (0, 0, SnapshotRequired(100, 2)),
        (50, 1, SnapshotRequired(100, 2)),
        (99, 2, SnapshotRequired(100, 2)),
        (100, 1, SnapshotRequired(100, 2)),
        (100, 3, SnapshotRequired(100, 2)),
        (105, 1, SnapshotRequired(100, 2)),
        (120, 1, SnapshotRequired(100, 2)),
        (105, 2, Diverging(2, 100)),
        (112, 3, Diverging(3, 110)),
        (116, 5, Records(b"")),
    ],
)
def test_a_follower_that_cannot_be_served_from_the_log_gets_the_id_of_a_snapshot(driven, offset, last_epoch, outcome) -> None:
    node = leading(driven)
    assert node.request(2, fetch(voter(2), 5, offset, last_epoch)).outcome == outcome


@pytest.mark.parametrize(("offset", "last_epoch"), [(100, 2), (110, 3), (115, 4)])
def test_a_follower_that_ends_at_or_after_the_start_is_served_from_the_log(driven, offset, last_epoch) -> None:
    node = leading(driven)
    node.request(2, fetch(voter(2), 5, offset, last_epoch))
    assert node.only(ReadLog).start_offset == offset


def test_the_newest_snapshot_is_named_and_an_empty_log_gets_it_although_the_log_reaches_back_to_0(driven) -> None:
    node = driven(log=((3, 10), (4, 5)), boot=BootState(snapshots=(OffsetAndEpoch(10, 3), OffsetAndEpoch(15, 4))))
    node.win()
    assert node.request(2, fetch(voter(2), 5, 0, 0)).outcome == SnapshotRequired(15, 4)
    assert node.request(2, fetch(voter(2), 5, 5, 2)).outcome == Diverging(0, 0)


def test_without_a_snapshot_an_empty_log_gets_the_records(driven) -> None:
    node = driven(log=((3, 10),))
    node.win()
    node.request(2, fetch(voter(2), 4, 0, 0))
    assert node.only(ReadLog).start_offset == 0


def test_a_read_that_cleaning_has_overtaken_is_refused_and_the_next_fetch_gets_a_snapshot(driven) -> None:
    node = leading(driven)
    node.request(2, fetch(voter(2), 5, 116, 5))
    node.flush()
    node.request(3, fetch(voter(3), 5, 100, 2))
    read = node.only(ReadLog)
    node.step(SnapshotTaken(OffsetAndEpoch(110, 3)))
    node.step(SnapshotTaken(OffsetAndEpoch(115, 4)))
    node.step(RecordsRead(read.read_id, b""))
    assert node.only(Reply).response.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert node.request(3, fetch(voter(3), 5, 100, 2)).outcome == SnapshotRequired(115, 4)


# FetchSnapshot at the leader


def test_a_part_of_a_snapshot_is_read_and_sent(driven) -> None:
    node = leading(driven)
    assert node.request(2, fetch_snapshot(voter(2), 5, position=7, max_bytes=10)) is None
    read = node.only(ReadSnapshot)
    assert read == ReadSnapshot(read.read_id, START, 7, 10)
    node.step(SnapshotRead(read.read_id, 40, b"0123456789"))
    response = node.only(Reply).response
    assert response == FetchSnapshotResponse(ErrorCode.NONE, node.node.leader, START, 40, 7, b"0123456789")


def test_no_more_than_a_chunk_is_read_at_once(driven) -> None:
    node = leading(driven, snapshot_chunk_bytes=64)
    node.request(2, fetch_snapshot(voter(2), 5, max_bytes=1 << 30))
    assert node.only(ReadSnapshot).max_bytes == 64


@pytest.mark.parametrize("snapshot", [OffsetAndEpoch(0, 0), OffsetAndEpoch(100, 3), OffsetAndEpoch(110, 3)])
def test_a_snapshot_that_is_not_there_is_not_found(driven, snapshot) -> None:
    node = leading(driven)
    assert node.request(2, fetch_snapshot(voter(2), 5, snapshot)).error is ErrorCode.SNAPSHOT_NOT_FOUND


def lose(node, snapshot=START) -> None:
    """Let a follower ask for a chunk of a snapshot that the disk has lost."""
    node.request(2, fetch_snapshot(voter(2), 5, snapshot))
    node.step(SnapshotRead(node.only(ReadSnapshot).read_id, -1, b""))
    assert node.only(Reply).response.error is ErrorCode.SNAPSHOT_NOT_FOUND


def test_the_newest_snapshot_is_written_again_where_it_was_if_it_can_not_be_read(driven) -> None:
    node = leading(driven)
    assert context(node, 100) is None
    lose(node)
    assert node.only(RewriteSnapshot) == RewriteSnapshot(START)
    made = context(node, 100)
    assert made.id == START
    assert made.control == (SnapshotHeader(0, "c", 4, node.node.log.crc_at(100), 9),)
    assert node.step(SnapshotTaken(START)) == []
    assert (node.node.snapshots, node.node.log.start) == ((START,), START)
    assert context(node, 100) is None, "once is enough"
    lose(node)
    assert node.only(RewriteSnapshot) == RewriteSnapshot(START), "it can rot again"


def test_a_snapshot_that_can_not_be_read_holds_the_voters_again_when_it_is_written_again(driven) -> None:
    node = driven(voters=(1,), dynamic=True, snapshots_kept=1)
    node.tick_until("candidate")
    node.flush()
    node.flush()
    first = context(node, 3)
    node.step(SnapshotTaken(first.id))
    assert node.node.log.start == first.id
    node.request(4, fetch_snapshot(voter(4), node.node.epoch, first.id))
    node.step(SnapshotRead(node.only(ReadSnapshot).read_id, -1, b""))
    assert node.only(RewriteSnapshot).id == first.id
    assert context(node, 3) == first


def test_a_newer_snapshot_is_as_good_as_one_that_is_written_again(driven) -> None:
    node = leading(driven, snapshots_kept=1)
    lose(node)
    node.request(2, fetch(voter(2), 5, 116, 5))
    node.flush()
    assert context(node, 116).id == OffsetAndEpoch(116, 5)
    node.step(SnapshotTaken(OffsetAndEpoch(116, 5)))
    assert node.node.snapshots == (OffsetAndEpoch(116, 5),)
    lose(node, OffsetAndEpoch(116, 5))
    assert node.only(RewriteSnapshot) == RewriteSnapshot(OffsetAndEpoch(116, 5))


def test_a_snapshot_that_is_not_the_newest_is_not_written_again(driven) -> None:
    node = leading(driven, snapshots_kept=2)
    node.request(2, fetch(voter(2), 5, 116, 5))
    node.flush()
    node.step(SnapshotTaken(OffsetAndEpoch(116, 5)))
    assert node.node.snapshots == (START, OffsetAndEpoch(116, 5))
    lose(node)
    assert node.all(RewriteSnapshot) == []
    assert context(node, 100) is None


def test_a_read_that_ends_after_the_leadership_asks_for_nothing(driven) -> None:
    node = leading(driven)
    node.request(2, fetch_snapshot(voter(2), 5))
    read = node.only(ReadSnapshot)
    node.request(3, BeginQuorumEpochRequest(6, 3, voter(1), {}))
    assert node.step(SnapshotRead(read.read_id, -1, b"")) == []
    assert context(node, 100) is None


def test_a_position_outside_the_snapshot_is_out_of_range(driven) -> None:
    node = leading(driven)
    assert node.request(2, fetch_snapshot(voter(2), 5, position=-1)).error is ErrorCode.POSITION_OUT_OF_RANGE
    node.request(2, fetch_snapshot(voter(2), 5, position=41))
    node.step(SnapshotRead(node.only(ReadSnapshot).read_id, 40, b""))
    assert node.only(Reply).response.error is ErrorCode.POSITION_OUT_OF_RANGE


def test_fetching_a_snapshot_is_fenced_by_epoch_like_a_fetch(driven) -> None:
    node = leading(driven)
    assert node.request(2, fetch_snapshot(voter(2), 4)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert node.request(1, fetch_snapshot(ReplicaKey(1), 5)).error is ErrorCode.INVALID_REQUEST
    assert node.request(2, fetch_snapshot(voter(2), 5, max_bytes=-1)).error is ErrorCode.INVALID_REQUEST
    assert node.request(2, fetch_snapshot(voter(2), 6)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert node.node.state_name == "unattached"
    assert node.request(2, fetch_snapshot(voter(2), 6)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_copy_of_a_snapshot_keeps_the_leader_in_office_but_acknowledges_nothing(driven) -> None:
    node = leading(driven)
    for _ in range(5):
        node.request(2, fetch_snapshot(voter(2), 5, max_bytes=0), after_ms=500)
    assert node.node.is_leader
    row = node.node.voter_progress(node.now_ms)[1]
    assert (row.end_offset, row.last_fetch_ms, row.last_caught_up_ms) == (-1, node.now_ms, -1)
    assert node.node.leader_high_watermark == -1
    node.tick(after_ms=900)
    assert not node.node.is_leader


def test_an_answer_owed_when_the_leadership_ends_says_so_and_a_late_read_changes_nothing(driven) -> None:
    node = leading(driven)
    node.request(2, fetch_snapshot(voter(2), 5))
    read = node.only(ReadSnapshot)
    node.request(3, BeginQuorumEpochRequest(6, 3, voter(1), {}))
    refusal = node.all(Reply)[0].response
    assert isinstance(refusal, FetchSnapshotResponse)
    assert (refusal.error, refusal.snapshot) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, START)
    assert node.step(SnapshotRead(read.read_id, 40, b"x")) == []


# Copying


def test_a_snapshot_is_copied_checked_and_installed_and_fetching_goes_on_at_its_end(driven, key_of) -> None:
    node = following(driven, key_of)
    offer(node)
    assert node.only(OpenSnapshot) == OpenSnapshot(SNAPSHOT)
    assert node.sent(FetchRequest) == node.sent(FetchSnapshotRequest) == []
    request = stored(node, 0)
    assert (request.snapshot, request.position, request.epoch) == (SNAPSHOT, 0, 5)
    answer(node, b"a" * 20)
    assert node.only(StoreSnapshotChunk) == StoreSnapshotChunk(SNAPSHOT, 0, b"a" * 20)
    assert stored(node, 20).position == 20
    answer(node, b"b" * 10)
    assert node.only(StoreSnapshotChunk) == StoreSnapshotChunk(SNAPSHOT, 20, b"b" * 10)
    assert stored(node, 30) is None
    assert node.only(VerifySnapshot) == VerifySnapshot(SNAPSHOT)
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    install = node.only(InstallSnapshot)
    assert (install.id, install.last_crc) == (SNAPSHOT, 99)
    assert node.only(Apply) == Apply(50)
    resumed = node.sent(FetchRequest)[0]
    assert (resumed.request.fetch_offset, resumed.request.last_fetched_epoch, resumed.request.high_watermark) == (50, 3, 50)
    assert resumed.after.append_id == install.append_id
    assert node.node.snapshots == (SNAPSHOT,)
    assert (node.node.log.start, node.node.log.last_crc) == (SNAPSHOT, 99)


def test_what_is_installed_is_durable_only_when_storage_says_so(driven, key_of) -> None:
    node = verifying(driven, key_of, log=((1, 4), (2, 3)))
    assert node.node.durable_end_offset == 7
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    assert node.node.durable_end_offset == 0
    node.step(StorageCompleted(node.only(InstallSnapshot).append_id))
    assert node.node.durable_end_offset == 50


def test_records_continue_the_chain_behind_an_installed_snapshot(driven, key_of, batches_of) -> None:
    node = verifying(driven, key_of)
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    resumed = node.sent(FetchRequest)[0]
    wrong, right = batches_of(((5, 2),), 50, 98)[0], batches_of(((5, 2),), 50, 99)[0]
    node.answer(resumed, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), 52, 50, 0, Records(wrong)))
    assert node.node.log_end_offset == 50
    again = node.tick(20) and node.sent(FetchRequest)[0]
    node.answer(again, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), 52, 50, 0, Records(right)))
    assert (node.node.log_end_offset, node.node.high_watermark) == (52, 52)


def test_the_voters_are_those_of_the_snapshot_from_its_installation_on(driven, key_of) -> None:
    node = verifying(driven, key_of, dynamic=True)
    voters = VoterSet((Voter(key_of(2), {}), Voter(key_of(3), {})))
    node.step(SnapshotVerified(SNAPSHOT, 99, (KRaftVersion(0, 1), KRaftVoters(0, voters))))
    assert node.only(VotersChanged) == VotersChanged(voters)
    assert not node.node.is_voter


def test_a_snapshot_replaces_a_log_that_went_another_way(driven, key_of) -> None:
    """Uncommitted records beside and beyond the snapshot's end are of an epoch that the leader's log has overwritten."""
    node = verifying(driven, key_of, log=((1, 30), (2, 40)))
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    assert (node.node.log_end_offset, node.node.log.last_epoch) == (50, 3)
    assert node.node.log.end_offset_for_epoch(2) == SNAPSHOT


def test_a_snapshot_at_exactly_the_own_end_of_another_epoch_is_installed_and_fetching_resumes(driven, key_of) -> None:
    node = verifying(driven, key_of, log=((1, 30), (2, 20)))
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    assert (node.sent(FetchRequest)[0].request.fetch_offset, node.node.log.last_epoch) == (50, 3)


@pytest.mark.parametrize(
    "snapshot",
    [OffsetAndEpoch(110, 3), OffsetAndEpoch(100, 2), OffsetAndEpoch(90, 2), OffsetAndEpoch(100, 3), OffsetAndEpoch(130, 6)],
    ids=["held", "held as the start", "below the start", "beside what is committed", "of an epoch to come"],
)
def test_a_snapshot_that_makes_no_sense_is_not_fetched(driven, key_of, snapshot) -> None:
    node = following(driven, key_of, log=((3, 10), (4, 5)), start=START)
    offer(node, snapshot)
    assert "is of no use" in node.only(Trace).text
    assert node.all(OpenSnapshot) == node.sent(FetchRequest) == []
    node.tick(20)
    assert len(node.sent(FetchRequest)) == 1


def test_a_copy_that_an_earlier_process_has_completed_is_verified_once_its_size_is_known(driven, key_of) -> None:
    node = following(driven, key_of)
    offer(node)
    assert stored(node, 30).position == 30
    answer(node, b"", size=30)
    assert node.only(VerifySnapshot)


def lose_and_follow(node, key_of, leader_id, epoch):
    """Follow a new leader, which answers the first fetch with the same snapshot."""
    node.request(leader_id, BeginQuorumEpochRequest(epoch, leader_id, key_of(1), {}))
    first = node.sent(FetchRequest)[0]
    view = LeaderView(epoch, leader_id)
    outcome = SnapshotRequired(SNAPSHOT.offset, SNAPSHOT.epoch)
    node.answer(first, FetchResponse(ErrorCode.NONE, view, -1, 50, 0, outcome))


def test_the_same_leader_in_another_epoch_goes_on_where_it_was(driven, key_of) -> None:
    node = copying(driven, key_of)
    answer(node, bytes(20))
    stored(node, 20)
    lose_and_follow(node, key_of, 2, 6)
    assert stored(node, 20).position == 20


def test_a_completion_for_a_former_leaders_download_frees_the_disk_for_the_next(driven, key_of) -> None:
    node = copying(driven, key_of, OffsetAndEpoch(40, 2))
    answer(node, bytes(20))
    lose_and_follow(node, key_of, 3, 6)
    assert node.all(OpenSnapshot) == []
    node.step(SnapshotChunkStored(OffsetAndEpoch(40, 2), 20))
    assert node.only(OpenSnapshot) == OpenSnapshot(SNAPSHOT)
    assert stored(node, 0).snapshot == SNAPSHOT


def test_a_verification_that_ends_in_a_new_epoch_counts_only_for_the_same_snapshot(driven, key_of) -> None:
    node = verifying(driven, key_of)
    lose_and_follow(node, key_of, 3, 6)
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    assert node.only(InstallSnapshot).id == SNAPSHOT

    node = verifying(driven, key_of, OffsetAndEpoch(40, 2))
    lose_and_follow(node, key_of, 3, 6)
    node.step(SnapshotVerified(OffsetAndEpoch(40, 2), 99, ()))
    assert node.all(InstallSnapshot) == []
    assert node.only(OpenSnapshot) == OpenSnapshot(SNAPSHOT)


def test_a_verification_that_ends_when_nobody_is_followed_is_forgotten(driven, key_of) -> None:
    node = verifying(driven, key_of)
    node.request(3, VoteRequest(6, key_of(3), key_of(1), 5, 60, pre_vote=False))
    assert node.node.state_name == "unattached"
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    assert node.all(InstallSnapshot) == []
    assert node.node.log_end_offset == 0


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE, ErrorCode.INVALID_REQUEST])
def test_an_unavailable_snapshot_is_given_up_and_the_next_fetch_names_the_needed_one(driven, key_of, error) -> None:
    node = copying(driven, key_of)
    answer(node, error=error)
    assert node.sent(FetchRequest) == []
    node.tick(20)
    node.fetch = node.sent(FetchRequest)[0]
    offer(node, OffsetAndEpoch(60, 4))
    assert node.only(OpenSnapshot).id == OffsetAndEpoch(60, 4)


def test_bytes_that_were_out_of_range_are_not_trusted_a_second_time(driven, key_of) -> None:
    node = following(driven, key_of)
    offer(node)
    assert stored(node, 500).position == 500
    answer(node, error=ErrorCode.POSITION_OUT_OF_RANGE)
    node.tick(20)
    node.fetch = node.sent(FetchRequest)[0]
    offer(node)
    assert stored(node, 500).position == 0


def test_a_chunk_that_the_disk_can_not_take_gives_the_download_up(driven, key_of) -> None:
    node = copying(driven, key_of)
    answer(node, bytes(20))
    node.step(SnapshotRefused(SNAPSHOT, "no space"))
    node.tick(20)
    assert len(node.sent(FetchRequest)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"position": 5},
        {"snapshot": OffsetAndEpoch(60, 3)},
        {"size_bytes": 0},
        {"size_bytes": 10},
        {"data": b""},
    ],
    ids=["other position", "other snapshot", "no size", "more than all", "nothing"],
)
def test_an_answer_that_does_not_fit_is_dropped_and_asked_for_again(driven, key_of, changes) -> None:
    node = copying(driven, key_of)
    deadline_ms = node.node.state.fetch_deadline_ms
    answer(node, **{"data": bytes(20), **changes})
    assert node.all(StoreSnapshotChunk) == []
    assert "does not answer" in node.only(Trace).text
    assert node.node.state.fetch_deadline_ms == deadline_ms
    node.tick(20)
    assert node.sent(FetchSnapshotRequest)[0].request.position == 0


def test_a_size_that_changes_means_another_file_and_a_new_beginning(driven, key_of) -> None:
    node = copying(driven, key_of)
    answer(node, bytes(20))
    stored(node, 20)
    answer(node, bytes(20), size=40)
    assert node.all(StoreSnapshotChunk) == []
    node.tick(20)
    node.fetch = node.sent(FetchRequest)[0]
    offer(node)
    assert stored(node, 20).position == 0


def test_an_answer_that_comes_twice_or_from_a_former_leader_counts_once(driven, key_of) -> None:
    node = copying(driven, key_of)
    ask = node.ask
    answer(node, bytes(20))
    assert answer(node, bytes(20)) == []
    stored(node, 20)
    late = node.ask
    node.request(3, BeginQuorumEpochRequest(6, 3, key_of(1), {}))
    node.ask = late
    assert answer(node, bytes(10)) == []
    assert ask.correlation != late.correlation


def test_an_answer_of_storage_that_nobody_asked_for_is_a_bug(driven, key_of) -> None:
    node = copying(driven, key_of)
    with pytest.raises(InvariantViolation, match="storage answers for 50@3"):
        node.step(SnapshotChunkStored(SNAPSHOT, 5))


def test_a_divergence_below_the_own_start_is_refused_for_good(driven, key_of) -> None:
    for diverging in (Diverging(1, 40), Diverging(2, 99), Diverging(3, 99)):
        node = following(driven, key_of, log=((3, 10),), start=START)
        with pytest.raises(LogTruncationRefused, match="agree only below offset"):
            node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 0, 0, diverging))


# A slow disk


def test_a_snapshot_that_the_leader_has_removed_by_now_is_verified_all_the_same(driven, key_of) -> None:
    node = verifying(driven, key_of)
    node.tick(200)
    node.ask = node.sent(FetchSnapshotRequest)[0]
    answer(node, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    node.step(SnapshotVerified(SNAPSHOT, 99, ()))
    assert node.only(InstallSnapshot)


def test_a_voter_whose_leader_dies_while_its_disk_verifies_stands_after_a_fetch_timeout(driven, key_of) -> None:
    node = verifying(driven, key_of)
    start_ms = node.now_ms
    while node.node.state_name == "follower":
        node.now_ms = max(node.now_ms, node.node.next_deadline_ms())
        node.tick()
        for ask in node.sent(FetchSnapshotRequest):
            node.step(RequestFailed(ask.correlation, 2), after_ms=50)
    assert node.node.state_name == "prospective"
    assert node.now_ms - start_ms <= 600 * 5 // 4 + 50


def test_a_sign_of_life_under_way_when_the_disk_is_done_delays_the_next_part_by_no_more_than_its_answer(driven, key_of) -> None:
    node = copying(driven, key_of)
    answer(node, bytes(20))
    node.tick(200)
    sign = node.sent(FetchSnapshotRequest)[0]
    assert sign.request.max_bytes == 0
    assert stored(node, 20) is None
    node.ask = sign
    answer(node, b"", position=0)
    assert node.sent(FetchSnapshotRequest)[0].request.position == 20


def test_the_statistics_tell_of_a_download_and_of_the_snapshots(driven, key_of) -> None:
    node = copying(driven, key_of)
    answer(node, bytes(20))
    stored(node, 20)
    numbers = node.node.statistics()
    assert (numbers.download, numbers.download_position, numbers.download_size_bytes) == (SNAPSHOT, 20, 30)
    assert "download(50@3 20/30 fetching)" in repr(node.node)
    assert (numbers.snapshots, numbers.is_repairing) == (0, False)


# Stories


def test_an_election_counts_a_log_that_is_all_snapshot_by_its_end(driven, key_of) -> None:
    node = driven(start=START, election=ElectionState(2, -1, None))
    node.tick()
    ask = VoteRequest(3, key_of(2), key_of(1), 2, 99, pre_vote=True)
    assert not node.request(2, ask).granted
    assert node.request(2, VoteRequest(3, key_of(2), key_of(1), 2, 100, pre_vote=True)).granted
