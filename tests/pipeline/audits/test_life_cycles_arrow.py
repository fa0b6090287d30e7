"""The stepper on Arrow batches, cut anywhere, against the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.audits.life_cycles import (
    Change,
    OffsetsStepBack,
    PartitionKey,
    all_life_cycles,
    partition_states,
)
from kraftlab.pipeline.audits.life_cycles_arrow import (
    COLUMNS,
    NO_DELETIONS,
    REASSIGNMENTS,
    REPLICAS,
    STATE,
    histories_of,
)
from kraftlab.pipeline.storage.schemas import arrow_schema

Rows = list[tuple[PartitionKey, Change]]
CHANGES = arrow_schema("silver.partition_changes")
SCHEMA = pa.schema([CHANGES.field(name) for name in COLUMNS])


def _table(rows: Rows) -> pa.Table:
    """Sorted as Spark sorts them."""
    ordered = sorted(rows, key=lambda row: (row[0].topic_id, row[0].partition, row[1].offset, row[1].kind))
    return pa.Table.from_pylist([{**key._asdict(), **change._asdict()} for key, change in ordered], schema=SCHEMA)


def _cut(table: pa.Table, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    start = 0
    whole = table.combine_chunks()
    for size in sizes:
        yield from whole.slice(start, size).to_batches()
        start += size
    yield from whole.slice(start).to_batches()


def _tables(batches: Iterator[pa.RecordBatch], deletions: Any = NO_DELETIONS) -> dict[str, list[Any]]:
    """Return the rows of each table, sorted."""
    tables: dict[str, list[Any]] = {REASSIGNMENTS: [], REPLICAS: [], STATE: []}
    for table, batch in histories_of(batches, deletions):
        assert batch.schema == arrow_schema(table)
        batch.validate(full=True)
        tables[table] += map(_plain, batch.to_pylist())
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def _expected(rows: Rows, deletions: Any) -> dict[str, list[Any]]:
    cycles = all_life_cycles(rows, deletions)
    tables = {
        REASSIGNMENTS: [tuple(cycle[:-1]) for cycle in cycles],
        REPLICAS: [(cycle.reassignment_id, *replica) for cycle in cycles for replica in cycle.replicas],
        STATE: [tuple(state) for state in partition_states(rows, None, deletions)],
    }
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row.values())


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_tables_are_those_of_the_oracles_wherever_batches_are_cut(logs: st.SearchStrategy[Rows], data: st.DataObject):
    rows = data.draw(logs)
    numbered = [(key, change._replace(offset=number)) for number, (key, change) in enumerate(rows)]
    sizes = data.draw(st.sampled_from([[], [1] * 30, [7] * 5]) | st.lists(st.integers(0, 6), max_size=10))
    deletions = data.draw(st.dictionaries(st.just("id-a"), st.tuples(st.integers(0, len(rows)), st.just(50))))
    assert _tables(_cut(_table(numbered), sizes), deletions) == _expected(numbered, deletions)


def test_a_recorded_log_in_batches_of_any_size(kafka: Any):
    rows = kafka.rows + [
        (key, Change(*kafka.deletions[key.topic_id], kind="delete"))
        for key in dict.fromkeys(key for key, _ in kafka.rows)
        if key.topic_id in kafka.deletions
    ]
    expected = _expected(kafka.rows, kafka.deletions)
    table = _table(rows)
    draws = random.Random(7)
    for sizes in ([], [1] * 500, [7] * 100, [draws.randrange(200) for _ in range(50)]):
        found = _tables(_cut(table, sizes))
        assert (found[REASSIGNMENTS], found[REPLICAS]) == (expected[REASSIGNMENTS], expected[REPLICAS])


def test_more_life_cycles_than_fit_one_batch_come_in_several():
    rows: Rows = []
    for key in (PartitionKey("id", "orders", partition) for partition in range(3)):
        rows.append((key, Change(0, 0, "create", (1,), 1, (1, 2), (), ())))
        rows += [(key, Change(number, number, replicas=(2, 1) if number % 2 else (1, 2))) for number in range(1, 10_001)]
    found = histories_of(iter(_table(rows).to_batches()))
    assert [batch.num_rows for table, batch in found if table == REASSIGNMENTS] == [10_000] * 3


def test_nothing_comes_of_nothing():
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert list(histories_of(iter([]))) == list(histories_of(iter([empty, empty]))) == []


def test_rows_that_are_not_sorted_are_refused():
    key = PartitionKey("id", "orders", 0)
    batches = [_table([(key, Change(9, 9, leader=1))]), _table([(key, Change(5, 9, leader=2))])]
    with pytest.raises(OffsetsStepBack, match="offset 5 after 9 in orders-0"):
        list(histories_of(batch for table in batches for batch in table.to_batches()))
