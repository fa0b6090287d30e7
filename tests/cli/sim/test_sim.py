"""`kraftlab sim`: seeds, plans, planted bugs; for people and for programs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlab.cli import main
from kraftlab.cli.tables import aligned
from kraftlab.quorum.trace import EVENTS
from kraftlab.simulation.consensus.coverage import EPOCH_RELATIONS
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.rules import RULES

BUG = "vote-before-store"
ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> int:
    return main.run(["sim", *arguments])


def test_the_same_seed_has_the_same_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "3", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert run("--seed", "3", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert first["hash"] == again["hash"] == first["trace_hash"]
    assert first["seed"] == 3
    assert first["violations"] == []
    assert run("--seed", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["hash"] != first["hash"]


def test_many_seeds_end_with_one_json_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seeds", "3", "--start", "5", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {"seeds", "violations", "core_steps_per_s", "simulated_per_real", "coverage"} <= document.keys()
    assert document["seeds"] == 3
    assert document["violations"] == []
    assert document["core_steps_per_s"] > 0
    assert document["simulated_per_real"] > 0
    assert set(document["coverage"]["transitions"]) == set(EPOCH_RELATIONS)
    assert set(document["coverage"]["faults"]) == set(FAULTS)
    assert "down" not in document["coverage"]["faults"]["resign"], "what is impossible is no hole"


def test_people_see_the_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seeds", "2", "--coverage") == 0
    shown = capsys.readouterr().out
    assert "candidate -> leader" in shown
    assert "-: there is no process to strike" in shown
    assert "2 seeds, all invariants held" in shown
    assert "seeds/s" in shown
    assert shown.splitlines()[-1].startswith("transitions ")


def test_a_trace_has_a_line_for_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "3", "--trace") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 100
    assert lines[0].startswith("# seconds  node (** is the world)  state, epoch e")


def test_a_violation_has_its_replay_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seeds", "2", "--mutant", BUG, "--faults", "kill,power-cut", "--json") == 1
    violation = json.loads(capsys.readouterr().out)["violations"][0]
    assert violation["invariant"] == "S17"
    assert violation["replay"] == f"kraftlab sim --seed {violation['seed']} --faults kill,power-cut --mutant {BUG}"
    assert set(violation["faults"]) <= {"kill", "power-cut"}
    assert main.run(violation["replay"].split()[1:]) == 1
    shown = capsys.readouterr().out
    assert "FAILED: S17" in shown
    assert "S17 means: no message leaves before its promise is on disk\n" in shown


def test_every_rule_that_the_simulator_breaks_has_its_sentence() -> None:
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("simulation/**/*.py")]
    named = {name for text in sources for name in re.findall(r'(?<=")[SLDMH]\d+(?= )', text)}
    assert {"S0", "S17", "L1", "M14", "H1"} <= named
    assert named <= set(RULES)


def test_a_failing_seed_shrinks_to_a_plan_and_a_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, test = tmp_path / "plan.json", tmp_path / "test_shrunk.py"
    files = ("--write-plan", str(plan), "--write-test", str(test))
    assert run("--seed", "1", "--mutant", BUG, "--shrink", *files) == 1
    shown = capsys.readouterr().out
    assert f"replay: kraftlab sim --plan {plan}" in shown
    assert json.loads(plan.read_text())["rule"] == "S17"
    assert run("--plan", str(plan), "--json") == 1
    assert json.loads(capsys.readouterr().out)["violations"][0].startswith("S17")
    assert run("--plan", str(plan)) == 1
    assert f"replay: kraftlab sim --plan {plan} --trace" in capsys.readouterr().out
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    assert subprocess.run(pytest_run, capture_output=True, timeout=60, cwd=tmp_path, check=False).returncode == 0


def test_ndjson_has_a_line_for_every_transition(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    assert run("--seed", "3", "--ndjson", str(path)) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["v"] for line in lines} == {1}
    assert {line["event"] for line in lines} <= EVENTS.keys()
    assert any(line["event"] == "state" and line.get("from") == "candidate" and line["state"] == "leader" for line in lines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give one of --seeds N, --seed S and --plan FILE"),
        (("--seeds", "2", "--seed", "1"), "give one of --seeds N, --seed S and --plan FILE"),
        (("--seeds", "2", "--trace"), "--trace is for one run"),
        (("--seed", "1", "--write-plan", "x"), "need --shrink"),
        (("--seed", "1", "--mutant", "nonsense"), "there is no mutant nonsense; there are\n  "),
        (("--seed", "1", "--mutant", "half-flus"), "there is no mutant half-flus; did you mean half-flush?\n"),
        (("--seed", "1", "--faults", "kill,rain"), "unknown fault rain; known: kill, "),
        (("--plan", "/nowhere/plan.json"), "cannot use /nowhere/plan.json"),
        (("--seed", "1", "--faults", "none", "--shrink"), "there is nothing to shrink"),
        (("mutants",), "unexpected extra argument (mutants)"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == (1 if says.startswith(("cannot use", "there is nothing")) else 64)
    assert says in capsys.readouterr().err


def test_a_file_that_is_not_a_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    for text, says in (
        ("{", "is not a fault plan"),
        ('{"options": 3, "strikes": []}', "is not a fault plan"),
    ):
        path.write_text(text)
        assert run("--plan", str(path)) == 1
        assert says in capsys.readouterr().err


def test_sigterm_ends_it_and_its_workers_without_a_word() -> None:
    command = [sys.executable, "-m", "kraftlab.cli.main", "sim", "--seeds", "100000", "--jobs", "2", "--mutant", BUG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("seed "), "its workers play"
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert said == ""
    assert process.returncode == -signal.SIGTERM


def test_tables_line_up() -> None:
    assert aligned([["name", "n"], ["a", "10"]], numbers_from=1) == ["name   n", "a     10"]
