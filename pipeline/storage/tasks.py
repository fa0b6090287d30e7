"""Tasks that run in Spark's Python workers and get everything by their number: no rows are sent to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[int], Iterator[pa.RecordBatch]]


def of_spark(spark: SparkSession, count: int, task: Task, schema: str) -> DataFrame:
    """Return a job of `count` tasks, numbered from 0, whose rows are those of the tasks. `task` is sent to the workers."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Arrow's own allocator gives memory back to the system at once, and every next column faults its pages in again.
        pa.set_memory_pool(pa.system_memory_pool())
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from task(number)

    return spark.range(0, count, 1, max(1, count)).mapInArrow(run, schema)
