"""Reads of the sources: rows, damages and records, whole or in part, packed or cut."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraftlab.metadata import records as r
from kraftlab.pipeline.errors import CorruptInput, WrongUse
from kraftlab.pipeline.sources import pieces, reader
from kraftlab.pipeline.sources.options import OPTIONS, parse
from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.pipeline.tables import bronze
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES

ID = bytes(range(16))
DATA = Path(__file__).parents[3] / "examples" / "metadata-log"
KEYS = pa.schema([arrow_schema("bronze.batches").field(name) for name in bronze.KEYS])
MARKS = pa.schema([arrow_schema("bronze.quarantine").field(name) for name in bronze.MARKS])
SEGMENT = "00000000000000000000.log"
Make = Callable[..., Any]
Rows = Callable[..., list[dict[str, Any]]]


def _batches(count: int, size: int = 2) -> list[list[Any]]:
    return [[r.PartitionChange(0, place, ID, isr=(1, 2)) for place in range(size)] for _ in range(count)]


def test_a_row_is_a_batch_with_its_bytes(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    path = log.segment(_batches(3))
    rows = rows_of("kraftlab", log.directory, committed=False)
    assert [(row["base_offset"], row["last_offset"], row["n_records"]) for row in rows] == [(0, 1, 2), (2, 3, 2), (4, 5, 2)]
    assert {(row["controller_id"], row["cluster_id"], row["format"], row["status"]) for row in rows} == {
        (1, "test-cluster", "kraftlab", "ok")
    }
    data = path.read_bytes()
    assert all(data[row["pos"] : row["pos"] + len(row["payload"])] == row["payload"] for row in rows)


def test_what_is_not_known_to_be_committed_is_left_alone(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    log.segment(_batches(3))
    assert [row["base_offset"] for row in rows_of("kraftlab", log.directory)] == [0, 2]
    assert [row["base_offset"] for row in rows_of("kraftlab", log.directory, endingOffset=6)] == [0, 2, 4]


def test_records_have_their_own_offsets_and_json(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    log.segment([[r.Topic(0, "a", ID), r.NoOp(0)], [r.NoOp(0)]])
    topic, no_op, _ = rows_of("kraftlab", log.directory, rows="records", committed=False)
    assert (topic["offset"], topic["idx_in_batch"], topic["type"], topic["name"]) == (0, 0, 2, "TOPIC_RECORD")
    assert json.loads(topic["data"])["name"] == "a"
    assert (no_op["offset"], no_op["idx_in_batch"]) == (1, 1)


def test_a_record_of_a_snapshot_has_the_offset_before_its_end(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    log.snapshot(40, [r.Topic(0, name, ID) for name in "abc"])
    rows = [row for row in rows_of("kraftlab", log.directory, rows="records") if row["kind"] == "snapshot"]
    assert [(row["offset"], row["idx_in_batch"]) for row in rows] == [(39, 1), (39, 2), (39, 3)]
    assert rows_of("kraftlab", log.directory, snapshots=False) == []


def test_a_damage_in_a_snapshot_lies_between_no_offsets_of_the_log(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    path = log.snapshot(40, [r.Topic(0, name, ID) for name in ("first", "second", "third", "fourth", "fifth")])
    data = bytearray(path.read_bytes())
    data[data.index(b"third")] ^= 1
    path.write_bytes(data)
    (damage,) = rows_of("kraftlab", log.directory, rows="damages", startingOffset=20)
    assert (damage["segment"], damage["status"]) == (path.name, "bad_crc")
    assert (damage["prev_offset"], damage["next_offset"]) == (None, None)


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_snapshot_that_ends_before_its_footer_is_not_taken_for_a_whole_one(own_log: Make, rows_of: Rows, zeros: int) -> None:
    log = own_log()
    path = log.snapshot(40, [r.Topic(0, name, ID) for name in "abc"])
    whole = path.read_bytes()
    assert rows_of("kraftlab", log.directory, rows="damages") == []

    places = [row["pos"] for row in rows_of("kraftlab", log.directory, rows="batches")]
    for end in places:
        path.write_bytes((whole[:end] + bytes(zeros)) or b"\0")
        (damage,) = rows_of("kraftlab", log.directory, rows="damages")
        assert (damage["segment"], damage["status"]) == (path.name, "truncated")
        assert (damage["pos"], damage["end_pos"]) == (end, path.stat().st_size)
        with pytest.raises(CorruptInput, match="without its footer"):
            rows_of("kraftlab", log.directory, mode="FAILFAST")


def test_only_the_columns_asked_for_are_made(own_log: Make, rows_of: Rows, reader_of: Make) -> None:
    log = own_log()
    log.segment(_batches(2))
    assert rows_of("kraftlab", log.directory, ("crc", "pos"), committed=False)[0].keys() == {"crc", "pos"}
    read = reader_of("kraftlab", log.directory, ("crc",))
    assert read.schema.names == ["crc"]


def test_columns_that_there_are_not_are_refused() -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    from kraftlab.pipeline.storage.schemas import arrow_of

    known = arrow_of("pos bigint")
    with pytest.raises(WrongUse, match="no column 'poz'; known are pos"):
        reader.chosen(known, StructType([StructField("poz", IntegerType())]))
    with pytest.raises(WrongUse, match="column pos is int64, not int32"):
        reader.chosen(known, StructType([StructField("pos", IntegerType())]))


def test_options_are_checked_and_their_case_does_not_matter() -> None:
    assert parse({"PATH": "p", "startingoffset": "5"}).start_offset == 5
    assert parse({"paths": '["a", "b"]'}).places == ("a", "b")
    for given, reason in (
        ({"path": "p", "ofset": "5"}, "no option 'ofset'; known are path"),
        ({"path": "p", "rows": "lines"}, "option rows is 'lines'; it is one of batches, damages, records"),
        ({"path": "p", "tasks": "0"}, "option tasks is '0'; it is a whole number of at least 1"),
        ({"path": "p", "startingOffset": "x"}, "option startingOffset is 'x'"),
        ({"paths": "a"}, "not a JSON array"),
        ({}, "no path was given"),
    ):
        with pytest.raises(WrongUse, match=reason):
            parse(given)
    assert all(OPTIONS.values())


def test_many_small_segments_are_few_tasks(own_log: Make, reader_of: Make, rows_of: Rows) -> None:
    log = own_log()
    for _ in range(30):
        log.segment(_batches(2))
    read = reader_of("kraftlab", log.directory, tasks=4, committed=False)
    tasks = read.partitions()
    assert isinstance(tasks, list)
    assert len(tasks) == 1, "less than a task's least share"
    (merged,) = read.read(tasks[0])
    assert merged.num_rows == 60
    assert [row["base_offset"] for row in rows_of("kraftlab", log.directory, committed=False)] == list(range(0, 120, 2))


def test_a_large_segment_is_cut_where_batches_begin(
    own_log: Make, reader_of: Make, rows_of: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = own_log()
    path = log.segment(_batches(200))
    data = bytearray(path.read_bytes())
    data[9000] ^= 1
    path.write_bytes(data)
    whole = rows_of("kraftlab", log.directory, committed=False)
    damages = rows_of("kraftlab", log.directory, committed=False, rows="damages")
    monkeypatch.setattr(pieces, "TASK_BYTES_MIN", 1000)
    tasks = reader_of("kraftlab", log.directory, tasks=8, committed=False).partitions()
    assert 6 <= len(tasks) <= 10
    assert rows_of("kraftlab", log.directory, tasks=8, committed=False) == whole
    assert rows_of("kraftlab", log.directory, tasks=8, committed=False, rows="damages") == damages
    assert len(whole) == 199
    assert len(damages) == 1


def test_nothing_to_read_is_not_an_error(own_log: Make, reader_of: Make) -> None:
    from pyspark.sql.datasource import InputPartition

    log = own_log()
    log.segment([], zeros=4096)
    read = reader_of("kraftlab", log.directory)
    assert [batch for task in read.partitions() for batch in read.read(task)] == []
    assert list(read.read(InputPartition(None))) == [], "what Spark calls it with when there are no partitions"


def _pieces(read: Any) -> list[str]:
    return [piece.file.name for task in read.partitions() for piece in task.pieces]


def test_offsets_and_times_leave_segments_out(own_log: Make, reader_of: Make, rows_of: Rows) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, IsNotNull, LessThan

    log = own_log()
    for _ in range(4):
        log.segment(_batches(2))
        log.time_ms += 7_200_000
    assert _pieces(reader_of("kraftlab", log.directory, startingOffset=4, endingOffset=9)) == [
        f"{offset:020d}.log" for offset in (4, 8)
    ]
    read = reader_of("kraftlab", log.directory, committed=False)
    filters = [GreaterThanOrEqual(("base_offset",), 12), IsNotNull(("base_offset",)), LessThan(("crc",), 5)]
    assert list(read.pushFilters(filters)) == filters, "Spark looks at every row again"
    assert _pieces(read) == [f"{12:020d}.log"]
    exact = reader_of("kraftlab", log.directory, committed=False)
    list(exact.pushFilters([EqualTo(("base_offset",), 6)]))
    assert _pieces(exact) == [f"{4:020d}.log"]
    late = log.time_ms - 7_200_000
    assert _pieces(reader_of("kraftlab", log.directory, startingTimestamp=late, committed=False)) == [
        f"{offset:020d}.log" for offset in (8, 12)
    ]
    rows = rows_of("kraftlab", log.directory, endingTimestamp=1_700_000_000_000 + 1000, committed=False)
    assert [row["base_offset"] for row in rows] == [0]


def test_where_finds_what_was_written_by_a_clock_that_ran_hours_ahead(own_log: Make, reader_of: Make) -> None:
    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    log = own_log()
    ahead_ms = 3 * 3_600_000
    first = log.batch([r.NoOp(0)])
    log.time_ms += ahead_ms
    jumped = log.batch([r.NoOp(0)])
    log.time_ms -= ahead_ms
    log.segment(first + jumped, base_offset=0)
    log.time_ms += ahead_ms
    jumped = log.batch([r.NoOp(0)])
    log.time_ms -= ahead_ms
    log.segment(jumped + log.batch([r.NoOp(0)]), base_offset=2)
    for rows, offset, time in (("batches", "base_offset", "append_ms"), ("records", "offset", "ts_ms")):
        for kind, expected in ((GreaterThanOrEqual, [1, 2]), (LessThan, [0, 3])):
            read = reader_of("kraftlab", log.directory, rows=rows, committed=False)
            list(read.pushFilters([kind((time,), log.time_ms + 3_600_000)]))
            found = [row[offset] for task in read.partitions() for batch in read.read(task) for row in batch.to_pylist()]
            assert found == expected


def test_a_segment_that_went_away_is_reported(own_log: Make, reader_of: Make) -> None:
    log = own_log()
    log.segment(_batches(2))
    first = log.segment(_batches(2))
    log.segment(_batches(2))
    found = []
    for kind in ("damages", "batches"):
        read = reader_of("kraftlab", log.directory, rows=kind, committed=False)
        tasks = read.partitions()
        first.rename(first.with_suffix(".gone"))
        found.append([row for task in tasks for batch in read.read(task) for row in batch.to_pylist()])
        first.with_suffix(".gone").rename(first)
    (missing,), rows = found
    assert (missing["status"], missing["prev_offset"], missing["next_offset"]) == ("missing_segment", 3, 8)
    assert [row["base_offset"] for row in rows] == [0, 2, 8, 10]


def test_a_batch_in_the_wrong_place_is_a_damage(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    early, late = log.batch([r.NoOp(0)]), log.batch([r.NoOp(0)])
    log.segment(late + early, base_offset=0)
    (found,) = rows_of("kraftlab", log.directory, rows="damages", committed=False)
    assert found["status"] == "bad_header"
    assert "follow offset 1: the batch is misplaced" in found["detail"]


def test_failfast_ends_the_read_at_a_damage_but_not_at_a_torn_end(own_log: Make, rows_of: Rows) -> None:
    log = own_log()
    path = log.segment(_batches(3), zeros=0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert len(rows_of("kraftlab", log.directory, mode="failfast", committed=False)) == 2
    path.write_bytes(whole[:4200] + b"?" + whole[4201:])
    with pytest.raises(CorruptInput, match=f"{path.name} of node 1, position"):
        rows_of("kraftlab", log.directory, mode="failfast", committed=False)


def test_kafkas_records_are_those_of_its_own_tool_however_they_are_packed(
    kafka_log: Path, rows_of: Rows, shown: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "TASK_BYTES_MIN", 1000)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows_of("kafka", kafka_log, rows="records", tasks=7):
        found.setdefault(row["segment"], []).append((row["pos"], row["name"], json.loads(row["data"])))
    for dump in DATA.glob("*.dump.jsonl.xz"):
        lines = [json.loads(line) for line in shown(lzma.decompress(dump.read_bytes())).splitlines()]
        expected = [
            (line["position"], record.get("type") or record["control"], record["data"])
            for line in lines
            for record in line["records"]
        ]
        assert found[dump.name.removesuffix(".dump.jsonl.xz")] == expected


SAMPLED_AND_ALL = [5, pytest.param(1, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("every", SAMPLED_AND_ALL)
@pytest.mark.parametrize("format_name", ["kraftlab", "kafka"])
def test_whichever_byte_is_flipped_rows_and_damages_cover_the_file(
    format_name: str, every: int, own_log: Make, batch: Make, frame: Make, tmp_path: Path, rows_of: Rows
) -> None:
    if format_name == "kraftlab":
        path = own_log().segment(_batches(3, 1), zeros=40)
        starts = range(4096, 4096 + 300, every)
    else:
        (tmp_path / "kafka").mkdir()
        path = tmp_path / "kafka" / SEGMENT
        path.write_bytes(b"".join(batch([frame(20, 0, b"\x00")], offset) for offset in range(3)) + bytes(40))
        starts = range(0, path.stat().st_size, every)
    whole = path.read_bytes()
    begin = 4096 if format_name == "kraftlab" else 0
    for at in starts:
        if at >= len(whole):
            break
        data = bytearray(whole)
        data[at] ^= 0x21
        path.write_bytes(data)
        rows = rows_of(format_name, path, ("pos", "payload", "base_offset", "last_offset"), committed=False)
        damages = rows_of(format_name, path, ("pos", "end_pos", "prev_offset", "next_offset"), rows="damages", committed=False)
        spans = sorted(
            [(row["pos"], row["pos"] + len(row["payload"])) for row in rows] + [(bad["pos"], bad["end_pos"]) for bad in damages]
        )
        position = begin
        for start, end in spans:
            assert start == position, at
            position = end
        assert position == len(whole) or data[position:].count(0) == len(whole) - position, at
        known = {offset for row in rows for offset in range(row["base_offset"], row["last_offset"] + 1)}
        if not damages:
            assert len(known) == 3 or format_name == "kafka"


@pytest.mark.parametrize("every", SAMPLED_AND_ALL)
@pytest.mark.parametrize("cut", [3, 4, 7])
def test_whichever_byte_is_flipped_rows_and_gaps_cover_the_offsets_of_two_ranges(
    cut: int, every: int, own_log: Make, rows_of: Rows
) -> None:
    log = own_log()
    path = log.segment([[r.NoOp(0)] * 2 for _ in range(4)], zeros=40)
    whole = path.read_bytes()
    for at in range(4096 + cut % 3, len(whole) - 40, 3 * every):
        data = bytearray(whole)
        data[at] ^= 0x21
        path.write_bytes(data)
        known: set[int] = set()
        told: set[int] = set()
        ends: dict[int, int] = {}
        for lo, hi in ((0, cut), (cut, 8)):
            bounds = {"startingOffset": lo, "endingOffset": hi}
            rows = pa.Table.from_pylist(rows_of("kraftlab", log.directory, tuple(bronze.KEYS), **bounds), schema=KEYS)
            marks = pa.Table.from_pylist(
                rows_of("kraftlab", log.directory, tuple(bronze.MARKS), rows="damages", **bounds), schema=MARKS
            )
            known |= {offset for row in rows.to_pylist() for offset in range(row["base_offset"], row["last_offset"] + 1)}
            for gap in bronze.offset_gaps(rows, marks, {1: 0}, lo, hi, ends):
                assert gap.cause == "quarantine", at
                told |= set(range(gap.from_offset, gap.to_offset))
            ends = bronze.ends(rows)
        assert not known & told, at
        assert known | told == set(range(8)), at


def _a_newer_programs(data: bytearray) -> bytearray:
    """With a header page of the next format version."""
    covered = data[: HEADER_PAGE_BYTES - 4]
    covered[4:6] = (int.from_bytes(covered[4:6], "big") + 1).to_bytes(2, "big")
    return covered + zlib.crc32(covered).to_bytes(4, "big") + data[HEADER_PAGE_BYTES:]


def _flipped(at: int, bits: int = 0xFF) -> Callable[[bytearray, int], bytearray]:
    """A byte of the second batch, which begins at a position, is another."""

    def damage(data: bytearray, begin: int) -> bytearray:
        data[begin + at] ^= bits
        return data

    return damage


OWN_DAMAGES: dict[str, tuple[str, Callable[[bytearray, int], bytearray]]] = {
    "magic": ("bad_magic", _flipped(0)),
    "a length that is too large": ("bad_length", _flipped(4)),
    "a length that is a little wrong": ("bad_crc", _flipped(7, 1)),
    "offset": ("bad_crc", _flipped(19)),
    "a record": ("bad_crc", _flipped(50)),
    "a torn end": ("truncated", lambda data, begin: data[: begin + 20]),
    "a torn record": ("truncated", lambda data, begin: data[: begin + 50]),
    "a header page of a newer program": ("unknown_version", lambda data, begin: _a_newer_programs(data)),
    "a header page": ("bad_header", lambda data, begin: data[:8] + b"\xff" + data[9:]),
}
KAFKA_DAMAGES: dict[str, tuple[str, Callable[[bytearray, int], bytearray]]] = {
    "magic": ("bad_magic", _flipped(16)),
    "a length that is too large": ("bad_length", _flipped(8)),
    "a record": ("bad_crc", _flipped(66)),
    "a torn end": ("truncated", lambda data, begin: data[: begin + 30]),
}


@pytest.mark.parametrize(
    ("form", "status", "damage"),
    [
        *(pytest.param("kraftlab", *row, id=f"ours, {name}") for name, row in OWN_DAMAGES.items()),
        *(pytest.param("kafka", *row, id=f"Kafka's, {name}") for name, row in KAFKA_DAMAGES.items()),
    ],
)
def test_every_damage_is_in_quarantine_by_its_name_with_its_bytes_and_the_offsets_around_it(
    form: str,
    status: str,
    damage: Callable[[bytearray, int], bytearray],
    own_log: Make,
    batch: Make,
    frame: Make,
    tmp_path: Path,
    rows_of: Rows,
) -> None:
    if form == "kraftlab":
        path = own_log().segment(_batches(3), zeros=0)
    else:
        path = tmp_path / SEGMENT
        path.write_bytes(b"".join(batch([frame(20, 0, b"\x00")] * 2, offset) for offset in (0, 2, 4)))
    whole = path.read_bytes()
    begins = [row["pos"] for row in rows_of(form, path, committed=False)]
    data = bytes(damage(bytearray(whole), begins[1]))
    path.write_bytes(data)
    (bad,) = rows_of(form, path, rows="damages", committed=False)
    kept = [row["base_offset"] for row in rows_of(form, path, committed=False)]
    assert bad["status"] == status, bad["detail"]
    assert bad["raw"] == data[bad["pos"] : bad["end_pos"]]
    assert bad["detail"]
    if bad["pos"] == 0 and form == "kraftlab":
        assert (kept, bad["prev_offset"], bad["next_offset"]) == ([0, 2, 4], None, 0)
    else:
        behind = [] if status == "truncated" else [4]
        assert (kept, bad["prev_offset"], bad["next_offset"]) == ([0, *behind], 1, behind[0] if behind else None)


def test_a_compressed_batch_is_in_quarantine(batch: Make, frame: Make, tmp_path: Path, rows_of: Rows) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batch([frame(20, 0, b"\x00")], offset, codec=offset) for offset in (0, 1, 2)))
    found = rows_of("kafka", path, rows="damages", committed=False)
    assert [(row["status"], row["prev_offset"], row["next_offset"]) for row in found] == [
        ("undecodable", 0, 2),
        ("undecodable", 1, 3),
    ]
    assert [row["base_offset"] for row in rows_of("kafka", path, committed=False)] == [0]
