"""Recorded runs of Apache Kafka 4.3's tools, the files they were given, and commands run against a cluster of processes.

`run` runs commands against the first broker of the fixture `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftlab.lab import LocalCluster

from ..helpers.commands import Ran, run_command

TRANSCRIPTS = Path(__file__).parent / "transcripts"
CAPTURE = Path(__file__).parents[2] / "examples" / "capture"


class Transcript(NamedTuple):
    """One recorded run: exit code and output lines."""

    exit_code: int
    stdout: list[str]
    stderr: list[str]


@pytest.fixture(scope="session")
def transcript() -> Callable[[str], Transcript]:
    def read(name: str) -> Transcript:
        (path,) = TRANSCRIPTS.glob(f"{name}-*.txt")
        head, _, rest = path.read_text().partition("--- stdout\n")
        stdout, _, stderr = rest.partition("--- stderr\n")
        code = int(head.rpartition("[exit ")[2].partition("]")[0])
        return Transcript(code, stdout.splitlines(), stderr.splitlines())

    return read


@pytest.fixture(scope="session")
def captured() -> Callable[[str], bytes]:
    return lambda name: (CAPTURE / name).read_bytes()


@pytest.fixture
def run(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command against the cluster's first broker: `run("topics", "--list")`."""

    def call(command: str, *arguments: str) -> Ran:
        return run_command(capsys, command, "--bootstrap-server", str(cluster.node(0).grpc), *arguments)

    return call
