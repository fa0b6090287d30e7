"""A lake that follows a log: micro-batches into bronze, then what is new into silver and gold.

Each micro-batch is one range of offsets of the log, and one commit of each table of bronze. It begins where all tables of bronze
end. Spark runs a batch again that it does not know to be done: then nothing is left of its range; one that was killed between
two tables of bronze replaces what it had committed. So whenever it is killed, the lake goes on without a row lost or twice.
Silver and gold take what bronze has and they have not, as their builds do on any day.

A lake that was filled by `ingest` before is followed from where it ends. The stream's own state (Spark's checkpoint) stands in
the lake; removed, the stream begins anew and skips what the lake has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from kraftlab.client.errors import ClusterUnreachable
from kraftlab.metadata.errors import ApiError

from ..errors import CorruptInput, Fault, WrongUse
from ..lake import uris
from ..lake.commits import Lake
from ..lake.schemas import arrow_schema
from ..session.factory import master_of
from ..sources import register
from ..sources.formats import FORMATS, KRAFTLAB
from ..sources.options import QUORUM
from ..sources.taking import BATCHES, QUARANTINE
from ..tables import bronze
from . import build as silver_build
from . import gold as gold_build
from .ingest import GAPS, cluster_of, detect, ingest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "_checkpoints/stream"
SEEN = "last_offset bigint"
"""What of files a micro-batch needs to know: how far it goes. They are taken in as by `ingest`, with what is damaged in them."""

FAULTS_OF_SOURCES: Mapping[type[Exception], type[Fault]] = {
    CorruptInput: CorruptInput,
    WrongUse: WrongUse,
    ClusterUnreachable: Fault,
    ApiError: Fault,
}


class Step(msgspec.Struct, frozen=True):
    """One micro-batch that is in the lake: offsets [lo, hi), rows in gold after it, seconds that it took."""

    batch_id: int
    lo: int
    hi: int
    batches: int
    rows: dict[str, int]
    seconds: float


def stream(
    spark: SparkSession,
    lake: Lake,
    place: str,
    *,
    once: bool = False,
    max_records: int | None = None,
    trigger_s: float = 5.0,
    told: Callable[[Step], None] = lambda step: None,
) -> int:
    """Follows a directory of a controller, or `quorum://HOST:PORT[,…]`, until interrupted, or with `once` up to what is committed
    now. How many micro-batches it took. WrongUse, CorruptInput; LakeLocked while another process writes the lake.
    """
    uris.check_reach(lake.uri, master_of(spark))
    is_live = place.startswith(QUORUM)
    form = FORMATS[KRAFTLAB] if is_live else detect([place])
    register(spark)
    with lake.writing():
        follower = _Follower(spark, lake, place, is_live, told)
        options = {"path": place if is_live else uris.normalised(place), "observer": f"pipeline of {lake.uri}"}
        known = cluster_of(lake, form)
        if known is not None:
            options["clusterId"] = known
        if max_records is not None:
            options["maxRecords"] = str(max_records)
        reader = spark.readStream.format(form.source).options(**options)
        rows = reader.load() if is_live else reader.schema(SEEN).load()
        writer = rows.writeStream.foreachBatch(follower.take).option(
            "checkpointLocation", uris.for_spark(uris.joined(lake.uri, CHECKPOINT))
        )
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{trigger_s:g} seconds")
        follower.catch_up()
        _wait(writer.start(), follower)
        return follower.steps


def _wait(query: StreamingQuery, follower: _Follower) -> None:
    """Until the stream ends. What a micro-batch raised here is raised as it was; what Spark raised, as a fault if it was one."""
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    except Exception as error:
        if follower.failure is not None:
            raise follower.failure from None
        raise _as_fault(error) from error


def _as_fault(error: Exception) -> Exception:
    """What the source raised in a process of Spark's, of which only the text arrives."""
    text = str(error)
    for kind, fault in FAULTS_OF_SOURCES.items():
        marker = f"{kind.__module__}.{kind.__name__}: "
        if marker in text:
            return fault(text.rpartition(marker)[2].splitlines()[0])
    return error


class _Follower:
    """What each micro-batch does to the lake."""

    def __init__(self, spark: SparkSession, lake: Lake, place: str, is_live: bool, told: Callable[[Step], None]) -> None:
        self._spark, self._lake, self._place, self._is_live, self._told = spark, lake, place, is_live, told
        self.steps = 0
        self.failure: Exception | None = None

    def take(self, rows: DataFrame, batch_id: int) -> None:
        """Called by Spark, again if it was killed before it was done."""
        started = time.monotonic()
        rows = rows.persist()
        try:
            lo = self._done()
            hi = max(lo, self._end_of(rows))
            if hi == lo:
                return
            batches = self._into_bronze(rows, lo, hi, batch_id)
            counts = self.catch_up()
            self.steps += 1
            self._told(Step(batch_id, lo, hi, batches, counts, time.monotonic() - started))
        except Exception as error:
            self.failure = error
            raise
        finally:
            rows.unpersist()

    def catch_up(self) -> dict[str, int]:
        """Brings silver and gold up to bronze. Rows of gold, by table."""
        if self._lake.active(BATCHES):
            silver_build.build(self._spark, self._lake)
        if self._lake.active(silver_build.CHANGES):
            gold_build.build(self._spark, self._lake)
        return {table: sum(each.rows for each in self._lake.active(table)) for table in gold_build.TABLES}

    def _done(self) -> int:
        """Where the last range ends that all tables of bronze have."""
        return min(max((each.hi for each in self._lake.active(table)), default=0) for table in (BATCHES, QUARANTINE, GAPS))

    @staticmethod
    def _end_of(rows: DataFrame) -> int:
        (row,) = rows.groupBy().max("last_offset").collect()
        return 0 if row[0] is None else int(row[0]) + 1

    def _into_bronze(self, rows: DataFrame, lo: int, hi: int, batch_id: int) -> int:
        """Offsets [lo, hi). How many batches."""
        if not self._is_live:
            return ingest(self._spark, self._lake, [self._place], lo=lo, hi=hi).batches
        is_snapshot = F.col("segment").like(bronze.SNAPSHOTS)
        new = rows.where(is_snapshot | (F.col("base_offset") >= lo))
        found = new.groupBy("format", "cluster_id", "controller_id").agg(
            F.min(F.when(~is_snapshot, F.col("base_offset"))).alias("first_offset"), F.bool_or(is_snapshot).alias("has_snapshot")
        )
        (row,) = found.collect()
        details = {
            "format": row["format"],
            "cluster_id": row["cluster_id"],
            "controllers": str(row["controller_id"]),
            "batch_id": str(batch_id),
        }
        manifest = self._lake.commit(BATCHES, lo, hi, lambda place: new.write.mode("append").parquet(place), details=details)
        first_offset = hi if row["first_offset"] is None else row["first_offset"]
        gaps = []
        if first_offset > lo:
            cause = "compacted" if row["has_snapshot"] else "missing_segment"
            same = {name: row[name] for name in ("controller_id", "format", "cluster_id")}
            gaps = [{"from_offset": lo, "to_offset": first_offset, "cause": cause, **same}]
        for table, missing in ((QUARANTINE, []), (GAPS, gaps)):
            rows_of_it = pa.Table.from_pylist(missing, schema=arrow_schema(table))
            self._lake.commit_arrow(rows_of_it, table, lo, hi, details=details)
        return manifest.rows
