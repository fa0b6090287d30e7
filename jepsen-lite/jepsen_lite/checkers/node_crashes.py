"""Nodes that ended by themselves, and errors in the logs of nodes.

The end of a node by a fault does not count: the world leaves it out. A log line is a *complaint* if it shows an error in the
node's own code: an uncaught exception, a broken invariant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..verdicts import UNKNOWN, Verdict
from ..workload import Run

COMPLAINT = re.compile(
    r"Traceback \(most recent call last\)|\b\w*(?:InvariantViolation|AssertionError|InternalError)\b|\bCRITICAL\b"
)
COMPLAINTS_MAX = 20
"""Complaints shown per log."""


class NodeCrashes:
    """A node that ended by itself makes the run invalid. The verdict is "unknown" if no node was observed."""

    name = "node-crashes"

    def check(self, run: Run) -> Verdict:
        if run.node_exits:
            node, words = next(iter(run.node_exits.items()))
            last = words.strip().splitlines()[-1:] or ["no output"]
            more = f"; and {len(run.node_exits) - 1} more" if len(run.node_exits) > 1 else ""
            reason = f"node {node} ended by itself: {last[0]}{more}"
            details = {"exits": {str(node): words for node, words in run.node_exits.items()}}
            return Verdict(checker=self.name, valid=False, kind="crash", reason=reason, details=details)
        if not run.observations and not run.history:
            return Verdict(checker=self.name, valid=UNKNOWN, kind="crash", reason="no node was watched")
        return Verdict(
            checker=self.name, valid=True, kind="crash", details={"nodes": len({seen.node for seen in run.observations})}
        )


class LogScan:
    """Read all `*.log` files of a directory."""

    name = "node-logs"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def check(self, run: Run) -> Verdict:
        found: dict[str, list[str]] = {}
        lines = 0
        for path in sorted(self._directory.glob("*.log")):
            with path.open(errors="replace") as file:
                count, complaints = scan(file)
            lines += count
            if complaints:
                found[path.name] = complaints
        if found:
            name, complaints = next(iter(found.items()))
            more = sum(map(len, found.values())) - 1
            reason = f"{name}: {complaints[0]}" + (f"; and {more} more" if more else "")
            return Verdict(checker=self.name, valid=False, kind="crash", reason=reason, details={"complaints": found})
        if not lines:
            return Verdict(checker=self.name, valid=UNKNOWN, kind="crash", reason=f"there is no log in {self._directory}")
        return Verdict(checker=self.name, valid=True, kind="crash", details={"lines": lines})


def scan(lines: Iterable[str]) -> tuple[int, list[str]]:
    """Count the lines, and return the first complaints as "line number: text"; of a traceback, the line with the exception. A
    traceback in the log is indented, one of the interpreter's own is not; in JSON it is part of its line.
    """
    complaints: list[str] = []
    count = 0
    traceback_at: int | None = None
    """Column of the traceback that is being read."""
    for count, line in enumerate(lines, 1):
        text = line.rstrip("\n")
        if traceback_at is not None:
            if not text.strip() or text[: traceback_at + 1].isspace():
                continue
            traceback_at = None
        elif not COMPLAINT.search(text):
            continue
        elif "Traceback (most recent call last)" in text and text[0] != "{":
            traceback_at = len(text) - len(text.lstrip()) - (2 if "+ Exception Group" in text else 0)
            continue
        if len(complaints) < COMPLAINTS_MAX:
            complaints.append(f"line {count}: {text.strip()}")
    if traceback_at is not None:
        complaints.append(f"line {count}: a traceback that was cut off")
    return count, complaints
