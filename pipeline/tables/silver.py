"""The tables of silver, each made of the batches of bronze.

`batches` are rows of `bronze.batches`, each batch once (`bronze.chosen`). `spans` are the offsets of aborted transactions, whose
records never happened (`transactions`). All tables but that of partitions are cut from one pass over the
batches, `others`, which the caller may cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..lake.schemas import spark_schema
from . import other_rows, partition_rows
from .batch_rows import COLUMNS, NO_SPANS, Spans

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BEGIN, END, ABORT = 23, 24, 25


def partition_changes(batches: DataFrame, topics: DataFrame, spans: Spans = NO_SPANS) -> DataFrame:
    """`silver.partition_changes`. `topics` are rows of `silver.topics`, which give the names."""
    from pyspark.sql import functions as F

    def decode(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partition_rows.decoded(found, spans)

    columns = spark_schema(partition_rows.TABLE).split(", ")
    without_topic = ", ".join(column for column in columns if column.split()[0] != "topic")
    changes = batches.select(*COLUMNS).mapInArrow(decode, without_topic)
    named = changes.join(F.broadcast(_names(topics)), "topic_id", "left")
    return named.select(*(column.split()[0] for column in columns))


def _names(topics: DataFrame) -> DataFrame:
    """(topic_id, topic), each id once."""
    from pyspark.sql import functions as F

    return topics.where("name is not null").groupBy("topic_id").agg(F.any_value("name").alias("topic"))


def others(batches: DataFrame, spans: Spans = NO_SPANS, thorough: bool = False) -> DataFrame:
    """All records that are not of partitions, in the wide shape of `other_rows`."""

    def decode(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return other_rows.decoded(found, spans, thorough)

    return batches.select(*COLUMNS).mapInArrow(decode, other_rows.SCHEMA_TEXT)


def partition_count(rows: DataFrame) -> int:
    """How many partition records `others` passed over."""
    from pyspark.sql import functions as F

    (found,) = rows.where(F.col("t") == other_rows.PARTITIONS).agg(F.sum("offset")).collect()
    return int(found[0] or 0)


def _table(rows: DataFrame, kind: str, table: str) -> DataFrame:
    from pyspark.sql import functions as F

    names = [column.split()[0] for column in spark_schema(table).split(", ")]
    return rows.where(F.col("t") == kind).select(*names)


def topics(rows: DataFrame, earlier: DataFrame) -> DataFrame:
    """`silver.topics`. `earlier` are its rows of ranges before, for the names of topics that are deleted here."""
    from pyspark.sql import functions as F

    found = _table(rows, other_rows.TOPICS, "silver.topics")
    names = _names(found.unionByName(earlier)).withColumnRenamed("topic", "known")
    return found.join(F.broadcast(names), "topic_id", "left").withColumn("name", F.coalesce("name", "known")).drop("known")


def brokers(rows: DataFrame) -> DataFrame:
    """`silver.brokers`."""
    return _table(rows, other_rows.BROKERS, "silver.brokers")


def configs(rows: DataFrame) -> DataFrame:
    """`silver.configs`."""
    return _table(rows, other_rows.CONFIGS, "silver.configs")


def other_records(rows: DataFrame) -> DataFrame:
    """`silver.other_records`."""
    return _table(rows, other_rows.OTHER, "silver.other_records")


def transaction_markers(rows: DataFrame) -> DataFrame:
    """(offset, type) of the records that begin, end and abort transactions, of `others`; snapshots have none."""
    from pyspark.sql import functions as F

    return (
        rows.where((F.col("t") == other_rows.OTHER) & (F.col("kind") == other_rows.LOG))
        .where(F.col("type").isin(BEGIN, END, ABORT) & F.col("error").isNull())
        .select("offset", "type")
    )


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
