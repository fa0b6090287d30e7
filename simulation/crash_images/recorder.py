"""Recorder of the file operations of the code under test (`watched_disks.py`).

Faults on demand: from `fail_with` on, every write to a disk raises that error instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kraftlab.checking.disk_model import Mark, Operation

from .watched_disks import Change, WatchedDisks


class Recorder(WatchedDisks):
    """`trace` holds the operations in order; it begins with the content that the disks had, made certain."""

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
        """Let every write to the disk fail with that errno; None: the disk works again."""
        self._failing.pop(disk.name, None)
        if number is not None:
            self._failing[disk.name] = number

    def _may(self, inode: int, change: Change) -> None:
        """OSError if the disk has to fail."""
        name = self._disk_name(inode)
        number = self._failing.get(name)
        if number is not None and change is not Change.GIVE:
            raise OSError(number, os.strerror(number), name)
