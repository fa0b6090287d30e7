"""Every request and response of a peer, even nonsense, is answered or dropped: only LogTruncationRefused can be raised."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import ElectionState, LogTruncationRefused, OffsetAndEpoch
from kraftlab.quorum.core.effects import (
    OpenSnapshot,
    ReadSnapshot,
    StoreSnapshotChunk,
    VerifySnapshot,
)
from kraftlab.quorum.core.events import SnapshotChunkStored, SnapshotRead, SnapshotVerified
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    Diverging,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    Records,
    SnapshotRequired,
    VoteRequest,
    VoteResponse,
)

numbers = st.one_of(st.integers(-3, 8), st.sampled_from([2**31 - 1, 2**31, 2**40, -(2**40)]))
positions = st.one_of(st.builds(OffsetAndEpoch, numbers, numbers), st.just(OffsetAndEpoch(6, 2)))
keys = st.builds(ReplicaKey, numbers, st.sampled_from([bytes(16), bytes([1]) * 16, bytes([2]) * 16]))
requests = st.one_of(
    st.builds(VoteRequest, numbers, keys, keys, numbers, numbers, st.booleans()),
    st.builds(BeginQuorumEpochRequest, numbers, numbers, keys, st.just({})),
    st.builds(EndQuorumEpochRequest, numbers, numbers, st.lists(keys, max_size=4).map(tuple)),
    st.builds(FetchRequest, numbers, keys, numbers, numbers, numbers, numbers, numbers),
    st.builds(FetchSnapshotRequest, numbers, keys, positions, numbers, numbers),
)
views = st.builds(LeaderView, numbers, numbers, st.just({}))
errors = st.sampled_from(list(ErrorCode))
outcomes = st.one_of(
    st.builds(Records, st.binary(max_size=60)),
    st.builds(Diverging, numbers, numbers),
    st.builds(SnapshotRequired, numbers, numbers),
    st.just(SnapshotRequired(6, 2)),
)
responses = st.one_of(
    st.builds(VoteResponse, errors, views, st.booleans(), st.booleans()),
    st.builds(FetchResponse, errors, views, numbers, numbers, numbers, outcomes),
    st.builds(FetchSnapshotResponse, errors, views, positions, numbers, numbers, st.binary(max_size=8)),
)


def disk_answers(node) -> None:
    """Let the disk complete the operations of the last step, even if they make no sense."""
    for effect in node.effects:
        if isinstance(effect, OpenSnapshot):
            node.step(SnapshotChunkStored(effect.id, 3))
        elif isinstance(effect, StoreSnapshotChunk):
            node.step(SnapshotChunkStored(effect.id, effect.position + len(effect.data)))
        elif isinstance(effect, VerifySnapshot):
            node.step(SnapshotVerified(effect.id, 1, ()))
        elif isinstance(effect, ReadSnapshot):
            node.step(SnapshotRead(effect.read_id, 5, b"12345"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_nothing_a_peer_says_raises(driven, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from([OffsetAndEpoch(0, 0), OffsetAndEpoch(4, 1)]))
    node = driven(log=((1, 2), (2, 1)), election=ElectionState(2, -1, None), start=start)
    if data.draw(st.booleans()):
        node.win()
    in_flight = []
    try:
        for _ in range(data.draw(st.integers(1, 12))):
            if in_flight and data.draw(st.booleans()):
                node.answer(in_flight.pop(), data.draw(responses))
            elif data.draw(st.booleans()):
                node.request(2, data.draw(requests), after_ms=data.draw(st.integers(0, 400)))
            else:
                node.tick(data.draw(st.integers(0, 400)))
            in_flight += node.sent(VoteRequest) + node.sent(FetchRequest) + node.sent(FetchSnapshotRequest)
            disk_answers(node)
    except LogTruncationRefused as error:
        assert "committed records that the leader lacks" in str(error)
