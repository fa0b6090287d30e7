"""Gold out of silver and bronze.

Gold is built whole: each build makes its tables of all of silver and replaces what stood there, in one commit per table. That
is a choice. Life cycles are per partition, so that only those of new offsets could be added to those that ended before. But then
what is open, and every partition's last list, ISR and leader, would have to be kept as a state of their own; and a range of
silver that is built again, as after a damaged log was taken in once more, would leave rows behind that nothing says are wrong.
What a whole build costs is seconds for a million changes, and grows with them alone.

A build does nothing if what it would be made of is what the last one was made of, which the manifests say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..errors import WrongUse
from ..lake import uris
from ..lake.commits import Lake
from ..session.factory import master_of
from ..sources.taking import BATCHES
from ..tables import gold
from ..tables.log_dir_samples import TABLE as SAMPLES
from .build import BROKERS, CHANGES, TOPICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REASSIGNMENTS, REPLICAS, DRIFT = "gold.reassignments", "gold.reassignment_replicas", "gold.rf_drift"
STATE = "silver.partition_state"
BROKER_LOAD, DIR_SKEW = "gold.broker_load", "gold.log_dir_skew"
EPOCHS, DIVERGENCE = "gold.leader_epochs", "gold.log_divergence"

INPUTS = {
    REASSIGNMENTS: (CHANGES, TOPICS),
    REPLICAS: (CHANGES, TOPICS),
    STATE: (CHANGES, TOPICS),
    DRIFT: (CHANGES, TOPICS),
    BROKER_LOAD: (SAMPLES, BROKERS, CHANGES, TOPICS),
    DIR_SKEW: (SAMPLES, BROKERS, CHANGES, TOPICS),
    EPOCHS: (BATCHES,),
    DIVERGENCE: (BATCHES,),
}
"""Table → the tables that it is made of."""
TABLES = tuple(INPUTS)
_OF_CYCLES = {REASSIGNMENTS, REPLICAS, DRIFT}


class GoldReport(msgspec.Struct, frozen=True):
    """What a build did: rows of the tables that were made, which are of offsets [lo, hi)."""

    lo: int
    hi: int
    rows: dict[str, int] = {}


def stale(lake: Lake, tables: Iterable[str]) -> list[str]:
    """Those whose inputs have manifests that they were not made of."""
    latest = {name: lake.latest(name) for name in {each for table in tables for each in INPUTS[table]}}
    found = []
    for table in tables:
        manifests = lake.active(table)
        made_of = manifests[-1].inputs if manifests else None
        if made_of != {name: latest[name] for name in INPUTS[table]}:
            found.append(table)
    return found


def build(
    spark: SparkSession,
    lake: Lake,
    tables: Sequence[str] = TABLES,
    *,
    lo: int | None = None,
    hi: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> GoldReport:
    """Builds those of the tables that are stale. WrongUse for a range, or if there is nothing to build them of."""
    uris.check_reach(lake.uri, master_of(spark))
    if lo or hi is not None:
        raise WrongUse(
            "gold is built of all of silver at once; leave --range out (state --at-offset shows partitions as they were)"
        )
    with lake.writing():
        ends = [each.hi for name in (CHANGES, BATCHES) for each in lake.active(name)]
        if not ends and not lake.latest(SAMPLES):
            raise WrongUse(f"{lake} holds no tables; the next step: kraftlab pipeline ingest LOGDIR... --lake {lake.place()}")
        if lake.latest(BATCHES) and not lake.latest(CHANGES):
            raise WrongUse(f"{lake} has no silver tables; the next step: kraftlab pipeline build silver --lake {lake.place()}")
        chosen = stale(lake, tables)
        end = max([1, *ends, *(each.hi for table in chosen for each in lake.active(table))])
        if not chosen:
            return GoldReport(end, end)
        return _Build(spark, lake, progress).run(chosen, end)


class _Build:
    """One build of some tables."""

    def __init__(self, spark: SparkSession, lake: Lake, progress: Callable[[str], None]) -> None:
        self.spark, self.lake, self.progress = spark, lake, progress

    def run(self, tables: Sequence[str], end: int) -> GoldReport:
        changes, topics = self._read(CHANGES), self._read(TOPICS)
        states = gold.partition_states(changes, topics)
        cycles = gold.life_cycles(changes, topics)
        if len(_OF_CYCLES.intersection(tables)) > 1:
            cycles = cycles.persist()
        try:
            made: dict[str, Callable[[], DataFrame]] = {
                REASSIGNMENTS: lambda: gold.reassignments(cycles),
                REPLICAS: lambda: gold.reassignment_replicas(cycles),
                STATE: lambda: states,
                DRIFT: lambda: gold.rf_drift(gold.reassignments(cycles), states),
                BROKER_LOAD: lambda: gold.broker_load(self._read(SAMPLES), self._read(BROKERS), states),
                DIR_SKEW: lambda: gold.log_dir_skew(self._read(SAMPLES), self._read(BROKERS), states),
                EPOCHS: lambda: gold.leader_epochs(self._read(BATCHES)),
                DIVERGENCE: lambda: gold.log_divergence(self._read(BATCHES)),
            }
            return GoldReport(0, end, {table: self._commit(table, made[table](), end) for table in tables})
        finally:
            cycles.unpersist()

    def _read(self, table: str) -> DataFrame:
        return self.lake.read(self.spark, table)

    def _commit(self, table: str, rows: DataFrame, end: int) -> int:
        self.progress(table)
        inputs = {name: self.lake.latest(name) for name in INPUTS[table]}
        written = rows.coalesce(1) if table not in _OF_CYCLES else rows
        return self.lake.commit(table, 0, end, lambda directory: _write(written, directory), inputs=inputs).rows


def _write(rows: DataFrame, directory: str) -> None:
    rows.write.mode("append").parquet(directory)
