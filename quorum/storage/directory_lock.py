"""One process per metadata directory: two that write the same log would destroy it.

The lock is the kernel's (flock) and ends with its process. The file stays and names the process that held it last.
"""

from __future__ import annotations

import fcntl
import os
from types import TracebackType

from .errors import DirectoryInUse
from .file_system import open_regular, translate

FILE_NAME = ".metadata.lock"


class DirectoryLock:
    """Held between enter and exit. DirectoryInUse if another process has it; StorageFull or DiskFailed if the disk refuses."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        try:
            self._descriptor = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError as error:
            raise translate(error, "open", self._path) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            self._close()
            raise DirectoryInUse(
                f"metadata directory {self._directory} is in use by {f'process {holder}' if holder else 'another process'}; stop "
                "that process, or give this node a metadata.log.dir of its own"
            ) from None
        os.ftruncate(self._descriptor, 0)
        try:
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self._close()
            raise translate(error, "write", self._path) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
