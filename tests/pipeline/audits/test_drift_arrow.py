"""The audit of tables finds what the plain one finds, however the tables are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.audits import drift_arrow
from kraftlab.pipeline.audits.drift import SettledPartition, rf_drift
from kraftlab.pipeline.audits.life_cycles import Reassignment, all_life_cycles
from kraftlab.pipeline.audits.state import PartitionState, partition_states
from kraftlab.pipeline.lake.schemas import arrow_schema

REASSIGNMENTS, STATE = arrow_schema("gold.reassignments"), arrow_schema("silver.partition_state")


def tables_of(cycles: list[Reassignment], states: list[PartitionState], rows_per_file: int) -> tuple[drift_arrow.Read, pa.Table]:
    rows = pa.Table.from_pylist([cycle._asdict() for cycle in cycles], schema=REASSIGNMENTS)

    def read(columns: list[str]) -> Iterator[pa.Table]:
        for start in range(0, rows.num_rows, rows_per_file):
            yield rows.slice(start, rows_per_file).select(columns)

    state_rows = pa.Table.from_pylist([state._asdict() for state in states], schema=STATE)
    return read, state_rows.select(drift_arrow.STATE_COLUMNS)


def expected(cycles: list[Reassignment], states: list[PartitionState]) -> list[tuple[Any, ...]]:
    settled = [SettledPartition(*each[:3], each.rf_settled) for each in states if each.rf_settled is not None]
    return sorted(map(tuple, rf_drift(cycles, settled)), key=repr)


def found_by(read: drift_arrow.Read, states: pa.Table, rows_at_once: int) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in drift_arrow.rf_drift(read, states, rows_at_once).to_pylist()), key=repr)


@given(data=st.data())
@settings(deadline=None)
def test_tables_in_any_parts_give_the_findings_of_the_oracle(data: st.DataObject, logs: st.SearchStrategy[Any]) -> None:
    rows = data.draw(logs)
    cycles, states = list(all_life_cycles(rows)), list(partition_states(rows))
    cycles = data.draw(st.permutations(cycles))
    read, state_rows = tables_of(cycles, states, data.draw(st.integers(1, 5)))
    assert found_by(read, state_rows, data.draw(st.integers(1, 4))) == expected(cycles, states)


def test_a_recorded_clusters_findings_are_those_of_the_oracle(kafka: Any) -> None:
    cycles = list(all_life_cycles(kafka.rows, kafka.deletions))
    states = list(partition_states(kafka.rows, None, kafka.deletions))
    read, state_rows = tables_of(cycles, states, 100)
    found = found_by(read, state_rows, 50)
    assert found == expected(cycles, states)
    assert len(found) > 100


def test_only_partitions_with_something_odd_become_rows(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = list(all_life_cycles(kafka.rows, kafka.deletions))
    read, state_rows = tables_of(cycles, [], 100)
    seen: list[Reassignment] = []
    kernel: Callable[..., Any] = drift_arrow.of_cycles
    monkeypatch.setattr(drift_arrow, "of_cycles", lambda some, *rest: (seen.extend(some), kernel(some, *rest))[1])
    drifts = drift_arrow.rf_drift(read, state_rows)
    odd = {tuple(each.values()) for each in drifts.select(["topic", "partition"]).to_pylist()}
    asked_for_more = {
        (cycle.topic, cycle.partition) for cycle in cycles if cycle.requested and len(cycle.requested) > (cycle.rf_before or 0)
    }
    assert {(cycle.topic, cycle.partition) for cycle in seen} <= odd | asked_for_more
    assert 0 < len(seen) < len(cycles)


def test_no_reassignments_and_no_partitions_are_no_findings() -> None:
    assert drift_arrow.rf_drift(lambda columns: [], STATE.empty_table().select(drift_arrow.STATE_COLUMNS)).num_rows == 0
