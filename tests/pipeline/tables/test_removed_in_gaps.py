"""Ends of everything that existed before a snapshot and is not in it."""

from __future__ import annotations

from typing import Any

from kraftlab.pipeline.tables.other_rows import BROKERS, CONFIGS, TOPICS, record_batch
from kraftlab.pipeline.tables.removed_in_gaps import rows_of_ends, snapshots_within

AT, MS = 99, 7000
NAME = f"{AT + 1:020d}-0000000001.checkpoint"


def _row(offset: int, kind: str = "log", **cells: Any) -> dict[str, Any]:
    return {"offset": offset, "idx_in_batch": 0, "kind": kind, "ts_ms": offset} | cells


def _ends(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows_of_ends(table, record_batch(table, rows).to_pylist(), AT, MS).to_pylist()


def test_a_topic_that_the_snapshot_does_not_know_was_deleted_in_the_hole() -> None:
    rows = [_row(1, topic_id="a", name="kept", op="create"), _row(2, topic_id="b", name="doomed", op="create")]
    (end,) = _ends(TOPICS, [*rows, _row(AT, "snapshot", topic_id="a", name="kept", op="create")])
    assert (end["topic_id"], end["name"], end["op"], end["offset"], end["ts_ms"]) == ("b", "doomed", "delete", AT, MS)


def test_what_had_ended_before_does_not_end_again_and_what_comes_later_does_not_end() -> None:
    rows = [_row(1, topic_id="a", op="create"), _row(2, topic_id="a", op="delete"), _row(AT + 1, topic_id="c", op="create")]
    assert _ends(TOPICS, rows) == []


def test_brokers_are_unregistered_and_configs_cleared() -> None:
    brokers = [_row(1, broker_id=1, op="register"), _row(2, broker_id=2, op="register"), _row(3, broker_id=2, op="change")]
    (end,) = _ends(BROKERS, [*brokers, _row(AT, "snapshot", broker_id=1, op="register")])
    assert (end["broker_id"], end["op"]) == (2, "unregister")
    configs = [_row(1, resource_type="TOPIC", resource="a", key=key, value=value) for key, value in (("x", "1"), ("y", None))]
    (end,) = _ends(CONFIGS, configs)
    assert (end["key"], end["value"]) == ("x", None)


def test_snapshots_that_are_needed_are_found_with_the_time_of_their_newest_batch() -> None:
    import pyarrow as pa

    rows = [(NAME, AT, 5), (NAME, AT, 6), ("other", 50, 7), ("00000000000000000000.log", AT, 9)]
    columns = dict(zip(("segment", "base_offset", "append_ms"), map(list, zip(*rows, strict=True)), strict=True))
    batches = pa.table(columns)
    assert list(snapshots_within(batches, {NAME, "other"}, 0, 100)) == [(AT, 6)]
    assert list(snapshots_within(batches, {NAME}, 0, AT)) == []
