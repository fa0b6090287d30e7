"""The file operations that storage needs, as a protocol, and the real ones.

A write is durable after `fdatasync` of its file; a name is durable after `sync_directory` of its directory (POSIX promises no
more). The simulator's implementation forgets everything else at a power cut. Errors are classified here, once: no space, no free
descriptor, a limit on the process's files or a read-only file system gives StorageFull, a failed fsync FsyncFailed, any other
error DiskFailed. Each names the file.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

from .errors import DiskFailed, FsyncFailed, StorageError, StorageFull

_MAY_PASS = {
    errno.ENOSPC: "has no space left",
    errno.EDQUOT: "has no space left",
    errno.EFBIG: "has no space left for this process",
    errno.EROFS: "is read-only",
}
_ODD_THINGS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.ELOOP})
"""Errors of a directory, a file as parent, a FIFO or socket, or a loop of symbolic links in a file's place."""
_IN_ITS_PLACE = "Something else is in the file's place: move it away, restore the file if you can, then start the node again."
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process or system without a free descriptor; connections may have taken them all."""


class File(Protocol):
    """An open file. `pread` may return fewer bytes at the end of the file; `pwrite` writes all or raises."""

    path: str

    def pread(self, size_bytes: int, position: int) -> bytes: ...

    def pwrite(self, data: bytes, position: int) -> None: ...

    def preallocate(self, size_bytes: int) -> None:
        """Make the file at least this long, the new part reading as zeros, so that later writes need no new space."""

    def fdatasync(self) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Close the file; closing it again does nothing."""


class FileReader(Protocol):
    """Operations for reading beside the node that writes. FileNotFoundError for files that are missing, or have been removed."""

    def names(self, directory: str) -> list[str]:
        """Return the names in the directory, sorted; empty if the directory is missing."""

    def read(self, path: str) -> bytes:
        """Return a whole file. OSError."""

    def open(self, path: str) -> File: ...


class FileSystem(FileReader, Protocol):
    """Names are paths with '/'. `open` raises FileNotFoundError if the file is missing and `create` is false."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def make_directory(self, path: str) -> None:
        """Create it with its parents, durably; do nothing if it exists."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...


def translate(error: OSError, action: str, path: str) -> StorageError:
    """Return the storage error for an OSError from a write-like call."""
    reason = error.strerror or str(error)
    what = _MAY_PASS.get(error.errno or 0)
    if what is not None:
        return StorageFull(
            f"cannot {action} {path}: {reason}. The disk {what}; free space or remount it, nothing is lost until then."
        )
    if error.errno in _NO_DESCRIPTOR:
        return StorageFull(
            f"cannot {action} {path}: {reason}. Let fewer connect to this node, or raise its limit of open files (ulimit -n); "
            "nothing is lost until then."
        )
    if error.errno in _ODD_THINGS:
        return DiskFailed(f"cannot {action} {path}: {reason}. {_IN_ITS_PLACE}")
    return DiskFailed(f"cannot {action} {path}: {reason}. Check the disk, then start the node again.")


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def pread(self, size_bytes: int, position: int) -> bytes:
        parts: list[bytes] = []
        try:
            while size_bytes > 0 and (part := os.pread(self._descriptor, size_bytes, position)):
                parts.append(part)
                size_bytes -= len(part)
                position += len(part)
        except OSError as error:
            raise DiskFailed(f"cannot read {self.path}: {error.strerror}. Check the disk.") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pwrite(self, data: bytes, position: int) -> None:
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._descriptor, view, position)
                view = view[written:]
                position += written
        except OSError as error:
            raise translate(error, "write", self.path) from error

    def preallocate(self, size_bytes: int) -> None:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._descriptor, 0, size_bytes)
            elif self.size() < size_bytes:
                os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise translate(error, "preallocate", self.path) from error

    def fdatasync(self) -> None:
        try:
            getattr(os, "fdatasync", os.fsync)(self._descriptor)
        except OSError as error:
            raise FsyncFailed(
                f"fsync of {self.path} failed: {error.strerror}. What was written last may be lost, so this process ends; "
                "check the disk and start the node again, it will read what is really there."
            ) from error

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.close(descriptor)
        except OSError as error:
            raise FsyncFailed(
                f"close of {self.path} failed: {error.strerror}. Check the disk and start the node again."
            ) from error


PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Modes of new files and directories: the metadata log and its snapshots hold the keys of SCRAM users."""


def without_waiting(path: str, flags: int) -> int:
    """Open a file. Opening a named pipe (FIFO) in its place does not wait for the other end. OSError."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, PRIVATE_FILE)


def open_regular(path: str, flags: int) -> int:
    """Return a descriptor of a regular file. FileNotFoundError; StorageFull or DiskFailed otherwise."""
    try:
        descriptor = without_waiting(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise translate(error, "open", path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DiskFailed(f"cannot open {path}: it is not a regular file. {_IN_ITS_PLACE}")
    return descriptor


def _opened(path: str, flags: int) -> RealFile:
    return RealFile(path, open_regular(path, flags))


class RealFileReader:
    """The operating system's files, read-only: enough for a copy on a read-only disk, or for files of another user."""

    def open(self, path: str) -> RealFile:
        return _opened(path, os.O_RDONLY)

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise translate(error, "list", directory) from error

    def read(self, path: str) -> bytes:
        """Return a whole file. OSError."""
        with open(path, "rb", opener=without_waiting) as file:
            return file.read()


class RealFileSystem(RealFileReader):
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return _opened(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def make_directory(self, path: str) -> None:
        missing: list[str] = []
        parent = os.path.abspath(path)
        while not os.path.isdir(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for directory in reversed(missing):
            try:
                os.mkdir(directory, PRIVATE_DIRECTORY)
            except FileExistsError:
                continue
            except OSError as error:
                raise translate(error, "create directory", directory) from error
            self.sync_directory(os.path.dirname(directory))

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise translate(error, f"rename {source} to", target) from error

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise translate(error, "remove", path) from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise translate(error, "open directory", path) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise FsyncFailed(
                f"fsync of directory {path} failed: {error.strerror}. Check the disk and start the node again."
            ) from error
        finally:
            os.close(descriptor)
