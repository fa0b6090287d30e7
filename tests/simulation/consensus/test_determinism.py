"""A seed does the same things in any process, with any hash seed, traced or not."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import kraftlab.simulation.consensus
from kraftlab.simulation.consensus.runner import run_seed

SEEDS = (3, 17, 29)
SCRIPT = f"""
from kraftlab.simulation.consensus.runner import run_seed
for seed in {SEEDS}:
    result = run_seed(seed)
    print(seed, result.trace_hash, result.steps, result.simulated_ms)
"""


def test_another_process_with_another_hash_seed_gives_the_same_trace():
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120, check=True)
    results = [run_seed(seed) for seed in SEEDS]
    assert run.stdout == "".join(f"{r.seed} {r.trace_hash} {r.steps} {r.simulated_ms}\n" for r in results)


def test_tracing_shows_every_step_and_changes_nothing():
    lines: list[str] = []
    traced = run_seed(3, write=lines.append)
    assert traced.trace_hash == run_seed(3).trace_hash
    assert len(lines) >= traced.steps
    assert any("leader" in line for line in lines)


def test_different_seeds_are_different_runs():
    assert len({run_seed(seed, fault_phase_ms=1_000).trace_hash for seed in range(10)}) == 10


BANNED = {"time", "datetime", "uuid", "os", "secrets", "threading", "asyncio", "trio", "socket"}


def test_the_world_reads_no_clock_and_no_entropy():
    folder = Path(kraftlab.simulation.consensus.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if path.name in ("runner.py", "mutation.py", "workers.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not BANNED & {name.partition(".")[0] for name in names}, f"{path.name} imports {names}"
