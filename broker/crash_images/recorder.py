"""Records what the code under test does to its disks, while it really does it (`watched_disks.py`).

Faults on demand: from `fail_with` on, whatever would write to a disk raises that error instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kraftlab.checking.disk_model import Mark, Operation

from .watched_disks import Change, WatchedDisks


class Recorder(WatchedDisks):
    """`trace` is what was done, in order; it begins with what there was, made certain."""

    def __init__(self, disks: Sequence[Path]) -> None:
        self.trace: list[Operation] = []
        self._failing: dict[str, int] = {}
        super().__init__(disks)

    def _note(self, operation: Operation) -> None:
        self.trace.append(operation)
        super()._note(operation)

    def mark(self, what: str, value: object = None) -> None:
        self._note(Mark(what, value))

    def fail_with(self, disk: Path, number: int | None) -> None:
        """Whatever would write to the disk fails with that errno from now on; None: it works again."""
        self._failing.pop(disk.name, None)
        if number is not None:
            self._failing[disk.name] = number

    def _may(self, inode: int, change: Change) -> None:
        """OSError if that disk is told to fail."""
        name = self._disk_name(inode)
        number = self._failing.get(name)
        if number is not None and change is not Change.GIVE:
            raise OSError(number, os.strerror(number), name)
