"""Gold tables: what follows from the silver ones. DataFrame in, DataFrame out; nothing is read or written here.

The life cycles of reassignments are stepped partition by partition: all rows of a partition in one stream, in the order of the
log, through the same state machine that is the oracle (`audits.life_cycles`). One shuffle brings them together; its number of
partitions is left to Spark, which fits it to the data. Nothing may stand between the sort and the stepper, which refuses rows
that step back.

States, drift and skew are SQL and say the same as their plain twins in `audits/`, which the tests hold against them. Epochs and
divergence bring their input down to a handful of rows in SQL and leave these to the plain kernels, in one task.

Everything here runs over Spark Connect as well: no RDD, no context of Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ..audits.drift import HIGH, LOW, MEDIUM, RACE_WINDOW_MS, RF_CHANGE, SIBLING_MISMATCH, UNION_RACE
from ..audits.epochs import EpochStart, LogBatch, leader_of
from ..audits.epochs import leader_epochs as epochs_of
from ..audits.epochs import log_divergence as divergence_of
from ..audits.life_cycles import DELETED, SUPERSEDED, UNKNOWN
from ..audits.life_cycles_arrow import COLUMNS, KEY, LIFE_CYCLES_TEXT, ORDER, life_cycles_of
from ..audits.skew import BAND
from ..lake.schemas import arrow_schema, spark_schema
from .bronze import SNAPSHOTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STATE_FIELDS = ("replicas", "isr", "leader", "adding", "removing", "directories")


def life_cycles(changes: DataFrame, topics: DataFrame | None = None) -> DataFrame:
    """`silver.partition_changes` (and `silver.topics`, for topics that were deleted) to reassignments, each with its replicas in
    a list: what `reassignments` and `reassignment_replicas` are made of. Keep it (`persist`) if both are wanted. What topics were
    deleted is collected at once: it goes to the workers with the tasks. A partition's topic has the name that any of its rows
    knows.
    """
    name = F.max("topic").over(Window.partitionBy(*KEY))
    together = changes.select(*COLUMNS, "idx_in_batch").repartition(*KEY).withColumn("topic", name)
    ordered = together.sortWithinPartitions(*ORDER)
    return ordered.mapInArrow(partial(life_cycles_of, deletions={} if topics is None else _deletions(topics)), LIFE_CYCLES_TEXT)


def _deletions(topics: DataFrame) -> dict[str, tuple[int, int]]:
    """Topic id → (offset, ms) of its removal, the last one."""
    deleted = topics.where("op = 'delete'").groupBy("topic_id").agg(F.max(F.struct("offset", "ts_ms")).alias("deletion"))
    return {row["topic_id"]: tuple(row["deletion"]) for row in deleted.collect()}


def reassignments(cycles: DataFrame) -> DataFrame:
    """`gold.reassignments` of `life_cycles`."""
    return cycles.select(*_columns("gold.reassignments"))


def reassignment_replicas(cycles: DataFrame) -> DataFrame:
    """`gold.reassignment_replicas` of `life_cycles`."""
    return cycles.select("reassignment_id", F.inline("replicas"))


def partition_states(changes: DataFrame, topics: DataFrame, at_offset: int | None = None) -> DataFrame:
    """`silver.partition_state` after the record at `at_offset`, of all partitions whose topic exists then; None is after all."""
    if at_offset is not None:
        changes = changes.where(F.col("offset") <= at_offset)
        topics = topics.where(F.col("offset") <= at_offset)
    place = F.struct("offset", "kind", "idx_in_batch")
    latest = [F.max_by(name, F.when(F.col(name).isNotNull(), place)).alias(name) for name in STATE_FIELDS]
    lists = F.struct("offset", "kind", "idx_in_batch", "replicas", "adding", "removing", "original")
    moved = F.col("replicas").isNotNull() | F.col("adding").isNotNull() | F.col("removing").isNotNull()
    steps = F.sort_array(F.collect_list(F.when(moved, lists))).alias("steps")
    gone = topics.where("op = 'delete'").groupBy("topic_id").agg(F.max("offset").alias("removed_offset"))
    states = changes.groupBy(*KEY).agg(F.max("topic").alias("topic"), *latest, steps, F.max("offset").alias("since_offset"))
    kept = states.join(F.broadcast(gone), "topic_id", "left").where("removed_offset is null or since_offset >= removed_offset")
    return kept.withColumn("rf_settled", F.expr(_RF_SETTLED)).select(*_columns("silver.partition_state"))


_REPLICAS = "coalesce(s.replicas, a.replicas)"
_ADDING = "coalesce(s.adding, a.adding)"
_REMOVING = "coalesce(s.removing, a.removing)"
_RF_SETTLED = f"""
    aggregate(
        steps,
        named_struct(
            'replicas', cast(null as array<int>), 'adding', cast(null as array<int>), 'removing', cast(null as array<int>),
            'rf', cast(null as int)
        ),
        (a, s) -> named_struct(
            'replicas', {_REPLICAS}, 'adding', {_ADDING}, 'removing', {_REMOVING},
            'rf', case
                when {_REPLICAS} is null then a.rf
                when cardinality(coalesce({_ADDING}, array())) = 0 and cardinality(coalesce({_REMOVING}, array())) = 0
                    then cardinality({_REPLICAS})
                when cardinality(coalesce(s.original, array())) > 0 then cardinality(s.original)
                when a.rf is not null then a.rf
                else cardinality(array_except({_REPLICAS}, coalesce({_ADDING}, array())))
            end
        ),
        a -> a.rf
    )"""


def rf_drift(found: DataFrame, states: DataFrame, race_window_ms: int = RACE_WINDOW_MS) -> DataFrame:
    """`gold.rf_drift` of `gold.reassignments` and `silver.partition_state`."""
    modes = _modes(states)
    cycles = (
        found.withColumn("rf", F.coalesce("rf_after", F.expr("if(target is null, null, size(target))")))
        .where(F.col("rf").isNotNull() & F.col("rf_before").isNotNull() & (F.col("status") != UNKNOWN))
        .join(_union_races(found, race_window_ms), "reassignment_id", "left")
        .join(modes, "topic_id", "left")
    )
    raced = F.col("raced").isNotNull()
    settled = ~F.col("status").isin(SUPERSEDED, DELETED)
    whole_topic = (F.col("mode") == F.col("rf")) & F.col("is_majority")
    of_cycles = cycles.where(raced | (settled & (F.col("rf") != F.col("rf_before")))).select(
        "topic_id",
        "topic",
        "partition",
        "rf",
        F.col("rf_before").alias("rf_expected"),
        F.col("mode").alias("rf_mode_of_topic"),
        F.when(raced, UNION_RACE).otherwise(RF_CHANGE).alias("class"),
        F.col("reassignment_id").alias("culprit_reassignment_id"),
        F.coalesce("start_offset", "end_offset").alias("offset"),
        F.when(raced, HIGH).when(whole_topic, LOW).otherwise(MEDIUM).alias("confidence"),
    )
    culprit = F.max(F.struct("offset", "culprit_reassignment_id")).alias("culprit")
    siblings = (
        states.join(modes, "topic_id")
        .where("rf_settled != mode")
        .join(of_cycles.groupBy(*KEY).agg(culprit), list(KEY), "left")
        .select(
            "topic_id",
            "topic",
            "partition",
            F.col("rf_settled").alias("rf"),
            F.col("mode").alias("rf_expected"),
            F.col("mode").alias("rf_mode_of_topic"),
            F.lit(SIBLING_MISMATCH).alias("class"),
            "culprit.culprit_reassignment_id",
            "culprit.offset",
            F.when(F.col("is_majority"), HIGH).otherwise(LOW).alias("confidence"),
        )
    )
    return of_cycles.unionByName(siblings).select(*_columns("gold.rf_drift"))


def _modes(states: DataFrame) -> DataFrame:
    """(topic_id, mode, is_majority): the most frequent number of replicas, the smaller of two."""
    counts = states.where("rf_settled is not null").groupBy("topic_id", "rf_settled").agg(F.count("*").alias("n"))
    most = F.max(F.struct("n", (-F.col("rf_settled")).alias("minus"))).alias("most")
    return (
        counts.groupBy("topic_id")
        .agg(most, F.sum("n").alias("total"))
        .select("topic_id", F.expr("-most.minus").alias("mode"), F.expr("2 * most.n > total").alias("is_majority"))
    )


def _union_races(found: DataFrame, race_window_ms: int) -> DataFrame:
    """(reassignment_id, raced) of requests for what a reader saw while an earlier reassignment ran."""
    asked = found.where("start_offset is not null and start_ms is not null and size(requested) > rf_before").select(
        *KEY, "reassignment_id", "start_offset", "start_ms", "requested"
    )
    earlier = found.where(
        "cardinality(removing) > 0 and end_offset is not null and orig is not null and adding is not null"
    ).select(
        *KEY,
        F.col("reassignment_id").alias("earlier_id"),
        "end_offset",
        "end_ms",
        F.array_union("orig", "adding").alias("seen"),
    )
    races = asked.join(earlier, list(KEY)).where(
        (F.col("earlier_id") != F.col("reassignment_id"))
        & (F.col("end_offset") <= F.col("start_offset"))
        & ((F.col("end_offset") == F.col("start_offset")) | (F.col("start_ms") - F.col("end_ms") <= race_window_ms))
        & (F.size(F.array_except("seen", "requested")) == 0)
    )
    return races.select("reassignment_id", F.lit(True).alias("raced")).distinct()


def leader_epochs(batches: DataFrame) -> DataFrame:
    """`gold.leader_epochs` of `bronze.batches`."""
    logs = batches.where(~F.col("segment").like(SNAPSHOTS))
    first = F.min(F.struct("base_offset", "pos")).alias("first")
    ends = (F.max("last_offset") + 1).alias("end_offset"), F.max("append_ms").alias("last_ms")
    spans = logs.groupBy("controller_id", "leader_epoch").agg(first, *ends)
    place = ["controller_id", "leader_epoch", "base_offset", "pos"]
    starts = logs.select(*place, "append_ms", "payload", "format").join(
        F.broadcast(spans.select("controller_id", "leader_epoch", "first.*", "end_offset", "last_ms")), place
    )
    return starts.drop("pos").coalesce(1).mapInArrow(_epochs, spark_schema("gold.leader_epochs"))


def _epochs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    starts = []
    for row in _rows(batches):
        leader = leader_of(row["format"], row["payload"], row["base_offset"], row["leader_epoch"])
        start = (row["controller_id"], row["leader_epoch"], leader, row["base_offset"], row["end_offset"])
        starts.append(EpochStart(*start, row["append_ms"], row["last_ms"]))
    yield _record_batch("gold.leader_epochs", epochs_of(starts))


def log_divergence(batches: DataFrame) -> DataFrame:
    """`gold.log_divergence` of `bronze.batches`: what all controllers hold alike, or only one can hold, is passed over."""
    logs = batches.where(~F.col("segment").like(SNAPSHOTS)).select(
        "controller_id", "base_offset", "last_offset", "leader_epoch", "crc"
    )
    reach = logs.groupBy("controller_id").agg(
        F.min("base_offset").alias("log_start"),
        F.max("last_offset").alias("log_last"),
        F.max("leader_epoch").alias("last_epoch"),
    )
    holders = logs.groupBy("base_offset", "last_offset", "leader_epoch", "crc").agg(
        F.collect_set("controller_id").alias("holders")
    )
    others = F.broadcast(reach.withColumnRenamed("controller_id", "other"))
    reached = (F.col("log_start") <= F.col("last_offset")) & (F.col("base_offset") <= F.col("log_last"))
    missed = holders.join(others, reached & ~F.array_contains("holders", F.col("other")), "left_semi")
    rows = (
        missed.withColumn("controller_id", F.explode("holders"))
        .join(F.broadcast(reach), "controller_id")
        .select("controller_id", "base_offset", "last_offset", "leader_epoch", "crc", "last_epoch")
    )
    return rows.coalesce(1).mapInArrow(_divergence, spark_schema("gold.log_divergence"))


def _divergence(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _record_batch("gold.log_divergence", divergence_of([LogBatch(*row.values()) for row in _rows(batches)]))


def broker_load(samples: DataFrame, brokers: DataFrame, states: DataFrame, band: float = BAND) -> DataFrame:
    """`gold.broker_load` of `silver.log_dir_samples`, `silver.brokers` and `silver.partition_state`, for each time sampled."""
    return _load("gold.broker_load", samples, brokers, states, ("sampled_ms", "broker_id"), ("sampled_ms",), band)


def log_dir_skew(samples: DataFrame, brokers: DataFrame, states: DataFrame, band: float = BAND) -> DataFrame:
    """`gold.log_dir_skew`; a directory is compared with the others of its broker."""
    place = ("sampled_ms", "broker_id", "dir_id", "path")
    return _load("gold.log_dir_skew", samples, brokers, states, place, ("sampled_ms", "broker_id"), band)


def _load(
    table: str,
    samples: DataFrame,
    brokers: DataFrame,
    states: DataFrame,
    place: tuple[str, ...],
    peers: tuple[str, ...],
    band: float,
) -> DataFrame:
    led = states.where("leader >= 0").select("topic", "partition", F.col("leader").alias("broker_id"), F.lit(1).alias("led"))
    racks = brokers.where("op = 'register'").groupBy("broker_id").agg(F.max_by("rack", F.struct("offset", "kind")).alias("rack"))
    is_replica = F.col("topic").isNotNull() & ~F.coalesce("is_future", F.lit(False))
    filled = (
        samples.join(led, ["topic", "partition", "broker_id"], "left")
        .groupBy(*place)
        .agg(
            F.sum(F.coalesce("size_bytes", F.lit(0))).alias("bytes"),
            F.sum(is_replica.cast("int")).cast("int").alias("replicas"),
            F.sum(F.when(is_replica, F.coalesce("led", F.lit(0))).otherwise(0)).cast("int").alias("led"),
            F.every(F.col("error").isNotNull()).alias("offline"),
        )
    )
    online = F.when(~F.col("offline"), F.col("bytes"))
    newest = F.max("sampled_ms").over(Window.partitionBy())
    ratio = F.when(~F.col("offline") & (F.col("mean_bytes") > 0), F.col("bytes") / F.col("mean_bytes"))
    return (
        filled.withColumn("mean_bytes", F.avg(online).over(Window.partitionBy(*peers)))
        .withColumn("ratio", ratio)
        .withColumn("leaders", F.when(F.col("sampled_ms") == newest, F.col("led")))
        .withColumn("over_band", F.coalesce(F.col("ratio") > band, F.lit(False)))
        .withColumnRenamed("sampled_ms", "as_of")
        .join(F.broadcast(racks), "broker_id", "left")
        .select(*_columns(table))
    )


def _columns(table: str) -> list[Column]:
    return [F.col(name) for name in arrow_schema(table).names]


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _record_batch(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    schema = arrow_schema(table)
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
