"""Log directories of brokers, on disks that lose unsynced data at a power cut.

Theory of operation. They are real directories, in memory if the system has a file system for that, and the broker's own code
writes them. Every call that touches one is watched (`watched_disks.py`), so the disk model knows the data that is certainly on
the disk. At a power cut, one of the possible images is drawn and replaces the content of the directories. A broker has one disk,
with all of its log directories.

A node that has died changes nothing on its disk while its tasks unwind. Then its open files and their locks are released, as a
kernel would do. The last call of a dying node can be half done, with only the beginning of its data written. A full disk refuses
everything that takes space. A failed fsync leaves written data readable and uncertain. Directories are listed in the order of
names.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Self

from ..consensus.simulated_file_system import PowerCut
from ..crash_images.watched_disks import Change, WatchedDisks, lay_out


class LogDirDisk:
    """One broker's disk, an `inline_disk.Medium`. `lay_out` lays out an image after a power cut; `close` closes open files."""

    def __init__(self, name: str, lay_out: Callable[[LogDirDisk], None], close: Callable[[LogDirDisk], None]) -> None:
        self.name = name
        self._lay_out, self._close = lay_out, close
        self.full = False
        self.fsync_fails = False
        self.operations_left: int | None = None
        """Number of changes that a dying node still makes; None: it lives."""
        self.is_dead = False
        """True after the node on this disk has died."""
        self.is_laid_out = False

    def crash(self, *, power_cut: bool) -> None:
        """Close the files of a process that has ended. `power_cut`: replace the content of the disk, whose process has ended."""
        self.fsync_fails = False
        if power_cut:
            self.is_laid_out = True
            self._lay_out(self)
            self.is_laid_out = False
        else:
            self._close(self)
            self.is_dead, self.operations_left = False, None

    def may(self, change: Change) -> None:
        """Check that the node can make the change. PowerCut, OSError."""
        if self.is_laid_out:
            return
        if self.is_dead:
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
    """The disks of all brokers. `directories`: by broker, the directory that contains its log directories and nothing else.
    `chance` makes the generator of a name. Changes inside `watching` are known.
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
        """Write the data, or only its beginning if the process dies during the call."""
        inode = self._descriptors.get(descriptor)
        disk = None if inode is None else self._media[self._disk_name(inode)]
        if disk is None or disk.operations_left != 0 or disk.is_dead:
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
        """Do nothing: there is nothing to close."""
