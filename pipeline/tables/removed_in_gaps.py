"""What ended in a hole of the log.

Behind a hole the state comes of a snapshot, which says what there is and not what there was: of a topic that was deleted in the
hole nothing is said any more. So what was there before the snapshot and does not stand in it gets the row of its end, at the
snapshot's offset and time, as if it had ended there. Only a snapshot that is whole says what there is not, and only of kinds
whose records could all be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .batch_rows import SNAPSHOT_SUFFIX
from .other_rows import BROKERS, CONFIGS, SNAPSHOT, TOPICS, TYPE_ROWS, Cells, record_batch


class _Kind(NamedTuple):
    """Which columns say what a row is about, whether it is the row of an end, and the cells that make it one."""

    keys: tuple[str, ...]
    is_end: Callable[[Cells], bool]
    end: Cells


KINDS: Mapping[str, _Kind] = {
    TOPICS: _Kind(("topic_id",), lambda row: row["op"] == "delete", {"op": "delete"}),
    BROKERS: _Kind(("broker_id",), lambda row: row["op"] == "unregister", {"op": "unregister"}),
    CONFIGS: _Kind(("resource_type", "resource", "key"), lambda row: row["value"] is None, {}),
}
"""The tables that know what has ended."""


def rows_of_ends(table: str, rows: list[dict[str, Any]], offset: int, ts_ms: int) -> pa.RecordBatch:
    """The ends of what was there before the snapshot that stands at `offset`, and is not in it. `rows` are the table's."""
    keys, is_end, end = KINDS[table]
    before: dict[tuple[Any, ...], Cells | None] = {}
    kept = set()
    for row in sorted(rows, key=lambda row: (row["offset"], row["idx_in_batch"])):
        key = tuple(row[name] for name in keys)
        if row["offset"] == offset and row["kind"] == SNAPSHOT:
            kept.add(key)
        elif row["offset"] <= offset:
            before[key] = None if is_end(row) else row
    gone = [(key, row) for key, row in before.items() if row is not None and key not in kept]
    same = {"offset": offset, "ts_ms": ts_ms, "kind": SNAPSHOT}
    names = {"name"} if table == TOPICS else set()
    return record_batch(
        table,
        [
            dict(zip(keys, key, strict=True)) | {name: row[name] for name in names} | end | same | {"idx_in_batch": index}
            for index, (key, row) in enumerate(gone)
        ],
    )


def whole_files(batches: pa.Table, quarantine: pa.Table) -> set[str]:
    """The names of the files that some controller has without a damage. Both have `segment` and `controller_id`."""
    found, damaged = (
        {tuple(row.values()) for row in rows.group_by(["segment", "controller_id"]).aggregate([]).to_pylist()}
        for rows in (batches, quarantine)
    )
    return {segment for segment, _ in found - damaged}


def undecoded(others: pa.Table) -> set[tuple[str, int]]:
    """(table, offset) of what snapshots say in records that could not be decoded. `others` are rows of `silver.other_records`."""
    refused = others.filter(pc.and_(pc.is_valid(others["error"]), pc.equal(others["kind"], SNAPSHOT)))
    found = refused.select(["name", "offset"]).to_pylist()
    return {(TYPE_ROWS[row["name"]].table, row["offset"]) for row in found if row["name"] in TYPE_ROWS}


def snapshots_within(batches: pa.Table, wanted: set[str], lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """(offset, time in ms) of the snapshots with these names that stand in [lo, hi). `batches` are rows of `bronze.batches`."""
    found: dict[int, int] = {}
    for row in batches.select(["segment", "base_offset", "append_ms"]).to_pylist():
        if row["segment"] in wanted and row["segment"].endswith(SNAPSHOT_SUFFIX) and lo <= row["base_offset"] < hi:
            found[row["base_offset"]] = max(row["append_ms"], found.get(row["base_offset"], 0))
    yield from sorted(found.items())
