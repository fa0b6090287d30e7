"""Directories of runs: removed with the run, and by the next one if the run was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlab.checking import scratch_directory
from kraftlab.checking.scratch_directory import own_directory, remove_abandoned

PROGRAM = """
import sys
from kraftlab.checking.scratch_directory import own_directory
with own_directory() as path:
    print(path, flush=True)
    sys.stdin.read()
"""


def test_a_directory_is_gone_after_its_block() -> None:
    with own_directory() as path:
        Path(path, "file").write_bytes(b"x")
    assert not os.path.exists(path)


def test_sigterm_removes_the_directory() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        assert os.path.isdir(path)
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert not os.path.exists(path)


def test_a_killed_runs_directory_is_removed_by_the_next_and_a_running_ones_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_directory, "BEING_MADE_S", 0.0)
    with (
        own_directory() as mine,
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        assert Path(path) not in remove_abandoned()
        process.kill()
        process.wait()
        assert Path(path) in remove_abandoned()
        assert os.path.isdir(mine)
    assert not os.path.exists(path)
