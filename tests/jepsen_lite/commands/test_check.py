"""Stored runs are judged again, and the verdicts are written into them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_lite.commands.check import check, rechecked
from jepsen_lite.history import History, Op
from jepsen_lite.runs import EVERY_RUN
from jepsen_lite.store import RunDirectory, RunRecord, StoreError
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import Options, Run
from kraftlab.common.exit_codes import FAILED, UNFINISHED


def op(index: int, f: str, key: str, value: object = None, result: object = None) -> Op:
    return Op(
        index=index,
        process=index,
        f=f,
        key=key,
        value=value,
        result=result,
        outcome="ok",
        invoked_ns=10 * index,
        ended_ns=10 * index + 5,
    )


def stored(store: Path, seed: str, last_read: int, workload: str = "registers") -> RunDirectory:
    """Store a run of two registers; the result of the last read decides whether it is legal."""
    ops = [
        op(0, "set", "values/a/0", 1),
        op(1, "set", "values/b/0", 7),
        op(2, "set", "values/a/0", 2),
        op(3, "get", "values/b/0", None, 7),
    ]
    history = History([*ops, op(4, "get", "values/a/0", None, last_read)])
    directory = RunDirectory.new(store, workload, seed)
    old = Verdict(checker="stats", valid=False, reason="what an older version said")
    record = RunRecord(workload=workload, world="real", options=Options(seed=seed), verdicts=(old,))
    directory.write_run(record, Run(options=record.options, history=history))
    return directory


def by_checker(record: RunRecord) -> dict[str, Verdict]:
    return {verdict.checker: verdict for verdict in record.verdicts}


def test_a_run_gets_the_verdicts_of_today(tmp_path: Path) -> None:
    directory = stored(tmp_path, "1", last_read=1)
    record, run = rechecked(directory)
    assert len(run.history) == 5
    assert by_checker(record)["stats"].valid is True
    assert by_checker(record)["linearizable"].ops == (0, 2, 4)
    assert [(verdict.checker, verdict.reason) for verdict in directory.record().verdicts] == [
        (verdict.checker, verdict.reason) for verdict in record.verdicts
    ]


def test_the_docs_say_what_those_prove_that_judge_every_run() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "chaos-checkers.md").read_text()
    assert [checker.name for checker in EVERY_RUN if f"`{checker.name}`" not in docs] == []


def test_the_command_judges_runs_and_exits_with_the_worst(tmp_path: Path) -> None:
    bad, good = stored(tmp_path, "1", last_read=1), stored(tmp_path, "2", last_read=2)
    shown = CliRunner().invoke(check, [bad.name, good.name, "--store", str(tmp_path)])
    assert shown.exit_code == FAILED
    assert f"INVALID  {bad.name}" in shown.output
    assert "linearizable: key 'values/a/0': these operations cannot have happened one at a time" in shown.output
    newest = CliRunner().invoke(check, ["--store", str(tmp_path), "--json"])
    assert newest.exit_code == UNFINISHED
    (row,) = json.loads(newest.stdout.splitlines()[-1])
    assert (row["run"], row["valid"]) == (str(good.path), "unknown")
    assert "witness: the committed log was not kept" in CliRunner().invoke(check, ["--all", "--store", str(tmp_path)]).output


def test_one_that_cannot_be_judged_keeps_none_of_all_from_it(tmp_path: Path) -> None:
    stored(tmp_path, "1", last_read=1)
    stored(tmp_path, "2", last_read=2, workload="forgotten")
    (stored(tmp_path, "3", last_read=2).path / "history.parquet").unlink()
    shown = CliRunner().invoke(check, ["--all", "--store", str(tmp_path)])
    assert shown.exit_code == FAILED, "the worst of them"
    assert "not judged forgotten/" in shown.output and "unknown workload 'forgotten'" in shown.output
    assert shown.output.count("not judged registers/") == 1
    assert "linearizable: key 'values/a/0'" in shown.output


def test_more_search_steps_decide_more(tmp_path: Path) -> None:
    directory = stored(tmp_path, "1", last_read=1)
    hasty, _ = rechecked(directory, steps_max=1)
    assert by_checker(hasty)["linearizable"].reason.endswith("judge again: kraftlab chaos check --steps")
    assert by_checker(rechecked(directory, steps_max=1_000)[0])["linearizable"].valid is False


def test_a_search_that_a_checker_of_a_part_does_is_patient(tmp_path: Path) -> None:
    ops = [op(0, "registers.set", "values/a/0", 1), op(1, "registers.get", "values/a/0", None, 2)]
    directory = RunDirectory.new(tmp_path, "soak", "1")
    record = RunRecord(workload="soak", world="real", options=Options(seed="1"))
    directory.write_run(record, Run(options=record.options, history=History(ops)))
    name = "registers: linearizable"
    assert by_checker(rechecked(directory, steps_max=1)[0])[name].valid == "unknown"
    assert by_checker(rechecked(directory, steps_max=1_000)[0])[name].valid is False


def test_runs_that_cannot_be_judged_are_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run latest"):
        CliRunner().invoke(check, ["--store", str(tmp_path)], catch_exceptions=False)
    assert "there are no runs in" in str(CliRunner().invoke(check, ["--all", "--store", str(tmp_path)]).exception)
    stored(tmp_path, "1", last_read=1, workload="forgotten")
    unknown = CliRunner().invoke(check, ["--store", str(tmp_path)])
    assert "unknown workload 'forgotten'" in str(unknown.exception)
    assert "leave one of them out" in str(CliRunner().invoke(check, ["x", "--all"]).exception)
