"""Accidents with the replication factor: both of KIP-860's readings, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.pipeline.audits.drift import RACE_WINDOW_MS, Drift, SettledPartition, rf_drift
from kraftlab.pipeline.audits.life_cycles import Change, PartitionKey, all_life_cycles
from kraftlab.pipeline.audits.state import partition_states

CREATED = Change(10, 0, "create", (1, 2, 3), 1, (1, 2, 3), (), ())
MOVES = Change(20, 1000, replicas=(3, 4, 5, 1, 2), adding=(4, 5), removing=(1, 2))
MOVED = Change(30, 2000, isr=(3, 4, 5), leader=3, replicas=(3, 4, 5), adding=(), removing=())


def drift_of(changes: dict[int, list[Change]], window_ms: int = RACE_WINDOW_MS) -> list[Drift]:
    """Of one topic's partitions; those that say nothing else are as created."""
    rows = [(PartitionKey("id", "orders", partition), change) for partition, own in changes.items() for change in own]
    settled = [
        SettledPartition(state.topic_id, state.topic, state.partition, state.rf_settled or 0) for state in partition_states(rows)
    ]
    return rf_drift(all_life_cycles(rows), settled, window_ms)


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
    """Kafka writes no empty removing: six were asked for, and with the two left over to be removed four stay."""
    asked = Change(21, 1500, replicas=(1, 2, 3, 4, 5, 6), adding=(6,))
    assert findings(MOVES, asked)[0] == ("union_race", 4, 3, "orders:0:21", "high")


def test_long_after_a_move_the_same_list_is_a_change_of_the_replication_factor_only():
    asked = Change(40, 2000 + RACE_WINDOW_MS + 1, replicas=(1, 2, 3, 4, 5), adding=(1, 2))
    assert findings(MOVES, MOVED, asked)[0] == ("rf_change", 5, 3, "orders:0:40", "medium")
    assert findings(MOVES, MOVED, asked, window_ms=RACE_WINDOW_MS + 1)[0][0] == "union_race"


def test_growing_again_after_growth_is_no_race_because_the_union_was_its_target():
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


def test_a_topic_that_was_changed_as_a_whole_is_told_with_low_confidence():
    grown = [Change(20, 1000, replicas=(1, 2, 3, 4), adding=(4,)), Change(21, 1100, isr=(1, 2, 3, 4), adding=())]
    found = drift_of({partition: [CREATED, *grown] for partition in range(3)})
    assert {(each.drift_class, each.rf, each.rf_mode_of_topic, each.confidence) for each in found} == {("rf_change", 4, 4, "low")}
    assert len(found) == 3


def test_two_partitions_that_differ_are_told_by_the_smaller_number_with_low_confidence():
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
