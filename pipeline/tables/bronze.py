"""Gaps and disagreements of logs, from `bronze.batches`.

Only the keys of batches are read, a few numbers each, which fit in memory for any log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Vector = np.ndarray[Any, Any]

SNAPSHOTS = "%.checkpoint"
KEYS = ["segment", "base_offset", "last_offset", "controller_id"]
"""Columns of `bronze.batches` that identify batches."""
MARKS = ["segment", "controller_id", "prev_offset", "next_offset"]
"""Columns of `bronze.quarantine` that locate damages."""
QUARANTINE, COMPACTED, MISSING_SEGMENT = "quarantine", "compacted", "missing_segment"


class Gap(NamedTuple):
    """Offsets [from, to) that a controller's segments do not hold."""

    controller_id: int
    from_offset: int
    to_offset: int
    cause: str


def offset_gaps(
    batches: pa.Table, quarantine: pa.Table, starts: Mapping[int, int], lo: int, hi: int, before: Mapping[int, int] = {}
) -> list[Gap]:
    """Return the gaps within [lo, hi). `batches` has KEYS, `quarantine` MARKS.

    `starts` are, by controller, the offsets in the names of their first segments; offsets below were compacted. `before` are the
    ends of the last batches of the range before, which can reach into this one. A hole next to a damage is attributed to the
    damage, any other hole to a missing segment. An early end of a log is not a gap, unless something is quarantined there.
    """
    batches, quarantine = _of_segments(batches), _of_segments(quarantine)
    found: list[Gap] = []
    for controller_id, log_start in sorted(starts.items()):
        first = max(lo, before.get(controller_id, lo))
        mine = batches.filter(pc.equal(batches["controller_id"], controller_id))
        marks = quarantine.filter(pc.equal(quarantine["controller_id"], controller_id)).to_pylist()
        froms = {0 if mark["prev_offset"] is None else mark["prev_offset"] + 1 for mark in marks}
        tos = {mark["next_offset"] for mark in marks}
        tails = {
            0 if mark["prev_offset"] is None else mark["prev_offset"] + 1
            for mark in marks
            if mark["next_offset"] is None or mark["next_offset"] >= hi
        }
        for start, stop in _holes(mine, first):
            found += _caused(controller_id, start, stop, log_start, froms, tos)
        end = max(first, pc.max(mine["last_offset"]).as_py() + 1) if mine.num_rows else min(hi, max(first, log_start))
        if not mine.num_rows and first < end:
            found.append(Gap(controller_id, first, end, COMPACTED))
        if end < hi and (end in tails if mine.num_rows else any(tail <= end for tail in tails)):
            found.append(Gap(controller_id, end, hi, QUARANTINE))
    return found


def _caused(controller_id: int, start: int, stop: int, log_start: int, froms: set[int], tos: set[int | None]) -> Iterator[Gap]:
    wall = min(stop, max(log_start, start))
    if start < wall:
        yield Gap(controller_id, start, wall, COMPACTED)
    if wall < stop:
        yield Gap(controller_id, wall, stop, QUARANTINE if wall in froms or stop in tos else MISSING_SEGMENT)


def _of_segments(rows: pa.Table) -> pa.Table:
    """Return the rows without those of snapshots."""
    return rows.filter(pc.invert(pc.ends_with(rows["segment"], SNAPSHOTS[1:])))


def _holes(batches: pa.Table, lo: int) -> list[tuple[int, int]]:
    """Return the stretches from `lo` on without a batch but with one after them."""
    base = batches["base_offset"].to_numpy()
    order = np.argsort(base, kind="stable")
    base, ends = base[order], np.maximum.accumulate(batches["last_offset"].to_numpy()[order]) + 1
    before = np.maximum(np.concatenate(([lo], ends[:-1])), lo) if len(base) else base
    return [(int(before[index]), int(base[index])) for index in np.flatnonzero(before < base)]


def ends(batches: pa.Table) -> dict[int, int]:
    """Return the offsets after the last batch of each controller's segments. `batches` has KEYS."""
    rows = _of_segments(batches).group_by("controller_id").aggregate([("last_offset", "max")]).to_pylist()
    return {row["controller_id"]: row["last_offset_max"] + 1 for row in rows}


def holes(batches: pa.Table) -> list[tuple[int, int]]:
    """Return the stretches [from, to) that no controller's segments hold, below the last batch or snapshot.
    `batches` has KEYS.
    """
    found = _holes(segments := _of_segments(batches), 0)
    end = 0 if not segments.num_rows else pc.max(segments["last_offset"]).as_py() + 1
    snapshot_end = max((end for _, end in snapshots(batches)), default=0)
    return [*found, (end, snapshot_end)] if end < snapshot_end else found


def snapshots(batches: pa.Table) -> list[tuple[str, int]]:
    """Return (file name, end offset) of the snapshots. `batches` has KEYS."""
    found = batches.filter(pc.ends_with(batches["segment"], SNAPSHOTS[1:])).select(["segment", "base_offset"])
    rows = found.group_by("segment").aggregate([("base_offset", "min")]).to_pylist()
    return sorted((row["segment"], row["base_offset_min"] + 1) for row in rows)


def damages(quarantine: pa.Table) -> list[dict[str, Any]]:
    """Return the rows, each damage once. A damage at the border of two ranges is in both; the later row counts."""
    found = {(row["controller_id"], row["segment"], row["pos"]): row for row in quarantine.to_pylist()}
    return list(found.values())


def is_torn_end(status: str, segment: str, next_offset: int | None) -> bool:
    """Return whether a row of quarantine is the torn end of a segment during a write. Missing offsets after it, if any, are a gap
    of their own. Snapshots appear whole, so one that is cut short is damaged.
    """
    return status == "truncated" and next_offset is None and not segment.endswith(SNAPSHOTS[1:])


def disagreements(batches: pa.Table) -> int:
    """Return at how many offsets segments of several controllers hold different batches. `batches` has KEYS and `crc`."""
    found = _of_segments(batches).group_by("base_offset").aggregate([("crc", "count_distinct")])
    return int(pc.sum(pc.greater(found["crc_count_distinct"], 1)).as_py() or 0)


def chosen(batches: pa.Table, is_wanted: np.ndarray[Any, np.dtype[np.bool_]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Choose rows so that each wanted batch is taken once if several controllers have it: all batches of the log that followed
    the latest leader (the longest if several did), and from the other logs, one after the other, the batches that fit between
    them. So batches that a deposed leader could not commit never count (`disagreements` counts the differences). Of a
    snapshot, the controller with most of its records is taken. `batches` has KEYS, `leader_epoch` and `n_records`.
    """
    is_snapshot = pc.ends_with(batches["segment"], SNAPSHOTS[1:]).to_numpy()
    controllers = batches["controller_id"].to_numpy().astype(np.int64)
    found = np.zeros(len(controllers), bool)
    of_logs = np.flatnonzero(is_wanted & ~is_snapshot)
    bases, lasts, epochs = (batches[name].to_numpy()[of_logs] for name in ("base_offset", "last_offset", "leader_epoch"))
    found[of_logs] = _in_one_log(bases, lasts, epochs, controllers[of_logs])
    of_files = np.flatnonzero(is_wanted & is_snapshot)
    segments = batches["segment"].combine_chunks().dictionary_encode().indices.to_numpy()[of_files].astype(np.int64)
    copies, numbers = np.unique(np.stack([segments, controllers[of_files]]), axis=1, return_inverse=True)
    records = np.bincount(numbers.ravel(), batches["n_records"].to_numpy()[of_files], copies.shape[1])
    found[of_files] = _is_best(copies[0], records, copies[1])[numbers.ravel()]
    return found


def _in_one_log(bases: Vector, lasts: Vector, epochs: Vector, controllers: Vector) -> Vector:
    """Return which batches of several logs make up one log. Logs agree up to the offset where they hold the same batch; after it
    only one of them can hold the committed batches, and epochs decide which one (Raft: a leader's log has everything committed
    before its epoch). Only neighbours are compared, so that a rotten batch hides no others.
    """
    by_end = np.lexsort((epochs, lasts))
    logs = [(int(each), by_end[controllers[by_end] == each]) for each in np.unique(controllers)]
    found = np.zeros(len(bases), bool)
    for _, mine in sorted(logs, key=lambda log: (-epochs[log[1][-1]], -lasts[log[1][-1]], log[0])):
        ended = by_end[found[by_end]]
        begun = ended[np.lexsort((epochs[ended], bases[ended]))]
        before = np.searchsorted(lasts[ended], bases[mine], "left")
        behind = np.searchsorted(bases[begun], lasts[mine], "right")
        least = np.append(epochs[mine].min(), epochs[ended])[before]
        most = np.append(epochs[begun], epochs[mine].max())[behind]
        found[mine[(before == behind) & (least <= epochs[mine]) & (epochs[mine] <= most)]] = True
    return found


def _is_best(keys: Vector, values: Vector, controllers: Vector) -> Vector:
    """Mark, for each key, the rows of the controller with the largest value, or of the lowest controller among several."""
    order = np.lexsort((controllers, -values, keys))
    firsts = np.flatnonzero(np.diff(keys[order], prepend=keys[order][:1] - 1))
    best = np.zeros(len(keys), controllers.dtype)
    best[order] = np.repeat(controllers[order][firsts], np.diff(np.append(firsts, len(keys))))
    found: Vector = best == controllers
    return found
