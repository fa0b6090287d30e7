"""Replication as stories: commits, truncations, and the order in which data becomes durable."""

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.batch import CONTROL, decode, decode_control, read_header
from kraftlab.quorum.core.effects import Append, Apply, Proposed, ReadLog, Rejected, Reply, Trace
from kraftlab.quorum.core.events import (
    Propose,
    RecordsRead,
    RequestAbandoned,
    RequestFailed,
    ResponseReceived,
)
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    Diverging,
    FetchRequest,
    FetchResponse,
    LeaderView,
    Records,
    SnapshotRequired,
    VoteResponse,
)

BODY = b"\x91\x01"


def fetch(key, epoch, offset, last_epoch, high_watermark=-1, max_wait_ms=100) -> FetchRequest:
    return FetchRequest(epoch, key, offset, last_epoch, high_watermark, max_wait_ms, 1 << 20)


def records(epoch, leader_id, data=b"", high_watermark=-1) -> FetchResponse:
    return FetchResponse(ErrorCode.NONE, LeaderView(epoch, leader_id), high_watermark, 0, 0, Records(data))


def following(driven, key_of, epoch=5, **options):
    """Let node 1 follow node 2; the effects have its first fetch."""
    node = driven(**options)
    node.tick()
    node.request(2, BeginQuorumEpochRequest(epoch, 2, key_of(1), {}))
    node.fetch = node.sent(FetchRequest)[0]
    return node


def proposed(effects) -> Proposed:
    return next(effect for effect in effects if isinstance(effect, Proposed))


# Proposals


def test_an_epoch_opens_with_a_leader_change_batch(driven) -> None:
    node = driven()
    append = next(effect for effect in node.win() if isinstance(effect, Append))
    batch = decode(append.data)
    assert batch.header.attributes == CONTROL
    change = decode_control(batch.body)[0]
    assert (change.leader_id, change.voters, change.granting_voters) == (1, (1, 2, 3), (1, 2))


def test_a_proposal_is_answered_in_the_same_step(driven) -> None:
    node = driven()
    node.win()
    effects = node.step(Propose(1, BODY, 1))
    assert proposed(effects) == Proposed(1, 1, 2)
    header = read_header(node.only(Append).data)
    assert (header.base_offset, header.epoch, header.high_watermark, header.append_time_ms) == (1, 1, 0, node.now_ms)


def test_proposals_to_others_or_of_other_epochs_are_rejected(driven, key_of) -> None:
    node = driven()
    node.win()
    assert node.step(Propose(2, BODY, 1)) == [Rejected(1, 1)]
    node.request(2, BeginQuorumEpochRequest(4, 2, key_of(1), {}))
    assert Rejected(2, 4) in node.step(Propose(4, BODY, 1))


def test_a_proposal_beyond_the_limit_is_taken_when_nothing_else_is_uncommitted(driven, key_of) -> None:
    node = driven(uncommitted_bytes_max=1000)
    node.win()
    node.flush()
    large = Propose(1, b"\x91" + b"x" * 2000, 1)
    assert node.step(large) == [Rejected(1, 1, overloaded=True)], "the epoch's first record is not committed"
    node.request(2, fetch(key_of(2), 1, 1, 1))
    assert node.node.high_watermark == 1
    assert proposed(node.step(large)).base_offset == 1
    assert node.step(Propose(1, BODY, 1)) == [Rejected(1, 1, overloaded=True)]


def test_a_proposal_that_no_batch_can_hold_changes_nothing(driven) -> None:
    node = driven()
    node.win()
    before = repr(node.node)
    with pytest.raises(ValueError, match="over the limit"):
        node.step(Propose(1, bytes(9 * 1024 * 1024), 1))
    with pytest.raises(ValueError, match="1 to 10000 records"):
        node.step(Propose(1, BODY, 0))
    assert repr(node.node) == before
    assert proposed(node.step(Propose(1, BODY, 1))).base_offset == 1


def test_a_batch_carries_the_high_watermark_known_when_it_was_written(driven, key_of) -> None:
    node = driven()
    node.win()
    node.flush()
    node.request(2, fetch(key_of(2), 1, 1, 1))
    node.step(Propose(1, BODY, 1))
    assert read_header(node.only(Append).data).high_watermark == 1


# The high watermark


def test_a_followers_high_watermark_never_exceeds_its_log(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    node.answer(node.fetch, records(5, 2, batches_of(((5, 3),))[0], high_watermark=10))
    assert node.node.high_watermark == 3
    assert Apply(3) in node.effects


# Fetches at the leader


def test_a_fetch_is_parked_until_there_is_more_log(driven, key_of) -> None:
    node = driven()
    node.win()
    assert node.request(2, fetch(key_of(2), 1, 1, 1)) is None
    parked = node.token
    node.step(Propose(1, BODY, 1))
    read = node.only(ReadLog)
    assert read.start_offset == 1
    node.step(RecordsRead(read.read_id, b"batches"))
    reply = node.only(Reply)
    assert (reply.correlation, reply.response.outcome) == (parked, Records(b"batches"))


def test_a_parked_fetch_is_answered_empty_after_its_wait(driven, key_of) -> None:
    node = driven()
    node.win()
    assert node.request(2, fetch(key_of(2), 1, 1, 1, max_wait_ms=70)) is None
    assert node.node.next_deadline_ms() == node.now_ms + 70
    node.tick(70)
    assert node.only(Reply).response.outcome == Records(b"")


def test_a_read_under_way_when_leadership_ends_is_answered_once(driven, key_of) -> None:
    node = driven()
    node.win()
    node.request(2, fetch(key_of(2), 1, 0, 0))
    read = node.only(ReadLog)
    node.request(3, BeginQuorumEpochRequest(2, 3, key_of(1), {}))
    assert node.step(RecordsRead(read.read_id, b"late")) == []


def test_an_abandoned_fetch_is_not_answered(driven, key_of) -> None:
    node = driven()
    node.win()
    node.request(2, fetch(key_of(2), 1, 1, 1))
    node.step(RequestAbandoned(node.token))
    assert not [effect for effect in node.step(Propose(1, BODY, 1)) if isinstance(effect, ReadLog)]


def test_records_may_leave_before_they_are_durable_but_not_before_the_leadership_is(driven, key_of) -> None:
    node = driven()
    node.win()
    node.request(2, fetch(key_of(2), 1, 0, 0))
    node.step(RecordsRead(node.only(ReadLog).read_id, b"unflushed"))
    after = node.only(Reply).after
    assert after.append_id == 0
    assert after.election_version == node.node.quorum.election_version


@pytest.mark.parametrize(
    ("epoch", "offset", "last_epoch", "node_id", "error"),
    [
        (4, 0, 0, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (5, -1, 0, 2, ErrorCode.INVALID_REQUEST),
        (5, 0, -1, 2, ErrorCode.INVALID_REQUEST),
        (5, 3, 6, 2, ErrorCode.INVALID_REQUEST),
        (5, 0, 0, -2, ErrorCode.INVALID_REQUEST),
        (5, 0, 0, 1, ErrorCode.INVALID_REQUEST),
        (5, 1, 1, 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (6, 0, 0, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_fetches_that_can_not_be_served_say_why(driven, key_of, epoch, offset, last_epoch, node_id, error) -> None:
    node = driven(log=((1, 2),), election=ElectionState(4, -1, None))
    node.win()
    key = key_of(node_id) if node_id > 0 else key_of(2).__class__(node_id)
    response = node.request(2, fetch(key, epoch, offset, last_epoch))
    assert response.error is error
    assert response.leader.epoch == node.node.epoch
    assert all(row.end_offset == -1 for row in node.node.voter_progress(0) if row.key.node_id != 1)


def test_a_diverging_fetch_acknowledges_nothing(driven, key_of) -> None:
    node = driven(log=((1, 20), (3, 10)), election=ElectionState(4, -1, None))
    node.win()
    node.flush()
    response = node.request(2, fetch(key_of(2), 5, 25, 2))
    assert response.outcome == Diverging(1, 20)
    assert node.node.voter_progress(0)[1].end_offset == -1


# Fetches at the follower


def test_a_fetch_claims_only_durable_records(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    node.answer(node.fetch, records(5, 2, batches_of(((5, 3),))[0]))
    append, next_fetch = node.only(Append), node.sent(FetchRequest)[0]
    assert (append.base_offset, append.end_offset) == (0, 3)
    assert next_fetch.request.fetch_offset == 3
    assert next_fetch.after.append_id == append.append_id
    assert next_fetch.after.election_version == node.node.quorum.election_version


def test_only_one_fetch_is_in_flight(driven, key_of) -> None:
    node = following(driven, key_of)
    for _ in range(5):
        node.tick(50)
        assert node.sent(FetchRequest) == []


def test_an_answer_that_comes_after_the_fetch_was_given_up_appends_nothing(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    lost = node.fetch
    node.step(RequestFailed(lost.correlation, 2), after_ms=lost.timeout_ms)
    node.answer(lost, records(5, 2, batches_of(((5, 3),))[0]))
    assert node.node.log_end_offset == 0


def test_a_node_that_looks_for_a_leader_does_not_wait_long_for_one_voter(driven) -> None:
    node = driven(node_id=9)
    node.tick(after_ms=20)
    assert [send.timeout_ms for send in node.sent(FetchRequest)] == [200]


def test_an_answer_to_an_abandoned_fetch_appends_nothing(driven, key_of, batches_of) -> None:
    node = following(driven, key_of)
    old = node.fetch
    node.request(3, BeginQuorumEpochRequest(6, 3, key_of(1), {}))
    new = node.sent(FetchRequest)[0]
    assert new.destination == 3
    node.answer(old, records(5, 2, batches_of(((5, 3),))[0]))
    assert node.node.log_end_offset == 0
    node.answer(new, records(6, 3, batches_of(((6, 1),))[0]))
    assert node.node.log_end_offset == 1


def test_a_divergence_that_makes_no_sense_is_dropped(driven, key_of) -> None:
    node = following(driven, key_of, log=((1, 4),), election=ElectionState(2, -1, None))
    for diverging in (Diverging(3, 9), Diverging(1, 2), Diverging(1, 4)):
        node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 0, 0, diverging))
        assert "makes no sense" in node.only(Trace).text
        assert node.node.log_end_offset == 4
        node.tick(20)
        node.fetch = node.sent(FetchRequest)[0]


def corrupt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda batches_of: corrupt(batches_of(((5, 3),))[0]),
        lambda batches_of: batches_of(((5, 3),))[0][:-2],
        lambda batches_of: b"garbage" * 20,
        lambda batches_of: batches_of(((5, 3),), offset=1)[0],
        lambda batches_of: batches_of(((5, 3),), crc=99)[0],
        lambda batches_of: batches_of(((6, 3),))[0],
        lambda batches_of: b"".join(batches_of(((5, 3),)) + batches_of(((5, 3),))),
        lambda batches_of: b"".join(batches_of(((4, 1), (3, 1)))),
    ],
    ids=["bit flip", "cut short", "garbage", "gap", "broken chain", "epoch too new", "twice the same", "epoch falls"],
)
def test_bad_records_are_dropped_with_a_trace_and_asked_for_again(driven, key_of, batches_of, spoil) -> None:
    node = following(driven, key_of)
    node.answer(node.fetch, records(5, 2, spoil(batches_of), high_watermark=1))
    assert node.only(Trace).kind == "corrupt"
    assert (node.node.log_end_offset, node.node.high_watermark) == (0, -1)
    assert node.sent(FetchRequest) == []
    node.tick(20)
    assert node.sent(FetchRequest)[0].request.fetch_offset == 0


def test_a_leader_that_offers_a_snapshot_of_an_epoch_to_come_is_asked_again_later(driven, key_of) -> None:
    node = following(driven, key_of)
    node.answer(node.fetch, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 50, 0, SnapshotRequired(50, 6)))
    assert node.only(Trace).kind == "snapshot"
    assert node.sent(FetchRequest) == []
    node.tick(20)
    assert len(node.sent(FetchRequest)) == 1


# Logs that part (Raft, Figure 7) and come together


FIGURE_7 = {
    "a: one record missing": ((1, 3), (4, 2), (5, 2), (6, 2)),
    "b: five records missing": ((1, 3), (4, 1)),
    "c: one record too many": ((1, 3), (4, 2), (5, 2), (6, 4)),
    "d: a later epoch on top": ((1, 3), (4, 2), (5, 2), (6, 3), (7, 2)),
    "e: an epoch too long": ((1, 3), (4, 4)),
    "f: epochs the leader never saw": ((1, 3), (2, 3), (3, 5)),
}
LEADER_LOG = ((1, 3), (4, 2), (5, 2), (6, 3))


@pytest.mark.parametrize("follower_log", FIGURE_7.values(), ids=FIGURE_7.keys())
def test_any_log_of_figure_7_becomes_the_leaders_log(quorum, batches_of, follower_log) -> None:
    nodes = quorum(3, start=False)
    for node_id, log in ((1, LEADER_LOG), (2, LEADER_LOG), (3, follower_log)):
        host = nodes.host(node_id)
        host.disk = batches_of(tuple((epoch, 1) for epoch, count in log for _ in range(count)))
        host.stored = ElectionState(7, -1, None)
    nodes.start(1)
    nodes.start(2)
    leader_id = nodes.settle()
    nodes.start(3)
    nodes.settle()
    assert nodes.host(3).disk == nodes.host(3).batches == nodes.host(leader_id).disk


def test_describe_counts_the_leaders_own_log_as_the_high_watermark_does(driven, key_of) -> None:
    node = driven()
    node.win()
    node.flush()
    node.step(Propose(1, BODY, 1))
    assert node.node.log_end_offset == 2
    assert node.node.voter_progress(node.now_ms)[0].end_offset == 1


def test_statistics_and_repr_tell_a_nodes_state_in_a_line(driven) -> None:
    node = driven()
    node.win()
    statistics = node.node.statistics()
    assert (statistics.state, statistics.epoch, statistics.leader_id, statistics.log_end_offset) == ("leader", 1, 1, 1)
    assert statistics.elections_started == 1
    assert repr(node.node) == "n1 leader e1 L1 V1 start=0 hw=-1 [n2:-1, n3:-1] hw=-1 log[0..1@1] durable=0 a0/1"


def test_requests_and_answers_of_the_wrong_kind_do_no_harm(driven, key_of) -> None:
    node = following(driven, key_of)
    assert node.step(ResponseReceived(999, 2, records(5, 2))) == []
    assert node.step(ResponseReceived(node.fetch.correlation, 2, VoteResponse(ErrorCode.NONE, LeaderView(9), True, False))) == []
    assert node.request(3, fetch(key_of(3), 5, 0, 0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
