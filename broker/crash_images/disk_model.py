"""Disks as a crash sees them: which of a program's file operations have reached the platter for certain, and which may have.

Theory of operation. A write or a change of length is certain once its file is synced, a name (created, renamed, removed) once its
directory is. Everything younger is *pending*, and a loss of power keeps any part of it. What is tried, at each moment:

- data of each file: none of what is pending, all of it, all but half of the last write (torn), or the new length with zeros where
  the data should be. All files alike, and each file alone lost or kept where the others are not;
- names, *in order*: as a journal does it, what is pending on a disk is kept up to some moment, and a sync of any directory brings
  everything before it along. Each disk by itself;
- names, *in any order*: each subset of what is pending, as POSIX allows; where more than `SUBSETS_MAX_CHANGES` are pending, each
  alone, each missing alone, and all prefixes.

A rename is one change: the old name, or the new one. A process that is killed on a machine that lives on loses nothing: that is
the image with everything in it.

Where that would be too many, one is drawn: each name by itself, and each sector of what was written, kept or lost.

Not modelled: sectors that keep an older version than the last sync, bits that rot, and a sync of a file that brings its name
along (some file systems do that; who needs it is wrong).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

SUBSETS_MAX_CHANGES = 5
SECTOR_BYTES = 512


class Create(NamedTuple):
    """A file or directory comes, empty."""

    directory: int
    name: str
    inode: int
    is_directory: bool


class Rename(NamedTuple):
    """Within one directory; what had the new name goes."""

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
    """No operation of the disk: what was true from here on, for whoever judges the images."""

    what: str
    value: Any = None


NameChange = Create | Rename | Remove
Operation = NameChange | Write | Resize | SyncFile | SyncDirectory | Mark
Tree = tuple[tuple[str, bytes | None], ...]
"""(path, content; None: a directory), by path. What lies on all disks."""

LOST, ALL, TORN, ZEROS = "lost", "all", "torn", "zeros"
POLICIES = (LOST, ALL, TORN, ZEROS)
"""What becomes of a file's pending writes."""


class _File:
    __slots__ = ("data", "durable", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.pending: list[Write | Resize] = []

    def change(self, operation: Write | Resize) -> None:
        self.pending.append(operation)
        _change(self.data, operation)

    def content(self, policy: str) -> bytes:
        if policy == ALL or not self.pending:
            return bytes(self.data)
        if policy == LOST:
            return self.durable
        if policy == ZEROS:
            return self.durable[: len(self.data)].ljust(len(self.data), b"\0")
        torn = bytearray(self.durable)
        *earlier, last = self.pending
        for operation in earlier:
            _change(torn, operation)
        if isinstance(last, Write):
            _change(torn, last._replace(data=last.data[: len(last.data) // 2]))
        return bytes(torn)

    def drawn(self, random: Random, keep: float) -> bytes:
        """A change of length that is lost takes all with it that came later."""
        found, writes = bytearray(self.durable), list[Write]()
        for operation in self.pending:
            if isinstance(operation, Write):
                writes.append(operation)
                continue
            _keep_sectors(found, writes, random, keep)
            writes.clear()
            if random.random() >= keep:
                return bytes(found)
            _change(found, operation)
        _keep_sectors(found, writes, random, keep)
        return bytes(found)


def _keep_sectors(data: bytearray, writes: Sequence[Write], random: Random, keep: float) -> None:
    """Of what was written each sector is kept or not, by chance; where one is missing before another are zeros."""
    seen = bytearray(data)
    sectors: set[int] = set()
    for write in writes:
        _change(seen, write)
        sectors.update(range(write.position // SECTOR_BYTES, -(-(write.position + len(write.data)) // SECTOR_BYTES)))
    for sector in sorted(sectors):
        if random.random() < keep:
            start = sector * SECTOR_BYTES
            _change(data, Write(-1, start, bytes(seen[start : start + SECTOR_BYTES])))
    if len(data) < len(seen) and random.random() < keep:
        data.extend(bytes(len(seen) - len(data)))


def _change(data: bytearray, operation: Write | Resize) -> None:
    if isinstance(operation, Resize):
        data[operation.size_bytes :] = bytes(max(0, operation.size_bytes - len(data)))
        return
    end = operation.position + len(operation.data)
    data.extend(bytes(max(0, end - len(data))))
    data[operation.position : end] = operation.data


class _Pending(NamedTuple):
    number: int
    change: NameChange


Names = dict[int, dict[str, int]]
"""Of each directory: name → inode."""


class DiskModel:
    """Disks by the names of their roots, each a directory that is there from the beginning. `apply` takes operations in order."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = {name: number for number, name in enumerate(roots)}
        self.names: Names = {number: {} for number in self.roots.values()}
        self._durable: Names = {number: {} for number in self.roots.values()}
        self._disk_of = {number: number for number in self.roots.values()}
        self._files: dict[int, _File] = {}
        self._pending: list[_Pending] = []
        self._settled = dict.fromkeys(self.roots.values(), 0)
        """Of each disk: changes of names below this number are certain where names persist in order."""
        self._number = 0

    def apply(self, operation: Operation) -> None:
        self._number += 1
        match operation:
            case Write() | Resize():
                self._files[operation.inode].change(operation)
            case SyncFile(inode):
                file = self._files[inode]
                file.durable, file.pending = bytes(file.data), []
            case SyncDirectory(inode):
                self._sync_directory(inode)
            case Create():
                self._disk_of[operation.inode] = self._disk_of[operation.directory]
                if operation.is_directory:
                    self.names[operation.inode], self._durable[operation.inode] = {}, {}
                else:
                    self._files[operation.inode] = _File()
                self._rename(operation)
            case Rename() | Remove():
                self._rename(operation)
            case Mark():
                pass

    def _rename(self, change: NameChange) -> None:
        _apply_to(self.names, change)
        self._pending.append(_Pending(self._number, change))

    def _sync_directory(self, inode: int) -> None:
        for pending in self._pending:
            if pending.change.directory == inode:
                _apply_to(self._durable, pending.change)
        self._pending = [pending for pending in self._pending if pending.change.directory != inode]
        self._settled[self._disk_of[inode]] = self._number

    def is_directory(self, inode: int) -> bool:
        return inode in self.names

    def disk_of(self, inode: int) -> int:
        """The inode of the root under which it lies."""
        return self._disk_of[inode]

    def inodes(self) -> Iterable[int]:
        return (*self.names, *self._files)

    # -- images ---------------------------------------------------------------------------------------------------------------

    def as_seen(self) -> Tree:
        """What programs see, and what is left when a process is killed."""
        return self._tree(self.names, partial(self._content, {}), self.roots)

    def after_power_loss(self, disk: str, random: Random) -> Tree:
        """One of the images of that disk, drawn: often all is lost that may be, often nothing, else some of it."""
        keep = random.choice((0.0, 1.0, 0.5, 0.5, random.random()))
        root = self.roots[disk]
        names = {inode: dict(entries) for inode, entries in self._durable.items()}
        for pending in self._pending:
            if self._disk_of[pending.change.directory] == root and random.random() < keep:
                _apply_to(names, pending.change)
        return self._tree(names, lambda inode: self._files[inode].drawn(random, keep), {disk: root})

    def forget(self, disk: str) -> None:
        """The disk is empty, and that is certain."""
        root = self.roots[disk]
        self._pending = [pending for pending in self._pending if self._disk_of[pending.change.directory] != root]
        for inode in [inode for inode in self.inodes() if self._disk_of[inode] == root]:
            for known in (self.names, self._durable, self._files):
                known.pop(inode, None)
        self.names[root], self._durable[root] = {}, {}

    def in_order(self) -> Iterator[Tree]:
        """After a loss of power, where each disk keeps changes of names in their order."""
        yield from self._with_data(self._orders())

    def in_any_order(self) -> Iterator[Tree]:
        """After a loss of power, where changes of names are kept or not one by one. Those in order are among them, or nearly."""
        yield from self._with_data(self._subsets())

    def _orders(self) -> Iterator[Sequence[_Pending]]:
        by_disk: list[list[list[_Pending]]] = []
        for disk in self.roots.values():
            of_disk = [pending for pending in self._pending if self._disk_of[pending.change.directory] == disk]
            certain = sum(pending.number < self._settled[disk] for pending in of_disk)
            by_disk.append([of_disk[:count] for count in range(certain, len(of_disk) + 1)])
        for choice in itertools.product(*by_disk):
            yield sorted(itertools.chain.from_iterable(choice))

    def _subsets(self) -> Iterator[Sequence[_Pending]]:
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

    def _with_data(self, choices: Iterable[Sequence[_Pending]]) -> Iterator[Tree]:
        unsure = [inode for inode, file in self._files.items() if file.pending]
        for chosen in choices:
            names = {inode: dict(entries) for inode, entries in self._durable.items()}
            for pending in chosen:
                _apply_to(names, pending.change)
            is_extreme = len(chosen) in (0, len(self._pending))
            for policy in POLICIES if unsure else (ALL,):
                yield self._tree(names, partial(self._content, dict.fromkeys(unsure, policy)), self.roots)
                if is_extreme and len(unsure) > 1 and policy in (ALL, LOST):
                    for odd in unsure:
                        odd_one = {**dict.fromkeys(unsure, policy), odd: LOST if policy == ALL else ALL}
                        yield self._tree(names, partial(self._content, odd_one), self.roots)

    def _content(self, policies: dict[int, str], inode: int) -> bytes:
        return self._files[inode].content(policies.get(inode, ALL))

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
    """A change on top of any others: what it needs and does not find, it does without."""
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
