"""Missing offsets, and their causes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.pipeline.tables.bronze import KEYS, MARKS, disagreements, ends, holes, offset_gaps, snapshots


def _batches(*rows: tuple[Any, ...], crcs: tuple[int, ...] = ()) -> pa.Table:
    """(controller, base offset, last offset[, file])."""
    found = [
        {"controller_id": row[0], "base_offset": row[1], "last_offset": row[2], "segment": row[3] if len(row) > 3 else "0.log"}
        for row in rows
    ]
    for row, crc in zip(found, crcs, strict=False):
        row["crc"] = crc
    schema = arrow_schema("bronze.batches")
    return pa.Table.from_pylist(found, pa.schema([schema.field(name) for name in [*KEYS, "crc"]]))


def _marks(*rows: tuple[Any, ...]) -> pa.Table:
    """(controller, offset before, offset after)."""
    schema = arrow_schema("bronze.quarantine")
    found = [
        {"controller_id": node, "prev_offset": prev, "next_offset": following, "segment": "0.log"}
        for node, prev, following in rows
    ]
    return pa.Table.from_pylist(found, pa.schema([schema.field(name) for name in MARKS]))


def _gaps(batches: pa.Table, marks: pa.Table, starts: dict[int, int], lo: int = 0, hi: int = 100) -> list[tuple[Any, ...]]:
    return [tuple(gap) for gap in offset_gaps(batches, marks, starts, lo, hi)]


def test_a_whole_log_has_no_gaps_and_may_end_early() -> None:
    assert _gaps(_batches((1, 10, 19), (1, 0, 9)), _marks(), {1: 0}) == []


def test_what_lies_below_the_first_segment_was_compacted() -> None:
    assert _gaps(_batches((1, 40, 49)), _marks(), {1: 40}) == [(1, 0, 40, "compacted")]
    assert _gaps(_batches(), _marks(), {1: 40}, hi=30) == [(1, 0, 30, "compacted")]
    assert _gaps(_batches((1, 60, 69)), _marks(), {1: 40}, lo=50) == [(1, 50, 60, "missing_segment")]


def test_a_hole_beside_a_damage_is_its_doing_and_any_other_a_missing_segment() -> None:
    batches = _batches((1, 0, 9), (1, 20, 29), (1, 40, 49), (2, 5, 49))
    assert _gaps(batches, _marks((1, 9, 20), (2, None, 5)), {1: 0, 2: 0}) == [
        (1, 10, 20, "quarantine"),
        (1, 30, 40, "missing_segment"),
        (2, 0, 5, "quarantine"),
    ]


def test_a_damage_in_a_first_segment_after_a_cleaned_beginning() -> None:
    assert _gaps(_batches((1, 45, 49)), _marks((1, 39, 45)), {1: 40}) == [(1, 0, 40, "compacted"), (1, 40, 45, "quarantine")]


def test_a_damage_at_the_end_hides_what_others_know_to_be_there() -> None:
    assert _gaps(_batches((1, 0, 9)), _marks((1, 9, None)), {1: 0}, hi=30) == [(1, 10, 30, "quarantine")]
    assert _gaps(_batches(), _marks((1, None, None)), {1: 0}, hi=30) == [(1, 0, 30, "quarantine")]
    assert _gaps(_batches((1, 0, 29)), _marks((1, 29, None)), {1: 0}, hi=30) == []


def test_a_damage_at_the_end_of_a_range_is_a_gap_of_that_range_and_of_the_next() -> None:
    assert _gaps(_batches((1, 0, 9)), _marks((1, 9, 35)), {1: 0}, hi=30) == [(1, 10, 30, "quarantine")]
    assert _gaps(_batches((1, 0, 9)), _marks((1, 9, 30)), {1: 0}, hi=30) == [(1, 10, 30, "quarantine")]
    assert _gaps(_batches((1, 35, 39)), _marks((1, 9, 35)), {1: 0}, lo=30, hi=40) == [(1, 30, 35, "quarantine")]


def test_batches_of_snapshots_cover_nothing() -> None:
    batches = _batches((1, 9, 9, "00000000000000000010-0000000001.checkpoint"), (1, 10, 19))
    assert _gaps(batches, _marks(), {1: 10}) == [(1, 0, 10, "compacted")]
    assert snapshots(batches) == [("00000000000000000010-0000000001.checkpoint", 10)]
    assert holes(batches) == [(0, 10)]


def test_a_batch_that_reaches_into_a_range_leaves_no_gap_at_its_beginning() -> None:
    earlier = _batches((1, 0, 9), (2, 0, 4))
    assert ends(earlier) == {1: 10, 2: 5}
    rest = _batches((1, 10, 19), (2, 7, 19))
    assert [tuple(gap) for gap in offset_gaps(rest, _marks(), {1: 0, 2: 0}, 6, 20, ends(earlier))] == [
        (2, 6, 7, "missing_segment")
    ]


def test_a_snapshot_beyond_the_last_batch_comes_after_a_hole() -> None:
    beyond = (1, 99, 99, "00000000000000000100-0000000001.checkpoint")
    assert holes(_batches((1, 0, 9), beyond)) == [(10, 100)]
    assert holes(_batches((1, 0, 9), (1, 20, 29), beyond)) == [(10, 20), (30, 100)]
    assert holes(_batches((1, 0, 99), beyond)) == []


def test_what_one_controller_lacks_another_has() -> None:
    assert holes(_batches((1, 0, 9), (2, 10, 19), (1, 30, 39), (2, 5, 12))) == [(20, 30)]
    assert holes(_batches()) == []


def test_batches_that_differ_at_one_offset_are_counted() -> None:
    same = _batches((1, 0, 9), (2, 0, 9), (1, 10, 19), (2, 10, 19), crcs=(7, 7, 8, 9))
    assert disagreements(same) == 1
    assert disagreements(_batches()) == 0
