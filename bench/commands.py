"""Wall-clock time of commands from the shell to the prompt, against a local cluster of 3 controllers and 4 brokers.

A run is a process of its own. *import* is the time that the process spends importing modules (`python -X importtime`, in a run of
its own). *floor* is an interpreter that does nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import click
import msgspec

from kraftlab.lab import LocalCluster

from .measure import Report, measurement, percentile, table

FLOOR = "python -c pass"
COMMANDS = (
    ("--help",),
    ("topics", "--list"),
    ("topics", "--describe"),
    ("reassign-partitions", "--list", "--details"),
    ("configs", "--describe", "--broker", "0"),
    ("metadata-quorum", "describe", "--status"),
    ("log-dirs", "--describe"),
)


class CommandResult(msgspec.Struct, frozen=True):
    """Seconds of every run of a command, and of its imports in one more."""

    command: str
    seconds: list[float]
    import_seconds: float


def measure(runs: int) -> list[CommandResult]:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory, LocalCluster(directory, 3, 4, 2) as cluster:
        environment = os.environ | {"KRAFTLAB_BOOTSTRAP_SERVER": cluster.bootstrap_servers}
        results = [CommandResult(FLOOR, [_run(["-c", "pass"], environment)[0] for _ in range(runs)], 0.0)]
        for command in COMMANDS:
            arguments = ["-m", "kraftlab.cli.main", *command]
            seconds = [_run(arguments, environment)[0] for _ in range(runs)]
            _, log = _run(["-X", "importtime", *arguments], environment)
            results.append(CommandResult(f"kraftlab {' '.join(command)}", seconds, _import_seconds(log)))
    return results


def _run(arguments: list[str], environment: dict[str, str]) -> tuple[float, str]:
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
    return time.perf_counter() - begun, done.stderr


def _import_seconds(log: str) -> float:
    """Return the sum of the modules' own import times, which `-X importtime` prints in microseconds."""
    rows = (line.removeprefix("import time:").split("|")[0] for line in log.splitlines() if line.startswith("import time:"))
    return sum(int(own) for own in rows if own.strip().isdecimal()) / 1e6


def render(results: list[CommandResult]) -> str:
    rows = [["command", "runs", "min", "median", "max", "import"]]
    for result in results:
        values = [f"{percentile(result.seconds, percent):.2f} s" for percent in (0, 50, 100)]
        rows.append([result.command, str(len(result.seconds)), *values, f"{result.import_seconds:.2f} s"])
    return table(rows)


@measurement("commands", __doc__, quick="2 runs of each")
@click.option("--runs", type=int, help="runs of each command (default 7)")
def main(quick: bool, runs: int | None) -> Report:
    results = measure(runs or (2 if quick else 7))
    return Report([{"command": result} for result in results], render(results))
