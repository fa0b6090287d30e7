"""Work shared by several processes: results come in order, and a caller that leaves early sees no error."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from kraftlab.checking import scratch_directory
from kraftlab.checking.workers import done_by


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_work(jobs: int) -> None:
    assert list(done_by(jobs, abs, range(-20, 0))) == list(range(20, 0, -1))


def test_a_caller_that_leaves_early_sees_no_failed_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that end during work break their pool, which then notifies all callers that wait for a result."""
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    before = set(threading.enumerate())
    results = done_by(2, time.sleep, [0.0, *[600.0] * 20])
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    theirs = set(threading.enumerate()) - before
    for thread in theirs:
        thread.join(10)
    assert failed == []
    assert not any(thread.is_alive() for thread in theirs)


def test_sigterm_ends_workers_without_a_word() -> None:
    before = set(scratch_directory.place().glob(f"{scratch_directory.MARK}*"))
    command = [
        sys.executable,
        "-m",
        "kraftlab.cli.main",
        "mutants",
        *("--only=half-is-a-majority", "--only=broker-flaps"),
        "--jobs=2",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "its workers hunt"
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert said == ""
    assert process.returncode == -signal.SIGTERM
    deadline = time.monotonic() + 30
    while set(scratch_directory.place().glob(f"{scratch_directory.MARK}*")) - before:
        assert time.monotonic() < deadline, "a worker has left its directory"
        time.sleep(0.02)
