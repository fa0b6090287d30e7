"""The same commands over Spark Connect, with a server that the session starts on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraftlab.cli.main import run
from kraftlab.metadata import records as r
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import gold as runs_of_gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 500
ID = bytes(range(16))
TABLES = (
    "bronze.batches", "bronze.quarantine", "silver.topics", "silver.partition_changes", "silver.partition_state",
    "gold.reassignments", "gold.reassignment_replicas", "gold.rf_drift", "gold.leader_epochs",
)  # fmt: skip
SCRIPT = """import sys
from kraftlab.cli.main import run
from kraftlab.pipeline.runs import gold as runs_of_gold
from kraftlab.pipeline.session import factory

lake, log = sys.argv[1:]
runs_of_gold.ROWS_MAX = 0
with factory.session() as spark:
    assert "connect" in type(spark).__module__
    for line in (["ingest", log], ["build", "silver"], ["build", "gold"], ["sql", "select count(*) n from silver.topics"]):
        assert run(["pipeline", *line, "--lake", lake]) == 0, line
    sys.exit(run(["pipeline", "stream", log, "--lake", lake, "--once"]))
"""


@pytest.mark.nightly
def test_over_connect_the_tables_are_the_same_and_a_stream_says_why_it_is_not_run(
    spark: SparkSession, own_log: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc_status", reason="pip install -e '.[pipeline]'")
    log = own_log()
    moves = [
        r.PartitionChange(0, 0, ID, replicas=(1, 2, 3, 4), adding_replicas=(4,)),
        r.PartitionChange(0, 0, ID, isr=(1, 2, 3, 4), adding_replicas=()),
    ]
    create = [r.Partition(0, n, ID, (1, 2, 3), (1, 2, 3), leader=1) for n in range(2)]
    log.segment([[r.Topic(0, "orders", ID), *create], moves[:1], moves[1:], [r.NoOp(0)], [r.NoOp(0)]])
    there, here = str(tmp_path / "there"), str(tmp_path / "here")
    environ = dict(os.environ) | {"SPARK_REMOTE": "local[2]"}
    command = [sys.executable, "-c", SCRIPT, there, str(log.directory)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 64, done.stderr
    assert "stream with a driver here: without SPARK_REMOTE" in done.stderr
    monkeypatch.setattr(runs_of_gold, "ROWS_MAX", 0)
    for line in (["ingest", str(log.directory)], ["build", "silver"], ["build", "gold"]):
        assert run(["pipeline", *line, "--lake", here]) == 0
    for table in TABLES:
        found, expected = (sorted(Lake(place).arrow(table).to_pylist(), key=repr) for place in (there, here))
        assert found == expected
    assert Lake(there).arrow("gold.rf_drift").num_rows == 2
