"""Planted bugs: the table is complete, every bug can be planted, a quick part of the bugs is found, and missed bugs
are reported.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess

import msgspec
import pytest

from jepsen_lite.faults.shrink import Case
from jepsen_lite.mutants import canary, hash_seeds
from jepsen_lite.mutants import hunt as hunting
from jepsen_lite.mutants.hunt import KILLED, NOT_HERE, SURVIVED, hunt_bug, hunt_mutation
from jepsen_lite.mutants.smallest_example import Least, Size, of_run
from jepsen_lite.mutants.table import CANARY, LOG_DIRS, MUTATIONS, TABLES, Mutation, game_of
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import Options
from jepsen_lite.workloads import workload_named
from jepsen_lite.worlds.simulated import SimulatedRun, run_simulated
from kraftlab.checking.mutant import MutantDoesNotApply, Shown
from kraftlab.cli import main
from kraftlab.common.exit_codes import FAILED, USAGE

QUICK = {
    "R9": {"S19"},
    "R15": {"witness", "linearizable"},
    "C2": {"M3"},
    "X2": {"image: the run itself"},
}
"""One of each game, found within a few seeds; the tests of the simulators and of crash images have the others."""


def test_the_table_has_every_mutation_once_and_says_how_each_is_hunted():
    letters = {"R": 22, "C": 10, "M": 8, "X": 12}
    names = [f"{letter}{number}" for letter, count in letters.items() for number in range(1, count + 1)]
    assert list(MUTATIONS) == [*names, CANARY]
    for mutation in MUTATIONS.values():
        assert mutation.bugs, mutation.id
        for bug in mutation.bugs:
            assert game_of(bug)


def test_every_bug_of_the_mover_is_in_the_table() -> None:
    bugs = (bug for mutation in MUTATIONS.values() for bug in mutation.bugs if game_of(bug) == LOG_DIRS)
    assert {name for bug in bugs for name in bug.split("+")} == set(TABLES[LOG_DIRS])


@pytest.mark.parametrize("mutation_id", QUICK)
def test_a_planted_bug_is_seen(mutation_id: str):
    hunted = hunt_mutation(MUTATIONS[mutation_id], 20.0)
    assert hunted.status == KILLED, hunted
    seen = {part for oracle in hunted.oracles for part in oracle.split("+")}
    assert seen & QUICK[mutation_id], hunted.oracles


def test_without_a_bug_nothing_is_seen_and_the_budget_ends_the_hunt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hunting, "play", lambda bug, seed: Shown())
    missed = hunt_mutation(Mutation("Z1", "nothing", ("answer-before-commit",)), 1e-9)
    assert (missed.status, missed.seeds) == (SURVIVED, 1)


@pytest.mark.nightly
def test_two_processes_that_hash_strings_differently_show_that_a_set_of_strings_has_an_order():
    """Without the bug both processes do the same (test_simulated_world.py)."""
    finding = hunt_bug("answers-in-a-set", 30.0)
    assert (finding.found, finding.rule) == (True, "two hash seeds")
    output = re.fullmatch(r"seed \d+ is (\w+) .*with hash seed 1, (\w+) .*with 2", finding.words)
    assert output is not None and output[1] != output[2], finding.words
    assert finding.seconds > 0


SAFETY_LOST = Verdict(checker="witness", valid=False, reason="an acknowledged write is gone")
NODE_ENDED = Verdict(checker="node-crashes", valid=False, kind="crash", reason="it ended")


@pytest.mark.parametrize(("wrong", "status"), [((SAFETY_LOST, NODE_ENDED), KILLED), ((NODE_ENDED,), SURVIVED), ((), SURVIVED)])
def test_the_canary_counts_if_acknowledged_writes_are_lost(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[Verdict, ...], status: str
):
    monkeypatch.setattr(canary, "means", lambda: canary.Means("a library"))
    monkeypatch.setattr(canary, "run_canary", lambda library: canary.CanaryRun(wrong, 7))
    hunted = hunt_mutation(MUTATIONS[CANARY], 1.0)
    assert hunted.status == status
    assert hunted.oracles == (("witness",) if status == KILLED else ())


def test_a_machine_without_the_means_has_no_canary_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(canary, "means", lambda: canary.Means(why="power: only root mounts disks"))
    assert hunt_mutation(MUTATIONS[CANARY], 1.0).status == NOT_HERE
    assert main.run(["chaos", "mutants", "--ids", "canary", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "power: only root mounts disks" in out
    assert "cannot be hunted here: CANARY" in out


def test_a_bug_that_does_not_exist_is_not_hunted():
    with pytest.raises(MutantDoesNotApply, match="nonsense: unknown bug"):
        hunt_bug("nonsense", 1.0)


def test_a_bug_that_does_not_fit_the_code_takes_nothing_from_those_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def play(bug: str, seed: int) -> Shown[None]:
        if bug == "observers-count":
            raise MutantDoesNotApply("observers-count: there is no such function")
        return Shown("S8", "S8 says so")

    monkeypatch.setattr(hunting, "play", play)
    assert main.run(["chaos", "mutants", "--ids", "R9,X12,R1", "--jobs", "1", "--json"]) == 1
    output = capsys.readouterr()
    assert [one["id"] for one in json.loads(output.out)["mutations"]] == ["R9"]
    assert "no longer fits the code: observers-count" in output.err


def test_the_command_names_the_oracle_of_each_bug_and_fails_for_a_missed_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def play(bug: str, seed: int) -> Shown[None]:
        return Shown() if bug == "no-divergence" else Shown("S8", "S8 says so")

    monkeypatch.setattr(hunting, "play", play)
    assert main.run(["chaos", "mutants", "--ids", "R9,X12", "--jobs", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    score = document["score"]
    [bug] = document["mutations"][0]["bugs"]
    assert (bug["name"], bug["found"], bug["oracle"], bug["seeds"]) == ("minority-commits", True, "S8", 1)
    assert (score["core_killed"], score["core"], score["stretch_killed"], score["stretch"]) == (1, 1, 1, 1)
    assert score["survived"] == []
    assert score["median_s"] == score["worst_s"] <= score["seconds"]
    assert main.run(["chaos", "mutants", "--ids", "r9,r10", "--budget", "0.01", "--jobs", "1"]) == FAILED
    assert "survived: R10" in capsys.readouterr().out


def test_a_failing_seed_is_shrunk_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]):
    assert main.run(["chaos", "mutants", "--ids", "r4", "--jobs", "1", "--shrink", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [bug] = document["mutations"][0]["bugs"]
    least = bug["least"]
    assert (least["faults"], least["operations"], least["is_least"]) == (0, 2, True)
    assert least["nodes"] <= least["of"]["nodes"]
    assert least["of"]["operations"] > 100
    assert document["score"]["shrunk"]["faults"] == {"median": 0, "p90": 0, "worst": 0, "goal": 8, "within_goal_percent": 100.0}


def test_a_workloads_run_is_shrunk_as_long_as_the_same_checker_finds_something():
    workload, asking = workload_named("registers"), Options(time_s=2, rate=20, concurrency=2, timeout_ms=500)
    wrong = (Verdict(checker="witness", valid=False, reason="gone"),)
    played = run_simulated(workload, 3, asking, is_checked=False)
    assert len(played.plan.actions) > 1
    culprit = played.plan.actions[1]

    def replay(case: Case) -> SimulatedRun:
        options = msgspec.structs.replace(played.run.options, rate=case.options.rate)
        run = msgspec.structs.replace(played.run, options=options, history=played.run.history[:3])
        return played._replace(run=run, verdicts=wrong if culprit in case.actions else ())

    found = of_run(played._replace(verdicts=wrong), replay, 60.0)
    assert (found.size.faults, found.size.operations, found.kinds) == (1, 3, (culprit.kind,))
    assert found.of.faults == len(played.plan.actions)
    assert found.size.nodes < found.of.nodes
    assert found.is_least
    assert not of_run(played._replace(verdicts=wrong), replay, 0.0).is_least


def test_the_sizes_of_shrunk_runs_are_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    sizes = iter((Size(1, 4, 3), Size(9, 80, 6)))

    def shrunk(bug: str, evidence: object, budget_s: float) -> Least:
        size = next(sizes)
        return Least(size, Size(70, 300, 6), ("clog", "kill"), ("no request is lost",), 44, 2.5, size.faults < 9)

    monkeypatch.setattr(hunting, "play", lambda bug, seed: Shown("S8", "S8 says so", evidence=seed))
    monkeypatch.setattr(hunting, "shrunk", shrunk)
    assert main.run(["chaos", "mutants", "--ids", "R9,R10", "--jobs", "1", "--shrink"]) == 0
    out = capsys.readouterr().out
    assert (
        "1 of 70 faults (clog, kill), 4 of 300 operations, 3 of 6 nodes; but not 'no request is lost'; 44 replays in 2.5 s" in out
    )
    assert "9 of 70 faults (clog, kill), 80 of 300 operations, 6 of 6 nodes" in out
    assert "44 replays in 2.5 s, not finished" in out
    assert "2 shrunk in 5 processor s and 88 replays; 1 not finished" in out
    assert "faults     5 in the median, 9 in 90 %, 9 at most; at most 8 in 50 %" in out


def test_wrong_ids_and_budgets_are_named(capsys: pytest.CaptureFixture[str]):
    assert main.run(["chaos", "mutants", "--ids", "R99"]) == USAGE
    assert "no mutation R99; did you mean R9" in capsys.readouterr().err
    assert main.run(["chaos", "mutants", "--budget", "soon"]) == USAGE
    assert "invalid duration soon: expected e.g. 15s or 2m" in capsys.readouterr().err


def test_a_canary_whose_run_cannot_be_kept_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "find_spec", lambda name: None)
    hunted = hunt_mutation(MUTATIONS[CANARY], 1.0)
    assert (hunted.status, hunted.findings) == (NOT_HERE, ())
    assert "pip install -e '.[chaos]'" in hunted.why


def test_processes_that_do_not_end_in_time_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def stuck(name: str, first: int, count: int, hash_seed: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(["sleep", "30"], stdout=subprocess.PIPE, text=True))
        return started[-1]

    monkeypatch.setattr(hash_seeds, "started", stuck)
    monkeypatch.setattr(hash_seeds, "_TIMEOUT_S", 0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        hash_seeds.compared("", 0)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
