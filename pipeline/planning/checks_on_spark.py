"""Plans on Spark: the load model and the checks as DataFrames, and many what-if scenarios at once, a task each.

`partitions` has a row per partition (topic, partition, replicas, size_bytes), `brokers` one per broker (broker_id, rack, alive,
capacity_bytes; null where it is not known), `moves` is `gold.plan_moves`. It is SQL throughout but for the sweep, whose tasks run
the planner, and knows nothing of how plans are made. What it finds has the names of `checks.CHECKS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from ..lake.schemas import arrow_schema
from .checks import CHECKS, FILLED_AT_MOST, Asked, mean_size
from .documents import ClusterDocument, encode_cluster
from .gold_rows import CHECKS as CHECKS_TABLE
from .scenarios import Scenario, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTITIONS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("replicas", pa.list_(pa.field("element", pa.int32()))),
        ("size_bytes", pa.int64()),
    ]
)
BROKERS_SCHEMA = pa.schema(
    [("broker_id", pa.int32()), ("rack", pa.string()), ("alive", pa.bool_()), ("capacity_bytes", pa.int64())]
)
SUMMARY_SCHEMA = """scenario string, plan_id string, replica_moves bigint, bytes_moved bigint, lower_bound_bytes bigint,
    disk_least double, disk_most double, replicas_least double, replicas_most double, unmet string, problem string"""
_SUMMARY_ARROW = pa.schema(
    [
        ("scenario", pa.string()),
        ("plan_id", pa.string()),
        ("replica_moves", pa.int64()),
        ("bytes_moved", pa.int64()),
        ("lower_bound_bytes", pa.int64()),
        ("disk_least", pa.float64()),
        ("disk_most", pa.float64()),
        ("replicas_least", pa.float64()),
        ("replicas_most", pa.float64()),
        ("unmet", pa.string()),
        ("problem", pa.string()),
    ]
)


def frames(spark: SparkSession, document: ClusterDocument) -> tuple[DataFrame, DataFrame]:
    """(partitions, brokers) of a document."""
    entries = [(topic.name, entry) for topic in document.topics for entry in topic.partitions]
    means = {topic.name: mean_size(topic.partitions) for topic in document.topics}
    replicas = [entry.settled for _, entry in entries]
    sizes = [means[name] if entry.size_bytes is None else entry.size_bytes for name, entry in entries]
    names, numbers = [name for name, _ in entries], [entry.partition for _, entry in entries]
    held: Counter[int] = Counter()
    for brokers_of, size in zip(replicas, sizes, strict=True):
        held.update(dict.fromkeys(brokers_of, size))
    rows = []
    for one in document.brokers:
        usable = [entry.usable_bytes for entry in one.log_dirs if entry.online]
        capacity = sum(usable) + held[one.id] if usable and min(usable) >= 0 else None
        rack = one.rack if one.rack is not None else f"(broker {one.id})"
        rows.append({"broker_id": one.id, "rack": rack, "alive": one.alive, "capacity_bytes": capacity})
    partitions = spark.createDataFrame(pa.table([names, numbers, replicas, sizes], schema=PARTITIONS_SCHEMA))
    return partitions, spark.createDataFrame(pa.Table.from_pylist(rows, schema=BROKERS_SCHEMA))


def load_model(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """broker_id, rack, alive, capacity_bytes, bytes, replicas, leaders: a row per broker, also of those without replicas."""
    each = partitions.select("size_bytes", F.posexplode("replicas").alias("slot", "broker_id"))
    load = each.groupBy("broker_id").agg(
        F.sum("size_bytes").alias("bytes"),
        F.count("*").alias("replicas"),
        F.sum((F.col("slot") == 0).cast("long")).alias("leaders"),
    )
    return brokers.join(load, "broker_id", "left").fillna(0, ["bytes", "replicas", "leaders"])


def after(partitions: DataFrame, moves: DataFrame) -> DataFrame:
    """The partitions as a plan leaves them."""
    targets = moves.select("topic", "partition", F.col("to_replicas").alias("target"))
    changed = partitions.join(targets, ["topic", "partition"], "left")
    return changed.select("topic", "partition", F.coalesce("target", "replicas").alias("replicas"), "size_bytes")


def checks(plan_id: str, partitions: DataFrame, brokers: DataFrame, moves: DataFrame, asked: Asked) -> DataFrame:
    """`gold.plan_checks`: one row per check that failed."""
    found = _of_moves(partitions, brokers, moves, asked).unionByName(_of_brokers(partitions, brokers, moves, asked))
    severities = F.create_map(*(F.lit(text) for name, severity, _ in CHECKS for text in (name, severity)))
    counted = found.groupBy("check").agg(F.count("*").alias("n"), F.min("example").alias("example"))
    rows = counted.withColumn("plan_id", F.lit(plan_id)).withColumn("severity", severities[F.col("check")])
    return rows.select(*arrow_schema(CHECKS_TABLE).names)


def _failed(rows: DataFrame, example: Column, wrong: Mapping[str, Column]) -> DataFrame:
    """A row (check, example) for each condition of each row that holds; null does not."""
    names = F.array(*(F.when(condition, F.lit(check)) for check, condition in wrong.items()))
    return rows.select(F.explode(F.array_compact(names)).alias("check"), example.alias("example"))


def _of_moves(partitions: DataFrame, brokers: DataFrame, moves: DataFrame, asked: Asked) -> DataFrame:
    """Brokers go along with every row as one map, so that racks are counted where the replicas are, without a shuffle."""
    standing = F.col("alive") & ~F.col("broker_id").isin(list(asked.empty))
    by_id = brokers.agg(
        F.map_from_entries(F.collect_list(F.struct("broker_id", F.struct("rack", "alive")))).alias("of"),
        F.collect_list(F.when(standing, F.col("rack"))).alias("standing"),
    )
    rows = moves.join(partitions, ["topic", "partition"], "left").crossJoin(F.broadcast(by_id))
    target, now = F.col("to_replicas"), F.col("replicas")
    wanted = F.coalesce(*(F.when(F.col("topic") == topic, F.lit(factor)) for topic, factor in asked.rf.items()), F.size(now))
    touched = F.array_union(F.array_except(target, now), F.array_except(now, target))
    allowed = F.greatest(_evenest(F.size(target)), _crowd(now))
    is_known = now.isNotNull()
    wrong = {
        "unknown_partition": ~is_known,
        "stale": now != F.col("from_replicas"),
        "duplicate": is_known & (F.size(target) != F.size(F.array_distinct(target))),
        "replication_factor": is_known & (F.size(target) != wanted),
        "excluded": is_known & F.arrays_overlap(touched, _ids(asked.untouched)),
        "unknown_broker": is_known & F.exists(target, lambda broker: F.col("of")[broker].isNull()),
        "dead_broker": is_known & F.exists(target, lambda broker: ~F.coalesce(F.col("of")[broker]["alive"], F.lit(True))),
        "rack": is_known & (_crowd(target) > allowed),
    }
    return _failed(rows, F.concat(F.concat_ws("-", "topic", "partition"), F.lit(": "), target.cast("string")), wrong)


def _evenest(replicas: Column) -> Column:
    """As `checks` has it, with the racks of the brokers that stand in `standing`, once for each broker."""
    standing = F.col("standing")
    racks = F.array_distinct(standing)
    sizes = F.transform(racks, lambda rack: F.size(F.filter(standing, lambda other: other == rack)))

    def room(most: Column) -> Column:
        return F.aggregate(sizes, F.lit(0), lambda sum, size: sum + F.least(size, most))

    possible = F.filter(F.sequence(F.lit(1), F.greatest(replicas, F.lit(1))), lambda most: room(most) >= replicas)
    evenly = F.ceil(replicas / F.greatest(F.size(racks), F.lit(1)))
    return F.coalesce(F.array_min(possible), evenly)


def _crowd(replicas: Column) -> Column:
    """The most replicas in one rack; a broker that nobody knows is a rack by itself."""
    racks = F.transform(replicas, lambda broker: F.coalesce(F.col("of")[broker]["rack"], F.concat(F.lit("?"), broker)))
    return F.array_max(F.transform(racks, lambda rack: F.size(F.filter(racks, lambda other: other == rack))))


def _of_brokers(partitions: DataFrame, brokers: DataFrame, moves: DataFrame, asked: Asked) -> DataFrame:
    before = load_model(partitions, brokers).select("broker_id", F.col("bytes").alias("old"))
    load = load_model(after(partitions, moves), brokers).join(before, "broker_id")
    member = F.col("alive") & ~F.col("broker_id").isin([*asked.empty, *asked.untouched])
    means = load.where(member).agg(
        F.avg("replicas").alias("mean_replicas"),
        F.avg("leaders").alias("mean_leaders"),
        F.sum("bytes").alias("total"),
        (F.count("capacity_bytes") == F.count("*")).alias("known"),
        F.sum("capacity_bytes").alias("capacity"),
        F.count("*").alias("members"),
    )
    rows = load.crossJoin(F.broadcast(means))
    held = F.col("bytes")
    share = F.col("total") * F.when(F.col("known"), F.col("capacity_bytes") / F.col("capacity")).otherwise(1 / F.col("members"))
    banded = member & F.lit(asked.banded)
    outside = (held < share * (1 - asked.eps) - 1) | (held > share * (1 + asked.eps) + 1)
    wrong = {
        "disk_capacity": (held > F.col("capacity_bytes") * FILLED_AT_MOST) & (held > F.col("old")),
        "not_empty": F.col("broker_id").isin(list(asked.empty)) & (F.col("replicas") > 0),
        "disk_band": banded & (share > 0) & outside,
        "replica_band": banded & _outside("replicas", asked.eps),
        "leader_band": banded & _outside("leaders", asked.eps),
    }
    loads = (F.col(name).cast("string") for name in ("bytes", "replicas", "leaders"))
    text = F.concat_ws(", ", F.concat(F.lit("broker "), F.col("broker_id")), *loads)
    return _failed(rows, text, wrong)


def _outside(column: str, eps: float) -> Column:
    mean = F.col(f"mean_{column}")
    least, most = F.floor(mean * (1 - eps) + 1e-9), F.ceil(mean * (1 + eps) - 1e-9)
    return (F.col(column) < least) | (F.col(column) > most)


def _ids(brokers: Sequence[int]) -> Column:
    return F.array(*(F.lit(broker) for broker in brokers)).cast("array<int>")


def sweep(spark: SparkSession, document: ClusterDocument, scenarios: Sequence[Scenario]) -> DataFrame:
    """Plans for each scenario, a task each; a row each, in no order. The cluster travels with the tasks."""
    cluster = encode_cluster(document)

    def plan_them(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = list(rows_of(cluster, batch.column(0).to_pylist()))
            yield pa.RecordBatch.from_pylist(rows, schema=_SUMMARY_ARROW)

    asked = pa.table({"scenario": [msgspec.json.encode(scenario) for scenario in scenarios]})
    tasks = spark.createDataFrame(asked).repartition(len(scenarios), "scenario")
    return tasks.mapInArrow(plan_them, SUMMARY_SCHEMA)
