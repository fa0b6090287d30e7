"""Disks at a power cut: the file operations that are certainly on the disk, and the possible remains of the others.

Theory of operation. A write or a change of length is certain once its file is synced, and a name (created, renamed, removed) once
its directory is synced. Every later change is *pending*, and a power cut keeps any part of the pending changes. A process that is
killed on a machine that goes on loses nothing.

`FileModel` is one file: its content as programs see it, and an undo record of each pending change. The simulated file system of
the simulator and the watched directories of brokers (simulation/crash_images) consist of these. `DiskModel` adds the names,
and enumerates the possible images after a power cut:

- data of each file: none of the pending writes, all of them, all but half of the last one (torn), or the new length with zeros
  for the data. All files alike, and each file alone lost or kept where the others are not;
- names, *in order*: as a journal does it, the pending changes of a disk are kept up to some moment, and a sync of any directory
  makes all earlier ones certain. Each disk by itself;
- names, *in any order*: each subset of the pending changes, as POSIX allows; of more than `SUBSETS_MAX_CHANGES`, each alone, each
  missing alone, and all prefixes.

A rename is one change: the old name, or the new one. Where enumeration would give too many images, one is drawn: each name by
itself, and each sector of what was written, kept or lost.

Not modelled: sectors that keep an older version than the last sync, bits that rot, and a sync of a file that makes its name
certain (some file systems do that, but no program may rely on it).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

SUBSETS_MAX_CHANGES = 5
SECTOR_BYTES = 512
PAGE_BYTES = 4096


class Create(NamedTuple):
    """A new file or directory, empty."""

    directory: int
    name: str
    inode: int
    is_directory: bool


class Rename(NamedTuple):
    """A rename within one directory. A file that had the new name is removed."""

    directory: int
    source: str
    target: str
    inode: int


class Remove(NamedTuple):
    directory: int
    name: str


class Write(NamedTuple):
    inode: int
    position: int
    data: bytes


class Resize(NamedTuple):
    inode: int
    size_bytes: int


class SyncFile(NamedTuple):
    inode: int


class SyncDirectory(NamedTuple):
    inode: int


class Mark(NamedTuple):
    """Not an operation: a fact that is true from here on, for the judge of the images."""

    what: str
    value: Any = None


NameChange = Create | Rename | Remove
Operation = NameChange | Write | Resize | SyncFile | SyncDirectory | Mark
Tree = tuple[tuple[str, bytes | None], ...]
"""(path, content; None: a directory) of everything on all disks, by path."""

LOST, ALL, TORN, ZEROS = "lost", "all", "torn", "zeros"
POLICIES = (LOST, ALL, TORN, ZEROS)
"""Fates of a file's pending changes."""


def draw_keep(random: Random) -> float:
    """Draw the share of the pending changes that a power cut keeps: often none, often all."""
    return random.choice((0.0, 1.0, 0.5, 0.5, random.random()))


_Change = tuple[int, bytes | None, bytearray, int]
"""A pending change: (position, bytes written, bytes that were there, size before). None: cut or extended to that position."""


class FileModel:
    """A file; `data` is its content as programs see it."""

    __slots__ = ("_pending", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self._pending: list[_Change] = []

    @property
    def is_certain(self) -> bool:
        return not self._pending

    def write(self, data: bytes, position: int) -> None:
        own, end, size = self.data, position + len(data), len(self.data)
        if position > size:
            own.extend(bytes(position - size))
        self._pending.append((position, data, own[position:end], size))
        own[position:end] = data

    def resize(self, size_bytes: int) -> None:
        own = self.data
        self._pending.append((size_bytes, None, own[size_bytes:], len(own)))
        own[size_bytes:] = bytes(max(0, size_bytes - len(own)))

    def sync(self) -> None:
        self._pending.clear()

    def replace(self, data: bytearray) -> None:
        """Make `data` the certain content of the file."""
        self.data = data
        self._pending.clear()

    def durable(self) -> bytearray:
        """Return the content that is certainly on the disk."""
        data = self.data[:]
        for change in reversed(self._pending):
            _undo(data, change)
        return data

    def content(self, policy: str) -> bytes:
        """Return the content after a power cut, under one of `POLICIES`."""
        if policy == ALL or not self._pending:
            return bytes(self.data)
        if policy == LOST:
            return bytes(self.durable())
        if policy == ZEROS:
            return bytes(self.durable()[: len(self.data)].ljust(len(self.data), b"\0"))
        torn, last = self.data[:], self._pending[-1]
        _undo(torn, last)
        position, written, _, _ = last
        if written is not None:
            _write(torn, written[: len(written) // 2], position)
        return bytes(torn)

    def survivor(self, random: Random, keep: float, *, tears_pages: bool = True) -> bytearray:
        """Draw the content after a power cut: each written sector is kept or lost, or each page unless `tears_pages`. If a change
        of length is lost, all later changes are lost. A lost sector before a kept one is zeros.
        """
        found = self.durable()
        seen, sectors = found[:], set[int]()
        for position, written, _, _ in self._pending:
            if written is not None:
                _write(seen, written, position)
                sectors.update(range(position // SECTOR_BYTES, -(-(position + len(written)) // SECTOR_BYTES)))
                continue
            _keep_sectors(found, seen, sectors, random, keep, tears_pages)
            if random.random() >= keep:
                return found
            found[position:] = bytes(max(0, position - len(found)))
            seen, sectors = found[:], set()
        _keep_sectors(found, seen, sectors, random, keep, tears_pages)
        return found


def _write(data: bytearray, written: bytes | bytearray, position: int) -> None:
    data.extend(bytes(max(0, position - len(data))))
    data[position : position + len(written)] = written


def _undo(data: bytearray, change: _Change) -> None:
    position, _, former, size = change
    data[position : position + len(former)] = former
    del data[size:]


def _keep_sectors(found: bytearray, seen: bytearray, sectors: set[int], random: Random, keep: float, tears_pages: bool) -> None:
    """Copy the kept sectors from `seen`."""
    is_kept: dict[int, bool] = {}
    for sector in sorted(sectors):
        page = sector * SECTOR_BYTES // PAGE_BYTES
        if tears_pages or page not in is_kept:
            is_kept[page] = random.random() < keep
        if is_kept[page]:
            start = sector * SECTOR_BYTES
            _write(found, seen[start : start + SECTOR_BYTES], start)
    if len(found) < len(seen) and random.random() < keep:
        found.extend(bytes(len(seen) - len(found)))


class _PendingChange(NamedTuple):
    number: int
    change: NameChange


Names = dict[int, dict[str, int]]
"""The names in each directory: name → inode."""


class DiskModel:
    """The disks of a run, by the names of their roots, which are empty at first. `apply` takes operations in order."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = {name: number for number, name in enumerate(roots)}
        self.names: Names = {number: {} for number in self.roots.values()}
        self._durable: Names = {number: {} for number in self.roots.values()}
        self._disk_of = {number: number for number in self.roots.values()}
        self._files: dict[int, FileModel] = {}
        self._pending: list[_PendingChange] = []
        self._settled = dict.fromkeys(self.roots.values(), 0)
        """By disk, the number below which changes of names are certain if names persist in order."""
        self._number = 0

    def apply(self, operation: Operation) -> None:
        self._number += 1
        match operation:
            case Write(inode, position, data):
                self._files[inode].write(data, position)
            case Resize(inode, size_bytes):
                self._files[inode].resize(size_bytes)
            case SyncFile(inode):
                self._files[inode].sync()
            case SyncDirectory(inode):
                self._sync_directory(inode)
            case Create():
                self._disk_of[operation.inode] = self._disk_of[operation.directory]
                if operation.is_directory:
                    self.names[operation.inode], self._durable[operation.inode] = {}, {}
                else:
                    self._files[operation.inode] = FileModel()
                self._rename(operation)
            case Rename() | Remove():
                self._rename(operation)
            case Mark():
                pass

    def _rename(self, change: NameChange) -> None:
        _apply_to(self.names, change)
        self._pending.append(_PendingChange(self._number, change))

    def _sync_directory(self, inode: int) -> None:
        for pending in self._pending:
            if pending.change.directory == inode:
                _apply_to(self._durable, pending.change)
        self._pending = [pending for pending in self._pending if pending.change.directory != inode]
        self._settled[self._disk_of[inode]] = self._number

    def is_directory(self, inode: int) -> bool:
        return inode in self.names

    def disk_of(self, inode: int) -> int:
        """Return the inode of the disk's root."""
        return self._disk_of[inode]

    def inodes(self) -> Iterable[int]:
        return (*self.names, *self._files)

    # -- images ---------------------------------------------------------------------------------------------------------------

    def as_seen(self) -> Tree:
        """Return the tree that programs see, which is also the image after a kill."""
        return self._tree(self.names, lambda inode: bytes(self._files[inode].data), self.roots)

    def after_power_loss(self, disk: str, random: Random) -> Tree:
        """Draw one of the images of that disk."""
        keep = draw_keep(random)
        root = self.roots[disk]
        names = {inode: dict(entries) for inode, entries in self._durable.items()}
        for pending in self._pending:
            if self._disk_of[pending.change.directory] == root and random.random() < keep:
                _apply_to(names, pending.change)
        return self._tree(names, lambda inode: bytes(self._files[inode].survivor(random, keep)), {disk: root})

    def forget(self, disk: str) -> None:
        """Make the disk certainly empty."""
        root = self.roots[disk]
        self._pending = [pending for pending in self._pending if self._disk_of[pending.change.directory] != root]
        for inode in [inode for inode in self.inodes() if self._disk_of[inode] == root]:
            for known in (self.names, self._durable, self._files):
                known.pop(inode, None)
        self.names[root], self._durable[root] = {}, {}

    def in_order(self) -> Iterator[Tree]:
        """Yield images of power cuts in which each disk keeps changes of names in their order."""
        yield from self._with_data(self._orders())

    def in_any_order(self) -> Iterator[Tree]:
        """Yield images of power cuts in which each change of a name is kept or lost: nearly all images in order, and others."""
        yield from self._with_data(self._subsets())

    def _orders(self) -> Iterator[Sequence[_PendingChange]]:
        by_disk: list[list[list[_PendingChange]]] = []
        for disk in self.roots.values():
            of_disk = [pending for pending in self._pending if self._disk_of[pending.change.directory] == disk]
            certain = sum(pending.number < self._settled[disk] for pending in of_disk)
            by_disk.append([of_disk[:count] for count in range(certain, len(of_disk) + 1)])
        for choice in itertools.product(*by_disk):
            yield sorted(itertools.chain.from_iterable(choice))

    def _subsets(self) -> Iterator[Sequence[_PendingChange]]:
        pending = self._pending
        if len(pending) <= SUBSETS_MAX_CHANGES:
            for count in range(len(pending) + 1):
                yield from itertools.combinations(pending, count)
            return
        for place, one in enumerate(pending):
            yield pending[:place]
            yield [one]
            yield [*pending[:place], *pending[place + 1 :]]
        yield pending

    def _with_data(self, choices: Iterable[Sequence[_PendingChange]]) -> Iterator[Tree]:
        content = cache(lambda inode, policy: self._files[inode].content(policy))

        def image(names: Names, policies: dict[int, str]) -> Tree:
            return self._tree(names, lambda inode: content(inode, policies.get(inode, ALL)), self.roots)

        unsure = [inode for inode, file in self._files.items() if not file.is_certain]
        for chosen in choices:
            names = {inode: dict(entries) for inode, entries in self._durable.items()}
            for pending in chosen:
                _apply_to(names, pending.change)
            is_extreme = len(chosen) in (0, len(self._pending))
            for policy in POLICIES if unsure else (ALL,):
                yield image(names, dict.fromkeys(unsure, policy))
                if is_extreme and len(unsure) > 1 and policy in (ALL, LOST):
                    for odd in unsure:
                        yield image(names, {**dict.fromkeys(unsure, policy), odd: LOST if policy == ALL else ALL})

    def _tree(self, names: Names, content: Callable[[int], bytes], roots: dict[str, int]) -> Tree:
        found: list[tuple[str, bytes | None]] = []
        stack = list(roots.items())
        while stack:
            path, inode = stack.pop()
            if inode in names:
                found.append((path, None))
                stack += [(f"{path}/{name}", child) for name, child in names[inode].items()]
            else:
                found.append((path, content(inode)))
        return tuple(sorted(found, key=lambda item: item[0]))


def _apply_to(names: Names, change: NameChange) -> None:
    """Apply a change of names to any others. The names that it changes can be missing."""
    entries = names[change.directory]
    match change:
        case Create():
            entries[change.name] = change.inode
        case Remove():
            entries.pop(change.name, None)
        case Rename():
            if entries.get(change.source) == change.inode:
                del entries[change.source]
            entries[change.target] = change.inode
