"""Commands `build gold`, `audit`, `state` and `logdirs skew` on a lake with a real cluster's log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kraftlab.cli.main import run
from kraftlab.demo.lab import wait_until
from kraftlab.pipeline.audits.life_cycles import all_life_cycles
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import gold as run_of_gold
from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.quorum.core import batch as own_batch

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


def _rows(lake: Lake, table: str) -> list[str]:
    return sorted(map(repr, lake.arrow(table).to_pylist()))


def test_what_is_made_without_spark_is_what_spark_makes(
    spark: SparkSession, kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Lake(str(tmp_path / "lake"))
    rows = [{**key._asdict(), **change._asdict(), "idx_in_batch": 0} for key, change in kafka.rows]
    commit(found, "silver.partition_changes", rows)
    deletions = [{"topic_id": each, "offset": at, "ts_ms": ms, "op": "delete"} for each, (at, ms) in kafka.deletions.items()]
    commit(found, "silver.topics", deletions[:3])
    samples = [
        {
            "sampled_ms": at,
            "broker_id": broker,
            "path": path,
            "topic": rows[0]["topic"],
            "partition": 0,
            "size_bytes": at * broker,
        }
        for at in (5, 9)
        for broker in (1, 2)
        for path in ("/a", "/b")
    ]
    commit(found, "silver.log_dir_samples", samples)
    brokers = [{"broker_id": 1, "rack": rack, "op": "register", "offset": at, "kind": "log"} for at, rack in ((3, "b"), (1, "a"))]
    commit(found, "silver.brokers", brokers)
    body = own_batch.encode_control([own_batch.LeaderChange(0, 7, (1,), (1,))])
    place = {"base_offset": 0, "epoch": 1, "record_count": 1, "append_time_ms": 5, "high_watermark": 0, "previous_crc": 0}
    payload, _ = own_batch.encode(body, **place, attributes=own_batch.CONTROL)
    batch = {"segment": "0.log", "append_ms": 5, "format": "kraftlab", "payload": payload, "pos": 0, "leader_epoch": 1}
    batches = [
        batch | {"controller_id": node, "base_offset": at, "last_offset": at, "crc": at * node if at > 1 else 0}
        for node in (1, 2)
        for at in range(4)
    ]
    commit(found, "bronze.batches", batches)
    assert run_of_gold.build(spark, found).rows.keys() == set(run_of_gold.TABLES)
    here = {table: _rows(found, table) for table in run_of_gold.TABLES}
    monkeypatch.setattr("kraftlab.pipeline.runs.gold.ROWS_MAX", 0)
    for table in ("silver.partition_changes", "bronze.batches", "silver.log_dir_samples"):
        commit(found, table, found.arrow(table).to_pylist())
    assert run_of_gold.build(spark, found).rows.keys() == set(run_of_gold.TABLES)
    assert {table: _rows(found, table) for table in run_of_gold.TABLES} == here
    assert all(here.values()), "none is empty"


def test_what_adds_no_rows_makes_nothing_stale(tmp_path: Path) -> None:
    found = Lake(str(tmp_path / "lake"))
    commit(found, "silver.topics", [])
    change = {"offset": 5, "ts_ms": 1, "kind": "create", "topic_id": "id", "partition": 0, "replicas": [1], "idx_in_batch": 0}
    commit(found, "silver.partition_changes", [change])
    built = ("gold.reassignments", "silver.partition_state")
    with found.writing():
        for table in built:
            inputs = {"silver.partition_changes": 1, "silver.topics": 0}
            found.commit_parts(table, 0, END, (), inputs=inputs)
        inputs = {"gold.reassignments": 0, "silver.partition_state": 0}
        found.commit_parts("gold.rf_drift", 0, END, (), inputs=inputs)
        found.commit_parts("silver.partition_changes", END, END + 5, ())
        found.commit_parts("silver.topics", END, END + 5, ())
    assert run_of_gold.stale(found, run_of_gold.TABLES[:4]) == ["gold.reassignment_replicas"], "which was never built"
    commit(found, "silver.partition_changes", [])
    assert run_of_gold.stale(found, ["gold.rf_drift"]) == ["gold.rf_drift"], "rows were replaced by none"


def test_audits_build_what_they_read_and_find_the_changes_of_the_replication_factor(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "audit", "rf", "--lake", lake.uri, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == len(document["rows"]) > 100
    assert {row["class"] for row in document["rows"]} >= {"rf_change", "sibling_mismatch"}
    assert run_of_gold.stale(lake, ["gold.rf_drift"]) == []


def test_the_state_at_the_time_when_the_cluster_was_described_is_as_described(
    lake: Lake, kafka: Any, recorded_text: Callable[[str], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    (ended,) = [entry["t"] for entry in json.loads(recorded_text("history.json")) if entry["op"] == "end"]
    assert run(["pipeline", "state", "--lake", lake.uri, "--at-time", str(int(ended * 1000)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {(row["topic"], row["partition"]): (row["replicas"], sorted(row["isr"]), row["leader"]) for row in document["rows"]}
    assert found == {
        (topic["name"], each["partition_index"]): (each["replica_nodes"], sorted(each["isr_nodes"]), each["leader_id"])
        for topic in json.loads(recorded_text("final-state.json"))["topics"]
        for each in topic["partitions"]
    }
    assert document["at_offset"] < kafka.rows[-1][1].offset


def test_a_topic_that_was_deleted_by_then_has_no_state(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Lake(str(tmp_path / "lake"))
    row = {"topic_id": "id", "idx_in_batch": 0}
    created = row | {"offset": 5, "ts_ms": 1000, "kind": "create", "topic": "orders", "partition": 0, "replicas": [1]}
    commit(found, "silver.partition_changes", [created])
    ops = ((4, 900, "create"), (9, 2000, "delete"))
    commit(found, "silver.topics", [row | {"offset": at, "ts_ms": ms, "op": op} for at, ms, op in ops])
    for moment, at, partitions in ((1999, 5, 1), (2000, 9, 0)):
        assert run(["pipeline", "state", "--lake", found.uri, "--at-time", str(moment), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["at_offset"], len(document["rows"])) == (at, partitions)


def test_the_state_of_a_topic_has_what_was_said_before_its_name_was_known(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Lake(str(tmp_path / "lake"))
    row = {"topic_id": "id", "partition": 0, "idx_in_batch": 0, "ts_ms": 1000}
    created = row | {"offset": 5, "kind": "create", "replicas": [1, 2], "leader": 1}
    commit(found, "silver.partition_changes", [created, row | {"offset": 8, "kind": "change", "topic": "orders", "leader": 2}])
    commit(found, "silver.topics", [])
    assert run(["pipeline", "state", "--lake", found.uri, "--topic", "orders", "--json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)["rows"]
    assert (state["topic"], state["replicas"], state["leader"]) == ("orders", [1, 2], 2)


def test_the_state_of_a_topic_at_an_offset(lake: Lake, kafka: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (key, created), *_ = kafka.rows
    assert run(["pipeline", "state", "--lake", lake.uri, "--at-offset", str(created.offset), "--topic", str(key.topic)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == [key.topic, str(key.partition), str(created.leader)]
    assert lines[-1] == f"1 partitions after the record at offset {created.offset}"


def test_queries_and_states_read_the_lake_as_it_was_in_an_earlier_version_or_at_a_time(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Lake(str(tmp_path / "lake"))
    topic = {"topic_id": "id", "name": "orders", "offset": 4, "ts_ms": 900, "op": "create", "idx_in_batch": 0}
    row = {"topic_id": "id", "topic": "orders", "partition": 0, "idx_in_batch": 0}
    change = row | {"ts_ms": 1000, "offset": 5, "kind": "create"}
    commit(found, "silver.topics", [topic])
    commit(found, "silver.partition_changes", [change | {"replicas": [1]}])
    then = found.committed_ms("silver.partition_changes")
    wait_until("the clock is later than the first commits", lambda: time.time_ns() // 1_000_000 > then)
    commit(found, "silver.topics", [topic, topic | {"topic_id": "other", "name": "payments"}])
    commit(found, "silver.partition_changes", [change | {"replicas": [2]}, change | {"partition": 1, "replicas": [2]}])

    def printed(*arguments: str) -> Any:
        assert run(["pipeline", *arguments, "--lake", found.uri, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    count = "select count(*) as n from silver.topics"
    both = "select count(*) as n from silver.topics join silver.partition_changes"
    assert [printed("sql", count, *more) for more in ([], ["--version", "1"])] == [[{"n": 2}], [{"n": 1}]]
    assert [printed("sql", both, *more) for more in ([], ["--as-of", str(then)])] == [[{"n": 4}], [{"n": 1}]]
    for more, replicas in (([], [[2], [2]]), (["--version", "1"], [[1]]), (["--as-of", str(then)], [[1]])):
        assert [row["replicas"] for row in printed("state", *more)["rows"]] == replicas
    for wrong, text in (
        (["sql", both, "--version", "1"], "--version needs a query of one table"),
        (["sql", count, "--version", "9"], "silver.topics has no version 9; the newest is 2"),
        (["state", "--version", "1", "--as-of", str(then)], "give --version or --as-of, not both"),
        (["state", "--as-of", "1000"], "has no version from before 1000"),
    ):
        assert run(["pipeline", *wrong, "--lake", found.uri]) == 64
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["state", "--at-offset", "10000"], "holds offsets 0 to 9999, not 10000"),
        (["state", "--at-time", "1000"], "no record was appended by 1000; the first record of the lake"),
        (["build", "gold", "--range", "0-5"], "gold is built of all of silver at once; leave --range out"),
    ],
)
def test_what_the_lake_does_not_have_is_reported(
    lake: Lake, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments, "--lake", lake.uri]) == 64
    assert text in capsys.readouterr().err


def test_skew_is_built_of_the_newest_sample(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Lake(str(tmp_path / "lake"))
    sample = {"sampled_ms": 5, "broker_id": 1, "topic": "orders", "is_future": False}
    rows = [sample | {"path": path, "partition": size, "size_bytes": size} for path, size in (("/a", 900), ("/b", 100))]
    commit(found, "silver.log_dir_samples", rows)
    assert run(["pipeline", "logdirs", "skew", "--lake", found.uri, "--format", "csv"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[4:8] for line in lines[1:]] == [["/a", "900", "1", "0"], ["/b", "100", "1", "0"]]
