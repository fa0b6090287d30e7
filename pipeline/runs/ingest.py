"""Logs into bronze.

One run takes one range of offsets [lo, hi) of the logs of one cluster, from as many controllers as are given, and commits it to
the three tables of bronze: the batches, what is damaged, and which offsets are missing. Without bounds it goes on where the last
run ended, and stops where the logs are known to be committed (`sources.survey`). A run that is repeated, or that was killed and
is done again, replaces its range. The range of a run that was killed between the tables is done again, together with what is new.

A segment that is cleaned away while it is read makes the read be planned once more; what is missing then is a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ..errors import CorruptInput, WrongUse
from ..lake import uris
from ..lake.commits import Lake, Manifest
from ..lake.schemas import arrow_schema
from ..session.factory import master_of
from ..sources import register
from ..sources.columns import MISSING
from ..sources.formats import FORMATS, KAFKA, KRAFTLAB, LogFormat, format_named
from ..sources.options import DAMAGES, FAILFAST, PERMISSIVE
from ..sources.survey import LOG, LogFile, Survey, find_files, reader_of, survey
from ..tables import bronze

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES, QUARANTINE, GAPS = "bronze.batches", "bronze.quarantine", "bronze.offset_gaps"
TABLES = (BATCHES, QUARANTINE, GAPS)
ATTEMPTS = 2
_OWN_STARTS = (b"KLS1", b"KLB1")
_KAFKA_MAGIC_AT = 16


class Damaged(msgspec.Struct, frozen=True):
    """One stretch of a file that is no batch. `is_harmless`: the end of a segment that is being written."""

    controller_id: int
    segment: str
    pos: int
    end_pos: int
    status: str
    detail: str
    is_harmless: bool


class Gap(msgspec.Struct, frozen=True):
    """Offsets [from, to) that a controller's log does not hold."""

    controller_id: int
    from_offset: int
    to_offset: int
    cause: str


class IngestReport(msgspec.Struct, frozen=True):
    """What a run did. `lo` and `hi` are its range, equal if there was nothing new."""

    format: str
    cluster_id: str | None
    controllers: tuple[int, ...]
    lo: int
    hi: int
    committed_end: int
    log_end: int
    how: str
    batches: int = 0
    records: int = 0
    damages: tuple[Damaged, ...] = ()
    damage_count: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def faults(self) -> int:
        """Damages that are more than the end of a segment which is being written."""
        return self.damage_count - sum(damage.is_harmless for damage in self.damages)


SHOWN_MAX = 1000
"""So many damages are listed in a report; all are in the table."""


def detect(places: Iterable[str]) -> LogFormat:
    """The format of logs by how their files begin. WrongUse if that says nothing."""
    files = find_files(places)
    for file in sorted(files, key=lambda each: (each.kind != LOG, each.name)):
        read, size_bytes = reader_of(file.uri)
        start = read(0, min(size_bytes, 1 << 20))
        if start[:4] in _OWN_STARTS or _OWN_STARTS[1] in start:
            return FORMATS[KRAFTLAB]
        if len(start) > _KAFKA_MAGIC_AT and start[_KAFKA_MAGIC_AT] == FORMATS[KAFKA].form.magic[0]:
            return FORMATS[KAFKA]
    names = ", ".join(FORMATS)
    raise WrongUse(f"{len(files)} files begin like no metadata log, {uris.shown(files[0].uri)} for one; say --format ({names})")


def ingest(
    spark: SparkSession,
    lake: Lake,
    places: Sequence[str],
    *,
    format_name: str | None = None,
    lo: int | None = None,
    hi: int | None = None,
    mode: str = PERMISSIVE,
    cluster_id: str | None = None,
) -> IngestReport:
    """Takes one range in. WrongUse; CorruptInput for logs of several clusters or another one than the lake's, and in failfast
    mode for any damage.
    """
    uris.check_reach(lake.uri, master_of(spark))
    for place in places:
        uris.check_reach(uris.normalised(place), master_of(spark))
    with lake.writing():
        form = format_named(format_name) if format_name else detect(places)
        expected = cluster_of(lake, form, cluster_id)
        found = survey(places, form, expected)
        start = _next_offset(lake) if lo is None else lo
        end = min(found.committed_end if hi is None else hi, found.log_end)
        report = IngestReport(
            form.name,
            found.cluster_id,
            tuple(log.controller_id for log in found.logs),
            start,
            max(start, end),
            found.committed_end,
            found.log_end,
            found.how,
        )
        if end <= start:
            return report
        for table in TABLES:
            lake.check_range(table, start, end)
        return _Run(spark, lake, form, found, places, start, end).run(report, mode)


def cluster_of(lake: Lake, form: LogFormat, cluster_id: str | None = None) -> str | None:
    """The cluster that logs must be of. CorruptInput if the lake holds another one, or the other format."""
    for manifest in lake.active(BATCHES):
        known, format_name = manifest.details.get("cluster_id"), manifest.details.get("format")
        if format_name != form.name:
            raise CorruptInput(f"{lake} holds logs of format {format_name}, these are {form.name}; give them a lake of their own")
        if known is not None and cluster_id is not None and known != cluster_id:
            raise CorruptInput(f"{lake} holds logs of cluster {known}, not of {cluster_id}; give them a lake of their own")
        cluster_id = known if cluster_id is None else cluster_id
    return cluster_id


def _next_offset(lake: Lake) -> int:
    """Where the last run that came to its end ended."""
    return min(max((manifest.hi for manifest in lake.active(table)), default=0) for table in TABLES)


class _Run:
    """One range of one survey."""

    def __init__(
        self, spark: SparkSession, lake: Lake, form: LogFormat, found: Survey, places: Sequence[str], lo: int, hi: int
    ) -> None:
        register(spark)
        self.spark, self.lake, self.form, self.found, self.lo, self.hi = spark, lake, form, found, lo, hi
        self.options = {
            "paths": msgspec.json.encode([uris.normalised(place) for place in places]).decode(),
            "startingOffset": str(lo),
            "endingOffset": str(hi),
        }
        if found.cluster_id is not None:
            self.options["clusterId"] = found.cluster_id
        self.details = {"format": form.name, "controllers": ",".join(str(log.controller_id) for log in found.logs)}
        if found.cluster_id is not None:
            self.details["cluster_id"] = found.cluster_id

    def run(self, report: IngestReport, mode: str) -> IngestReport:
        damages = self._damages()
        try:
            found, count = self._found(damages)
            known = self._described(found)
            if mode == FAILFAST:
                _refuse(known)
            batches = self._commit(BATCHES, self._source({}))
            quarantine = self._commit_quarantine(damages, found, count, batches)
        finally:
            damages.unpersist()
        gaps = self._gaps(batches, quarantine)
        self._commit_gaps(gaps, {BATCHES: batches.number, QUARANTINE: quarantine.number})
        return msgspec.structs.replace(
            report,
            batches=batches.rows,
            records=sum(self.lake.arrow_of(batches, ["n_records"])["n_records"].to_pylist()),
            damages=known,
            damage_count=count,
            gaps=tuple(Gap(*gap) for gap in gaps),
        )

    def _source(self, more: Mapping[str, str]) -> DataFrame:
        found: DataFrame = self.spark.read.format(self.form.source).options(**self.options, **more).load()
        return found

    def _damages(self) -> DataFrame:
        """Planned once more if files went away meanwhile; those that are missing then are gaps, not damages."""
        for attempt in range(ATTEMPTS):
            found = self._source({"rows": DAMAGES}).persist()
            if attempt == ATTEMPTS - 1 or not found.where(f"status = '{MISSING}'").head(1):
                break
            found.unpersist()
        return found.where(f"status <> '{MISSING}'")

    def _found(self, damages: DataFrame) -> tuple[pa.Table, int]:
        """(the first damages, how many there are)."""
        found = damages.orderBy("controller_id", "segment", "pos").limit(SHOWN_MAX).toArrow()
        return found, found.num_rows if found.num_rows < SHOWN_MAX else damages.count()

    def _described(self, found: pa.Table) -> tuple[Damaged, ...]:
        newest = {file.controller_id: file.name for file in self.found.files if _is_newest(file)}
        columns = ["controller_id", "segment", "pos", "end_pos", "status", "detail"]
        return tuple(
            Damaged(**row, is_harmless=row["status"] == "truncated" and newest.get(row["controller_id"]) == row["segment"])
            for row in found.select(columns).to_pylist()
        )

    def _commit_quarantine(self, damages: DataFrame, found: pa.Table, count: int, batches: Manifest) -> Manifest:
        """Few damages are in memory already."""
        inputs = {BATCHES: batches.number}
        if count > found.num_rows:
            return self._commit(QUARANTINE, damages, inputs)
        return self.lake.commit_arrow(found, QUARANTINE, self.lo, self.hi, inputs=inputs, details=self.details)

    def _gaps(self, batches: Manifest, quarantine: Manifest) -> list[bronze.Gap]:
        starts = {log.controller_id: log.start_offset for log in self.found.logs}
        keys = self.lake.arrow_of(batches, bronze.KEYS)
        return bronze.offset_gaps(keys, self.lake.arrow_of(quarantine, bronze.MARKS), starts, self.lo, self.hi)

    def _commit_gaps(self, gaps: Sequence[bronze.Gap], inputs: Mapping[str, int]) -> None:
        shared = {"format": self.form.name, "cluster_id": self.found.cluster_id}
        rows = pa.Table.from_pylist([gap._asdict() | shared for gap in gaps], schema=arrow_schema(GAPS))
        self.lake.commit_arrow(rows, GAPS, self.lo, self.hi, inputs=inputs, details=self.details)

    def _commit(self, table: str, rows: DataFrame, inputs: Mapping[str, int] = {}) -> Manifest:
        def write(directory: str) -> None:
            try:
                rows.write.mode("append").parquet(directory)
            except Exception as error:
                raise _as_fault(error) from error

        return self.lake.commit(table, self.lo, self.hi, write, inputs=inputs, details=self.details)


def _is_newest(file: LogFile) -> bool:
    return file.kind == LOG and file.next_offset is None


def _refuse(damages: Iterable[Damaged]) -> None:
    for damage in damages:
        if not damage.is_harmless:
            where = f"{damage.segment} of node {damage.controller_id}, position {damage.pos}"
            reason = f"{where}: {damage.status}: {damage.detail}"
            raise CorruptInput(f"{reason}. Nothing was taken in; --mode permissive goes around it")


def _as_fault(error: Exception) -> Exception:
    """What a worker raised, as the fault that it was: Spark hands over the text of it."""
    text = str(error)
    marker = f"{CorruptInput.__module__}.{CorruptInput.__name__}: "
    if marker in text:
        return CorruptInput(text.rpartition(marker)[2].splitlines()[0])
    return error
