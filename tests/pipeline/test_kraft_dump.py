"""`kraftlab pipeline kraft-dump`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.cli.main import run

Make = Callable[..., bytes]
NO_OP = b"\x01\x14\x00\x00"
FOOTER = b"\x00\x00\x00"
UNKNOWN = b"\x01\x63\x00\x00"
SEGMENT = "00000000000000000000.log"
CHECKPOINT = "00000000000000000003-0000000001.checkpoint"


def dump(*arguments: str) -> int:
    return run(["pipeline", "kraft-dump", *arguments])


def lines(capfd: pytest.CaptureFixture[str]) -> tuple[list[dict[str, object]], str]:
    out, err = capfd.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


def test_a_recorded_checkpoint_is_printed_as_kafka_prints_it(
    recording: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    name = "00000000000000000000-0000000000.checkpoint"

    assert dump(str(recording(name))) == 0
    assert capfd.readouterr().out == recording(f"{name}.dump.jsonl").read_text()


def test_a_directory_stands_for_its_logs_also_those_of_the_partition_within(
    tmp_path: Path, batch: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    (partition / SEGMENT).write_bytes(batch([NO_OP]))
    (partition / CHECKPOINT).write_bytes(batch([FOOTER], control=4))
    (partition / "quorum-state").write_text("{}")
    (partition / "00000000000000000000.index").write_bytes(b"")

    assert dump("--file-names", str(tmp_path)) == 0

    entries, _ = lines(capfd)
    assert [entry["file"] for entry in entries] == [str(partition / SEGMENT), str(partition / CHECKPOINT)]
    assert list(entries[0])[:2] == ["file", "baseOffset"]


def test_what_cannot_be_decoded_is_reported_with_file_position_and_offset_and_the_rest_is_printed(
    tmp_path: Path, batch: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / SEGMENT
    first = batch([NO_OP, UNKNOWN])
    path.write_bytes(first + batch([NO_OP], 2))

    assert dump(str(path)) == 1

    entries, err = lines(capfd)
    assert [entry["baseOffset"] for entry in entries] == [0, 2]
    assert err.splitlines()[0].startswith(f"{path}: batch at position 0, offset 1: unknown record type 99")
    assert err.splitlines()[1] == 'Could not be read: 1; see the lines with an "error". Printed: 2 lines with 3 records.'


def test_strict_stops_at_the_first_fault(tmp_path: Path, batch: Make, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(batch([UNKNOWN]) + batch([NO_OP], 1))

    assert dump("--strict", str(path)) == 1

    entries, err = lines(capfd)
    assert [entry["baseOffset"] for entry in entries] == [0]
    assert "stopped at the first fault" in err


def test_a_torn_end_is_a_note_of_a_segment_and_a_fault_of_a_checkpoint(
    tmp_path: Path, batch: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    torn = batch([NO_OP]) + batch([NO_OP], 1)[:-3]
    codes = []
    for name in (SEGMENT, CHECKPOINT):
        (tmp_path / name).write_bytes(torn)
        codes.append((dump(str(tmp_path / name)), dump("--strict", str(tmp_path / name))))

    entries, err = lines(capfd)
    assert codes == [(0, 1), (1, 1)]
    assert entries[1]["status"] == "torn" and entries[1]["position"] == len(batch([NO_OP]))
    assert "the file ends within a batch" in err


def test_a_checkpoint_that_ends_between_batches_before_its_footer_is_no_whole_one(
    tmp_path: Path, batch: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    records, footer = batch([NO_OP]), batch([FOOTER], 1, control=4)
    cut, empty, whole = (tmp_path / f"{number:020d}-0000000001.checkpoint" for number in (1, 2, 3))
    for path, data in ((cut, records), (empty, b""), (whole, records + footer), (tmp_path / "bootstrap.checkpoint", records)):
        path.write_bytes(data)

    assert dump("--file-names", str(tmp_path)) == 1

    entries, err = lines(capfd)
    told = [(entry["file"], entry["position"], entry["status"]) for entry in entries if "status" in entry]
    assert told == [(str(cut), len(records), "torn"), (str(empty), 0, "torn")]
    assert f"{cut}: position {len(records)}: torn: the snapshot ends at {len(records)} without its footer" in err
    assert dump("--strict", str(cut)) == 1
    assert dump(str(whole)) == 0


def test_a_path_that_gives_nothing_is_named_with_what_to_give(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert dump(str(tmp_path)) == 1
    assert "holds no metadata log" in capfd.readouterr().err
    assert dump(str(tmp_path / "nowhere")) == 1
    assert "nowhere does not exist; give" in capfd.readouterr().err


def test_help_shows_examples_and_exit_codes(capfd: pytest.CaptureFixture[str]) -> None:
    assert dump("--help") == 0
    out = capfd.readouterr().out
    assert "Examples:" in out and "Exit code 1:" in out


@pytest.mark.parametrize("kind", ["segment", "snapshot"])
def test_a_log_of_kraftlabs_own_is_refused_with_the_command_that_reads_it(
    own_log: Callable[..., Any], kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log = own_log()
    path = log.segment([]) if kind == "segment" else log.snapshot(1, [])

    assert dump(str(path)) == 1
    out, err = lines(capfd)
    assert (out, err.strip()) == (
        [],
        f"Error: {path} is a metadata log of kraftlab's own, not of Kafka's; "
        f"read it with: kraftlab dump-log --cluster-metadata-decoder --files {path}",
    )
    assert run(["dump-log", "--cluster-metadata-decoder", "--files", str(path)]) == 0
