"""Logs into bronze.

One run takes one range of offsets [lo, hi) of the logs of one cluster, from as many controllers as are given, and commits it to
the three tables of bronze: the batches, what is damaged, and which offsets are missing. Without bounds it goes on where the last
run ended, and stops where the logs are known to be committed (`sources.survey`). A run that is repeated, or that was killed and
is done again, replaces its range. The range of a run that was killed between the tables is done again, together with what is new.

A segment that is cleaned away while it is read makes the read be planned once more; what is missing then is a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import CorruptInput, WrongUse
from ..lake import uris
from ..lake.commits import Lake, Manifest
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
        expected = _of_lake(lake, form, cluster_id)
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


def _of_lake(lake: Lake, form: LogFormat, cluster_id: str | None) -> str | None:
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
            known, count = self._described(damages)
            if mode == FAILFAST:
                _refuse(known)
            batches = self._commit(BATCHES, self._source({}))
            quarantine = self._commit(QUARANTINE, damages, {BATCHES: batches.number})
        finally:
            damages.unpersist()
        gaps = self._commit(GAPS, self._gaps(), {BATCHES: batches.number, QUARANTINE: quarantine.number})
        records = self._read(BATCHES).groupBy().sum("n_records").collect()[0][0]
        return msgspec.structs.replace(
            report,
            batches=batches.rows,
            records=int(records or 0),
            damages=known,
            damage_count=count,
            gaps=_as_gaps(self.lake, gaps),
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

    def _described(self, damages: DataFrame) -> tuple[tuple[Damaged, ...], int]:
        newest = {file.controller_id: file for file in self.found.files if _is_newest(file)}
        rows = damages.select("controller_id", "segment", "pos", "end_pos", "status", "detail")
        found = rows.orderBy("controller_id", "segment", "pos").limit(SHOWN_MAX).collect()
        described = []
        for row in found:
            file = newest.get(row.controller_id)
            is_harmless = row.status == "truncated" and file is not None and file.name == row.segment
            described.append(Damaged(**row.asDict(), is_harmless=is_harmless))
        return tuple(described), len(found) if len(found) < SHOWN_MAX else damages.count()

    def _gaps(self) -> DataFrame:
        starts = [(log.controller_id, log.start_offset) for log in self.found.logs]
        known = self.spark.createDataFrame(starts, "controller_id int, log_start bigint")
        return bronze.offset_gaps(self._read(BATCHES), self._read(QUARANTINE), known, self.lo, self.hi)

    def _read(self, table: str) -> DataFrame:
        return self.lake.read(self.spark, table, lo=self.lo, hi=self.hi)

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


def _as_gaps(lake: Lake, manifest: Manifest) -> tuple[Gap, ...]:
    columns = ["controller_id", "from_offset", "to_offset", "cause"]
    rows: list[dict[str, Any]] = lake.arrow_of(manifest, columns).to_pylist()
    return tuple(Gap(**row) for row in sorted(rows, key=lambda row: (row["controller_id"], row["from_offset"])))
