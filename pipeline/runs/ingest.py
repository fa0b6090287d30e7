"""Logs into bronze.

One run takes one range of offsets [lo, hi) of the logs of one cluster, from any number of controllers, and commits it to the
three tables of bronze: batches, damages, and missing offsets. Without bounds it continues after the last run, and stops at the
committed end of the logs (`sources.survey`). A repeated run replaces its range, and so does one after a kill. A range that was
killed between the tables is repeated, together with new offsets.

If a segment is cleaned during the read, the read is planned once more; missing offsets are a gap then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from kraftlab.records.record_batch import MAGIC_AT

from ..errors import CorruptInput, WrongUse, fault_of_worker
from ..lake.commits import Lake
from ..lake.delta import Range
from ..session.factory import master_of
from ..sources.bronze_pass import BATCHES, QUARANTINE, take
from ..sources.formats import FORMATS, KAFKA, KRAFTLAB, LogFormat, format_named, is_own_format
from ..sources.options import FAILFAST, PERMISSIVE, Options
from ..sources.pruning import Bounds
from ..sources.reader import tasks_of
from ..sources.survey import LOG, LogFile, Survey, find_files, reader_of, survey
from ..storage import uris
from ..storage.parts import DataFile, WrittenFiles, written
from ..storage.schemas import arrow_schema
from ..tables import bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAPS = "bronze.offset_gaps"
TABLES = (BATCHES, QUARANTINE, GAPS)
ATTEMPTS = 2


class DamagedRange(msgspec.Struct, frozen=True):
    """One stretch of a file that is not a batch. `is_harmless`: the end of a segment during a write."""

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
    """Result of a run. `lo` and `hi` are its range, equal if there was nothing new."""

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
    damages: tuple[DamagedRange, ...] = ()
    damage_count: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def faults(self) -> int:
        """Damages other than the end of a segment during a write."""
        return self.damage_count - sum(damage.is_harmless for damage in self.damages)


SHOWN_MAX = 1000
"""Maximum number of damages in a report. The table has all of them."""


def detect(places: Iterable[str]) -> LogFormat:
    """Return the format of logs by the beginnings of their files. WrongUse if these do not tell it."""
    files = find_files(places)
    for file in sorted(files, key=lambda each: (each.kind != LOG, each.name)):
        read, size_bytes = reader_of(file.uri)
        start = read(0, min(size_bytes, 1 << 20))
        if is_own_format(start) or FORMATS[KRAFTLAB].form.magic in start:
            return FORMATS[KRAFTLAB]
        if len(start) > MAGIC_AT and start[MAGIC_AT] == FORMATS[KAFKA].form.magic[0]:
            return FORMATS[KAFKA]
    names = ", ".join(FORMATS)
    raise WrongUse(
        f"none of {len(files)} files begins like a metadata log, for example {uris.shown(files[0].uri)}; give --format ({names})"
    )


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
    """Ingest one range. WrongUse; CorruptInput for logs of several clusters or of a cluster other than the lake's, and in
    failfast mode for any damage.
    """
    uris.check_reach(lake.uri, master_of(spark))
    for place in places:
        uris.check_reach(uris.normalised(place), master_of(spark))
    if lo is not None and hi is not None and hi <= lo:
        raise WrongUse(f"[{lo}, {hi}) is not a range of offsets: --from is the first offset, and --to the offset after the last")
    form = format_named(format_name) if format_name else detect(places)
    find_files(places)
    with lake.writing():
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
        return _Run(spark, lake, form, found, start, end).run(report, places, mode)


def cluster_of(lake: Lake, form: LogFormat, cluster_id: str | None = None) -> str | None:
    """Return the cluster that logs must be of. CorruptInput if the lake holds another one, or the other format."""
    for part in lake.active(BATCHES):
        known, format_name = part.details.get("cluster_id"), part.details.get("format")
        if format_name != form.name:
            raise CorruptInput(f"{lake} holds logs of format {format_name}, these are {form.name}; give them a lake of their own")
        if known is not None and cluster_id is not None and known != cluster_id:
            raise CorruptInput(f"{lake} holds logs of cluster {known}, not of {cluster_id}; give them a lake of their own")
        cluster_id = known if cluster_id is None else cluster_id
    return cluster_id


def _next_offset(lake: Lake) -> int:
    """Return the end of the last complete run."""
    return min(max((part.hi for part in lake.active(table)), default=0) for table in TABLES)


class _Run:
    """One range of one survey."""

    def __init__(self, spark: SparkSession, lake: Lake, form: LogFormat, found: Survey, lo: int, hi: int) -> None:
        self.spark, self.lake, self.form, self.found, self.lo, self.hi = spark, lake, form, found, lo, hi
        self.details = {"format": form.name, "controllers": ",".join(str(log.controller_id) for log in found.logs)}
        if found.cluster_id is not None:
            self.details["cluster_id"] = found.cluster_id

    def run(self, report: IngestReport, places: Sequence[str], mode: str) -> IngestReport:
        taken, records = self._taken(places)
        damaged = taken.files.get(QUARANTINE, [])
        known, count = self._damages(damaged)
        if mode == FAILFAST:
            for damage in known:
                if not damage.is_harmless:
                    self.lake.discard(each for files in taken.files.values() for each in files)
                    raise _refusal(damage)
        batches = self._commit(BATCHES, taken.files.get(BATCHES, []))
        quarantine = self._commit(QUARANTINE, damaged, {BATCHES: batches.number})
        gaps = self._gaps(batches, quarantine)
        self._commit_gaps(gaps, {BATCHES: batches.number, QUARANTINE: quarantine.number})
        return msgspec.structs.replace(
            report,
            batches=batches.rows,
            records=records,
            damages=known,
            damage_count=count,
            gaps=tuple(Gap(*gap) for gap in gaps),
        )

    def _taken(self, places: Sequence[str]) -> tuple[WrittenFiles, int]:
        """Return (files, records in their batches). If files disappear meanwhile, the read is planned once more; missing offsets
        are gaps then.
        """
        directories = {table: self.lake.directory(table, self.lo, self.hi) for table in (BATCHES, QUARANTINE)}
        options = Options(tuple(places), start_offset=self.lo, end_offset=self.hi)
        for attempt in range(ATTEMPTS):
            tasks = tasks_of(self.found, self.form, options, Bounds.of(options))
            try:
                taken = written(take(self.spark, tasks, self.form.name, self.lake.uri, directories))
            except Exception as error:
                raise fault_of_worker(error, {CorruptInput: CorruptInput}) from error
            if attempt == ATTEMPTS - 1 or not any(missing for _, missing in taken.notes):
                break
            self.lake.discard(each for files in taken.files.values() for each in files)
            self.found = survey(places, self.form, self.found.cluster_id)
        return taken, sum(records for records, _ in taken.notes)

    def _damages(self, files: Sequence[DataFile]) -> tuple[tuple[DamagedRange, ...], int]:
        """Return the first damages, and the number of all damages."""
        columns = ["controller_id", "segment", "pos", "end_pos", "status", "detail"]
        rows = self.lake.arrow_of_files(QUARANTINE, files, columns).sort_by([(name, "ascending") for name in columns[:3]])
        newest = {file.controller_id: file.name for file in self.found.files if _is_newest(file)}
        shown = tuple(
            DamagedRange(**row, is_harmless=row["status"] == "truncated" and newest.get(row["controller_id"]) == row["segment"])
            for row in rows.slice(0, SHOWN_MAX).to_pylist()
        )
        return shown, rows.num_rows

    def _gaps(self, batches: Range, quarantine: Range) -> list[bronze.Gap]:
        starts = {log.controller_id: log.start_offset for log in self.found.logs}
        keys = self.lake.arrow_of(batches, bronze.KEYS)
        marks = self.lake.arrow_of(quarantine, bronze.MARKS)
        return bronze.offset_gaps(keys, marks, starts, self.lo, self.hi, self._ends_before())

    def _ends_before(self) -> dict[int, int]:
        """Return the ends of the last batches before the range. A range without rows lies within one batch."""
        lo = self.lo
        for each in reversed(self.lake.active(BATCHES)):
            if each.hi == lo:
                if each.rows:
                    return bronze.ends(self.lake.arrow_of(each, bronze.KEYS))
                lo = each.lo
        return {}

    def _commit_gaps(self, gaps: Sequence[bronze.Gap], inputs: Mapping[str, int]) -> None:
        shared = {"format": self.form.name, "cluster_id": self.found.cluster_id}
        rows = pa.Table.from_pylist([gap._asdict() | shared for gap in gaps], schema=arrow_schema(GAPS))
        self.lake.commit_arrow(rows, GAPS, self.lo, self.hi, inputs=inputs, details=self.details)

    def _commit(self, table: str, files: Sequence[DataFile], inputs: Mapping[str, int] = {}) -> Range:
        return self.lake.commit_parts(table, self.lo, self.hi, files, inputs=inputs, details=self.details)


def _is_newest(file: LogFile) -> bool:
    return file.kind == LOG and file.next_offset is None


def _refusal(damage: DamagedRange) -> CorruptInput:
    where = f"{damage.segment} of node {damage.controller_id}, position {damage.pos}"
    reason = f"{where}: {damage.status}: {damage.detail}"
    return CorruptInput(f"{reason}. Nothing was ingested; --mode permissive skips the damage")
