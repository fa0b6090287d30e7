"""Life cycles of reassignments: each row of the table of endings, and what a log cannot tell."""

from __future__ import annotations

import pytest

from kraftlab.pipeline.audits.life_cycles import (
    Change,
    OffsetsStepBack,
    PartitionKey,
    Reassignment,
    ReplicaProgress,
    all_life_cycles,
)

CREATED = Change(10, 1000, "create", isr=(1, 2, 3), leader=1, replicas=(1, 2, 3), adding=(), removing=())
MOVES = Change(20, 2000, replicas=(4, 2, 3, 1), adding=(4,), removing=(1,))
CAUGHT_UP = Change(30, 2600, isr=(2, 3, 4), leader=2, replicas=(4, 2, 3), adding=(), removing=())


def cycles(*changes: Change) -> list[Reassignment]:
    return all_life_cycles([(PartitionKey("id", "orders", 0), change) for change in changes])


def only(*changes: Change) -> Reassignment:
    (cycle,) = cycles(*changes)
    return cycle


def test_a_move_that_completes():
    assert only(CREATED, MOVES, CAUGHT_UP) == Reassignment(
        reassignment_id="orders:0:20",
        topic="orders",
        partition=0,
        start_offset=20,
        start_ms=2000,
        end_offset=30,
        end_ms=2600,
        status="completed",
        superseded_by=None,
        orig=(1, 2, 3),
        target=(4, 2, 3),
        adding=(4,),
        removing=(1,),
        n_adding=1,
        duration_ms=600,
        rf_before=3,
        rf_after=3,
        leader_changes=1,
        isr_shrinks=0,
        truncated_left=False,
        clock_skew=False,
        topic_id="id",
        requested=(4, 2, 3),
        replicas=(ReplicaProgress(4, "adding", 30, 2600, 600, None), ReplicaProgress(1, "removing", None, None, None, None)),
    )


def test_the_record_that_completes_brings_the_last_replica_into_the_isr_and_each_has_its_own_time():
    cycle = only(
        CREATED,
        Change(20, 2000, replicas=(4, 5, 1, 2, 3), adding=(4, 5), removing=(1, 2, 3)),
        Change(21, 2100, isr=(1, 2, 3, 5)),
        Change(22, 2400, isr=(5, 4), leader=4, replicas=(4, 5), adding=(), removing=()),
    )
    assert [(row.replica, row.caught_up_offset, row.lag_ms) for row in cycle.replicas[:2]] == [(4, 22, 400), (5, 21, 100)]
    assert (cycle.status, cycle.rf_before, cycle.rf_after) == ("completed", 3, 2)


def test_a_cancel_restores_the_list():
    cycle = only(CREATED, MOVES, Change(25, 2500, isr=(1, 2, 3), replicas=(1, 2, 3), adding=(), removing=()))
    assert (cycle.status, cycle.rf_after, cycle.replicas[0].caught_up_offset) == ("cancelled", 3, None)


def test_a_cancel_that_leaves_another_order_is_a_cancel():
    assert only(CREATED, MOVES, Change(25, 2500, replicas=(2, 3, 1), adding=(), removing=())).status == "cancelled"


def test_a_cancel_of_a_pure_shrink_clears_nothing_but_removing():
    assert only(CREATED, Change(20, 2000, removing=(3,)), Change(21, 2100, removing=())).status == "cancelled"


def test_growth_completes_without_a_new_list():
    cycle = only(CREATED, Change(20, 2000, replicas=(1, 2, 3, 4), adding=(4,)), Change(21, 2100, isr=(1, 2, 3, 4), adding=()))
    assert (cycle.status, cycle.rf_before, cycle.rf_after) == ("completed", 3, 4)


def test_another_target_supersedes_and_begins_with_the_same_record():
    first, second = cycles(
        CREATED,
        MOVES,
        Change(21, 2100, isr=(1, 2, 3, 4), replicas=(5, 2, 3, 1, 4), adding=(5,), removing=(1, 4)),
        Change(22, 2200, isr=(2, 3, 5), leader=5, replicas=(5, 2, 3), adding=(), removing=()),
    )
    assert (first.status, first.end_offset, first.superseded_by, first.rf_after) == ("superseded", 21, "orders:0:21", None)
    assert first.replicas[0].caught_up_offset == 21
    assert (second.status, second.start_offset, second.orig, second.target) == ("completed", 21, (1, 2, 3), (5, 2, 3))


def test_a_cancel_after_a_replacement_restores_an_inflated_list_in_kafka():
    replaced = Change(21, 2100, replicas=(4, 5, 0, 1, 2, 3), adding=(4, 5), removing=(0, 1, 2, 3))
    start = Change(20, 2000, replicas=(2, 3, 0, 1), adding=(2, 3), removing=(0, 1))
    created = Change(10, 1000, "create", (0, 1), 0, (0, 1), (), ())
    _, second = cycles(created, start, replaced, Change(22, 2200, replicas=(0, 1, 2, 3), adding=(), removing=()))
    assert (second.status, second.orig, second.rf_before, second.rf_after) == ("cancelled", (0, 1), 2, 4)


def test_a_target_that_is_reached_at_once_supersedes_what_ran():
    first, second = cycles(
        CREATED,
        Change(20, 2000, replicas=(1, 2, 3), adding=(), removing=(2, 3)),
        Change(21, 2100, isr=(2,), replicas=(2,), removing=()),
    )
    assert (first.status, first.superseded_by) == ("superseded", "orders:0:21")
    assert (second.reassignment_id, second.status, second.orig, second.target) == ("orders:0:21", "instant", (1, 2, 3), (2,))


def test_replicas_in_adding_and_removing_at_once_have_the_target_without_them():
    """Kafka leaves such sets when a running move is replaced by its original list; they never complete."""
    first, second = cycles(
        Change(10, 1000, "create", (0, 1, 2), 0, (0, 1, 2), (), ()),
        Change(20, 2000, replicas=(3, 4, 0, 1, 2), adding=(3, 4), removing=(0, 1, 2)),
        Change(21, 2100, replicas=(0, 1, 2, 3, 4), removing=(3, 4)),
        Change(22, 2200, replicas=(0, 1, 2), adding=(), removing=()),
    )
    assert first.status == "superseded"
    assert (second.status, second.target, second.adding, second.removing) == ("cancelled", (0, 1, 2), (3, 4), (3, 4))


def test_a_target_asked_for_while_removing_is_left_over_is_distinguished_from_what_becomes_of_it():
    """Kafka writes no empty removing, so that the old one stays: asked for were six replicas, it will end with four."""
    first, second = cycles(
        CREATED,
        Change(20, 2000, replicas=(4, 5, 3, 1, 2), adding=(4, 5), removing=(1, 2)),
        Change(21, 2100, replicas=(1, 2, 3, 4, 5, 6), adding=(6,)),
    )
    assert first.requested == first.target == (4, 5, 3)
    assert (second.target, second.requested) == ((3, 4, 5, 6), (1, 2, 3, 4, 5, 6))


def test_a_replacement_that_removes_the_same_as_before_is_asked_for_without_them():
    _, second = cycles(
        CREATED,
        Change(20, 2000, replicas=(4, 5, 3, 1, 2), adding=(4, 5), removing=(1, 2)),
        Change(21, 2100, replicas=(4, 5, 3, 6, 1, 2), adding=(6,)),
    )
    assert second.requested == second.target == (4, 5, 3, 6)


def test_a_reorder_while_a_move_runs_reorders_its_target():
    cycle = only(CREATED, MOVES, Change(25, 2500, replicas=(2, 3, 4, 1)), CAUGHT_UP)
    assert (cycle.status, cycle.target) == ("completed", (2, 3, 4))


def test_our_own_records_name_the_original_and_the_target():
    cycle = only(
        CREATED,
        Change(20, 2000, replicas=(4, 2, 3, 1, 9), adding=(4,), removing=(1, 9), original=(3, 2, 1), target=(4, 2, 3)),
        Change(30, 2600, isr=(2, 3, 4), replicas=(4, 2, 3), adding=(), removing=(), original=(), target=()),
    )
    assert (cycle.status, cycle.orig, cycle.target) == ("completed", (3, 2, 1), (4, 2, 3))


@pytest.mark.parametrize(
    ("target", "adding", "removing"),
    [((3, 2, 1), (), ()), ((2, 3), (), (1,)), ((1, 2, 4), (4,), (3,))],
    ids=["a reorder", "a shrink", "a swap by replicas that were in sync"],
)
def test_what_never_shows_adding_or_removing_is_instant(
    target: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]
):
    cycle = only(CREATED, Change(20, 2000, isr=target, replicas=target))
    assert (cycle.status, cycle.start_offset, cycle.end_offset, cycle.duration_ms) == ("instant", 20, 20, 0)
    assert (cycle.orig, cycle.target, cycle.adding, cycle.removing) == ((1, 2, 3), target, adding, removing)


def test_changes_of_isr_leader_and_directories_alone_are_no_reassignments():
    assert (
        cycles(CREATED, Change(20, 2000, isr=(1, 2)), Change(21, 2000, leader=2), Change(22, 2000, directories=("a", "b", "c")))
        == []
    )


def test_leader_changes_and_shrinks_of_the_isr_are_counted_while_it_runs_and_the_end_shrinks_on_purpose():
    cycle = only(
        CREATED,
        Change(15, 1500, isr=(1, 2), leader=2),
        Change(16, 1600, isr=(1, 2, 3), leader=1),
        MOVES,
        Change(21, 2100, isr=(2, 3), leader=2),
        Change(22, 2200, leader=2),
        Change(23, 2300, isr=(1, 2, 3)),
        CAUGHT_UP._replace(leader=4),
    )
    assert (cycle.leader_changes, cycle.isr_shrinks) == (2, 1)


def test_a_replica_that_falls_out_again_keeps_the_time_of_its_first_catch_up():
    cycle = only(
        CREATED, MOVES, Change(21, 2100, isr=(1, 2, 3, 4)), Change(22, 2200, isr=(1, 2, 3)), Change(23, 2300, isr=(1, 2, 3, 4))
    )
    assert (cycle.status, cycle.end_offset, cycle.duration_ms, cycle.rf_after) == ("open", None, None, None)
    assert cycle.replicas[0].caught_up_offset == 21


def test_directories_say_where_replicas_went_and_where_they_were():
    created = CREATED._replace(directories=("one", "two", "three"))
    moves = MOVES._replace(directories=("new", "two", "three", "one"))
    cycle = only(created, moves, CAUGHT_UP._replace(directories=("final", "two", "three")))
    assert [(row.replica, row.dir_id) for row in cycle.replicas] == [(4, "final"), (1, "one")]


def test_a_clock_that_steps_back_gives_no_negative_duration_and_is_reported():
    cycle = only(CREATED, MOVES, CAUGHT_UP._replace(ts_ms=1400))
    assert (cycle.duration_ms, cycle.replicas[0].lag_ms, cycle.clock_skew) == (0, 0, True)


def test_a_log_that_begins_with_a_snapshot_has_no_start_of_what_ran():
    snapshot = Change(99, 5000, "snapshot", isr=(1, 2, 3, 4), leader=1, replicas=(4, 5, 2, 3, 1), adding=(4, 5), removing=(1,))
    cycle = only(snapshot, Change(120, 6000, isr=(2, 3, 4, 5), leader=2, replicas=(4, 5, 2, 3), adding=(), removing=()))
    assert (cycle.reassignment_id, cycle.start_offset, cycle.start_ms, cycle.duration_ms) == (
        "orders:0:before-99",
        None,
        None,
        None,
    )
    assert (cycle.status, cycle.truncated_left, cycle.orig, cycle.target) == ("completed", True, (2, 3, 1), (4, 5, 2, 3))
    assert [(row.caught_up_offset, row.lag_ms) for row in cycle.replicas[:2]] == [(99, None), (120, None)]


def test_a_snapshot_that_agrees_changes_nothing():
    running = Change(22, 9000, "snapshot", isr=(1, 2, 3), leader=1, replicas=(4, 2, 3, 1), adding=(4,), removing=(1,))
    assert only(CREATED, MOVES, running, CAUGHT_UP) == only(CREATED, MOVES, CAUGHT_UP)


def test_what_ended_in_a_gap_of_the_log_ends_at_the_snapshot_after_it():
    settled = Change(500, 9000, "snapshot", isr=(4, 2, 3), leader=2, replicas=(4, 2, 3), adding=(), removing=())
    cycle = only(CREATED, MOVES, settled)
    assert (cycle.status, cycle.end_offset, cycle.truncated_left) == ("completed", 500, False)


def test_what_happened_wholly_in_a_gap_is_seen_by_its_result():
    settled = Change(500, 9000, "snapshot", isr=(4, 2, 3), leader=2, replicas=(4, 2, 3), adding=(), removing=())
    cycle = only(CREATED, settled)
    assert (cycle.status, cycle.start_offset, cycle.end_offset, cycle.truncated_left) == ("instant", None, 500, True)


def test_an_end_without_a_beginning_is_reported_as_such():
    cycle = only(CAUGHT_UP)
    assert (cycle.status, cycle.end_offset, cycle.adding, cycle.target, cycle.truncated_left) == (
        "unknown",
        30,
        None,
        (4, 2, 3),
        True,
    )


def test_a_topic_that_is_deleted_ends_what_runs():
    key = PartitionKey("id", "orders", 0)
    (cycle,) = all_life_cycles([(key, CREATED), (key, MOVES)], {"id": (40, 4000), "other": (41, 4000)})
    assert (cycle.status, cycle.end_offset, cycle.duration_ms, cycle.rf_after) == ("deleted", 40, 2000, None)


def test_a_removal_with_later_records_of_the_partition_does_not_count():
    key, other = PartitionKey("id", "orders", 0), PartitionKey("id", "orders", 1)
    rows = [(key, CREATED), (other, CREATED), (key, MOVES), (other, MOVES), (key, CAUGHT_UP)]
    found = all_life_cycles(rows, {"id": (25, 2500)})
    assert [(cycle.partition, cycle.status) for cycle in found] == [(0, "completed"), (1, "deleted")]


def test_the_reassignment_that_superseded_another_is_named_though_it_came_from_a_snapshot():
    elsewhere = Change(500, 9000, "snapshot", isr=(7, 8), leader=7, replicas=(7, 8), adding=(), removing=())
    first, second = cycles(CREATED, MOVES, elsewhere)
    assert (first.status, second.status) == ("superseded", "instant")
    assert first.superseded_by == second.reassignment_id


def test_rows_out_of_order_are_refused_with_the_next_step():
    with pytest.raises(OffsetsStepBack, match=r"offset 10 after 20 in orders-0; sort the rows by topic_id"):
        cycles(MOVES, CREATED)
