"""Stored runs are judged again, here or on Spark with the same result, and the verdicts are written into them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_lite.commands.check import check
from jepsen_lite.history import History, Op
from jepsen_lite.recheck import Answers, KeyTask, answer, rechecked, tasks_of
from jepsen_lite.runs import EVERY_RUN
from jepsen_lite.spark_engine import dealt, judge_rows
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
    docs = (Path(__file__).parents[2] / "docs" / "chaos-checkers.md").read_text()
    assert [checker.name for checker in EVERY_RUN if f"`{checker.name}`" not in docs] == []


def test_answers_from_elsewhere_give_the_same_verdicts(tmp_path: Path) -> None:
    for seed, last_read in (("1", 1), ("2", 2)):
        directory = stored(tmp_path, seed, last_read)
        here, _ = rechecked(directory)
        results = [answer(task) for task in tasks_of(directory)]
        assert {result.key for result in results} == {"values/a/0", "values/b/0"}
        there, _ = rechecked(directory, {(result.run, result.checker, result.key): result.answer for result in results})
        assert by_checker(there)["linearizable"].details == by_checker(here)["linearizable"].details


def test_rows_of_tasks_become_rows_of_results(tmp_path: Path) -> None:
    import msgspec
    import pyarrow as pa

    tasks = list(tasks_of(stored(tmp_path, "1", last_read=1)))
    batch = pa.RecordBatch.from_pydict({"task": [msgspec.json.encode(task).decode() for task in tasks]})
    (results,) = judge_rows(iter([batch]))
    found = [json.loads(text) for text in results.column("result").to_pylist()]
    assert [(row["key"], row["answer"][0]) for row in found] == [("values/a/0", False), ("values/b/0", True)]


def test_tasks_are_dealt_out_by_size(tmp_path: Path) -> None:
    long, short = tasks_of(stored(tmp_path, "1", last_read=1))
    heaps = dealt([short, long, short, short], 2)
    assert [[task.key for task in heap] for heap in heaps] == [[long.key, short.key], [short.key, short.key]]


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


def test_nor_does_it_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers_of(spark: object, tasks: list[KeyTask], slots: int) -> Answers:
        return {(found.run, found.checker, found.key): found.answer for found in map(answer, tasks)}

    monkeypatch.setattr("jepsen_lite.spark_engine.answers_of", answers_of)
    monkeypatch.setattr("kraftlab.pipeline.session.factory.session", nullcontext)
    stored(tmp_path, "1", last_read=1)
    forgotten = stored(tmp_path, "2", last_read=2, workload="forgotten")
    (stored(tmp_path, "3", last_read=2).path / "history.parquet").unlink()
    words = ["--engine", "spark", "--store", str(tmp_path)]
    shown = CliRunner().invoke(check, ["--all", *words])
    assert shown.exit_code == FAILED, shown.exception
    assert shown.output.count("not judged ") == 2
    assert "linearizable: key 'values/a/0'" in shown.output
    assert "unknown workload 'forgotten'" in str(CliRunner().invoke(check, [forgotten.name, *words]).exception)


def test_more_search_steps_decide_more(tmp_path: Path) -> None:
    directory = stored(tmp_path, "1", last_read=1)
    hasty, _ = rechecked(directory, steps_max=1)
    assert by_checker(hasty)["linearizable"].reason.endswith("judge again: kraftlab chaos check --steps")
    assert by_checker(rechecked(directory, steps_max=1_000)[0])["linearizable"].valid is False
    assert {answer(task).answer.legal for task in tasks_of(directory, steps_max=1)} == {None}


def test_a_search_that_a_checker_of_a_part_does_is_patient_and_done_elsewhere_too(tmp_path: Path) -> None:
    ops = [op(0, "registers.set", "values/a/0", 1), op(1, "registers.get", "values/a/0", None, 2)]
    directory = RunDirectory.new(tmp_path, "soak", "1")
    record = RunRecord(workload="soak", world="real", options=Options(seed="1"))
    directory.write_run(record, Run(options=record.options, history=History(ops)))
    name = "registers: linearizable"
    assert by_checker(rechecked(directory, steps_max=1)[0])[name].valid == "unknown"
    assert by_checker(rechecked(directory, steps_max=1_000)[0])[name].valid is False
    tasks = {task.checker: task for task in tasks_of(directory, steps_max=1_000) if task.key == "values/a/0"}
    found = answer(tasks[name]).answer
    assert found.legal is False
    hasty = {(task.run, task.checker, task.key): found._replace(legal=None) for task in tasks_of(directory)}
    assert by_checker(rechecked(directory, hasty)[0])[name].valid == "unknown", "nothing is searched here"


def test_runs_that_cannot_be_judged_are_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run latest"):
        CliRunner().invoke(check, ["--store", str(tmp_path)], catch_exceptions=False)
    assert "there are no runs in" in str(CliRunner().invoke(check, ["--all", "--store", str(tmp_path)]).exception)
    stored(tmp_path, "1", last_read=1, workload="forgotten")
    unknown = CliRunner().invoke(check, ["--store", str(tmp_path)])
    assert "unknown workload 'forgotten'" in str(unknown.exception)
    assert "leave one of them out" in str(CliRunner().invoke(check, ["x", "--all"]).exception)
