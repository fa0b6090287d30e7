"""Partitions as of an offset or a time, from a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import WrongUse
from ..lake.commits import Lake
from ..session.factory import master_of
from ..storage import uris
from ..tables import histories
from .build import CHANGES, TOPICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def states_at(
    spark: SparkSession, lake: Lake, *, offset: int | None = None, time_ms: int | None = None, topic: str | None = None
) -> tuple[int, DataFrame]:
    """Return (offset, `silver.partition_state` after the record there). A time means the last record of partitions or topics that
    was appended up to that time; without offset and time, the last record of all. WrongUse if the lake does not reach there.
    """
    from pyspark.sql import functions as F

    uris.check_reach(lake.uri, master_of(spark))
    ranges = lake.active(CHANGES)
    if not ranges:
        raise WrongUse(f"{lake} has no partitions; the next step: kraftlab pipeline build silver --lake {lake.place()}")
    end = ranges[-1].hi
    if time_ms is not None:
        changes, topics = lake.read(spark, CHANGES), lake.read(spark, TOPICS)
        appended = F.max(F.when(F.col("ts_ms") <= time_ms, F.col("offset")))
        places = changes.select("offset", "ts_ms").union(topics.select("offset", "ts_ms"))
        (row,) = places.agg(appended.alias("at"), F.min("ts_ms").alias("first")).collect()
        if row["at"] is None:
            raise WrongUse(
                f"no record was appended by {time_ms}; the first record of {lake} is of {row['first']} (ms since 1970)"
            )
        offset = int(row["at"])
    at = end - 1 if offset is None else offset
    if not ranges[0].lo <= at < end:
        raise WrongUse(
            f"{lake} holds offsets {ranges[0].lo} to {end - 1}, not {at}; ingest and build newer offsets, or request one of these"
        )
    files = [file for part in ranges for file in part.files]
    states = histories.states_at(spark, files, lake.arrow(TOPICS, histories.TOPIC_COLUMNS), lake.uri, at)
    if topic is not None:
        states = states.where(F.col("topic") == topic)  # not all rows of silver have the name
    return at, states.orderBy("topic", "partition")
