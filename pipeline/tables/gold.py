"""Conclusions from silver tables of any DataFrame: DataFrame in, DataFrame out; nothing is read or written here.

One shuffle brings all rows of a partition (for drift, of a topic) into one stream, in the order of the log, for the kernels of
`audits/` that a build of a lake uses as well. Spark chooses the number of partitions of the shuffle by the data. Nothing can come
between the sort and the stepper, which refuses rows that step back.

Everything here runs over Spark Connect as well, without RDDs and without Spark's context.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ..audits import drift_arrow
from ..audits.drift import RACE_WINDOW_MS
from ..audits.life_cycles_arrow import COLUMNS, KEY, LIFE_CYCLES_TEXT, ORDER, STATE, Deletions, life_cycles_of, states_of
from ..storage.schemas import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def life_cycles(changes: DataFrame, topics: DataFrame | None = None) -> DataFrame:
    """Turn `silver.partition_changes` (and `silver.topics`, for deleted topics) into reassignments, each with its replicas in a
    list, the input of `reassignments` and `reassignment_replicas`. Persist the result if both are needed. Deleted topics are
    collected at once and sent to the workers with the tasks. A partition's topic has the name that any of its rows has.
    """
    deletions = {} if topics is None else _deletions(topics)
    return _ordered(changes).mapInArrow(partial(life_cycles_of, deletions=deletions), LIFE_CYCLES_TEXT)


def partition_states(changes: DataFrame, topics: DataFrame, at_offset: int | None = None) -> DataFrame:
    """Return `silver.partition_state` after the record at `at_offset` (None: after all) of all partitions whose topic exists
    then.
    """
    if at_offset is not None:
        changes = changes.where(F.col("offset") <= at_offset)
        topics = topics.where(F.col("offset") <= at_offset)
    return _ordered(changes).mapInArrow(partial(states_of, deletions=_deletions(topics)), spark_schema(STATE))


def _ordered(changes: DataFrame) -> DataFrame:
    name = F.max("topic").over(Window.partitionBy(*KEY))
    together = changes.select(*COLUMNS, "idx_in_batch").repartition(*KEY).withColumn("topic", name)
    return together.sortWithinPartitions(*ORDER)


def _deletions(topics: DataFrame) -> Deletions:
    """Return topic id → (offset, ms) of its last removal."""
    deleted = topics.where("op = 'delete'").groupBy("topic_id").agg(F.max(F.struct("offset", "ts_ms")).alias("deletion"))
    return {row["topic_id"]: tuple(row["deletion"]) for row in deleted.collect()}


def reassignments(cycles: DataFrame) -> DataFrame:
    """Return `gold.reassignments` of `life_cycles`."""
    return cycles.select(*arrow_schema("gold.reassignments").names)


def reassignment_replicas(cycles: DataFrame) -> DataFrame:
    """Return `gold.reassignment_replicas` of `life_cycles`."""
    return cycles.select("reassignment_id", F.inline("replicas"))


def rf_drift(found: DataFrame, states: DataFrame, race_window_ms: int = RACE_WINDOW_MS) -> DataFrame:
    """Return `gold.rf_drift` of `gold.reassignments` and `silver.partition_state`."""

    def of_topic(cycles: pa.Table, settled: pa.Table) -> pa.Table:
        return drift_arrow.rf_drift(lambda columns: [cycles.select(columns)], settled, race_window_ms=race_window_ms)

    by_topic = found.groupBy("topic_id").cogroup(states.select(*drift_arrow.STATE_COLUMNS).groupBy("topic_id"))
    return by_topic.applyInArrow(of_topic, spark_schema(drift_arrow.TABLE))
