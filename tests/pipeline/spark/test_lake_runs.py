"""Logs through Spark into a lake: the sources as Spark calls them, and whole runs of ingest and build."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraftlab.metadata import records as r
from kraftlab.pipeline.errors import CorruptInput, WrongUse
from kraftlab.pipeline.lake.commits import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parents[3] / "examples" / "metadata-log"
ID, OTHER = bytes(range(16)), bytes([7] * 16)
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
Make = Callable[..., Any]


def _change(partition: int = 0, topic_id: bytes = ID) -> r.PartitionChange:
    return r.PartitionChange(0, partition, topic_id, isr=(1, 2))


def _offsets(lake: Lake, table: str) -> list[int]:
    return sorted(lake.arrow(table, ["offset"]).column("offset").to_pylist())


def _gaps(lake: Lake) -> list[tuple[Any, ...]]:
    columns = ["controller_id", "from_offset", "to_offset", "cause"]
    return sorted(tuple(row.values()) for row in lake.arrow("bronze.offset_gaps", columns).to_pylist())


def test_where_finds_the_records_that_kafkas_own_tool_shows(spark: SparkSession, kafka_log: Path) -> None:
    from kraftlab.pipeline.sources import register

    register(spark)
    read = spark.read.format("kraft-log").option("rows", "records").schema("offset bigint, kind string, name string, data string")
    found = read.load(str(kafka_log)).where("offset >= 5000 and offset < 5010 and kind = 'log'").orderBy("offset").collect()
    dump = lzma.decompress((DATA / "00000000000000000000.log.dump.jsonl.xz").read_bytes()).splitlines()
    records = [record for line in dump for record in json.loads(line)["records"] if 5000 <= record["offset"] < 5010]
    assert [(row.offset, row.name, json.loads(row.data)) for row in found] == [
        (record["offset"], record["type"], record["data"]) for record in records
    ]
    assert len(records) == 10


def test_an_unknown_option_and_an_empty_log_through_spark(spark: SparkSession, own_log: Make) -> None:
    from pyspark.errors import AnalysisException

    from kraftlab.pipeline.sources import register

    register(spark)
    log = own_log()
    log.segment([], zeros=100)
    assert spark.read.format("kraftlab-log").load(str(log.directory)).collect() == []
    with pytest.raises(AnalysisException, match="there is no option 'ofset'; known are path"):
        spark.read.format("kraftlab-log").option("ofset", "1").load(str(log.directory)).collect()


def test_a_log_becomes_tables_and_a_second_run_adds_what_is_new(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    log.segment([[r.Topic(0, "orders", ID), r.Partition(0, 0, ID, (1, 2), (1, 2))], [_change()], [_change(), r.NoOp(0)]])
    first = ingest(spark, lake, [str(log.directory)])
    assert (first.lo, first.hi, first.records, first.gaps, first.damages) == (0, 3, 3, (), ())
    assert build(spark, lake).rows["silver.partition_changes"] == 2
    log.segment([[r.RemoveTopic(0, ID)], [r.Topic(0, "orders", OTHER)], [r.NoOp(0)]])
    second = ingest(spark, lake, [str(log.directory)])
    assert (second.lo, second.hi) == (3, 7)
    built = build(spark, lake)
    assert (built.lo, built.hi) == (3, 7)
    changes = lake.arrow("silver.partition_changes", ["offset", "topic", "kind"]).sort_by("offset").to_pylist()
    assert changes == [
        {"offset": 1, "topic": "orders", "kind": "create"},
        {"offset": 2, "topic": "orders", "kind": "change"},
        {"offset": 3, "topic": "orders", "kind": "change"},
    ]
    topics = lake.arrow("silver.topics", ["offset", "topic_id", "name", "op"]).sort_by("offset").to_pylist()
    assert [tuple(row.values()) for row in topics] == [
        (0, ID_TEXT, "orders", "create"),
        (5, ID_TEXT, "orders", "delete"),
        (6, "BwcHBwcHBwcHBwcHBwcHBw", "orders", "create"),
    ]
    again = ingest(spark, lake, [str(log.directory)])
    assert again.lo == again.hi
    assert build(spark, lake).rows == {}


def test_a_range_that_was_taken_in_again_is_built_again(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    log.segment([[_change()]] * 4)
    ingest(spark, lake, [str(log.directory)], hi=2)
    ingest(spark, lake, [str(log.directory)])
    build(spark, lake)
    ingest(spark, lake, [str(log.directory)], lo=0, hi=2)
    built = build(spark, lake)
    assert (built.lo, built.hi) == (0, 3)
    assert _offsets(lake, "silver.partition_changes") == [0, 1, 2]
    with pytest.raises(WrongUse, match="covers only in part"):
        ingest(spark, lake, [str(log.directory)], lo=1, hi=3)


def test_damages_are_kept_and_holes_named_and_other_logs_fill_them(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    logs = [own_log(node_id) for node_id in (1, 2)]
    for log in logs:
        for _ in range(3):
            path = log.segment([[_change()], [_change(1)]])
        log.segment([[r.NoOp(0)]])
    rotten = logs[0].partition / f"{0:020d}.log"
    data = bytearray(rotten.read_bytes())
    data[4096 + 60] ^= 1
    rotten.write_bytes(data)
    (logs[0].partition / f"{2:020d}.log").unlink()
    (logs[1].partition / f"{0:020d}.log").unlink()
    report = ingest(spark, lake, [str(log.directory) for log in logs])
    (damage,) = report.damages
    assert (damage.controller_id, damage.segment, damage.status, damage.is_harmless) == (1, rotten.name, "bad_crc", False)
    assert _gaps(lake) == [(1, 0, 1, "quarantine"), (1, 2, 4, "missing_segment"), (2, 0, 2, "compacted")]
    (kept,) = lake.arrow("bronze.quarantine").to_pylist()
    assert kept["raw"] == bytes(data[kept["pos"] : kept["end_pos"]])
    assert (kept["prev_offset"], kept["next_offset"]) == (None, 1)
    build(spark, lake)
    assert _offsets(lake, "silver.partition_changes") == [1, 2, 3, 4, 5]
    assert path.exists()


def test_failfast_takes_nothing_in(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    path = log.segment([[_change()]] * 3)
    data = bytearray(path.read_bytes())
    data[4096 + 60] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptInput, match=r"bad_crc: .* Nothing was ingested; --mode permissive skips the damage"):
        ingest(spark, lake, [str(log.directory)], mode="failfast")
    assert not lake.exists()


def test_a_lake_is_of_one_cluster_and_one_format(spark: SparkSession, own_log: Make, lake: Lake, kafka_log: Path) -> None:
    from kraftlab.pipeline.runs.ingest import ingest

    one, other = own_log(1, "cluster-a"), own_log(2, "cluster-b")
    for log in (one, other):
        log.segment([[_change()]] * 3)
    ingest(spark, lake, [str(one.directory)])
    with pytest.raises(CorruptInput, match="is of cluster cluster-b, not of cluster-a"):
        ingest(spark, lake, [str(other.directory)])
    with pytest.raises(CorruptInput, match="holds logs of format kraftlab, these are kafka"):
        ingest(spark, lake, [str(kafka_log)])


def test_a_snapshot_replaces_a_beginning_that_was_cleaned(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    log.snapshot(100, [r.Topic(0, "orders", ID), r.Partition(0, 0, ID, (1, 2), (1,))])
    log.snapshot(101, [r.Topic(0, "orders", ID), r.Partition(0, 0, ID, (1, 2), (1, 2))])
    log.next_offset = 100
    log.segment([[_change()], [_change()], [r.NoOp(0)]])
    report = ingest(spark, lake, [str(log.directory)])
    assert [(gap.from_offset, gap.to_offset, gap.cause) for gap in report.gaps] == [(0, 100, "compacted")]
    built = build(spark, lake)
    assert len(built.snapshots) == 1
    rows = lake.arrow("silver.partition_changes", ["offset", "kind", "topic", "isr"]).sort_by("offset").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (99, "snapshot", "orders", [1]),
        (100, "change", "orders", [1, 2]),
        (101, "change", "orders", [1, 2]),
    ]


def _rotten(path: Path, at: bytes) -> None:
    """A bit of the batch flips in which these bytes stand."""
    data = bytearray(path.read_bytes())
    data[data.index(at)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("cut", [None, 20], ids=["one-range", "a-range-each"])
def test_a_snapshot_that_is_not_whole_tells_of_no_end(spark: SparkSession, own_log: Make, lake: Lake, cut: int | None) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    kept, doomed = r.Topic(0, "kept", ID), r.Topic(0, "doomed", OTHER)
    setting = r.Config(0, 4, "1", "log.segment.bytes", "1")
    log.segment([[kept, doomed], [setting, r.NoOp(0)]])
    path = log.snapshot(40, [r.NoOp(0), r.NoOp(0), kept, setting])
    _rotten(path, b"kept")
    log.next_offset = 40
    log.segment([[r.NoOp(0)]] * 3)
    for hi in (cut, None):
        ingest(spark, lake, [str(log.directory)], hi=hi)
    (damage,) = lake.arrow("bronze.quarantine", ["segment", "status"]).to_pylist()
    assert damage == {"segment": path.name, "status": "bad_crc"}
    assert build(spark, lake).snapshots == (path.name,)
    assert _offsets(lake, "silver.topics") == [0, 1]
    assert _offsets(lake, "silver.configs") == [2]


def test_a_snapshot_with_records_of_a_newer_program_tells_of_no_end_of_their_kind(
    spark: SparkSession, own_log: Make, lake: Lake
) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    setting = r.Config(0, 4, "1", "log.segment.bytes", "1")
    log.segment([[r.Topic(0, "kept", ID), setting], [r.NoOp(0)]])
    log.snapshot(40, [r.Topic(9, "kept", ID)])
    log.next_offset = 40
    log.segment([[r.NoOp(0)]] * 3)
    ingest(spark, lake, [str(log.directory)])
    assert build(spark, lake).undecodable == {"unknown version 9 of TOPIC_RECORD; versions 0 to 0 are known": 1}
    assert _offsets(lake, "silver.topics") == [0]
    assert _offsets(lake, "silver.configs") == [1, 39]


def test_a_snapshot_that_one_controller_has_whole_tells_what_ended(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    logs = [own_log(node_id) for node_id in (1, 2)]
    kept, doomed = r.Topic(0, "kept", ID), r.Topic(0, "doomed", OTHER)
    for log in logs:
        log.segment([[kept, doomed], [r.NoOp(0)]])
        path = log.snapshot(40, [kept, r.NoOp(0)])
        log.next_offset = 40
        log.segment([[r.NoOp(0)]] * 3)
    _rotten(logs[0].partition / path.name, b"kept")
    ingest(spark, lake, [str(log.directory) for log in logs])
    build(spark, lake)
    topics = lake.arrow("silver.topics", ["offset", "name", "op"]).sort_by([("offset", "ascending")]).to_pylist()
    assert [tuple(row.values()) for row in topics[:2]] == [(0, "kept", "create"), (1, "doomed", "create")]
    assert sorted(tuple(row.values()) for row in topics[2:]) == [(39, "doomed", "delete"), (39, "kept", "create")]


def test_what_an_aborted_transaction_wrote_never_happened(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    log.segment(
        [
            [r.BeginTransaction(0, "kept"), _change()],
            [_change(), r.EndTransaction(0)],
            [_change(), r.BeginTransaction(0, "dropped"), _change()],
            [_change(), r.Topic(0, "never", OTHER), r.AbortTransaction(0, "no")],
            [_change()],
            [r.BeginTransaction(0, "open"), _change()],
            [r.NoOp(0)],
        ]
    )
    ingest(spark, lake, [str(log.directory)])
    built = build(spark, lake)
    assert built.aborted == ((5, 10),)
    assert (built.hi, built.open_from) == (11, 11)
    assert _offsets(lake, "silver.partition_changes") == [1, 2, 4, 10]
    assert _offsets(lake, "silver.topics") == []
    assert build(spark, lake).rows == {}, "it waits for the end"
    log.segment([[_change(), r.EndTransaction(0)], [r.NoOp(0)]])
    ingest(spark, lake, [str(log.directory)])
    assert build(spark, lake).open_from is None
    assert _offsets(lake, "silver.partition_changes") == [1, 2, 4, 10, 12, 14]


def test_records_of_a_newer_program_are_kept_and_counted(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    import msgpack

    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    unknown = [[777, 0], [5, 4, 0, ID], [5, 0, 1, ID, [1]]]
    log.segment(log.batch([None] * 3, body=msgpack.packb(unknown)) + log.batch([r.NoOp(0)]), base_offset=0)
    ingest(spark, lake, [str(log.directory)])
    built = build(spark, lake)
    assert built.undecodable == {
        "unknown record type 777": 1,
        "unknown version 4 of PARTITION_CHANGE_RECORD; versions 0 to 0 are known": 1,
    }
    kept = lake.arrow("silver.other_records", ["offset", "type", "version", "raw"]).sort_by("offset").to_pylist()
    assert [(row["offset"], row["type"], row["version"], msgpack.unpackb(row["raw"])) for row in kept] == [
        (0, 777, 0, [777, 0]),
        (1, 5, 4, [5, 4, 0, ID]),
    ]
    assert _offsets(lake, "silver.partition_changes") == [2]


def test_controllers_that_disagree_are_found(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    logs = [own_log(node_id) for node_id in (1, 2)]
    logs[0].segment([[_change(0)], [_change(1)], [r.NoOp(0)]])
    logs[1].segment([[_change(0)], [_change(9)], [r.NoOp(0)]])
    ingest(spark, lake, [str(log.directory) for log in logs])
    assert build(spark, lake).disagreements == 1
    assert _offsets(lake, "silver.partition_changes") == [0, 1]


def _kinds(records: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(record.get("type") or record["control"] for record in records)


def test_a_recorded_log_of_kafkas_is_all_in_silver(spark: SparkSession, kafka_log: Path, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import build
    from kraftlab.pipeline.runs.ingest import ingest

    report = ingest(spark, lake, [str(kafka_log)])
    assert (report.format, report.faults, report.gaps) == ("kafka", 0, ())
    build(spark, lake)
    dump = lzma.decompress((DATA / "00000000000000000000.log.dump.jsonl.xz").read_bytes()).splitlines()
    records = [record for line in dump for record in json.loads(line)["records"]]
    kinds = _kinds(records)
    changes = lake.arrow("silver.partition_changes").sort_by([("offset", "ascending")]).to_pylist()
    wanted = [record for record in records if record.get("type") in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD")]
    assert [row["offset"] for row in changes] == [record["offset"] for record in wanted]
    for row, record in zip(changes, wanted, strict=True):
        data = record["data"]
        assert (row["topic_id"], row["partition"], row["isr"]) == (data["topicId"], data["partitionId"], data.get("isr"))
        assert (row["replicas"], row["adding"], row["removing"]) == (
            data.get("replicas"),
            data.get("addingReplicas"),
            data.get("removingReplicas"),
        )
        assert (row["leader"], row["directories"], row["ts_ms"]) == (
            data.get("leader"),
            data.get("directories"),
            record["createTime"],
        )
        assert row["topic"]
    topics = lake.arrow("silver.topics").to_pylist()
    assert Counter(row["op"] for row in topics) == {"create": kinds["TOPIC_RECORD"], "delete": kinds["REMOVE_TOPIC_RECORD"]}
    assert lake.arrow("silver.configs").num_rows == kinds["CONFIG_RECORD"]
    others = Counter(row["name"] for row in lake.arrow("silver.other_records", ["name", "kind"]).to_pylist())
    assert others["BEGIN_TRANSACTION_RECORD"] == 1
    assert others["ACCESS_CONTROL_ENTRY_RECORD"] == kinds["ACCESS_CONTROL_ENTRY_RECORD"]
    assert "NO_OP_RECORD" not in others


def test_sql_knows_the_tables_by_their_names(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.ingest import ingest
    from kraftlab.pipeline.runs.query import query

    log = own_log()
    log.segment([[_change()]] * 4)
    ingest(spark, lake, [str(log.directory)])
    names, rows = query(spark, lake, "select 'bronze.batches' as t, count(*) as n from bronze.batches", 10)
    assert (names, rows) == (["t", "n"], [("bronze.batches", 3)])
    assert query(spark, lake, "select * from silver_topics", 10)[1] == []
    with pytest.raises(WrongUse, match=r"there is no table silver\.nowhere; there are bronze\.batches, "):
        query(spark, lake, "select * from silver.nowhere", 10)
    with pytest.raises(WrongUse, match=r"the query is wrong: .*no_such_column"):
        query(spark, lake, "select no_such_column from silver.topics", 10)
    with pytest.raises(WrongUse, match=r"the query failed: \[DIVIDE_BY_ZERO\]"):
        query(spark, lake, "select 1 / 0", 10)
    for data_file in Path(lake.place()).rglob("*.parquet"):
        data_file.unlink()
    with pytest.raises(CorruptInput, match=r"a file is gone that the lake .* names: \[PATH_NOT_FOUND\]"):
        query(spark, lake, "select * from bronze.batches", 10)


def test_offsets_ingested_after_a_built_range_are_built_too(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.build import CHANGES, build
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    log.segment([[_change()]] * 7)
    place = str(log.directory)
    ingest(spark, lake, [place], lo=4, hi=6)
    build(spark, lake, lo=4, hi=6)
    with pytest.raises(WrongUse, match="holds no batches in that range: those it has are of offsets 4 to 5"):
        build(spark, lake, lo=0, hi=3)
    ingest(spark, lake, [place], lo=0, hi=4)
    report = build(spark, lake)
    assert (report.lo, report.hi) == (0, 6)
    assert _offsets(lake, CHANGES) == list(range(6))
    assert build(spark, lake).rows == {}


def test_ranges_within_one_batch_are_no_gaps(spark: SparkSession, own_log: Make, lake: Lake) -> None:
    from kraftlab.pipeline.runs.ingest import ingest

    log = own_log()
    log.segment([[_change()] * 8, [_change()], [_change()]])
    for end in (2, 4, 6, 10):
        ingest(spark, lake, [str(log.directory)], hi=end)
    assert _gaps(lake) == []


def test_a_report_takes_logs_in_and_builds_what_it_shows(
    spark: SparkSession, own_log: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kraftlab.cli.main import run

    log = own_log()
    log.segment([[r.Topic(0, "orders", ID), r.Partition(0, 0, ID, (1, 2), (1, 2))], [_change()], [r.NoOp(0)]])
    page = tmp_path / "page.html"
    assert run(["pipeline", "report", str(log.directory), "--out", str(page), "--json"]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["lake"], document["missing"], document["moves_total"]) == (str(log.directory), [], 0)
    assert "building gold.rf_drift" in told.err
    assert page.exists()


def test_ranges_and_limits_of_the_command_line(
    spark: SparkSession, own_log: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kraftlab.cli.main import run

    log = own_log()
    log.segment([[_change()]] * 7)

    def pipeline(*arguments: str) -> tuple[int, str, str]:
        code = run(["pipeline", *arguments, "--lake", str(tmp_path / "lake")])
        said = capsys.readouterr()
        return code, said.out, said.err

    ingest = ("ingest", str(log.directory))
    assert pipeline(*ingest, "--cluster-id", "another")[0] == 1
    code, out, _ = pipeline(*ingest, "--from", "0", "--to", "3", "--cluster-id", "test-cluster")
    assert (code, "offsets 0 to 2: 3 records in 3 batches" in out) == (0, True)
    assert pipeline(*ingest, "--from", "50")[1].startswith("Nothing from offset 50 on, and the logs are committed up to 6.")
    assert "offsets 3 to 5" in pipeline(*ingest)[1]
    assert pipeline(*ingest)[1].startswith("Nothing new: the lake has all below 6")
    query = ("sql", "select base_offset, codec from bronze.batches order by 1")
    assert pipeline(*query, "--limit", "2", "--csv") == (
        0,
        "base_offset,codec\n0,none\n1,none\n",
        "only the first 2 rows; --limit shows more\n",
    )
    code, out, err = pipeline(*query, "--limit", "6")
    assert (code, len(out.splitlines()), err) == (0, 7, "")
