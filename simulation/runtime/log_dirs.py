"""Log directories of brokers, on disks that lose at a power cut what was not synced.

Theory of operation. They are real directories, in memory where the system has that, and the broker's own code writes them as
anywhere. Every call that touches one is watched (`watched_disks.py`), so the disk model knows what is certain to be on the disk.
At a power cut one of the images that may be left is drawn and laid out in place of what was there; a node that starts finds that.
A broker has one disk, with all of its log directories.

A node that dies does nothing more to its disk from that moment, whatever its tasks do while they unwind, and then gives back what
a kernel would take from it: open files, and the locks on them. The last call under way may be half done: the beginning of what it
was to write is there. A full disk refuses whatever takes space; a failed fsync leaves what was written readable, and uncertain.
Directories are listed in the order of their names.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Self

from kraftlab.broker.crash_images.watched_disks import Change, WatchedDisks, lay_out

from ..consensus.simulated_file_system import PowerCut


class LogDirDisk:
    """One broker's disk (`inline_disk.Medium`). `lay_out` replaces its content by what a power cut leaves; `close` gives open
    files back.
    """

    def __init__(self, name: str, lay_out: Callable[[LogDirDisk], None], close: Callable[[LogDirDisk], None]) -> None:
        self.name = name
        self._lay_out, self._close = lay_out, close
        self.full = False
        self.fsync_fails = False
        self.operations_left: int | None = None
        """Changes that a node still makes which dies; None: it lives."""
        self.is_still = False
        """The node that works on it has died."""
        self.is_laid_out = False

    def crash(self, *, power_cut: bool) -> None:
        """The process is gone, or the power of a disk on which nobody works any more."""
        self.fsync_fails = False
        if power_cut:
            self.is_laid_out = True
            self._lay_out(self)
            self.is_laid_out = False
        else:
            self._close(self)
            self.is_still, self.operations_left = False, None

    def may(self, change: Change) -> None:
        """PowerCut, OSError."""
        if self.is_laid_out:
            return
        if self.is_still:
            raise PowerCut(self.name)
        if self.operations_left is not None:
            if self.operations_left <= 0:
                raise PowerCut(self.name)
            self.operations_left -= 1
        if self.full and change is Change.TAKE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)
        if self.fsync_fails and change is Change.SYNC:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.name)


class LogDirDisks(WatchedDisks):
    """`directories`: of each broker that which holds its log directories and nothing else. `chance` makes the generator of a
    name. What is done inside `watching` is known.
    """

    _wrapped = (*WatchedDisks._wrapped, "listdir", "scandir")

    def __init__(self, directories: Mapping[int, Path], chance: Callable[[str], Random]) -> None:
        super().__init__(list(directories.values()))
        self._chance = chance("log directories")
        self._media = {path.name: LogDirDisk(path.name, self._lay_out, self._close) for path in directories.values()}
        self.by_broker = {broker: self._media[path.name] for broker, path in directories.items()}

    def _may(self, inode: int, change: Change) -> None:
        self._media[self._disk_name(inode)].may(change)

    def _lay_out(self, disk: LogDirDisk) -> None:
        image, root = self.model.after_power_loss(disk.name, self._chance), self.disks[disk.name]
        for path in sorted(root.iterdir()):
            shutil.rmtree(path)
        self.model.forget(disk.name)
        lay_out(root.parent, image[1:])
        self.settle(disk.name)

    def _close(self, disk: LogDirDisk) -> None:
        for descriptor in [each for each, inode in self._descriptors.items() if self._disk_name(inode) == disk.name]:
            os.close(descriptor)

    # -- the wrapped calls ----------------------------------------------------------------------------------------------

    def call_pwrite(self, descriptor: int, data: Any, position: int) -> int:
        """As wrapped, or the beginning of it, as by a process that dies within the call."""
        inode = self._descriptors.get(descriptor)
        disk = None if inode is None else self._media[self._disk_name(inode)]
        if disk is None or disk.operations_left != 0 or disk.is_still:
            return super().call_pwrite(descriptor, data, position)
        disk.operations_left = 1
        super().call_pwrite(descriptor, memoryview(data)[: self._chance.randrange(len(data) + 1)], position)
        disk.operations_left = -1
        raise PowerCut(disk.name)

    def call_listdir(self, path: object = ".") -> list[object]:
        return sorted(self._real["listdir"](path))

    def call_scandir(self, path: object = ".") -> _Entries:
        with self._real["scandir"](path) as entries:
            return _Entries(sorted(entries, key=lambda entry: entry.name))


class _Entries(list["os.DirEntry[Any]"]):
    """The result of `os.scandir`, read as a whole."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""
