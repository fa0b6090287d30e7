"""Seeds of the workload `admin` in two processes with different hash seeds.

Within a process all nodes iterate a set of strings in the same order, so a state that depends on the order looks the same
everywhere. Real nodes are processes, each with a hash seed of its own. So the same seed is played in two processes, and the steps
of their nodes must be equal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

from kraftlab.checking.mutant import Shown, planted
from kraftlab.simulation.metadata.mutants import FOR_TWO_PROCESSES

from ..workload import Options
from ..workloads import workload_named
from ..worlds.simulated import run_simulated

ADMINISTERING = Options(time_s=5, timeout_ms=1_000, rate=200, brokers=5)
"""The options of runs of the workload `admin`."""
PROCESSES = ("1", "2")
"""The hash seeds of the processes."""
SEEDS_AT_ONCE = 4
_TIMEOUT_S = 300.0


def compared(name: str, first: int, count: int = SEEDS_AT_ONCE) -> Shown:
    """Play so many seeds in both processes, with the bug of that name ("" for none), until one differs."""
    with ExitStack() as stack:
        playing = [stack.enter_context(started(name, first, count, hash_seed)) for hash_seed in PROCESSES]
        for process in playing:
            stack.callback(process.kill)
        shown = [process.communicate(timeout=_TIMEOUT_S)[0].splitlines() for process in playing]
    if any(process.returncode for process in playing):
        raise RuntimeError(
            f"a process that played seeds {first} to {first + count - 1} with {name!r} failed; see its message above"
        )
    for number, (one, other) in enumerate(zip(*shown, strict=True)):
        if one != other:
            words = f"seed {first + number} is {one} with hash seed {PROCESSES[0]}, {other} with {PROCESSES[1]}"
            return Shown("two hash seeds", words, number + 1)
    return Shown(attempts=count)


def started(name: str, first: int, count: int, hash_seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, name, str(first), str(count)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def main(name: str, first: int, count: int) -> None:
    """Print a line for each seed, in one of the processes."""
    with planted(FOR_TWO_PROCESSES[name] if name else None):
        for seed in range(first, first + count):
            played = run_simulated(workload_named("admin"), seed, ADMINISTERING)
            print(played.trace_hash, played.history_hash, played.violation, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
