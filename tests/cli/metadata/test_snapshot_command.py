"""`kraftlab snapshot` where no cluster is needed: tables, directories, damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlab.cli import main
from kraftlab.cli.metadata import snapshot_command
from kraftlab.cli.metadata.snapshot_text import SnapshotView, snapshot_lines
from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage.errors import DiskFailed
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.snapshot_file import SnapshotEncoder, snapshot_name

OLD, NEW = OffsetAndEpoch(40, 2), OffsetAndEpoch(90, 3)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A metadata.log.dir with two snapshots, a bootstrap checkpoint, and one that is not finished."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    for position in (OffsetAndEpoch(0, 0), NEW, OLD):
        write(partition / snapshot_name(position), position)
    (partition / (snapshot_name(OffsetAndEpoch(95, 3)) + ".part")).write_bytes(b"half of it")
    return tmp_path


def write(path: Path, position: OffsetAndEpoch) -> None:
    file = RealFileSystem().open(str(path), create=True)
    encoder = SnapshotEncoder(file, position, [SnapshotHeader(0, "lab", 0, 7, 1_700_000_000_000)])
    encoder.append(b"\x91\x93\x01\x00\x02", 1)
    encoder.finish()
    file.close()


def test_the_table_is_oldest_first_and_tab_separated() -> None:
    views = [SnapshotView(40, 2, 300, 1_700_000_000_123), SnapshotView(4711, 11, 12345, None)]
    assert snapshot_lines(views) == [
        "EndOffset\tEpoch\tSize    \tLastContainedLogTime    \tFile                                      \t",
        "40       \t2    \t300 B   \t2023-11-14T22:13:20.123Z\t00000000000000000040-0000000002.checkpoint\t",
        "4711     \t11   \t12.1 KiB\t-                       \t00000000000000004711-0000000011.checkpoint\t",
    ]
    assert snapshot_lines([]) == ["There are no snapshots."]


def test_a_directory_lists_its_finished_snapshots(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (directory, directory / "__cluster_metadata-0"):
        assert main.run(["snapshot", "list", "--directory", str(path), "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)["snapshots"]
        assert [(item["end_offset"], item["epoch"]) for item in listed] == [(40, 2), (90, 3)]


def test_a_directory_without_metadata_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["snapshot", "list", "--directory", str(tmp_path)]) == 1
    assert f"{tmp_path} holds no metadata log; give a node's metadata.log.dir" in capsys.readouterr().err
    assert main.run(["snapshot", "verify", str(tmp_path)]) == 1


def test_valid_snapshots_are_reported_valid(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["snapshot", "verify", str(directory)]) == 0
    partition = directory / "__cluster_metadata-0"
    assert capsys.readouterr().out.splitlines() == [
        f"valid    {partition / snapshot_name(OLD)}: 1 records, cluster lab",
        f"valid    {partition / snapshot_name(NEW)}: 1 records, cluster lab",
    ]


@pytest.mark.parametrize("command", [("list", "--directory"), ("verify",)])
def test_a_snapshot_that_a_running_node_removes_meanwhile_is_left_out(
    command: tuple[str, ...], directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = snapshot_command.snapshot_files

    def clean(given: Path) -> list[Path]:
        listed = found(given)
        (directory / "__cluster_metadata-0" / snapshot_name(OLD)).unlink(missing_ok=True)
        return listed

    monkeypatch.setattr(snapshot_command, "snapshot_files", clean)
    assert main.run(["snapshot", *command, str(directory)]) == 0
    shown = capsys.readouterr().out
    assert snapshot_name(NEW) in shown
    assert snapshot_name(OLD) not in shown


def test_one_flipped_bit_is_found_with_its_file(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "__cluster_metadata-0" / snapshot_name(NEW)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    assert main.run(["snapshot", "verify", str(directory)]) == 1
    valid, invalid = capsys.readouterr().out.splitlines()
    assert valid.startswith("valid    ")
    assert invalid.startswith("INVALID  ")
    assert str(path) in invalid
    assert main.run(["snapshot", "verify", str(path), "--json"]) == 1
    (document,) = json.loads(capsys.readouterr().out)["files"]
    assert document["is_valid"] is False


def test_a_missing_file_and_another_file_are_not_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / snapshot_name(NEW)
    (tmp_path / "notes.txt").write_text("x")
    assert main.run(["snapshot", "verify", str(missing), str(tmp_path / "notes.txt")]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert str(missing) in first
    assert "is not named like a snapshot" in second


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["snapshot", "create"], "no cluster is up on this machine; start one", 1),
        (["snapshot", "list", "--directory", "/x", "--node", "1"], "leave --bootstrap-server, --data and --node out", 64),
        (["snapshot", "verify"], "Missing argument", 64),
    ],
)
def test_usage_is_explained(arguments: list[str], said: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == code
    assert said in capsys.readouterr().err


def test_a_missing_file_is_called_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["snapshot", "verify", str(tmp_path / snapshot_name(OLD))]) == 1
    assert capsys.readouterr().out == f"INVALID  {tmp_path / snapshot_name(OLD)}: No such file or directory\n"


@pytest.mark.parametrize(
    "failure", [PermissionError(13, "Permission denied", "/x/y"), DiskFailed("cannot list /x/y: Permission denied")]
)
def test_an_error_of_the_disk_is_one_line(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(directory: Path) -> list[Path]:
        raise failure

    monkeypatch.setattr("kraftlab.cli.metadata.snapshot_command.snapshot_files", refuse)
    assert main.run(["snapshot", "list", "--directory", "/x"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "/x/y: Permission denied" in said
