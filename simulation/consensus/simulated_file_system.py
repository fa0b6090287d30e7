"""A simulated disk that keeps exactly the data that POSIX promises to keep. A power cut can lose all other data.

Files are those of the disk model (`kraftlab.checking.disk_model`). A power cut treats every 512-byte sector that was written
since the last `fdatasync` by itself: lost, kept, or torn in the middle of a page. A directory entry that was created, renamed or
removed and not fsynced is kept or lost by itself. A rename loses no file: it has the old name, the new name, or both. A kill
without a power cut (the process dies, the machine goes on) loses only open handles.

Faults on demand: a power cut at the n-th operation, a full disk, an fsync that fails and loses the dirty pages, a disk on which
everything fails, a directory that refuses renames and removals. The fault atlas decides where bits rot (fault_atlas.py). Not
modelled: sectors that keep an older unsynced version; only experiments direct writes elsewhere (`overwrite`).
"""

from __future__ import annotations

from random import Random

from kraftlab.checking.disk_model import FileModel, draw_keep
from kraftlab.quorum.storage.errors import DiskFailed, FsyncFailed, StorageFull


class PowerCut(Exception):
    """Power is gone, and the operation did not happen. `crash` must be called next."""


class SimulatedFile:
    """An open file of a SimulatedFileSystem."""

    __slots__ = ("_boot", "_file_system", "_inode", "path")

    def __init__(self, file_system: SimulatedFileSystem, path: str, inode: FileModel) -> None:
        self.path = path
        self._file_system = file_system
        self._inode = inode
        self._boot = file_system.boots

    def _operation(self, needs_space: bool = False) -> SimulatedFileSystem:
        """Count one operation on this file. Raises the errors of `SimulatedFileSystem.operation`."""
        file_system = self._file_system
        if self._boot != file_system.boots:
            raise AssertionError(f"{self.path}: used after the crash of the process that opened it")
        file_system.operation(self.path, needs_space)
        return file_system

    def pread(self, size_bytes: int, position: int) -> bytes:
        if self._file_system.broken:
            raise DiskFailed(f"cannot read {self.path}: the simulated disk is broken")
        return bytes(self._inode.data[position : position + size_bytes])

    def pwrite(self, data: bytes, position: int) -> None:
        inode = self._inode
        self._operation(position + len(data) > len(inode.data))
        inode.write(data, position)

    def preallocate(self, size_bytes: int) -> None:
        inode = self._inode
        if size_bytes > len(inode.data):
            self._operation(True)
            inode.write(bytes(size_bytes - len(inode.data)), len(inode.data))

    def fdatasync(self) -> None:
        file_system, inode = self._operation(), self._inode
        if file_system.syncs_left is not None:
            file_system.sync(self.path)
        if file_system.fsync_fails:
            inode.replace(inode.durable())
            raise FsyncFailed(f"fsync of {self.path} failed: simulated")
        inode.sync()

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        """Do nothing: handles die with the process."""


class SimulatedFileSystem:
    """The file system of one disk. Directories are durable at once, since storage creates them once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names: dict[str, FileModel] = {}
        self._durable_names: dict[str, FileModel] = {}
        self._directories: dict[str, set[str]] = {}
        self._unsynced_names: dict[str, set[str]] = {}
        """By directory, the paths whose entry has changed since the directory was synced."""
        self._renamed: dict[str, FileModel] = {}
        """By old path, files that were renamed since: each keeps the old name or gets the new one."""
        self.boots = 0
        self.operations = 0
        self.operations_left: int | None = None
        """Number of operations that still succeed before power goes; None: power stays."""
        self.syncs_left: int | None = None
        """Number of calls of fdatasync that succeed before power goes. Later data is half-way to the disk then."""
        self.full = False
        self.fsync_fails = False
        self.broken = False
        """True if every operation and every read fails."""
        self.refuses_names = False
        """True if renames and removals fail."""

    @property
    def is_well(self) -> bool:
        return not (self.full or self.fsync_fails or self.broken or self.refuses_names)

    def heal(self) -> None:
        """End all faults."""
        self.full = self.fsync_fails = self.broken = self.refuses_names = False

    def sync(self, path: str) -> None:
        """Count one fdatasync. PowerCut if no more succeed."""
        assert self.syncs_left is not None
        if self.syncs_left <= 0:
            raise PowerCut(path)
        self.syncs_left -= 1

    def operation(self, path: str, needs_space: bool = False) -> None:
        """Count one operation. PowerCut if no more succeed; DiskFailed or StorageFull if a fault is on."""
        self.operations += 1
        if self.operations_left is not None:
            if self.operations_left <= 0:
                raise PowerCut(path)
            self.operations_left -= 1
        if self.broken:
            raise DiskFailed(f"cannot change {path}: the simulated disk is broken")
        if needs_space and self.full:
            raise StorageFull(f"cannot write {path}: the simulated disk is full")

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            self.operation(path, True)
            inode = FileModel()
            self._name(path, inode)
        return SimulatedFile(self, path, inode)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return SimulatedFile(self, path, inode).pread(len(inode.data), 0)

    def _name(self, path: str, inode: FileModel | None) -> None:
        directory, _, name = path.rpartition("/")
        self._unsynced_names[directory].add(path)
        if inode is None:
            self._names.pop(path, None)
            self._directories[directory].discard(name)
        else:
            self._names[path] = inode
            self._directories[directory].add(name)

    def names(self, directory: str) -> list[str]:
        return sorted(self._directories.get(directory, ()))

    def make_directory(self, path: str) -> None:
        self._directories.setdefault(path, set())
        self._unsynced_names.setdefault(path, set())

    def rename(self, source: str, target: str) -> None:
        self._operation_on_name(source)
        inode = self._names[source]
        self._name(source, None)
        self._name(target, inode)
        if self._durable_names.get(source) is inode:
            self._renamed[source] = inode

    def remove(self, path: str) -> None:
        if path in self._names:
            self._operation_on_name(path)
            self._name(path, None)

    def _operation_on_name(self, path: str) -> None:
        self.operation(path)
        if self.refuses_names:
            raise DiskFailed(f"cannot rename or remove {path}: refused by the simulated disk")

    def sync_directory(self, path: str) -> None:
        self.operation(path)
        unsynced = self._unsynced_names.get(path)
        if not unsynced:
            return
        for full in unsynced:
            inode = self._names.get(full)
            if inode is None:
                self._durable_names.pop(full, None)
            else:
                self._durable_names[full] = inode
            self._renamed.pop(full, None)
        unsynced.clear()

    def crash(self, *, power_cut: bool) -> None:
        """End the process: handles die. A power cut also loses some of the unsynced data and names."""
        self.boots += 1
        self.operations_left = self.syncs_left = None
        self.fsync_fails = False
        if not power_cut:
            return
        keep = draw_keep(self._random)
        for directory in sorted(self._directories):
            for path in sorted(self._unsynced_names[directory]):
                seen, durable = self._names.get(path), self._durable_names.get(path)
                if seen is not durable and self._random.random() >= keep:
                    self._name(path, durable)
        for path, inode in sorted(self._renamed.items()):
            if path not in self._names and all(other is not inode for other in self._names.values()):
                self._name(path, inode)
        self._renamed.clear()
        for path in sorted(self._names):
            inode = self._names[path]
            if not inode.is_certain:
                tears_pages = self._random.random() < 0.8
                inode.replace(inode.survivor(self._random, keep, tears_pages=tears_pages))
        self._durable_names = dict(self._names)
        for unsynced in self._unsynced_names.values():
            unsynced.clear()

    def durable_bytes(self, path: str) -> bytes:
        """Return the durable content of a file; empty if its name is not durable."""
        inode = self._durable_names.get(path)
        return bytes(inode.durable()) if inode is not None and self._names.get(path) is inode else b""

    def flip(self, path: str, position: int, bit: int) -> None:
        """Flip one bit of a file's data, in memory and on the disk."""
        self._names[path].data[position] ^= 1 << bit

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Replace bytes of a file, in memory and on the disk: a write that went to another place than it should, or nowhere."""
        self._names[path].data[position : position + len(data)] = data

    def snapshot(self) -> dict[str, bytes]:
        """Return the content of every file, as programs see it, for tests."""
        return {path: bytes(inode.data) for path, inode in sorted(self._names.items())}
