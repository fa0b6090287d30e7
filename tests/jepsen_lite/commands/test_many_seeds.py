"""Many seeds have one verdict, whether or not their runs can be kept."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from jepsen_lite import seeds
from jepsen_lite.command import HarnessError
from jepsen_lite.commands import many_seeds
from jepsen_lite.runs import Trial
from jepsen_lite.seeds import Seed
from jepsen_lite.store import StoreError
from jepsen_lite.verdicts import HARNESS, UNKNOWN, Verdict
from jepsen_lite.workload import Options
from kraftlab.cli.output import Output
from kraftlab.common.exit_codes import FAILED

BAD = Verdict(checker="witness", valid=False, reason="a write is lost")
NOT_SURE = Verdict(checker="stats", valid=UNKNOWN, reason="set never succeeded")
COUNTS = {"ok": 7, "fail": 0, "info": 1}


def played(monkeypatch: pytest.MonkeyPatch, *seeds: Seed) -> list[Trial]:
    """Let these seeds be the results of `play_seeds`; return their trials."""
    monkeypatch.setattr(many_seeds, "play_seeds", lambda trials, jobs: iter(seeds))
    return [seed.trial for seed in seeds]


def seed(name: str, *verdicts: Verdict) -> Seed:
    return Seed(Trial("registers", "simulated", (), Options(seed=name)), verdicts, counts=COUNTS)


@pytest.mark.parametrize(
    ("error", "verdict", "valid"),
    [
        (HarnessError("the harness failed: no reason"), BAD, False),
        (StoreError("cannot keep runs in /full: No space left on device"), BAD, False),
        (HarnessError("the harness failed: no reason"), NOT_SURE, UNKNOWN),
    ],
)
def test_a_run_that_cannot_be_kept_costs_nothing_but_its_page(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    verdict: Verdict,
    valid: Any,
) -> None:
    kept: list[str] = []

    def keep(trial: Trial) -> Any:
        if trial.options.seed == "2":
            raise error
        kept.append(trial.options.seed)
        return SimpleNamespace(directory=SimpleNamespace(path=f"runs/{trial.options.seed}"))

    trials = played(monkeypatch, seed("1"), seed("2", verdict), seed("3"), seed("4", verdict))
    assert many_seeds.play_many(trials, 1, Output(True), keep) == FAILED
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert (document["seeds"], document["not_valid"], document["valid"]) == (4, ["2", "4"], valid)
    assert (document["ops"]["ok"], document["runs"], kept) == (28, ["runs/4"], ["4"])
    assert f"seed 2 was not kept: {error}" in output.err


def test_a_harness_that_fails_in_one_seed_plays_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(workload: Any, seed: str, *others: Any, **more: Any) -> Any:
        raise KeyError("partitions")

    monkeypatch.setattr(seeds, "run_simulated", run)
    trial = seed("1").trial
    (played,) = seeds.play_seeds([trial])
    assert (played.failure, played.ending) == ("the harness failed: KeyError: 'partitions'", HARNESS)
