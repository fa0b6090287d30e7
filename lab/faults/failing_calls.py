"""File calls of nodes that fail on order: any error, in any file, as a bad disk returns it.

Theory of operation. A small library (`failing_calls.c`, built with the system's C compiler) stands between the nodes and libc by
LD_PRELOAD, below Python's own file calls. It and this module share a mapped file: this module writes rules into it, the library
looks at it in each call. So faults begin and end at once, in running processes, without rights of root. Not covered: reads
through mmap, listings of directories, and questions about files (stat).
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kraftlab.config.private_files import PRIVATE_DIRECTORY, PRIVATE_FILE

from ..cluster_plan import ClusterError

CONTROL = "KRAFTLAB_FAILING_CALLS"
PRELOAD = "LD_PRELOAD"
CALLS = ("open", "create", "write", "read", "truncate", "sync", "rename", "remove", "mkdir")
"""Kinds of calls. `create` opens a file that may be new; `remove` is for files and directories."""
ANY_CALL = "*"
SHORT = 0
"""In place of an errno: a write that writes half of its bytes."""
_SOURCE = Path(__file__).with_suffix(".c")
_COUNT = slice(8, 16)
_TABLES_AT = 16
_TABLE_BYTES = 16 * 1024
_BUILD_TIMEOUT_S = 60.0


class Rule(NamedTuple):
    """Calls of that kind, on a path that matches the pattern ("*" matches "/" too), fail with `number`."""

    call: str
    number: int
    pattern: str


def rules_below(directory: Path, call: str, number: int) -> list[Rule]:
    """Return rules for a directory and everything in it, by its name and, if that is another, by its real path."""
    paths = dict.fromkeys(_UNSAFE.sub(_escaped, str(path)) for path in (directory, directory.resolve()))
    return [Rule(call, number, pattern) for path in paths for pattern in (path, f"{path}/*")]


_UNSAFE = re.compile(r"[][*?\\\n]")


def _escaped(character: re.Match[str]) -> str:
    """Return the pattern of a character. A rule ends with its line, so a newline is written as any character."""
    return "?" if character[0] == "\n" else "\\" + character[0]


class FailingCalls:
    """A built library with its control page, in `directory`. One for all nodes of a cluster; patterns choose among them.

    ClusterError without a C compiler, or where the library cannot be built or loaded.
    """

    def __init__(self, directory: Path) -> None:
        self._library = directory / "failing_calls.so"
        if not sys.platform.startswith("linux"):
            raise ClusterError("file calls of nodes fail on order only on Linux")
        if re.search(r"[\s:]", str(self._library)):
            raise ClusterError(f"no library is loaded from {directory}; use a directory without spaces and colons")
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        _build(self._library)
        self._control = directory / "failing_calls.page"
        size_bytes = _TABLES_AT + 2 * _TABLE_BYTES
        self._control.touch(PRIVATE_FILE)
        self._control.write_bytes(bytes(size_bytes))
        with self._control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), size_bytes)

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
        self.set_rules(rules)
        try:
            yield
        finally:
            self.set_rules(())

    def set_rules(self, rules: Iterable[Rule]) -> None:
        """Put these rules, tried in this order, in force instead of former ones. ClusterError if they are too many; the former
        ones then stay.
        """
        lines = [f"{rule.call} {rule.number} {rule.pattern}\n" for rule in rules]
        text = os.fsencode("".join(lines)) + b"\0"
        if len(text) > _TABLE_BYTES:
            raise ClusterError(f"{len(lines)} rules for file calls take more than {_TABLE_BYTES} bytes; undo other faults first")
        table = 2 if self._page[0] == 1 else 1
        start = _TABLES_AT + (table - 1) * _TABLE_BYTES
        self._page[start : start + len(text)] = text
        self._page[0] = table if lines else 0

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
    library.chmod(PRIVATE_DIRECTORY)
