"""Rows of partitions are found again in the buckets of files, whole and in order, however tasks and memory divide them."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.storage import buckets, parts
from kraftlab.pipeline.storage.parts import DataFile, TaskFiles
from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.pipeline.tables.histories import CHANGES, Job, units_of

SCHEMA = arrow_schema(CHANGES)
TOPICS, PARTITIONS, ROUNDS = 40, 3, 5


def _rows(first_round: int, rounds: int, kind: str = "change") -> pa.Table:
    """Change each partition once per round; in the last round all rows have one offset, as in a snapshot."""
    found = [
        {
            "offset": 100_000 if kind == "snapshot" else (each * TOPICS + topic) * PARTITIONS + partition,
            "kind": kind,
            "topic_id": f"topic-{topic * 7919 % TOPICS:017d}",
            "partition": partition,
            "idx_in_batch": partition if kind == "snapshot" else 0,
            "isr": [each],
        }
        for each in range(first_round, first_round + rounds)
        for topic in range(TOPICS)
        for partition in range(PARTITIONS)
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Lake, list[DataFile]]:
    """Two files in buckets, and two of few rows."""
    lake = Lake(str(tmp_path / "lake"))
    found = []
    monkeypatch.setattr(buckets, "ROWS_MIN", 100)
    with lake.writing():
        for number, rows in enumerate((_rows(0, 2), _rows(2, 2), _rows(4, 1).slice(0, 60), _rows(4, 1).slice(60))):
            with TaskFiles(lake.uri, {CHANGES: lake.directory(CHANGES, number, number + 1)}) as task:
                for batch in rows.to_batches(max_chunksize=50):
                    task.add(CHANGES, batch)
                (report,) = task.report()
            (part,) = report.to_pylist()
            found.append(DataFile(part["path"], part["rows"], part["size_bytes"]))
            lake.commit_parts(CHANGES, number, number + 1, found[-1:])
        with_snapshot = lake.commit_arrow(_rows(9, 1, "snapshot"), CHANGES, 100_000, 100_001)
    return lake, [*found, *with_snapshot.files]


@pytest.mark.parametrize(("tasks", "rows_at_once"), [(1, 10_000), (3, 10_000), (16, 10_000), (3, 17), (1, 11)])
def test_each_partition_is_whole_and_in_order_in_one_unit(
    files: tuple[Lake, list[DataFile]], tasks: int, rows_at_once: int
) -> None:
    lake, written = files
    paths = [file.path for file in written]
    units = [unit for number in range(tasks) for unit in units_of(Job(lake.uri, paths, tasks, {}, {}), number, rows_at_once)]
    seen: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for unit in units:
        rows = unit.rows.take(pa.array(unit.order)).select(["topic_id", "partition", "offset", "kind"]).to_pylist()
        keys = [(row["topic_id"], row["partition"]) for row in rows]
        runs = [key for number, key in enumerate(keys) if number == 0 or keys[number - 1] != key]
        assert len(runs) == len(set(runs)), "the rows of a partition are neighbours"
        assert not seen.keys() & set(keys), "and in no other unit"
        for key, row in zip(keys, rows, strict=True):
            seen.setdefault(key, []).append((row["offset"], row["kind"]))
    assert len(seen) == TOPICS * PARTITIONS
    assert all(len(rows) == ROUNDS + 1 and rows == sorted(rows) for rows in seen.values())
    assert (len(units) > tasks) == (rows_at_once < 100)


def test_partitions_of_two_topics_are_not_mixed_whatever_their_numbers(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    keys = [(topic, partition) for topic in ("a", "b") for partition in (-(1 << 31), -1, 0, (1 << 31) - 1)] * 2
    rows = [{"topic_id": topic, "partition": partition, "offset": at} for at, (topic, partition) in enumerate(keys)]
    with lake.writing():
        written = lake.commit_arrow(pa.Table.from_pylist(rows, schema=SCHEMA), CHANGES, 0, len(rows)).files
    (unit,) = units_of(Job(lake.uri, [file.path for file in written], 1, {}, {}), 0)
    found = [(row["topic_id"], row["partition"]) for row in unit.rows.take(pa.array(unit.order)).to_pylist()]
    assert found[::2] == found[1::2] == sorted(set(keys))


def test_a_file_says_which_rows_its_groups_hold(files: tuple[Lake, list[DataFile]], tmp_path: Path) -> None:
    lake, (first, _, small, *_) = files
    with parquet.ParquetFile(tmp_path / "lake" / first.path) as file:
        groups = buckets.groups_of(file)
        assert [bucket for _, bucket, _ in groups] == sorted({bucket for _, bucket, _ in groups})
        assert len(groups) > buckets.BUCKETS // 2
        for number, bucket, count in groups:
            rows = file.read_row_group(number)
            assert set((buckets.hashes(rows) % buckets.BUCKETS).tolist()) == {bucket}
            assert rows.num_rows == count
            assert rows["offset"].to_pylist() == sorted(rows["offset"].to_pylist())
    with parquet.ParquetFile(tmp_path / "lake" / small.path) as file:
        assert buckets.groups_of(file) == [(0, buckets.ANY, 60)]
    assert sum(file.rows for file in files[1]) == lake.arrow(CHANGES).num_rows


def test_keys_are_spread_over_the_buckets() -> None:
    rows = pa.table(
        {
            "topic_id": [f"t{topic}" for topic in range(500) for _ in range(16)],
            "partition": pa.array([*range(16)] * 500, pa.int32()),
        }
    )
    counts = [(buckets.hashes(rows) % buckets.BUCKETS == bucket).sum() for bucket in range(buckets.BUCKETS)]
    assert min(counts) == max(counts) == 500, "those of one topic evenly"
    assert buckets.hashes(rows.slice(0, 3)).tolist() == [743677601, 2992957200, 272461251], "it is part of the format"


def test_ids_of_one_length_are_hashed_as_any_text() -> None:
    ids = [f"{topic:022x}"[::-1] for topic in (0, 1, 255, 2**64, 2**88 - 1)]
    rows = pa.table({"topic_id": ["gone", *ids], "partition": pa.array([0] * 6, pa.int32())}).slice(1)
    assert buckets.hashes(rows).tolist() == [zlib.crc32(each.encode()) for each in ids]
    assert buckets.hashes(pa.concat_tables([rows, rows.slice(0, 0)])).tolist() == buckets.hashes(rows).tolist()


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed(Exception):
        pass

    monkeypatch.setattr(parts, "GROUP_ROWS_MAX", 100)
    with pytest.raises(Failed), TaskFiles((tmp_path / "lake").as_uri(), {CHANGES: "silver/x"}) as task:
        task.add(CHANGES, _rows(0, 2).combine_chunks().to_batches()[0])
        assert list(tmp_path.rglob("*.parquet")), "a row group is written"
        raise Failed
    assert list(tmp_path.rglob("*.parquet")) == []
