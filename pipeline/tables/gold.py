"""Gold tables: what follows from the silver ones. DataFrame in, DataFrame out; nothing is read or written here.

The life cycles of reassignments are stepped partition by partition: all rows of a partition in one stream, in the order of the
log, through the same state machine that is the oracle (`audits.life_cycles`). One shuffle brings them together; its number of
partitions is left to Spark, which fits it to the data. Nothing may stand between the sort and the stepper, which refuses rows
that step back.

Everything here runs over Spark Connect as well: no RDD, no context of Spark's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ..audits.life_cycles_arrow import COLUMNS, KEY, LIFE_CYCLES_TEXT, ORDER, life_cycles_of
from ..lake.schemas import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def life_cycles(changes: DataFrame, topics: DataFrame | None = None) -> DataFrame:
    """`silver.partition_changes` (and `silver.topics`, for topics that were deleted) to reassignments, each with its replicas in
    a list: what `reassignments` and `reassignment_replicas` are made of. Keep it (`persist`) if both are wanted.
    """
    rows = changes.select(*COLUMNS, "idx_in_batch")
    if topics is not None:
        rows = rows.unionByName(_deletions(changes, topics), allowMissingColumns=True)
    ordered = rows.repartition(*KEY).sortWithinPartitions(*ORDER)
    return ordered.mapInArrow(life_cycles_of, LIFE_CYCLES_TEXT)


def _deletions(changes: DataFrame, topics: DataFrame) -> DataFrame:
    """One row for each partition of a deleted topic, to be stepped after its changes."""
    deleted = topics.where("op = 'delete'").groupBy("topic_id").agg(F.min(F.struct("offset", "ts_ms")).alias("deletion"))
    partitions = changes.join(F.broadcast(deleted), "topic_id").groupBy("topic_id", "partition")
    return partitions.agg(F.max("topic").alias("topic"), F.max("deletion").alias("deletion")).select(
        "topic_id", "topic", "partition", "deletion.*", F.lit("delete").alias("kind"), F.lit(0).alias("idx_in_batch")
    )


def reassignments(cycles: DataFrame) -> DataFrame:
    """`gold.reassignments` of `life_cycles`."""
    return cycles.select(*arrow_schema("gold.reassignments").names)


def reassignment_replicas(cycles: DataFrame) -> DataFrame:
    """`gold.reassignment_replicas` of `life_cycles`."""
    return cycles.select("reassignment_id", F.inline("replicas"))
