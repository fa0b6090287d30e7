"""Searches of many stored runs at once on Spark: one row per key's history, judged by the same function as locally.

A history is sent as one JSON text, so that Spark handles few values. Rows are distributed by size, the longest first, to several
times as many partitions as there are task slots. This pays off for runs with hard keys or for thousands of runs; one short run is
judged faster than a Java machine starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from .recheck import Answers, KeyResult, KeyTask, answer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RESULT_SCHEMA = "result string"
PARTITIONS_PER_SLOT = 4


def dealt(tasks: Sequence[KeyTask], places: int) -> list[list[KeyTask]]:
    """Distribute the tasks to so many partitions with about the same number of operations: each task, the longest first, to the
    smallest partition.
    """
    heaps: list[list[KeyTask]] = [[] for _ in range(places)]
    sizes = [0] * places
    for task in sorted(tasks, key=lambda task: -len(task.ops)):
        smallest = sizes.index(min(sizes))
        heaps[smallest].append(task)
        sizes[smallest] += len(task.ops)
    return [heap for heap in heaps if heap]


def judge_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map rows with a column `task` (JSON) to rows with a column `result` (JSON), for `mapInArrow`."""
    import pyarrow as pa

    decode, encode = msgspec.json.Decoder(KeyTask).decode, msgspec.json.Encoder().encode
    for batch in batches:
        results = [encode(answer(decode(task))).decode() for task in batch.column("task").to_pylist()]
        yield pa.RecordBatch.from_pydict({"result": results}, schema=pa.schema([("result", pa.string())]))


def answers_of(spark: SparkSession, tasks: Sequence[KeyTask], slots: int) -> Answers:
    """Return the answer of every task. `slots` is the number of tasks that Spark runs at once."""
    import pyarrow as pa

    if not tasks:
        return {}
    heaps = dealt(tasks, slots * PARTITIONS_PER_SLOT)
    rows = [(place, msgspec.json.encode(task).decode()) for place, heap in enumerate(heaps) for task in heap]
    table = pa.table({"heap": [place for place, _ in rows], "task": [text for _, text in rows]})
    judged = (
        spark.createDataFrame(table)
        .repartitionByRange(len(heaps), "heap")
        .select("task")
        .mapInArrow(judge_rows, RESULT_SCHEMA)
        .toArrow()
    )
    decode = msgspec.json.Decoder(KeyResult).decode
    results = map(decode, judged.column("result").to_pylist())
    return {(result.run, result.checker, result.key): result.answer for result in results}
