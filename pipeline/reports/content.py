"""The numbers of a report, from the gold tables of a lake.

All numbers of the page, the text and the JSON are computed here, once; figures and templates only arrange them. Tables are read
as Arrow and reduced by columns, so a million reassignments take seconds and no JVM. Lists of single rows are bounded (`LISTED`),
and each list states the total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..lake.commits import Lake
from ..storage.schemas import SILVER, tables
from ..tables.bronze import damages, is_torn_end

if TYPE_CHECKING:
    import pyarrow as pa

LISTED = 400
"""Maximum number of reassignments, replicas or findings in a list."""
POINTS = 2_000
"""Maximum number of points of a curve."""
BAND = 0.10
"""Maximum distance of a log dir or broker from the mean: Cruise Control's balance threshold of 1.1."""

REASSIGNMENTS, REPLICAS, DRIFT = "gold.reassignments", "gold.reassignment_replicas", "gold.rf_drift"
BROKER_LOAD, DIR_SKEW = "gold.broker_load", "gold.log_dir_skew"
EPOCHS, DIVERGENCE = "gold.leader_epochs", "gold.log_divergence"
BATCHES, QUARANTINE, GAPS = "bronze.batches", "bronze.quarantine", "bronze.offset_gaps"
BUILT_OF_LOGS = (*tables(SILVER)[:4], REASSIGNMENTS, REPLICAS, DRIFT, EPOCHS, DIVERGENCE)
"""Tables that a lake with ingested logs can have without any samples of log dirs."""


class ReassignmentRow(msgspec.Struct, frozen=True):
    """One reassignment. Times are in ms since 1970, or null if the log does not have them. A topic without a name in the log is
    shown by its id.
    """

    reassignment_id: str
    topic: str
    partition: int
    status: str
    orig: list[int] | None
    target: list[int] | None
    start_ms: int | None
    end_ms: int | None
    duration_ms: int | None
    start_offset: int | None


class CatchUp(msgspec.Struct, frozen=True):
    """Times until replicas that were added to one broker were in sync, in ms. Only replicas whose start is in the log count."""

    broker_id: int
    replicas: int
    never: int
    quartiles_ms: tuple[float, float, float]
    p99_ms: float
    max_ms: int


class DirLoad(msgspec.Struct, frozen=True):
    """A log dir at one time; `ratio` is its bytes divided by the mean of its broker's log dirs."""

    broker_id: int
    path: str
    bytes: int
    ratio: float
    over_band: bool
    offline: bool


class Drift(msgspec.Struct, frozen=True):
    """A partition with an unexpected replication factor."""

    topic: str
    partition: int
    kind: str
    rf: int
    rf_expected: int | None
    offset: int | None
    culprit: str | None
    confidence: str


class Epoch(msgspec.Struct, frozen=True):
    """The leader of one epoch, and its offsets."""

    epoch: int
    leader: int | None
    start_offset: int
    end_offset: int | None


class ReassignmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """All contents of a report. `under_way` is a step curve: (ms, reassignments that ran from then on). `dirs` are log dirs at
    the first and the last sample (ms, loads). `missing` names the tables that were not built; numbers from them are null or
    empty. The batches were appended from `from_ms` to `to_ms` and end at `end_offset`.
    """

    lake: str
    cluster_id: str | None
    from_ms: int | None
    to_ms: int | None
    end_offset: int
    rows: dict[str, int]
    missing: tuple[str, ...]
    statuses: dict[str, int]
    moves: tuple[ReassignmentRow, ...]
    moves_total: int | None
    duration_ms: dict[str, float]
    under_way: tuple[tuple[int, int], ...]
    catch_up: tuple[CatchUp, ...]
    dirs: tuple[tuple[int, tuple[DirLoad, ...]], ...]
    drift: tuple[Drift, ...]
    drift_total: int | None
    drift_kinds: dict[str, int]
    epochs: tuple[Epoch, ...]
    divergences: dict[str, int]
    quarantined: dict[str, int]
    gaps: dict[str, int]

    @property
    def findings(self) -> int:
        """Count the findings: drift, log dirs over the band, divergence that breaks log matching, damage."""
        return (
            (self.drift_total or 0)
            + sum(load.over_band or load.offline for load in (self.dirs[-1][1] if self.dirs else ()))
            + self.divergences.get("log_matching", 0)
            + sum(self.quarantined.values())
            + sum(count for cause, count in self.gaps.items() if cause != "compacted")
        )


def gather(lake: Lake) -> ReassignmentReport:
    """Read a lake. CorruptInput for tables that cannot be read."""
    from pyarrow import compute

    built = set(lake.tables())
    wanted = (QUARANTINE, GAPS, *BUILT_OF_LOGS, BROKER_LOAD, DIR_SKEW)
    moves = lake.arrow(REASSIGNMENTS)
    drift = lake.arrow(DRIFT)
    ranges = lake.active(BATCHES)
    appended = compute.min_max(lake.arrow(BATCHES, ["append_ms"]).column("append_ms")).as_py()
    return ReassignmentReport(
        lake=lake.place(),
        cluster_id=next((each.details["cluster_id"] for each in ranges if "cluster_id" in each.details), None),
        from_ms=appended["min"],
        to_ms=appended["max"],
        end_offset=max((each.hi for each in ranges), default=0),
        rows={table: sum(each.rows for each in lake.active(table)) for table in sorted(built)},
        missing=tuple(table for table in wanted if table not in built),
        statuses=_counts(moves, "status"),
        moves=longest_of(moves),
        moves_total=moves.num_rows if REASSIGNMENTS in built else None,
        duration_ms=_quantiles(moves, "duration_ms"),
        under_way=under_way(moves),
        catch_up=catch_up_of(lake.arrow(REPLICAS)),
        dirs=_first_and_last(lake.arrow(DIR_SKEW)),
        drift=tuple(_drift(row) for row in drift.slice(0, LISTED).to_pylist()),
        drift_total=drift.num_rows if DRIFT in built else None,
        drift_kinds=_counts(drift, "class"),
        epochs=_epochs(lake.arrow(EPOCHS)),
        divergences=_counts(lake.arrow(DIVERGENCE, ["class"]), "class"),
        quarantined=_damages(lake.arrow(QUARANTINE, ["controller_id", "segment", "pos", "status", "next_offset"])),
        gaps=_counts(lake.arrow(GAPS, ["cause"]), "cause"),
    )


def _counts(rows: pa.Table, column: str) -> dict[str, int]:
    found = rows.column(column).value_counts().to_pylist()
    return {str(each["values"]): each["counts"] for each in sorted(found, key=lambda each: -each["counts"])}


def _damages(rows: pa.Table) -> dict[str, int]:
    """Count damages by status, without the torn ends of segments."""
    found = damages(rows)
    kept = [row["status"] for row in found if not is_torn_end(row["status"], row["segment"], row["next_offset"])]
    return dict(Counter(kept).most_common())


def _quantiles(rows: pa.Table, column: str) -> dict[str, float]:
    from pyarrow import compute

    values = rows.column(column).drop_null()
    if not len(values):
        return {}
    points = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found = compute.quantile(values, q=list(points.values())).to_pylist()
    return dict(zip(points, found, strict=True))


def longest_of(rows: pa.Table) -> tuple[ReassignmentRow, ...]:
    """Return the reassignments that took longest and those that still run, in the order of their starts."""
    from pyarrow import compute

    real = rows.filter(compute.not_equal(rows.column("status"), "instant"))
    endless = compute.fill_null(real.column("duration_ms"), 2**63 - 1)
    order = compute.sort_indices(endless, sort_keys=[("", "descending")])
    named = compute.coalesce(real.column("topic"), real.column("topic_id"))
    real = real.set_column(real.schema.get_field_index("topic"), "topic", named)
    chosen = real.take(order.slice(0, LISTED)).select(list(ReassignmentRow.__struct_fields__)).to_pylist()
    return tuple(ReassignmentRow(**row) for row in sorted(chosen, key=lambda row: (row["start_ms"] or 0, row["reassignment_id"])))


def under_way(rows: pa.Table) -> tuple[tuple[int, int], ...]:
    """Return the step curve of running reassignments. Starts and ends in the same millisecond make one step. A reassignment whose
    end is before its start, because a clock stepped back, took no time.
    """
    from pyarrow import compute

    changes: Counter[int] = Counter()
    rows = rows.filter(rows.column("start_ms").is_valid())
    starts = rows.column("start_ms")
    ends = compute.max_element_wise(starts, rows.column("end_ms"), skip_nulls=False)
    for moments, sign in ((starts, 1), (ends, -1)):
        for each in moments.drop_null().value_counts().to_pylist():
            changes[each["values"]] += sign * each["counts"]
    points, running = [], 0
    for at_ms in sorted(changes):
        if changes[at_ms]:
            running += changes[at_ms]
            points.append((at_ms, running))
    return tuple(thinned(points))


def thinned(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Reduce a curve to about `POINTS` points: the highest of each stretch, so that no peak is lost, and the last one."""
    if len(points) <= POINTS:
        return list(points)
    stride = -(-len(points) // (POINTS - 1))
    kept = [max(points[at : at + stride], key=lambda point: point[1]) for at in range(0, len(points), stride)]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def catch_up_of(rows: pa.Table) -> tuple[CatchUp, ...]:
    from pyarrow import compute

    has_start = compute.or_(rows.column("lag_ms").is_valid(), rows.column("caught_up_offset").is_null())
    added = rows.filter(compute.and_(compute.equal(rows.column("role"), "adding"), has_start)).sort_by("replica")
    found, start = [], 0
    for broker_id, count in (each.values() for each in added.column("replica").value_counts().to_pylist()):
        lags = added.column("lag_ms").slice(start, count)
        start += count
        known = lags.drop_null()
        if not len(known):
            found.append(CatchUp(broker_id, len(lags), len(lags), (0.0, 0.0, 0.0), 0.0, 0))
            continue
        low, middle, high, p99, top = compute.quantile(known, q=[0.25, 0.5, 0.75, 0.99, 1.0]).to_pylist()
        found.append(CatchUp(broker_id, len(lags), lags.null_count, (low, middle, high), p99, int(top)))
    return tuple(found)


def _first_and_last(rows: pa.Table) -> tuple[tuple[int, tuple[DirLoad, ...]], ...]:
    from pyarrow import compute

    if not rows.num_rows:
        return ()
    span = compute.min_max(rows.column("as_of")).as_py()
    fields = list(DirLoad.__struct_fields__)
    found = []
    for as_of in sorted({span["min"], span["max"]}):
        at = rows.filter(compute.equal(rows.column("as_of"), as_of)).select(fields).to_pylist()
        found.append((as_of, tuple(_load(row) for row in sorted(at, key=lambda row: (row["broker_id"], row["path"] or "")))))
    return tuple(found)


def _load(row: dict[str, Any]) -> DirLoad:
    return DirLoad(
        row["broker_id"],
        row["path"] or "",
        row["bytes"] or 0,
        row["ratio"] if row["ratio"] is not None else 1.0,
        bool(row["over_band"]),
        bool(row["offline"]),
    )


def _drift(row: dict[str, Any]) -> Drift:
    """Convert a row. Without a topic name, the topic id is the first part of the reassignment id."""
    return Drift(
        row["topic"] or (row["culprit_reassignment_id"] or "?").partition(":")[0],
        row["partition"],
        row["class"],
        row["rf"],
        row["rf_expected"],
        row["offset"],
        row["culprit_reassignment_id"],
        row["confidence"] or "",
    )


def _epochs(rows: pa.Table) -> tuple[Epoch, ...]:
    fields = list(Epoch.__struct_fields__)
    return tuple(Epoch(**row) for row in sorted(rows.select(fields).to_pylist(), key=lambda row: row["epoch"]))
