"""A run that is killed with its JVM, at whatever moment, leaves a lake that the next run makes right."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraftlab.metadata import records as r
from kraftlab.pipeline.lake.commits import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = bytes(range(16))
DEADLINE_S = 240
POLL_S = 0.01
MOMENTS = ("bronze/batches/*/*.parquet", "bronze/batches/_delta_log/*1.json", "silver/topics/_delta_log/*1.json")
"""When batches are being written, between the tables of bronze, between those of silver."""
RUN = """
import sys
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs.build import build
from kraftlab.pipeline.runs.ingest import ingest
from kraftlab.pipeline.session import factory

place, log = sys.argv[1:]
with factory.session(master="local[2]", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}) as spark:
    ingest(spark, Lake(place), [log])
    build(spark, Lake(place))
"""


def _kill_when(lake: Path, log: Path, pattern: str) -> None:
    """Starts a run in a process group of its own, and kills the driver and its JVM as soon as a file shows up."""
    process = subprocess.Popen([sys.executable, "-c", RUN, str(lake), str(log)], start_new_session=True)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not next(lake.glob(pattern), None):
            assert time.monotonic() < deadline, f"{pattern} never showed up"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
                pytest.fail("the run ended before it could be killed")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.nightly
def test_what_killed_runs_left_is_done_again_exactly_once(
    spark: SparkSession, own_log: Callable[..., Any], tmp_path: Path
) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import TABLES, ingest

    log = own_log()
    log.segment([[r.Topic(0, "orders", ID)], *[[r.PartitionChange(0, 1, ID, isr=(1, 2))] * 50 for _ in range(40)], [r.NoOp(0)]])
    place = tmp_path / "lake"
    for pattern in MOMENTS:
        _kill_when(place, log.directory, pattern)
    lake = Lake(str(place))
    ingest(spark, lake, [str(log.directory)])
    build(spark, lake)
    assert [lake.active(table)[-1].hi for table in TABLES] == [2001] * 3
    batches = lake.arrow("bronze.batches", ["base_offset"]).column("base_offset").to_pylist()
    assert sorted(batches) == [0, *range(1, 2001, 50)]
    changes = lake.arrow("silver.partition_changes", ["offset", "topic"]).to_pylist()
    assert sorted(row["offset"] for row in changes) == list(range(1, 2001))
    assert {row["topic"] for row in changes} == {"orders"}
    assert lake.arrow("silver.topics").num_rows == 1
    lake.vacuum()
    assert len(list(place.glob("bronze/batches/[0-9]*/*.parquet"))) == len(lake.files("bronze.batches"))
