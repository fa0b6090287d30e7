"""Metadata logs as Spark's data sources: `kraftlab-log` for our controllers, `kraft-log` for Kafka's.

from kraftlab.pipeline.sources import register
register(spark)
spark.read.format("kraft-log").load("/var/lib/kafka/metadata").count()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes both sources known to a session. Workers import this package, so it must be installed there."""
    from .data_source import KafkaLogSource, KraftlabLogSource

    spark.dataSource.register(KraftlabLogSource)
    spark.dataSource.register(KafkaLogSource)
