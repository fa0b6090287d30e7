"""The report shows what the gold tables hold: no more, no less, and without Spark."""

from __future__ import annotations

import itertools
import lzma
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.commands import spark
from kraftlab.pipeline.commands.ingest import ingest as ingest_command
from kraftlab.pipeline.commands.report import report as report_command
from kraftlab.pipeline.errors import CorruptInput, WrongUse
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.reports import content, figures, page
from kraftlab.pipeline.sources.packed import unpacked
from kraftlab.pipeline.storage.schemas import arrow_schema

NASTY = "a<script>alert(1)</script>&"


def filled(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with null where nothing is said."""
    schema = arrow_schema(table)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def move(
    number: int, start_ms: int | None, end_ms: int | None, status: str = "completed", topic: str = "clicks"
) -> dict[str, Any]:
    took = end_ms - start_ms if start_ms is not None and end_ms is not None else None
    return {
        "reassignment_id": f"id:{number}:{start_ms}",
        "topic": topic,
        "partition": number,
        "start_offset": number,
        "start_ms": start_ms,
        "end_ms": end_ms,
        "status": status,
        "orig": [1, 2],
        "target": [2, 3],
        "duration_ms": took,
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"))
    moves = [
        move(0, 1_000, 5_000),
        move(1, 2_000, None, "open"),
        move(2, 2_000, 3_000, "cancelled", NASTY),
        move(3, 1, 1, "instant"),
    ]
    replicas = [
        {"reassignment_id": "id:0:1000", "replica": 3, "role": "adding", "lag_ms": 3_000},
        {"reassignment_id": "id:1:2000", "replica": 3, "role": "adding"},
        {"reassignment_id": "id:0:1000", "replica": 1, "role": "removing"},
    ]
    skewed = [
        {
            "as_of": as_of,
            "broker_id": 1,
            "path": path,
            "bytes": size,
            "ratio": size / 100,
            "over_band": size > 110,
            "offline": False,
        }
        for as_of, sizes in ((10, (50, 150)), (20, (70, 130)), (30, (95, 105)))
        for path, size in zip(("/a", "/b"), sizes, strict=True)
    ]
    drifted = [
        {"topic": NASTY, "partition": 7, "class": "union_race", "rf": 5, "rf_expected": 3, "offset": 4711, "confidence": "high"}
    ]
    epochs = [
        {"epoch": 1, "leader": 3000, "start_offset": 0, "end_offset": 50},
        {"epoch": 2, "leader": 3001, "start_offset": 50, "end_offset": None},
    ]
    with lake.writing():
        for table, rows in (
            (content.REASSIGNMENTS, moves),
            (content.REPLICAS, replicas),
            (content.DIR_SKEW, skewed),
            (content.DRIFT, drifted),
            (content.EPOCHS, epochs),
            (content.GAPS, [{"controller_id": 1, "from_offset": 0, "to_offset": 5, "cause": "compacted"}]),
        ):
            lake.commit_arrow(filled(table, rows), table, 0, 100)
    return lake


def test_numbers_are_those_of_the_tables(lake: Lake) -> None:
    found = content.gather(lake)
    assert found.statuses == {"completed": 1, "open": 1, "cancelled": 1, "instant": 1}
    assert found.duration_ms["max"] == 4_000
    assert found.under_way == ((1_000, 1), (2_000, 3), (3_000, 2), (5_000, 1))
    assert found.catch_up == (content.CatchUp(3, 2, 1, (3_000, 3_000, 3_000), 3_000, 3_000),)
    assert [as_of for as_of, _ in found.dirs] == [10, 30]
    assert [load.ratio for load in found.dirs[1][1]] == [0.95, 1.05]
    assert [each.leader for each in found.epochs] == [3000, 3001]
    assert found.findings == 1
    assert "gold.broker_load" in found.missing
    assert "gold.rf_drift" not in found.missing


def test_instant_changes_are_counted_but_are_no_bars(lake: Lake) -> None:
    found = content.gather(lake)
    assert found.moves_total == 4
    assert [each.partition for each in found.moves] == [0, 1, 2]


def test_a_topic_without_a_name_is_shown_by_its_id(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    nameless = move(0, 1_000, 5_000) | {"topic": None, "topic_id": "AAECAwQFBgcICQoLDA0ODw"}
    drifted = {"partition": 7, "class": "rf_change", "rf": 2, "culprit_reassignment_id": "BwcHBwcHBwcHBwcHBwcHBw:7:3"}
    with lake.writing():
        for table, rows in ((content.REASSIGNMENTS, [nameless, move(1, 2_000, 3_000)]), (content.DRIFT, [drifted])):
            lake.commit_arrow(filled(table, rows), table, 0, 100)
    found = content.gather(lake)
    assert [each.topic for each in found.moves] == ["AAECAwQFBgcICQoLDA0ODw", "clicks"]
    assert [each.topic for each in found.drift] == ["BwcHBwcHBwcHBwcHBwcHBw"]
    assert "None-" not in page.render(found)


def test_each_broker_has_the_quantiles_of_its_own_replicas() -> None:
    lags = [(3, 30), (1, 10), (3, None), (2, None), (1, 20), (3, 50)]
    rows = [{"replica": replica, "role": "adding", "lag_ms": lag} for replica, lag in lags]
    found = content.catch_up_of(filled(content.REPLICAS, [*rows, {"replica": 9, "role": "removing"}]))
    assert [(each.broker_id, each.replicas, each.never, each.quartiles_ms[1], each.max_ms) for each in found] == [
        (1, 2, 0, 15, 20),
        (2, 1, 1, 0, 0),
        (3, 3, 1, 40, 50),
    ]


def test_a_replica_that_was_in_sync_before_the_log_begins_does_not_count_as_never_in_sync() -> None:
    rows = [{"replica": 1, "role": "adding", "caught_up_offset": 500}, {"replica": 2, "role": "adding", "caught_up_offset": 7}]
    waits = {"replica": 2, "role": "adding"}
    found = content.catch_up_of(filled(content.REPLICAS, [*rows, waits, waits | {"caught_up_offset": 9, "lag_ms": 4}]))
    assert [(each.broker_id, each.replicas, each.never, each.max_ms) for each in found] == [(2, 2, 1, 4)]


@pytest.mark.parametrize("odd_ms", [-(1 << 62), 253_402_300_800_000, 1 << 62])
def test_a_time_that_no_calendar_has_is_a_number(tmp_path: Path, odd_ms: int) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with lake.writing():
        lake.commit_arrow(filled(content.REASSIGNMENTS, [move(0, odd_ms, odd_ms + 1)]), content.REASSIGNMENTS, 0, 100)
    assert f"<td>{odd_ms} ms</td>" in page.render(content.gather(lake))


def test_the_page_needs_no_other_file_and_names_are_only_text_in_it(lake: Lake) -> None:
    html = page.render(content.gather(lake))
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert "alert(1)" in outside
    assert "<script>alert" not in html
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", html)
    assert html.count('<svg class="plot"') == 5
    assert "<script" not in html
    assert "kraftlab pipeline samples" in outside
    assert page.render(content.gather(lake)) == html


def test_the_page_begins_with_the_cluster_its_time_and_what_is_still_under_way(lake: Lake) -> None:
    appended = [{"append_ms": 1_000}, {"append_ms": 9_000}]
    with lake.writing():
        lake.commit_arrow(filled(content.BATCHES, appended), content.BATCHES, 0, 100, details={"cluster_id": "c-1"})
    html = page.render(content.gather(lake))
    assert "Cluster c-1, log from 1970-01-01 00:00:01 to 1970-01-01 00:00:09 UTC, up to offset 100" in html
    assert html.index("Still under way") < html.index("<h2>Reassignments") < html.index(page.TERMS["cancelled"])
    assert '<td class="n">7.0 s</td>' in html
    assert "prefers-color-scheme: dark" in html


def test_the_largest_page_is_below_1_mb(lake: Lake) -> None:
    found = content.gather(lake)
    rows = [msgspec.structs.replace(found.moves[0], topic="t" * 249, start_ms=number) for number in range(content.LISTED)]
    drifted = [msgspec.structs.replace(found.drift[0], topic="t" * 249)] * content.LISTED
    epochs = [content.Epoch(number, 3000 + number % 5, number, number + 1) for number in range(5_000)]
    loads = tuple(content.DirLoad(number, "/var/lib/kraftlab/data", 10**12, 1.5, True, False) for number in range(1_000))
    curve = tuple((number, 7) for number in range(content.POINTS))
    full = msgspec.structs.replace(
        found, moves=tuple(rows), drift=tuple(drifted), epochs=tuple(epochs), dirs=((1, loads), (2, loads)), under_way=curve
    )
    assert len(page.render(full).encode()) < 1_000_000


def packed(directory: Path, data: bytes = bytes(100)) -> Path:
    path = directory / "00000000000000000000.log.xz"
    path.write_bytes(lzma.compress(data))
    return path


def test_packed_logs_are_unpacked_with_their_identity_and_plain_ones_stay(tmp_path: Path, kafka_log: Path) -> None:
    (into := tmp_path / "into").mkdir()
    data = (kafka_log / "00000000000000000000.log").read_bytes()
    path = packed(tmp_path, data)
    (tmp_path / "meta.properties").write_text("version=1")
    directory, file = unpacked([str(tmp_path), str(path)], into)
    assert [each.name for each in sorted(Path(directory).iterdir())] == [path.stem, "meta.properties"]
    assert Path(file).read_bytes() == data
    remote = ["s3://bucket/log", str(kafka_log), str(kafka_log.parent), str(tmp_path / "nowhere")]
    assert unpacked(remote, into) == remote


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncated, r"log.xz cannot be unpacked: .* copy it again"),
        (lambda path: path.write_bytes(b""), "log.xz cannot be unpacked"),
        (lambda path: path.write_bytes(b"no xz"), "log.xz cannot be unpacked"),
        (lambda path: path.write_bytes(lzma.compress(b"")), "none of 1 files begins like a metadata log"),
        (Path.unlink, "holds no metadata log"),
    ],
)
def test_logs_that_cannot_be_read_are_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], said: str
) -> None:
    (logs := tmp_path / "logs").mkdir()
    damage(packed(logs))
    monkeypatch.setattr(spark, "spark_session", lambda: pytest.fail("Spark is started"))
    for command, option in ((report_command, "--out"), (ingest_command, "--lake")):
        run = CliRunner().invoke(command, [str(logs), option, str(tmp_path / "made")], standalone_mode=False)
        assert isinstance(run.exception, WrongUse | CorruptInput)
        assert re.search(said, str(run.exception))


def test_an_old_page_is_replaced_whole_or_stays(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "report.html"
    found = content.gather(lake)
    page.write(found, path)
    before = path.read_text()

    def fails(_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "render", fails)
    with pytest.raises(OSError, match="No space"):
        page.write(found, path)
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]


def test_the_command_tells_findings_by_its_exit_code(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    run = CliRunner().invoke(report_command, ["--lake", lake.place(), "--out", str(path), "--json"], standalone_mode=False)
    assert run.return_value == 1
    document = msgspec.json.decode(run.stdout)
    assert (document["findings"], document["moves_total"], document["page"]) == (1, 4, str(path))
    assert path.stat().st_size > 10_000


def test_an_empty_lake_is_wrong_use_with_the_next_step(tmp_path: Path) -> None:
    run = CliRunner().invoke(report_command, ["--lake", str(tmp_path / "nothing")], standalone_mode=False)
    assert isinstance(run.exception, WrongUse)
    assert "kraftlab pipeline ingest" in str(run.exception)
    assert not (tmp_path / "nothing").exists()


def test_what_is_not_built_is_not_zero(lake: Lake, tmp_path: Path) -> None:
    other = Lake(str(tmp_path / "other"))
    with other.writing():
        other.commit_arrow(filled(content.DIR_SKEW, []), content.DIR_SKEW, 0, 100)
    run = CliRunner().invoke(
        report_command, ["--lake", other.place(), "--out", str(tmp_path / "page.html")], standalone_mode=False
    )
    assert run.return_value == 0
    for line in (
        "Reassignments: not built",
        "RF drift:      not built",
        "Leader epochs: not built; divergences: not built",
        "Quarantined:   not built",
        "Offset gaps:   not built",
    ):
        assert line in run.stdout
    assert "No partition has drifted" not in (tmp_path / "page.html").read_text()
    assert (content.gather(other).moves_total, content.gather(other).drift_total) == (None, None)


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans()), max_size=40)


@given(spans)
@settings(deadline=None)
def test_the_curve_of_what_runs_is_that_of_counting_at_every_moment(drawn: list[tuple[int, int, bool]]) -> None:
    moves = [
        move(number, start, None if is_open else start + took, "open" if is_open else "completed")
        for number, (start, took, is_open) in enumerate(drawn)
    ]
    curve = content.under_way(filled(content.REASSIGNMENTS, moves))
    for moment in range(95):
        running = sum(each["start_ms"] <= moment and (each["end_ms"] is None or moment < each["end_ms"]) for each in moves)
        told = next((count for at_ms, count in reversed(curve) if at_ms <= moment), 0)
        assert told == running


def test_what_ended_before_it_began_by_a_clock_that_stepped_back_took_no_time() -> None:
    moves = [move(0, 100, 90), move(1, 95, 120), move(2, 50, None, "open")]
    assert content.under_way(filled(content.REASSIGNMENTS, moves)) == ((50, 1), (95, 2), (120, 1))


def test_a_leader_that_no_record_names_is_unknown() -> None:
    drawn = figures.epochs([content.Epoch(1, None, 0, 5), content.Epoch(2, 3000, 5, None)])
    assert re.findall(r">(unknown|controller 3000)<", drawn) == ["unknown", "controller 3000"]


def test_each_move_that_is_listed_has_a_bar_however_it_ended() -> None:
    statuses = ("completed", "cancelled", "superseded", "open", "deleted", "unknown")
    moves = [move(number, 10, 20 + number, status) for number, status in enumerate(statuses)]
    listed = content.longest_of(filled(content.REASSIGNMENTS, moves))
    bars = re.findall(r'class="bar".*?fill:var\(--(\w+)\)', figures.timeline(listed, ()))
    assert sorted(bars) == sorted(statuses)
    assert len(bars) == len(listed) == len(moves)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=6_000))
@settings(deadline=None)
def test_a_thinned_curve_keeps_its_peak_and_its_end(heights: list[int]) -> None:
    points = list(enumerate(heights))
    thinned = content.thinned(points)
    assert len(thinned) <= content.POINTS + 1
    assert max(height for _, height in thinned) == max(heights)
    assert thinned[-1] == points[-1]
    assert set(thinned) <= set(points)


@given(spans)
@settings(deadline=None)
def test_bars_in_one_lane_do_not_overlap_until_lanes_run_out(drawn: list[tuple[int, int, bool]]) -> None:
    moves = [
        content.ReassignmentRow(str(number), "t", number, "completed", None, None, start, start + took, took, number)
        for number, (start, took, _) in enumerate(sorted(drawn))
    ]
    lanes = figures.lanes_of(moves, 0, 100)
    used = Counter(lanes)
    if len(used) < figures._LANES:
        for lane in used:
            mine = [each for each, at in zip(moves, lanes, strict=True) if at == lane]
            assert all(one.end_ms <= other.start_ms for one, other in itertools.pairwise(mine))
