"""Commands that run in the process that tests, and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftlab.cli import main

from .waiting import wait_until


class Ran(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    """Run `kraftlab ARGUMENTS…`."""
    capsys.readouterr()
    code = main.run([str(argument) for argument in arguments])
    return Ran(code, *capsys.readouterr())


def plan_file(directory: Path, topic: str, replicas: list[int], **fields: Any) -> str:
    """Write a reassignment of one partition."""
    path = directory / f"{topic}.json"
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas} | fields]}))
    return str(path)


def until(run: Callable[..., tuple[int, str]], code: int, *arguments: str) -> str:
    """Repeat a command until it exits with this code, and return its output."""
    text = ""

    def exits() -> bool:
        nonlocal text
        found, text = run(*arguments)
        return found == code

    wait_until(exits, f"exit code {code} of {arguments}", 60)
    return text
