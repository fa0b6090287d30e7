"""The voters are a function of the log: effective on append, undone on truncation, the same after a restart."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import CorruptBatch, ElectionState, RaftConfig, Voter, VoterSet
from kraftlab.quorum.core.batch import CONTROL, ForcedStandalone, KRaftVersion, KRaftVoters, LeaderChange, encode, encode_control
from kraftlab.quorum.core.effects import ANYBODY, Append, Trace, VotersChanged
from kraftlab.quorum.core.events import ResponseReceived
from kraftlab.quorum.core.leader import next_high_watermark
from kraftlab.quorum.core.membership import Membership
from kraftlab.quorum.core.messages import Diverging, FetchRequest, FetchResponse, LeaderView, Records, VoteRequest
from kraftlab.quorum.core.raft_config import BootState
from kraftlab.quorum.core.voter_set_history import VoterSetHistory


def key(node_id: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id + disk]) * 16)


def voter(node_id: int, disk: int = 0, port: int = 1) -> Voter:
    return Voter(key(node_id, disk), {"CONTROLLER": Endpoint(f"n{node_id}", port)})


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(voter(node_id) for node_id in ids)


def record(*ids: int) -> KRaftVoters:
    return KRaftVoters(0, voters(*ids))


VERSION = KRaftVersion(0, 1)
FORCED = ForcedStandalone(0, 1, key(1), voters(1, 2, 3), 5, 9, 0)

# Voter sets


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.booleans()), max_size=20))
def test_a_set_is_sorted_and_has_each_node_once(steps: list[tuple[int, int, bool]]) -> None:
    ours, naive = VoterSet(()), dict[int, Voter]()
    for node_id, disk, is_added in steps:
        one = voter(node_id, disk)
        if is_added:
            ours, naive[node_id] = ours.with_voter(one), one
        else:
            ours = ours.without(node_id)
            naive.pop(node_id, None)
        assert ours.voters == tuple(naive[node_id] for node_id in sorted(naive))
        assert ours == VoterSet.of(reversed(ours.voters))
        assert all(ours.get(node_id) == naive.get(node_id) for node_id in range(1, 7))


def majorities(voter_set: VoterSet) -> list[list[ReplicaKey]]:
    keys = [v.key for v in voter_set.voters]
    subsets = [[k for bit, k in enumerate(keys) if mask >> bit & 1] for mask in range(1 << len(keys))]
    return [subset for subset in subsets if len(subset) >= voter_set.majority()]


sets = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1)), min_size=1, max_size=5, unique_by=lambda pair: pair[0]).map(
    lambda pairs: VoterSet.of(voter(*pair) for pair in pairs)
)


@given(sets, sets)
def test_sets_that_overlap_in_majority_really_do(one: VoterSet, other: VoterSet) -> None:
    really = all(any(k in theirs for k in ours) for ours in majorities(one) for theirs in majorities(other))
    if one.overlaps_in_majority(other):
        assert really
    assert one.overlaps_in_majority(other) == other.overlaps_in_majority(one)


@given(sets, st.integers(1, 5), st.integers(0, 1))
def test_one_voter_more_or_less_always_overlaps(one: VoterSet, node_id: int, disk: int) -> None:
    changed = one.without(node_id) if one.get(node_id) else one.with_voter(voter(node_id, disk))
    assert one.overlaps_in_majority(changed)


# The history


class NaiveHistory:
    """A history that keeps all records and searches them each time."""

    def __init__(self, base: VoterSet) -> None:
        self.base = base
        self.records: list[tuple[int, VoterSet]] = []

    def at(self, offset: int) -> VoterSet:
        return next((s for o, s in reversed(self.records) if o < offset), self.base)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("reset"), st.integers(1, 5), st.just(0)),
    ),
    max_size=25,
)


@given(steps)
def test_the_history_follows_from_the_log(steps: list[tuple[str, int, int]]) -> None:
    ours, naive, end = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)]), NaiveHistory(voters(1, 2, 3)), 0
    for what, number, gap in steps:
        if what == "append":
            changed = ours.voters.without(number) if ours.voters.get(number) else ours.voters.with_voter(voter(number))
            if not changed.voters:
                continue
            end += gap
            ours.append([(end - 1, KRaftVoters(0, changed))])
            naive.records.append((end - 1, changed))
        elif what == "truncate":
            end = min(end, number)
            ours.truncate(end)
            naive.records = [(o, s) for o, s in naive.records if o < end]
        else:
            ours.reset([VERSION, record(number)])
            naive = NaiveHistory(voters(number))
            end = max(end, 5)
        assert ours.voters == naive.at(end)
        assert ours.offset == (naive.records[-1][0] if naive.records else -1)
        assert all(ours.at(offset) == naive.at(offset) for offset in range(end + 2))


def test_while_kraft_version_is_0_the_configuration_names_the_voters() -> None:
    history = VoterSetHistory(voters(1, 2, 3))
    assert (history.voters, history.kraft_version, history.is_bootstrap) == (voters(1, 2, 3), 0, False)
    with pytest.raises(CorruptBatch, match=r"kraft\.version is 0"):
        history.append([(7, record(1, 2))])
    history.append([(8, VERSION), (9, record(1, 2, 3, 4))])
    assert (history.voters, history.kraft_version_at(8), history.kraft_version_at(9)) == (voters(1, 2, 3, 4), 0, 1)
    history.truncate(8)
    assert (history.voters, history.kraft_version) == (voters(1, 2, 3), 0)


def test_a_bootstrap_set_waits_to_be_written_into_the_log() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)])
    assert history.is_bootstrap
    history.append([(0, LeaderChange(0, 1, (1, 2, 3), (1, 2))), (1, VERSION), (2, record(1, 2, 3))])
    assert not history.is_bootstrap
    history.truncate(0)
    assert history.is_bootstrap
    history.reset([VERSION, record(4, 5)])
    assert not history.is_bootstrap


def test_sets_that_need_not_meet_are_refused_and_leave_no_trace() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1)])
    history.append([(0, VERSION), (1, record(1, 2))])
    with pytest.raises(CorruptBatch, match="by more than one"):
        history.append([(5, record(1, 2, 3)), (6, record(4, 5, 6))])
    assert history.voters == voters(1, 2)


def test_a_replaced_disk_is_two_changes() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1)])
    history.append([(1, record(1, 2, 3))])
    with pytest.raises(CorruptBatch, match="by more than one"):
        history.append([(2, KRaftVoters(0, voters(1, 2, 3).with_voter(voter(3, disk=7))))])
    history.append([(2, record(1, 2)), (3, KRaftVoters(0, voters(1, 2).with_voter(voter(3, disk=7))))])


def test_a_snapshots_set_binds_the_log_behind_it_and_a_bootstrap_set_does_not() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(9)])
    history.append([(1, record(1, 2, 3))])
    history.reset([VERSION, record(1, 2, 3)])
    with pytest.raises(CorruptBatch, match="by more than one"):
        history.append([(7, record(4, 5))])


def test_a_forced_quorum_may_jump_in_its_own_batch_only() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)])
    history.append([(0, record(1, 2, 3))])
    history.append([(9, LeaderChange(0, 1, (1,), (1,))), (10, VERSION), (11, record(1)), (12, FORCED)])
    assert history.voters == voters(1)
    with pytest.raises(CorruptBatch, match="by more than one"):
        history.append([(13, FORCED), (14, record(4, 5)), (16, FORCED)])


@pytest.mark.parametrize("bad", [VoterSet(()), VoterSet((voter(2), voter(1))), VoterSet((voter(1), voter(1, disk=3)))], ids=repr)
def test_no_log_holds_an_improper_set(bad: VoterSet) -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2)])
    with pytest.raises(CorruptBatch, match="no proper set"):
        history.append([(0, KRaftVoters(0, bad))])


@pytest.mark.parametrize("version", [0, 2])
def test_kraft_version_neither_falls_nor_exceeds_the_known_maximum(version: int) -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2)])
    with pytest.raises(CorruptBatch, match=r"kraft\.version"):
        history.append([(0, KRaftVersion(0, version))])


# The set seen from one node


def test_a_wiped_disk_under_an_old_id_is_an_observer() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)])
    assert Membership(voter(1), history, -1).is_voter
    wiped = Membership(voter(1, disk=7), history, -1)
    assert (wiped.is_voter, wiped.has(key(1)), wiped.others) == (False, True, (voter(2), voter(3)))


def test_other_endpoints_than_the_set_says_are_noticed() -> None:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)])
    assert not Membership(voter(1), history, -1).has_moved
    assert Membership(voter(1, port=2), history, -1).has_moved
    assert not Membership(voter(4, port=2), history, -1).has_moved
    assert not Membership(voter(1, port=2), VoterSetHistory(voters(1, 2, 3)), -1).has_moved


BOOTSTRAP = (VERSION, record(1, 2, 3))
BOOTS = [
    # what the disk says -> who votes, where it says so, and kraft.version
    ("nothing", BootState(), voters(7), -1, 0),
    ("a bootstrap checkpoint", BootState(bootstrap=BOOTSTRAP), voters(1, 2, 3), -1, 1),
    ("a log", BootState(((0, VERSION), (1, record(4, 5))), BOOTSTRAP), voters(4, 5), 1, 1),
    ("a snapshot", BootState(((-1, VERSION), (-1, record(4, 5))), BOOTSTRAP), voters(4, 5), -1, 1),
    ("a snapshot and a log", BootState(((-1, VERSION), (-1, record(4, 5)), (90, record(5))), BOOTSTRAP), voters(5), 90, 1),
    ("a static quorum's log", BootState(((0, LeaderChange(0, 7, (7,), (7,))),)), voters(7), -1, 0),
]


@pytest.mark.parametrize(("boot", "expected", "offset", "version"), [row[1:] for row in BOOTS], ids=[row[0] for row in BOOTS])
def test_the_boot_table_of_voters(boot: BootState, expected: VoterSet, offset: int, version: int) -> None:
    membership = Membership.boot(RaftConfig(node_id=1, voters=voters(7)), boot, 0)
    assert (membership.voters, membership.voters_offset, membership.kraft_version) == (expected, offset, version)


def test_a_log_whose_sets_do_not_overlap_ends_the_boot(driven) -> None:
    with pytest.raises(CorruptBatch, match="by more than one"):
        driven(boot=BootState(((0, VERSION), (1, record(1, 2, 3)), (2, record(4, 5)))))


# The high watermark, however the set changes


@given(st.data())
def test_the_high_watermark_never_falls_when_the_set_changes(data: st.DataObject) -> None:
    ends, mark = dict.fromkeys(range(1, 6), -1), -1
    voting = [1, 2, 3]
    for _ in range(data.draw(st.integers(1, 20))):
        node_id = data.draw(st.integers(1, 5))
        if data.draw(st.booleans()):
            ends[node_id] = data.draw(st.integers(ends[node_id], ends[node_id] + 5))
        elif node_id in voting and len(voting) > 1:
            voting.remove(node_id)
        elif node_id not in voting:
            voting.append(node_id)
        before, mark = mark, next_high_watermark(mark, 2, [ends[v] for v in voting])
        assert mark >= before
        if mark > before:
            assert sum(ends[v] >= mark for v in voting) > len(voting) // 2


# A follower's node, driven by hand


def control_batch(*records: object, at: int, epoch: int, previous_crc: int = 0) -> tuple[bytes, int]:
    return encode(
        encode_control(list(records)),
        base_offset=at,
        epoch=epoch,
        record_count=len(records),
        append_time_ms=0,
        high_watermark=0,
        previous_crc=previous_crc,
        attributes=CONTROL,
    )


def fed(node, outcome: bytes | Diverging, *, epoch: int = 1, leader_id: int = 2) -> None:
    """Let the leader answer a fetch. Other nodes that are asked before name the leader."""
    view = LeaderView(epoch, leader_id, {"CONTROLLER": Endpoint("leader", 1)})
    for _ in range(100):
        for send in node.sent(FetchRequest):
            if send.destination in (leader_id, ANYBODY):
                records = Records(outcome) if isinstance(outcome, bytes) else outcome
                response = FetchResponse(ErrorCode.NONE, view, 0, 0, 0, records)
                node.step(ResponseReceived(send.correlation, leader_id, response))
                return
            node.answer(send, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, view, -1, 0, 0, Records(b"")))
            break
        else:
            node.tick(20)
    raise AssertionError("the leader is never asked")


def opening(*ids: int) -> tuple[bytes, int]:
    return control_batch(LeaderChange(0, 2, ids, ids), VERSION, record(*ids), at=0, epoch=1)


def test_an_observer_is_a_voter_as_soon_as_it_has_appended_so_and_no_longer_when_it_is_truncated(driven) -> None:
    node = driven(node_id=4, voters=(), election=ElectionState(1, 2, None))
    node.tick()
    first, crc = opening(1, 2, 3)
    fed(node, first)
    assert node.only(VotersChanged).voters == voters(1, 2, 3)
    node.flush()
    second, _ = control_batch(record(1, 2, 3, 4), at=3, epoch=1, previous_crc=crc)
    fed(node, second)
    assert node.node.is_voter
    assert (node.node.voters_offset, node.node.voters_at(3), node.node.voters_at(4)) == (3, voters(1, 2, 3), voters(1, 2, 3, 4))
    node.flush()
    fed(node, b"", epoch=2, leader_id=3)
    fed(node, Diverging(1, 3), epoch=2, leader_id=3)
    assert node.only(VotersChanged).voters == voters(1, 2, 3)
    assert not node.node.is_voter
    node.tick(2000)
    assert node.node.state_name == "unattached", "an observer does not stand"


def test_a_batch_that_breaks_the_chain_of_sets_is_dropped_whole(driven) -> None:
    node = driven(node_id=4, voters=(), election=ElectionState(1, 2, None))
    node.tick()
    first, crc = opening(1, 2, 3)
    second, _ = control_batch(record(4, 5, 6), at=3, epoch=1, previous_crc=crc)
    fed(node, first + second)
    assert not [effect for effect in node.effects if isinstance(effect, (Append, VotersChanged))]
    assert "by more than one" in next(e.text for e in node.effects if isinstance(e, Trace) and e.kind == "corrupt")
    assert (node.node.log_end_offset, node.node.voters) == (0, VoterSet(()))


def test_a_node_that_does_not_know_that_it_votes_answers_votes(driven, key_of) -> None:
    node = driven(node_id=4, voters=(1, 2, 3), dynamic=True)
    assert not node.node.is_voter
    answer = node.request(1, VoteRequest(1, key_of(1), key_of(4), 0, 0, False))
    assert (answer.error, answer.granted) == (ErrorCode.NONE, True)
    pre_vote = node.request(1, VoteRequest(1, key_of(1), key_of(4), 0, 0, True))
    assert pre_vote.granted


def test_a_vote_meant_for_another_disk_is_refused(driven, key_of) -> None:
    node = driven(node_id=2, dynamic=True)
    answer = node.request(1, VoteRequest(1, key_of(1), ReplicaKey(2, bytes([9]) * 16), 0, 0, False))
    assert (answer.error, answer.granted) == (ErrorCode.INVALID_VOTER_KEY, False)


def test_an_observer_also_asks_bootstrap_endpoints_for_its_voters_may_all_be_gone(driven) -> None:
    node = driven(node_id=9, dynamic=True)
    asked = []
    for _ in range(40):
        node.tick(200)
        asked += [send.destination for send in node.sent(FetchRequest)]
        for send in node.sent(FetchRequest):
            node.answer(send, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderView(0), -1, 0, 0, Records(b"")))
    assert sorted(dict.fromkeys(asked)) == [-1, 1, 2, 3]


def test_what_a_voter_says_of_its_address_counts_until_the_set_says_something_new() -> None:
    moved = voter(2, port=2).endpoints
    membership = Membership(voter(1), VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)]), -1)
    written = membership.endpoints_of(2)
    assert membership.note_endpoints(voter(2).key, moved)
    assert not membership.note_endpoints(voter(2).key, moved), "it is no news any more"
    assert (membership.endpoints_of(2), membership.address_of(2)) == (written, moved)
    assert membership.address_of(3) == membership.endpoints_of(3)
    again = voter(2, port=3)
    membership.append([(5, KRaftVoters(0, voters(1, 2, 3).with_voter(again)))])
    assert membership.address_of(2) == again.endpoints


def test_only_the_voter_that_the_set_names_says_where_it_is() -> None:
    membership = Membership(voter(1), VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)]), -1)
    moved = voter(2, port=2).endpoints
    assert not membership.note_endpoints(voter(4).key, moved)
    assert not membership.note_endpoints(voter(2, disk=6).key, moved)
    assert membership.address_of(4) == {}
    assert membership.address_of(2) == membership.endpoints_of(2)


def removed(*, high_watermark: int, own: Voter = voter(3)) -> Membership:
    history = VoterSetHistory(VoterSet(()), [VERSION, record(1, 2, 3)])
    history.append([(0, LeaderChange(0, 1, (1, 2, 3), (1, 2))), (1, VERSION), (2, record(1, 2, 3)), (7, record(1, 2))])
    return Membership(own, history, high_watermark)


def test_a_removed_voter_stays_eligible_until_its_removal_is_known_to_be_committed() -> None:
    membership = removed(high_watermark=7)
    assert (membership.is_voter, membership.is_eligible) == (False, True)
    membership.committed(8)
    assert not membership.is_eligible
    assert not removed(high_watermark=8).is_eligible
    assert not removed(high_watermark=7, own=voter(4)).is_eligible
    assert not removed(high_watermark=7, own=voter(3, disk=7)).is_eligible


# Nodes that were formatted with different initial voters


def formatted(driven, node_id: int, *ids: int):
    return driven(node_id=node_id, boot=BootState(bootstrap=(VERSION, record(*ids))), voters=(), dynamic=True)


def test_a_candidate_formatted_with_other_initial_voters_gets_no_vote(driven) -> None:
    """Otherwise two candidates, each with a majority of its own voters, could win the same epoch."""
    candidate = formatted(driven, 4, 1, 2, 4)
    candidate.tick_until("prospective")
    [request, *_] = [send.request for send in candidate.sent(VoteRequest) if send.destination == 1]
    for vote in (request, msgspec.structs.replace(request, epoch=1, pre_vote=False)):
        node = formatted(driven, 1, 1, 2, 3)
        answer = node.request(4, vote)
        assert (answer.error, answer.granted) == (ErrorCode.INVALID_REQUEST, False)
        assert "other initial voters" in next(e.text for e in node.effects if isinstance(e, Trace) and e.kind == "peer")
        assert formatted(driven, 1, 1, 2, 4).request(4, vote).granted, "the same list"
        assert driven(node_id=1, voters=(), dynamic=True, boot=BootState()).request(4, vote).granted, "formatted without any"


def test_initial_voters_do_not_matter_once_the_log_names_the_voters() -> None:
    membership = Membership.boot(RaftConfig(node_id=1, voters=voters()), BootState(bootstrap=(VERSION, record(1, 2))), 0)
    assert membership.initial_voters
    membership.append([(1, VERSION), (2, record(1, 2, 3))])
    assert not membership.initial_voters
    membership.truncate(0)
    assert membership.initial_voters
