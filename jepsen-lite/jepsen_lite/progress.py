"""Progress of a run on stderr: operations by outcome, faults in force, the leader."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from .history import FAIL, INFO, OK, Op
from .worlds.world import RunStatus

_LINE_EVERY_NS = 5_000_000_000
"""Without a terminal a line is printed this often, and at each new phase."""


class Progress:
    """A `Listener` (worlds/world.py). On a terminal it keeps one line up to date."""

    def __init__(self, title: str, *, is_terminal: bool | None = None, write: Callable[[str], object] | None = None) -> None:
        self._title = title
        self._write = write or _to_stderr
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._counts: Counter[str] = Counter()
        self._shown_counts: Counter[str] = Counter()
        self._shown_ns = 0
        self._phase = ""
        self._width = 0

    def ended(self, op: Op) -> None:
        self._counts[op.outcome] += 1

    def report(self, status: RunStatus) -> None:
        is_new_phase = status.phase != self._phase
        if not is_new_phase and not self._is_terminal and status.now_ns - self._shown_ns < _LINE_EVERY_NS:
            return
        line = self.line(status)
        if self._is_terminal:
            self._write(f"\r{line:<{self._width}}")
            self._width = len(line)
        else:
            self._write(line + "\n")
        self._phase, self._shown_ns, self._shown_counts = status.phase, status.now_ns, Counter(self._counts)

    def line(self, status: RunStatus) -> str:
        """Return one line about the time since the last line."""
        seconds = max((status.now_ns - self._shown_ns) / 1e9, 1e-9)
        since = self._counts - self._shown_counts
        rate = f"{since.total() / seconds:.0f}/s" if seconds > 0.1 else "-/s"
        parts = [
            f"{self._title} {status.phase:<7} {max(status.now_ns, 0) / 1e9:5.1f} s",
            f"{rate:>5}: " + " ".join(f"{outcome} {since[outcome]}" for outcome in (OK, FAIL, INFO)),
        ]
        if status.epoch >= 0:
            leader = str(status.leader) if status.leader >= 0 else "none"
            parts.append(f"leader {leader} (epoch {status.epoch}) lag {status.lag}")
        if status.down:
            parts.append("silent " + ",".join(map(str, status.down)))
        if status.faults:
            parts.append("faults " + ",".join(status.faults))
        return " | ".join(parts)

    def done(self) -> None:
        """Keep the last line on the terminal."""
        if self._is_terminal and self._width:
            self._write("\n")


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
