"""A stored run is played again, and a failing one is shrunk to a test that fails as long as its bug is there."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from jepsen_lite.command import HarnessError, WrongUse, chaos
from jepsen_lite.commands.replay import trial_of
from jepsen_lite.commands.shrink import Search
from jepsen_lite.commands.shrink import test_text as text_of_test
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.faults.shrink import Case
from jepsen_lite.progress import Progress
from jepsen_lite.runs import Trial, run_test
from jepsen_lite.store import RunDirectory, RunRecord, StoreError
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import Options
from kraftlab.checking.mutant import planted
from kraftlab.cli.output import CommandFailed
from kraftlab.simulation.metadata.mutants import MUTANTS

RUN = ("test", "-w", "registers", "-n", "all", "--world", "simulated", "--time", "2", "--rate", "60", "--seed", "0")


def invoke(*words: str) -> tuple[int, Any]:
    """Return (exit code, the last line if it is JSON, otherwise the whole output)."""
    result = CliRunner().invoke(chaos, words)
    if isinstance(result.exception, CommandFailed):
        return result.exception.exit_code, str(result.exception)
    last = result.stdout.strip().splitlines()[-1] if result.stdout.strip() else ""
    return result.exit_code, json.loads(last) if last.startswith("{") else result.output


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def honest(store: str) -> dict[str, Any]:
    """Return the result of a run without faults."""
    code, result = invoke(*RUN, "--store", store, "--json")
    assert code == 0
    return dict(result)


def test_a_simulated_run_is_replayed_to_the_last_operation(store: str, honest: dict[str, Any]) -> None:
    code, again = invoke("replay", honest["run"], "--store", store, "--json")
    assert (code, again["ops"]) == (0, honest["ops"])
    assert again["run"] != honest["run"]
    first, second = RunDirectory(Path(honest["run"])), RunDirectory(Path(again["run"]))
    assert first.run().history[:] == second.run().history[:]
    assert first.plan() == second.plan()


def test_a_run_of_a_given_plan_names_its_replay_command(store: str, honest: dict[str, Any], tmp_path: Path) -> None:
    """Its seed would draw other faults."""
    given = RunDirectory(Path(honest["run"]))
    trial = trial_of(given.record(), FaultPlan(seed="0"))
    tried = run_test(trial, str(tmp_path / "runs"), Progress("", is_terminal=False, write=lambda text: None))
    *words, path = tried.record.command.split()
    assert words == ["kraftlab", "chaos", "replay"]
    assert RunDirectory.find(path).plan().actions == () != given.plan().actions


@pytest.mark.parametrize("options", [Options(time_s=1234.567), Options(rate=200 / 3)])
def test_the_command_of_a_run_has_its_numbers_to_the_last_digit(options: Options) -> None:
    words = Trial("registers", "simulated", (), options).command.split()
    given = {name: float(words[words.index(name) + 1]) for name in ("--time", "--rate")}
    assert given == {"--time": options.time_s, "--rate": options.rate}


@pytest.mark.parametrize(("links", "net"), [("proxy", "links"), ("netns", "netns"), ("nft", "links"), ("", "links")])
def test_a_run_is_replayed_in_the_net_that_it_was_in(links: str, net: str) -> None:
    record = RunRecord(workload="registers", world="real", options=Options(), links=links)
    trial = trial_of(record, FaultPlan(seed="0"))
    assert trial.net == net
    assert f"net={json.dumps(net)}," in text_of_test(trial, FaultPlan(seed="0"), ())


@pytest.mark.parametrize(
    ("workload", "kind", "says"),
    [("weather", "kill", "unknown workload 'weather'"), ("registers", "rain", "unknown nemesis rain; known: ")],
)
def test_a_run_of_what_this_version_does_not_have_is_said(workload: str, kind: str, says: str) -> None:
    record = RunRecord(workload=workload, world="real", options=Options())
    with pytest.raises(WrongUse, match=f"{says}.*; the run comes from .*another version"):
        trial_of(record, FaultPlan(seed="0", actions=(Action(at_ms=1, kind=kind),)))


def test_a_run_with_a_bug_is_shrunk_to_a_test_that_shows_it(store: str, tmp_path: Path) -> None:
    with planted(MUTANTS["answer-before-commit"]):
        code, result = invoke(*RUN, "--store", store, "--json")
        assert code == 1
        shrunk_code, shrunk = invoke("shrink", result["run"], "--store", store, "--json", "--to", str(tmp_path / "found"))
        assert shrunk_code == 0
        assert shrunk["actions"] <= min(shrunk["of"], 4)
        assert shrunk["is_least"]
        assert len(json.loads(Path(shrunk["plan"]).read_text())["actions"]) == shrunk["actions"]
        with pytest.raises(AssertionError):
            run_the_test(Path(shrunk["test"]), tmp_path)
    run_the_test(Path(shrunk["test"]), tmp_path)


def run_the_test(path: Path, directory: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    names["test_registers_holds"](directory / "again")


@pytest.mark.parametrize(
    ("checker", "valid", "passes"),
    [("witness", True, True), ("stats", "unknown", True), ("witness", "unknown", False), ("stats", False, False)],
)
def test_a_bug_is_gone_when_its_checker_passes(checker: str, valid: Any, passes: bool, tmp_path: Path) -> None:
    found = Verdict(checker="witness", valid=False, reason="a write is lost")
    trial = Trial("registers", "simulated", (), Options(), FaultPlan(seed="0"))
    names: dict[str, Any] = {}
    exec(compile(text_of_test(trial, FaultPlan(seed="0"), (found,)), "it", "exec"), names)
    names["run_test"] = lambda *_: Found((Verdict(checker=checker, valid=valid),))
    with nullcontext() if passes else pytest.raises(AssertionError):
        names["test_registers_holds"](tmp_path)


def test_a_run_that_did_not_fail_is_not_shrunk(store: str, honest: dict[str, Any]) -> None:
    code, output = invoke("shrink", honest["run"], "--store", store)
    assert code == 64
    assert "did not fail; name a run that is INVALID" in output


def test_a_missing_run_is_reported(store: str) -> None:
    code, output = invoke("replay", "nothing", "--store", store)
    assert code == 1
    assert "no run nothing" in output


class Run(NamedTuple):
    cut_short: str = ""


class Found(NamedTuple):
    verdicts: tuple[Verdict, ...]
    run: Run = Run()


def searching(*answers: Found | BaseException, tries: int = 1) -> Search:
    """Return a search whose runs end with these results, one after the other."""
    left = list(answers)

    def run(case: Case) -> Any:
        answer = left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return Search(frozenset({("witness", "safety")}), tries, time.monotonic() + 60, run)


CASE = Case(Options(), ())
FAILS = Found((Verdict(checker="witness", valid=False),))
PASSES = Found((Verdict(checker="witness", valid=True),))


def test_other_failures_do_not_count() -> None:
    assert not searching(Found((Verdict(checker="availability", valid=False),))).fails(CASE)
    assert not searching(Found((Verdict(checker="witness", valid=False, kind="liveness"),))).fails(CASE)
    assert searching(FAILS).fails(CASE)


def test_a_case_passes_only_if_all_its_tries_do() -> None:
    assert searching(PASSES, FAILS, tries=2).fails(CASE)
    assert not searching(PASSES, PASSES, tries=2).fails(CASE)


def test_one_failed_run_ends_no_search_but_many_do() -> None:
    refused = HarnessError("the port is taken")
    assert searching(refused, FAILS, tries=2).fails(CASE)
    with pytest.raises(HarnessError, match="the port is taken"):
        searching(*[refused] * 4, tries=4).fails(CASE)


@pytest.mark.parametrize("refused", [HarnessError("the port is taken"), StoreError("cannot keep runs: No space left on device")])
def test_a_search_keeps_its_find_when_runs_fail(refused: Exception) -> None:
    search = searching(FAILS, *[refused] * 4)
    assert search.fails(CASE)
    assert [search.fails(CASE) for _ in range(5)] == [False] * 5
    assert search.found is FAILS
    assert search.is_over, "the search was ended, so its find may not be the smallest"


def test_a_search_that_is_ended_tries_no_more() -> None:
    search = searching(Found(FAILS.verdicts, Run("SIGINT")))
    assert search.fails(CASE)
    assert search.is_over
    assert not search.fails(CASE)
    search = searching(KeyboardInterrupt(), FAILS, tries=2)
    assert not search.fails(CASE)
    assert search.is_over
