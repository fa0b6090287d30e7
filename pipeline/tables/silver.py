"""The tables of silver, each made of the batches of bronze.

`batches` are rows of `bronze.batches`, each batch once (`bronze.chosen`). `spans` are the offsets of aborted transactions, whose
records never happened (`transactions`). All tables but that of partitions are cut from one pass over the
batches, `others`, which the caller may cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..lake.schemas import spark_schema
from . import other_rows, partition_rows
from .batch_rows import COLUMNS, NO_SPANS, Spans

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BEGIN, END, ABORT = 23, 24, 25


def partition_changes(batches: DataFrame, names: Mapping[str, str], spans: Spans = NO_SPANS) -> DataFrame:
    """`silver.partition_changes`. `names` are those of topics by id (`topic_names`)."""

    def decode(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partition_rows.decoded(found, names, spans)

    return batches.select(*COLUMNS).mapInArrow(decode, spark_schema(partition_rows.TABLE))


def topic_names(topics: DataFrame) -> dict[str, str]:
    """Name by id, of all topics that `silver.topics` ever saw. They go to the workers with the task: a join would cost more."""
    found = topics.where("op = 'create'").select("topic_id", "name").distinct().collect()
    return {row.topic_id: row.name for row in found}


def others(batches: DataFrame, spans: Spans = NO_SPANS, thorough: bool = False) -> DataFrame:
    """All records that are not of partitions, in the wide shape of `other_rows`."""

    def decode(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return other_rows.decoded(found, spans, thorough)

    return batches.select(*COLUMNS).mapInArrow(decode, other_rows.SCHEMA_TEXT)


class Marks(NamedTuple):
    """What a first look at `others` says: (offset, type) of the records that begin, end and abort transactions, and how many
    partition records were passed over (None: they were looked at).
    """

    markers: tuple[tuple[int, int], ...]
    partitions: int | None


def marks(rows: DataFrame) -> Marks:
    """The marks of `others`. Snapshots have no transactions."""
    from pyspark.sql import functions as F

    is_marker = (F.col("kind") == other_rows.LOG) & F.col("type").isin(BEGIN, END, ABORT) & F.col("error").isNull()
    found = rows.where((F.col("t") == other_rows.PARTITIONS) | is_marker).select("t", "offset", "type").collect()
    return Marks(
        tuple((row.offset, row.type) for row in found if row.t == other_rows.OTHER),
        sum(row.offset for row in found if row.t == other_rows.PARTITIONS),
    )


def _table(rows: DataFrame, kind: str, table: str) -> DataFrame:
    from pyspark.sql import functions as F

    names = [column.split()[0] for column in spark_schema(table).split(", ")]
    return rows.where(F.col("t") == kind).select(*names)


def topics(rows: DataFrame, earlier: DataFrame) -> DataFrame:
    """`silver.topics`. `earlier` are its rows of other ranges, for the names of topics that are deleted here."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    found = _table(rows, other_rows.TOPICS, "silver.topics").withColumn("is_new", F.lit(True))
    all_rows = found.unionByName(earlier.withColumn("is_new", F.lit(False)))
    known = F.first("name", ignorenulls=True).over(Window.partitionBy("topic_id"))
    return all_rows.withColumn("name", F.coalesce("name", known)).where("is_new").select(*found.columns[:-1])


def brokers(rows: DataFrame) -> DataFrame:
    """`silver.brokers`."""
    return _table(rows, other_rows.BROKERS, "silver.brokers")


def configs(rows: DataFrame) -> DataFrame:
    """`silver.configs`."""
    return _table(rows, other_rows.CONFIGS, "silver.configs")


def other_records(rows: DataFrame) -> DataFrame:
    """`silver.other_records`."""
    return _table(rows, other_rows.OTHER, "silver.other_records")


class Transactions(NamedTuple):
    """Stretches [from, to) of aborted ones, and where one begins that has not ended (None: all have)."""

    aborted: tuple[tuple[int, int], ...]
    open_from: int | None


def transactions(markers: Iterable[tuple[int, int]]) -> Transactions:
    """What (offset, type) of markers say. An end without a beginning belongs to a transaction that a snapshot or a gap
    swallowed.
    """
    aborted = []
    begun: int | None = None
    for offset, number in sorted(markers):
        if number == BEGIN:
            begun = offset
        elif begun is not None:
            if number == ABORT:
                aborted.append((begun, offset + 1))
            begun = None
    return Transactions(tuple(aborted), begun)


def needed_snapshots(holes: Iterable[tuple[int, int]], found: Iterable[tuple[str, int]], has_segments: bool) -> set[str]:
    """Which snapshots (name, end offset) the state needs beside the segments: behind each hole the first that reflects it; the
    last one if there are no segments; what formatting wrote always.
    """
    by_end = sorted((end, name) for name, end in found)
    needed = {name for end, name in by_end if end <= 0}
    if not has_segments:
        return needed | {name for _, name in by_end[-1:]}
    for _, hole_end in holes:
        needed |= {name for end, name in by_end if end >= hole_end and end == min(e for e, _ in by_end if e >= hole_end)}
    return needed
