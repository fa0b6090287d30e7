"""Silver from bronze.

A build takes the range of bronze that silver does not have yet, and ranges of silver whose batches were ingested again since. It
ends before an open transaction, whose outcome is unknown; the next build begins there. Records of aborted transactions are in no
table; `other_records` has the markers of their beginnings and ends.

Snapshots are read where segments have holes, as in a log's cleaned beginning; their rows have kind `snapshot`. What existed
before a hole and is not in the snapshot after it ended in the hole (`tables.removed_in_gaps`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc

from ..errors import WrongUse
from ..lake.commits import Lake
from ..lake.delta import Range
from ..session.factory import master_of
from ..sources.bronze_pass import BATCHES, QUARANTINE
from ..storage import uris
from ..storage.parts import DataFile, TaskFiles, written
from ..tables import bronze, removed_in_gaps, silver
from ..tables.batch_rows import Spans
from ..tables.wanted_batches import Piece, pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = TOPICS, CHANGES, BROKERS, CONFIGS, OTHER = silver.TABLES


class BuildReport(msgspec.Struct, frozen=True):
    """Result of a build. `rows` is by table; `undecodable` counts records of unknown type or version, or that do not fit their
    type; `disagreements` counts batches in which controllers differ; `open_from` is the beginning of an open transaction.
    """

    lo: int
    hi: int
    rows: dict[str, int] = {}
    undecodable: dict[str, int] = {}
    disagreements: int = 0
    snapshots: tuple[str, ...] = ()
    aborted: tuple[tuple[int, int], ...] = ()
    open_from: int | None = None


def build(
    spark: SparkSession,
    lake: Lake,
    tables: Sequence[str] = TABLES,
    *,
    lo: int | None = None,
    hi: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> BuildReport:
    """Build one range of the tables. WrongUse if nothing was ingested there or a table is not built here."""
    uris.check_reach(lake.uri, master_of(spark))
    for table in tables:
        if table not in TABLES:
            raise WrongUse(f"{table} is not built from logs; these are: {', '.join(TABLES)}")
    if not lake.latest(BATCHES):
        raise WrongUse(f"{lake} holds no batches; the next step: kraftlab pipeline ingest LOGDIR... --lake {lake.place()}")
    with lake.writing():
        ingested = lake.active(BATCHES)
        start = next_offset(lake, tables, ingested) if lo is None else lo
        end = min(hi if hi is not None else ingested[-1].hi, ingested[-1].hi)
        if lo is not None and not any(each.lo < end and start < each.hi for each in ingested):
            first, last = ingested[0].lo, ingested[-1].hi - 1
            raise WrongUse(f"{lake} holds no batches in that range: those it has are of offsets {first} to {last}")
        if end <= start:
            return BuildReport(start, start)
        return _Build(spark, lake, tables, ingested, progress).run(start, end)


def next_offset(lake: Lake, tables: Sequence[str], ingested: Sequence[Range]) -> int:
    """Return the first offset that some table lacks, or has from batches that were ingested again since."""
    return min(_built_end(lake.active(table), ingested) for table in tables)


def _built_end(built: Sequence[Range], ingested: Sequence[Range]) -> int:
    end = 0
    for part in built:
        newer = any(each.content > part.inputs.get(BATCHES, 0) and each.lo < part.hi and part.lo < each.hi for each in ingested)
        if newer or part.lo > end:
            break
        end = part.hi
    return end


class _Build:
    """One build of some tables."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        tables: Sequence[str],
        ingested: Sequence[Range],
        progress: Callable[[str], None],
    ) -> None:
        self.spark, self.lake, self.tables, self.ingested, self.progress = spark, lake, tables, ingested, progress
        self.controllers = {name for each in ingested for name in each.details.get("controllers", "").split(",")}

    def run(self, lo: int, hi: int) -> BuildReport:
        snapshots = self._needed_snapshots()
        seen = silver.marks(self.spark, self._pieces(lo, hi, snapshots), self.lake.uri)
        seen = seen._replace(names={**self._known_names(lo, snapshots), **seen.names})
        while True:
            found = silver.transactions(seen.markers)
            end = hi if found.open_from is None else self._batch_with(found.open_from, lo, hi)
            if end <= lo:
                return BuildReport(lo, lo, open_from=found.open_from)
            files, missed = self._decoded(lo, end, snapshots, seen, found.aborted)
            if missed.markers <= seen.markers and not missed.names:
                break
            self.lake.discard(each for parts in files.values() for each in parts)
            seen = silver.Marks(seen.markers | missed.markers, {**seen.names, **missed.names})
        ends = self._ends(files, lo, end, snapshots)
        if OTHER not in self.tables:
            self.lake.discard(files.get(OTHER, ()))
        files = {table: [*files.get(table, ()), *ends.get(table, ())] for table in self.tables}
        return BuildReport(
            lo,
            end,
            *self._commit_all(files, lo, end),
            snapshots=tuple(sorted(snapshots)),
            aborted=found.aborted,
            open_from=found.open_from,
            disagreements=self._disagreements(lo, end),
        )

    def _decoded(
        self, lo: int, hi: int, snapshots: set[str], seen: silver.Marks, spans: Spans
    ) -> tuple[Mapping[str, Sequence[DataFile]], silver.Marks]:
        """Return (files by table, marks that the first look missed or saw as well)."""
        self.progress(", ".join(self.tables))
        # Undecodable records show which ends snapshots cannot prove, so their table is always read.
        read = {*self.tables, OTHER} if any(table in removed_in_gaps.KINDS for table in self.tables) else self.tables
        directories = {table: self.lake.directory(table, lo, hi) for table in read}
        done = silver.tables(self.spark, self._pieces(lo, hi, snapshots), seen.names, spans, self.lake.uri, directories)
        markers = frozenset((offset, number) for each, _ in done.notes for offset, number in each)
        names = {topic_id: name for _, each in done.notes for topic_id, name in each.items()}
        return done.files, silver.Marks(markers, names)

    def _ends(
        self, files: Mapping[str, Sequence[DataFile]], lo: int, hi: int, snapshots: set[str]
    ) -> Mapping[str, Sequence[DataFile]]:
        """Return files with the ends in holes before the range's snapshots."""
        batches = self.lake.arrow(BATCHES, ["segment", "controller_id", "base_offset", "append_ms"])
        whole = snapshots & removed_in_gaps.whole_files(batches, self.lake.arrow(QUARANTINE, ["segment", "controller_id"]))
        found = [each for each in removed_in_gaps.snapshots_within(batches, whole, lo, hi) if each[0] > 0]
        if not found:
            return {}
        others = self.lake.arrow_of_files(OTHER, files.get(OTHER, ()), ["name", "offset", "kind", "error"])
        unread = removed_in_gaps.undecoded(others)
        directories = {table: self.lake.directory(table, lo, hi) for table in self.tables if table in removed_in_gaps.KINDS}
        with TaskFiles(self.lake.uri, directories) as written_here:
            for table in directories:
                earlier = [file for each in self.lake.active(table) if each.lo < lo for file in each.files]
                rows = self.lake.arrow_of_files(table, [*earlier, *files.get(table, ())]).to_pylist()
                for offset, ts_ms in (each for each in found if (table, each[0]) not in unread):
                    ends = removed_in_gaps.rows_of_ends(table, rows, offset, ts_ms)
                    written_here.add(table, ends)
                    rows += ends.to_pylist()
            return written(written_here.report()).files

    def _commit_all(self, files: Mapping[str, Sequence[DataFile]], lo: int, hi: int) -> tuple[dict[str, int], dict[str, int]]:
        """Return (rows by table, undecodable records by reason)."""
        newest = max((each.content for each in self._ingested_in(lo, hi)), default=0)
        done = {
            table: self.lake.commit_parts(table, lo, hi, files.get(table, ()), inputs={BATCHES: newest})
            for table in TABLES
            if table in self.tables
        }
        errors = self.lake.arrow_of(done[OTHER], ["error"])["error"].to_pylist() if OTHER in done else []
        undecodable = Counter(error for error in errors if error is not None)
        return {table: part.rows for table, part in done.items()}, dict(undecodable)

    def _known_names(self, lo: int, snapshots: set[str]) -> dict[str, str]:
        """Return names by id of all topics before the range: those of earlier builds, and those between them and the range."""
        topics = self.lake.arrow(TOPICS, ["topic_id", "name"]).to_pylist()
        known = {row["topic_id"]: row["name"] for row in topics if row["name"] is not None}
        behind = self._pieces(_built_end(self.lake.active(TOPICS), self.ingested), lo, snapshots)
        return {**known, **silver.marks(self.spark, behind, self.lake.uri).names}

    def _pieces(self, lo: int, hi: int, snapshots: set[str]) -> tuple[Piece, ...]:
        """Return each batch of the range once, and of the snapshots only the needed ones."""
        paths = [file.path for each in self._ingested_in(lo, hi) for file in each.files]
        return pieces(self.lake.uri, paths, lo, hi, snapshots, of_several=len(self.controllers) > 1)

    def _ingested_in(self, lo: int, hi: int) -> list[Range]:
        return [each for each in self.ingested if each.lo < hi and lo < each.hi]

    def _needed_snapshots(self) -> set[str]:
        batches = self.lake.arrow(BATCHES, bronze.KEYS)
        found = bronze.snapshots(batches)
        has_segments = any(not name.endswith(bronze.SNAPSHOTS[1:]) for name in batches["segment"].unique().to_pylist())
        return silver.needed_snapshots(bronze.holes(batches), found, has_segments)

    def _batch_with(self, offset: int, lo: int, hi: int) -> int:
        """Return the beginning of the batch that holds an offset."""
        files = [file for each in self._ingested_in(lo, hi) for file in each.files]
        batches = self.lake.arrow_of_files(BATCHES, files, ["segment", "base_offset"])
        is_before = pc.less_equal(batches["base_offset"], offset)
        is_of_log = pc.invert(pc.ends_with(batches["segment"], bronze.SNAPSHOTS[1:]))
        return int(pc.max(batches.filter(pc.and_(is_before, is_of_log))["base_offset"]).as_py())

    def _disagreements(self, lo: int, hi: int) -> int:
        if len(self.controllers) < 2:
            return 0
        return sum(bronze.disagreements(self.lake.arrow_of(part, [*bronze.KEYS, "crc"])) for part in self._ingested_in(lo, hi))
