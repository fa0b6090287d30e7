"""File calls of nodes that fail on order: any error, in any file, as a bad disk returns it.

Theory of operation. A small library (`failing_calls.c`, built with the system's C compiler) stands between the nodes and libc by
LD_PRELOAD, below Python's own file calls. It and this module share one page: this module writes rules into it, the library looks
at it in each call. So faults begin and end at once, in running processes, without rights of root. Reads through mmap are not
covered.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..cluster_plan import ClusterError

CONTROL = "KRAFTLAB_FAILING_CALLS"
PRELOAD = "LD_PRELOAD"
CALLS = ("open", "create", "write", "read", "truncate", "sync", "rename", "remove", "mkdir")
"""Kinds of calls. `create` opens a file that may be new; `remove` is for files and directories."""
SHORT = 0
"""In place of an errno: a write that writes half of its bytes."""
_SOURCE = Path(__file__).with_suffix(".c")
_COUNT = slice(8, 16)
_RULES_AT = 16
_BUILD_TIMEOUT_S = 60.0


class Rule(NamedTuple):
    """Calls of that kind, on a path that matches the pattern ("*" matches "/" too), fail with `number`."""

    call: str
    number: int
    pattern: str


class FailingCalls:
    """A built library with its control page, in `directory`. One for all nodes of a cluster; patterns choose among them.

    ClusterError without a C compiler, or where the library cannot be built.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._library = directory / "failing_calls.so"
        _build(self._library)
        self._control = directory / "failing_calls.page"
        self._control.write_bytes(bytes(mmap.PAGESIZE))
        with self._control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process with calls that may fail, and of its children."""
        preloaded = ":".join(filter(None, (str(self._library), os.environ.get(PRELOAD))))
        return {PRELOAD: preloaded, CONTROL: str(self._control)}

    @property
    def count(self) -> int:
        """Number of calls that have failed so far."""
        return int.from_bytes(self._page[_COUNT], "little")

    @contextmanager
    def failing(self, *rules: Rule) -> Iterator[None]:
        """Let calls fail meanwhile. One at a time."""
        text = "".join(f"{rule.call} {rule.number} {rule.pattern}\n" for rule in rules).encode() + b"\0"
        assert all(rule.call in CALLS for rule in rules) and len(text) < mmap.PAGESIZE - _RULES_AT
        self._page[_RULES_AT : _RULES_AT + len(text)] = text
        self._page[0] = 1
        try:
            yield
        finally:
            self._page[0] = 0

    def close(self) -> None:
        self._page.close()


def _build(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise ClusterError("failing calls take a C compiler; install one, for example: apt-get install gcc")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise ClusterError(f"cannot build {_SOURCE.name}: {done.stderr.strip()[-500:]}")
