"""What the batches of `bronze.batches` say about the logs: where offsets are missing, and where logs disagree.

Only which batches there are is looked at, a few numbers each, which fit in memory for any log; the choice among the logs of
several controllers carries their bytes and is Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SNAPSHOTS = "%.checkpoint"
KEYS = ["segment", "base_offset", "last_offset", "controller_id"]
"""Columns of `bronze.batches` that say which batches there are."""
MARKS = ["segment", "controller_id", "prev_offset", "next_offset"]
"""Columns of `bronze.quarantine` that say where damages are."""
QUARANTINE, COMPACTED, MISSING_SEGMENT = "quarantine", "compacted", "missing_segment"


class Gap(NamedTuple):
    """Offsets [from, to) that a controller's segments do not hold."""

    controller_id: int
    from_offset: int
    to_offset: int
    cause: str


def offset_gaps(batches: pa.Table, quarantine: pa.Table, starts: Mapping[int, int], lo: int, hi: int) -> list[Gap]:
    """The gaps within [lo, hi). `batches` has KEYS, `quarantine` MARKS.

    `starts` are, by controller, the offsets that the names of their first segments say; what lies below was compacted. A hole
    that a damage borders on is its doing; any other is a segment that is not there. That a log ends early is no gap, unless
    something is quarantined there.
    """
    batches, quarantine = _of_segments(batches), _of_segments(quarantine)
    found: list[Gap] = []
    for controller_id, log_start in sorted(starts.items()):
        mine = batches.filter(pc.equal(batches["controller_id"], controller_id))
        marks = quarantine.filter(pc.equal(quarantine["controller_id"], controller_id)).to_pylist()
        froms = {0 if mark["prev_offset"] is None else mark["prev_offset"] + 1 for mark in marks}
        tos = {mark["next_offset"] for mark in marks}
        tails = {0 if mark["prev_offset"] is None else mark["prev_offset"] + 1 for mark in marks if mark["next_offset"] is None}
        for start, stop in _holes(mine, lo):
            found += _caused(controller_id, start, stop, log_start, froms, tos)
        end = max(lo, pc.max(mine["last_offset"]).as_py() + 1) if mine.num_rows else min(hi, max(lo, log_start))
        if not mine.num_rows and lo < end:
            found.append(Gap(controller_id, lo, end, COMPACTED))
        if end < hi and end in tails:
            found.append(Gap(controller_id, end, hi, QUARANTINE))
    return found


def _caused(controller_id: int, start: int, stop: int, log_start: int, froms: set[int], tos: set[int | None]) -> Iterator[Gap]:
    wall = min(stop, max(log_start, start))
    if start < wall:
        yield Gap(controller_id, start, wall, COMPACTED)
    if wall < stop:
        yield Gap(controller_id, wall, stop, QUARANTINE if wall in froms or stop in tos else MISSING_SEGMENT)


def _of_segments(rows: pa.Table) -> pa.Table:
    """Without what stands in snapshots."""
    return rows.filter(pc.invert(pc.ends_with(rows["segment"], SNAPSHOTS[1:])))


def _holes(batches: pa.Table, lo: int) -> list[tuple[int, int]]:
    """Stretches from `lo` on that no batch covers and behind which there is one."""
    base = batches["base_offset"].to_numpy()
    order = np.argsort(base, kind="stable")
    base, ends = base[order], np.maximum.accumulate(batches["last_offset"].to_numpy()[order]) + 1
    before = np.maximum(np.concatenate(([lo], ends[:-1])), lo) if len(base) else base
    return [(int(before[index]), int(base[index])) for index in np.flatnonzero(before < base)]


def holes(batches: pa.Table) -> list[tuple[int, int]]:
    """Stretches [from, to) below the last batch that no controller's segments hold. `batches` has KEYS."""
    return _holes(_of_segments(batches), 0)


def snapshots(batches: pa.Table) -> list[tuple[str, int]]:
    """(file name, end offset) of the snapshots. `batches` has KEYS."""
    found = batches.filter(pc.ends_with(batches["segment"], SNAPSHOTS[1:])).select(["segment", "base_offset"])
    rows = found.group_by("segment").aggregate([("base_offset", "min")]).to_pylist()
    return sorted((row["segment"], row["base_offset_min"] + 1) for row in rows)


def disagreements(batches: pa.Table) -> int:
    """At how many offsets segments of several controllers hold different batches. `batches` has KEYS and `crc`."""
    found = _of_segments(batches).group_by("base_offset").aggregate([("crc", "count_distinct")])
    return int(pc.sum(pc.greater(found["crc_count_distinct"], 1)).as_py() or 0)


def chosen(batches: DataFrame) -> DataFrame:
    """Each batch once, of those that several controllers have: of the highest epoch where they disagree (`disagreeing` says
    where), else that of the lowest controller. Of a snapshot that of the controller that has most of its records.
    """
    from pyspark.sql import functions as F

    is_snapshot = F.col("segment").like(SNAPSHOTS)
    keys = batches.select("controller_id", "segment", "base_offset", "leader_epoch", "n_records")
    logs = (
        keys.where(~is_snapshot)
        .groupBy("base_offset")
        .agg(F.max_by("controller_id", F.struct("leader_epoch", -F.col("controller_id"))).alias("controller_id"))
    )
    files = (
        keys.where(is_snapshot)
        .groupBy("segment", "controller_id")
        .agg(F.sum("n_records").alias("records"))
        .groupBy("segment")
        .agg(F.max_by("controller_id", F.struct("records", -F.col("controller_id"))).alias("controller_id"))
    )
    from_logs = batches.where(~is_snapshot).join(logs, ["base_offset", "controller_id"], "left_semi")
    from_files = batches.where(is_snapshot).join(files, ["segment", "controller_id"], "left_semi")
    return from_logs.unionByName(from_files)
