"""The automaton of the quorum finds violations, and final phases repeat every request."""

from __future__ import annotations

import msgspec
import pytest

from jepsen_lite.committed_log import CommittedLog, Entry
from jepsen_lite.history import OK, History
from jepsen_lite.workloads.quorum_lives import QuorumLives


@pytest.mark.parametrize(
    ("name", "lucky"), [("agreement", ()), ("deltas", ()), ("snapshot-reads", ()), ("voters", ("add", "remove"))]
)
def test_all_that_was_asked_is_asked_again_when_everything_is_healed(played, name, lucky):
    """Every request is tested, even if few succeeded before."""
    _, run, _ = played(name, time_s=3.0)
    at_last = {op.f for op in run.history if op.outcome == OK and op.invoked_ns >= run.healed_ns}
    assert {op.f for op in run.history} - at_last <= {*lucky}


def _voters(*nodes):
    return {"voters": {"voters": [{"key": {"node_id": node, "directory_id": "d"}, "endpoints": {}} for node in nodes]}}


def _led(leader, voters, granting):
    return {"leader_id": leader, "voters": voters, "granting_voters": granting}


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        ((1, "LeaderChange", _led(2, [1, 2, 3], [1, 2])), "two leaders"),
        ((2, "NoOp", {}), "first record"),
        ((2, "LeaderChange", _led(2, [1, 2, 3], [2])), "votes"),
        ((2, "LeaderChange", _led(2, [1, 2], [1, 2])), "voters"),
        ((2, "LeaderChange", _led(4, [1, 2, 3], [1, 2])), "leader"),
        ((1, "KRaftVoters", _voters(1, 4, 5)), "more than one"),
        ((0, "NoOp", {}), "epoch back"),
    ],
)
def test_violations_of_the_quorum_are_found(played, second, kind):
    _, run, _ = played("availability", time_s=0.5)
    first = ((1, "LeaderChange", _led(1, [1, 2, 3], [1, 3])), (1, "KRaftVoters", _voters(1, 2, 3)))

    def judged(*rows):
        entries = tuple(Entry(at, at + 1, epoch, 0, what, record) for at, (epoch, what, record) in enumerate(rows))
        own = msgspec.structs.replace(run, log=CommittedLog(entries, 0, len(rows)), observations=(), history=History(()))
        return QuorumLives().check(own)

    assert judged(*first).valid is True
    assert judged(*first, second).details["violations"] == {kind: 1}


@pytest.mark.parametrize(("second", "valid"), [(_voters(1, 2), True), (_voters(1, 2, 3), "unknown")])
def test_voters_that_never_change_are_unknown(played, second, valid):
    _, run, _ = played("availability", time_s=0.5)
    rows = [(1, "LeaderChange", _led(1, [1, 2, 3], [1, 2])), (1, "KRaftVoters", _voters(1, 2, 3)), (1, "KRaftVoters", second)]
    entries = tuple(Entry(at, at + 1, epoch, 0, what, record) for at, (epoch, what, record) in enumerate(rows))
    own = msgspec.structs.replace(run, log=CommittedLog(entries, 0, len(rows)), observations=(), history=History(()))
    assert QuorumLives(changes=True).check(own).valid == valid
    assert QuorumLives().check(own).valid is True


def test_a_voter_that_is_being_removed_can_be_elected_again(played):
    _, run, _ = played("availability", time_s=0.5)
    rows = [
        (1, "LeaderChange", _led(1, [1, 2], [1, 2])),
        (1, "KRaftVoters", _voters(1, 2)),
        (1, "KRaftVoters", _voters(2)),
        (2, "LeaderChange", _led(1, [2], [2])),
    ]
    entries = tuple(Entry(at, at + 1, epoch, 0, what, record) for at, (epoch, what, record) in enumerate(rows))
    own = msgspec.structs.replace(run, log=CommittedLog(entries, 0, len(rows)), observations=(), history=History(()))
    assert QuorumLives().check(own).valid is True


def test_a_cluster_that_does_not_come_back_fails_its_liveness(played):
    _, run, _ = played("availability")
    silent = msgspec.structs.replace(run, history=run.history.where(lambda op: op.invoked_ns < run.healed_ns // 2))
    from jepsen_lite.workloads import workload_named

    verdicts = {checker.name: checker.check(silent) for checker in workload_named("availability").checkers(run.options)}
    assert verdicts["availability"].valid is not True
    assert verdicts["availability"].kind == "liveness"
