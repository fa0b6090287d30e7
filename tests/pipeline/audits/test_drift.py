"""Accidents with the replication factor: both of KIP-860's readings, and what is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.audits import drift_arrow
from kraftlab.pipeline.audits.drift import RACE_WINDOW_MS, Drift, SettledPartition, modes_of, of_cycles, of_siblings
from kraftlab.pipeline.audits.life_cycles import (
    Change,
    PartitionKey,
    PartitionState,
    Reassignment,
    all_life_cycles,
    partition_states,
)
from kraftlab.pipeline.storage.schemas import arrow_schema

REASSIGNMENTS, STATE = arrow_schema("gold.reassignments"), arrow_schema("silver.partition_state")

CREATED = Change(10, 0, "create", (1, 2, 3), 1, (1, 2, 3), (), ())
MOVES = Change(20, 1000, replicas=(3, 4, 5, 1, 2), adding=(4, 5), removing=(1, 2))
MOVED = Change(30, 2000, isr=(3, 4, 5), leader=3, replicas=(3, 4, 5), adding=(), removing=())


def read_of(cycles: list[Reassignment], rows_per_file: int = 100) -> drift_arrow.Read:
    rows = pa.Table.from_pylist([cycle._asdict() for cycle in cycles], schema=REASSIGNMENTS)

    def read(columns: list[str]) -> Iterator[pa.Table]:
        for start in range(0, rows.num_rows, rows_per_file):
            yield rows.slice(start, rows_per_file).select(columns)

    return read


def table_of(states: list[PartitionState]) -> pa.Table:
    return pa.Table.from_pylist([state._asdict() for state in states], schema=STATE).select(drift_arrow.STATE_COLUMNS)


def rf_drift(cycles: list[Reassignment], states: list[PartitionState], **options: int) -> list[Drift]:
    return [Drift(*row.values()) for row in drift_arrow.rf_drift(read_of(cycles), table_of(states), **options).to_pylist()]


def drift_of(changes: dict[int, list[Change]], window_ms: int = RACE_WINDOW_MS) -> list[Drift]:
    """Return the drift of one topic's partitions. A partition without other arguments is as created."""
    rows = [(PartitionKey("id", "orders", partition), change) for partition, own in changes.items() for change in own]
    return rf_drift(all_life_cycles(rows), partition_states(rows), race_window_ms=window_ms)


def findings(*changes: Change, window_ms: int = RACE_WINDOW_MS) -> list[tuple[str, int, int, str | None, str]]:
    others = {1: [CREATED], 2: [CREATED]}
    return [
        (each.drift_class, each.rf, each.rf_expected, each.culprit_reassignment_id, each.confidence)
        for each in drift_of({0: [CREATED, *changes], **others}, window_ms)
    ]


def test_kip_860_a_move_begins_between_the_listing_and_the_description():
    """Nothing was listed, a move began, the description showed 1 to 5; what is then asked for holds them all."""
    asked = Change(21, 1500, replicas=(1, 2, 3, 4, 5), adding=(4, 5), removing=(), original=(1, 2, 3), target=(1, 2, 3, 4, 5))
    ended = Change(30, 2000, isr=(1, 2, 3, 4, 5), adding=(), removing=())
    ours = MOVES._replace(original=(1, 2, 3), target=(3, 4, 5))
    assert findings(ours, asked, ended) == [
        ("union_race", 5, 3, "orders:0:21", "high"),
        ("sibling_mismatch", 5, 3, "orders:0:21", "high"),
    ]


def test_kip_860_a_move_ends_between_the_description_and_the_listing():
    """The description showed 1 to 5, the move ended, nothing was listed; what is then asked for holds them all."""
    asked = Change(40, 2500, replicas=(1, 2, 3, 4, 5), adding=(1, 2))
    ended = Change(50, 3000, isr=(1, 2, 3, 4, 5), adding=())
    assert findings(MOVES, MOVED, asked, ended) == [
        ("union_race", 5, 3, "orders:0:40", "high"),
        ("sibling_mismatch", 5, 3, "orders:0:40", "high"),
    ]


def test_in_kafka_the_first_reading_shows_what_was_asked_though_a_leftover_set_hides_it():
    """Kafka writes no empty removing: six were requested, and with the two left over to be removed four stay."""
    asked = Change(21, 1500, replicas=(1, 2, 3, 4, 5, 6), adding=(6,))
    assert findings(MOVES, asked)[0] == ("union_race", 4, 3, "orders:0:21", "high")


def test_long_after_a_move_the_same_list_is_a_change_of_the_replication_factor_only():
    asked = Change(40, 2000 + RACE_WINDOW_MS + 1, replicas=(1, 2, 3, 4, 5), adding=(1, 2))
    assert findings(MOVES, MOVED, asked)[0] == ("rf_change", 5, 3, "orders:0:40", "medium")
    assert findings(MOVES, MOVED, asked, window_ms=RACE_WINDOW_MS + 1)[0][0] == "union_race"


def test_growing_again_after_growth_is_not_a_race_because_the_union_was_its_target():
    grown = [Change(20, 1000, replicas=(1, 2, 3, 4), adding=(4,)), Change(21, 1100, isr=(1, 2, 3, 4), adding=())]
    again = Change(22, 1200, replicas=(1, 2, 3, 4, 5), adding=(5,))
    assert [(each[0], each[1], each[2]) for each in findings(*grown, again)[:2]] == [("rf_change", 4, 3), ("rf_change", 5, 4)]


def test_moves_that_keep_the_number_of_replicas_are_no_findings():
    assert findings(MOVES, MOVED, Change(40, 2100, isr=(3, 5), replicas=(5, 4, 3))) == []


def test_a_cancelled_change_of_the_number_is_none_in_the_end():
    grown = Change(20, 1000, replicas=(1, 2, 3, 4), adding=(4,))
    assert findings(grown, Change(21, 1100, replicas=(1, 2, 3), adding=())) == []


def test_a_cancel_that_brings_back_an_inflated_list_is_found_at_its_reassignment():
    replaced = Change(21, 1100, replicas=(6, 3, 1, 2, 4, 5), adding=(6,), removing=(1, 2, 4, 5))
    inflated = Change(22, 1200, replicas=(3, 1, 2, 4, 5), adding=(), removing=())
    assert findings(MOVES, replaced, inflated) == [
        ("rf_change", 5, 3, "orders:0:21", "medium"),
        ("sibling_mismatch", 5, 3, "orders:0:21", "high"),
    ]


def test_a_topic_that_was_changed_as_a_whole_is_reported_with_low_confidence():
    grown = [Change(20, 1000, replicas=(1, 2, 3, 4), adding=(4,)), Change(21, 1100, isr=(1, 2, 3, 4), adding=())]
    found = drift_of({partition: [CREATED, *grown] for partition in range(3)})
    assert {(each.drift_class, each.rf, each.rf_mode_of_topic, each.confidence) for each in found} == {("rf_change", 4, 4, "low")}
    assert len(found) == 3


def test_two_partitions_that_differ_are_reported_by_the_smaller_number_with_low_confidence():
    found = drift_of({0: [CREATED], 1: [CREATED._replace(replicas=(1, 2, 3, 4))]})
    assert [(each.partition, each.rf, each.rf_expected, each.confidence, each.offset) for each in found] == [
        (1, 4, 3, "low", None)
    ]


def test_a_topic_that_is_gone_has_no_mode():
    cycles = all_life_cycles([(PartitionKey("id", "orders", 0), change) for change in (CREATED, MOVES._replace(removing=(1,)))])
    assert [(each.rf, each.rf_mode_of_topic, each.confidence) for each in rf_drift(cycles, [])] == [(4, None, "medium")]


@pytest.mark.parametrize("status", ["completed", "open"])
def test_every_change_of_the_number_in_a_recorded_log_is_found(kafka: Any, status: str):
    cycles = all_life_cycles(kafka.rows, kafka.deletions)
    found = {each.culprit_reassignment_id: each for each in rf_drift(cycles, [])}
    changed = [cycle for cycle in cycles if cycle.status == status and len(cycle.target or ()) != cycle.rf_before]
    assert changed
    for cycle in changed:
        assert found[cycle.reassignment_id].rf == len(cycle.target or ())


def by_the_rules(cycles: list[Reassignment], states: list[PartitionState]) -> list[Drift]:
    """The findings if every row is looked at."""
    settled = [SettledPartition(*each[:3], each.rf_settled) for each in states if each.rf_settled is not None]
    modes = modes_of((topic, rf, count) for (topic, rf), count in Counter((one.topic_id, one.rf) for one in settled).items())
    found, culprits = of_cycles(cycles, modes)
    return sorted([*found, *of_siblings(settled, modes, culprits)], key=repr)


@given(data=st.data())
@settings(deadline=None)
def test_tables_in_any_parts_give_the_findings_of_all_rows(data: st.DataObject, logs: st.SearchStrategy[Any]) -> None:
    rows = data.draw(logs)
    cycles, states = data.draw(st.permutations(all_life_cycles(rows))), partition_states(rows)
    read, at_once = read_of(cycles, data.draw(st.integers(1, 5))), data.draw(st.integers(1, 4))
    found = [Drift(*row.values()) for row in drift_arrow.rf_drift(read, table_of(states), at_once).to_pylist()]
    assert sorted(found, key=repr) == by_the_rules(cycles, states)


def test_a_recorded_clusters_findings_are_those_of_all_rows(kafka: Any) -> None:
    cycles, states = all_life_cycles(kafka.rows, kafka.deletions), partition_states(kafka.rows, None, kafka.deletions)
    found = rf_drift(cycles, states, rows_at_once=50)
    assert sorted(found, key=repr) == by_the_rules(cycles, states)
    assert len(found) > 100


def test_only_partitions_with_something_odd_become_rows(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = list(all_life_cycles(kafka.rows, kafka.deletions))
    seen: list[Reassignment] = []
    kernel: Callable[..., Any] = drift_arrow.of_cycles
    monkeypatch.setattr(drift_arrow, "of_cycles", lambda some, *rest: (seen.extend(some), kernel(some, *rest))[1])
    drifts = drift_arrow.rf_drift(read_of(cycles), table_of([]))
    odd = {tuple(each.values()) for each in drifts.select(["topic", "partition"]).to_pylist()}
    asked_for_more = {
        (cycle.topic, cycle.partition) for cycle in cycles if cycle.requested and len(cycle.requested) > (cycle.rf_before or 0)
    }
    assert {(cycle.topic, cycle.partition) for cycle in seen} <= odd | asked_for_more
    assert 0 < len(seen) < len(cycles)


def test_no_reassignments_and_no_partitions_are_no_findings() -> None:
    assert rf_drift([], []) == []
