"""Gold of a lake so small that it is built without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from kraftlab.pipeline.kraft_log.reader import read_file
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import gold
from kraftlab.pipeline.runs.gold_in_process import STATE, leader_epochs, log_divergence
from kraftlab.pipeline.storage.schemas import arrow_schema

END = 100
CREATED = {"kind": "create", "isr": [1, 2], "leader": 1, "replicas": [1, 2], "adding": [], "removing": []}
MOVES = {"kind": "change", "replicas": [1, 2, 3], "adding": [3], "removing": [2]}
MOVED = {"kind": "change", "isr": [1, 3], "replicas": [1, 3], "adding": [], "removing": []}


def _built(tmp_path: Path, changes: list[dict[str, Any]], topics: list[dict[str, Any]]) -> Lake:
    lake = Lake(str(tmp_path / "lake"))
    place = {"ts_ms": 1000, "idx_in_batch": 0, "partition": 0}
    with lake.writing():
        for table, rows in (("silver.partition_changes", changes), ("silver.topics", topics)):
            lake.commit_arrow(pa.Table.from_pylist([place | row for row in rows], schema=arrow_schema(table)), table, 0, END)
        gold.GoldBuild(None, lake, lambda text: None).run([gold.REASSIGNMENTS, gold.REPLICAS, STATE], END)
    return lake


def test_a_removal_with_later_records_of_the_partition_does_not_count_and_the_last_one_counts(tmp_path: Path) -> None:
    lives: dict[str, Any] = {"topic_id": "lives", "topic": "a"}
    gone: dict[str, Any] = {"topic_id": "gone", "topic": "b"}
    changes = [
        lives | CREATED | {"offset": 10},
        gone | CREATED | {"offset": 11},
        lives | MOVES | {"offset": 20},
        gone | MOVES | {"offset": 21},
        lives | MOVED | {"offset": 40},
        gone | {"offset": 41, "kind": "change", "leader": 2},
    ]
    ends = [("lives", 30), ("gone", 30), ("gone", 50)]
    topics = [{"topic_id": topic_id, "offset": offset, "op": "delete"} for topic_id, offset in ends]
    lake = _built(tmp_path, changes, topics)
    cycles = lake.arrow(gold.REASSIGNMENTS, ["topic", "status", "end_offset"]).sort_by("topic").to_pylist()
    assert [tuple(row.values()) for row in cycles] == [("a", "completed", 40), ("b", "deleted", 50)]
    (state,) = lake.arrow(STATE).to_pylist()
    assert (state["topic"], state["replicas"], state["since_offset"]) == ("a", [1, 3], 40)


def _batches(path: Path, controller: int) -> list[dict[str, Any]]:
    data = path.read_bytes()
    return [
        {
            "segment": "00000000000000000000.log",
            "pos": entry.position,
            "base_offset": entry.base_offset,
            "last_offset": entry.last_offset,
            "leader_epoch": entry.leader_epoch,
            "append_ms": entry.max_timestamp_ms,
            "crc": entry.crc,
            "controller_id": controller,
            "payload": data[entry.position : entry.position + entry.size_bytes],
            "format": "kafka",
        }
        for entry in read_file(path)
    ]


def _lake_of(tmp_path: Path, name: str, *logs: list[dict[str, Any]]) -> Lake:
    """Bronze in three ranges, each with rows of every log."""
    lake, schema = Lake(str(tmp_path / name)), arrow_schema("bronze.batches")
    with lake.writing():
        for lo, hi in ((0, 1000), (1000, 2100), (2100, 100_000)):
            rows = [row for log in logs for row in log if lo <= row["base_offset"] < hi]
            lake.commit_arrow(pa.Table.from_pylist(rows, schema=schema), "bronze.batches", lo, hi)
    return lake


def test_epochs_of_a_recorded_log_and_a_log_that_differs_from_it(tmp_path: Path, recording: Any) -> None:
    one = _batches(recording("00000000000000000000.log"), 3000)
    ends = [2052, 2141, one[-1]["last_offset"] + 1]
    epochs = leader_epochs(_lake_of(tmp_path, "one", one)).to_pylist()
    assert [(row["epoch"], row["leader"], row["start_offset"], row["end_offset"]) for row in epochs] == [
        (1, 3002, 0, ends[0]),
        (2, 3001, ends[0], ends[1]),
        (3, 3002, ends[1], ends[2]),
    ]
    other = [{**row, "controller_id": 3001} for row in one]
    third = [{**row, "controller_id": 3002} for row in one[100:]]
    assert log_divergence(_lake_of(tmp_path, "agreeing", one, other, third)).num_rows == 0
    other[200]["crc"] += 1
    other[201]["crc"] += 1
    (found,) = log_divergence(_lake_of(tmp_path, "differing", one, other, third)).to_pylist()
    assert (found["from_offset"], found["to_offset"]) == (one[200]["base_offset"], one[201]["last_offset"] + 1)
    assert (found["class"], found["controllers"], found["epoch"]) == (
        "log_matching",
        [3000, 3001, 3002],
        one[200]["leader_epoch"],
    )
    assert found["crcs"] == [one[200]["crc"], one[200]["crc"] + 1, one[200]["crc"]]
