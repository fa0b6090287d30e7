"""Silver of so few records that it is built without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.metadata import records as r
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import build
from kraftlab.pipeline.sources.bronze_pass import BATCHES, QUARANTINE
from kraftlab.pipeline.sources.formats import KRAFTLAB

from ...helpers.lakes import SPARK, ingest

Make = Callable[..., Any]


def _topics(lake: Lake) -> list[tuple[Any, ...]]:
    rows = lake.arrow(build.TOPICS, ["offset", "op", "name"]).sort_by("offset").to_pylist()
    return [tuple(row.values()) for row in rows]


def test_what_a_deposed_leader_could_not_commit_is_not_in_silver(lake: Lake, own_log: Make) -> None:
    deposed, leader = own_log(1), own_log(2)
    for log in (deposed, leader):
        first = log.batch([r.Topic(0, "kept", bytes(16))])
        if log is deposed:
            rest = log.batch([r.Topic(0, "lost", bytes(15) + b"1"), r.NoOp(0)])
            rest += log.batch([r.Topic(0, "lost too", bytes(15) + b"2")])
        else:
            rest = log.batch([r.NoOp(0)], epoch=2) + log.batch(
                [r.NoOp(0), r.NoOp(0), r.Topic(0, "new", bytes(15) + b"3")], epoch=2
            )
        log.segment(first + rest, base_offset=0)
    ingest(lake, KRAFTLAB, deposed.directory, leader.directory)
    report = build.build(SPARK, lake)
    assert _topics(lake) == [(0, "create", "kept"), (4, "create", "new")]
    assert report.disagreements == 1


@pytest.mark.parametrize("tables", [build.TABLES, (build.TOPICS,)])
def test_a_snapshot_with_records_of_a_newer_program_tells_of_no_end_whichever_tables_are_built(
    lake: Lake, own_log: Make, tables: tuple[str, ...]
) -> None:
    log = own_log()
    log.segment([[r.Topic(0, "kept", bytes(16))]])
    log.next_offset = 40
    log.snapshot(40, [r.Topic(9, "kept", bytes(16))])
    log.segment([[r.NoOp(0)]])
    ingest(lake, KRAFTLAB, log.directory)
    build.build(SPARK, lake, tables)
    assert _topics(lake) == [(0, "create", "kept")]
    assert set(lake.tables()) == {BATCHES, QUARANTINE, *tables}
    assert lake.vacuum().files == 0, "no file is left that nobody counts"


def test_partitions_have_the_names_of_topics_also_where_no_topics_are_built(lake: Lake, own_log: Make) -> None:
    log = own_log()
    partition = r.Partition(0, 0, bytes(16), (1,), (1,))
    log.segment([[r.Topic(0, "orders", bytes(16)), partition], [r.PartitionChange(0, 0, bytes(16), leader=-1)]])
    ingest(lake, KRAFTLAB, log.directory)
    for hi in (2, None):
        build.build(SPARK, lake, (build.CHANGES,), hi=hi)
    rows = lake.arrow(build.CHANGES, ["offset", "topic"]).sort_by("offset").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, "orders"), (2, "orders")]
