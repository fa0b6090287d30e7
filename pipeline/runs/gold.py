"""Gold from silver and bronze.

Gold is built as a whole: each build makes its tables from all of silver and replaces the old ones, in one commit per table. An
incremental build would be possible, since life cycles are per partition. But it would need the open cycles, and every partition's
last list, ISR and leader, as a state of their own; and a range of silver that is built again, as after a damaged log was ingested
once more, would leave wrong rows that nothing marks as wrong. A whole build takes seconds for a million changes, and grows with
them alone.

Everything is computed once: reassignments, their replicas and the states of partitions in one pass over the changes, and their
consequences from the committed tables. A table is rebuilt only if one of its inputs has other rows since, according to the
commits: a range without rows, as most micro-batches add to most tables, makes nothing stale. Only the histories of many changes
use Spark's workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ..audits import drift_arrow
from ..errors import WrongUse
from ..lake.commits import Lake
from ..session.factory import master_of
from ..sources.bronze_pass import BATCHES
from ..storage import uris
from ..storage.parts import written
from ..tables import histories
from ..tables.log_dir_samples import TABLE as SAMPLES
from .build import BROKERS, CHANGES, TOPICS
from .gold_in_process import BROKER_LOAD, DIR_SKEW, DIVERGENCE, EPOCHS, MADE_HERE, STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASSIGNMENTS, REPLICAS, DRIFT = "gold.reassignments", "gold.reassignment_replicas", drift_arrow.TABLE

INPUTS = {
    REASSIGNMENTS: (CHANGES, TOPICS),
    REPLICAS: (CHANGES, TOPICS),
    STATE: (CHANGES, TOPICS),
    DRIFT: (REASSIGNMENTS, STATE),
    BROKER_LOAD: (SAMPLES, BROKERS, STATE),
    DIR_SKEW: (SAMPLES, BROKERS, STATE),
    EPOCHS: (BATCHES,),
    DIVERGENCE: (BATCHES,),
}
"""Table → its input tables."""
TABLES = tuple(INPUTS)
_OF_HISTORIES = (REASSIGNMENTS, REPLICAS, STATE)
ROWS_MAX = 50_000
"""Histories of more changes are worth a Spark job."""
_OF_SAMPLES = frozenset({BROKER_LOAD, DIR_SKEW})


class GoldReport(msgspec.Struct, frozen=True):
    """Result of a build: rows of the built tables, which cover offsets [lo, hi)."""

    lo: int
    hi: int
    rows: dict[str, int] = {}


def stale(lake: Lake, tables: Iterable[str]) -> list[str]:
    """Return the tables with inputs that have other rows since their build, or are stale."""
    known: dict[str, bool] = {}

    def is_stale(table: str) -> bool:
        if table not in known:
            made = lake.active(table)
            behind = not made or made[-1].inputs != _made_of(lake, table)
            known[table] = behind or any(is_stale(each) for each in INPUTS[table] if each in INPUTS)
        return known[table]

    return [table for table in tables if is_stale(table)]


def _made_of(lake: Lake, table: str) -> dict[str, int]:
    return {name: lake.changed(name) for name in INPUTS[table]}


def _needed(tables: Iterable[str]) -> list[str]:
    """Return the tables and their inputs in gold, in the order in which they are built."""
    wanted = set(tables)
    for table in reversed(TABLES):
        if table in wanted:
            wanted.update(INPUTS[table])
    return [table for table in TABLES if table in wanted]


def build(
    spark: SparkSession,
    lake: Lake,
    tables: Sequence[str] = TABLES,
    *,
    lo: int | None = None,
    hi: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> GoldReport:
    """Build the stale ones of the tables. WrongUse for a range, or if there is nothing to build from."""
    uris.check_reach(lake.uri, master_of(spark))
    if lo or hi is not None:
        raise WrongUse(
            "gold is built of all of silver at once; leave --range out (state --at-offset shows partitions as they were)"
        )
    if not any(map(lake.latest, (CHANGES, BATCHES, SAMPLES))):
        raise WrongUse(f"{lake} holds no tables; the next step: kraftlab pipeline ingest LOGDIR... --lake {lake.place()}")
    with lake.writing():
        if lake.latest(BATCHES) and not lake.latest(CHANGES):
            raise WrongUse(f"{lake} has no silver tables; the next step: kraftlab pipeline build silver --lake {lake.place()}")
        ends = [each.hi for name in (CHANGES, BATCHES) for each in lake.active(name)]
        chosen = stale(lake, _needed(tables))
        end = max([1, *ends, *(each.hi for table in chosen for each in lake.active(table))])
        if not chosen:
            return GoldReport(end, end)
        return GoldBuild(spark, lake, progress).run(chosen, end)


class GoldBuild:
    """One build of some tables. Without `spark` everything is made in this process."""

    def __init__(self, spark: SparkSession | None, lake: Lake, progress: Callable[[str], None]) -> None:
        self.spark, self.lake, self.progress = spark, lake, progress

    def run(self, tables: Sequence[str], end: int) -> GoldReport:
        rows = self._histories([table for table in _OF_HISTORIES if table in tables], end)
        for table in tables:
            if table == DRIFT:
                rows[table] = self._drift(end)
            elif table in MADE_HERE:
                rows[table] = self._commit(table, end)
        return GoldReport(0, end, rows)

    def _histories(self, tables: Sequence[str], end: int) -> dict[str, int]:
        """Return rows by table, for the tables made from the histories of partitions."""
        if not tables:
            return {}
        self.progress(", ".join(tables))
        inputs = _made_of(self.lake, tables[0])
        changes = [file for part in self.lake.active(CHANGES) for file in part.files]
        directories = {table: self.lake.directory(table, 0, end) for table in tables}
        deletions = histories.deletions_of(self.lake.arrow(TOPICS, histories.TOPIC_COLUMNS))
        job = histories.job_of(changes, deletions, self.lake.uri, directories)
        spark = self.spark if sum(file.rows for file in changes) > ROWS_MAX else None
        files = written(histories.run_task(job._replace(tasks=1), 0) if spark is None else histories.run(spark, job)).files
        return {table: self.lake.commit_parts(table, 0, end, files.get(table, ()), inputs=inputs).rows for table in tables}

    def _drift(self, end: int) -> int:
        self.progress(DRIFT)
        files = [file for part in self.lake.active(REASSIGNMENTS) for file in part.files]

        def reassignments(columns: list[str]) -> Iterator[pa.Table]:
            for file in files:
                yield self.lake.arrow_of_files(REASSIGNMENTS, [file], columns)

        rows = drift_arrow.rf_drift(reassignments, self.lake.arrow(STATE, drift_arrow.STATE_COLUMNS))
        return self.lake.commit_arrow(rows, DRIFT, 0, end, inputs=_made_of(self.lake, DRIFT)).rows

    def _is_one_log(self) -> bool:
        """Return whether bronze has the log of one controller alone, with which nothing can disagree."""
        named = [each.details.get("controllers") for each in self.lake.active(BATCHES)]
        return None not in named and len({name for names in named for name in (names or "").split(",")}) < 2

    def _commit(self, table: str, end: int) -> int:
        self.progress(table)
        inputs = _made_of(self.lake, table)
        if (table in _OF_SAMPLES and not self.lake.latest(SAMPLES)) or (table == DIVERGENCE and self._is_one_log()):
            return self.lake.commit_parts(table, 0, end, (), inputs=inputs).rows
        return self.lake.commit_arrow(MADE_HERE[table](self.lake), table, 0, end, inputs=inputs).rows
