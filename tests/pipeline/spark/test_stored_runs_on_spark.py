"""Orders of operations are searched for by Spark's workers as they are here."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen_lite.history import History, Op
from jepsen_lite.recheck import answer, rechecked, tasks_of
from jepsen_lite.spark_engine import answers_of
from jepsen_lite.store import RunDirectory, RunRecord
from jepsen_lite.workload import Options, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stored(store: Path, seed: int) -> RunDirectory:
    """A run of many registers, of which a few once show an old value."""
    chance = random.Random(seed)
    values: dict[str, int] = {}
    ops: list[Op] = []
    for index in range(300):
        key = f"values/t/{chance.randrange(20)}"
        at = 10 * index
        write = key not in values or chance.random() < 0.5
        shown = None if write else values[key] if chance.random() < 0.97 else -1
        if write:
            values[key] = index
        ops.append(
            Op(
                index=index,
                process=index % 5,
                f="set" if write else "get",
                key=key,
                value=index if write else None,
                result=shown,
                outcome="ok",
                invoked_ns=at - chance.randrange(30),
                ended_ns=at + chance.randrange(1, 30),
            )
        )
    directory = RunDirectory.new(store, "registers", str(seed))
    record = RunRecord(workload="registers", world="real", options=Options(seed=str(seed)))
    directory.write_run(record, Run(options=record.options, history=History(ops)))
    return directory


def test_spark_finds_what_is_found_here(spark: SparkSession, tmp_path: Path) -> None:
    runs = [stored(tmp_path, seed) for seed in range(3)]
    tasks = [task for run in runs for task in tasks_of(run)]
    assert len(tasks) > 40
    here = {(task.run, task.checker, task.key): answer(task).answer for task in tasks}
    there = answers_of(spark, tasks, slots=2)
    assert there == here
    assert {found.legal for found in there.values()} == {True, False}
    for run in runs:
        assert verdicts(rechecked(run, there)[0]) == verdicts(rechecked(run)[0])


def verdicts(record: RunRecord) -> list[tuple[object, ...]]:
    """The verdicts of a record, whatever time each took."""
    return [(verdict.checker, verdict.valid, verdict.reason, verdict.ops) for verdict in record.verdicts]
