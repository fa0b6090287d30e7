"""Shared parts of measurements: percentiles, tables, free ports, and a small cluster of processes that ends with its parent."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import click
import msgspec
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.exit_codes import DONE

T = TypeVar("T")


class NoResult(RuntimeError):
    """The nodes of a measurement ended, or hang."""


class CommitParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Duration and writes of a measurement. `record_bytes` is about the size of one small metadata record."""

    seconds: float = 2.0
    warm_up_commits: int = 200
    in_flight: tuple[int, ...] = (64, 512)
    bulk_records: int = 10_000
    bulk_runs: int = 5
    record_bytes: int = 64
    fsync_ms: float = 0.0
    """Added to every fdatasync of our metadata log, as a slower disk would."""
    certificates: str = ""
    """Directory with certificates of our controllers, which then speak TLS with each other."""


class NodeArguments(msgspec.Struct, frozen=True):
    """Argument of a node's process, as JSON. `ports` are those of all nodes; `report` is the file descriptor for the result."""

    index: int
    ports: tuple[int, ...]
    directory: str
    report: int
    parameters: CommitParameters


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one system at one door. Times are milliseconds; `commits_per_second` by number in flight."""

    system: str
    door: str
    serial_p50_ms: float
    serial_p99_ms: float
    commits_per_second: dict[int, float]
    bulk_ms: float

    @classmethod
    def of(
        cls, system: str, door: str, serial_ms: Sequence[float], per_second: dict[int, float], bulk_ms: Sequence[float]
    ) -> CommitResult:
        """Summarize the times of serial and bulk commits."""
        p50, p99 = (percentile(serial_ms, percent) for percent in (50, 99))
        return cls(
            system=system,
            door=door,
            serial_p50_ms=p50,
            serial_p99_ms=p99,
            commits_per_second=per_second,
            bulk_ms=percentile(bulk_ms, 50),
        )


class Report(NamedTuple):
    """Result of a measurement: the documents that `--json` prints, the text for people, and the exit code."""

    documents: Sequence[object]
    text: str
    code: int = DONE


def measurement(name: str, about: str | None, *, quick: str) -> Callable[[Callable[..., Report]], click.Command]:
    """Make a function a command of `python -m bench` with `--json` and `--quick`; `about` is the docstring of its module."""

    def decorate(function: Callable[..., Report]) -> click.Command:
        def run(as_json: bool, **options: object) -> int:
            report = function(**options)
            for line in (msgspec.json.encode(each).decode() for each in report.documents) if as_json else (report.text,):
                print(line, flush=True)
            return report.code

        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        printed = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
        less = click.option("--quick", is_flag=True, help=quick)
        return click.command(name, help=about, short_help=(about or "").partition("\n")[0])(printed(less(run)))

    return decorate


def in_process(module: str, kind: type[T], *arguments: object) -> T:
    """Run `python -m MODULE ARGUMENTS` and return the JSON document that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return msgspec.json.decode(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=900).stdout, type=kind)


class Leadership:
    """The part of a state machine that waits for its node to lead. `leads` is set when it does, in `epoch`."""

    def __init__(self) -> None:
        self.epoch = -1
        self.leads = trio.Event()

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        pass

    async def became_leader(self, epoch: int) -> None:
        self.epoch = epoch
        self.leads.set()

    async def resigned(self, epoch: int, reason: str) -> None:
        pass


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value at or below which `percent` of the values lie. `values` must not be empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as aligned columns, the first row being the heading: text to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if n < 2 else cell.rjust(width) for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def free_ports(count: int) -> list[int]:
    """Return ports on loopback without a listener."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def run_nodes(module: str, parameters: CommitParameters, *, nodes: int = 3, timeout_s: float = 120.0) -> CommitResult:
    """Run `python -m module` once per node and return the first result of a node. All nodes end before this returns.

    A node gets `NodeArguments`, writes its result as one line of JSON to `report`, and ends when its standard input closes.
    """
    ports = tuple(free_ports(nodes))
    directory = tempfile.mkdtemp(prefix="kraftlab-bench-")
    read_end, write_end = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(nodes):
            home = os.path.join(directory, str(index))
            os.mkdir(home)
            arguments = msgspec.json.encode(NodeArguments(index, ports, home, write_end, parameters)).decode()
            command = [sys.executable, "-m", module, arguments]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(write_end,)))
        os.close(write_end)
        return msgspec.json.decode(_first_line(read_end, timeout_s), type=CommitResult)
    finally:
        os.close(read_end)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _first_line(descriptor: int, timeout_s: float) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        part = os.read(descriptor, 65536) if ready else b""
        if not part:
            raise NoResult(f"no result within {timeout_s:.0f} s: the nodes ended or hang; their messages are on stderr")
        line += part
    return line
