"""`kraftlab pipeline audit`, `logdirs skew` and `state` on lakes whose gold tables are fresh: no Spark is started."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline.commands import gold_rows
from kraftlab.pipeline.commands.audit import AUDITS
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import gold as run_of_gold
from kraftlab.pipeline.storage.schemas import arrow_schema

Rows = list[dict[str, Any]]

CYCLE = {
    "reassignment_id": "orders:0:20",
    "topic": "orders",
    "partition": 0,
    "start_offset": 20,
    "start_ms": 1_795_255_430_000,
    "end_offset": 30,
    "end_ms": 1_795_255_431_500,
    "status": "completed",
    "orig": [1, 2, 3],
    "target": [4, 2, 3],
    "adding": [4],
    "removing": [1],
    "duration_ms": 1500,
    "leader_changes": 1,
    "isr_shrinks": 0,
}
STUCK = CYCLE | {
    "reassignment_id": "pay:1:40",
    "topic": "pay",
    "partition": 1,
    "start_offset": 40,
    "end_offset": None,
    "end_ms": None,
    "status": "open",
    "adding": [3, 4],
    "removing": [3, 4],
    "duration_ms": None,
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """(table → rows) → URI of a lake with them, the gold ones made of what the lake holds. To build any is an error."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a table was thought stale")

    def make(**tables: Rows) -> str:
        found = Lake(str(tmp_path / "lake"))
        wanted = {name.replace("_", ".", 1): rows for name, rows in tables.items()}
        for table in reversed(run_of_gold.TABLES):
            if table in wanted:
                wanted = {each: [] for each in run_of_gold.INPUTS[table] if each in run_of_gold.INPUTS} | wanted
        order = [*sorted(wanted.keys() - run_of_gold.INPUTS.keys()), *(each for each in run_of_gold.TABLES if each in wanted)]
        for table in order:
            rows = wanted[table]
            content = pa.Table.from_pylist(rows, schema=arrow_schema(table))
            with found.writing():
                inputs = {each: found.changed(each) for each in run_of_gold.INPUTS.get(table, ())}
                found.commit_arrow(content, table, 0, 100, inputs=inputs)
        return str(tmp_path / "lake")

    monkeypatch.setattr("kraftlab.pipeline.session.factory.create", refuse)
    return make


def test_reassignments_are_printed_in_order_and_one_that_can_never_end_is_a_finding(
    lake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = lake(gold_reassignments=[STUCK, CYCLE])
    assert run(["pipeline", "audit", "reassignments", "--lake", place]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["orders", "0", "completed"], ["pay", "1", "open"]]
    assert "2026-11-21T10:03:50.000Z" in lines[1]
    assert lines[-1] == "2 rows, 1 completed, 1 open; 1 findings"


@pytest.mark.parametrize("odd_ms", [253_402_300_800_000, 1 << 62])
def test_a_time_that_no_calendar_has_is_printed_as_it_is(
    odd_ms: int, lake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    uri = lake(gold_reassignments=[CYCLE | {"start_ms": odd_ms}])
    assert run(["pipeline", "audit", "reassignments", "--lake", uri]) == 0
    assert f"  {odd_ms}  " in capsys.readouterr().out


def test_a_topic_alone_has_no_findings(lake: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    place = lake(gold_reassignments=[STUCK, CYCLE])
    assert run(["pipeline", "audit", "reassignments", "--lake", place, "--topic", "orders", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["findings"], [row["reassignment_id"] for row in document["rows"]]) == (0, ["orders:0:20"])
    assert document["rows"][0]["target"] == [4, 2, 3]


def test_findings_alone_as_csv(lake: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    place = lake(gold_reassignments=[STUCK, CYCLE])
    assert run(["pipeline", "audit", "reassignments", "--lake", place, "--findings-only", "--format", "csv"]) == 1
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["topic"], row["adding"], row["end_ms"], row["start_ms"]) == ("pay", "[3,4]", "", "1795255430000")


@pytest.mark.parametrize("name", AUDITS)
def test_the_header_of_a_csv_is_the_same_without_rows(
    name: str, lake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    headers = []
    for rows in ([], [{"start_offset": 1, "from_offset": 1, "offset": 1, "epoch": 1, "cause": "compacted", "status": "open"}]):
        place = lake(**{table.replace(".", "_", 1): rows for table in AUDITS[name].tables})
        run(["pipeline", "audit", name, "--lake", place, "--format", "csv"])
        headers.append(capsys.readouterr().out.splitlines()[0])
    assert headers[0] == headers[1]


def test_since_leaves_out_what_ended_before(lake: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    place = lake(gold_reassignments=[STUCK, CYCLE])
    assert run(["pipeline", "audit", "reassignments", "--lake", place, "--since", "2026-11-21T10:03:52Z"]) == 1
    assert "orders" not in capsys.readouterr().out
    assert run(["pipeline", "audit", "reassignments", "--lake", place, "--since", "yesterday"]) == 64
    assert "invalid time 'yesterday'" in capsys.readouterr().err


def test_since_of_tables_without_times_goes_by_when_offsets_were_appended(
    lake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    drift = {"topic": "orders", "partition": 0, "class": "rf_change", "rf": 4, "rf_expected": 3, "confidence": "low"}
    batches = [{"base_offset": offset, "append_ms": 1_795_255_430_000 + offset * 1000} for offset in (0, 10, 20)]
    place = lake(
        gold_reassignments=[CYCLE], gold_rf_drift=[drift | {"offset": offset} for offset in (5, 15, None)], bronze_batches=batches
    )
    assert run(["pipeline", "audit", "rf", "--lake", place, "--since", "1795255440000", "--json"]) == 1
    assert [row["offset"] for row in json.loads(capsys.readouterr().out)["rows"]] == [15, None]


def test_clean_logs_have_no_divergence_and_epochs_with_two_leaders_are_findings(
    lake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = [
        {"epoch": epoch, "leader": leader, "start_offset": 10 * epoch, "end_offset": 20 * epoch, "ms": 5}
        for epoch, leader in ((1, 1), (2, 1), (2, 3))
    ]
    place = lake(gold_log_divergence=[], gold_leader_epochs=epochs)
    assert run(["pipeline", "audit", "divergence", "--lake", place]) == 0
    assert capsys.readouterr().out == "0 rows; 0 findings\n"
    assert run(["pipeline", "audit", "epochs", "--lake", place, "--findings-only", "--json"]) == 1
    assert [row["leader"] for row in json.loads(capsys.readouterr().out)["rows"]] == [1, 3]


def test_gaps_are_findings_unless_they_were_compacted(lake: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    gaps = [{"controller_id": 1, "from_offset": 0, "to_offset": 9, "cause": "compacted"}]
    place = lake(bronze_offset_gaps=gaps, bronze_quarantine=[])
    assert run(["pipeline", "audit", "gaps", "--lake", place]) == 0
    assert "compacted" in capsys.readouterr().out
    damage = {
        "controller_id": 2,
        "segment": "0.log",
        "pos": 7,
        "end_pos": 99,
        "status": "bad_crc",
        "prev_offset": 19,
        "next_offset": 30,
    }
    place = lake(bronze_offset_gaps=gaps, bronze_quarantine=[damage])
    assert run(["pipeline", "audit", "gaps", "--lake", place, "--findings-only", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["table"], row["from_offset"], row["to_offset"], row["status"]) == ("quarantine", 20, 30, "bad_crc")


def test_a_damage_between_two_ranges_is_one_as_the_later_saw_it(
    lake: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torn = {"controller_id": 1, "segment": "0.log", "pos": 7, "end_pos": 99, "status": "truncated", "prev_offset": 19}
    other = torn | {"controller_id": 2, "status": "bad_crc", "next_offset": 20}
    later = torn | {"status": "bad_length", "end_pos": 120, "next_offset": 20}
    place = lake(bronze_offset_gaps=[], bronze_quarantine=[torn, other, other, later])
    assert run(["pipeline", "audit", "gaps", "--lake", place, "--json"]) == 1
    assert [row["status"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["bad_length", "bad_crc"]
    assert run(["pipeline", "report", "--lake", place, "--out", str(tmp_path / "report.html"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["quarantined"] == {"bad_length": 1, "bad_crc": 1}


def test_how_a_log_ends_that_is_being_written_is_no_finding(
    lake: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torn = {"controller_id": 1, "segment": "0.log", "pos": 7, "end_pos": 99, "status": "truncated", "prev_offset": 19}
    place = lake(bronze_offset_gaps=[], bronze_quarantine=[torn])
    assert run(["pipeline", "audit", "gaps", "--lake", place]) == 0
    assert "1 rows; 0 findings" in capsys.readouterr().out
    assert run(["pipeline", "report", "--lake", place, "--out", str(tmp_path / "report.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quarantined"] == {}
    place = lake(bronze_offset_gaps=[], bronze_quarantine=[torn | {"segment": "00000000000000000009-0000000001.checkpoint"}])
    assert run(["pipeline", "audit", "gaps", "--lake", place]) == 1


def test_directories_over_the_band_are_findings_of_the_newest_sample_only(
    lake: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"as_of": 1_795_255_430_000, "broker_id": 1, "path": "/a", "bytes": 300, "mean_bytes": 200.0, "ratio": 1.5}
    old = row | {"over_band": True, "offline": False}
    new = row | {"as_of": row["as_of"] + 1000, "ratio": 1.0, "over_band": False, "offline": False}
    samples = [{"sampled_ms": 1_795_255_430_000, "broker_id": 1}]
    place = lake(gold_log_dir_skew=[new, old], silver_log_dir_samples=samples)
    assert run(["pipeline", "logdirs", "skew", "--lake", place]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 rows; at the newest sample 0 over the band or offline"
    assert run(["pipeline", "logdirs", "skew", "--lake", place, "--since", "2026-11-21", "--json"]) == 0
    assert [row["ratio"] for row in json.loads(capsys.readouterr().out)["rows"]] == [1.5, 1.0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["audit", "divergence", "--topic", "orders"], "rows of divergence have no topic"),
        (["audit", "rf"], "is empty; the next step: kraftlab pipeline ingest"),
        (["logdirs", "skew"], "holds no samples of log directories; the next step: kraftlab pipeline samples"),
        (["state", "--at-offset", "3", "--at-time", "now"], "not both"),
        (["build", "gold", "verdicts"], "is not a table of gold that is built from logs"),
        (["state", "--at-time", "yesterday"], "invalid time 'yesterday': expected 2026-11-21T17:06:35Z"),
    ],
)
def test_wrong_use_says_what_to_do(arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *arguments, "--lake", str(tmp_path / "empty")]) == 64
    assert text in capsys.readouterr().err


def test_a_duration_is_so_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_795_255_430_000 * 1_000_000)
    assert gold_rows.since_ms("2h") == 1_795_255_430_000 - 7_200_000
    assert gold_rows.since_ms("now") == 1_795_255_430_000
    assert gold_rows.since_ms(None) is None


def test_what_is_shown_of_an_audit_are_columns_that_its_tables_have() -> None:
    for name, audit in AUDITS.items():
        known = {column for table in audit.tables for column in arrow_schema(table).names} | {"table", "from_offset", "to_offset"}
        assert set(audit.columns) - known <= {"leaders"}, name
