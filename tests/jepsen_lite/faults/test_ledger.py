"""The works of a harness end with it, and leftovers of its kill -9 are cleaned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from jepsen_lite.command import chaos
from jepsen_lite.faults import ledger
from jepsen_lite.faults.ledger import Directory, Ledger, Mount, NotUndone, Page, Process
from kraftlab.cli import main
from kraftlab.common.exit_codes import FAILED
from kraftlab.lab import ClusterError, locking
from kraftlab.lab.locking import lock_of_nodes

pytestmark = pytest.mark.usefixtures("home")

HARNESS = """
import subprocess, sys, time
from jepsen_lite.faults.ledger import Ledger, Mount
with Ledger() as book:
    node = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    book.add_process(node.pid, "a node")
    directory = book.new_directory(within=sys.argv[1])
    (directory / "file").write_text("data")
    if sys.argv[2] == "mount":
        mount = directory / "disk"
        mount.mkdir()
        book.add(Mount(str(mount)))
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mount)], check=True)
    print(node.pid, flush=True)
    sys.stdin.read()
"""


of_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


def harness(directory: Path, how: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(directory), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def made_in(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(ledger.MARK)]


def test_a_harness_that_ends_leaves_nothing(tmp_path: Path, home: Path) -> None:
    process, node = harness(tmp_path, "")
    assert made_in(tmp_path)
    process.communicate("")
    assert process.returncode == 0
    assert ledger.began(node) is None
    assert not made_in(tmp_path)
    assert not list(home.iterdir())


@pytest.mark.parametrize("how", ["", pytest.param("mount", marks=of_root)])
def test_leftovers_of_a_killed_harness_are_cleaned(tmp_path: Path, home: Path, how: str) -> None:
    process, node = harness(tmp_path, how)
    assert [cleaned.is_running for cleaned in ledger.clean()] == [True]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert ledger.began(node) is not None
    result = CliRunner().invoke(chaos, ["clean", "--dry-run"])
    assert f"process {node} (a node)" in result.output
    document = json.loads(CliRunner().invoke(chaos, ["clean", "--dry-run", "--json"]).output)
    assert document["dry_run"] is True
    assert f"process {node} (a node)" in document["runs"][0]["undone"]
    assert ledger.began(node) is not None
    cleaned = CliRunner().invoke(chaos, ["clean"])
    assert cleaned.exit_code == 0, cleaned.output
    assert ("mount " in cleaned.output) == (how == "mount")
    assert ledger.began(node) is None
    assert not made_in(tmp_path)
    assert not list(home.iterdir())
    assert CliRunner().invoke(chaos, ["clean"]).output == "nothing is left of earlier runs\n"


def left_behind(home: Path, *entries: ledger.Entry) -> Path:
    """Write a ledger whose harness is gone."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "feed.json"
    path.write_bytes(msgspec.json.encode(Page("feed", Process(os.getpid(), "long ago"), ledger.boot(), entries)))
    return path


def test_nothing_is_made_without_a_writable_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a-file"))
    with pytest.raises(ClusterError, match="XDG_STATE_HOME"), Ledger() as ledger:
        ledger.new_directory(within=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


def test_a_process_with_a_recycled_id_is_not_killed(home: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        path = left_behind(home, Process(stranger.pid, "1", "a node"))
        assert [cleaned.undone for cleaned in ledger.clean()] == [()]
        assert stranger.poll() is None
        assert not path.exists()
        stranger.kill()


def test_directories_without_the_mark_are_not_touched_and_stay_in_the_ledger(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    path = left_behind(home, Directory(str(mine)))
    (cleaned,) = ledger.clean()
    assert f"directory {mine} was not made by a harness" in cleaned.faults[0]
    assert mine.is_dir()
    assert path.exists()
    assert main.run(["chaos", "clean"]) == FAILED
    assert "Error: some leftovers could not be removed: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main.run(["chaos", "clean", "--json"])
    assert ended.value.code == FAILED
    assert "was not made by a harness" in json.loads(capsys.readouterr().out)["runs"][0]["faults"][0]


def test_a_ledger_that_cannot_be_read_is_reported_and_kept(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "beef.json").write_bytes(b"{")
    (cleaned,) = ledger.clean()
    assert "beef.json cannot be read" in cleaned.faults[0]
    assert (home / "beef.json").exists()


def test_an_unclosed_ledger_is_closed_with_the_process(tmp_path: Path, home: Path) -> None:
    program = "import sys; from jepsen_lite.faults.ledger import Ledger; Ledger().new_directory(within=sys.argv[1]); sys.exit(3)"
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == 3
    assert not made_in(tmp_path)
    assert not list(home.iterdir())


def test_leftovers_that_are_gone_are_dropped(tmp_path: Path, home: Path) -> None:
    with Ledger() as book:
        book.add(Mount(str(tmp_path / "gone")))
        book.add(Directory(str(tmp_path / "gone")))
    assert not list(home.iterdir())


def test_leftovers_that_cannot_be_undone_stay_in_the_ledger(tmp_path: Path, home: Path) -> None:
    book = Ledger()
    book.add(Directory(str(tmp_path)))
    with pytest.raises(NotUndone, match="remove it yourself"):
        book.close()
    assert [path.name for path in home.iterdir()] == [f"{book.run}.json"]


@pytest.fixture(params=["", "Jürgen's files"], ids=["plain", "with umlaut"])
def mounted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a disk in a directory of a harness."""
    path = tmp_path / request.param / f"{ledger.MARK}feed" / "disk"
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(path)], check=True)
    yield path
    if os.path.ismount(path):
        subprocess.run(["umount", str(path)], check=True)


@of_root
def test_a_busy_disk_is_waited_for(home: Path, mounted: Path) -> None:
    left_behind(home, Directory(str(mounted.parent)), Mount(str(mounted)))
    with subprocess.Popen(["sleep", "0.5"], cwd=mounted):
        (cleaned,) = ledger.clean()
    assert not cleaned.faults
    assert not mounted.parent.exists()


def test_a_directory_is_removed_when_the_last_node_of_its_cluster_has_ended(tmp_path: Path, home: Path) -> None:
    """A running node would make the directory again."""
    directory = tmp_path / f"{ledger.MARK}feed"
    directory.mkdir()
    left_behind(home, Directory(str(directory)))
    with lock_of_nodes(directory) as lock:
        node = subprocess.Popen(["sh", "-c", f"sleep 0.3; mkdir -p {directory}/metadata"], pass_fds=[lock.fileno()])
    with node:
        (cleaned,) = ledger.clean()
        assert not cleaned.faults
    assert not directory.exists()


def test_a_directory_that_nodes_do_not_leave_stays_in_the_ledger(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "LEFT_WITHIN_S", 0.0)
    directory = tmp_path / f"{ledger.MARK}feed"
    directory.mkdir()
    path = left_behind(home, Directory(str(directory)))
    with lock_of_nodes(directory):
        (cleaned,) = ledger.clean()
        assert "nodes of a cluster have not left" in cleaned.faults[0]
    assert directory.exists()
    assert path.exists()


@of_root
def test_a_directory_is_not_emptied_through_what_is_mounted_in_it(home: Path, mounted: Path) -> None:
    (mounted / "file").write_text("data")
    left_behind(home, Directory(str(mounted.parent)))
    (cleaned,) = ledger.clean()
    assert f"has {mounted} mounted in it" in cleaned.faults[0]
    assert (mounted / "file").read_text() == "data"
