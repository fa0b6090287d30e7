"""Many what-if scenarios at once on Spark, a task each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ..storage.schemas import arrow_of
from .documents import ClusterDocument, encode_cluster, parse_cluster
from .scenarios import Scenario, summarise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUMMARY_SCHEMA = """scenario string, plan_id string, replica_moves bigint, bytes_moved bigint, lower_bound_bytes bigint,
    disk_least double, disk_most double, replicas_least double, replicas_most double, unmet string, problem string"""
_SUMMARY_ARROW = arrow_of(SUMMARY_SCHEMA)


def sweep(spark: SparkSession, document: ClusterDocument, scenarios: Sequence[Scenario]) -> DataFrame:
    """Plan for each scenario, a task each; a row each, in any order. The cluster is sent with the tasks."""
    cluster = encode_cluster(document)

    def plan_them(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plain = parse_cluster(cluster, "the cluster")
        for batch in batches:
            rows = [summarise(plain, msgspec.json.decode(text, type=Scenario)) for text in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pylist(msgspec.to_builtins(rows), schema=_SUMMARY_ARROW)

    asked = pa.table({"scenario": [msgspec.json.encode(scenario) for scenario in scenarios]})
    tasks = spark.createDataFrame(asked).repartition(len(scenarios), "scenario")
    return tasks.mapInArrow(plan_them, SUMMARY_SCHEMA)
