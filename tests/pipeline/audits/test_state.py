"""Partitions as of an offset, and a real cluster's log against what the cluster said of itself at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kraftlab.pipeline.audits.life_cycles import Change, PartitionKey, PartitionState, partition_states

KEY = PartitionKey("id", "orders", 0)
ROWS = [
    (KEY, Change(10, 0, "create", (1, 2, 3), 1, (1, 2, 3), (), (), ("a", "b", "c"))),
    (KEY, Change(20, 0, replicas=(4, 2, 3, 1), adding=(4,), removing=(1,), directories=("d", "b", "c", "a"))),
    (KEY, Change(30, 0, isr=(2, 3, 4), leader=4, replicas=(4, 2, 3), adding=(), removing=(), directories=("d", "b", "c"))),
]


def test_a_change_holds_from_its_offset_on():
    assert partition_states(ROWS, 9) == []
    (created,) = partition_states(ROWS, 10)
    assert partition_states(ROWS, 19) == [created]
    assert created == PartitionState("id", "orders", 0, (1, 2, 3), (1, 2, 3), 1, (), (), ("a", "b", "c"), 3, 10)


def test_while_a_move_runs_the_replication_factor_is_that_before_it():
    (moving,) = partition_states(ROWS, 25)
    assert (moving.replicas, moving.adding, moving.removing, moving.rf_settled) == ((4, 2, 3, 1), (4,), (1,), 3)
    (moved,) = partition_states(ROWS)
    assert (moved.replicas, moved.isr, moved.leader, moved.directories) == ((4, 2, 3), (2, 3, 4), 4, ("d", "b", "c"))


def test_a_deleted_topic_has_no_partitions_from_the_deletion_on():
    deletions = {"id": (25, 0)}
    assert len(partition_states(ROWS, 24, deletions)) == 1
    assert partition_states(ROWS, 25, deletions) == partition_states(ROWS[:2], None, deletions) == []


def test_a_partition_with_later_records_than_its_removal_lives():
    assert partition_states(ROWS, None, {"id": (25, 0)}) == partition_states(ROWS)
    assert partition_states(ROWS, None, {"id": (30, 0)}) == partition_states(ROWS)


def test_a_snapshot_with_a_running_move_leaves_the_list_without_what_is_added():
    (state,) = partition_states([(KEY, Change(99, 0, "snapshot", (1, 2, 3), 1, (4, 5, 2, 3, 1), (4, 5), (1,)))])
    assert state.rf_settled == 3
    original = Change(99, 0, "snapshot", (1, 2), 1, (4, 1, 2, 9), (4,), (2, 9), original=(1, 2))
    (state,) = partition_states([(KEY, original)])
    assert state.rf_settled == 2


def test_a_log_without_its_beginning_says_only_what_changed():
    (state,) = partition_states([(KEY, Change(50, 0, leader=2))])
    assert state == PartitionState("id", "orders", 0, None, None, 2, None, None, None, None, 50)


def test_the_end_of_a_recorded_log_is_as_the_cluster_described_it(kafka: Any, recorded_text: Callable[[str], bytes]):
    expected = {
        (topic["name"], partition["partition_index"]): (
            partition["replica_nodes"],
            sorted(partition["isr_nodes"]),
            partition["leader_id"],
        )
        for topic in json.loads(recorded_text("final-state.json"))["topics"]
        for partition in topic["partitions"]
    }
    (ended,) = [entry["t"] for entry in json.loads(recorded_text("history.json")) if entry["op"] == "end"]
    at_offset = max(change.offset for _, change in kafka.rows if change.ts_ms <= ended * 1000)
    assert at_offset < kafka.rows[-1][1].offset, "the brokers were stopped after the cluster was asked"
    states = partition_states(kafka.rows, at_offset, kafka.deletions)
    found = {(state.topic, state.partition): (list(state.replicas), sorted(state.isr), state.leader) for state in states}
    assert len(found) == len(states) == len(expected) > 400
    assert found == expected
