"""Directories fail by their names, for processes that were started with failing calls."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlab.lab.cluster_plan import ClusterError
from kraftlab.lab.failing_directories import FailingDirectories
from kraftlab.lab.faults.failing_calls import FailingCalls

PROBE = """
import os, sys
def attempt(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0
def write(path):
    with open(path, "wb") as file:
        file.write(b"x")
def allocate(path):
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 4096)
for directory in sys.argv[1:]:
    made = os.path.join(directory, "made")
    print(attempt(lambda: write(os.path.join(directory, "f"))), attempt(lambda: allocate(os.path.join(directory, "g"))),
          attempt(lambda: os.mkdir(made)) or attempt(lambda: os.rmdir(made)))
"""


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[FailingDirectories]:
    place = tmp_path / "calls"
    try:
        FailingCalls(place).close()
    except ClusterError as error:
        pytest.skip(str(error))
    directories = FailingDirectories(place)
    yield directories
    directories.close()


def outcome(failing: FailingDirectories, *directories: Path) -> list[str]:
    """Error numbers of a write, an allocation and a new name in each directory, 0 for success."""
    command = [sys.executable, "-c", PROBE, *map(str, directories)]
    done = subprocess.run(command, env=os.environ | failing.environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_bad_directory_fails_every_call_and_a_full_one_only_writes(failing: FailingDirectories, tmp_path: Path) -> None:
    odd, alike, full, linked = (tmp_path / name for name in ("d[1]*\n", "d1", "a b", "link"))
    for directory in (odd, alike, full):
        directory.mkdir()
    linked.symlink_to(full)
    assert outcome(failing, odd, alike, full) == ["0 0 0"] * 3
    failing.fail({str(odd): errno.EIO, str(linked): errno.ENOSPC})
    eio, enospc = errno.EIO, errno.ENOSPC
    assert outcome(failing, odd, alike, full) == [f"{eio} {eio} {eio}", "0 0 0", f"{enospc} {enospc} 0"]
    failing.fail({str(odd): errno.ENOSPC})
    assert outcome(failing, odd, alike, full) == [f"{enospc} {enospc} 0", "0 0 0", "0 0 0"]
    failing.fail({})
    assert outcome(failing, odd, alike, full) == ["0 0 0"] * 3


def test_too_many_rules_are_refused_and_the_former_ones_stay(failing: FailingDirectories, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    failing.fail({str(bad): errno.EIO})
    with pytest.raises(ClusterError, match="undo other faults first"):
        failing.fail({f"/{number:0200}": errno.EIO for number in range(100)})
    assert outcome(failing, bad) == [f"{errno.EIO} {errno.EIO} {errno.EIO}"]


@pytest.mark.parametrize(
    ("place", "path", "says"),
    [
        (None, None, "start it with kraftlab up --allow-chaos"),
        ("with space", None, "use a directory without spaces and colons; then start the cluster again"),
        ("calls", "/nowhere", "install one, for example: apt-get install gcc; then start the cluster again"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the reason is another one elsewhere")
def test_a_cluster_whose_calls_cannot_fail_runs_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, path: str | None, says: str
) -> None:
    if path is not None:
        monkeypatch.setenv("PATH", path)
    failing = FailingDirectories(tmp_path / place if place is not None else None)
    assert failing.environment == {}
    failing.fail({})
    with pytest.raises(ClusterError, match=says):
        failing.fail({"/d1": errno.EIO})
    failing.close()
