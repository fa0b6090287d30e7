"""Recorded runs of Apache Kafka 4.3's tools, and the files they were given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

TRANSCRIPTS = Path(__file__).parent / "transcripts"
CAPTURE = Path(__file__).parents[2] / "examples" / "capture"


class Transcript(NamedTuple):
    """One run: exit code and what it printed, line by line."""

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
