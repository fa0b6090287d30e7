"""The histories of all partitions, made directly from the files of `silver.partition_changes`.

Each task handles the partitions of some buckets (`storage.buckets`): it reads their row groups, sorts the rows, makes their
histories (`audits.life_cycles_columns`), and writes all three resulting tables in one pass. Rows are not sent between tasks, nor
through the JVM, whose sort of rows with lists takes longer than everything else. `gold.life_cycles` and `gold.partition_states`
do the same with any DataFrame, with one shuffle.

A task has at most some hundred thousand rows in memory. A larger bucket is read several times, each time for part of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..audits.life_cycles_arrow import COLUMNS, STATE, Deletions
from ..audits.life_cycles_columns import histories_of
from ..own_log.columns import Vector
from ..storage import uris
from ..storage.buckets import ANY, BUCKETS, groups_of, hashes
from ..storage.parts import PARTS, DataFile, TaskFiles
from ..storage.schemas import arrow_schema, spark_schema
from ..storage.tasks import of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES = "silver.partition_changes"
TOPIC_COLUMNS = ["topic_id", "offset", "ts_ms", "op"]
ROWS_PER_TASK = 150_000
ROWS_AT_ONCE = 400_000
_SCHEMA = pa.schema([arrow_schema(CHANGES).field(name) for name in (*COLUMNS, "idx_in_batch")])


class Unit(NamedTuple):
    """The keys in memory at one time: those of some buckets whose hash falls into `part` of `parts`."""

    buckets: frozenset[int]
    part: int
    parts: int


class OrderedRows(NamedTuple):
    """Rows, and their order by partition, with the rows of each in the order of the log."""

    rows: pa.Table
    order: Vector


class _File(NamedTuple):
    path: str
    groups: list[tuple[int, int, int]]


class Job(NamedTuple):
    """Arguments of all tasks of one job. `directories` are those of the wanted tables, in the lake at `uri`."""

    uri: str
    paths: list[str]
    tasks: int
    deletions: Deletions
    directories: Mapping[str, str]
    until: int | None = None
    """The last offset to read."""


def job_of(changes: Sequence[DataFile], deletions: Deletions, uri: str, directories: Mapping[str, str]) -> Job:
    """Return the job that writes reassignments, their replicas and states, if they have a directory."""
    tasks = min(BUCKETS, 1 + sum(file.rows for file in changes) // ROWS_PER_TASK)
    return Job(uri, [file.path for file in changes], tasks, deletions, directories)


def run(spark: SparkSession, job: Job) -> DataFrame:
    """Run the job in Spark's workers. Its rows are `PARTS`."""

    return of_spark(spark, job.tasks, partial(run_task, job), PARTS)


def states_at(spark: SparkSession, changes: Sequence[DataFile], topics: pa.Table, uri: str, offset: int) -> DataFrame:
    """Return `silver.partition_state` after the record at an offset."""
    deletions = deletions_of(topics.filter(pc.less_equal(topics["offset"], offset)))
    job = job_of(changes, deletions, uri, {})._replace(until=offset)

    def states(number: int) -> Iterator[pa.RecordBatch]:
        for rows in units_of(job, number):
            yield from (batch for table, batch in histories_of(*rows, job.deletions) if table == STATE)

    return of_spark(spark, job.tasks, states, spark_schema(STATE))


def deletions_of(topics: pa.Table) -> dict[str, tuple[int, int]]:
    """Return topic id → (offset, ms) of its last removal, from rows with TOPIC_COLUMNS of `silver.topics`."""
    removed = topics.filter(pc.equal(topics["op"], "delete")).sort_by("offset").to_pylist()
    return {row["topic_id"]: (row["offset"], row["ts_ms"]) for row in removed}


def run_task(job: Job, number: int) -> Iterator[pa.RecordBatch]:
    """Run one task, here or in a worker."""
    with TaskFiles(job.uri, job.directories) as files:
        for rows in units_of(job, number):
            files.add_all(histories_of(*rows, job.deletions))
        yield from files.report()


def units_of(job: Job, number: int, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[OrderedRows]:
    """Yield the rows of one of several tasks, unit by unit."""
    from pyarrow import parquet

    system, root = uris.file_system(job.uri)
    files = []
    for path in job.paths:
        with parquet.ParquetFile(f"{root}/{path}", filesystem=system) as file:
            files.append(_File(path, groups_of(file)))
    for unit in _units(files, frozenset(range(number, BUCKETS, job.tasks)), rows_at_once):
        parts = []
        for path, groups in files:
            wanted = [group for group, bucket, _ in groups if bucket == ANY or bucket in unit.buckets]
            if wanted:
                with parquet.ParquetFile(f"{root}/{path}", filesystem=system) as file:
                    rows = file.read_row_groups(wanted, columns=_SCHEMA.names, use_threads=False).select(_SCHEMA.names)
                parts.append(_of_unit(rows.cast(_SCHEMA), unit, any(bucket == ANY for _, bucket, _ in groups)))
        if parts:
            rows = pa.concat_tables(parts)
            if job.until is not None:
                rows = rows.filter(pc.less_equal(rows["offset"], job.until))
            rows = rows.combine_chunks()
            yield OrderedRows(rows, _order(rows))


def _units(files: Sequence[_File], mine: frozenset[int], rows_at_once: int) -> Iterator[Unit]:
    sizes = dict.fromkeys(mine, 0)
    for _, bucket, rows in (group for file in files for group in file.groups):
        for each in mine if bucket == ANY else mine & {bucket}:
            sizes[each] += rows // BUCKETS + 1 if bucket == ANY else rows
    if sum(sizes.values()) <= rows_at_once:
        yield Unit(mine, 0, 1)
        return
    for bucket, rows in sorted(sizes.items()):
        parts = -(-rows // rows_at_once)
        for part in range(parts):
            yield Unit(frozenset({bucket}), part, parts)


def _of_unit(rows: pa.Table, unit: Unit, has_others: bool) -> pa.Table:
    """Return the rows with keys of the unit."""
    if not has_others and unit.parts == 1:
        return rows
    found = hashes(rows)
    is_mine = np.isin(found % BUCKETS, list(unit.buckets)) & ((found // BUCKETS) % unit.parts == unit.part)
    return rows.filter(pa.array(is_mine))


def _order(rows: pa.Table) -> Vector:
    """Return the order of the rows by `ORDER`, with topics in any order."""
    topics = rows["topic_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    keys = (topics << 32) + rows["partition"].to_numpy()
    offsets = rows["offset"].to_numpy()
    by_offset = np.argsort(offsets, kind="stable")
    if (np.diff(offsets[by_offset]) == 0).any():  # all records of a snapshot have one offset
        kinds = rows["kind"].combine_chunks().dictionary_encode()
        ranks = np.argsort(np.argsort(kinds.dictionary.to_numpy(zero_copy_only=False)))[kinds.indices.to_numpy()]
        by_offset = np.lexsort((rows["idx_in_batch"].to_numpy(), ranks, offsets))
    return by_offset[np.argsort(keys[by_offset], kind="stable")]
