"""Topics, brokers and configurations that ended in a hole of the log.

After a hole the state comes from a snapshot, which lists what exists and not what existed before: it does not mention a topic
that was deleted in the hole. So everything that existed before the snapshot and is not in it gets a row of its end, at the
snapshot's offset and time. Only a whole snapshot proves an absence, and only for kinds whose records could all be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .batch_rows import SNAPSHOT_SUFFIX
from .other_rows import BROKERS, CONFIGS, SNAPSHOT, TOPICS, TYPE_ROWS, Cells, record_batch


class _Kind(NamedTuple):
    """The key columns of a row, a test for the row of an end, and the cells of an end."""

    keys: tuple[str, ...]
    is_end: Callable[[Cells], bool]
    end: Cells


KINDS: Mapping[str, _Kind] = {
    TOPICS: _Kind(("topic_id",), lambda row: row["op"] == "delete", {"op": "delete"}),
    BROKERS: _Kind(("broker_id",), lambda row: row["op"] == "unregister", {"op": "unregister"}),
    CONFIGS: _Kind(("resource_type", "resource", "key"), lambda row: row["value"] is None, {}),
}
"""The tables with ends."""


def rows_of_ends(table: str, rows: list[dict[str, Any]], offset: int, ts_ms: int) -> pa.RecordBatch:
    """Return the ends of everything that existed before the snapshot at `offset` and is not in it. `rows` are the table's."""
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
    """Return the names of the files that some controller has without damage. Both tables have `segment` and `controller_id`."""
    found, damaged = (
        {tuple(row.values()) for row in rows.group_by(["segment", "controller_id"]).aggregate([]).to_pylist()}
        for rows in (batches, quarantine)
    )
    return {segment for segment, _ in found - damaged}


def undecoded(others: pa.Table) -> set[tuple[str, int]]:
    """Return (table, offset) of records of snapshots that could not be decoded. `others` are rows of `silver.other_records`."""
    refused = others.filter(pc.and_(pc.is_valid(others["error"]), pc.equal(others["kind"], SNAPSHOT)))
    found = refused.select(["name", "offset"]).to_pylist()
    return {(TYPE_ROWS[row["name"]].table, row["offset"]) for row in found if row["name"] in TYPE_ROWS}


def snapshots_within(batches: pa.Table, wanted: set[str], lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, time in ms) of the snapshots with these names within [lo, hi). `batches` are rows of `bronze.batches`."""
    found: dict[int, int] = {}
    for row in batches.select(["segment", "base_offset", "append_ms"]).to_pylist():
        if row["segment"] in wanted and row["segment"].endswith(SNAPSHOT_SUFFIX) and lo <= row["base_offset"] < hi:
            found[row["base_offset"]] = max(row["append_ms"], found.get(row["base_offset"], 0))
    yield from sorted(found.items())
