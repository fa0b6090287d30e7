"""Small ranges that are put together read as they did, and nothing that was made of them counts as stale."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraftlab.pipeline.commands.samples import add
from kraftlab.pipeline.lake import compaction
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.lake.delta import Table
from kraftlab.pipeline.runs import build, gold
from kraftlab.pipeline.storage.schemas import arrow_schema

POLL_S = 0.002
TOPICS, BATCHES, CHANGES = "silver.topics", "bronze.batches", "silver.partition_changes"
SAMPLES = "silver.log_dir_samples"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(compaction, "FAN_IN", 3)
    return Lake(str(tmp_path / "lake"))


def commit(lake: Lake, table: str, lo: int, hi: int, rows: int = 1, **more: Any) -> None:
    """A range whose rows have its offsets, in turn."""
    column = "base_offset" if table == BATCHES else "offset"
    cells = [{column: lo + row % (hi - lo)} for row in range(rows)]
    with lake.writing():
        lake.commit_arrow(pa.Table.from_pylist(cells, schema=arrow_schema(table)), table, lo, hi, **more)


def compact(lake: Lake, *tables: str) -> int:
    with lake.writing():
        return compaction.compact(lake, tables)


def ranges(lake: Lake, table: str = TOPICS) -> list[tuple[int, int]]:
    return [(each.lo, each.hi) for each in lake.active(table)]


def test_ranges_side_by_side_become_one_and_those_one_of_the_next_tier(lake: Lake) -> None:
    for at in range(8):
        commit(lake, TOPICS, at * 10, at * 10 + 10, rows=at)
    assert compact(lake, TOPICS) == 2
    assert ranges(lake) == [(0, 30), (30, 60), (60, 70), (70, 80)]
    before = lake.arrow(TOPICS).to_pylist()
    commit(lake, TOPICS, 80, 90, rows=0)
    assert compact(lake, TOPICS) == 2
    assert ranges(lake) == [(0, 90)]
    assert lake.arrow(TOPICS).to_pylist() == before
    assert compact(lake, TOPICS) == 0


@pytest.mark.parametrize("fan_in", [2, 4])
def test_however_many_ranges_there_are_rows_stay_and_few_ranges_are_left(
    lake: Lake, fan_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", fan_in)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    sizes = [2, 0, 1, 3, 0, 0, 1, 1, 2, 0, 0, 0, 3, 1, 1, 2, 1]
    for at, rows in enumerate(sizes):
        commit(lake, TOPICS, at, at + 1, rows)
        compact(lake, TOPICS)
        found = lake.arrow(TOPICS, ["offset"]).column("offset").to_pylist()
        assert found == [offset for offset in range(at + 1) for _ in range(sizes[offset])]
    assert ranges(lake) == [(0, 16), (16, 17)]


def test_nothing_that_was_made_of_them_is_stale(lake: Lake) -> None:
    for at in range(3):
        commit(lake, BATCHES, at, at + 1)
        number = lake.active(BATCHES)[-1].number
        for table in build.TABLES:
            commit(lake, table, at, at + 1, rows=int(table in (TOPICS, CHANGES)) * (at < 2), inputs={BATCHES: number})
    inputs = {name: lake.changed(name) for name in (CHANGES, TOPICS)}
    with lake.writing():
        lake.commit_parts("gold.reassignments", 0, 3, (), inputs=inputs)
    assert inputs == {CHANGES: 2, TOPICS: 2}
    assert compact(lake, BATCHES, *build.TABLES) == 1 + len(build.TABLES)
    for _ in range(2):
        assert build.next_offset(lake, build.TABLES, lake.active(BATCHES)) == 3
        assert gold.stale(lake, ["gold.reassignments"]) == []
        lake.vacuum()
    commit(lake, BATCHES, 0, 3)
    assert build.next_offset(lake, build.TABLES, lake.active(BATCHES)) == 0, "was taken in again"


def test_what_was_made_of_them_is_not_stale_if_it_stays_apart(lake: Lake) -> None:
    for at in range(3):
        commit(lake, BATCHES, at, at + 1)
        commit(lake, CHANGES, at, at + 1, inputs={BATCHES: at + 1}, details={"apart": str(at)})
    assert compact(lake, BATCHES, CHANGES) == 1
    assert ranges(lake, BATCHES) == [(0, 3)]
    assert build.next_offset(lake, [CHANGES], lake.active(BATCHES)) == 3
    commit(lake, BATCHES, 0, 3)
    assert build.next_offset(lake, [CHANGES], lake.active(BATCHES)) == 0, "was taken in again"


def test_ranges_of_other_sources_stay_apart(lake: Lake) -> None:
    for at in range(3):
        commit(lake, BATCHES, at, at + 1, details={"controllers": str(at)})
    for at in range(3, 6):
        commit(lake, BATCHES, at, at + 1, details={"controllers": "9", "batch_id": str(at)})
    commit(lake, BATCHES, 7, 8, details={"controllers": "9", "batch_id": "0"})
    assert compact(lake, BATCHES) == 1
    assert ranges(lake, BATCHES) == [(0, 1), (1, 2), (2, 3), (3, 6), (7, 8)]
    assert lake.active(BATCHES)[3].details["controllers"] == "9"


def test_a_large_file_becomes_part_of_a_wider_range_and_is_not_written_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, rows in enumerate((1, 1, 10_000)):
        commit(lake, TOPICS, at, at + 1, rows)
    before, (large,) = lake.arrow(TOPICS).to_pylist(), lake.active(TOPICS)[2].files
    monkeypatch.setattr(compaction, "SMALL_BYTES", large.size_bytes - 1)
    assert compact(lake, TOPICS) == 1
    (merged,) = lake.active(TOPICS)
    assert (merged.lo, merged.hi, merged.rows) == (0, 3, 10_002)
    assert len(merged.files) == 2
    assert large in merged.files
    lake.vacuum()
    assert Lake(lake.uri).arrow(TOPICS).to_pylist() == before
    commit(lake, TOPICS, 0, 3)
    assert Lake(lake.uri).arrow(TOPICS).num_rows == 1, "all of them were replaced"


def test_moments_become_one_range_whatever_lies_between_them(lake: Lake) -> None:
    def sample(at_ms: int, size_bytes: int = 1) -> None:
        row = {"sampled_ms": at_ms, "size_bytes": size_bytes}
        add(lake, pa.Table.from_pylist([row], schema=arrow_schema(SAMPLES)), at_ms)

    for at_ms in (100, 200, 300, 400):
        sample(at_ms)
    assert ranges(lake, SAMPLES) == [(100, 301), (400, 401)]
    sample(200, 2)
    sample(250, 3)
    assert ranges(lake, SAMPLES) == [(100, 301), (400, 401)]
    found = lake.arrow(SAMPLES, ["sampled_ms", "size_bytes"]).sort_by("sampled_ms").to_pylist()
    assert [(row["sampled_ms"], row["size_bytes"]) for row in found] == [(100, 1), (200, 2), (250, 3), (300, 1), (400, 1)]


def test_killed_in_the_midst_it_leaves_the_table_as_it_was(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(3):
        commit(lake, TOPICS, at, at + 1)
    before = lake.arrow(TOPICS).to_pylist()

    def killed(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Table, "commit", killed)
        compact(lake, TOPICS)
    again = Lake(lake.uri)
    assert ranges(again) == [(0, 1), (1, 2), (2, 3)]
    assert again.arrow(TOPICS).to_pylist() == before
    assert compact(again, TOPICS) == 1
    again.vacuum()
    assert again.arrow(TOPICS).to_pylist() == before
    assert len(list(Path(lake.place()).glob("silver/topics/[0-9]*/*.parquet"))) == 1


COMPACTING = """
import sys
from kraftlab.pipeline.lake import compaction
from kraftlab.pipeline.lake.commits import Lake
compaction.FAN_IN = 2
lake = Lake(sys.argv[1])
with lake.writing():
    compaction.compact(lake, ["silver.topics"])
"""


def test_killed_with_9_again_and_again_it_loses_and_doubles_nothing(lake: Lake) -> None:
    for at in range(16):
        commit(lake, TOPICS, at, at + 1)
    before, directory = lake.arrow(TOPICS).to_pylist(), Path(lake.place()) / "silver" / "topics"
    for kills in range(1, 40, 9):
        there = len(list(directory.iterdir()))
        process = subprocess.Popen([sys.executable, "-c", COMPACTING, lake.place()])
        while process.poll() is None and len(list(directory.iterdir())) < there + kills:
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        process.kill()
        code = process.wait()
        assert Lake(lake.uri).arrow(TOPICS).to_pylist() == before
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert kills > 1
    assert ranges(Lake(lake.uri)) == [(0, 16)]
