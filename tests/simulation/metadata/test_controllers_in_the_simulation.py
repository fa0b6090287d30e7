"""Controllers survive the simulated world, and bugs that are planted in them are found."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import NamedTuple

import pytest

from kraftlab.cli import main
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.metadata import codec
from kraftlab.metadata.image import EMPTY
from kraftlab.metadata.records import FeatureLevel
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.consensus.runner import METADATA, SeedResult, run_seed
from kraftlab.simulation.metadata.mutants import MUTANTS
from kraftlab.simulation.metadata.replayed_log import ReplayedLog

run_controllers = partial(run_seed, world=METADATA)
SEEDS = 12
"""Number of seeds, the same each time. `make nightly` plays a thousand new ones."""
FOUND_BY = {
    "answers-forgotten": 4,
    "any-try-confirms": 10,
    "block-given-twice": 8,
    "broker-epoch-unchecked": 10,
    "broker-flaps": 33,
    "contacts-by-the-wall-clock": 8,
    "cordons-as-told": 13,
    "fence-goes-through": 425,
    "leaderships-stay": 2,
    "one-refusal-is-enough": 8,
    "outcomes-not-in-snapshots": 1,
    "partition-epoch-unchecked": 3,
    "queue-not-in-snapshots": 8,
    "reassigned-too-early": 30,
    "revert-forgotten": 1,
    "rules-stay-said": 1,
    "suspicion-stays": 8,
    "transaction-in-parts": 10,
}
"""Seeds that find these bugs soon. Seed 0 finds the others."""
SLOWER = {"any-try-confirms", "broker-epoch-unchecked", "fence-goes-through", "reassigned-too-early", "transaction-in-parts"}
"""Bugs that are hunted at night."""


class Played(NamedTuple):
    results: list[SeedResult]
    committed: Counter[tuple[str, bool | None]]
    """Numbers of records by type and, if the type has one, field `fenced`; reassignments by their changes."""


@pytest.fixture(scope="module")
def played() -> Played:
    committed: Counter[tuple[str, bool | None]] = Counter()
    extend = ReplayedLog.extend

    def counting(self: ReplayedLog, batch: CommittedBatch) -> None:
        if batch.end_offset > self.end_offset and batch.body:
            for record in codec.decode(batch.body):
                committed[type(record).__name__, getattr(record, "fenced", None)] += 1
                if getattr(record, "adding_replicas", None) or getattr(record, "removing_replicas", None):
                    committed["reassigning", None] += 1
                elif getattr(record, "target_replicas", None) == ():
                    committed["reassigned", None] += 1
        extend(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplayedLog, "extend", counting)
        results = [run_controllers(seed) for seed in range(SEEDS)]
    return Played(results, committed)


def test_twelve_seeds_break_no_rule(played: Played):
    results = played.results
    failures = [f"seed {r.seed}: {r.violations[0]}\n" + "\n".join(r.tail) for r in results if not r.ok]
    assert not failures, "\n\n".join(failures)
    assert sum(r.acknowledged for r in results) > 50 * SEEDS, "the controllers hardly got anything done"
    assert sum(r.epochs for r in results) > 2 * SEEDS, "leaders hardly ever changed"
    assert any(r.committed > 10_000 for r in results), "no change had more records than a batch holds"


def test_everything_that_administrators_and_brokers_do_reaches_the_log(played: Played):
    committed = played.committed
    kinds = ("Topic", "RemoveTopic", "Partition", "PartitionChange", "Config", "reassigning", "reassigned")
    kinds += ("StartMoves", "QueueMoves", "DequeueMoves", "ChangeMoveThrottles", "MovePlan")
    missing = [kind for kind in kinds if not committed[kind, None]]
    assert not missing
    assert committed["RegisterBroker", True]
    assert committed["BrokerRegistrationChange", False], "no broker was unfenced"
    assert committed["BrokerRegistrationChange", True], "no broker was fenced"
    assert committed["EndTransaction", None], "no change was a transaction"
    assert committed["RequestOutcome", None], "no request had an id"


def test_a_seed_is_a_run(played: Played):
    assert run_controllers(8).trace_hash == played.results[8].trace_hash


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in SLOWER)) for name in sorted(MUTANTS)])
def test_planted_bug_is_found(name):
    for seed in (FOUND_BY.get(name, 0), *range(40)):
        result = run_controllers(seed, mutant=name)
        if not result.ok:
            assert result.rule in MUTANTS[name].limits.rules
            return
    raise AssertionError(f"{MUTANTS[name].why}: not found")


def test_a_manager_that_fails_unexpectedly_is_noticed(monkeypatch):
    def fails(self: QuorumController, state: object, context: object) -> None:
        raise KeyError("nobody expects this")

    monkeypatch.setattr(QuorumController, "activation", fails)
    violation = run_controllers(2).violations[0]
    assert violation.startswith("M8")
    assert "nobody expects this" in violation


def test_an_image_that_differs_from_the_one_replayed_from_scratch_is_noticed():
    log = ReplayedLog()
    log.extend(CommittedBatch(0, 1, 1, 0, b""))
    body, _ = codec.encode([FeatureLevel(0, "metadata.version", 30)])
    log.extend(CommittedBatch(1, 2, 1, 0, body))
    log.compare(0, 1, EMPTY)
    log.compare(0, 2, log.state.image)
    with pytest.raises(Violation, match="M2"):
        log.compare(0, 2, EMPTY)


def test_the_command_plays_controllers_and_says_how_to_see_a_failure(capsys: pytest.CaptureFixture[str]):
    assert main.run(["sim", "--metadata", "--seeds", "2", "--start", "3"]) == 0
    assert main.run(["sim", "--metadata", "--seed", "17", "--mutant", "answer-before-commit"]) == 1
    assert "replay: kraftlab sim --seed 17 --metadata --mutant answer-before-commit --trace" in capsys.readouterr().out
    assert main.run(["sim", "--seed", "17", "--mutant", "answer-before-commit"]) == 64, "this bug is not one of consensus"
