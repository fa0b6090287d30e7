"""Directories of this machine as disks: every change is applied, and then repeated in a disk model.

The broker's storage works through plain calls of `os`. Inside `watching` these calls are wrapped: a call that touches a path
below one of the disks (real directories, best on tmpfs) is applied and then noted as an operation of the disk model. So the
code under test is exactly the product's code. `check` compares the model with the real directories byte by byte, so a call that
is not wrapped cannot go unnoticed.

Only for code that does its disk work on one thread. A subclass may refuse a change before it is made (`_may`).
"""

from __future__ import annotations

import enum
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

from kraftlab.broker.log import files
from kraftlab.checking.disk_model import (
    Create,
    DiskModel,
    Operation,
    Remove,
    Rename,
    Resize,
    SyncDirectory,
    SyncFile,
    Tree,
    Write,
)

_WRAPPED = (
    *("open", "close", "pwrite", "copy_file_range", "ftruncate", "truncate", "fsync", "fdatasync"),
    *("mkdir", "rmdir", "rename", "replace", "unlink"),
)


class NotRecorded(Exception):
    """The code under test reached its disks by a call that is not wrapped here."""


def lay_out(root: Path, tree: Tree) -> None:
    """Make the directories and files of a tree below `root`."""
    for path, content in tree:
        if content is None:
            os.mkdir(root / path)
            continue
        descriptor = os.open(root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            files.write_all(descriptor, content, 0)
        finally:
            os.close(descriptor)


class Change(enum.Enum):
    """The kind of change that a call is about to make."""

    TAKE = "take space"
    GIVE = "give space back"
    NAME = "give another name"
    SYNC = "make durable"


class WatchedDisks:
    """`disks` are the watched directories; their present content is certain to be there."""

    _wrapped: Sequence[str] = _WRAPPED

    def __init__(self, disks: Sequence[Path]) -> None:
        self.disks = {disk.name: disk for disk in disks}
        self.model = DiskModel([disk.name for disk in disks])
        self._roots = [(str(disk), disk.name) for disk in disks]
        self._inodes = itertools.count(1000)
        self._descriptors: dict[int, int] = {}
        """File descriptor → inode."""
        self._real: dict[str, Callable[..., Any]] = {}
        for name in self.disks:
            self._adopt(name)

    def _adopt(self, name: str) -> None:
        """Take the content of a disk into the model, as certain."""
        for path in sorted(self.disks[name].rglob("*")):
            inode = self._create(str(path), is_directory=path.is_dir())
            if path.is_file():
                self._note(Write(inode, 0, path.read_bytes()))
        self.settle(name)

    def settle(self, name: str) -> None:
        """Make all content of a disk certain."""
        root = self.model.roots[name]
        for inode in sorted(self.model.inodes()):
            if self.model.disk_of(inode) == root:
                self._note(SyncDirectory(inode) if self.model.is_directory(inode) else SyncFile(inode))

    def tree(self) -> Tree:
        """The real content of the disks."""
        found: list[tuple[str, bytes | None]] = []
        for name, disk in self.disks.items():
            found.append((name, None))
            found += [
                (f"{name}/{path.relative_to(disk)}", None if path.is_dir() else path.read_bytes()) for path in disk.rglob("*")
            ]
        return tuple(sorted(found, key=lambda item: item[0]))

    def check(self) -> None:
        """NotRecorded if the disks differ from the model."""
        seen, real = self.model.as_seen(), self.tree()
        if seen != real:
            differing = sorted({path for path, _ in set(seen) ^ set(real)})
            raise NotRecorded(f"{', '.join(differing)} changed unseen; wrap the call that did it (watched_disks.py)")

    # -- paths ------------------------------------------------------------------------------------------------------------------

    def _place(self, path: Any, directory: int | None = None) -> tuple[int, str] | None:
        """Return (inode of the directory, name in it) of a path below a disk; "" is the disk itself. None: a path outside of the
        disks, or in a directory that does not exist.
        """
        text = os.fspath(path)
        if not isinstance(text, str):
            return None
        if directory is not None and not text.startswith("/"):
            inode = self._descriptors.get(directory)
            return None if inode is None else (inode, text)
        for root, name in self._roots:
            if text == root:
                return self.model.roots[name], ""
            if text.startswith(root + "/"):
                *parents, last = text[len(root) + 1 :].split("/")
                inode = self.model.roots[name]
                for parent in parents:
                    found = self.model.names[inode].get(parent)
                    if found is None:
                        return None
                    inode = found
                return inode, last
        return None

    def _inode(self, place: tuple[int, str]) -> int | None:
        directory, name = place
        return self.model.names[directory].get(name) if name else directory

    def _note(self, operation: Operation) -> None:
        self.model.apply(operation)

    def _create(self, path: Any, *, is_directory: bool, directory: int | None = None) -> int:
        place = self._place(path, directory)
        assert place is not None, path
        inode = next(self._inodes)
        self._note(Create(place[0], place[1], inode, is_directory))
        return inode

    def _may(self, inode: int, change: Change) -> None:
        """Raise OSError, or another error that ends the call, to refuse a change of the file or directory."""

    def _disk_name(self, inode: int) -> str:
        disk = self.model.disk_of(inode)
        return next(name for name, root in self.model.roots.items() if root == disk)

    # -- the wrapped calls ------------------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every change of the disks inside the block; check at its end. File systems are not synced as a whole."""
        self._real = {name: getattr(os, name) for name in self._wrapped}
        for name in self._wrapped:
            setattr(os, name, getattr(self, f"call_{name}"))
        try:
            with mock.patch.object(files, "syncfs", lambda: None):
                yield
        finally:
            for name, call in self._real.items():
                setattr(os, name, call)
        self.check()

    def call_open(self, path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd)
        inode = self._inode(place) if place is not None else None
        if place is not None and inode is None and flags & os.O_CREAT:
            self._may(place[0], Change.TAKE)
        if inode is not None and flags & os.O_TRUNC:
            self._may(inode, Change.GIVE)
        descriptor = cast(int, self._real["open"](path, flags, mode, dir_fd=dir_fd))
        if place is None:
            return descriptor
        if inode is None:
            inode = self._create(path, is_directory=False, directory=dir_fd)
        elif flags & os.O_TRUNC:
            self._note(Resize(inode, 0))
        self._descriptors[descriptor] = inode
        return descriptor

    def call_close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        self._real["close"](descriptor)

    def call_pwrite(self, descriptor: int, data: Any, position: int) -> int:
        inode = self._descriptors.get(descriptor)
        if inode is not None:
            self._may(inode, Change.TAKE)
        written = cast(int, self._real["pwrite"](descriptor, data, position))
        if inode is not None and written:
            self._note(Write(inode, position, bytes(data[:written])))
        return written

    def call_copy_file_range(self, source: int, target: int, count: int, from_position: int, to_position: int) -> int:
        inode = self._descriptors.get(target)
        if inode is not None:
            self._may(inode, Change.TAKE)
        copied = cast(int, self._real["copy_file_range"](source, target, count, from_position, to_position))
        if inode is not None and copied:
            self._note(Write(inode, to_position, os.pread(target, copied, to_position)))
        return copied

    def call_ftruncate(self, descriptor: int, size_bytes: int) -> None:
        inode = self._descriptors.get(descriptor)
        if inode is not None:
            self._may(inode, Change.GIVE)
        self._real["ftruncate"](descriptor, size_bytes)
        if inode is not None:
            self._note(Resize(inode, size_bytes))

    def call_truncate(self, path: object, size_bytes: int) -> None:
        place = None if isinstance(path, int) else self._place(path)
        inode = self._inode(place) if place is not None else None
        if inode is not None:
            self._may(inode, Change.GIVE)
        self._real["truncate"](path, size_bytes)
        if inode is not None:
            self._note(Resize(inode, size_bytes))

    def call_fsync(self, descriptor: int) -> None:
        self._sync("fsync", descriptor)

    def call_fdatasync(self, descriptor: int) -> None:
        self._sync("fdatasync", descriptor)

    def _sync(self, name: str, descriptor: int) -> None:
        inode = self._descriptors.get(descriptor)
        if inode is None:
            self._real[name](descriptor)
            return
        self._may(inode, Change.SYNC)
        self._note(SyncDirectory(inode) if self.model.is_directory(inode) else SyncFile(inode))

    def call_mkdir(self, path: object, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        if place is not None:
            self._may(place[0], Change.TAKE)
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if place is not None:
            self._create(path, is_directory=True, directory=dir_fd)

    def call_rmdir(self, path: object, *, dir_fd: int | None = None) -> None:
        self._remove("rmdir", path, dir_fd)

    def call_unlink(self, path: object, *, dir_fd: int | None = None) -> None:
        self._remove("unlink", path, dir_fd)

    def _remove(self, name: str, path: Any, dir_fd: int | None) -> None:
        place = self._place(path, dir_fd)
        if place is not None and self._inode(place) is not None:
            self._may(place[0], Change.GIVE)
        self._real[name](path, dir_fd=dir_fd)
        if place is not None:
            self._note(Remove(*place))

    def call_rename(self, source: object, target: object) -> None:
        self._move("rename", source, target)

    def call_replace(self, source: object, target: object) -> None:
        self._move("replace", source, target)

    def _move(self, name: str, source: Any, target: Any) -> None:
        before, after = self._place(source), self._place(target)
        inode = self._inode(before) if before is not None else None
        if inode is not None:
            self._may(inode, Change.NAME)
        self._real[name](source, target)
        if before is None or after is None or inode is None:
            return
        if before[0] != after[0]:
            raise NotRecorded(f"{source} goes to another directory, {target}; the model knows renames within one only")
        self._note(Rename(before[0], before[1], after[1], inode))
