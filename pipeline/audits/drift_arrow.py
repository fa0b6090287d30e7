"""Replication factors that changed, found in tables of any size.

Few of a million reassignments can be findings: a finding ends with another number of replicas than it began with, or requests
more replicas than there were. A few columns are enough to find these reassignments. Only partitions with such a reassignment
become rows for the rules of `drift`, with all their reassignments, some ten thousand at a time. Two columns are enough to find
the partitions that differ from their topic. So the audit reads its tables twice, keeps the columns of one file in memory, and
needs no Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..storage.schemas import batch_of_rows
from .drift import RACE_WINDOW_MS, Drift, Mode, PlaceOfPartition, SettledPartition, modes_of, of_cycles, of_siblings, place
from .life_cycles import DELETED, SUPERSEDED, UNKNOWN, Reassignment

TABLE = "gold.rf_drift"
STATE_COLUMNS = ["topic_id", "topic", "partition", "rf_settled"]
_SEEN = ["topic_id", "partition", "status", "start_offset", "start_ms", "target", "requested", "rf_before", "rf_after"]
_UNSETTLED = pa.array([SUPERSEDED, DELETED, UNKNOWN])
ROWS_AT_ONCE = 50_000

Read = Callable[[list[str]], Iterable[pa.Table]]
"""(columns) → the rows of `gold.reassignments` in any number of parts, the same ones at each call."""


def rf_drift(
    reassignments: Read, states: pa.Table, rows_at_once: int = ROWS_AT_ONCE, race_window_ms: int = RACE_WINDOW_MS
) -> pa.Table:
    """Return `gold.rf_drift`. `states` has STATE_COLUMNS of `silver.partition_state`."""
    states = states.filter(pc.is_valid(states["rf_settled"]))
    counted = states.group_by(["topic_id", "rf_settled"]).aggregate([("partition", "count")])
    modes = modes_of(zip(*(counted[name].to_pylist() for name in ("topic_id", "rf_settled", "partition_count")), strict=True))
    suspects = pc.unique(pa.chunked_array([_keys(_suspicious(rows)) for rows in reassignments(_SEEN)] or [[]], pa.string()))
    found: list[Drift] = []
    culprits: dict[PlaceOfPartition, Drift] = {}
    for cycles in _histories(reassignments, suspects, rows_at_once):
        drifts, last = of_cycles(cycles, modes, race_window_ms)
        found += drifts
        culprits |= last
    found += of_siblings(_different(states, modes), modes, culprits)
    found.sort(key=place)
    return pa.Table.from_batches([batch_of_rows(TABLE, found)])


def _suspicious(rows: pa.Table) -> pa.Table:
    """Return the reassignments that can be findings by themselves."""
    rf = pc.coalesce(rows["rf_after"], pc.list_value_length(rows["target"]))
    changed = pc.and_(pc.not_equal(rf, rows["rf_before"]), pc.invert(pc.is_in(rows["status"], _UNSETTLED)))
    asked = pc.and_(pc.is_valid(rows["start_offset"]), pc.is_valid(rows["start_ms"]))
    more = pc.and_(asked, pc.greater(pc.list_value_length(rows["requested"]), rows["rf_before"]))
    return rows.filter(pc.or_(pc.fill_null(changed, False), pc.fill_null(more, False)))


def _keys(rows: pa.Table) -> pa.Array:
    """Return the partition of each row as one text."""
    return pc.binary_join_element_wise(rows["topic_id"], pc.cast(rows["partition"], pa.string()), ":").combine_chunks()


def _histories(reassignments: Read, suspects: pa.Array, rows_at_once: int) -> Iterator[list[Reassignment]]:
    """Yield all reassignments of the suspects, with those of one partition together."""
    if not len(suspects):
        return
    columns = [name for name in Reassignment._fields if name != "replicas"]
    wanted = [rows.filter(pc.is_in(_keys(rows), suspects)) for rows in reassignments(columns)]
    rows = pa.concat_tables(wanted)
    parts = max(1, -(-rows.num_rows // rows_at_once))
    of_part = pc.index_in(_keys(rows), suspects).to_numpy(zero_copy_only=False) % parts
    for part in range(parts):
        yield [Reassignment(**_tuples(row), replicas=()) for row in rows.filter(pa.array(of_part == part)).to_pylist()]


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _different(states: pa.Table, modes: dict[str, Mode]) -> Iterator[SettledPartition]:
    """Yield the partitions with a number of replicas that differs from most of their topic."""
    topics = states["topic_id"].combine_chunks().dictionary_encode()
    most = np.array([modes[topic_id].rf for topic_id in topics.dictionary.to_pylist()], np.int32)
    usual = most[topics.indices.to_numpy(zero_copy_only=False)] if len(most) else most
    for row in states.filter(pc.not_equal(states["rf_settled"], pa.array(usual))).to_pylist():
        yield SettledPartition(*row.values())
