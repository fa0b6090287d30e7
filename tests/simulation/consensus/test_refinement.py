"""S19: the model allows every step of a correct node, and refuses a wrong step before it does harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import CONTROL, BatchHeader, KRaftVoters, encode, encode_control, read_header
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.reference import actions
from kraftlab.simulation.consensus.reference.actions import NOBODY, IllegalAction
from kraftlab.simulation.consensus.reference.ghosts import Entry, Ghosts
from kraftlab.simulation.consensus.reference.replica import Replica
from kraftlab.simulation.consensus.runner import run_plan, run_seed


@pytest.mark.parametrize("seed", (100, 101, 102, 105, 106, 108, 109))
def test_every_step_is_the_models(seed: int) -> None:
    result = run_seed(seed, refine=True)
    assert result.violations == ()
    assert result.trace_hash == run_seed(seed).trace_hash, "who is watched does the same"


@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        ("minority-commits", 0),
        ("older-epochs-by-counting", 0),
        ("any-log-is-good-enough", 0),
        ("pre-votes-count", 0),
        ("no-pre-vote", 0),
        ("vote-kept-in-new-epoch", 0),
        ("own-end-is-committed", 0),
        ("epoch-led-again", 0),
        ("truncated-in-memory-alone", 1),
        ("anybody-may-stand", 1),
        ("unsynced-counts", 2),
        ("leads-before-its-vote-is-stored", 2),
        ("divergence-is-progress", 1),
        ("voters-effective-on-commit", 4),
    ],
)
def test_a_planted_bug_is_refused_at_its_first_step(mutant: str, seed: int) -> None:
    result = run_seed(seed, faults=MUTANTS[mutant].limits.faults, mutant=mutant, refine=True)
    assert result.rule == "S19", result.violations


def test_a_plan_remembers_that_it_was_judged_by_the_model() -> None:
    result = run_seed(0, mutant="minority-commits", refine=True)
    assert run_plan(result.plan).violations == result.violations
    assert run_plan(result.plan, with_mutant=False).violations == ()


# The model by itself

KEYS = tuple(ReplicaKey(node_id) for node_id in range(3))
VOTERS = VoterSet.of(Voter(key, {}) for key in KEYS)


def batch(parent: Entry, epoch: int, records: int = 1) -> tuple[BatchHeader, bytes]:
    data, _ = encode(
        b"\x91\x00",
        base_offset=parent.end,
        epoch=epoch,
        record_count=records,
        append_time_ms=0,
        high_watermark=0,
        previous_crc=parent.crc,
    )
    return read_header(data), data


def grown(ghosts: Ghosts, log: Entry, epoch: int, count: int = 1) -> Entry:
    for _ in range(count):
        log = ghosts.written(ghosts.entry(*batch(log, epoch), log, VOTERS))
    return log


def replica(ghosts: Ghosts, log: Entry | None = None, **others: object) -> Replica:
    log = log or ghosts.root
    blank = Replica(
        key=KEYS[0], role="unattached", epoch=1, leader=NOBODY, voted=None, log=log, durable=log, stored=None, base=VOTERS
    )
    return replace(blank, **others)


@given(st.lists(st.integers(1, 3), max_size=8), st.data())
def test_logs_as_paths_are_logs_as_lists(steps: list[int], data: st.DataObject) -> None:
    """Compares with lists of (end, epoch): cuts, boundaries, epochs, common prefixes."""
    ghosts, epoch = Ghosts(), 1
    log, plain = ghosts.root, [(0, 0)]
    for records in steps:
        epoch += data.draw(st.integers(0, 2))
        log = ghosts.written(ghosts.entry(*batch(log, epoch, records), log, VOTERS))
        plain.append((log.end, log.epoch))
    offset, asked = data.draw(st.integers(0, log.end + 1)), data.draw(st.integers(0, epoch + 1))
    kept = [place for place in plain if place[0] <= offset]
    assert [(entry.end, entry.epoch) for entry in log.cut(offset).path()] == kept[::-1]
    assert (log.at(offset) is not None) == (offset in {end for end, _ in plain})
    assert log.end_of_epoch(asked) == max(place for place in plain if place[1] <= asked)
    other = grown(ghosts, log.cut(offset), epoch + 5, data.draw(st.integers(0, 3)))
    assert log.shared_with(other) is other.shared_with(log) is log.cut(offset)
    assert other.holds(log) == (log.cut(offset) is log)


def test_nobody_leads_without_a_majority_that_voted() -> None:
    ghosts = Ghosts()
    candidate = replica(ghosts, role="candidate", voted=KEYS[0], stored=ElectionState(1, NOBODY, KEYS[0]))
    with pytest.raises(IllegalAction, match=r"it leads epoch 1 with \[\]"):
        actions.lead(candidate, ghosts)
    promised = actions.count_grant(candidate, KEYS[1], pre_vote=True)
    with pytest.raises(IllegalAction, match="leads epoch 1"):
        actions.lead(promised, ghosts)
    elected = actions.count_grant(candidate, KEYS[1], pre_vote=False)
    assert actions.lead(elected, ghosts).role == "leader"
    with pytest.raises(IllegalAction, match="leads epoch 1"):
        actions.lead(replace(elected, stored=None), Ghosts())


def test_a_leader_elected_late_can_lack_records_committed_in_later_epochs() -> None:
    ghosts = Ghosts()
    ghosts.commits(2, grown(ghosts, ghosts.root, 2))
    late = replica(ghosts, role="candidate", voted=KEYS[0], stored=ElectionState(1, NOBODY, KEYS[0]))
    late = actions.count_grant(late, KEYS[1], pre_vote=False)
    assert actions.lead(late, ghosts).role == "leader"
    with pytest.raises(IllegalAction, match="is committed"):
        actions.lead(replace(late, epoch=3, stored=ElectionState(3, NOBODY, KEYS[0])), ghosts)


def test_a_vote_is_given_once_and_only_to_a_log_that_is_no_shorter() -> None:
    ghosts = Ghosts()
    voter = replica(ghosts, log=grown(ghosts, ghosts.root, 1))
    assert actions.vote(voter, KEYS[1], (1, 1, 1)).voted == KEYS[1]
    with pytest.raises(IllegalAction, match="older than its own"):
        actions.vote(voter, KEYS[1], (1, 0, 9))
    with pytest.raises(IllegalAction, match="after n1"):
        actions.vote(replace(voter, voted=KEYS[1]), KEYS[2], (1, 1, 1))
    with pytest.raises(IllegalAction, match="has not asked"):
        actions.vote(voter, KEYS[1], None)
    with pytest.raises(IllegalAction, match="repairs"):
        actions.vote(replace(voter, repair_until=5), KEYS[1], (1, 1, 1))


def test_records_of_older_epochs_are_not_committed_by_counting() -> None:
    ghosts = Ghosts()
    old = grown(ghosts, ghosts.root, 1, 2)
    new = grown(ghosts, old, 2)
    leader = replica(ghosts, role="leader", epoch=2, leader=0, log=new, epoch_start=2)
    leader = actions.acknowledge(leader, KEYS[1], 2, 1, old)
    with pytest.raises(IllegalAction, match="by counting"):
        actions.commit(leader, ghosts, 2, -1)
    leader = actions.acknowledge(leader, KEYS[1], 3, 2, new)
    assert actions.commit(leader, ghosts, 3, -1).high_watermark == 3
    assert ghosts.committed is new


def test_a_fetch_acknowledges_durable_records_of_the_same_log() -> None:
    ghosts = Ghosts()
    log, elsewhere = grown(ghosts, ghosts.root, 1, 2), grown(ghosts, ghosts.root, 2, 2)
    leader = replica(ghosts, role="leader", leader=0, log=log, epoch_start=0)
    with pytest.raises(IllegalAction, match="on its disk"):
        actions.acknowledge(leader, KEYS[1], 2, 1, ghosts.root)
    assert actions.acknowledge(leader, KEYS[1], 2, 2, elsewhere) == leader


def test_a_follower_cuts_neither_committed_records_nor_its_leaders() -> None:
    ghosts = Ghosts()
    shared = grown(ghosts, ghosts.root, 1, 2)
    own, leaders = grown(ghosts, shared, 1, 2), grown(ghosts, shared, 2)
    follower = replica(ghosts, role="follower", epoch=2, leader=1, log=own, high_watermark=1)
    assert actions.truncate(follower, 2, leaders).log is shared
    with pytest.raises(IllegalAction, match="shares"):
        actions.truncate(follower, 1, leaders)
    with pytest.raises(IllegalAction, match="as committed"):
        actions.truncate(follower, 0, leaders)


def test_a_snapshot_does_not_replace_a_log_that_has_all_of_it_and_goes_on() -> None:
    """The records after the snapshot can be acknowledged by this replica, and count for a majority."""
    ghosts = Ghosts()
    committed = grown(ghosts, ghosts.root, 1, 2)
    ghosts.commits(1, committed)
    ahead, apart = grown(ghosts, committed, 1, 2), grown(ghosts, ghosts.root, 2, 3)
    with pytest.raises(IllegalAction, match="beginning"):
        actions.install(replica(ghosts, log=ahead, role="follower"), ghosts, committed.end, committed.crc)
    assert actions.install(replica(ghosts, log=apart, role="follower"), ghosts, committed.end, committed.crc).log is committed


def test_an_epoch_is_one_that_somebody_has_opened() -> None:
    ghosts = Ghosts()
    with pytest.raises(IllegalAction, match="no replica has opened"):
        actions.see_epoch(replica(ghosts), ghosts, 7, frozenset((7,)))
    ghosts.epochs.add(7)
    assert actions.see_epoch(replica(ghosts), ghosts, 7, frozenset((7,))).epoch == 7


def test_a_node_that_starts_in_the_epoch_of_its_log_knows_no_leader() -> None:
    ghosts = Ghosts()
    begun = replica(ghosts, log=grown(ghosts, ghosts.root, 3), stored=ElectionState(2, 1, None))
    with pytest.raises(IllegalAction, match="the leader of epoch 2"):
        actions.begin(begun, ghosts, "unattached", 3, 1, None)
    assert actions.begin(begun, ghosts, "unattached", 3, NOBODY, None).epoch == 3


def test_voters_change_one_by_one_after_committed_records() -> None:
    ghosts = Ghosts()

    def change(leader: Replica, voters: VoterSet) -> Replica:
        data, _ = encode(
            encode_control([KRaftVoters(0, voters)]),
            base_offset=leader.log.end,
            epoch=leader.epoch,
            record_count=1,
            append_time_ms=0,
            high_watermark=0,
            previous_crc=leader.log.crc,
            attributes=CONTROL,
        )
        return actions.write(leader, ghosts, read_header(data), data)

    leader = change(replica(ghosts, role="leader", leader=0, epoch_start=0), VOTERS)
    with pytest.raises(IllegalAction, match="not committed"):
        change(leader, VOTERS.without(2))
    leader = replace(leader, high_watermark=1)
    with pytest.raises(IllegalAction, match="it changes"):
        change(leader, VOTERS.without(2).without(1))
    with pytest.raises(IllegalAction, match="committed in its epoch"):
        change(replace(leader, epoch_start=1), VOTERS.without(2))
    assert change(leader, VOTERS.without(2)).voters == VOTERS.without(2)
