"""A lake that follows a log: micro-batches into bronze, then the new rows into silver and gold.

Each micro-batch is one range of offsets of the log, and one commit of each table of bronze. It begins at the common end of all
tables of bronze, which the lake's own ranges alone define: every run of the stream begins there, with a Spark checkpoint that
is deleted at its end. So whatever killed the last run, and whatever changed the lake since (an `ingest`, a restored copy), the
stream continues without a row lost or twice. A range that was killed between two tables of bronze is finished first. Silver and
gold take the rows of bronze that they lack, by their ordinary builds. Small ranges are merged after a micro-batch, when there are
enough of them (`lake.compaction`).

A run lasts as long as its quorum can be found. If it cannot be found, the stream waits and starts again, and so it does if Spark
fails at a micro-batch: on a busy machine Spark gives up a worker that takes 10 s to start, and has no setting for that time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from kraftlab.client.errors import ClusterUnreachable
from kraftlab.client.metadata_log import MetadataLog
from kraftlab.client.security import ClientSecurity
from kraftlab.common.errors import ApiError
from kraftlab.quorum.core.types import OffsetAndEpoch

from ..errors import CorruptInput, Fault, WrongUse, fault_of_worker
from ..lake import compaction
from ..lake.commits import Lake
from ..session.factory import master_of
from ..sources import register
from ..sources.bronze_pass import BATCHES, QUARANTINE
from ..sources.formats import FORMATS, KRAFTLAB, LogFormat
from ..sources.options import QUORUM, check_servers
from ..sources.streaming import LogMoved
from ..sources.survey import SNAPSHOT_NAME, survey, the_cluster
from ..storage import uris
from ..storage.parts import PARTS, TaskFiles, written
from ..storage.schemas import arrow_schema
from ..tables import bronze
from . import build as silver_build
from . import gold as gold_build
from .ingest import GAPS, TABLES, cluster_of, detect, ingest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS = 3
"""Maximum number of attempts in a row for a micro-batch that fails in Spark, or because the log was cleaned meanwhile."""
FIRST_ANSWER_MS = 10_000
READERS_HOURS = 1
"""Time that files of replaced ranges stay for readers that are still running."""
LIVE = "batch_id"
"""The detail that marks ranges of micro-batches from a quorum."""
SEEN = "last_offset bigint"
"""Columns of files that a micro-batch needs: only its end. `ingest` reads the files, with their damages."""


class Unreachable(Fault):
    """No controller answers."""


FAULTS_OF_SOURCES: Mapping[type[Exception], type[Fault]] = {
    LogMoved: LogMoved,
    CorruptInput: CorruptInput,
    WrongUse: WrongUse,
    ClusterUnreachable: Unreachable,
    ApiError: Fault,
}


class Step(msgspec.Struct, frozen=True):
    """One micro-batch in the lake: offsets [lo, hi), rows in gold after it, seconds that it took."""

    number: int
    lo: int
    hi: int
    batches: int
    rows: dict[str, int]
    seconds: float


class FollowedLog(NamedTuple):
    """The followed log: directories of a controller, or a quorum (`is_live`), and its cluster. `command_config` is the file with
    the security of the quorum's clients.
    """

    place: str
    is_live: bool
    form: LogFormat
    cluster_id: str | None
    command_config: str | None = None

    def opened(self) -> MetadataLog:
        """Return the log of the quorum. ConfigError."""
        return _opened(self.place, self.command_config, cluster_id=self.cluster_id or "")


def followed(lake: Lake, place: str, command_config: str | None = None) -> FollowedLog:
    """Look up the place without Spark. WrongUse, Unreachable; CorruptInput if the log differs from the lake's; ConfigError."""
    is_live = place.startswith(QUORUM)
    form = FORMATS[KRAFTLAB] if is_live else detect([place])
    known = cluster_of(lake, form)
    if not is_live:
        return FollowedLog(uris.normalised(place), False, form, survey([place], form, known).cluster_id)
    check_servers(place)
    try:
        with _opened(place, command_config, timeout_ms=FIRST_ANSWER_MS) as log:
            cluster_id = log.cluster_id
    except ClusterUnreachable as error:
        raise Unreachable(str(error)) from error
    except ApiError as error:
        raise Fault(f"{place} cannot be followed: {error}") from error
    return FollowedLog(place, True, form, the_cluster({cluster_id: place}, known), command_config)


def _opened(place: str, command_config: str | None, *, cluster_id: str = "", timeout_ms: int = 30_000) -> MetadataLog:
    security = None if command_config is None else ClientSecurity.load(command_config)
    return MetadataLog(place.removeprefix(QUORUM), cluster_id=cluster_id, timeout_ms=timeout_ms, security=security)


def stream(
    spark: SparkSession,
    lake: Lake,
    source: FollowedLog,
    *,
    once: bool = False,
    max_records: int | None = None,
    trigger_s: float = 5.0,
    on_step: Callable[[Step], None] = lambda step: None,
    on_warning: Callable[[str], None] = lambda text: None,
) -> int:
    """Follow a log until interrupted, or with `once` up to the committed end of now. Return the number of micro-batches.
    WrongUse, CorruptInput; LakeLocked while another process writes the lake; Unreachable with `once`, otherwise only at the
    start.
    """
    master = master_of(spark)
    if master.is_remote:
        raise WrongUse(
            f"over Spark Connect ({master.url}) micro-batches run in the server's process, not in the one that holds the lake; "
            "stream with a driver here: without SPARK_REMOTE, or with --master spark://… or local[*]"
        )
    uris.check_reach(lake.uri, master)
    if not source.is_live:
        uris.check_reach(source.place, master)
    register(spark)
    with lake.writing():
        follower = _Follower(spark, lake, source, on_step)
        with contextlib.suppress(KeyboardInterrupt):
            follow(
                follower,
                lambda: _started(spark, lake, source, follower, once, max_records, trigger_s),
                once,
                trigger_s,
                on_warning,
            )
        return follower.steps


def follow(
    follower: _Follower, start: Callable[[], StreamingQuery], once: bool, trigger_s: float, on_warning: Callable[[str], None]
) -> None:
    """Run Spark streams until one ends well."""
    failures = 0
    while True:
        steps = follower.steps
        try:
            follower.finish_torn_range()
            follower.catch_up()
            follower.wait(start())
            return
        except Unreachable as error:
            if once:
                raise
            on_warning(f"{error}; waiting for it")
            wait_for(follower.source, trigger_s)
            failures = 0
        except (LogMoved, PySparkException) as error:
            failures = 1 if follower.steps > steps else failures + 1
            if failures == ATTEMPTS:
                raise
            on_warning(f"a micro-batch failed and is repeated: {str(error).strip().splitlines()[0]}")


def _started(
    spark: SparkSession,
    lake: Lake,
    source: FollowedLog,
    follower: _Follower,
    once: bool,
    max_records: int | None,
    trigger_s: float,
) -> StreamingQuery:
    """Start a Spark stream from the end of the lake. Its checkpoint is a temporary directory, which ends with it."""
    start = follower.position()
    options = {"path": source.place, "startingOffset": str(start.offset)}
    if source.is_live:
        options |= {"startingEpoch": str(start.epoch), "observer": f"pipeline of {lake.uri}"}
    if source.command_config is not None:
        options["commandConfig"] = source.command_config
    if source.cluster_id is not None:
        options["clusterId"] = source.cluster_id
    if max_records is not None:
        options["maxRecords"] = str(max_records)
    reader = spark.readStream.format(source.form.source).options(**options)
    rows = reader.load() if source.is_live else reader.schema(SEEN).load()
    writer = rows.writeStream.foreachBatch(follower.take)
    every = f"{max(1, round(trigger_s * 1000))} milliseconds"
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    return writer.start()


def wait_for(source: FollowedLog, pause_s: float) -> None:
    """Wait until a controller answers."""
    while True:
        try:
            with source.opened() as log:
                log.state()
                return
        except (ClusterUnreachable, ApiError):
            time.sleep(pause_s)


def _write(uri: str, directory: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write batches of the log into a file of bronze. Runs in Spark's workers."""
    with TaskFiles(uri, {BATCHES: directory}) as files:
        files.add_all((BATCHES, batch) for batch in batches)
        yield from files.report()


class _Follower:
    """Applies each micro-batch to the lake."""

    def __init__(self, spark: SparkSession, lake: Lake, source: FollowedLog, on_step: Callable[[Step], None]) -> None:
        self._spark, self._lake, self.source, self._on_step = spark, lake, source, on_step
        self.steps = 0
        self._failure: Exception | None = None
        self._is_ending = False
        self._is_idle = threading.Event()
        self._is_idle.set()

    def wait(self, query: StreamingQuery) -> None:
        """Wait until a Spark stream ends. An exception of a micro-batch is raised again as it was, an exception of the source in
        a Spark process as the fault that it was. KeyboardInterrupt ends the stream after the current micro-batch.

        A thread waits for Spark, so that a signal never interrupts a call to the JVM in this thread.
        """
        ended = threading.Event()
        errors: list[PySparkException] = []

        def await_end() -> None:
            try:
                query.awaitTermination()
            except PySparkException as error:
                errors.append(error)
            finally:
                ended.set()

        self._failure = None
        waiting = threading.Thread(target=await_end, name="stream", daemon=True)
        waiting.start()
        try:
            ended.wait()
        except KeyboardInterrupt:
            self._is_ending = True
            self._is_idle.wait()
            query.stop()
            raise
        waiting.join()
        if errors:
            if self._failure is not None:
                raise self._failure from None
            raise fault_of_worker(errors[0], FAULTS_OF_SOURCES) from errors[0]

    def take(self, rows: DataFrame, batch_id: int) -> None:
        """Take a micro-batch. Spark calls this."""
        self._is_idle.clear()
        try:
            if not self._is_ending:
                self._take(rows, batch_id)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._is_idle.set()

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        rows = rows.persist()
        try:
            lo = self._done()
            hi = max(lo, self._end_of(rows))
            if hi > lo:
                batches = self._into_bronze(rows, lo, hi, batch_id)
                counts = self.catch_up()
                self._tidy()
                self.steps += 1
                self._on_step(Step(self.steps, lo, hi, batches, counts, time.monotonic() - started))
        finally:
            rows.unpersist()

    def catch_up(self) -> dict[str, int]:
        """Bring silver and gold up to bronze, and return the rows of gold by table."""
        if self._lake.active(BATCHES):
            silver_build.build(self._spark, self._lake)
        if self._lake.active(silver_build.CHANGES):
            gold_build.build(self._spark, self._lake)
        return {table: sum(each.rows for each in self._lake.active(table)) for table in gold_build.TABLES}

    def _tidy(self) -> None:
        """Merge small ranges, and remove ranges that were replaced long ago."""
        if compaction.compact(self._lake, (*TABLES, *silver_build.TABLES)):
            self._lake.vacuum(hours=READERS_HOURS)

    def position(self) -> OffsetAndEpoch:
        """Return the offset after the last record of bronze, with the record's epoch. Offsets from there to the end of bronze are
        skipped.
        """
        for part in reversed(self._lake.active(BATCHES)):
            rows = self._lake.arrow_of(part, ["last_offset", "leader_epoch", "segment"])
            if rows.num_rows:
                last, epoch, segment = rows.sort_by([("last_offset", "descending")]).slice(0, 1).to_pylist()[0].values()
                snapshot = SNAPSHOT_NAME.fullmatch(segment)
                return OffsetAndEpoch(last + 1, epoch if snapshot is None else int(snapshot[2]))
        return OffsetAndEpoch(0, 0)

    def finish_torn_range(self) -> None:
        """Commit the rest of a range after a run that was killed between two tables of bronze."""
        lo, hi = self._done(), max(map(self._end, TABLES))
        if lo == hi:
            return
        part = self._lake.active(BATCHES)[-1]
        if not self.source.is_live:
            ingest(self._spark, self._lake, [self.source.place], lo=lo, hi=hi)
        elif LIVE in part.details:
            self._commit_marks(lo, hi, part.details, self._lake.arrow_of(part))
        else:
            raise WrongUse(
                f"an ingest into {self._lake} was killed before its end, at offsets {lo} to {hi - 1}; "
                f"the next step: kraftlab pipeline ingest LOGDIR... --lake {self._lake.place()}"
            )

    def _end_before(self, lo: int) -> int:
        """Return the end of the batches of the range before `lo`. The last batch can reach beyond the range."""
        before = [each for each in self._lake.active(BATCHES) if each.hi == lo]
        found = bronze.ends(self._lake.arrow_of(before[0], bronze.KEYS)) if before else {}
        return max([lo, *found.values()])

    def _end(self, table: str) -> int:
        return max((each.hi for each in self._lake.active(table)), default=0)

    def _done(self) -> int:
        """Return the end of the last range that all tables of bronze have."""
        return min(map(self._end, TABLES))

    @staticmethod
    def _end_of(rows: DataFrame) -> int:
        (row,) = rows.groupBy().max("last_offset").collect()
        return 0 if row[0] is None else int(row[0]) + 1

    def _into_bronze(self, rows: DataFrame, lo: int, hi: int, batch_id: int) -> int:
        """Ingest offsets [lo, hi), and return the number of batches."""
        if not self.source.is_live:
            return ingest(self._spark, self._lake, [self.source.place], lo=lo, hi=hi).batches
        new = rows.where(F.col("segment").like(bronze.SNAPSHOTS) | (F.col("base_offset") >= lo))
        (row,) = new.select("format", "cluster_id", "controller_id").limit(1).collect()
        details = {
            "format": row["format"],
            "cluster_id": row["cluster_id"],
            "controllers": str(row["controller_id"]),
            LIVE: str(batch_id),
        }
        files = written(new.mapInArrow(partial(_write, self._lake.uri, self._lake.directory(BATCHES, lo, hi)), PARTS)).files
        part = self._lake.commit_parts(BATCHES, lo, hi, files.get(BATCHES, ()), details=details)
        self._commit_marks(lo, hi, details, self._lake.arrow_of(part, ["segment", "base_offset"]))
        return part.rows

    def _commit_marks(self, lo: int, hi: int, details: Mapping[str, str], batches: pa.Table) -> None:
        """Commit the other tables of bronze. A quorum sends no damages; offsets are missing if a snapshot replaced them."""
        rows = batches.select(["segment", "base_offset"]).to_pylist()
        firsts = [row["base_offset"] for row in rows if not row["segment"].endswith(bronze.SNAPSHOTS[1:])]
        first = min(firsts, default=hi)
        gaps = []
        start = self._end_before(lo)
        if first > start:
            cause = "compacted" if len(firsts) < len(rows) else "missing_segment"
            same = {
                "controller_id": int(details["controllers"]),
                "format": details["format"],
                "cluster_id": details["cluster_id"],
            }
            gaps = [{"from_offset": start, "to_offset": first, "cause": cause, **same}]
        for table, missing in ((QUARANTINE, []), (GAPS, gaps)):
            self._lake.commit_arrow(pa.Table.from_pylist(missing, schema=arrow_schema(table)), table, lo, hi, details=details)
