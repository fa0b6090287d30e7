"""Gold of a lake so small that it is built without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.lake.schemas import arrow_schema
from kraftlab.pipeline.runs import gold
from kraftlab.pipeline.runs.gold_in_process import STATE

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
        gold._Build(None, lake, lambda text: None).run([gold.REASSIGNMENTS, gold.REPLICAS, STATE], END)  # type: ignore[arg-type]
    return lake


def test_a_removal_that_the_log_goes_on_behind_was_none_and_the_last_one_counts(tmp_path: Path) -> None:
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
