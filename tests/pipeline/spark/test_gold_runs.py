"""`build gold`, `audit`, `state` and `logdirs skew` on a lake with what a real cluster's log says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline.audits.life_cycles import all_life_cycles
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.lake.schemas import arrow_schema
from kraftlab.pipeline.runs import gold as run_of_gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END = 10_000


def commit(lake: Lake, table: str, rows: list[dict[str, Any]]) -> None:
    with lake.writing():
        lake.commit_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(table)), table, 0, END)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Silver as decoded without Spark; `spark` runs, so that commands use it."""
    found = Lake(str(tmp_path_factory.mktemp("gold") / "lake"))
    changes = [{**key._asdict(), **change._asdict(), "idx_in_batch": 0} for key, change in kafka.rows]
    deletions = [{"topic_id": each, "offset": at, "ts_ms": ms, "op": "delete"} for each, (at, ms) in kafka.deletions.items()]
    commit(found, "silver.partition_changes", changes)
    commit(found, "silver.topics", deletions)
    return found


def test_a_build_is_done_once_and_again_when_silver_was_built_again(
    lake: Lake, kafka: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = ["reassignments", "reassignment_replicas", "rf_drift"]
    assert run(["pipeline", "build", "gold", *tables, "--lake", lake.uri, "--json"]) == 0
    expected = all_life_cycles(kafka.rows, kafka.deletions)
    report = json.loads(capsys.readouterr().out)
    assert report["rows"]["gold.reassignments"] == len(expected) == lake.arrow("gold.reassignments").num_rows
    replicas = lake.arrow("gold.reassignment_replicas").to_pylist()
    assert len(replicas) == sum(len(cycle.replicas) for cycle in expected)
    assert run(["pipeline", "build", "gold", *tables, "--lake", lake.uri]) == 0
    assert capsys.readouterr().out.startswith("Nothing new")
    commit(lake, "silver.topics", lake.arrow("silver.topics").to_pylist())
    assert run_of_gold.stale(lake, ["gold.reassignments", "gold.rf_drift"]) == ["gold.reassignments", "gold.rf_drift"]


def test_audits_build_what_they_read_and_find_the_changes_of_the_replication_factor(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "audit", "rf", "--lake", lake.uri, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == len(document["rows"]) > 100
    assert {row["class"] for row in document["rows"]} >= {"rf_change", "sibling_mismatch"}
    assert run_of_gold.stale(lake, ["gold.rf_drift"]) == []


def test_the_state_at_the_time_when_the_cluster_was_asked_is_what_it_said(
    lake: Lake, kafka: Any, told: Callable[[str], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    (ended,) = [entry["t"] for entry in json.loads(told("history.json")) if entry["op"] == "end"]
    assert run(["pipeline", "state", "--lake", lake.uri, "--at-time", str(int(ended * 1000)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {(row["topic"], row["partition"]): (row["replicas"], sorted(row["isr"]), row["leader"]) for row in document["rows"]}
    assert found == {
        (topic["name"], each["partition_index"]): (each["replica_nodes"], sorted(each["isr_nodes"]), each["leader_id"])
        for topic in json.loads(told("final-state.json"))["topics"]
        for each in topic["partitions"]
    }
    assert document["at_offset"] < kafka.rows[-1][1].offset


def test_the_state_of_a_topic_at_an_offset(lake: Lake, kafka: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (key, created), *_ = kafka.rows
    assert run(["pipeline", "state", "--lake", lake.uri, "--at-offset", str(created.offset), "--topic", str(key.topic)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == [key.topic, str(key.partition), str(created.leader)]
    assert lines[-1] == f"1 partitions after the record at offset {created.offset}"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["state", "--at-offset", "10000"], "holds offsets 0 to 9999, not 10000"),
        (["state", "--at-time", "1000"], "no record was appended by 1000; the first that"),
        (["build", "gold", "--range", "0-5"], "gold is built of all of silver at once; leave --range out"),
    ],
)
def test_what_the_lake_does_not_have_is_told(
    lake: Lake, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments, "--lake", lake.uri]) == 2
    assert text in capsys.readouterr().err


def test_skew_is_built_of_the_newest_sample(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Lake(str(tmp_path / "lake"))
    sample = {"sampled_ms": 5, "broker_id": 1, "topic": "orders", "is_future": False}
    rows = [sample | {"path": path, "partition": size, "size_bytes": size} for path, size in (("/a", 900), ("/b", 100))]
    commit(found, "silver.log_dir_samples", rows)
    assert run(["pipeline", "logdirs", "skew", "--lake", found.uri, "--format", "csv"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[4:8] for line in lines[1:]] == [["/a", "900", "1", "0"], ["/b", "100", "1", "0"]]
