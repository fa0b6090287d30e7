"""README's tour and its Python, played as they stand there.

Each shell block runs, and its output is compared with the text block that follows. Numbers, ids, times and values that are
not known yet ("?") are masked in both; a line "…" stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LAB = "/tmp/lab"
READY = "Ctrl-C stops the cluster"


class Step(NamedTuple):
    """A command of the tour and the output below it."""

    command: str
    output: str


PROGRESS = re.compile(r"^\d+ of \d+: .* simulated hours per second\n", re.MULTILINE)
"""Lines of a simulation that takes longer than a few seconds, as on a loaded machine."""


def steps() -> list[Step]:
    tour = README[README.index("## The tour") : README.index("## I want to")]
    blocks = re.findall(r"```(sh|text)\n(.*?)\n```", tour, re.DOTALL)
    shown = {number: text for (kind, text), number in zip(blocks[1:], range(len(blocks)), strict=False) if kind == "text"}
    return [Step(text, shown.get(number, "")) for number, (kind, text) in enumerate(blocks) if kind == "sh"]


def masked(output: str) -> list[str]:
    """Return the lines of an output without what differs from run to run."""
    lines = []
    for line in output.splitlines():
        line = re.sub(r"[\w-]{22}\b", "ID", line)
        line = re.sub(r"\S*\d\S*(?: (?:[KMG]?i?B(?:/s)?|s)\b)?|\?", "N", line)
        line = re.sub(r"N(?:\s+N)+", "N", line)
        lines.append(re.sub(r"\s+", " ", line).strip())
    return [line for line in lines if line]


def matches(output: list[str], expected: list[str]) -> bool:
    """Return whether an output has the expected lines in their order; only "…" lets lines stand between them."""
    pattern = "".join("(?:[^\n]*\n)*?" if line == "…" else re.escape(line) + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in output)) is not None


@pytest.fixture(scope="module")
def bin_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the command `kraftlab`, as an installation has it."""
    directory = tmp_path_factory.mktemp("bin")
    script = directory / "kraftlab"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m kraftlab.cli.main "$@"\n')
    script.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bin_directory: Path) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """The output of the tour's first command, its directory, and the environment of the others."""
    first, *_ = steps()
    directory = tmp_path_factory.mktemp("tour")
    environment = os.environ | {"PATH": f"{bin_directory}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    said = directory / "up.txt"
    with open(said, "w") as output:
        command = first.command.replace(LAB, str(directory / "lab")).split()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while READY not in said.read_text():
            assert process.poll() is None and time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)
        yield said.read_text(), directory, environment
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_the_tour_begins_with_a_cluster_that_prints_its_endpoints(cluster: tuple[str, Path, dict[str, str]]) -> None:
    said, _, _ = cluster
    first, *others = steps()
    assert matches(masked(said), masked(first.output)), said
    assert len(others) == 10


@pytest.mark.nightly
def test_the_tour_plays_as_it_is_written(cluster: tuple[str, Path, dict[str, str]]) -> None:
    _, directory, environment = cluster
    for step in steps()[1:]:
        command = step.command.replace("/tmp/", f"{directory}/")
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment, check=False
        )
        assert done.returncode == 0, (step.command, done.stdout, done.stderr)
        assert PROGRESS.sub("", done.stderr) == "", step.command
        assert matches(masked(done.stdout), masked(step.output)), f"$ {step.command}\n{done.stdout}"


def test_the_python_of_the_readme_runs(cluster: tuple[str, Path, dict[str, str]]) -> None:
    said, _, environment = cluster
    (code,) = re.findall(r"```python\n(.*?)```", README[README.index("## In Python") :], re.DOTALL)
    endpoint = re.search(r"gRPC\): (127\.0\.0\.1:\d+)", said)
    assert endpoint is not None
    code = re.sub(r"127\.0\.0\.1:\d+", endpoint[1], code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["payments", "0"], ["payments", "1"], ["payments", "2"]]


def test_a_mask_keeps_words_and_drops_numbers() -> None:
    assert masked("clicks-0   67.0  2,3   57.6 KiB  4s   User:ANONYMOUS  -") == ["N User:ANONYMOUS -"]
    assert matches(["a", "b", "c"], ["a", "…", "c"])
    assert not matches(["a", "c", "b"], ["a", "…", "c"])
    assert all(earlier != later for earlier, later in pairwise(steps()))
