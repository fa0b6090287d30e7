"""Choice of batches: each batch of several controllers is taken once, and tasks get about equal shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.pipeline.tables.wanted_batches import RECORDS_PER_TASK, Piece, pieces, shared_out

SNAPSHOT, OTHER = "00000000000000000006-0000000003.checkpoint", "00000000000000000009-0000000003.checkpoint"
_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["00000000000000000000.log", "00000000000000000004.log", SNAPSHOT, OTHER]),
        st.integers(-1, 9),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(1, 5),
    ),
    max_size=20,
    unique_by=lambda row: (row[0].endswith(".log") or row[0], row[1], row[3]),
)
"""(segment, offset, epoch, controller, records), each controller's batches once."""


def _last(row: Any) -> int:
    return int(row[1] + row[4] - 1)


def _written(directory: Path, *files: list[Any]) -> list[str]:
    """Write files of `bronze.batches` with row groups of three; `payload` identifies the row."""
    schema, paths = arrow_schema("bronze.batches"), []
    for number, rows in enumerate(files):
        cells = [
            dict(zip(("segment", "base_offset", "leader_epoch", "controller_id", "n_records"), row, strict=True))
            | {"last_offset": _last(row), "payload": repr(row).encode(), "append_ms": 0, "format": "kraftlab"}
            for row in rows
        ]
        path = directory / f"{number}.parquet"
        parquet.write_table(pa.Table.from_pylist(cells, schema), path, row_group_size=3)
        paths.append(path.name)
    return paths


def _naive(rows: list[Any], lo: int, hi: int, snapshots: set[str], of_several: bool) -> list[str]:
    found = [row for row in rows if lo <= max(0, row[1]) < hi and (row[0].endswith(".log") or row[0] in snapshots)]
    if not of_several:
        return sorted(map(repr, found))
    taken = []
    logs = {each: [row for row in found if row[0].endswith(".log") and row[3] == each] for each in {row[3] for row in found}}
    lasts = {each: max((_last(row), row[2]) for row in log) for each, log in logs.items() if log}
    for controller in sorted(lasts, key=lambda each: (lasts[each][1], lasts[each][0], -each), reverse=True):
        taken += [row for row in logs[controller] if _fits(row, taken)]
    for row in found:
        if not row[0].endswith(".log"):
            same = [each for each in found if each[0] == row[0]]
            sizes = {each[3]: sum(other[4] for other in same if other[3] == each[3]) for each in same}
            if row[3] == max(sizes, key=lambda controller: (sizes[controller], -controller)):
                taken.append(row)
    return sorted(map(repr, taken))


def _fits(row: Any, others: list[Any]) -> bool:
    """Return whether a log with the other rows can hold the row: between them, with epochs in the order of its neighbours'."""
    before = [(_last(each), each[2]) for each in others if _last(each) < row[1]]
    behind = [(each[1], each[2]) for each in others if each[1] > _last(row)]
    if len(before) + len(behind) < len(others):
        return False
    return max(before, default=row[1:3])[1] <= row[2] <= min(behind, default=row[1:3])[1]


@settings(deadline=None)
@given(_ROWS, _ROWS, st.integers(0, 5), st.integers(5, 10), st.sets(st.sampled_from([SNAPSHOT, OTHER])), st.booleans())
def test_the_batches_that_count_are_taken(
    tmp_path_factory: Any, one: list[Any], two: list[Any], lo: int, hi: int, snapshots: set[str], of_several: bool
) -> None:
    directory = tmp_path_factory.mktemp("lake")
    uri = directory.as_uri()
    two = [row for row in two if row not in one]
    found = pieces(uri, _written(directory, one, two), lo, hi, snapshots, of_several=of_several)
    rows = [row for piece in found for batch in piece.rows(uri) for row in batch.to_pylist()]
    assert sorted(row["payload"].decode() for row in rows) == _naive([*one, *two], lo, hi, snapshots, of_several)
    assert sum(piece.records for piece in found) == sum(int(row["payload"].decode().rpartition(", ")[2][:-1]) for row in rows)


LOG = "00000000000000000000.log"
SAME = [(LOG, 0, 1, 7), (LOG, 7, 2, 3)]


@pytest.mark.parametrize(
    ("logs", "taken"),
    [
        pytest.param(
            {1: [*SAME, (LOG, 10, 3, 5), (LOG, 15, 3, 3), (LOG, 18, 3, 9)], 2: [*SAME, (LOG, 10, 4, 1), (LOG, 11, 4, 9)]},
            [(0, 2), (7, 2), (10, 2), (11, 2)],
            id="batches of a deposed leader that begin within those of its successor, or behind them",
        ),
        pytest.param(
            {1: [*SAME, (LOG, 10, 3, 5), (LOG, 15, 5, 1)], 2: [*SAME, (LOG, 10, 4, 1)]},
            [(0, 1), (7, 1), (10, 1), (15, 1)],
            id="a leader that nobody followed, and then one that kept what was there before",
        ),
        pytest.param(
            {1: [SAME[0], (LOG, 10, 4, 5)], 2: [*SAME, (LOG, 10, 3, 2)]},
            [(0, 1), (7, 2), (10, 1)],
            id="what is damaged in one log stands in the other",
        ),
        pytest.param(
            {1: [SAME[0], (LOG, 7, 99, 3), (LOG, 10, 2, 5)], 2: [*SAME, (LOG, 10, 2, 5), (LOG, 15, 2, 4)]},
            [(0, 2), (7, 2), (10, 2), (15, 2)],
            id="a rotten epoch, which no CRC of Kafka's covers, hides nothing behind it",
        ),
    ],
)
def test_of_logs_that_differ_the_one_that_followed_the_latest_leader_counts(
    tmp_path: Path, logs: dict[int, list[Any]], taken: list[tuple[int, int]]
) -> None:
    rows = [(segment, base, epoch, node, count) for node, log in logs.items() for segment, base, epoch, count in log]
    uri = tmp_path.as_uri()
    found = pieces(uri, _written(tmp_path, rows), 0, 20, (), of_several=True)
    payloads = [row["payload"].decode() for piece in found for batch in piece.rows(uri) for row in batch.to_pylist()]
    assert sorted(payloads) == sorted(repr(row) for row in rows if (row[1], row[3]) in taken)


def test_tasks_get_about_as_much_each() -> None:
    found = [Piece("a", number, None, records) for number, records in enumerate([7, 3, 3, 3, 2, 2])]
    assert [sum(piece.records for piece in task) for task in shared_out(found)] == [20]
    large = [piece._replace(records=piece.records * RECORDS_PER_TASK // 10) for piece in found]
    assert sorted(sum(piece.records for piece in task) * 10 // RECORDS_PER_TASK for task in shared_out(large)) == [6, 7, 7]
    assert shared_out([]) == []
