"""What the batches of `bronze.batches` say about the logs: where offsets are missing, and where logs disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lake.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SNAPSHOTS = "%.checkpoint"


def offset_gaps(batches: DataFrame, quarantine: DataFrame, starts: DataFrame, lo: int, hi: int) -> DataFrame:
    """`bronze.offset_gaps`: stretches [from, to) within [lo, hi) that a controller's segments do not hold.

    `starts` has (controller_id, log_start): the offset that the name of its first segment says; what lies below was compacted. A
    hole that a quarantined stretch borders on is its doing; any other is a segment that is not there. That a log ends early is
    no gap, unless something is quarantined there.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    same = ("controller_id", "format", "cluster_id")
    segments = batches.where(~F.col("segment").like(SNAPSHOTS)).select(*same, "base_offset", "last_offset")
    walls = starts.crossJoin(segments.select("format", "cluster_id").limit(1))
    edges = walls.select(*same, F.lit(lo - 1).alias("base_offset"), F.lit(lo - 1).alias("last_offset"))
    order = Window.partitionBy("controller_id").orderBy("base_offset")
    holes = (
        segments.unionByName(edges)
        .withColumn("from_offset", F.max("last_offset").over(order.rowsBetween(Window.unboundedPreceding, -1)) + 1)
        .where("from_offset < base_offset")
        .select(*same, "from_offset", F.col("base_offset").alias("to_offset"))
    )
    marks = quarantine.where(~F.col("segment").like(SNAPSHOTS)).select(
        "controller_id", (F.col("prev_offset") + 1).alias("mark_from"), F.col("next_offset").alias("mark_to")
    )
    tails = (
        segments.groupBy(*same)
        .agg((F.max("last_offset") + 1).alias("from_offset"))
        .join(marks, "controller_id")
        .where((F.col("mark_from") == F.col("from_offset")) & F.col("mark_to").isNull() & (F.col("from_offset") < hi))
        .select(*same, "from_offset", F.lit(hi).cast("bigint").alias("to_offset"))
        .distinct()
    )
    below = F.least("to_offset", F.greatest("log_start", "from_offset"))
    cut = holes.join(starts, "controller_id").withColumn("wall", below)
    compacted = cut.where("from_offset < wall").select(*same, "from_offset", F.col("wall").alias("to_offset"))
    others = cut.where("wall < to_offset").select(*same, F.col("wall").alias("from_offset"), "to_offset")
    touched = (F.col("mark_from") == F.col("from_offset")) | (F.col("mark_to") == F.col("to_offset"))
    caused = others.join(
        marks.withColumnRenamed("controller_id", "marked"), (F.col("marked") == F.col("controller_id")) & touched, "left_semi"
    )
    lost = others.join(
        marks.withColumnRenamed("controller_id", "marked"), (F.col("marked") == F.col("controller_id")) & touched, "left_anti"
    )
    found = (
        compacted.withColumn("cause", F.lit("compacted"))
        .unionByName(caused.unionByName(tails).withColumn("cause", F.lit("quarantine")))
        .unionByName(lost.withColumn("cause", F.lit("missing_segment")))
    )
    names = [column.split()[0] for column in spark_schema("bronze.offset_gaps").split(", ")]
    return found.select(*names).orderBy("controller_id", "from_offset")


def chosen(batches: DataFrame) -> DataFrame:
    """Each batch once, of those that several controllers have: of the highest epoch where they disagree (`disagreeing` says
    where), else that of the lowest controller. Of a snapshot that of the controller that has most of its records.
    """
    from pyspark.sql import functions as F

    is_snapshot = F.col("segment").like(SNAPSHOTS)
    keys = batches.select("controller_id", "segment", "base_offset", "leader_epoch", "n_records")
    logs = (
        keys.where(~is_snapshot)
        .groupBy("base_offset")
        .agg(F.max_by("controller_id", F.struct("leader_epoch", -F.col("controller_id"))).alias("controller_id"))
    )
    files = (
        keys.where(is_snapshot)
        .groupBy("segment", "controller_id")
        .agg(F.sum("n_records").alias("records"))
        .groupBy("segment")
        .agg(F.max_by("controller_id", F.struct("records", -F.col("controller_id"))).alias("controller_id"))
    )
    from_logs = batches.where(~is_snapshot).join(logs, ["base_offset", "controller_id"], "left_semi")
    from_files = batches.where(is_snapshot).join(files, ["segment", "controller_id"], "left_semi")
    return from_logs.unionByName(from_files)


def disagreeing(batches: DataFrame) -> DataFrame:
    """(base_offset, controllers) where segments of several controllers hold different batches."""
    from pyspark.sql import functions as F

    return (
        batches.where(~F.col("segment").like(SNAPSHOTS))
        .groupBy("base_offset")
        .agg(F.collect_set("controller_id").alias("controllers"), F.countDistinct("crc").alias("kinds"))
        .where("kinds > 1")
        .select("base_offset", "controllers")
    )


def holes(batches: DataFrame) -> DataFrame:
    """(from_offset, to_offset) of the stretches below the last batch that no segment holds."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    order = Window.orderBy("base_offset").rowsBetween(Window.unboundedPreceding, -1)
    segments = batches.where(~F.col("segment").like(SNAPSHOTS)).select("base_offset", "last_offset")
    return (
        segments.withColumn("from_offset", F.coalesce(F.max("last_offset").over(order) + 1, F.lit(0)))
        .where("from_offset < base_offset")
        .select("from_offset", F.col("base_offset").alias("to_offset"))
    )


def snapshots(batches: DataFrame) -> DataFrame:
    """(segment, end_offset) of the snapshots."""
    from pyspark.sql import functions as F

    found = batches.where(F.col("segment").like(SNAPSHOTS)).groupBy("segment")
    return found.agg((F.min("base_offset") + 1).alias("end_offset"))
