"""The workload `admin` does what administrators do, and finds every bug that is planted in the controller."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from jepsen_lite.history import OK
from jepsen_lite.mutants.hash_seeds import ADMINISTERING
from jepsen_lite.mutants.rooms import play_workload
from jepsen_lite.workloads import workload_named
from jepsen_lite.workloads.admin import REQUESTS, SMALL_BATCH
from jepsen_lite.worlds.simulated import SimulatedRun, run_simulated
from kraftlab.checking.mutant import planted
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.simulation.metadata.mutants import MUTANTS

SEEDS = 8
"""Number of seeds, the same each time. `make nightly` plays new ones."""
LOGGED = {
    *("AccessControlEntry", "BeginTransaction", "ChangeMoveThrottles", "ClientQuota", "Config", "DequeueMoves", "EndTransaction"),
    *("FeatureLevel", "MovePlan", "Partition", "PartitionChange", "ProducerIds", "QueueMoves", "RegisterBroker"),
    *("RemoveAccessControlEntry", "RemoveTopic", "RequestOutcome", "StartMoves", "Topic", "UnregisterBroker"),
}
"""Kinds of records that these seeds write, among others."""


def played(seed: int) -> SimulatedRun:
    return run_simulated(workload_named("admin"), seed, ADMINISTERING, with_tail=True)


@pytest.fixture(scope="module")
def runs() -> list[SimulatedRun]:
    return [played(seed) for seed in range(SEEDS)]


def test_no_rule_breaks(runs: list[SimulatedRun]) -> None:
    wrong = [
        (seed, verdict.reason, run.tail) for seed, run in enumerate(runs) for verdict in run.verdicts if verdict.valid is False
    ]
    assert not wrong
    assert sum(run.run.history.counts()[OK] for run in runs) > 50 * SEEDS, "the controllers hardly got anything done"


def test_every_kind_of_request_is_answered(runs: list[SimulatedRun]) -> None:
    answered = Counter(op.f for run in runs for op in run.run.history if op.outcome == OK)
    assert set(answered) == set(REQUESTS)


def test_everything_that_administrators_and_brokers_do_reaches_the_log(runs: list[SimulatedRun]) -> None:
    entries = [entry for run in runs if run.run.log is not None for entry in run.run.log.entries]
    kinds = {entry.kind for entry in entries}
    assert not LOGGED - kinds
    changes = [entry.record for entry in entries if entry.kind == "BrokerRegistrationChange"]
    assert {change["fenced"] for change in changes} >= {True, False}
    assert any(change["cordoned_log_dirs"] for change in changes)
    moves = [entry.record for entry in entries if entry.kind == "PartitionChange"]
    assert any(move["adding_replicas"] for move in moves), "no reassignment was started"
    assert any(move["target_replicas"] == [] for move in moves), "no reassignment ended"


def test_a_change_that_is_not_atomic_takes_several_batches(runs: list[SimulatedRun]) -> None:
    """A full batch of elections with others of the same time behind it."""
    ends = Counter(
        (seed, entry.append_time_ms, entry.batch_end)
        for seed, run in enumerate(runs)
        if run.run.log is not None
        for entry in run.run.log.entries
        if entry.kind == "PartitionChange" and not entry.request_id
    )
    assert any(
        count == SMALL_BATCH and any((seed, at_ms, end + more) in ends for more in range(1, SMALL_BATCH + 1))
        for (seed, at_ms, end), count in ends.items()
    )


def test_a_seed_is_a_run(runs: list[SimulatedRun]) -> None:
    again = played(1)
    assert (again.trace_hash, again.history_hash) == (runs[1].trace_hash, runs[1].history_hash)


FOUND_BY = {
    "answers-forgotten": 4,
    "broker-epoch-unchecked": 28,
    "broker-flaps": 10,
    "fence-goes-through": 56,
    "no-state-after-control-batch": 7,
    "queue-not-in-snapshots": 4,
    "queue-stands-still": 8,
    "reassigned-too-early": 10,
}
"""Seeds that find these bugs soon. Seed 0 or 1 finds the others."""


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_found(name: str) -> None:
    bug = MUTANTS[name]
    with planted(bug):
        for seed in (FOUND_BY.get(name, 0), *range(40)):
            shown = play_workload("admin", ADMINISTERING, bug, seed)
            if shown.rule:
                assert shown.rule.split("+")[0] in bug.limits.rules, shown.words
                return
    raise AssertionError(f"{bug.why}: not found")


def test_a_manager_that_fails_unexpectedly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: QuorumController, state: object, context: object) -> None:
        raise KeyError("nobody expects this")

    monkeypatch.setattr(QuorumController, "activation", fails)
    violation = run_simulated(workload_named("admin"), 2, msgspec.structs.replace(ADMINISTERING, time_s=1)).violation
    assert violation.startswith("M8")
    assert "nobody expects this" in violation
