"""Seeds played by several processes, none of which outlives the process that started them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraftlab.checking import workers

WAIT_S = 20.0
SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background of a shell ignores it
from kraftlab.simulation.consensus.runner import run_many
if __name__ == "__main__":
    for _ in run_many(range(10_000), processes=2):
        print("x", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(number: signal.Signals, tmp_path: object) -> None:
    """All processes hold the pipe of their standard output, which ends with the last of them."""
    script = f"{tmp_path}/play.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"x\n"
        run.send_signal(number)
        deadline = time.monotonic() + WAIT_S
        while True:
            readable, _, _ = select.select([run.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, "a process still holds the pipe"
            if not os.read(run.stdout.fileno(), 65536):
                break


def workers_of(pid: int) -> list[int]:
    """Return the interpreters that a process has started as its workers."""
    (children,) = Path(f"/proc/{pid}/task/{pid}").glob("children")
    return [int(child) for child in children.read_text().split() if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_ctrl_c_is_nothing_to_workers_that_are_still_starting(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to the parent as well; here only the workers get it."""
    script = tmp_path / "play.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + WAIT_S
        while len(workers := workers_of(run.pid)) < 2:
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.001)
        for worker in workers:
            os.kill(worker, signal.SIGINT)
        assert run.stdout is not None
        assert run.stdout.readline() == "x\n"
        run.terminate()
        _, told = run.communicate(timeout=WAIT_S)
    assert "Traceback" not in told


def test_there_are_no_more_workers_than_the_cores_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MOST_PER_CORE", 0)
    of_processes = workers.done_by(1_000_000, lambda _: os.getpid(), range(3))
    assert set(of_processes) == {os.getpid()}
